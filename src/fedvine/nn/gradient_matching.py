"""Gradients of single samples through a multilayer perceptron, and matching of such gradients.

For one sample the gradient of a linear layer l is an outer product, weight: delta_l h_l^T and
bias: delta_l, with h_l the layer's input and delta_l the derivative of the loss with respect to
its output. All functions work on these two factors, without autograd. ``factors`` below are
[P, S], one row a sample: h of all layers, then delta of all layers, concatenated.

:func:`match` is gradient matching (Zhu, Liu and Han 2019, "Deep leakage from gradients") for a
batch of samples; POWER's Eqs. (9) to (11) use it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedvine.core.errors import FedvineError

Function = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class Encoder:
    """A multilayer perceptron: linear layers with ``activation`` between them, logits at the end.

    ``weights[l]`` is float [out, in] and ``biases[l]`` float [out] of layer l.
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    activation: Literal["relu", "sigmoid"] = "relu"

    @classmethod
    def make(cls, features: int, classes: int, *, generator: torch.Generator,
             hidden: tuple[int, ...] = (128, 128, 64),
             activation: Literal["relu", "sigmoid"] = "relu") -> Encoder:
        """Draw a random network; equal generators give equal networks at server and clients.

        The hidden widths are those of POWER (Appendix A.3), which does not state the activation.
        Weights and biases are uniform within 1 / sqrt(in), as in ``torch.nn.Linear``.
        """
        weights, biases = [], []
        for inputs, outputs in pairwise((features, *hidden, classes)):
            drawn = torch.rand(outputs, inputs + 1, generator=generator)
            drawn = (2 * drawn - 1) / math.sqrt(inputs)
            weights.append(drawn[:, :-1].contiguous())
            biases.append(drawn[:, -1].contiguous())
        return cls(tuple(weights), tuple(biases), activation)

    @cached_property
    def widths(self) -> list[int]:
        """Return the lengths of the parts of a row of factors: h of each layer, then delta."""
        return [w.shape[1] for w in self.weights] + [w.shape[0] for w in self.weights]

    @cached_property
    def pieces(self) -> Tensor:
        """Return [S, 2 L], 1 where a column of factors is in a part: a product sums the parts."""
        place = torch.arange(len(self.widths)).repeat_interleave(torch.tensor(self.widths))
        return one_hot(place, len(self.widths)).to(self.weights[0])

    def like(self, tensor: Tensor) -> Encoder:
        """Return the same network with the dtype and on the device of ``tensor``."""
        return Encoder(tuple(w.to(tensor) for w in self.weights),
                       tuple(b.to(tensor) for b in self.biases), self.activation)

    def truth(self, prototypes: Tensor, labels: Tensor) -> Tensor:
        """Return labels as one-hot rows [P, C]; raise where a shape or class does not fit."""
        features, classes = self.weights[0].shape[1], len(self.biases[-1])
        if prototypes.dim() != 2 or prototypes.shape[1] != features:
            raise FedvineError(f"The encoder reads {features} features; the prototypes have the "
                               f"shape {list(prototypes.shape)}.")
        if labels.shape != prototypes.shape[:1]:
            raise FedvineError(f"{len(prototypes)} prototypes need as many labels; these have "
                               f"the shape {list(labels.shape)}.")
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
            raise FedvineError(f"Labels lie between 0 and {classes - 1} for this encoder; these "
                               f"go from {int(labels.min())} to {int(labels.max())}.")
        return one_hot(labels, classes).to(prototypes)


def solve(encoder: Encoder, gradients: dict[str, Tensor]) -> Tensor:
    """Compute the factors [P, S] of gradients of single samples: h = row i of weight / bias_i.

    Row i is the one with the largest abs(bias_i); a layer whose bias gradient is zero gives h = 0.
    The h of layer 0 is the sample itself. Raises FedvineError where names or shapes are not those
    of this encoder's gradients.
    """
    count = len(gradients.get("bias_0", ()))
    wanted = {f"{kind}_{layer}": [count, *part.shape] for layer, pair in enumerate(
        zip(encoder.weights, encoder.biases, strict=True))
        for kind, part in zip(("weight", "bias"), pair, strict=True)}
    given = {name: list(part.shape) for name, part in gradients.items()}
    for name in sorted(wanted.keys() | given):
        if given.get(name) != wanted.get(name):
            raise FedvineError(f"These are not gradients of this encoder: {name} should be "
                               f"{wanted.get(name, 'absent')}, not {given.get(name, 'absent')}.")
    inputs, deltas = [], []
    for layer in range(len(encoder.weights)):
        delta = gradients[f"bias_{layer}"]
        at = torch.arange(len(delta), device=delta.device)
        row = delta.abs().argmax(dim=1)
        size = delta[at, row][:, None]
        inputs.append(torch.where(size != 0, gradients[f"weight_{layer}"][at, row] / size, 0))
        deltas.append(delta)
    return torch.cat(inputs + deltas, 1)


