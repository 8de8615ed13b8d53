"""Events in continuous time, for TGN: what the newest stage's events say to the nodes' memories.

The mean message of a node, Eqs. (1) and (3) of TGN (:mod:`fedvine.nn.tgn`), is over its events,
also those with nodes at other clients. Their part of the sum of memories goes through the server
as sums over neighbours do before each layer (:mod:`fedvine.methods._dgcolearn.exchange`), so that
any number of clients computes the same mean. Memories of the stage before are constants, so this
happens once for a snapshot, and no gradient comes back. Where rows that did not change are skipped,
ages are those of the nodes whose rows are computed, and all this takes time that follows these and
the stage's events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fedvine.core.lookup import find, unique
from fedvine.core.method import Client, Server, on_client
from fedvine.data.adjacency import Adjacency
from fedvine.data.snapshot import ends_of, unpacked
from fedvine.data.stream import EventStream
from fedvine.methods._dgcolearn.event_lists import code
from fedvine.methods._dgcolearn.exchange import Border, filled, named, sized
from fedvine.nn.tgn import WAVES, waves

Are = Callable[[np.ndarray], np.ndarray]        # whether edges, by their codes, are in a snapshot


def among(edges: np.ndarray | Adjacency) -> Are:
    """Return the function for edges of sorted codes int64, or of a graph."""
    if isinstance(edges, Adjacency):
        return lambda codes: edges.has(*unpacked(codes))
    return lambda codes: find(edges, codes) >= 0


class Recent:
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

    def advance(self, events: EventStream, were: Are, are: Are, count: int) -> np.ndarray:
        """Take in a stage's events; return the nodes int64 of its events and of those before.

        ``were`` and ``are``: which edges lived in the snapshot before, and which live now.
        ``count`` is the number of nodes.
        """
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

    def times(self, codes: np.ndarray) -> np.ndarray:
        """Return the time float64 [n] of the last event of live edges, by their codes int64."""
        found = np.empty(len(codes))
        for named_, times in self.runs:
            at = find(named_, codes)
            found[at >= 0] = times[at[at >= 0]]
        return found

    def renumber(self, number: np.ndarray, moved: Callable[[np.ndarray, Any], np.ndarray]) -> None:
        """Give node i the number ``number[i]``; ``moved`` does so with values by node."""
        self.events, self.last = number[self.events], moved(self.last, np.nan)
        self.runs = [(number[codes >> 32] << 32 | number[codes & 0xFFFFFFFF], times)
                     for codes, times in self.runs]

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps."""
        return {**vars(self), "runs": {str(i): {"codes": codes, "times": times}
                                       for i, (codes, times) in enumerate(self.runs)}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        runs = [state["runs"][str(i)] for i in range(len(state["runs"]))]
        vars(self).update({**state, "runs": [(np.array(r["codes"]), np.array(r["times"]))
                                             for r in runs]})


def ages(recent: Recent, live: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the ``live`` edges int64 [2, E], and sums of phi over their edges.

    These are int64 [n], ascending, and float64 [n, WAVES].
    """
    nodes, at = np.unique(live, return_inverse=True)
    found = np.zeros((len(nodes), WAVES))
    np.add.at(found, at.reshape(2, -1), waves(recent.now - recent.times(code(*live))))
    return nodes, found


def ages_of(recent: Recent, graph: Adjacency, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return :func:`ages` of ``nodes`` alone, to the last bit; in time that follows their edges.

    ``nodes`` int64, ascending; those without edges are left out.
    """
    nodes = nodes[graph.degree[nodes] > 0]
    degree = graph.degree[nodes].astype(np.int64)
    first = graph.start[nodes] - np.cumsum(degree) + degree
    other = graph.pool[np.arange(degree.sum()) + np.repeat(first, degree)].astype(np.int64)
    node, at = np.repeat(nodes, degree), np.repeat(np.arange(len(nodes)), degree)
    order = np.lexsort((other, other < node, at))       # in which `ages` adds them up
    found = np.zeros((len(nodes), WAVES))
    np.add.at(found, at[order], waves(recent.now - recent.times(code(node, other)[order])))
    return nodes, found


def told_by_client(recent: Recent, place: Any, near: tuple[np.ndarray, np.ndarray], apart: bool
                   ) -> tuple[Border, list[dict[str, np.ndarray]]]:
    """Return the events between clients as a border, and what each client gets of the others.

    ``near`` are nodes with their sums of :func:`ages`. ``apart``: nothing of events between clients
    is said, neither that they took place nor when. The border's nodes are positions among those
    that have events.
    """
    owner, events, gaps = place.owner, recent.events, recent.gaps
    inside = owner[events[0]] == owner[events[1]]
    if apart:
        events, gaps, inside = events[:, inside], gaps[:, inside], inside[inside]
    nodes, at = np.unique(events, return_inverse=True)
    at = at.reshape(2, -1)
    border = Border.of(at, owner[nodes], len(place.sizes))
    count, phi = np.bincount(at.ravel(), minlength=len(nodes)), np.zeros((len(nodes), WAVES))
    np.add.at(phi, at, waves(gaps))
    told, (linked, ages) = [], near
    for k, beside in enumerate(border.nodes):
        own, mine = (which[np.argsort(place.place[of[which]])] for of, which in (
            (of, np.flatnonzero(owner[of] == k)) for of in (nodes, linked)))
        told.append({
            "events": place.place[events[:, inside & (owner[events[0]] == k)]].astype(np.int32),
            "border": place.place[nodes[beside]].astype(np.int32),
            "busy": place.place[nodes[own]].astype(np.int32),
            "count": count[own].astype(np.int32), "phi": phi[own].astype(np.float32),
            "near": place.place[linked[mine]].astype(np.int32),
            "ages": ages[mine].astype(np.float32)})
    return border, told


class RecentMixin:
    """Functions of server and clients for networks with times."""

    def recall(self: Any, server: Server, clients) -> None:
        """Let clients know what the newest events say, unless they do; for networks with times."""
        if not server.net.timed or server.recent.heard == server.joined:
            return
        recent, place = server.recent, server.placement
        if self.follows:        # rows of other nodes are not computed
            near = ages_of(recent, server.border.graph, server.border.changed)
        else:
            live, apart = server.border.edges, self.exchange == "none"
            live = live[:, place.owner[live[0]] == place.owner[live[1]]] if apart else live
            near = ages(recent, live)
        border, told = told_by_client(recent, place, near, self.exchange == "none")
        sent = clients.call(self.memories, per_client=named(clients, told, server.joined),
                            expect=sized(self.precision, clients, border.sizes, self.hidden))
        rows = filled(clients, sent, border.sizes)
        sums = self.exchange_in(clients.world).noisy(server, rows, border.sums(rows))
        done = clients.call(self.hear, per_client=named(clients, sums, sent.names), expect=None)
        recent.heard = sorted(done.names)

    @on_client
    def memories(self, client: Client, told: dict[str, np.ndarray]) -> torch.Tensor:
        """Take in the newest events; send the memories of nodes with events elsewhere.

        Down: places int32 of the ``events`` inside [2, .] and of these nodes, ``border`` [b]; of
        the nodes with events, ``busy``, their number ``count`` and the sum ``phi`` [., WAVES];
        ``ages`` [., WAVES], sums of phi over live edges, of nodes ``near``. Up: memories [b,
        hidden].
        """
        part = self.part_of(client)                                 # type: ignore[attr-defined]
        memory = part.states[0][:, client.net.widths[-1]:]
        border, busy, near = (told[n].astype(np.int64) for n in ("border", "busy", "near"))
        a, b = told["events"].astype(np.int64)
        at_a, at_b = (torch.from_numpy(np.searchsorted(busy, e)).to(memory.device) for e in (a, b))
        sums = memory.new_zeros(len(busy), memory.shape[1]).index_add(
            0, at_a, memory[torch.from_numpy(b)]).index_add(0, at_b, memory[torch.from_numpy(a)])
        count, phi = (torch.from_numpy(told[n]).to(memory) for n in ("count", "phi"))
        part.take_ages(near, torch.from_numpy(told["ages"]).to(memory))
        client.cache["told"] = sums, np.searchsorted(busy, border), busy, count[:, None], phi
        return memory[torch.from_numpy(border)]

    @on_client
    def hear(self, client: Client, outside: torch.Tensor) -> None:
        """Compute the mean of the newest messages, Eq. (3). Down: sums [b, hidden] of memories."""
        part = self.part_of(client)                                 # type: ignore[attr-defined]
        sums, border, busy, count, phi = client.cache["told"]
        sums = sums.index_add(0, torch.from_numpy(border).to(sums.device), outside.to(sums))
        part.take_heard(busy, torch.cat([sums / count, phi / count, torch.ones_like(count)], 1))
