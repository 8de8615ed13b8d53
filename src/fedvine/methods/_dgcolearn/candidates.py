"""The exchange of EvolveGCN, version h, with ``candidates="all"``: the top rows of all clients.

The weights of a layer evolve by the k rows of its input with the largest y
(:mod:`fedvine.nn.evolvegcn`), k being the layer's width. Each client offers its own k, the server
chooses k among these and sends them to all. So all have the weights of one machine. The rows are
constants in the gradient, where one machine without an exchange would go on into the layer below;
p, by which they are chosen, gets its gradient through tanh(y), at every client.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fedvine.core.expect import Tensor
from fedvine.core.method import Client, Server, on_client


class CandidatesMixin:
    """Functions of server and clients for the top rows of a layer."""

    def say_in_turn(self: Any, server: Server, clients, layer: int, model: Any,
                    given: dict[str, Any], expect: Any) -> Any:
        """Let clients offer rows, then send messages; return these as :meth:`say` does."""
        wide, out = server.net.widths[layer:layer + 2]
        count = dict(zip(clients.names, server.placement.sizes, strict=True))
        sent = clients.call(self.rank, layer, model, per_client=given, expect=lambda name: Tensor(
            self.precision, (min(int(count[name]), out), wide + 1)))
        best = chosen([reply.numpy() for reply in sent], out)
        return clients.call(self.say_best, layer, best, only=sent.names, expect=expect)

    @on_client
    def rank(self, client: Client, layer: int, model: Any, sums: Any) -> torch.Tensor:
        """Offer rows.

        Down: as :meth:`say`. Up: the rows of the layer's input with the largest y, at most as many
        as the layer is wide, and y as the last column, [., in + 1].
        """
        mixin: Any = self
        x = mixin.enter(client, model) if layer == 0 else mixin.finish_layer(client, sums)
        client.cache["input"] = x.detach()
        return client.net.candidates(layer, client.cache["input"])

    @on_client
    def say_best(self, client: Client, layer: int, best: torch.Tensor) -> torch.Tensor:
        """Send messages.

        Down: the rows [., in] by which the layer's weights evolve. Up: messages of border nodes
        [b, m_layer].
        """
        mixin: Any = self
        client.net.best[layer] = best.to(client.cache["input"])
        message = mixin.prepare_layer(client, layer, client.cache["input"])
        return message[torch.from_numpy(mixin.part_of(client).border)].detach()


def chosen(offers: Sequence[np.ndarray], count: int) -> torch.Tensor:
    """Return the ``count`` rows [., in] of largest y, the last column, among the offers."""
    rows = np.concatenate(offers)
    return torch.from_numpy(rows[np.argsort(-rows[:, -1], kind="stable")[:count], :-1].copy())
