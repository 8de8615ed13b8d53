"""Events in continuous time: memories for TGN, and lists of the newest events for DyGFormer.

**TGN.** The mean message of a node, Eqs. (1) and (3) of TGN (:mod:`fedvine.nn.tgn`), is over its
events, also those with nodes at other clients. Their part of the sum of memories goes through the
server as sums over neighbours do before each layer (:mod:`fedvine.methods._dgcolearn.exchange`), so
that any number of clients computes the same mean. Memories of the stage before are constants, so
this happens once for a snapshot, and no gradient comes back. Ages are those of the nodes whose rows
are computed, and all this takes time that follows these and the stage's events.

**DyGFormer.** A pair is computed at the client of its first end. The server, which knows the graph,
tells this client the lists of both ends, who and when, also of ends and other nodes elsewhere; the
features of nodes elsewhere come from their clients through the server. So every pair is computed as
one machine would, and the gradients of all clients add up to that machine's. With
``exchange="none"`` lists have events between the client's own nodes alone, and of an end elsewhere
nothing is known: its list is empty, and its features are 0. An event counts as long as its edge
lives in the snapshot: until the edge leaves it by the window, or is removed. An edge that comes
again later has the events since then.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch.nn.functional import binary_cross_entropy_with_logits

from fedvine.core import tree
from fedvine.core.errors import FedvineError
from fedvine.core.expect import Tensor
from fedvine.core.lookup import find, unique
from fedvine.core.method import Client, Server
from fedvine.data.adjacency import Adjacency
from fedvine.data.snapshot import ends_of, unpacked
from fedvine.data.stream import EventStream
from fedvine.methods._dgcolearn.exchange import divided, filled, named, noisy, sized
from fedvine.methods._dgcolearn.graph import NOTHING
from fedvine.methods._dgcolearn.part import Part
from fedvine.nn.tgn import WAVES, waves

Told = dict[str, Any]       # what a client gets to compute pairs, see :func:`sequences`
Are = Callable[[np.ndarray], np.ndarray]        # whether edges, by their codes, are in a snapshot


def among(edges: Adjacency) -> Are:
    """Return the function for the edges of a graph."""
    return lambda codes: edges.has(*unpacked(codes))


class NoEvents:
    """The events that networks keep which read the snapshot alone: none. Others override this."""

    def arrive(self) -> None:
        """Forget what is of one stage alone, as the next one arrives."""

    def advance(self, events: EventStream, were: Are, are: Are, count: int) -> np.ndarray:
        """Take in a stage's events; return the nodes int64 whose rows change by them.

        ``were`` and ``are``: which edges lived in the snapshot before, and which live now.
        ``count`` is the number of nodes.
        """
        return NOTHING

    def recall(self, method: Any, server: Server, clients) -> None:
        """Let clients know what the newest events say, unless they do."""

    def ready(self, server: Server) -> tuple[str, ...]:
        """Return the names of the clients that know the newest snapshot and these events."""
        return tuple(server.joined)

    def go_back(self) -> None:
        """Allow an earlier snapshot to be asked about; else raise :class:`FedvineError`."""

    def ahead(self, deep: bool) -> Self:
        """Return a copy to go on with while the library scores; ``deep``: a stage may arrive."""
        return (copy.deepcopy if deep else copy.copy)(self)

    def renumber(self, number: np.ndarray, moved: Callable[[np.ndarray, Any], np.ndarray]) -> None:
        """Give node i the number ``number[i]``; ``moved`` does so with values by node."""

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state of :meth:`state_dict`."""


