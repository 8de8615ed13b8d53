"""L-BFGS for many small problems at once, each with its own steps.

``torch.optim.LBFGS`` over a concatenation shares one step length and one curvature estimate among
all problems. Here each row of a matrix is one problem: the two-loop recursion (Nocedal and Wright
2006, Alg. 7.4) and the line search are vectorised over rows, and rows that have finished leave the
batch.

The line search is not monotone (Grippo, Lampariello and Lucidi 1986): a step need only be lower
than the highest of the last values. With ReLU the gradient-matching loss has jumps, and a
monotone search stops before the first one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Function = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


def minimise(function: Function, start: Tensor, iterations: int, memory: int = 10,
             trials: int = 6) -> tuple[Tensor, Tensor]:
    """Minimise a function of each row of ``start``.

    A row stops when it is good enough, after ``iterations``, or when steepest descent finds no step
    down to 4^-``trials``. A row's result does not depend on the other rows, rounding aside.

    Args:
        function: maps some rows x float [b, D] and their numbers int64 [b] to values [b],
            gradients [b, D], and bool [b], true where a row is good enough to stop.
        start: first values, float [B, D].
        iterations: the most steps of a row.
        memory: the number of steps that give the curvature and of values that bound the next one.
        trials: the number of shorter steps tried, each a fourth of the one before.

    Returns:
        The last values float [B, D] and the iterations taken int64 [B].
    """
    end, taken = start.clone(), torch.zeros(len(start), dtype=torch.long, device=start.device)
    rows, x = torch.arange(len(start), device=start.device), start
    value, slope, done = function(x, rows)
    steps, changes = start.new_zeros(2, memory, *start.shape)
    inverse = start.new_zeros(memory, len(start))  # 1 / (step . change); 0: nothing remembered
    scale = _first_scale(slope)
    past, fresh = value.repeat(memory, 1), torch.ones_like(done)
    for iteration in range(iterations):
        if done.any():
            end[rows[done]], taken[rows[done]] = x[done], iteration
            keep = (~done).nonzero()[:, 0]
            rows, x, value, slope, scale, fresh = (
                part[keep] for part in (rows, x, value, slope, scale, fresh))
            steps, changes, inverse, past = (
                part[:, keep] for part in (steps, changes, inverse, past))
        if not len(rows):
            break
        newest = [i % memory for i in range(iteration - 1, max(iteration - memory, 0) - 1, -1)]
        way = _direction(slope, steps, changes, inverse, scale, newest)
        uphill = ~((way * slope).sum(1) < 0)
        way[uphill] = -(scale[:, None] * slope)[uphill]
        new_x, new_value, new_slope, moved, done = _search(function, rows, x, value, slope, way,
                                                           past.amax(0), trials)
        step, change = new_x - x, new_slope - slope
        product, length = (step * change).sum(1), (change * change).sum(1)
        curved = moved & (product > 1e-10 * length.sqrt() * step.norm(dim=1))
        slot = iteration % memory
        steps[slot], changes[slot], past[slot] = step, change, new_value
        inverse[slot] = torch.where(curved, 1 / product, 0)
        scale = torch.where(curved, product / length, scale)
        # A row that found no step forgets its curvature; the second time running it stops.
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
    """Compute minus the estimated inverse Hessian times the gradient, by two loops over memory."""
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
            bound: Tensor, trials: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Shorten each row's step until its value is below ``bound`` (Armijo's condition).

    The whole step first. For rows that need a shorter one, 1/4, 1/16, ... are evaluated together,
    which costs little more than one of them, and the longest that suffices is taken. A value that
    is not finite is refused. Returns the new x, value, gradient, whether the row moved, and
    whether it may stop.
    """
    fall = 1e-4 * torch.linalg.vecdot(way, slope)
    trial = x + way
    found, rise, done = function(trial, rows)
    moved = found <= bound + fall
    if moved.all():
        return trial, found, rise, moved, done
    short = (~moved).nonzero()[:, 0]
    trial[short], found[short], rise[short] = x[short], value[short], slope[short]
    done[short] = False
    length = 0.25 ** torch.arange(1, trials + 1, device=x.device, dtype=x.dtype)
    at, length = short.repeat_interleave(trials), length.repeat(len(short))
    trial_at = torch.addcmul(x[at], way[at], length[:, None])
    found_at, rise_at, done_at = function(trial_at, rows[at])
    lower = (found_at <= bound[at] + length * fall[at]).view(-1, trials)
    longest = lower.to(torch.uint8).argmax(1) + torch.arange(0, len(at), trials, device=x.device)
    take, to = longest[lower.any(1)], short[lower.any(1)]
    trial[to], found[to], rise[to] = trial_at[take], found_at[take], rise_at[take]
    moved[to], done[to] = True, done_at[take]
    return trial, found, rise, moved, done
