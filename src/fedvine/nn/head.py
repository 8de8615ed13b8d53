"""Heads of classes that come later: the weights of a class follow from (seed, its name) alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from fedvine.core.rng import torch_rng


def named(layer: nn.Module, classes: Sequence[str], first: int, seed: int) -> None:
    """Draw an output layer's first weights again, class by class.

    The last axis of each parameter is that of the classes. Weights are uniform, as Glorot's for a
    layer of ``first`` classes; biases stay.

    Args:
        layer: the output layer.
        classes: names of the classes by number.
        first: number of classes that the run began with, the same for classes that come later.
        seed: of the run.
    """
    with torch.no_grad():
        for c, name in enumerate(classes):
            draw = torch_rng(seed, "class", name)
            for key, p in layer.named_parameters():
                if key != "bias":
                    rows = p.shape[0] if p.dim() > 1 else 1
                    bound = (6 / (rows + first)) ** 0.5
                    p[..., c] = (2 * torch.rand(p.shape[:-1], generator=draw) - 1) * bound


def of_world(facts: dict[str, Any]) -> tuple[Sequence[str], int] | None:
    """Return the names of the classes known so far, and the first number of them.

    None in a world whose classes are all known from the start.
    """
    if "class_names" not in facts:
        return None
    return facts["class_names"][:facts["classes"]], facts["classes_at"][0]
