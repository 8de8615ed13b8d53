"""A federation of labelled graphs in this process: sites behind bytes, each with tables of its own.

Beside it the run that one process makes of all of these graphs.
"""

import threading
from dataclasses import replace

import numpy as np
from engines.small_kits import kit

from fedvine.core.ledger import seeded
from fedvine.core.message import loads, unpack
from fedvine.core.rng import rng
from fedvine.data.edge_rows import DATE, EdgeRows
from fedvine.data.graph import Graph, Owner
from fedvine.data.ids import Ids
from fedvine.data.io.nodes import in_order
from fedvine.data.split import Split
from fedvine.data.stream import NUMBER
from fedvine.engines.remote import Gone
from fedvine.experiments.run import run
from fedvine.federation import roster
from fedvine.federation.order import Order
from fedvine.federation.server import learn, open_order
from fedvine.federation.signed import Signer, Trusted
from fedvine.federation.site import Site
from fedvine.tasks.task_plan import by_task

SERVER, NAMES = "hub.example", ("ann", "bob", "cy")
# Long enough not to be in random bytes by chance.
WORDS = ("apple", "blackberry", "cherries", "elderberry", "grapefruit", "mandarin", "pomegranate",
         "walnuts")


def whole(count=180, classes=6, seed=0, told=False):
    """One labelled graph of all sites: nodes whose features say their class, edges inside sites.

    ``told``: with amounts and times of edges, also of some between sites.
    """
    draw = rng("labelled", seed)
    y = draw.integers(-1, classes, count)
    x = (draw.normal(size=(count, 5)) + np.eye(classes, 5)[y] * 2).astype(np.float32)
    owner = (np.arange(count) % len(NAMES)).astype(np.int32)
    ends = draw.integers(0, count, (2, 6 * count))
    names = in_order(WORDS[:classes])
    values = np.stack([draw.lognormal(3, 1, 6 * count), draw.integers(0, 10 ** 6, 6 * count)], 1)
    rows = EdgeRows(*ends.astype(np.int32), values, {"amount": NUMBER, "at": DATE})
    return Graph.make(x, ends[:, owner[ends[0]] == owner[ends[1]]], y, classes=names,
                      name="federation", owner=Owner(owner, NAMES),
                      ids=Ids.of([f"n{i:03}" for i in range(count)])
                      ).with_rows(rows if told else None)


def table(graph, nodes):
    """A table with these nodes: it has the classes that they have, in the order of the names."""
    part = graph.induced(np.asarray(nodes), graph.name)
    used = np.unique(part.y[part.y >= 0])
    number = np.full(len(part.classes) + 1, -1)
    number[used] = np.arange(len(used))
    return replace(part, y=number[part.y], classes=tuple(part.classes[c] for c in used),
                   ids=Ids.of([part.ids[i] for i in range(len(part))]),
                   nodes=np.arange(len(part)), columns=tuple("abcde"))


def own(graph, name, secret=b"shared by sites"):
    """The table of one site."""
    found = table(graph, np.flatnonzero(graph.owner.of == graph.owner.names.index(name)))
    found.ids.secret = secret
    return replace(found, owner=None, name=name)


class Federation:
    """Sites with tables of their own, and a server that opens its order on them.

    ``tables`` by site are those of :func:`own` if not given. The sites confirmed one roster.
    """

    def __init__(self, folder, method, tables=None, **order):
        self.folder, self.away, self.openly = folder, set(), order.pop("openly", True)
        self.tables = tables or {name: own(whole(), name) for name in NAMES}
        self.kits = {name: kit(folder / "kits", name) for name in (SERVER, *self.tables)}
        known = dict(roster.own_line(self.kits[name]).split() for name in self.tables)
        for name in self.tables:
            roster.keep(self.kits[name], known)
        self.order = Order.model_validate({
            "out": str(folder / "run"), "seed": 3, "class_names": "open", "stages": 2, **order,
            "method": {"name": method.name, **method.model_dump(mode="json", exclude_none=True)}})
        self.said, self.restart, self.turn = [], self._start, threading.Lock()
        self._start()

    def _start(self):
        """Start all processes again: nothing but files survives."""
        self.sites = {n: Site(n, lambda n=n: self.tables[n], self.folder / n,
                              Trusted(self.kits[n], n), openly=self.openly, fresh=seeded(7),
                              identity=lambda n=n: roster.identity(self.kits[n], n))
                      for n in self.tables}
        self.send = Signer(self.kits[SERVER], "a run", self.deliver,
                           lambda name, seconds: self.sites[name].trusted.session)

    def deliver(self, name, block, seal, seconds):
        if name in self.away:
            raise Gone(name)
        with self.turn:         # np.load in two threads at once fails at times in Python 3.11
            answer = bytes(self.sites[name].handle(bytes(block), seal))
        self.said.append((name, unpack(loads(block))["do"], bytes(block), answer))
        return answer

    def open(self):
        """Return the run, None where nothing is new, and the state of waiting."""
        here = [n for n in self.tables if n not in self.away]
        return open_order(self.order, "a run", here, self.send)

    def finish(self):
        """Carry the run out, with the labels of all sites."""
        made, state = self.open()
        if made is not None:
            assert learn(made, self.order, self.folder, "a run") == ""
        return made, state


def one_process(method, graph=None, out=None, classes=2, **tasks):
    """The run of one process on the graphs of all sites."""
    graph = whole() if graph is None else graph
    parts = graph.split("client")
    assert isinstance(parts, Split)
    return run(method, parts, by_task(graph, classes, seed=3, **tasks), seed=3, out=out,
               fresh=seeded(7)).finish()


def scores(made):
    return [[s.t, s.found] for s in made.stages]
