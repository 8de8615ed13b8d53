"""One exchange of raw features for all layers: Eqs. (5), (6) of DG-CoLearn as printed, and FedGCN.

None is exact through weights and non-linearities; they are here to compare with. With A = A_s + C
(inside clients, with a loop at every node; across), A^2 = A_s^2 + A_s C + C A_s + C^2, and the
published proof leaves A_s C out. Eqs. (5), (6) correct H of Eq. (2), which is the GRU's input in
Eq. (3): what they add never enters a state but through it. They are sums (Z = Adj X in the proof),
while our layers take means (Eq. (2) leaves AGG open): where a node has many neighbours elsewhere
its correction outweighs the rest, and the GRU saturates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fedvine.core.method import Client, Server
from fedvine.core.rng import torch_rng
from fedvine.methods._dgcolearn.exchange import Border, Layerwise, absent, filled, named, sized


class RawFeatures(Layerwise):
    """The exchanges "paper", "two-hop-exact" and "fedgcn".

    Layers add up messages inside clients alone; neighbours elsewhere enter by corrections
    (``exchange="fedgcn"``: by features).
    """

    def border_used(self, server: Server) -> Border:
        """Return a border without edges: no sums are sent before layers."""
        return Border(len(self.world.clients))

    def before(self, server: Server, clients, model: Any) -> None:
        """Exchange features."""
        self.refresh(server, clients, model)

    def refresh(self, server: Server, clients, model: Any) -> Sequence[str]:
        """Exchange features: up those of border nodes, down sums of neighbours elsewhere."""
        border, method = server.border, self.method
        places = [server.placement.place[n] for n in border.nodes]
        F = method.width(self.world)
        wide = F + {"fedgcn": 0, "paper": method.hidden, "two-hop-exact": F}[method.exchange]
        sent = clients.call(method.offer, model, per_client=named(clients, places, server.joined),
                            expect=sized(method.precision, clients, border.sizes, wide))
        away = absent(clients, sent)
        rows = border.sums(filled(clients, sent, border.sizes), away)
        again = border.sums([r[:, :F] for r in rows], away)         # over q in N_j of Eq. (6)
        each = list(zip(places, border.count, rows, again, strict=True))
        return clients.call(method.take, per_client=named(clients, each, sent.names),
                            expect=None).names

    def offered(self, client: Client) -> torch.Tensor:
        """Return what a client offers of all its nodes.

        Features [n, F]; for Eq. (6) also their rows of the first layer [n, hidden], or (exact) A_s
        X [n, F].
        """
        method, net, x = self.method, client.net, self.method.inputs(client)
        if method.exchange == "fedgcn":
            return x
        if method.exchange == "two-hop-exact":
            return torch.cat([x, method.part_of(client).add_neighbours(x, x)], 1)
        state = method.part_of(client).states[0]
        message = net.message(0, x, method.degree(client), state)
        h = method.combined(client, 0, x, message, message[:0])     # (2), of neighbours here
        return torch.cat([x, h], 1).detach()

    def corrections(self, client: Client, found: tuple[np.ndarray, ...]) -> list[torch.Tensor]:
        """Compute from the received sums what is added.

        Places and rows [., hidden] for the first layer and for the second; for FedGCN places,
        counts and sums of features.
        """
        part, x = self.method.part_of(client), self.method.inputs(client)
        places, count, rows, again = (torch.from_numpy(f).to(x.device) for f in found)
        exchange, hidden, F = self.method.exchange, self.method.hidden, x.shape[1]
        if exchange == "fedgcn":
            return [places, count.to(x), rows]
        P = torch.eye(F).to(x)
        if hidden != F:                             # the authors' code projects at random
            draw = torch_rng(self.world.seed, "project")
            P = torch.randn(F, hidden, generator=draw).to(x) / F ** 0.5
        sums = rows[:, :F] @ P                                                          # (5)
        if exchange == "two-hop-exact":             # A_s C X + C (A_s X + C X), of all own nodes
            own = torch.zeros_like(x).index_add(0, places, rows[:, :F])
            second = part.add_neighbours(own, own).index_add(0, places, rows[:, F:] + again)
            return [places, sums, torch.arange(len(own), device=x.device), second @ P]
        return [places, sums, places, rows[:, F:] + sums + (
            count[:, None] * x[places] + again) @ P]                                    # (6)

    def inputs(self, part: Any, x: torch.Tensor, degree: torch.Tensor) -> torch.Tensor:
        """Return features [n, F]; for FedGCN their means over all neighbours."""
        if self.method.exchange != "fedgcn" or not part.corrections:
            return x
        places, count, sums = part.corrections
        total = part.add_neighbours(x, x).index_add(0, places, sums)
        return total / (1 + degree.index_add(0, places, count))[:, None]

    def corrected(self, part: Any, layer: int, h: torch.Tensor) -> torch.Tensor:
        """Return H of Eq. (2) with what Eqs. (5), (6) add in the first two layers."""
        if self.method.exchange == "fedgcn" or not part.corrections or layer > 1:
            return h
        places, correction = part.corrections[2 * layer:2 * layer + 2]
        return h.index_add(0, places, correction)
