"""Clients that keep models of their own, for rivals of DG-CoLearn whose server has none.

Nothing is learned of neighbours elsewhere, so a client computes its rows by itself: its states
(:meth:`OwnModelsMixin.settle`), and the classes of its own nodes (:meth:`OwnModelsMixin.classify`).
No rows go to the server. :func:`class_sums` [C, d + 1] are the sums of rows by class and, in the
last column, their number; so the sum of several clients' sums has the mean over all their nodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fedvine.core.expect import Tensor
from fedvine.core.method import Client, Server, on_client


class OwnModelsMixin:
    """For methods without an exchange (``exchange = "none"``) that name classes of nodes."""

    def commit(self, server: Server, clients) -> None:
        """Let the rows of each client's model become states."""
        server.placement.send(self, server, clients)
        clients.call(self.settle, only=server.events.ready(server), expect=None)

    def class_scores(self, server: Server, clients, nodes: np.ndarray) -> np.ndarray:
        """Return the scores float [Q, classes] of ``nodes`` int64 [Q], each by its own client.

        They are 0 for nodes never seen, and for those of clients that do not answer.
        """
        method: Any = self
        placement, C = server.placement, clients.world.facts["classes"]
        placement.send(method, server, clients)
        at = {n: np.flatnonzero(placement.owner[nodes] == k)
              for k, n in enumerate(placement.world.clients) if n in server.events.ready(server)}
        sent = clients.call(method.classify, per_client={
            n: placement.place[nodes[mine]] for n, mine in at.items()},
            expect=lambda name: Tensor(method.precision, (len(at[name]), C)))
        found = np.zeros((len(nodes), C), method.precision)
        for name, scores in sent.items():
            found[at[name]] = scores.numpy()
        return found

    # -- at a client ------------------------------------------------------------------------------
    def alone(self, client: Client, commit: bool) -> torch.Tensor:
        """Compute the rows [n, hidden] by the client's own model; with ``commit`` states, too."""
        method: Any = self
        with torch.no_grad():
            return method.by_layer(client, commit)[-1]

    @on_client
    def settle(self, client: Client) -> None:
        """Let the rows of this client's model become states."""
        self.alone(client, True)

    @on_client
    def classify(self, client: Client, places: np.ndarray) -> torch.Tensor:
        """Return the scores of the classes of own nodes. Down: places int64 [q]. Up: [q, C]."""
        rows = self.alone(client, False)
        with torch.no_grad():
            return client.net.score(rows[torch.from_numpy(places)])


def class_sums(rows: torch.Tensor, y: torch.Tensor, classes: int) -> torch.Tensor:
    """Return the sums and the numbers of ``rows`` [P, d] by class ``y`` int64 [P]: [C, d + 1]."""
    counted = torch.nn.functional.pad(rows, (0, 1), value=1.0)
    return rows.new_zeros(classes, rows.shape[1] + 1).index_add(0, y, counted)


def means(sums: torch.Tensor, otherwise: torch.Tensor) -> torch.Tensor:
    """Return the mean rows [C, d] of ``sums`` [C, d + 1]; ``otherwise`` of classes without any."""
    met = sums[:, -1:] > 0
    return torch.where(met, sums[:, :-1] / sums[:, -1:].clamp(min=1), otherwise)


def distance(sums: torch.Tensor, prototypes: torch.Tensor) -> torch.Tensor:
    """Compute the mean over classes of ``|own mean - prototype|^2 / d``, a scalar.

    ``sums`` [C, d + 1] are the client's own; ``prototypes`` [C, d] are NaN for a class that no
    client has met. Classes that are not in both are left out; 0 where none is.
    """
    both = (sums[:, -1] > 0) & ~prototypes.isnan().any(1)
    off = sums[both][:, :-1] / sums[both][:, -1:] - prototypes[both]
    return off.square().sum() / max(off.numel(), 1)
