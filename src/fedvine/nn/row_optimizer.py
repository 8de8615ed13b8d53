"""Optimizers for rows of a large table, of which a step touches a few."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fedvine.core.lookup import find
from fedvine.nn import kernels


class RowOptimizer:
    """Adam (Kingma and Ba 2015) or plain SGD for single rows.

    With ``kind = "adam"`` a row has moments and a count of steps of its own, for as long as it is
    ``held``; a row that a step does not name does not move.
    """

    def __init__(self, width: int, kind: str = "adam") -> None:
        self.width, self.kind = width, kind
        self.held = np.empty(0, np.int64)           # local ids of rows, ascending
        self.moments = torch.zeros(2, 0, width)     # m and v of those
        self.steps = torch.zeros(0)                 # steps that each of those has taken

    def hold(self, ids: np.ndarray) -> None:
        """Hold exactly the rows ``ids`` (int64 [n], ascending); drop the moments of others."""
        at = find(self.held, ids)
        kept = np.flatnonzero(at >= 0)
        moments = self.moments.new_zeros(2, len(ids), self.width)
        steps = self.steps.new_zeros(len(ids))
        moments[:, kept], steps[kept] = self.moments[:, at[kept]], self.steps[at[kept]]
        self.held, self.moments, self.steps = ids, moments, steps

    def step(self, ids: np.ndarray, values: torch.Tensor, at: np.ndarray, gradient: torch.Tensor,
             learning_rate: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
             ) -> None:
        """Take one step on ``values`` float32 [., width], in place.

        Row ``at[n]`` is that of held id ``ids[n]`` and has ``gradient[n]`` [width]; each is named
        once. Moments move to the device of ``values``, where the step is made.
        """
        if self.kind == "sgd":
            rows = torch.from_numpy(at).to(values.device)
            values.index_add_(0, rows, gradient, alpha=-learning_rate)
            return
        if values.device != self.moments.device:
            self.moments, self.steps = (x.to(values.device) for x in (self.moments, self.steps))
        if values.device.type != "cpu":
            self._step(ids, values, at, gradient, learning_rate, *betas, eps)
            return
        kernels.adam(values.numpy(), at, gradient.contiguous().numpy(),
                     np.searchsorted(self.held, ids), self.moments[0].numpy(),
                     self.moments[1].numpy(), self.steps.numpy(), learning_rate, *betas, eps)

    def _step(self, ids: np.ndarray, values: torch.Tensor, at: np.ndarray, gradient: torch.Tensor,
              rate: float, beta1: float, beta2: float, eps: float) -> None:
        """Take the step of :func:`fedvine.nn.kernels.adam` by torch."""
        rows, own = (torch.from_numpy(x).to(values.device)
                     for x in (at, np.searchsorted(self.held, ids)))
        steps = self.steps.index_select(0, own) + 1
        m = self.moments[0].index_select(0, own).lerp_(gradient, 1 - beta1)
        v = self.moments[1].index_select(0, own).mul_(beta2).addcmul_(gradient, gradient,
                                                                      value=1 - beta2)
        self.steps[own], self.moments[0, own], self.moments[1, own] = steps, m, v
        first, second = ((a / (1 - b ** steps.double())).float()[:, None]
                         for a, b in ((rate, beta1), (1.0, beta2)))
        values.index_add_(0, rows, first * m / ((v * second).sqrt() + eps), alpha=-1)

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps; arrays are views."""
        return {"held": self.held, "moments": self.moments, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` gave."""
        self.held = state["held"].copy()
        self.moments, self.steps = state["moments"].clone(), state["steps"].clone()
