"""Probabilities that a listed item is met in the next stage, from lists of the stages before.

Before every stage is learned, some users of a client, drawn evenly from all that it knows, get a
list of the k likeliest candidates. Of these pairs n_b have a score in bin b, and m_b of them are
met in the stage; counts fade by :data:`FADE` a stage. With r_b the isotonic regression of
m_b / n_b on b over all clients' counts, a client's probabilities are the isotonic regression of

    (m_b + PRIOR r_b) / (n_b + PRIOR),

linear between the middles of the bins. So they rank as the scores do, and a client with few lists
has those of all. Bins are made for scores that are log odds; of other scores they are coarse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

Parts = dict[str, list[int]]        # listed pairs and met ones by "score B" and "place P"
STEP, ENDS = 0.5, 24        # of a bin, in log odds; bins are -ENDS to ENDS
FADE = 0.8                  # what counts keep a stage later
PRIOR = 20.0                # pairs in a bin for which the rate of all clients counts
_MIDDLE = STEP * np.arange(-ENDS, ENDS + 1)
BINS = len(_MIDDLE)
LEAST = 1e-6                # of a probability
PLACES = 1000               # of a list; the last one stands for all that follow


def bins(scores: np.ndarray) -> np.ndarray:
    """Return the bin of each score, int64, 0 to 2 ENDS."""
    return np.clip(np.rint(scores / STEP), -ENDS, ENDS).astype(np.int64) + ENDS


def counted(scores: np.ndarray, met: np.ndarray, k: int) -> Parts:
    """Return counts of the k best of each user's candidates.

    ``scores`` float64 [U, M] are -inf for a pair that is not listed; ``met`` bool [U, M] says which
    are met in the stage.
    """
    top = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    listed, came = np.take_along_axis(scores, top, 1), np.take_along_axis(met, top, 1)
    there = listed > -np.inf
    place = np.broadcast_to(np.minimum(np.arange(1, top.shape[1] + 1), PLACES - 1), top.shape)
    found: Parts = {}
    for word, which in (("score", bins(np.where(there, listed, 0.0)) - ENDS), ("place", place)):
        for one in np.unique(which[there]).tolist():
            mine = there & (which == one)
            found[f"{word} {one}"] = [int(mine.sum()), int((mine & came).sum())]
    return found


def of_word(parts: Mapping[str, Sequence[float]], word: str, size: int, shift: int) -> np.ndarray:
    """Return counts [size, 2] of the keys that begin with ``word``, at their number + ``shift``."""
    found = np.zeros((size, 2))
    for key, value in parts.items():
        if key.startswith(f"{word} "):
            found[int(key.split()[1]) + shift] = value
    return found


def rates(counts: np.ndarray) -> np.ndarray:
    """Return the rates of counts [bins, 2] of listed and met pairs, ascending, float64 [bins]."""
    from scipy.optimize import isotonic_regression  # takes .2 s, and few ask for it
    n, met = counts.T
    return np.asarray(isotonic_regression(
        np.where(n > 0, met / np.maximum(n, 1e-12), 0.0), weights=np.maximum(n, 1e-9)).x)


class Chances:
    """Counts of the stages so far, by client, and probabilities from them."""

    def __init__(self) -> None:
        self.counts: dict[str, np.ndarray] = {}     # [bins, 2]
        self.places: dict[str, np.ndarray] = {}     # [places, 2]

    def add(self, found: Mapping[str, Mapping[str, Any]]) -> None:
        """Add what clients measured in a stage, after fading what came before."""
        for kept, word, size, shift in ((self.counts, "score", BINS, ENDS),
                                        (self.places, "place", PLACES, 0)):
            for name in sorted({*kept, *found}):
                kept[name] = FADE * kept.get(name, np.zeros((size, 2))) + of_word(
                    found.get(name, {}).get("parts", {}), word, size, shift)

    def common(self) -> np.ndarray | None:
        """Return the rates of all clients together by bin; None before the first list."""
        whole = sum(self.counts.values(), np.zeros((BINS, 2)))
        return rates(whole) if whole[:, 0].any() else None

    def curve(self, client: str, common: np.ndarray | None = None) -> np.ndarray | None:
        """Return the probabilities at the middles of the bins; None before the first list.

        ``common`` are the rates of all clients, where those of others are not counted here.
        """
        common = self.common() if common is None else common
        if common is None:
            return None
        own = self.counts.get(client, np.zeros((BINS, 2)))
        return np.clip(rates(own + PRIOR * np.stack([np.ones(BINS), common], 1)), LEAST, 1 - LEAST)

    def probabilities(self, client: str, scores: np.ndarray) -> np.ndarray:
        """Return the probability of each score of a client; NaN before the first list."""
        return on_curve(self.curve(client), scores)


def on_curve(curve: np.ndarray | None, scores: np.ndarray) -> np.ndarray:
    """Return the probability of each score by a curve [BINS]; NaN without one."""
    return (np.full(np.shape(scores), np.nan) if curve is None else
            np.interp(scores, _MIDDLE, curve))


def of_stages(stages: Iterable[Any]) -> Chances:
    """Return the counts of scored stages, ``StageScores`` in their order."""
    found = Chances()
    for stage in stages:
        for by in stage.found.values():
            found.add(by)
    return found


def reliability(stages: Sequence[Any], counts: Any) -> dict[str, Any] | None:
    """Return how probabilities that were said before each stage fit what was met in it.

    ``stages`` are ``StageScores`` in their order, and ``counts(t, s)`` says which are counted.
    Returns ``bins``, of each tenth of probability the pairs, the sum of what was said, and those
    that were met; and mean log losses: ``loss`` of what was said, ``loss_places`` of the rate of
    each place in the list before. None where nothing was said.
    """
    tenths, losses, past, waiting = np.zeros((10, 3)), np.zeros(3), Chances(), list[Any]()
    for stage in stages:
        while waiting and waiting[0][0] <= stage.t:     # what was met is known once it is over
            past.add(waiting.pop(0)[1])
        for s, by in stage.found.items():
            for name, one in by.items() if counts(stage.t, s) else ():
                curve = past.curve(name)
                if curve is None or "parts" not in one:
                    continue
                n, met = of_word(one["parts"], "score", BINS, ENDS).T
                np.add.at(tenths, np.minimum((10 * curve).astype(int), 9),
                          np.stack([n, n * curve, met], 1))
                before = sum(past.places.values(), np.zeros((PLACES, 2)))
                base = np.clip((before[:, 1] + 0.5) / (before[:, 0] + 1), LEAST, 1 - LEAST)
                at, came = of_word(one["parts"], "place", PLACES, 0).T
                losses += (n.sum(), -(met @ np.log(curve) + (n - met) @ np.log(1 - curve)),
                           -(came @ np.log(base) + (at - came) @ np.log(1 - base)))
            waiting.append((s, by))
    if not losses[0]:
        return None
    return {"bins": tenths.tolist(), "loss": losses[1] / losses[0],
            "loss_places": losses[2] / losses[0]}
