"""Feddy (Jiang et al. 2022) on links: neighbours of the snapshot now, and the node's own past.

The origin follows objects in surveillance videos: a network "aggregates structural information
from nearby objects in the current graph as well as dynamic information from those in the previous
graph" (its abstract), trained across cameras by averaging under secure aggregation. FedLink
(Section 4.1, Appendix C.1) carries it over as a rival that "combines spatial and temporal
aggregation" over the full history. Component by component, in :class:`TemporalSage`:

- *spatial aggregation*: the mean over a node's neighbours in a snapshot, layer by layer, as in
  :mod:`fedvine.nn.sage`, in every snapshot by itself (a snapshot is a stage)
- *temporal aggregation*: the last layer also takes the mean of what the layers before it made of
  the same node in its former snapshots, which holds the neighbours that it had there:

      z_u = V h_u(now) + W mean_{i in N_now(u)} h_i(now) + T mean_{s < now, u in s} h_u(s) + ...

- *federated averaging* of weights and rows: FedLink's, unchanged

What the texts leave open, and what was chosen: "those in the previous graph" is read as the same
node in all former snapshots of the client, each with its neighbours then, since a user's items
recur after longer than one stage (``former`` bounds it; 0 leaves the newest snapshot alone, as
:mod:`fedvine.rivals.fed4dgnn` has it without its own parts). The first layer has no temporal term,
as its input, a node's row, is the same in all snapshots. Positions are not predicted but links:
those of the newest snapshot are supervised, older ones were when they were new. Left out: the
origin's hybrid secure aggregation; what a server that sees sums alone costs is measured with
:mod:`fedvine.methods.fedlink_private`.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from fedvine.core.method import Client, Field
from fedvine.core.refresh import Refresh
from fedvine.core.rng import torch_rng
from fedvine.methods._fedlink.rows import Batch, Touched
from fedvine.methods.stfl import STFL
from fedvine.nn.sage import Bipartite, BipartiteSage


class Feddy(STFL):
    """Spatial aggregation in snapshots, temporal aggregation over a node's former ones."""

    name: ClassVar[str] = "feddy"
    refreshes: ClassVar[Refresh] = "stage"     # a snapshot is taken in as a whole

    former: int | None = Field(default=None, ge=0, description="former snapshots, in stages, that "
                               "a node's past is taken from; none: all")

    def encoder(self, seed: int) -> TemporalSage:
        """Return the encoder with temporal aggregation."""
        return TemporalSage(self.width, seed=seed)

    def setup(self, client: Client) -> None:
        super().setup(client)
        client.ends = np.zeros(1, np.int64)  # events up to the end of each stage

    # -- snapshots ---------------------------------------------------------------------------------
    def keep(self, client: Client) -> None:
        """Store where the newest snapshot ends in the client's stream."""
        client.ends = np.append(client.ends, len(client.past))

    def snapshots(self, client: Client) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the edges in use, ``src`` and ``dst`` [E], and their age in stages (0: newest)."""
        ends, past = client.ends, client.past
        first = 0 if self.former is None else ends[max(len(ends) - 2 - self.former, 0)]
        at = np.arange(first, ends[-1])
        if past.deleted is not None:
            at = at[~past.deleted[first:ends[-1]]]
        age = len(ends) - 1 - np.searchsorted(ends, at, side="right")
        return past.src[at], past.dst[at], age

    def retained(self, client: Client) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of the edges in use."""
        return self.snapshots(client)[:2]

    def batch(self, client: Client, draw: np.random.Generator) -> Batch:
        """Return the newest snapshot as the batch to learn, with the former ones."""
        name = ("past", len(client.ends))       # a stage without edges makes all of them former
        if name not in client.cache:
            client.cache.pop(next((k for k in client.cache if k[0] == "past"), None), None)
            src, dst, age = self.snapshots(client)
            users, items = (np.unique(ends).astype(np.int64) for ends in (src, dst))
            client.cache[name] = Batch(users, items, Snapshots(
                np.searchsorted(users, src), np.searchsorted(items, dst), age, len(users),
                len(items)).to(self.where))
        return client.cache[name]

    def passing(self, client: Client, nodes: Touched) -> Snapshots:
        """Return all snapshots that the client has learned."""
        src, dst, age = self.snapshots(client)
        return Snapshots(np.searchsorted(nodes.users, src), np.searchsorted(nodes.items, dst), age,
                         len(nodes.users), len(nodes.items)).to(self.where)

    def alone(self, nodes: Touched) -> Snapshots:
        """Return snapshots of nodes over which no messages pass."""
        none = np.empty(0, np.int64)
        return Snapshots(none, none, none, len(nodes.users), len(nodes.items)).to(self.where)


