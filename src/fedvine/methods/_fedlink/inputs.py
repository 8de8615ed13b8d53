"""Inputs of a model from tables of users and items and columns of edges; embeddings that are held.

Where clients have tables of users or items, or edges have columns of their own, the input of a node
is its row plus f P: f [D] are its features (:mod:`fedvine.data.node_features`), then the means of
its edges' columns (:mod:`fedvine.methods._edge_means`); P [D, d] are weights of that side, which
are one parameter of the encoder and travel with it. Features and means stay at the client. A node
without an edge is known by its features alone, as its row is as it started. P starts at zero.

A round has the means over the stages before its own, as its edges are what it learns to tell; a
forecast has them over all stages learned. Not in the paper.

Between two questions of a person the model stays as it is, so the embeddings of the nodes that a
client's edges join stay, too, and those of items: they are kept for the next question, in
``client.cache``. A user without such an edge is computed anew each time: two guests of two
questions may have the same number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from fedvine.core.lookup import find
from fedvine.core.method import Client, World
from fedvine.core.replies import Query
from fedvine.data import edge_features
from fedvine.data.node_features import features
from fedvine.data.node_features import width as of_table
from fedvine.methods._edge_means import EdgeMeans
from fedvine.methods._fedlink.rows import SIDES, Touched

NAME = "features"


def width(world: World, side: str) -> int:
    """Return the number D of features and means of a user ("users") or an item ("items")."""
    return of_table(world, side) + edge_features.width(world)


def start_means(client: Client) -> None:
    """Let a client keep sums over its edges in ``client.means``, if edges have columns."""
    if edge_features.width(client.world):
        client.means, client.summed = EdgeMeans(client.world), 0


def learn_means(client: Client) -> None:
    """Add the edges of the stage before, as a stage has arrived."""
    if edge_features.width(client.world):
        stop = len(client.past) - len(client.stage)
        client.means.add(client.past[client.summed:stop], client.world)
        client.summed = stop


def means_now(client: Client) -> EdgeMeans:
    """Return the means that a round learns from, or that a forecast knows."""
    if client.asked is None:
        return client.means
    kept = client.cache.get("means")
    if kept is None or kept[0] != client.place[0]:
        kept = client.cache["means"] = client.place[0], client.means.and_of(client.stage,
                                                                            client.world)
    return kept[1]


def known(client: Client, side: str, nodes: np.ndarray) -> np.ndarray:
    """Return features and means of nodes int64 [n], float32 [n, :func:`width`]."""
    table, found = features(client, side), []
    if table is not None:
        found.append(table[nodes])
    if edge_features.width(client.world):
        found.append(means_now(client).of(side, nodes))
    return found[0] if len(found) == 1 else np.concatenate(found, 1)


def with_features(net: nn.Module, rows: int, world: World) -> Any:
    """Add the weights P, [D of users + D of items, ``rows``], if anything is known."""
    wide = sum(width(world, side) for side in SIDES)
    if wide:
        net.register_parameter(NAME, nn.Parameter(torch.zeros(wide, rows)))
    return net


def joined(client: Client, net: nn.Module, nodes: Any, rows: dict[str, torch.Tensor]
           ) -> dict[str, torch.Tensor]:
    """Return the inputs of nodes, float32 [n, d] by side: their rows, with what is known of them.

    Args:
        client: has the tables and the sums over edges.
        net: has the weights.
        nodes: local ids by side.
        rows: their rows, by side.

    Returns:
        The inputs by side.
    """
    if NAME not in dict(net.named_parameters(recurse=False)):
        return rows
    weights, found = net.get_parameter(NAME), {}
    parts = weights.split([width(client.world, side) for side in SIDES])
    for side, part in zip(SIDES, parts, strict=True):
        found[side] = rows[side] if not len(part) else rows[side] + torch.from_numpy(
            known(client, side, getattr(nodes, side))).to(weights.device) @ part
    return found


# -- embeddings held for a person's next question --------------------------------------------------
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
