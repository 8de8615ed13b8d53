"""Heads of classes that come later: the weights of a class follow from (seed, its name) alone."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

from fedvine.core.rng import torch_rng
from fedvine.core.state import World

M = TypeVar("M", bound=nn.Module)


def named(net: M, world: World) -> M:
    """Draw the head's first weights again, class by class, where classes may come later.

    The head is the layer ``second``, and the last axis of each of its parameters that of the
    classes. Weights are uniform, as Glorot's for a layer of the classes that the run began with
    (``world.facts["class_names"]``), so a class has the same ones whenever it comes; biases stay.
    """
    if "class_names" not in world.facts:
        return net
    first, layer = world.facts["classes_at"][0], net.second
    with torch.no_grad():
        for c, name in enumerate(world.facts["class_names"][:world.facts["classes"]]):
            draw = torch_rng(world.seed, "class", name)
            for key, p in layer.named_parameters():  # type: ignore[union-attr,operator]
                if not key.endswith("bias"):
                    rows = p.shape[0] if p.dim() > 1 else 1
                    bound = (6 / (rows + first)) ** 0.5
                    p[..., c] = (2 * torch.rand(p.shape[:-1], generator=draw) - 1) * bound
    return net
