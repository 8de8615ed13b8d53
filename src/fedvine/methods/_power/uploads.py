"""Prototypes on their way to the server, as gradients: what a reply may hold, and reading it."""

from __future__ import annotations

from typing import Literal

import torch

from fedvine.core.expect import LARGEST, Tensor
from fedvine.core.rng import torch_rng
from fedvine.core.state import World
from fedvine.methods._power.equations import Encoder, infer_labels, reconstruct


def shared_encoder(world: World) -> Encoder:
    """Draw the gradient-encoding network, the same at every client and at the server."""
    return Encoder.make(world.facts["features"], world.facts["classes"],
                        generator=torch_rng(world.seed, "encoder"))


def expected(encoder: Encoder, most: int) -> dict[str, Tensor]:
    """Return the schema of the gradients of at most ``most`` prototypes."""
    layers = enumerate(zip(encoder.weights, encoder.biases, strict=True))
    parts = {f"{kind}_{i}": part for i, pair in layers
             for kind, part in zip(("weight", "bias"), pair, strict=True)}
    return {name: Tensor("float32", ("prototypes", *part.shape), most=most * part.nbytes)
            for name, part in parts.items()}


def read(encoder: Encoder, gradients: dict[str, torch.Tensor],
         how: Literal["closed-form", "lbfgs"] = "closed-form",
         generator: torch.Generator | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Reconstruct prototypes float32 [P, F] and their classes int64 [P], Eqs. (10), (11) of POWER.

    Prototypes with values that are not finite, or too large for a reply, are left out.
    """
    labels = infer_labels(gradients)
    if not len(labels):
        return torch.empty(0, encoder.widths[0]), labels
    found = reconstruct(encoder, gradients, labels, how, generator=generator).prototypes.float()
    finite = found.abs().amax(1) < LARGEST                          # false for NaN, too
    return found[finite], labels[finite]
