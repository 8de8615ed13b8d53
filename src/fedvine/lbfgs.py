"""L-BFGS for many small problems at once, each with its own steps.

``torch.optim.LBFGS`` over a concatenation shares one step length and one curvature estimate among
all problems. Here every row of a matrix is a problem of its own: the two-loop recursion (Nocedal
and Wright 2006, Alg. 7.4) and the line search are vectorised over rows, and rows that have
finished leave the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

Function = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


def minimise(function: Function, start: Tensor, iterations: int, memory: int = 10,
             trials: int = 20) -> tuple[Tensor, Tensor]:
    """Where each row of ``start`` [B, D] ends, [B, D], and the iterations it took, [B].

    ``function(x [b, D], rows [b])`` gives, for some rows of the batch, the values [b], gradients
    [b, D], and whether each is good enough to stop [b]. A row stops when it is, after
    ``iterations``, or when not even steepest descent finds a lower value within ``trials``.
    A row's result does not depend on the other rows, rounding aside.
    """
    end, taken = start.clone(), torch.zeros(len(start), dtype=torch.long, device=start.device)
    rows, x = torch.arange(len(start), device=start.device), start
    value, slope, done = function(x, rows)
    steps, changes = start.new_zeros(2, memory, *start.shape)
    inverse = start.new_zeros(memory, len(start))  # 1 / (step . change); 0: nothing remembered
    scale = _first_scale(slope)
    fresh = torch.ones_like(done)
    for iteration in range(iterations):
        if done.any():
            end[rows[done]], taken[rows[done]] = x[done], iteration
            keep = (~done).nonzero()[:, 0]
            rows, x, value, slope, scale, fresh = (
                part[keep] for part in (rows, x, value, slope, scale, fresh))
            steps, changes, inverse = steps[:, keep], changes[:, keep], inverse[:, keep]
        if not len(rows):
            break
        newest = [i % memory for i in range(iteration - 1, max(iteration - memory, 0) - 1, -1)]
        way = _direction(slope, steps, changes, inverse, scale, newest)
        uphill = ~((way * slope).sum(1) < 0)
        way[uphill] = -(scale[:, None] * slope)[uphill]
        new_x, new_value, new_slope, moved, done = _search(function, rows, x, value, slope, way,
                                                           trials)
        step, change = new_x - x, new_slope - slope
        product, length = (step * change).sum(1), (change * change).sum(1)
        curved = moved & (product > 1e-10 * length.sqrt() * step.norm(dim=1))
        slot = iteration % memory
        steps[slot], changes[slot] = step, change
        inverse[slot] = torch.where(curved, 1 / product, 0)
        scale = torch.where(curved, product / length, scale)
        # A row that found nothing lower forgets its curvature; the second time running it stops.
        stuck = ~moved
        done |= stuck & fresh
        inverse[:, stuck] = 0
        scale = torch.where(stuck, _first_scale(new_slope), scale)
        x, value, slope, fresh = new_x, new_value, new_slope, stuck
    else:
        end[rows], taken[rows] = x, iterations
    return end, taken


def _first_scale(slope: Tensor) -> Tensor:
    return 1 / slope.abs().sum(1).clamp(min=1)


def _direction(slope: Tensor, steps: Tensor, changes: Tensor, inverse: Tensor, scale: Tensor,
               newest: list[int]) -> Tensor:
    """Minus the inverse Hessian's estimate times the gradient, by two loops over the memory."""
    way, shares = -slope, {}
    for i in newest:
        shares[i] = inverse[i] * torch.linalg.vecdot(steps[i], way)
        way = torch.addcmul(way, changes[i], shares[i][:, None], value=-1)
    way = way * scale[:, None]
    for i in reversed(newest):
        share = shares[i] - inverse[i] * torch.linalg.vecdot(changes[i], way)
        way = torch.addcmul(way, steps[i], share[:, None])
    return way


def _search(function: Function, rows: Tensor, x: Tensor, value: Tensor, slope: Tensor, way: Tensor,
            trials: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Weak Wolfe conditions by bisection, which also suits functions with kinks.

    After Lewis and Overton (2013), "Nonsmooth optimization via quasi-Newton methods", Alg. 2.6.
    Only rows that still look for a step are evaluated. Returns the new x, value, gradient,
    whether the row moved, and whether it may stop.
    """
    x_at, value_at, slope_at = x.clone(), value.clone(), slope.clone()
    fall = torch.linalg.vecdot(way, slope)
    low, high = torch.zeros_like(value), torch.full_like(value, math.inf)
    length, done = torch.ones_like(value), torch.zeros_like(value, dtype=torch.bool)
    looking = torch.arange(len(rows), device=rows.device)
    for _ in range(trials):
        ahead, size, drop = way[looking], length[looking], fall[looking]
        trial = torch.addcmul(x[looking], ahead, size[:, None])
        found, rise, stop = function(trial, rows[looking])
        lower = found <= value[looking] + 1e-4 * size * drop
        won = looking[lower]
        x_at[won], value_at[won], slope_at[won] = trial[lower], found[lower], rise[lower]
        done[won], low[won], high[looking[~lower]] = stop[lower], size[lower], size[~lower]
        flat = torch.linalg.vecdot(ahead, rise) >= 0.9 * drop
        looking = looking[~(lower & (flat | stop))]
        if not len(looking):
            break
        length = torch.where(high < math.inf, (low + high) / 2, 2 * length)
    return x_at, value_at, slope_at, low > 0, done
