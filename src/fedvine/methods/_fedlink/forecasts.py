"""Embeddings that FedLink computed for one question of a person and keeps for the next one.

Between two questions the model stays as it is, so the embeddings of the nodes that a client's edges
join stay, too, and those of items. A user without such an edge is computed anew each time: two
guests of two questions may have the same number. All is in ``client.cache``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from fedvine.core.lookup import find
from fedvine.core.method import Client
from fedvine.core.query import Query
from fedvine.methods._fedlink.buffers import Touched


@dataclass(frozen=True)
class Held:
    """Embeddings float32 [n, d] of ``nodes``, at one moment of a run."""

    moment: tuple[int, int]
    nodes: Touched
    users: torch.Tensor
    items: torch.Tensor

    def others(self, users: np.ndarray, items: np.ndarray) -> Touched:
        """Return the queried nodes that are not held (int64, ascending)."""
        return Touched(*(asked[find(known, asked) < 0] for known, asked in
                         zip(self.nodes, (np.unique(users), np.unique(items)), strict=True)))

    def joined(self, nodes: Touched, users: torch.Tensor, items: torch.Tensor
               ) -> tuple[Touched, torch.Tensor, torch.Tensor]:
        """Return all nodes with their embeddings: those held, and those of ``nodes``."""
        (u, users), (i, items) = (
            _merged(known, held, more, new) for known, held, more, new in
            zip(self.nodes, (self.users, self.items), nodes, (users, items), strict=True))
        return Touched(u, i), users, items


def first(client: Client) -> bool:
    """Return whether what is computed for these queries may be held for a person's next question.

    Not in scoring, nor where the client's newest events enter the state query by query.
    """
    return client.asked == Query("given") and client.ahead is None


def held(client: Client) -> Held | None:
    """Return what an earlier question of this moment left; None where nothing may be used."""
    found = client.cache.get("held") if first(client) else None
    return found if found is not None and found.moment == client.place[:2] else None


def hold(client: Client, nodes: Touched, users: torch.Tensor, items: torch.Tensor) -> None:
    """Keep the embeddings of the client's own nodes, not those of guests, for the next question."""
    own = client.past.num_src - client.guests
    u = int(np.searchsorted(nodes.users, own))
    i = len(nodes.items) if client.past.bipartite else int(np.searchsorted(nodes.items, own))
    client.cache["held"] = Held(client.place[:2], Touched(nodes.users[:u], nodes.items[:i]),
                                users[:u], items[:i])


def _merged(known: np.ndarray, held: torch.Tensor, more: np.ndarray, new: torch.Tensor
            ) -> tuple[np.ndarray, torch.Tensor]:
    if not len(more):
        return known, held
    both = np.concatenate([known, more])
    order = np.argsort(both, kind="stable")
    return both[order], torch.cat([held, new])[torch.from_numpy(order)]
