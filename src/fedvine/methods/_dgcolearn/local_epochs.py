"""Local epochs at a client of DG-CoLearn: it trains by itself on its part, with sums that are kept.

The server's side, and when sums are exchanged: ``local_epochs`` in
:mod:`fedvine.methods.dgcolearn`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedvine.core import tree
from fedvine.core.method import Client, on_client
from fedvine.methods._dgcolearn.client import ClientMixin


class LocalEpochsMixin(ClientMixin):
    """The functions of local epochs that run at a client."""

    if TYPE_CHECKING:
        layers: int

        def train_pairs(self, client: Client, epochs: int, told: Any, labels: np.ndarray
                        ) -> None: ...

    @on_client
    def train(self, client: Client, model: Any, epochs: int, own: tuple[Any, np.ndarray]) -> None:
        """Train for ``epochs`` with the sums that are kept. Down: the model, or None to go on
        with the client's own; places of pairs int64 [2, P] of own nodes, or of nodes [1, P];
        and their labels [P] (1 for an edge, 0 for none; or classes). Of dygformer lists in place
        of places (:meth:`NeighbourListsMixin.sequences`), None where there is no pair."""
        if model is not None:
            tree.load(client.net, model)
        if client.net.paired:
            self.train_pairs(client, epochs, *own)
            return
        ends, labels = [torch.from_numpy(e) for e in own[0]], own[1]
        for _ in range(epochs if len(labels) else 0):
            loss = self.loss(client, self.by_layer(client)[-1], ends, labels)
            client.optimizer.zero_grad()
            loss.backward()
            client.optimizer.step()

    def by_layer(self, client: Client) -> list[torch.Tensor]:
        """Return the rows [n, hidden] of each layer by the client's model, with the sums kept."""
        part, x, found = self.part_of(client), self.inputs(client), list[torch.Tensor]()
        for layer in range(self.layers):
            message = client.net.message(layer, x, self.degree(client), part.states[layer])
            sums = (part.sums[layer] if part.sums else
                    message.new_zeros(len(part.border), message.shape[1]))
            x = client.net.rows(layer, self.layer(client, layer, x, message, sums))
            found.append(x)
        return found

    def loss(self, client: Client, rows: torch.Tensor, ends: list[torch.Tensor],
             labels: np.ndarray) -> torch.Tensor:
        """Compute what a local epoch minimises, a scalar; a subclass may add terms.

        ``rows`` [n, hidden] are those of all own nodes; ``ends`` are the places [P] of the first
        and of the second nodes of pairs, or of nodes alone, and ``labels`` [P] as in :meth:`train`.
        """
        return client.net.loss([rows[e] for e in ends], labels)

    @on_client
    def trained(self, client: Client) -> dict[str, torch.Tensor]:
        """Return this client's model, to be averaged."""
        return tree.weights(client.net)
