"""Events in continuous time, for TGN: what the newest stage's events say to the nodes' memories.

The mean message of a node, Eqs. (1) and (3) of TGN (:mod:`fedvine.nn.tgn`), is over its events,
also those with nodes at other clients. Their part of the sum of memories goes through the server
as sums over neighbours do before each layer (:mod:`fedvine.methods._dgcolearn.exchange`), so that
any number of clients computes the same mean. Memories of the stage before are constants, so this
happens once for a snapshot, and no gradient comes back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fedvine.core.lookup import find
from fedvine.core.method import Client, Server, on_client
from fedvine.data.snapshot import ends_of
from fedvine.data.stream import EventStream
from fedvine.methods._dgcolearn.exchange import Border, filled, named, sized
from fedvine.nn.tgn import WAVES, waves


class Recent:
    """The newest stage's events, and the time of each live edge; kept by the server.

    - ``events``: int64 [2, E], without deletions and loops; ``gaps``: float64 [2, E], for both ends
      the time since the node's last event in an earlier stage, 0 if there is none
    - ``last``: float64 [N], the time of each node's last event, NaN if there is none
    - ``codes``, ``times``: int64, float64, the live edges, sorted, and the last event of each
    - ``now``: float64, the time of the newest event
    - ``heard``: names of the clients that know all this, sorted; None: none yet

    Arrays are replaced, never written to.
    """

    def __init__(self) -> None:
        self.events, self.gaps = np.empty((2, 0), np.int64), np.empty((2, 0))
        self.last, self.now = np.empty(0), 0.0
        self.codes, self.times = np.empty(0, np.int64), np.empty(0)
        self.heard: list[str] | None = None

    def advance(self, events: EventStream, live: np.ndarray, count: int) -> np.ndarray:
        """Take in a stage's events; return the nodes int64 of its events and of those before.

        ``live`` int64 are the codes of the snapshot's edges, ``count`` the number of nodes.
        """
        ends, t = np.stack(ends_of(events)), np.asarray(events.t, float)
        kept = ends[0] != ends[1]
        if events.deleted is not None:
            kept &= ~np.asarray(events.deleted)
        ends, t = ends[:, kept], t[kept]
        told = np.unique(np.concatenate([self.events.ravel(), ends.ravel()]))
        last = np.concatenate([self.last, np.full(count - len(self.last), np.nan)])
        self.events, self.gaps = ends, np.nan_to_num(t - last[ends])
        np.fmax.at(last, ends.ravel(), np.tile(t, 2))
        self.last, self.now, self.heard = last, float(t.max(initial=self.now)), None
        codes = np.concatenate([self.codes, ends.min(0) << 32 | ends.max(0)])
        times, order = np.concatenate([self.times, t]), np.argsort(codes, kind="stable")
        codes, first = np.unique(codes[order], return_index=True)
        times = np.maximum.reduceat(times[order], first) if len(first) else times
        at = find(codes, live)
        self.codes, self.times = live, times[at]
        return told

    def renumber(self, number: np.ndarray, moved: Callable[[np.ndarray, Any], np.ndarray]) -> None:
        """Give node i the number ``number[i]``; ``moved`` does so with values by node."""
        self.events, self.last = number[self.events], moved(self.last, np.nan)
        self.codes = number[self.codes >> 32] << 32 | number[self.codes & 0xFFFFFFFF]

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps."""
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        vars(self).update(state)


def told_by_client(recent: Recent, place: Any, inside: np.ndarray, apart: bool
                   ) -> tuple[Border, list[dict[str, np.ndarray]]]:
    """Return the events between clients as a border, and what each client gets of the others.

    ``inside`` bool [E]: which events are between nodes of one client. ``apart``: nothing of others
    is said, neither that they took place nor when.
    """
    owner, live = place.owner, np.stack([recent.codes >> 32, recent.codes & 0xFFFFFFFF])
    events, gaps, times = recent.events, recent.gaps, recent.times
    if apart:
        events, gaps = events[:, inside], gaps[:, inside]
        here = owner[live[0]] == owner[live[1]]
        live, times, inside = live[:, here], times[here], inside[inside]
    border = Border.of(events, owner, len(place.sizes))
    count = np.bincount(events.ravel(), minlength=len(owner))
    phi, ages = np.zeros((len(owner), WAVES)), np.zeros((len(owner), WAVES))
    np.add.at(phi, events, waves(gaps))
    np.add.at(ages, live, waves(recent.now - times))
    linked, told = np.bincount(live.ravel(), minlength=len(owner)), []
    for k, nodes in enumerate(border.nodes):
        own = place.in_order(np.flatnonzero(owner == k))
        busy, near = np.flatnonzero(count[own]), np.flatnonzero(linked[own])
        told.append({
            "events": place.place[events[:, inside & (owner[events[0]] == k)]].astype(np.int32),
            "border": place.place[nodes].astype(np.int32), "busy": busy.astype(np.int32),
            "count": count[own[busy]].astype(np.int32), "phi": phi[own[busy]].astype(np.float32),
            "near": near.astype(np.int32), "ages": ages[own[near]].astype(np.float32)})
    return border, told


class RecentMixin:
    """Functions of server and clients for networks with times."""

    def recall(self: Any, server: Server, clients) -> None:
        """Let clients know what the newest events say, unless they do; for networks with times."""
        if not server.net.timed or server.recent.heard == server.joined:
            return
        recent, place = server.recent, server.placement
        inside = place.owner[recent.events[0]] == place.owner[recent.events[1]]
        border, told = told_by_client(recent, place, inside, self.exchange == "none")
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
        a, b = (torch.from_numpy(e.astype(np.int64)) for e in told["events"])
        border, busy = (torch.from_numpy(told[n].astype(np.int64)) for n in ("border", "busy"))
        sums = torch.zeros_like(memory).index_add(0, a, memory[b]).index_add(0, b, memory[a])
        count, phi = (torch.from_numpy(told[n]).to(memory) for n in ("count", "phi"))
        part.ages = memory.new_zeros(len(memory), WAVES)
        part.ages[torch.from_numpy(told["near"].astype(np.int64))] = torch.from_numpy(
            told["ages"]).to(memory)
        client.cache["told"] = sums, border, busy, count[:, None], phi
        return memory[border]

    @on_client
    def hear(self, client: Client, outside: torch.Tensor) -> None:
        """Compute the mean of the newest messages, Eq. (3). Down: sums [b, hidden] of memories."""
        part = self.part_of(client)                                 # type: ignore[attr-defined]
        sums, border, busy, count, phi = client.cache["told"]
        sums = sums.index_add(0, border, outside)
        part.heard = sums.new_zeros(len(sums), sums.shape[1] + WAVES + 1)
        part.heard[busy] = torch.cat([sums[busy] / count, phi / count, torch.ones_like(count)], 1)
