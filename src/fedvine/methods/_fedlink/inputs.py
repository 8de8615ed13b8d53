"""What a model knows of users and items beforehand, as a part of their input rows.

Where clients have tables of users or items, the input of a node is its row plus f P: f are its
features [D] (:mod:`fedvine.data.node_features`), P [D, d] are weights of that side, which are one
parameter of the encoder and travel with it. A node without an edge is known by its features alone,
as its row is as it started. P starts at zero. Not in the paper.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from fedvine.core.method import Client, World
from fedvine.data.node_features import features, width
from fedvine.methods._fedlink.buffers import SIDES

NAME = "features"


def with_features(net: nn.Module, rows: int, world: World) -> Any:
    """Add the weights of features, [D of users + D of items, ``rows``], if there are any."""
    wide = sum(width(world, side) for side in SIDES)
    if wide:
        net.register_parameter(NAME, nn.Parameter(torch.zeros(wide, rows)))
    return net


def joined(client: Client, net: nn.Module, nodes: Any, rows: dict[str, torch.Tensor]
           ) -> dict[str, torch.Tensor]:
    """Return the inputs of nodes, float32 [n, d] by side: their rows, with their features if any.

    Args:
        client: has the tables.
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
        known = features(client, side)
        found[side] = rows[side] if known is None else rows[side] + torch.from_numpy(
            known[getattr(nodes, side)]).to(weights.device) @ part
    return found
