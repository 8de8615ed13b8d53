"""POWER's prototypes read back from gradients: a division, L-BFGS as one batch, and one by one.

Sizes are those of Cora: 1,433 features, 7 classes, the paper's encoder (128, 128, 64), 5 and 20
clients; prototypes are means of 20 sparse binary rows. One by one means torch.optim.LBFGS with the
paper's settings (300 iterations, rate 1.0, no line search) and double backward. It is timed on 10
prototypes, and the time multiplied up. "Scaled" is the same with the loss times 10^6, the fairer
rival: torch.optim.LBFGS compares with absolute thresholds, and with a sigmoid encoder the loss at
its own size never converges, while the scaled one does. The floor is a copy of the prototypes, for
the division, and one evaluation an iteration of the matching loss with its gradient, for the
batch. The network, the prototypes and the starts are random but fixed.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedvine.core.rng import torch_rng
from fedvine.methods._power.equations import encode, reconstruct
from fedvine.nn.gradient_matching import Encoder, factors, mismatch, shrink

FEATURES, CLASSES = 1433, 7
SOME, EQUAL = 10, 60  # prototypes timed one by one; iterations when both do equally many
SCALE = 1e6


def cpu(work: Callable[[], Any], repeats: int = 1) -> float:
    """Median CPU seconds of a call of ``work``, which must have run before: see ``_measure``."""
    spent = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
    return statistics.median(spent)


def alone(encoder: Encoder, gradients: dict[str, Tensor], label: Tensor, start: Tensor,
          iterations: int, to_the_end: bool, scale: float = 1.0) -> Tensor:
    """One prototype by torch.optim.LBFGS; ``to_the_end`` switches its tolerances off."""
    layers = [(w.clone().requires_grad_(), b.clone().requires_grad_())
              for w, b in zip(encoder.weights, encoder.biases, strict=True)]
    flat = [part for layer in layers for part in layer]
    sent = [gradients[f"{kind}_{i}"] for i in range(len(layers)) for kind in ("weight", "bias")]
    x = start.clone().requires_grad_()
    act = torch.relu if encoder.activation == "relu" else torch.sigmoid
    free: dict[str, Any] = {"tolerance_grad": 0.0, "tolerance_change": -1.0} if to_the_end else {}
    optimiser = torch.optim.LBFGS([x], max_iter=iterations, history_size=10, **free)

    def closure() -> Tensor:
        optimiser.zero_grad()
        h = x
        for weight, bias in layers[:-1]:
            h = act(weight @ h + bias)
        loss = cross_entropy((layers[-1][0] @ h + layers[-1][1])[None], label[None])
        made = torch.autograd.grad(loss, flat, create_graph=True)
        match = torch.stack([((a - b) ** 2).sum() for a, b in zip(made, sent, strict=True)]).sum()
        (scale * match).backward(inputs=[x])
        return scale * match.detach()

    optimiser.step(closure)
    return x.detach()


def line(name: str, ours: float, other: float, floor: float = 0.0) -> dict[str, Any]:
    """One line of the printout."""
    return {"name": name, "ours": ours, "other": other,
            "ratio": ours / other if other else math.inf, "floor": floor}


def measure() -> list[dict[str, Any]]:
    """CPU milliseconds for all prototypes, and the share found (relative error below 1e-3)."""
    return [row for activation in ("relu", "sigmoid") for row in _measure(activation)]


def _measure(activation: Literal["relu", "sigmoid"]) -> list[dict[str, Any]]:
    encoder = Encoder.make(FEATURES, CLASSES, activation=activation, generator=torch_rng("power"))
    means = (torch.rand(140, 20, FEATURES, generator=torch_rng("nodes")) < 0.0127).float().mean(1)
    starts = torch.randn(SOME, FEATURES, generator=torch_rng("starts"))
    labels = torch.arange(140) % CLASSES
    sent = encode(encoder, means[:SOME], labels[:SOME])

    def one_by_one(iterations: int, to_the_end: bool = False, scale: float = 1.0) -> Tensor:
        return torch.stack([alone(encoder, {n: g[i] for n, g in sent.items()}, labels[i], starts[i],
                                  iterations, to_the_end, scale) for i in range(SOME)])

    # The first of all backward passes costs about a second, which is nobody's.
    one_by_one(2)
    reconstruct(encoder, sent, how="lbfgs", iterations=2, generator=torch_rng("batch"))
    each_equal = cpu(lambda: one_by_one(EQUAL, to_the_end=True), 3) / SOME
    slow = []
    for name, scale in (("one by one", 1.0), ("scaled", SCALE)):
        ended: list[Tensor] = []
        each = cpu(lambda s=scale, e=ended: e.append(one_by_one(300, scale=s)), 3) / SOME
        slow.append((name, each, float(_found(ended[0], means).mean())))
    return [row for count in (35, 140) for row in _sizes(
        f"{activation}, {count}", encoder, means[:count], labels[:count], each_equal, slow)]


def _sizes(what: str, encoder: Encoder, x: Tensor, labels: Tensor, each_equal: float,
           slow: list[tuple[str, float, float]]) -> list[dict[str, Any]]:
    count, each = len(x), slow[0][1]
    sent = encode(encoder, x, labels)
    exact = reconstruct(encoder, sent).prototypes
    worst = float(((exact - x).norm(dim=1) / x.norm(dim=1)).max())
    division = cpu(lambda: reconstruct(encoder, sent), 20)
    wide, truth = encoder.like(x.double()), encoder.truth(x, labels).double()
    wide, target, start, _ = shrink(wide, factors(wide, x.double(), truth),
                                    torch.randn(x.shape, generator=torch_rng(0)).double())
    floor = EQUAL * cpu(lambda: mismatch(wide, start, truth, target), 9)
    batch = cpu(lambda: reconstruct(encoder, sent, how="lbfgs", iterations=EQUAL, tolerance=0,
                                    generator=torch_rng("batch")), 3)
    rows = [line(f"{what}: division / one by one (ms)", 1e3 * division, 1e3 * count * each,
                 1e3 * cpu(x.clone, 20)),
            line(f"{what}: division, times faster / wanted", count * each / division, 1000),
            line(f"{what}: division, worst error x 10^6 / allowed", 1e6 * worst, 1),
            line(f"{what}: batch / one by one, {EQUAL} iterations (ms)", 1e3 * batch,
                 1e3 * count * each_equal, 1e3 * floor)]
    for restarts in (1, 4):
        back = []
        spent = cpu(lambda r=restarts, b=back: b.append(reconstruct(
            encoder, sent, how="lbfgs", restarts=r, generator=torch_rng("batch"))), 3)
        found = _found(back[0].prototypes, x)
        name = f"{what}: batch from {restarts}"
        for other, seconds, share in slow:
            rows += [line(f"{name}, until done / {other} (ms)", 1e3 * spent,
                          1e3 * count * seconds),
                     line(f"{name}, share found / {other}", float(found.mean()), share)]
        rows.append(line(f"{name}, says it found / found",
                         float(back[0].converged.double().mean()), float(found.mean())))
    return rows


def _found(guess: Tensor, x: Tensor) -> Tensor:
    x = x[:len(guess)]
    return ((guess - x).norm(dim=1) < 1e-3 * x.norm(dim=1)).double()