class Recent(NoEvents):
    """The newest stage's events, and the time of each live edge; kept by the server.

    - ``events``: int64 [2, E], without deletions and loops; ``gaps``: float64 [2, E], for both ends
      the time since the node's last event in an earlier stage, 0 if there is none
    - ``last``: float64 [N], the time of each node's last event, NaN if there is none
    - ``now``: float64, the time of the newest event
    - ``runs``: codes int64, sorted, and times float64 of edges, the last event of each; of an edge
      in several runs that of the last one counts. Each is at least twice as long as the next, so
      that a stage takes time that follows its events
    - ``heard``: names of the clients that know all this, sorted; None: none yet

    Arrays are replaced, never written to.
    """

    def __init__(self) -> None:
        self.events, self.gaps = np.empty((2, 0), np.int64), np.empty((2, 0))
        self.last, self.now = np.empty(0), 0.0
        self.runs = list[tuple[np.ndarray, np.ndarray]]()
        self.heard: list[str] | None = None

    def arrive(self) -> None:
        self.heard = None

    def advance(self, events: EventStream, were: Are, are: Are, count: int) -> np.ndarray:
        """Take in a stage's events; return the nodes int64 of its events and of those before."""
        ends, t = np.stack(ends_of(events)), np.asarray(events.t, float)
        kept = ends[0] != ends[1]
        if events.deleted is not None:
            kept &= ~np.asarray(events.deleted)
        ends, t = ends[:, kept], t[kept]
        told = unique(np.concatenate([self.events.ravel(), ends.ravel()]))
        last = np.concatenate([self.last, np.full(count - len(self.last), np.nan)])
        self.events, self.gaps = ends, np.nan_to_num(t - last[ends])
        np.fmax.at(last, ends.ravel(), np.tile(t, 2))
        self.last, self.now, self.heard = last, float(t.max(initial=self.now)), None
        codes, at = np.unique(code(*ends), return_inverse=True)
        times = np.full(len(codes), -np.inf)
        np.maximum.at(times, at.reshape(-1), t)
        old = were(codes)
        times[old] = np.maximum(times[old], self.times(codes[old]))
        self.runs = [*self.runs, (codes, times)]
        while len(self.runs) > 1 and len(self.runs[-2][0]) < 2 * len(self.runs[-1][0]):
            *rest, before, newest = self.runs
            codes, first = np.unique(np.concatenate([newest[0], before[0]]), return_index=True)
            live = are(codes)
            times = np.concatenate([newest[1], before[1]])[first]
            self.runs = [*rest, (codes[live], times[live])]
        return told

    def recall(self, method: Any, server: Server, clients) -> None:
        """Let clients know what the newest events say, unless they do."""
        place, graph = server.placement, server.graph
        if self.heard == server.joined:
            return
        near = ages(self, graph.adjacency, np.sort(graph.changed),
                    place.owner if graph.apart else None)
        cross, sizes, told = told_by_client(self, place, near, graph.apart)
        sent = clients.call(method.memories, per_client=named(clients, told, server.joined),
                            expect=sized(method.precision, clients, sizes, method.hidden))
        rows = np.concatenate(filled(clients, sent, sizes))
        sums = noisy(method, server, rows, divided((cross @ rows).astype(rows.dtype), sizes))
        done = clients.call(method.hear, per_client=named(clients, sums, sent.names), expect=None)
        self.heard = sorted(done.names)

    def ready(self, server: Server) -> tuple[str, ...]:
        return tuple(self.heard or ())

    def go_back(self) -> None:
        raise FedvineError("protocol.forgetting asks about earlier snapshots, whose times tgn no "
                           "longer has; choose another backbone.")

    def times(self, codes: np.ndarray) -> np.ndarray:
        """Return the time float64 [n] of the last event of live edges, by their codes int64."""
        found = np.empty(len(codes))
        for named_, times in self.runs:
            at = find(named_, codes)
            found[at >= 0] = times[at[at >= 0]]
        return found

    def renumber(self, number: np.ndarray, moved: Callable[[np.ndarray, Any], np.ndarray]) -> None:
        self.events, self.last = number[self.events], moved(self.last, np.nan)
        self.runs = [(number[codes >> 32] << 32 | number[codes & 0xFFFFFFFF], times)
                     for codes, times in self.runs]

    def state_dict(self) -> dict[str, Any]:
        return {**vars(self), "runs": {str(i): {"codes": codes, "times": times}
                                       for i, (codes, times) in enumerate(self.runs)}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        runs = [state["runs"][str(i)] for i in range(len(state["runs"]))]
        vars(self).update({**state, "runs": [(np.array(r["codes"]), np.array(r["times"]))
                                             for r in runs]})


def ages(recent: Recent, graph: Adjacency, nodes: np.ndarray, owner: np.ndarray | None = None
         ) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends among ``nodes`` of live edges, and sums of phi over each one's edges.

    These are int64 [n], ascending as ``nodes`` are, and float64 [n, WAVES]. With ``owner`` int [N]
    edges inside clients alone count.
    """
    nodes = nodes[graph.degree[nodes] > 0]
    degree = graph.degree[nodes].astype(np.int64)
    first = graph.start[nodes] - np.cumsum(degree) + degree
    other = graph.pool[np.arange(degree.sum()) + np.repeat(first, degree)].astype(np.int64)
    node, at = np.repeat(nodes, degree), np.repeat(np.arange(len(nodes)), degree)
    order = np.lexsort((other, other < node, at))       # the same whatever the history was
    if owner is not None:
        order = order[(owner[node] == owner[other])[order]]
    found = np.zeros((len(nodes), WAVES))
    np.add.at(found, at[order], waves(recent.now - recent.times(code(node, other)[order])))
    linked = np.bincount(at[order], minlength=len(nodes)) > 0
    return nodes[linked], found[linked]


def told_by_client(recent: Recent, place: Any, near: tuple[np.ndarray, np.ndarray], apart: bool
                   ) -> tuple[csr_matrix, np.ndarray, list[dict[str, np.ndarray]]]:
    """Return the events between clients, and what each client gets of the others.

    These are C, the number of events between border nodes [b, b], the numbers of them at each
    client [K], and what clients get, in their order. ``near`` are nodes with their sums of
    :func:`ages`. ``apart``: nothing of events between clients is said, neither that they took place
    nor when.
    """
    owner, events, gaps = place.owner, recent.events, recent.gaps
    inside = owner[events[0]] == owner[events[1]]
    if apart:
        events, gaps, inside = events[:, inside], gaps[:, inside], inside[inside]
    nodes, at = np.unique(events, return_inverse=True)
    at = at.reshape(2, -1)
    count, phi = np.bincount(at.ravel(), minlength=len(nodes)), np.zeros((len(nodes), WAVES))
    np.add.at(phi, at, waves(gaps))
    a, b = events[:, ~inside]
    border = place.in_order(unique(np.concatenate([a, b])))
    position = np.zeros(len(owner), np.int64)
    position[border] = np.arange(len(border))
    a, b = position[np.concatenate([a, b])], position[np.concatenate([b, a])]
    cross = csr_matrix((np.ones(len(a)), (a, b)), (len(border), len(border)))
    told, (linked, ages) = [], near
    for k, beside in enumerate(place.by_client(border)):
        own, mine = (which[np.argsort(place.place[of[which]])] for of, which in (
            (of, np.flatnonzero(owner[of] == k)) for of in (nodes, linked)))
        told.append({
            "events": place.place[events[:, inside & (owner[events[0]] == k)]].astype(np.int32),
            "border": beside, "busy": place.place[nodes[own]].astype(np.int32),
            "count": count[own].astype(np.int32), "phi": phi[own].astype(np.float32),
            "near": place.place[linked[mine]].astype(np.int32),
            "ages": ages[mine].astype(np.float32)})
    return cross, place.counts(border), told


def memories(part: Part, client: Client, told: dict[str, np.ndarray]) -> torch.Tensor:
    """Take in the newest events; see :meth:`ClientFunctions.memories`."""
    memory = part.states[0][:, client.net.widths[-1]:]
    border, busy, near = (told[n].astype(np.int64) for n in ("border", "busy", "near"))
    a, b = told["events"].astype(np.int64)
    at_a, at_b = (torch.from_numpy(np.searchsorted(busy, e)).to(memory.device) for e in (a, b))
    sums = memory.new_zeros(len(busy), memory.shape[1]).index_add(
        0, at_a, memory[torch.from_numpy(b)]).index_add(0, at_b, memory[torch.from_numpy(a)])
    count, phi = (torch.from_numpy(told[n]).to(memory) for n in ("count", "phi"))
    part.told = {**part.told, "ages": (near, torch.from_numpy(told["ages"]).to(memory))}
    client.cache["told"] = sums, np.searchsorted(busy, border), busy, count[:, None], phi
    return memory[torch.from_numpy(border)]


def hear(part: Part, client: Client, outside: torch.Tensor) -> None:
    """Compute the mean of the newest messages; see :meth:`ClientFunctions.hear`."""
    sums, border, busy, count, phi = client.cache["told"]
    sums = sums.index_add(0, torch.from_numpy(border).to(sums.device), outside.to(sums))
    heard = torch.cat([sums / count, phi / count, torch.ones_like(count)], 1)
    part.told = {**part.told, "heard": (busy, heard)}


# -- lists of events, and pairs in place of rows -------------------------------------------------
class EventLists(NoEvents):
    """The events of live edges, each at both of its ends, by node and then by time.

    - ``node``, ``other``: int64 [2 E], without loops; ``t``: float64 [2 E], times
    - ``now``: float64, the time of the newest event ever, -infinity before the first
    - ``shown``: nodes int64, ascending, and features [n, F] that clients showed; None: none

    Arrays are replaced, never written to.
    """

    def __init__(self) -> None:
        self.node, self.other = np.empty(0, np.int64), np.empty(0, np.int64)
        self.t, self.now = np.empty(0), -np.inf
        self.shown: tuple[np.ndarray, np.ndarray] | None = None

    def arrive(self) -> None:
        self.shown = None

    def advance(self, events: EventStream, were: Are, are: Are, count: int) -> np.ndarray:
        """Take in a stage's events; rows do not change by them."""
        ends, t = np.stack(ends_of(events)), np.asarray(events.t, float)
        removes = (np.zeros(len(t), bool) if events.deleted is None
                   else np.asarray(events.deleted))
        codes = code(*ends)
        removed, last = np.unique(codes[removes][::-1], return_index=True)
        last = np.flatnonzero(removes)[::-1][last]      # of each edge that is removed
        at = find(removed, codes)
        stays = ~removes & (ends[0] != ends[1])
        self.now = float(t[stays].max(initial=self.now))
        stays &= np.where(at >= 0, np.arange(len(t)) > np.append(last, 0)[at], True)
        fresh = ends[:, stays]
        old = find(removed, code(self.node, self.other)) < 0
        node, other = (np.concatenate([now[old], new.T.ravel()]) for now, new in (
            (self.node, fresh), (self.other, fresh[::-1])))
        t = np.concatenate([self.t[old], np.repeat(t[stays], 2)])
        alive = np.flatnonzero(are(code(node, other)))
        order = alive[np.lexsort((t[alive], node[alive]))]
        self.node, self.other, self.t = node[order], other[order], t[order]
        self.shown = None                               # degrees are others
        return NOTHING

    def of(self, nodes: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the newest events of ``nodes`` int64 [n], at most ``most`` each, oldest first.

        These are their numbers int64 [n], and node by node the other ends int64 [e] and ages
        float64 [e], durations up to ``now``.
        """
        start, stop = (np.searchsorted(self.node, nodes, side) for side in ("left", "right"))
        sizes = np.minimum(stop - start, most)
        at = np.arange(sizes.sum()) + np.repeat(stop - np.cumsum(sizes), sizes)
        return sizes, self.other[at], self.now - self.t[at]

    def inside(self, owner: np.ndarray) -> EventLists:
        """Return the lists of events between nodes of one client each, ``owner`` [N]."""
        found, mine = EventLists(), owner[self.node] == owner[self.other]
        found.node, found.other, found.t = self.node[mine], self.other[mine], self.t[mine]
        found.now = self.now
        return found

    def renumber(self, number: np.ndarray, moved: Callable[[np.ndarray, Any], np.ndarray]) -> None:
        self.node, self.other, self.shown = number[self.node], number[self.other], None

    def ahead(self, deep: bool) -> Self:
        found = super().ahead(deep)
        found.shown = None
        return found

    def state_dict(self) -> dict[str, Any]:
        return {**vars(self), "shown": self.shown and list(self.shown)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update({**state, "shown": state["shown"] and tuple(state["shown"])})


def events_for(net: Any) -> NoEvents:
    """Return what the server keeps of events for a network, empty yet."""
    return Recent() if net.timed else EventLists() if net.paired else NoEvents()


def code(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the codes int64 of edges without direction."""
    return np.minimum(a, b) << 32 | np.maximum(a, b)


def padded(ends: np.ndarray, sizes: np.ndarray, who: np.ndarray, ages: np.ndarray, patch: int
           ) -> tuple[np.ndarray, np.ndarray]:
    """Return sequences int64 [u, S] and ages float64 [u, S]: ends, their events, then -1 and 0.

    ``ends`` [u] have ``sizes`` [u] events each, whose other ends ``who`` [e] and ``ages`` [e] are
    end by end. S is the least multiple of ``patch`` that is long enough.
    """
    S = -(-(1 + int(sizes.max(initial=0))) // patch) * patch
    found, durations = np.full((len(ends), S), -1), np.zeros((len(ends), S))
    found[:, 0] = ends
    row = np.repeat(np.arange(len(ends)), sizes)
    place = 1 + np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    found[row, place], durations[row, place] = who, ages
    return found, durations


def told_of_pairs(method: Any, server: Server, clients, ends: np.ndarray
                  ) -> dict[str, tuple[np.ndarray, Told]]:
    """Return by client the positions int64 of its pairs among ``ends`` [2, P], and their lists.

    A pair of nodes that are both new is at the first client. Clients that do not know the
    newest snapshot are left out.
    """
    placement, apart = server.placement, method.exchange == "none"
    placement.send(method, server, clients)            # to clients that were away
    owner, lists = placement.owner, server.events
    lists = lists.inside(owner) if apart else lists
    home, second = owner[ends]
    home = np.where(home >= 0, home, np.maximum(second, 0))
    here = server.events.ready(server)
    found = dict[str, tuple[np.ndarray, np.ndarray, np.ndarray, Told]]()
    for k, name in enumerate(clients.names):
        if name not in here:
            continue
        at = np.flatnonzero(home == k)
        nodes, pairs = np.unique(ends[:, at], return_inverse=True)
        sizes, others, ages = lists.of(nodes, method.sequence - 1)
        if apart:
            mine = owner[nodes] == k
            others, ages = (v[np.repeat(mine, sizes)] for v in (others, ages))
            sizes = np.where(mine, sizes, 0)
        used = unique(np.concatenate([nodes, others]))
        own = owner[used] == k
        known = (owner[used] >= 0) & (not apart)
        used = used[np.argsort(np.where(own, 0, 2 - known), kind="stable")]
        number = np.argsort(used)           # rows of the client's table by node
        row = partial(_row, used[number], number)
        told = {"pairs": pairs.reshape(2, -1).astype(np.int32), "ends": row(nodes),
                "sizes": sizes.astype(np.int32), "who": row(others), "ages": ages,
                "own": placement.place[used[:own.sum()]].astype(np.int32)}
        found[name] = at, used[own.sum():(own | known).sum()], used, told
    show(method, server, clients, [foreign for _, foreign, *_ in found.values()])
    for _, foreign, _, told in found.values():
        told["rows"] = shown(server, foreign)
    return {n: (at, told) for n, (at, _, _, told) in found.items()}


def show(method: Any, server: Server, clients, wanted: list[np.ndarray]) -> None:
    """Let clients show the features of the ``wanted`` nodes that they did not show yet.

    The server keeps them, ``server.events.shown``, until a node's features may be others.
    """
    place, width, kind = server.placement, method.width(clients.world), method.precision
    known, x = server.events.shown or (np.empty(0, np.int64), np.empty((0, width), kind))
    fresh = unique(np.concatenate([np.empty(0, np.int64), *wanted]))
    fresh = fresh[find(known, fresh) < 0]
    by_client = [fresh[place.owner[fresh] == k] for k in range(len(clients.names))]
    asked = {n: place.place[nodes].astype(np.int32) for n, nodes in named(
        clients, by_client, server.events.ready(server)).items()}
    server.events.shown = known, x
    if not len(fresh):
        return
    sent = clients.call(method.show, per_client=asked,
                        expect=lambda name: Tensor(kind, (len(asked[name]), width)))
    nodes = np.concatenate([known, *(
        v for n, v in zip(clients.names, by_client, strict=True) if n in sent)])
    x = np.concatenate([x, *(reply.numpy() for reply in sent)])
    order = np.argsort(nodes)
    server.events.shown = nodes[order], x[order]


def shown(server: Server, nodes: np.ndarray) -> torch.Tensor:
    """Return the features [n, F] of nodes, 0 for those that were not shown."""
    known, x = server.events.shown
    at, found = find(known, nodes), np.zeros((len(nodes), x.shape[1]), x.dtype)
    found[at >= 0] = x[at[at >= 0]]
    return torch.from_numpy(found)


def _row(nodes: np.ndarray, number: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return ``number`` [n] of the ``wanted`` among ``nodes``, ascending, as int32."""
    return number[np.searchsorted(nodes, wanted)].astype(np.int32)


def pair_gradients(method: Any, server: Server, clients, ends: np.ndarray, labels: np.ndarray
                   ) -> Any:
    """Return each client's gradients of the mean loss of pairs int64 [2, P] with labels [P]."""
    given = {n: (told, labels[at]) for n, (at, told) in told_of_pairs(
        method, server, clients, ends).items()}
    weights = tree.weights(server.net)
    return clients.call(method.learn_pairs, weights, len(labels), per_client=given, expect=weights)


def pairs_inside(method: Any, server: Server, clients, ends: np.ndarray, labels: np.ndarray
                 ) -> dict[str, tuple[Any, np.ndarray]]:
    """Return by client what it gets of the pairs inside it, and their ``labels``."""
    owner = server.placement.owner[ends]
    mine = np.flatnonzero(owner[0] == owner[1])
    told, none = told_of_pairs(method, server, clients, ends[:, mine]), labels[:0]
    return {n: (told[n][1], labels[mine[told[n][0]]]) if n in told else (None, none)
            for n in clients.names}


def pair_scores(method: Any, server: Server, clients, nodes: np.ndarray) -> np.ndarray:
    """Return the scores [Q] of pairs int64 [2, Q], 0 for clients that do not answer."""
    codes, at = np.unique(nodes[0] << 32 | nodes[1], return_inverse=True)
    told = told_of_pairs(method, server, clients, np.stack([codes >> 32, codes & 0xFFFFFFFF]))
    sent = clients.call(method.score_pairs, tree.weights(server.net),
                        per_client={n: mine for n, (_, mine) in told.items()},
                        expect=lambda name: Tensor(method.precision, (len(told[name][0]),)))
    found = np.zeros(len(codes), method.precision)
    for name, scores in sent.items():
        found[told[name][0]] = scores.numpy()
    return found[at.reshape(-1)]


# -- pairs at a client ---------------------------------------------------------------------------
def sequences(method: Any, client: Client, told: Told) -> tuple[Any, ...]:
    """Return x, who, ages and pairs of :meth:`DyGFormer.logits`.

    ``told`` has, of a table of nodes, places int32 [o] of the first ones, which are ``own``, and
    features ``rows`` [f, F] of the next, which are elsewhere; of others nothing is known. Into this
    table: ``ends`` int32 [u], the number of events of each, ``sizes`` int32 [u], and end by end,
    oldest first, the other ends ``who`` int32 [e], with ``ages`` float64 [e], durations from the
    event to the newest one of all. ``pairs`` int32 [2, p] are of ``ends``.
    """
    ends, sizes, who, pairs, own = (told[n].astype(np.int64) for n in (
        "ends", "sizes", "who", "pairs", "own"))
    x = method.inputs(client, own)
    x = torch.cat([x, told["rows"].to(x)])
    count = 1 + max(ends.max(initial=-1), who.max(initial=-1))
    x = torch.cat([x, x.new_zeros(max(count - len(x), 0), x.shape[1])])
    return x, *padded(ends, sizes, who, told["ages"], client.net.patch), pairs


def descend(client: Client, sequences: tuple[Any, ...], labels: np.ndarray, total: int) -> None:
    """Add the gradients of the mean loss of ``total`` pairs to those of the parameters."""
    *lists, pairs = sequences
    for at in client.net.blocks(lists[1], pairs):
        scores = client.net.logits(*lists, pairs[:, at])
        loss = binary_cross_entropy_with_logits(
            scores, torch.from_numpy(labels[at]).to(scores), reduction="sum")
        (loss / total).backward()


def train_pairs(method: Any, client: Client, epochs: int, told: Told | None, labels: np.ndarray
                ) -> None:
    """Train the client's own model for ``epochs`` on pairs inside it."""
    lists = sequences(method, client, told) if told is not None else ()
    for _ in range(epochs if len(labels) else 0):
        client.optimizer.zero_grad()
        descend(client, lists, labels, len(labels))
        client.optimizer.step()


def logits(method: Any, client: Client, told: Told) -> torch.Tensor:
    """Return the logits [p] of pairs."""
    *lists, pairs = sequences(method, client, told)
    found = lists[0].new_zeros(pairs.shape[1])
    with torch.no_grad():
        for at in client.net.blocks(lists[1], pairs):
            found[torch.from_numpy(at)] = client.net.logits(*lists, pairs[:, at])
    return found
