"""DG-CoLearn (arXiv:2605.31427): collaborative learning on one dynamic graph, cut among clients.

The server holds the graph, assigns new nodes to clients (``server.placement``), and before every
layer sends each border node the sum of the messages of its neighbours at other clients
(``server.graph``): K clients compute the forward pass of one machine, with ``schedule="together"``
the backward pass too. A client keeps its nodes, their edges and states (``client.part``). Messages
and sums that did not change do not travel again.

Different from the paper, by default:

- the partition is ``multilevel``; the paper's CoLearnPartition is ``partition="colearn"``
- rows of all own nodes are trained; Eqs. (1), (4), the k-hop subgraph, need ``scope="changed"``,
  whose time follows what changed (``_dgcolearn/graph.py``)
- the exchange is layer by layer, as Eqs. (5), (6) are not exact (``_dgcolearn/exchange.py``)
- gradients of all clients are added up for one step of Adam at the server; models are averaged,
  every round, with local epochs alone, whose schedule ``before`` is none of Appendix D.2's four
- the loss has pairs across clients, too: clients send rows, and get the gradients of these; with
  local epochs it has pairs inside clients, with as many random ones at each (Appendix E.1)
- a pair's score is the dot product plus an MLP (``nn/roland.py``; the paper: the dot product)
- a node's own row has weights V, where Eq. (2) has {v} in AGG; no sigma after the last layer
- states and scores come from the shared model and a fresh exchange, without the edges predicted
- clients are as many from the start; Appendix A.1 adds one where the snapshot has grown
- a client learns which of its nodes have neighbours elsewhere, and how many, which Section 3.3
  keeps from it

What each side learns of the data (Section 3.3, Appendix H): ``docs/reference-dgcolearn.md``.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import model_validator

from fedvine.aggregate.means import NeighbourSums
from fedvine.core import tree
from fedvine.core.compiling import timed
from fedvine.core.expect import Tensor
from fedvine.core.lookup import unique
from fedvine.core.method import At, Client, Field, Method, Server, World
from fedvine.core.rng import rng
from fedvine.data.snapshot import Snapshot
from fedvine.data.stream import EventStream
from fedvine.methods._dgcolearn import events, node_tables
from fedvine.methods._dgcolearn.client import ClientFunctions
from fedvine.methods._dgcolearn.exchange import FEATURES, Pass, exchange_features
from fedvine.methods._dgcolearn.graph import NOTHING, ChangedGraph
from fedvine.methods._dgcolearn.part import Part
from fedvine.methods._dgcolearn.placement import Partition, Placement, renumber
from fedvine.methods._dgcolearn.targets import targets
from fedvine.methods._edge_means import EdgeMeans
from fedvine.nn.backbones import Backbone, network
from fedvine.nn.roland import Network

Schedule = Literal["together", "before", "first-epoch", "last-epoch", "first-round", "middle-round"]
BLOCK = 1 << 13     # pairs that are scored at a time


class DgCoLearn(ClientFunctions, Method):
    """K clients that compute what one machine would on the whole graph."""

    name: ClassVar[str] = "dgcolearn"
    parallel: ClassVar[bool] = False
    server_holds_graph: ClassVar[bool] = True
    edge_columns: ClassVar[bool] = True
    #: Whether nodes have the means of what their edges said among their columns.
    edge_means: ClassVar[bool] = True
    #: Columns of features where the data have none: random ones from the hash of a node's name, 1,
    #: and log(1 + degree).
    features: ClassVar[int] = 32
    #: Of dygformer: length of a node's sequence, itself and the other ends of its newest events,
    #: and places of a patch.
    sequence: ClassVar[int] = 32
    patch: ClassVar[int] = 2
    placement: ClassVar[type[Placement]] = Placement
    space: ClassVar[dict[str, Any]] = {"learning_rate": (1e-3, 0.03, "log"), "hidden": [16, 32, 64],
                                      "window": [1, 3, 10], "epochs": [1, 3]}

    aggregate: NeighbourSums = NeighbourSums()
    rounds: int = Field(default=10, ge=0, description="rounds a stage, R")
    hidden: int = Field(default=32, ge=1, description="width of hidden rows and states")
    layers: int = Field(default=2, ge=1, description="layers, k")
    precision: Literal["float32", "float64"] = Field(default="float32", description="of numbers")
    window: Annotated[int, Field(ge=1)] | Literal["all"] = Field(
        default=3, description="stages that an edge lives after it was last seen, or until removed")
    partition: Partition = Field(
        default="multilevel", description="clients of the first stage's nodes: few edges between "
        "clients (multilevel, stream, metis, louvain), the paper's growth from seeds (colearn, "
        "whose first aim is the cut; colearn-balance, colearn-label: Appendix B), "
        "unlike classes (label_skew), by hash, or the client of a node's first edge (split, by a "
        "column)")
    target: Literal["edges", "classes"] = Field(
        default="edges", description="what is predicted: the next stage's edges, or nodes' classes")
    scope: Literal["snapshot", "changed"] = Field(
        default="snapshot", description="rows that are computed anew: of all nodes, or of those "
        "within k edges of what changed (Eqs. 1, 4); others keep their last states")
    neighbours: int = Field(
        default=0, ge=0, description="with scope=changed: so many neighbours of a node are read, "
        "the newest, and followed to what changed; rows asked for are computed anew; 0: all")
    stale: int = Field(
        default=0, ge=0, description="with scope=changed: every node's states are computed once in "
        "so many snapshots, in turn; 0: only where something changed")
    exchange: Literal["layerwise", "paper", "two-hop-exact", "fedgcn", "none"] = Field(
        default="layerwise", description="what clients learn of neighbours elsewhere: sums before "
        "each layer; Eqs. (5), (6) as printed; the same, exact on plain sums; "
        "means of features in place of features (the paper: sums); nothing")
    backbone: Backbone = Field(
        default="sage", description="aggregation: mean; that of a GCN; a GCN whose weights evolve "
        "and not states (EvolveGCN; version h by the top rows "
        "of a client); graph "
        "convolutions, then an LSTM, or within the gates of a GRU or an LSTM (GCRN); memories "
        "that events update, in continuous time (TGN); a transformer over the newest events of a "
        "pair's ends (DyGFormer)")
    temporal: Literal["gru", "mlp", "average", "none"] = Field(
        default="gru", description="update of states: a gated recurrent unit (Eq. 3), one dense "
        "layer, the moving average of the authors' code, or none; of sage and gcn alone")
    epochs: int = Field(default=1, ge=1, description="epochs a round, E: local ones, or steps that "
                        "all make together")
    learning_rate: float = Field(default=0.01, gt=0, description="learning rate of Adam")
    schedule: Schedule = Field(
        default="together", description="clients return gradients of sums, too, and the server "
        "makes one machine's steps (with another exchange than layerwise it is before); or local "
        "epochs, averaging, and new sums before a round, of the shared model; or (Appendix D.2) of "
        "the clients' own models after the first or last epoch of every round, or after the last "
        "of the first or the middle round")

    @model_validator(mode="before")
    @classmethod
    def _gradients_need_layers(cls, values: Any) -> Any:
        """Take local epochs for an exchange that has no gradients."""
        other = isinstance(values, dict) and values.get("exchange", "layerwise") in FEATURES
        return {**values, "schedule": "before"} if other and values.get(
            "schedule", "together") == "together" else values

    @model_validator(mode="after")
    def _bounds_need_the_changed_set(self) -> Self:
        if (self.neighbours or self.stale) and not (
                self.scope == "changed" and self.together and not self.sums.blur
                and self.sums.min_group == 1 and self.backbone not in (
                    "evolvegcn-h", "dygformer", "tgn")):
            raise ValueError("neighbours and stale are for scope=changed with exchange=layerwise "
                             "and schedule=together, without blur, min_group, evolvegcn-h or tgn; "
                             "leave them out")
        return self

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        sums, corrected = self.sums, self.exchange in FEATURES
        withheld = sums.min_group > 1
        if self.exchange == "none" and self.schedule not in ("together", "before"):
            raise ValueError("with exchange=none there is nothing to exchange at any time; leave "
                             "out schedule")
        if self.aggregate.by != "mean" and self.together:
            raise ValueError("clients return parts of one machine's gradients, which are added and "
                             "not averaged; with aggregate.rule set schedule = \"before\"")
        usual = type(self).model_fields["temporal"].default
        if self.temporal != usual and self.backbone not in ("sage", "gcn"):
            raise ValueError(f"temporal is for the backbones sage and gcn; leave it out with "
                             f"{self.backbone}")
        if (self.exchange in ("paper", "two-hop-exact")
                and self.backbone in ("gcrn-gru", "gcrn-lstm")):
            raise ValueError(f"Eqs. (5) and (6) are added to the rows between convolution and "
                             f"state, which {self.backbone} does not have; choose another exchange "
                             "or gcrn-baseline")
        if self.backbone == "tgn" and (corrected or withheld):
            raise ValueError("tgn needs exchange=layerwise or none and no min_group, as sums of "
                             "memories come in no other way, and none of them is withheld")
        if self.backbone == "dygformer" and (
                self.target == "classes" or self.scope == "changed" or sums.blur
                or corrected or withheld):
            raise ValueError("dygformer computes pairs from lists of events, and no rows from "
                             "sums: it needs target=edges, scope=snapshot and exchange=layerwise "
                             "or none; leave out blur and min_group, as nothing is added up")
        return self

    @property
    def task(self) -> Literal["link", "label"]:  # type: ignore[override]
        """Return what is predicted: "link" or "label"."""
        return "link" if self.target == "edges" else "label"

    @property
    def revision(self) -> int:  # type: ignore[override]
        """Return 2, for sums in another order; 3 where clients draw random ends among their own."""
        return 2 if self.together or self.target == "classes" else 3

    @property
    def together(self) -> bool:
        """Return whether all clients make one machine's steps together."""
        return self.schedule == "together" and self.exchange == "layerwise"

    @property
    def sums(self) -> NeighbourSums:
        """Return what guards sums over neighbours; nothing in methods that have none."""
        return self.aggregate if isinstance(self.aggregate, NeighbourSums) else NeighbourSums()

    @classmethod
    def tiny(cls) -> Self:
        return cls(rounds=2, hidden=4)

    # -- memory ----------------------------------------------------------------------------------
    def start(self, world: World) -> Server:
        net = self.net(world).to(self.where)
        server = Server(
            net=net, optimizer=self.adam(net),
            snapshot=Snapshot(None if self.window == "all" else self.window),
            graph=self.empty_graph(),
            events=events.events_for(net),
            placement=self.placement(world, self.partition),
            joined=list(world.clients))     # clients that have received the newest subgraph
        if self.of_edges(world):
            server.means = EdgeMeans(world)
        if self.sums.blur:
            server.secret = secrets.token_bytes(32)
        return server

    def setup(self, client: Client) -> None:
        net = self.net(client.world).to(self.where)
        client.part = Part(self.width(client.world), net.state_widths,
                           getattr(torch, self.precision), self.where)
        client.net, client.optimizer = net, self.adam(net)

    @property
    def read_at_most(self) -> int:
        """Return how many neighbours of a node are read, the newest; 0: all."""
        return self.neighbours

    def empty_graph(self) -> ChangedGraph:
        """Return a graph that messages go over, without nodes."""
        turns = self.stale if self.scope == "changed" else 1
        return ChangedGraph(self.layers, self.read_at_most, turns, group=self.sums.min_group,
                            apart=self.exchange != "layerwise",
                            holds=not self.sums.blur)

    def net(self, world: World) -> Network:
        """Return the model that all share, with its first weights."""
        classes = world.facts.get("classes", 0) if self.target == "classes" else 0
        return network(self.backbone, self.temporal, self.width(world), self.hidden, self.layers,
                       seed=world.seed, directed=world.facts.get("directed", True),
                       classes=classes, patch=self.patch).to(getattr(torch, self.precision))

    def adam(self, net: Network) -> torch.optim.Adam:
        """Return the optimiser of ``net``."""
        return torch.optim.Adam(net.parameters(), lr=self.learning_rate)

    def width(self, world: World) -> int:
        """Return the number of columns F of features."""
        own = world.facts.get("features", 0)
        return ((own + 2 if own else self.features) + node_tables.columns(world)
                + self.of_edges(world))

    def of_edges(self, world: World) -> int:
        """Return how many of them are means of columns of edges."""
        return node_tables.of_edges(world) if self.edge_means else 0

    # -- a stage arrives -------------------------------------------------------------------------
    def arrive(self, server, clients, at: At) -> None:
        placement, snapshot, graph, stage, past = (
            server.placement, server.snapshot, server.graph, server.stage, server.past)
        renumber(server, stage)                                     # users and items that are new
        fresh = snapshot.advance(stage)
        with timed(server.cache, f"partition {snapshot.t}"):
            placement.assign(stage, past, snapshot, fresh)          # (i) partition, Section 4.1
        graph.grow(len(placement.owner))
        placement.describe(stage, past, snapshot)
        new = placement.introduce(stage, past, fresh)
        clients.call(self.meet, per_client=new, expect=None)
        graph.meet(fresh)
        if stage.nodes is not None:                                 # features, some of them new
            graph.held.renew(unique(stage.nodes.node), NOTHING)
        server.events.arrive()
        if self.target == "classes" or not at.R:
            self.next_snapshot(server, clients)

    def next_snapshot(self, server, clients) -> None:
        """Let messages go over the newest snapshot from now on; clients get what changed."""
        place, graph, snapshot = server.placement, server.graph, server.snapshot
        told = node_tables.learn(server)
        were, are = events.among(graph.adjacency), events.among(snapshot.graph)
        told = np.union1d(told, server.events.advance(server.stage, were, are, len(place.owner)))
        added, removed = graph.advance(snapshot, place.owner, self.layers, told)        # (1)
        if len(server.joined) < len(clients.names):
            graph.held.forget()
        changes = {n: place.subgraph(server, k, (added, removed, told) if n in server.joined
                                     else None) for k, n in enumerate(clients.names)}
        server.joined = []
        server.joined = sorted(clients.call(self.join, per_client=changes, expect=None).names)
        server.events.recall(self, server, clients)

    # -- a round ---------------------------------------------------------------------------------
    def round(self, server, clients, at: At) -> None:
        # (i) partition: `arrive` has assigned the stage's new nodes
        ends, labels = targets(self.target, server, rng(clients.world.seed, "pairs", at.t, at.r),
                               local=not self.together)
        for _ in range(self.epochs if self.together else 0):
            self.step(server, clients, ends, labels)
        if not self.together:
            self.local_epochs(server, clients, ends, labels, at)
        if at.last:
            self.commit(server, clients)                        # states of this snapshot
            if self.target == "edges":
                self.next_snapshot(server, clients)

    def step(self, server, clients, ends: np.ndarray, labels: np.ndarray) -> None:
        """Make the step that one machine would make on the whole graph.

        That is the forward pass at the clients, the loss at the server, gradients back through the
        clients, and one step of Adam. Rows that are not of the changed set are constants. ``ends``
        are pairs of nodes int64 [2, P], or nodes [1, P]; ``labels`` [P] are 1 for an edge and 0, or
        classes.
        """
        net = server.net
        net.zero_grad()
        if net.paired:
            gradients = events.pair_gradients(self, server, clients, ends, labels)
        else:
            nodes, at = np.unique(ends, return_inverse=True)
            rows, run = self.forward(server, clients, nodes, learn=True)        # (ii) and (iii)
            rows = rows.to(self.where).requires_grad_()
            net.descend(rows, at.reshape(ends.shape), labels)
            assert rows.grad is not None
            run.turn(rows.grad)
            fixed = not net.short(0)                # messages of layer 0 have no gradients
            for layer in reversed(range(fixed, self.layers)):
                sent = clients.call(self.backward, layer, per_client=run.per_client(),
                                    expect=run.gradients_expected(layer))
                run.add_back(layer, sent)                                       # C^T of (5)
            gradients = clients.call(self.first_layer, per_client=run.per_client(), expect={
                name: Tensor(self.precision, tuple(p.shape), -1e18, 1e18)   # 1e9 times 1e6, added
                for name, p in net.named_parameters()})
        for gradient in gradients:
            for name, p in net.named_parameters():
                add = gradient[name].to(p.device)
                p.grad = add if p.grad is None else p.grad + add
        # Adam squares them, and would never recover from an infinity.
        if all(p.grad is None or p.grad.square().isfinite().all() for p in net.parameters()):
            server.optimizer.step()

    def forward(self, server, clients, nodes: np.ndarray, learn: bool = False
                ) -> tuple[torch.Tensor, Pass]:
        """Carry out the forward pass of the shared model for ``nodes`` int64, ascending.

        With ``learn`` gradients will be asked for. Return their rows [n, hidden], 0 for nodes never
        seen, and the pass.
        """
        server.placement.send(self, server, clients)        # to clients that were away
        if self.exchange in FEATURES:
            exchange_features(self, server, clients, tree.weights(server.net))
        place, graph = server.placement, server.graph
        deep = graph.limit > 0
        now = place.owner[nodes] >= 0 if deep else graph.active[nodes]
        run = self.exchange_layers(server, clients, tree.weights(server.net), nodes[now],
                                   deep=deep, learn=learn)
        expected = run.wanted(nodes, now)
        return run.rows(clients.call(self.finish, per_client=run.per_client(),
                                     expect=expected)), run

    def exchange_layers(self, server, clients, model: Any, rows: np.ndarray, **how: bool) -> Pass:
        """Carry out the layers of a pass over ``rows`` int64 up to the sums of the last one.

        Each client uses ``model`` (None: its own); ``how`` as :class:`Pass` takes it.
        """
        steps = server.graph.plan(rows, server.placement, server.net, how.get("deep", False))
        run = Pass(self, server, clients, steps, **how)
        for layer in range(self.layers):                    # (iii) exchange before every layer
            sent = clients.call(self.send_messages, layer, model, per_client=run.per_client(),
                                expect=run.messages_expected(layer))
            run.add_up(layer, sent)                                                     # (5)
            model = None                                    # clients have it since the first layer
        run.close()
        return run

    def commit(self, server: Server, clients) -> None:
        """Let the rows of all changed nodes, of the shared model, become states, Eq. (4)."""
        if server.net.paired:
            return                                          # nodes have no states
        graph = server.graph
        server.placement.send(self, server, clients)
        if self.exchange in FEATURES:
            exchange_features(self, server, clients, tree.weights(server.net))
        run = self.exchange_layers(server, clients, tree.weights(server.net), graph.changed,
                                   saved=True)
        saved = clients.call(self.save_states, per_client=run.per_client(), expect=None)
        graph.held.end(graph.changed, server.net.tells_states)
        if len(saved.names) < len(clients.names):
            graph.held.forget()

    def local_epochs(self, server: Server, clients, ends, labels, at: At) -> None:
        """Let clients train by themselves, exchange when it is due, and average their models."""
        server.placement.send(self, server, clients)
        own = (events.pairs_inside(self, server, clients, ends, labels) if server.net.paired else
               server.placement.targets_by_client(ends, labels))
        E, only = self.epochs, {"first-round": at.first, "middle-round": at.r == (at.R + 1) // 2}
        due = self.exchange != "none" and only.get(self.schedule, True) and not server.net.paired
        before, after = {"before": (0, E), "first-epoch": (1, E - 1)}.get(self.schedule, (E, 0))
        model, present = tree.weights(server.net), server.events.ready(server)
        if before:                                      # (ii) train on the k-hop subgraph
            present = clients.call(self.train, model, before, per_client=own, only=present,
                                   expect=None).names
            model = None                                # from here on each client has its own
        if due:                                         # (iii) exchange layer by layer
            present, model = self.exchange_once(server, clients, model), None
        if after:                                       # (ii)
            present = clients.call(self.train, model, after, per_client=own, only=present,
                                   expect=None).names
        sent = clients.call(self.trained, only=present, expect=tree.weights(server.net))
        sizes = [len(own[n][1]) for n in sent.names]    # pairs (nodes) that each trained on
        if sum(sizes):                                  # the average, weighted by these
            tree.load(server.net, self.aggregate.average(
                clients, dict(sent.items()), tree.weights(server.net), sizes))

    def exchange_once(self, server: Server, clients, model: Any) -> Sequence[str]:
        """Exchange once for the local epochs that follow; return the clients that took part."""
        if self.exchange in FEATURES:
            return exchange_features(self, server, clients, model)
        run = self.exchange_layers(server, clients, model, server.graph.changed)
        return clients.call(self.hold, per_client=run.per_client(), expect=None).names

    # -- answers ---------------------------------------------------------------------------------
    def answer(self, server, clients, at: At) -> dict[str, np.ndarray]:
        """Return the scores of the server's queries, and at which clients they are."""
        return (self.classes if self.target == "classes" else self.links)(server, clients, at)

    def links(self, server: Server, clients, at: At) -> dict[str, np.ndarray]:
        """Return the scores [Q] of queried pairs by the newest rows, 0 for nodes never seen.

        Beside ``scores`` there is ``across``, bool [Q]: whether a pair's ends are at two clients.
        """
        server = ahead(server, deep=False)
        renumber(server, server.stage)
        shift = server.stage.num_src if server.stage.bipartite else 0
        ends = server.queries.src, server.queries.dst + shift
        a, b = (server.placement.part[e] for e in ends)
        return {"scores": self.scores(server, clients, np.stack(ends)),
                "across": (a != b) & (a >= 0) & (b >= 0)}

    def classes(self, server: Server, clients, at: At) -> dict[str, np.ndarray]:
        """Return the scores [Q, classes] of queried nodes, and the client of each.

        The graph goes on to the snapshot of the query, or back to it; model and states stay.
        """
        server = ahead(server, deep=True)
        queries = server.queries
        if queries.again:
            self.back(server, queries.again)
        for i, (stage, past) in enumerate(queries.ahead):
            if i:                                   # states of the snapshot between
                self.commit(server, clients)
            server.stage, server.past = stage, past
            self.arrive(server, clients, at)
        return {"scores": self.class_scores(server, clients, queries.nodes),
                "client": np.asarray(clients.names)[server.placement.part[queries.nodes]]}

    def back(self, server: Server, stages: list[EventStream]) -> None:
        """Let messages go over the snapshot that these stages ended with, all rows computed anew.

        Raises :class:`FedvineError` for networks with times.
        """
        server.events.go_back()
        snapshot, graph = Snapshot(server.snapshot.window), self.empty_graph()
        for stage in stages:
            snapshot.advance(stage)
        graph.grow(len(server.placement.owner))
        graph.served = server.graph.served
        graph.meet(server.graph.order)
        graph.advance(snapshot, server.placement.owner, self.layers, server.graph.order)
        server.graph, server.joined = graph.ahead(), []

    def class_scores(self, server, clients, nodes: np.ndarray) -> np.ndarray:
        """Return the scores [Q, classes] of ``nodes`` int64 [Q] in the server's snapshot."""
        return self.scores(server, clients, nodes[None])

    def scores(self, server: Server, clients, nodes: np.ndarray) -> np.ndarray:
        """Return the scores of pairs int64 [2, Q], as [Q], or of nodes [1, Q], [Q, classes]."""
        if server.net.paired:
            return events.pair_scores(self, server, clients, nodes)
        return scored(server, *self.rows_of(server, clients, nodes))

    def rows_of(self, server: Server, clients, nodes: np.ndarray
                ) -> tuple[torch.Tensor, np.ndarray]:
        """Return newest rows [., hidden], and which of them are those of ``nodes`` int64 [...].

        Rows of nodes never seen are 0.
        """
        there = np.zeros(nodes.max(initial=-1) + 1, bool)   # np.unique would sort all queries
        there[nodes] = True
        return (self.forward(server, clients, np.flatnonzero(there))[0],
                (np.cumsum(there) - 1)[nodes])

    def scorer(self, server: Server, clients) -> Callable[[np.ndarray], np.ndarray]:
        """Return a function of pairs int64 [2, Q] that returns their scores [Q]; rows of now."""
        if server.net.paired:
            return partial(self.scores, server, clients)
        rows, _ = self.rows_of(server, clients, np.arange(len(server.placement.owner)))
        return lambda ends: scored(server, rows, ends)

    def report(self, server: Server) -> dict[str, Any]:
        """Return facts of the partition, see :meth:`Placement.report`.

        With ``scope="changed"`` also ``passes``, the facts of each snapshot's passes
        (:meth:`ChangedGraph.note`).
        """
        found = server.placement.report(server.snapshot, sum(
            s for k, s in server.cache.items() if k.startswith("partition")))
        return found if self.scope == "snapshot" else found | {"passes": server.graph.history}


def ahead(server: Server, deep: bool) -> Server:
    """Return a copy of the server's memory, to go on with while the library scores.

    ``deep``: a stage may arrive, which writes to arrays.
    """
    found = type(server)(**vars(server))
    found.cache, found.graph = {}, server.graph.ahead()
    found.events = server.events.ahead(deep)
    for name in ("snapshot", "placement", "graph", "means"):
        if name in vars(found):
            setattr(found, name, (copy.deepcopy if deep else copy.copy)(vars(found)[name]))
    return found


def scored(server: Server, rows: torch.Tensor, at: np.ndarray) -> np.ndarray:
    """Return the model's scores of the ``rows`` [., hidden] of nodes, or of pairs of them.

    ``at`` has their positions, [1, Q] or [2, Q]. Blocks of them fit a cache.
    """
    with torch.no_grad():
        rows = rows.to(next(server.net.parameters()))
        found = torch.cat([server.net.score(*(rows[n[i:i + BLOCK]] for n in at))
                           for i in range(0, max(at.shape[1], 1), BLOCK)])
        return found.nan_to_num_().cpu().numpy()        # of large numbers that a client sent
