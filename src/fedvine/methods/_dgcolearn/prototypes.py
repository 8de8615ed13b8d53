"""Prototypes: the mean row of each class at a client, and over all clients.

``sums`` [C, d + 1] are the sums of rows by class and, in the last column, their number; so the sum
of several clients' ``sums`` has the mean over all their nodes.
"""

from __future__ import annotations

import torch


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