class Snapshots(Bipartite):
    """The newest snapshot (age 0), and in ``past`` the former ones side by side.

    A node of several former snapshots is there once for each: ``node`` has the node of each such
    copy, for users and for items, int64 [n], and ``seen`` the number of copies of each node,
    float32 [users, 1] and [items, 1].
    """

    def __init__(self, src: np.ndarray, dst: np.ndarray, age: np.ndarray, users: int,
                 items: int) -> None:
        super().__init__(src[age == 0], dst[age == 0], users, items)
        old = age > 0
        (u, at_u), (i, at_i) = (
            np.unique(age[old].astype(np.int64) * n + ends[old], return_inverse=True)
            for ends, n in ((src, max(users, 1)), (dst, max(items, 1))))
        self.past = Bipartite(at_u, at_i, len(u), len(i))
        self.node = (torch.from_numpy(u % max(users, 1)), torch.from_numpy(i % max(items, 1)))
        self.seen = (torch.bincount(self.node[0], minlength=users).float()[:, None],
                     torch.bincount(self.node[1], minlength=items).float()[:, None])

    def to(self, device: torch.device) -> Snapshots:
        super().to(device)
        self.past.to(device)
        self.node = (self.node[0].to(device), self.node[1].to(device))
        self.seen = (self.seen[0].to(device), self.seen[1].to(device))
        return self

    def over_time(self, side: int, x: torch.Tensor) -> torch.Tensor:
        """Return the mean of ``x`` over the former snapshots of each node, 0 where it has none.

        ``x`` [n, d] has a row a copy; the result [users, d] or [items, d] has a row a node.
        ``side`` is 0 for users and 1 for items.
        """
        seen = self.seen[side]
        return x.new_zeros(len(seen), x.shape[1]).index_add_(0, self.node[side], x) \
            / seen.clamp(min=1)


class TemporalSage(BipartiteSage):
    """Two layers of GraphSAGE, the second with a term for the node's former snapshots."""

    def __init__(self, width: int, seed: int = 0) -> None:
        super().__init__(width, seed=seed)
        half = math.sqrt(3 / width)
        for side in ("user", "item"):
            draw = torch_rng(seed, "feddy", side, "time")
            self.register_parameter(f"{side}_time", nn.Parameter(
                torch.empty(width, width).uniform_(-half, half, generator=draw)))

    def forward(self, users: torch.Tensor, items: torch.Tensor, graph: Bipartite,
                weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return embeddings [users, width], [items, width]; ``weight`` weights the newest pairs."""
        assert isinstance(graph, Snapshots)
        old = self.layer(0, users.index_select(0, graph.node[0]),
                         items.index_select(0, graph.node[1]), *passing(graph.past))
        now = self.layer(0, users, items, *passing(graph, weight))
        z_users, z_items = self.layer(1, now[0].relu(), now[1].relu(), *passing(graph, weight))
        return (z_users + graph.over_time(0, old[0].relu()) @ self.get_parameter("user_time"),
                z_items + graph.over_time(1, old[1].relu()) @ self.get_parameter("item_time"))


def passing(graph: Bipartite, weight: torch.Tensor | None = None) -> Any:
    """Return the means and the degrees that a layer uses."""
    weight = graph.weight if weight is None else weight
    return graph.messages(weight), graph.degrees(weight)
