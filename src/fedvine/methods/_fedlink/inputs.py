"""Compute a model's inputs from tables of users and items, and from columns of edges.

Where clients have tables of users or items, or edges have columns of their own, the input of a node
is its row plus f P: f [D] are its features (:mod:`fedvine.data.node_features`), then the means of
its edges' columns (:mod:`fedvine.methods._edge_means`); P [D, d] are weights of that side, which
are one parameter of the encoder and travel with it. Features and means stay at the client. A node
without an edge is known by its features alone, as its row is as it started. P starts at zero.

A round has the means over the stages before its own, as its edges are what it learns to tell; a
forecast has them over all stages learned. Not in the paper.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from fedvine.core.method import Client, World
from fedvine.data import edge_features
from fedvine.data.node_features import features
from fedvine.data.node_features import width as of_table
from fedvine.methods._edge_means import EdgeMeans
from fedvine.methods._fedlink.buffers import SIDES

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
