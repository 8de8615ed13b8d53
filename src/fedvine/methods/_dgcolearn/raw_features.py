"""One exchange of raw features for all layers: Eqs. (5), (6) of DG-CoLearn as printed, and FedGCN.

Neither is exact through weights and non-linearities (:mod:`fedvine.methods._dgcolearn.border`);
they are here to compare with. Eqs. (5), (6) correct H of Eq. (2), which is the GRU's input in Eq.
(3): what they add never enters a state but through it. They are sums, as printed and as in the
proof (Z = Adj X), although our layers take means (Eq. (2) leaves AGG open): where a node has many
neighbours elsewhere its correction outweighs the rest, and the GRU saturates.

What crosses the wire: a client offers its border nodes' features (for Eq. (6) their
first-layer rows too), and gets, for its own border nodes, sums of what others offered.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch

from fedvine.core import tree
from fedvine.core.method import Client, Field, Server, on_client
from fedvine.core.rng import torch_rng
from fedvine.methods._dgcolearn.shared_graph import SharedGraph, filled, named, sized


class RawFeatures(SharedGraph):
    """Base: what is offered and taken. A client has a ``net`` of :mod:`fedvine.nn.roland`."""

    exchange: Literal["layerwise", "paper", "two-hop-exact", "fedgcn", "none"] = Field(
        default="layerwise", description="what clients learn of neighbours elsewhere: sums before "
        "each layer; Eqs. (5), (6) as printed; the same with the term that (6) leaves out; sums of "
        "features in place of features; nothing")

    def combined(self, client: Client, layer: int, x: torch.Tensor, message: torch.Tensor,
                 sums: torch.Tensor) -> torch.Tensor:
        """Eq. (2): a layer's rows before the state; ``sums``: what neighbours elsewhere say."""
        raise NotImplementedError

    def features_travel(self, server: Server, clients, model: Any) -> tuple[str, ...]:
        """One exchange: every client's corrections, until the next one; who took part."""
        border = SharedGraph.border(self, server, clients)
        places = [server.place[n] for n in border.nodes]
        F = self.width(clients.world)
        wide = F + {"fedgcn": 0, "paper": self.hidden, "two-hop-exact": F}[self.exchange]
        sent = clients.call(self.offer, model, per_client=named(clients, places, server.joined),
                            expect=sized(self.precision, clients, map(len, places), wide))
        rows = border.sums(filled(clients, sent, border.sizes))
        again = border.sums([r[:, :F] for r in rows])               # sums over N_j of Eq. (6)
        each = list(zip(places, border.count, rows, again, strict=True))
        return clients.call(self.take, per_client=named(clients, each, sent.names),
                            expect=None).names

    @on_client
    def offer(self, client: Client, model: Any, places: np.ndarray) -> torch.Tensor:
        """Features of these nodes; and for Eq. (6) their rows of the first layer, or (exact) the
        sums of features over themselves and their neighbours here."""
        if model is not None:
            tree.load(client.net, model)
        self.here(client).others = []
        x = self.inputs(client)
        if self.exchange == "fedgcn":
            return x[torch.from_numpy(places)]
        if self.exchange == "two-hop-exact":
            return torch.cat([x, self.around(client, x)], 1)[torch.from_numpy(places)]
        message = client.net.message(0, x, self.degree(client))
        h = self.combined(client, 0, x, message, message[:0])         # (2), of neighbours here
        return torch.cat([x, h], 1)[torch.from_numpy(places)].detach()

    @on_client
    def take(self, client: Client, found: tuple[np.ndarray, ...]) -> None:
        """What the sums come to."""
        places, count, rows, again = (torch.from_numpy(f) for f in found)
        x, F = self.inputs(client)[places], self.width(client.world)
        if self.exchange == "fedgcn":
            self.here(client).others = [places, count.to(x), rows]
            return
        P = torch.eye(F).to(x)
        if self.hidden != F:                        # their code projects at random
            draw = torch_rng(client.world.seed, "project")
            P = torch.randn(F, self.hidden, generator=draw).to(x) / F ** 0.5
        sums = rows[:, :F] @ P
        if self.exchange == "two-hop-exact":        # A_s C X + C (A_s X + C X), of all own nodes
            own = torch.zeros_like(self.here(client).x)
            second = self.around(client, own.index_add(0, places, rows[:, :F]))
            second = second.index_add(0, places, rows[:, F:] + again)
            self.here(client).others = [places, sums, torch.arange(len(own)), second @ P]
            return
        self.here(client).others = [places, sums, places, rows[:, F:] + sums + (
            count[:, None] * x + again) @ P]

    def around(self, client: Client, x: torch.Tensor) -> torch.Tensor:
        """A_s X: sums over a node itself and its neighbours here."""
        a, b = (torch.from_numpy(e) for e in self.here(client).ends)
        return x.index_add(0, a, x[b]).index_add(0, b, x[a])

    def inputs(self, client: Client) -> torch.Tensor:
        """Features; for FedGCN their means over all neighbours, here and elsewhere."""
        x, here = super().inputs(client), self.here(client)
        if self.exchange != "fedgcn" or not here.others:
            return x
        places, count, sums = here.others
        total = self.around(client, x).index_add(0, places, sums)
        return total / (1 + self.degree(client).index_add(0, places, count))[:, None]

    def corrected(self, client: Client, layer: int, h: torch.Tensor) -> torch.Tensor:
        """H of Eq. (2), before the state, with what Eqs. (5), (6) add in the first two layers."""
        others = self.here(client).others
        if self.exchange not in ("paper", "two-hop-exact") or not others or layer > 1:
            return h
        places, correction = others[2 * layer:2 * layer + 2]
        return h.index_add(0, places, correction)
