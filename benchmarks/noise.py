"""Noise: seconds for a million samples, and two runs' difference against theory."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import stats

from fedvine import testing
from fedvine.aggregate.discrete_gaussian import Stream, discrete_gaussian
from fedvine.aggregate.noise import from_fixed
from fedvine.experiments.run import run
from fedvine.methods.fedlink_private import FedLinkPrivate, PrivateSum

MILLION, DRAWS = 1_000_000, 200
FEWEST_P = 1e-6     # a p-value below it is no chance


def measure() -> Iterator[dict[str, Any]]:
    """Rows for ``scripts/bench noise``: seconds of a million samples beside the same algorithm in
    Python's fractions (1,000 of them, times 1,000) and beside the words of ChaCha20 alone (floor);
    and the deviation of differences of runs beside theory. Raises AssertionError where they do not
    fit."""
    discrete_gaussian(100, 100, bytes(32))      # compiles
    for sigma in (100, 1 << 24):
        began = time.process_time()
        discrete_gaussian(sigma, MILLION, secrets.token_bytes(32))
        ours, began = time.process_time() - began, time.process_time()
        for _ in range(1000):
            by_fractions(sigma)
        other, began = 1000 * (time.process_time() - began), time.process_time()
        Stream(secrets.token_bytes(32)).words(20 * MILLION)
        floor = time.process_time() - began
        yield {"name": f"a million samples, sigma = {sigma:,}", "ours": ours, "other": other,
               "ratio": ours / other, "floor": floor}
    method = FedLinkPrivate.tiny().model_copy(update={"rounds": 1})
    sums = [opened(method) for _ in range(2 * DRAWS)]
    apart = np.stack([a - b for a, b in zip(sums[::2], sums[1::2], strict=True)])
    theory = 2.0 * 0.5 * math.sqrt(2)       # each sum has noise of deviation z S
    for what, found in ((f"one number of {DRAWS} pairs of runs", apart[:, 0]),
                        (f"{DRAWS} numbers of one pair", apart[0][:DRAWS]),
                        (f"all {apart.size:,} numbers", apart.ravel())):
        p = float(stats.kstest(found / theory, "norm").pvalue)
        assert p > FEWEST_P, f"the difference of two runs is no noise of this size: p = {p:.2g}"
        yield {"name": f"two runs of a seed apart: {what} (KS p {p:.2f})",
               "ours": float(found.std()), "other": theory, "ratio": float(found.std() / theory),
               "floor": theory}


def opened(method: FedLinkPrivate) -> np.ndarray:
    """Return the first sum with noise that the server opens, in a run with the system's keys."""
    seen = []

    class Watched(PrivateSum):
        def sum(self, clients: Any, function: Any, *same: Any, **options: Any) -> Any:
            found = super().sum(clients, function, *same, **options)
            if function.__name__ == "upload":
                seen.append(from_fixed(found[0]))
            return found

    class Method(FedLinkPrivate):
        aggregate: Watched = Watched(clip=0.5, noise=2.0)  # type: ignore[assignment]

    parts, plan = testing.tiny_case()
    run(Method(**method.model_dump(exclude={"aggregate"})), parts, plan.cut(1), seed=0).finish()
    return seen[0]


def by_fractions(sigma: int) -> int:
    """Return one sample by Canonne et al. (2020), as their Algorithms 1 to 3 are printed."""
    t = sigma + 1
    while True:
        offset = secrets.randbelow(t)
        if not exp(Fraction(offset, t)):
            continue
        whole = 0
        while exp(Fraction(1)):
            whole += 1
        size, negative = offset + t * whole, secrets.randbelow(2)
        if negative and not size:
            continue
        if exp((size - Fraction(sigma**2, t))**2 / (2 * sigma**2)):
            return -size if negative else size


def exp(gamma: Fraction) -> bool:
    """Draw true with probability e^-gamma."""
    while gamma > 1:
        if not exp(Fraction(1)):
            return False
        gamma -= 1
    k = 1
    while secrets.randbelow(k * gamma.denominator) < gamma.numerator:
        k += 1
    return k % 2 == 1