def sizes(encoder: Encoder, factors: Tensor) -> Tensor:
    """Compute the squared norm of each layer's gradient, weights and bias together, [P, L]."""
    squares = factors.square() @ encoder.pieces
    layers = len(encoder.weights)
    return squares[:, layers:] * (1 + squares[:, :layers])


def factors(encoder: Encoder, x: Tensor, truth: Tensor) -> Tensor:
    """Compute the factors [P, S] at ``x`` [P, F] for the softmax cross-entropy with ``truth``."""
    inputs, deltas, _, _ = _walk(encoder, x, truth)
    return torch.cat(inputs + deltas, 1)


def mismatch(encoder: Encoder, x: Tensor, truth: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the matching loss of each sample and layer [P, L], and its gradient [P, F].

    The loss is the squared distance of a layer's gradients, a term of POWER's Eq. (11); the
    gradient is that of the sum over layers with respect to ``x`` [P, F]. ``target`` [P, S] are the
    factors to match. With e = delta - delta* and g = h - h*, a layer's delta h^T - delta* h*^T is
    e h^T + delta* g^T; its squared norm needs inner products only and has no cancellation near
    the solution. The gradient is the chain rule through the backward pass, then through the
    forward pass.
    """
    inputs, deltas, slopes, backs = _walk(encoder, x, truth)
    layers, pieces = len(inputs), encoder.pieces
    own = torch.cat(inputs + deltas, 1)
    gap = own - target
    squares = own.square() @ pieces
    squares[:, :layers] += 1  # the bias is a weight whose input is 1
    across, gaps = (own * gap) @ pieces, gap.square() @ pieces
    ee, ed = gaps[:, layers:], across[:, layers:] - gaps[:, layers:]  # e.e and e.delta*
    size = squares[:, layers:] - ed - across[:, layers:]  # delta*.delta*
    parts = ee * squares[:, :layers] + size * gaps[:, :layers] + 2 * ed * across[:, :layers]
    # The derivative by h is weighted with delta of the same layer, and the other way round.
    pull = torch.addcmul(gap * (squares.roll(layers, 1) @ pieces.T), target,
                         across.roll(layers, 1) @ pieces.T).mul_(2).split(encoder.widths, 1)
    to_inputs, to_delta, bends = pull[:layers], pull[layers], []
    for layer, slope in enumerate(slopes):
        if encoder.activation == "sigmoid":  # ReLU does not bend
            bends.append(to_delta * backs[layer] * slope * (1 - 2 * inputs[layer + 1]))
        to_delta = torch.addmm(pull[layers + layer + 1], to_delta * slope,
                               encoder.weights[layer + 1].T)
    softmax = deltas[-1] + truth
    back = softmax * (to_delta - torch.linalg.vecdot(softmax, to_delta)[:, None])
    for layer in range(layers - 1, 0, -1):
        back = torch.addmm(to_inputs[layer], back, encoder.weights[layer]) * slopes[layer - 1]
        if bends:
            back = back + bends[layer - 1]
    return parts, torch.addmm(to_inputs[0], back, encoder.weights[0])


def match(encoder: Encoder, truth: Tensor, target: Tensor, restarts: int, iterations: int,
          generator: torch.Generator, tolerance: float) -> tuple[Tensor, Tensor]:
    """Find samples [P, F] whose gradients match ``target`` [P, S], and the iterations taken [P].

    L-BFGS minimises the sum over layers of :func:`mismatch` from ``restarts`` standard normal
    starts a sample, drawn from ``generator``, all in one batch in float64; the start with the
    least loss is returned. A sample is finished when each layer's loss is below ``tolerance`` as
    a share of its squared norm, or after ``iterations``.
    """
    kind, count, features = target, len(truth), encoder.widths[0]
    truth, target = (part.double().repeat_interleave(restarts, 0) for part in (truth, target))
    start = torch.randn(count * restarts, features, generator=generator,
                        dtype=torch.float64).to(kind.device)
    encoder, grow = encoder.like(start), None
    if features > len(encoder.biases[0]) + 2:
        encoder, target, start, grow = shrink(encoder, target, start)
    whole = sizes(encoder, target)
    scale = 1 / whole.sum(1, keepdim=True).clamp(min=1e-30)
    enough = 0.5 * tolerance * whole  # half, so that rounding to float32 does not undo it

    def function(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        parts, slope = mismatch(encoder, x, truth[rows], target[rows])
        share = scale[rows]
        return parts.sum(1) * share[:, 0], slope * share, (parts <= enough[rows]).all(1)

    x, taken = minimise(function, start, iterations)
    value = function(x, torch.arange(len(x), device=x.device))[0]
    best = value.view(count, restarts).argmin(1)
    best += torch.arange(count, device=best.device) * restarts
    return (x if grow is None else grow(x))[best].to(kind), taken[best]


def shrink(encoder: Encoder, target: Tensor, start: Tensor
           ) -> tuple[Encoder, Tensor, Tensor, Callable[[Tensor], Tensor]]:
    """Write the matching problem in H + 2 coordinates in place of F (H: width after layer 0).

    The gradient of :func:`mismatch` lies in the span of the rows of the first weights, the sample
    in ``target`` [P, S] and the ``start`` [P, F]. L-BFGS stays in that span and takes the same
    steps in any orthonormal basis of it. Returns encoder, target and start in that basis, and a
    function that maps rows [P, H + 2] back to [P, F].
    """
    features = start.shape[1]
    basis, rest = torch.linalg.qr(encoder.weights[0].T)
    aim = target[:, :features]
    aim_in, start_in = aim @ basis, start @ basis
    along, length = _unit(aim - aim_in @ basis.T)
    out = start - start_in @ basis.T
    share = torch.linalg.vecdot(out, along)[:, None]
    across, beyond = _unit(out - share * along)
    first = torch.cat([rest.T, rest.new_zeros(rest.shape[1], 2)], 1)

    def grow(x: Tensor) -> Tensor:
        return x[:, :-2] @ basis.T + x[:, -2:-1] * along + x[:, -1:] * across

    return (Encoder((first, *encoder.weights[1:]), encoder.biases, encoder.activation),
            torch.cat([aim_in, length, torch.zeros_like(length), target[:, features:]], 1),
            torch.cat([start_in, share, beyond], 1), grow)


def _unit(x: Tensor) -> tuple[Tensor, Tensor]:
    length = x.norm(dim=1, keepdim=True)
    return x / length.clamp(min=1e-300), length


def _walk(encoder: Encoder, x: Tensor, truth: Tensor
          ) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
    """Compute h and delta of each layer, and of hidden layers two more.

    These are the activation's derivative, and the derivative of the loss by the layer's output.
    """
    inputs, slopes = [x], []
    for weight, bias in zip(encoder.weights[:-1], encoder.biases[:-1], strict=True):
        z = torch.addmm(bias, inputs[-1], weight.T)
        h = z.relu() if encoder.activation == "relu" else z.sigmoid()
        slopes.append(h.sign() if encoder.activation == "relu" else h * (1 - h))
        inputs.append(h)
    logits = torch.addmm(encoder.biases[-1], inputs[-1], encoder.weights[-1].T)
    deltas, backs = [logits.softmax(1) - truth], []  # the slope of softmax cross-entropy, (9), (10)
    for weight, slope in zip(encoder.weights[:0:-1], slopes[::-1], strict=True):
        backs.append(deltas[-1] @ weight)
        deltas.append(backs[-1] * slope)
    return inputs, deltas[::-1], slopes, backs[::-1]


# -- L-BFGS for many small problems at once, each with its own steps -------------------------------
# ``torch.optim.LBFGS`` over a concatenation shares one step length and one curvature estimate among
# all problems. Here each row of a matrix is one problem: the two-loop recursion (Nocedal and Wright
# 2006, Alg. 7.4) and the line search are vectorised over rows, and rows that have finished leave
# the batch.
#
# The line search is not monotone (Grippo, Lampariello and Lucidi 1986): a step need only be lower
# than the highest of the last values. With ReLU the gradient-matching loss has jumps, and a
# monotone search stops before the first one.
def minimise(function: Function, start: Tensor, iterations: int, memory: int = 10,
             trials: int = 6) -> tuple[Tensor, Tensor]:
    """Minimise a function of each row of ``start`` [B, D]; return rows and iterations int64 [B].

    A row stops when it is good enough, after ``iterations``, or when steepest descent finds no step
    down to 4^-``trials``. A row's result does not depend on the other rows, rounding aside.
    ``function`` maps some rows x float [b, D] and their numbers int64 [b] to values [b], gradients
    [b, D], and bool [b], true where a row is good enough to stop. ``memory`` is the number of steps
    that give the curvature, and of values that bound the next one.
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
