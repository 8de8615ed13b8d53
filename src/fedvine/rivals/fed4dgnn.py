"""4D-FED-GNN+ (Gürler and Rekik 2022) on links: the newest snapshot, models averaged and exchanged.

The origin forecasts brain graphs, a hospital for a client, from one acquisition to the next, with
acquisitions missing. FedLink (Section 4.1, Appendix C.1) carries it over as "FL on daily edge
snapshots", "single-day data": its window is the newest stage here. Component by component:

- *snapshots in place of a history*: :meth:`Fed4DGnn.keep` holds the newest snapshot, and the one
  before it for training; forecasts pass messages over the newest alone
- *graph generator if the follow-up is at hand, self-encoder if it is missing*: a client that has
  two stages in a row learns the newest from messages over the former (:class:`Follow`). In its
  first stage, or when a stage brought it nothing, it learns the snapshot that it has from
  itself, with the supervised edges held out as in FedLink. ``follow=False`` is always that,
  which with ``meeting=1`` is how FedLink's text reads, and a row of its own in Table 1
- *dual federation, averaging of layers and exchange of models in a random order*:
  :meth:`Fed4DGnn.round`. The origin's public code averages at every second meeting and passes
  models on at the others (every 14 and every 7 epochs); ``meeting=2`` is that, 1 averages always,
  as FedLink does with all its baselines. A stage's last round averages, so that there is one
  model to forecast with

What the texts leave open, and what was chosen: the encoder, loss, rows and optimiser are FedLink's;
rows of users and items are aggregated in every round, for they belong to nodes and are no layers;
exchanged models pass through the server, and only among those who answered. Left out: the
origin's adversarial and topological losses, which are for weighted brain graphs, a network for
every pair of times (the stream has no fixed number of them), and the ordering of clients by what
they miss, which is 4D-FED-GNN++.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch

from fedvine.core import tree
from fedvine.core.method import At, Client, Field, Server, World, on_client
from fedvine.core.refresh import Refresh
from fedvine.core.rng import rng
from fedvine.methods._fedlink import inputs
from fedvine.methods._fedlink.edges import edges
from fedvine.methods._fedlink.rows import SIDES, Batch, Differences, fetch, make_batch
from fedvine.methods.stfl import STFL
from fedvine.nn.sage import Bipartite
from fedvine.nn.sparse import Mean


class Fed4DGnn(STFL):
    """Training on the newest snapshot, models averaged and exchanged in turn."""

    name: ClassVar[str] = "fed4dgnn"
    revision: ClassVar[int] = 2         # no former snapshot after a gap
    refreshes: ClassVar[Refresh] = "stage"     # a snapshot is taken in as a whole

    follow: bool = Field(default=True, description="learn the newest snapshot from the one before "
                         "it, where a client has both; else from itself")
    meeting: int = Field(default=2, ge=1, description="every so many rounds, and in a stage's "
                         "last, models are averaged, else exchanged; 1: always averaged")

    def start(self, world: World) -> Server:
        server = super().start(world)
        server.handed = {}  # by client: the model that it was passed on, until models are averaged
        return server

    def setup(self, client: Client) -> None:
        super().setup(client)
        client.former = client.newest = np.zeros((2, 0), np.int32)
        client.taken = -2           # the stage of the newest

    # -- two snapshots -----------------------------------------------------------------------------
    def keep(self, client: Client) -> None:
        """Keep the newest snapshot, and the former one where this stage follows it."""
        new = np.stack(edges(client.stage)).astype(np.int32)
        client.former = new[:, :0]      # none, where this stage does not follow the newest
        if new.shape[1]:
            if self.follow and client.place[0] == client.taken + 1:
                client.former = client.newest
            client.newest, client.taken = new, client.place[0]

    def retained(self, client: Client) -> tuple[np.ndarray, np.ndarray]:
        """Return the newest snapshot, which forecasts pass messages over."""
        return client.newest[0], client.newest[1]

    @on_client
    def observe(self, client: Client) -> bool:
        """Replace the old snapshot by the new one; return whether the client joins the rounds."""
        self.keep(client)
        inputs.learn_means(client)
        ends = np.concatenate([client.former, client.newest], 1)
        for side, nodes in zip(SIDES, ends, strict=True):
            getattr(client, side).optimizer.hold(np.unique(nodes).astype(np.int64))
        return self.joins(client)

    def batch(self, client: Client, draw: np.random.Generator) -> Batch:
        """Return a batch for the graph generator, or the self-encoder without a former snapshot."""
        name = ("snapshot", client.place[0])
        if name not in client.cache:
            for old in [k for k in client.cache if isinstance(k, tuple)]:
                del client.cache[old]
            client.cache[name] = (follow(client.former, client.newest, self.where)
                                  if client.former.shape[1] else
                                  make_batch(*self.retained(client), self.where))
        return client.cache[name]

    # -- averaged, or exchanged --------------------------------------------------------------------
    def round(self, server, clients, at: At) -> None:
        if self.meeting == 1 or "model" not in self.share:
            super().round(server, clients, at)
            return
        rows, begin = fetch(server, clients, self.choose, new_rows=True,
                                    only=server.joining), {}
        for name, sent in rows.send.items():
            sent["model"] = begin[name] = server.handed.get(name, server.model)
        delta, trained = Differences(server, rows, server.model, self.aggregate, clients), {}

        def add(name: str, change: dict[str, Any]) -> None:
            trained[name] = tree.add(begin[name], change["model"])
            delta.add(name, change | {"model": tree.subtract(trained[name], server.model)})

        clients.call(self.train_own, per_client=rows.send, expect=delta.expected, fold=add)
        K = max(delta.count, 1)     # W^(r+1) = W^(r) + (1/K) sum_k Delta_k, rows in every round
        mean = tree.add(server.model, delta.model, 1 / K)
        for side, numbers, difference, touching in delta.rows():
            by = touching if self.divide == "touching" else K
            getattr(server, side).add_(numbers, difference, 1 / by)
        if at.last or at.r % self.meeting == 0:
            server.model, server.handed = mean, {}
        else:
            ring = rng(clients.world.seed, "server", at.t, at.r, "ring").permutation(list(trained))
            models = self.aggregate.bounded(trained.values(), server.model)
            trained = dict(zip(trained, models, strict=True))
            server.handed = server.handed | {
                str(to): trained[str(by)] for to, by in zip(ring, np.roll(ring, 1), strict=True)}

    @on_client
    def train_own(self, client: Client, sent: dict[str, Any]) -> dict[str, Any]:
        """Take L local steps from the model that this client was passed."""
        return self.train(client, sent["model"], sent)


class Follow(Bipartite):
    """Pairs of a new snapshot to supervise; messages pass over the former one alone.

    ``weight`` and ``count`` [P] are occurrences in the new snapshot, ``former`` [P] in the former.
    """

    def __init__(self, former: np.ndarray, newest: np.ndarray, users: int, items: int) -> None:
        src, dst = np.concatenate([former, newest], 1)
        super().__init__(src, dst, users, items)
        code = self.src.numpy() * items + self.dst.numpy()
        at = np.searchsorted(code, newest[0].astype(np.int64) * items + newest[1])
        whole, self.count = self.weight, np.bincount(at, minlength=len(code))
        self.weight = torch.from_numpy(self.count.astype(np.float32))
        self.former = whole - self.weight

    def to(self, device: torch.device) -> Follow:
        super().to(device)
        self.former = self.former.to(device)
        return self

    def degrees(self, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return super().degrees(self.former)

    def messages(self, weight: torch.Tensor) -> tuple[Mean, Mean]:
        return super().messages(self.former)


def follow(former: np.ndarray, newest: np.ndarray, device: torch.device) -> Batch:
    """Return two snapshots [2, n], relabelled to their own nodes, as a batch."""
    users, items = (np.unique(ends).astype(np.int64)
                    for ends in np.concatenate([former, newest], 1))
    before, now = (np.stack([np.searchsorted(users, part[0]), np.searchsorted(items, part[1])])
                   for part in (former, newest))
    return Batch(users, items, Follow(before, now, len(users), len(items)).to(device))
