"""Nodes that a server generates from a model alone, for distillation: TARGET and LANDER share it.

A generated node is a row of features with a loop and no edges. The server trains a generator on the
global model of the tasks so far, the teacher: its rows should be taken for given classes, cause
hidden rows with the means and variances that clients measured, and divide the teacher from a
student that learns from the rows so far. The network has no batch normalisation, whose running
statistics the papers match, so clients measure these of the hidden layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from scipy.sparse import issparse
from torch import nn
from torch.nn import functional

from fedvine.nn.gat import Inputs, glorot

Spread = tuple[torch.Tensor, torch.Tensor]      # mean and variance of each column


class Maker(Protocol):
    """A generator: it begins a batch of nodes for given classes, and makes their rows."""

    def begin(self, y: torch.Tensor, draw: torch.Generator) -> list[dict[str, Any]]:
        """Begin a batch for the classes ``y`` int64 [B]; return the parameters for Adam."""
        ...

    def __call__(self) -> torch.Tensor:
        """Compute the rows float32 [B, F]."""
        ...


class Rows(nn.Module):
    """A generator's last layers: codes [B, width] to rows [B, F] of given mean and deviation."""

    def __init__(self, width: int, hidden: int, features: int, draw: torch.Generator) -> None:
        super().__init__()
        self.inner = nn.Parameter(glorot(width, hidden, draw))
        self.outer = nn.Parameter(glorot(hidden, features, draw))

    def forward(self, codes: torch.Tensor, mean: torch.Tensor, deviation: torch.Tensor
                ) -> torch.Tensor:
        """Compute rows [B, F] whose columns have this mean and standard deviation [F]."""
        h = functional.leaky_relu(standardised(codes @ self.inner), 0.2)
        return mean + deviation * standardised(h @ self.outer)


class FromNoise(nn.Module):
    """TARGET's generator: from noise that is learned, with the data's mean and deviation [F]."""

    def __init__(self, width: int, hidden: int, spread: Spread, learning_rate: float,
                 draw: torch.Generator) -> None:
        super().__init__()
        self.width, self.learning_rate = width, learning_rate
        self.mean, self.deviation = spread[0], spread[1].sqrt()
        self.rows = Rows(width, hidden, len(self.mean), draw).to(self.mean.device)
        self.z = torch.empty(0, width)

    def begin(self, y: torch.Tensor, draw: torch.Generator) -> list[dict[str, Any]]:
        """Begin a batch of as many nodes as ``y`` has; return the parameters for Adam."""
        self.z = torch.randn(len(y), self.width, generator=draw).to(y.device).requires_grad_()
        return [{"params": list(self.rows.parameters()), "lr": self.learning_rate},
                {"params": [self.z], "lr": 0.01}]

    def forward(self) -> torch.Tensor:
        """Compute the rows float32 [B, F]."""
        return self.rows(self.z, self.mean, self.deviation)


def standardised(x: torch.Tensor) -> torch.Tensor:
    """Subtract the mean of each column of ``x`` [B, n] and divide by its standard deviation."""
    return (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()


def alone(x: torch.Tensor) -> Inputs:
    """Return nodes with the features ``x`` [V, F] that have a loop and no edges."""
    loops = torch.arange(len(x), device=x.device)
    return Inputs(x, loops, loops)


def moments(rows: Any) -> torch.Tensor:
    """Compute the means of each column of ``rows`` [N, n] and of its squares, float32 [2, n].

    ``rows`` are a tensor, an array or CSR; without any the result is 0.
    """
    if not rows.shape[0]:
        return torch.zeros(2, rows.shape[1])
    if isinstance(rows, torch.Tensor):
        return torch.stack([rows.mean(0), rows.square().mean(0)])
    squares = rows.multiply(rows) if issparse(rows) else rows * rows
    return torch.from_numpy(np.stack([np.asarray(part.mean(0), np.float32).reshape(-1)
                                      for part in (rows, squares)]))


def spread(found: torch.Tensor) -> Spread:
    """Compute mean and variance [n] from :func:`moments` [2, n]."""
    return found[0], (found[1] - found[0].square()).clamp(min=0)


def mismatch(rows: torch.Tensor, wanted: Spread) -> torch.Tensor:
    """Compute the L2 distances of the columns' variances and means of ``rows``, added."""
    mean, variance = spread(moments(rows))
    return (variance - wanted[1]).norm() + (mean - wanted[0]).norm()


def divergence(student: torch.Tensor, teacher: torch.Tensor, temperature: float = 1.0
               ) -> torch.Tensor:
    """Compute T^2 KL(teacher || student) of each row [B] of logits [B, C], at a temperature T."""
    ours, theirs = (s.div(temperature).log_softmax(1) for s in (student, teacher))
    return temperature ** 2 * (theirs.exp() * (theirs - ours)).sum(1)


def disagreement(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Compute the mean divergence where both take a node for the same class, a scalar."""
    same = (student.argmax(1) == teacher.argmax(1)).to(student)
    return (divergence(student, teacher) * same).mean()


def batch(maker: Maker, y: torch.Tensor, cost: Callable[[torch.Tensor], torch.Tensor], steps: int,
          draw: torch.Generator) -> torch.Tensor:
    """Train a generator for ``steps`` on one batch; return its rows [B, F] of the least cost."""
    optimizer = torch.optim.Adam(maker.begin(y, draw), betas=(0.5, 0.999))
    best, least = maker().detach(), torch.inf
    for _ in range(steps):
        rows = maker()
        loss = cost(rows)
        if float(loss.detach()) < least:
            best, least = rows.detach(), float(loss.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return best
