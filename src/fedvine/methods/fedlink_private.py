"""FedLink whose server sees sums alone: secure aggregation, clipping, calibrated noise.

What FedLink's server learns from a client is which rows it touches, and how it changes them. Here

- clients find the union of the rows that their buffers hold by secure sums over prefixes of
  hashed ids (:mod:`fedvine.aggregate.union`): the server learns the union, not who holds what
- every client downloads the whole union and uploads a masked vector over all of it: the server
  learns the sum (Bonawitz et al. 2017)
- with ``aggregate.clip`` a client's whole upload is scaled to an L2 norm of at most S; with
  ``aggregate.noise`` each adds Gaussian noise such that the sum of the fewest clients that may stay
  has a deviation of z S (:mod:`fedvine.aggregate.noise`); without masks each client's own has it.
  The summary states epsilon for adding or leaving out one client's uploads; it covers the values,
  not the union of row ids. What rounds that were played again cost more is in each client's ledger

What stays visible: the union, how large each client's answer to a score is, the sum itself, and
all that can be told from it: with two clients each knows the other's part.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import torch
from pydantic import model_validator

from fedvine.aggregate.aggregate import NoisySum, Part
from fedvine.aggregate.noise import from_fixed, spent
from fedvine.aggregate.union import LEVELS, marks, occupied, short
from fedvine.core import tree
from fedvine.core.lookup import find
from fedvine.core.method import At, Client, Field, Server, on_client
from fedvine.core.refresh import Refresh
from fedvine.core.rng import hashed_uniform, rng
from fedvine.methods._fedlink import inputs
from fedvine.methods._fedlink.rows import SIDES, Touched, graph_of, ids_of, touched_by
from fedvine.methods.fedlink import FedLink
from fedvine.tasks.link_prediction import EdgeQueries


class PrivateSum(NoisySum):
    """Secure sums of uploads that are bounded as a whole."""

    secure: bool = Field(default=True, description="clients send under masks, and the server sees "
                         "only sums; false: the same without masks, to compare")
    clip: float | None = Field(default=None, gt=0, description="largest L2 norm of an upload, S; "
                               "none: not clipped")

    @model_validator(mode="after")
    def _noise_needs_clip(self) -> Self:
        if self.noise and self.clip is None:
            raise ValueError("noise needs clip, the norm that it is measured in")
        return self


class FedLinkPrivate(FedLink):
    """FedLink with secure aggregation and differential privacy."""

    name: ClassVar[str] = "fedlink_private"
    revision: ClassVar[int] = 2             # noise of the operating system
    refreshes: ClassVar[Refresh] = 200      # each answer is computed from the whole table

    aggregate: PrivateSum = PrivateSum()  # type: ignore[assignment]

    @classmethod
    def tiny(cls) -> Self:
        return cls(rounds=2, capacity=30, buffers=2, steps=2, width=4)

    @model_validator(mode="after")
    def _sums_are_of_all(self) -> Self:
        if self.join != "stage":
            raise ValueError("sums are of all clients, and must not say who holds which row: leave "
                             "out join")
        return self

    def privacy(self, rounds: int) -> dict[str, Any]:
        return spent(self.aggregate.noise, rounds, self.aggregate.delta)

    def closed(self) -> frozenset[str]:
        """Return FedLink's functions that tell which rows a client touches, and their changes."""
        return frozenset({"choose", "train", "look"})

    def setup(self, client: Client) -> None:
        super().setup(client)
        client.observed = -1

    @on_client
    def observe(self, client: Client) -> bool:
        """Push new edges, see :meth:`.FedLink.observe`, once a stage."""
        self.aggregate.begins(client)
        return super().observe(client)

    # -- the union of rows -----------------------------------------------------------------------
    def shared_sides(self) -> list[str]:
        """Return the sides whose rows are shared."""
        return [side for side in SIDES if side in self.share]

    def arrive(self, server, clients, at: At) -> None:
        super().arrive(server, clients, at)
        found = [np.zeros(1, np.uint64) for _ in self.shared_sides()]
        done = 0
        for bits in LEVELS:
            if found:
                total, came = clients.sum(self.mark, found, done, bits,
                                          length=sum(len(f) << bits for f in found))
                if not came:        # some are away who must be in it: the union is that of before
                    server.union = vars(server).get("union", {})
                    return
                found = occupied(total, found, bits)
            done += bits
        server.union = dict(zip(self.shared_sides(), found, strict=True))
        for side, keys in server.union.items():
            getattr(server, side).numbers(keys)

    @on_client(combined="sum", whole=True, plain=True)
    def mark(self, client: Client, parents: list[np.ndarray], done: int, bits: int) -> np.ndarray:
        """Return a level of the union: random numbers where this client's buffers hold a row."""
        keys = [self.keys(client, side, self.with_enough(client, side))
                for side in self.shared_sides()]
        return marks(keys, parents, done, bits)

    def with_enough(self, client: Client, side: str) -> np.ndarray:
        """Return the local ids of rows with edges in the buffers: with ``grain`` and more.

        There are none in a stage whose few new edges wait, as they are in the buffers.
        """
        ids, ends = getattr(client, side).optimizer.held, self.retained(client)[SIDES.index(side)]
        if self.aggregate.given(client) != "in":
            return ids[:0]
        if self.aggregate.grain == 1:
            return ids
        return ids[self.aggregate.enough(np.bincount(ends, minlength=int(ids.max(initial=-1)) + 1)[
            ids])]

    def keys(self, client: Client, side: str, ids: np.ndarray) -> np.ndarray:
        """Return short keys of local ids."""
        return short(ids_of(client, side).keys(ids))

    # -- the algorithm box, over the union -------------------------------------------------------
    def round(self, server, clients, at: At) -> None:
        # Every client gets the rows of the whole union; the server gets sum_k Delta_k alone.
        rows = {s: getattr(server, s).find(keys) for s, keys in server.union.items()}
        sent = {s: getattr(server, s).take(rows[s]) for s in rows}
        total, came = clients.sum(self.upload, self.shared(server), server.union, sent,
                                  length=self.length(server))
        if not came:
            return
        change, start = from_fixed(total), 0        # W^(r+1) = W^(r) + (1/K) sum_k Delta_k
        count = len(came)                           # K
        for side, numbers in rows.items():
            block = torch.from_numpy(change[start:start + len(numbers) * (self.width + 1)])
            block = block.reshape(-1, self.width + 1).float()
            start += len(numbers) * (self.width + 1)
            by = (count if self.divide == "clients" or self.aggregate.noise
                  else block[:, -1:].clamp(min=1))
            getattr(server, side).add_(numbers, block[:, :-1] / by)
        if "model" in self.share:
            delta = tree.unflattened(torch.from_numpy(change[start:]).float(), server.model)
            server.model = tree.add(server.model, delta, 1 / count)

    def length(self, server: Server) -> int:
        """Return how many numbers an upload has: (d + 1) a row of the union, and the model."""
        rows = sum(len(keys) for keys in server.union.values()) * (self.width + 1)
        return rows + (sum(p.numel() for p in server.model.values()) if "model" in self.share
                       else 0)

    @on_client(combined="sum", whole=True)
    def upload(self, client: Client, model: Any, union: dict[str, np.ndarray],
               sent: dict[str, torch.Tensor]) -> Part:
        """Take L local steps; return differences of the whole union."""
        draw = rng(client.world.seed, client.name, *client.place[:2], "buffers")
        batches = [self.batch(client, draw) for _ in range(self.steps)]
        touched = touched_by(batches)
        if model is not None:
            tree.load(client.model, model)
        known = {s: {"keys": keys, "values": sent[s]} for s, keys in union.items()}
        begin = {s: self.rows(client, s, getattr(touched, s), known) for s in SIDES}
        now = {side: begin[side].to(self.where, copy=True) for side in SIDES}
        for step, batch in enumerate(batches):
            if len(batch.graph):
                self.step(client, batch, touched, now,
                          rng(client.world.seed, client.name, *client.place[:2], f"step {step}"))
        values, touches = [], []
        for side in SIDES:
            change = now[side].cpu() - begin[side]
            if side not in union:
                getattr(client, side).update(getattr(touched, side), change)
            else:  # a row is not in it if this client was away when it was agreed
                keys = self.keys(client, side, getattr(touched, side))
                found = find(union[side], keys)
                there = np.flatnonzero((found >= 0) & np.isin(
                    getattr(touched, side), self.with_enough(client, side)))
                at = torch.from_numpy(found[there])
                values.append(torch.zeros(len(union[side]), self.width + 1))
                values[-1][at, :-1] = change[torch.from_numpy(there)]
                touches.append(at)
        if model is not None:
            delta = tree.change(client.model, model)
            values += [delta[name].reshape(-1) for name in sorted(delta)]
        # how many touched a row; with noise the sum is divided by all
        flat = torch.cat([v.reshape(-1) for v in values]) if values else torch.empty(0)
        counts, start = np.zeros(len(flat)), 0
        for rows, mine in zip(values, touches, strict=False):
            counts[start + mine.numpy() * (self.width + 1) + self.width] = 1.0
            start += rows.numel()
        of = len(client.kept) if self.aggregate.given(client) == "in" else 0
        return Part(flat.double().numpy(), self.aggregate.clip, counts, of=of)

    # -- forecasts: every client gets the whole table, and makes no request ----------------------
    def answer(self, server, clients, at: At):
        known = {s: {"keys": getattr(server, s).keys, "values": getattr(server, s).values}
                 for s in self.shared_sides()}
        return clients.call(self.predict, self.shared(server), known)

    @on_client
    def predict(self, client: Client, model: Any, sent: dict[str, Any],
                queries: EdgeQueries) -> torch.Tensor:
        """Return Eq. (1) for each pair, as in FedLink."""
        src, dst = self.retained(client)
        nodes = Touched(np.union1d(src, queries.src).astype(np.int64),
                        np.union1d(dst, queries.dst).astype(np.int64))
        net = client.model if model is None else tree.load(
            self.net(client.world).to(self.where), model)
        with torch.no_grad():
            rows = {s: self.rows(client, s, getattr(nodes, s), sent) for s in SIDES}
            graph = graph_of(nodes, src, dst, self.where)
            x = inputs.joined(client, net, nodes, {s: rows[s].to(self.where) for s in SIDES})
            users, items = net(x["users"], x["items"], graph, graph.weight)
            u, i = (torch.from_numpy(np.searchsorted(known, asked)).to(self.where)
                    for known, asked in zip(nodes, (queries.src, queries.dst), strict=True))
            return net.logits(users, items, u, i, self.score_by == "cosine").cpu()

    def rows(self, client: Client, side: str, ids: np.ndarray, known: dict[str, Any]
             ) -> torch.Tensor:
        """Return values of local ids: the server's, those kept here, or their first ones."""
        if side not in known:
            getattr(client, side).request(ids, ids_of(client, side))
            return getattr(client, side).receive(ids, {})
        keys = self.keys(client, side, ids)
        values = torch.from_numpy(hashed_uniform(client.world.seed, keys, self.width)
                                  * np.float32(self.init_scale))
        order = np.argsort(known[side]["keys"], kind="stable")
        at = find(known[side]["keys"][order], keys)
        here = np.flatnonzero(at >= 0)
        values[torch.from_numpy(here)] = known[side]["values"][torch.from_numpy(order[at[here]])]
        return values
