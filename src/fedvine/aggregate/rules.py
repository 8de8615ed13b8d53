"""Averages that a few false updates cannot move far: clip, median, trimmed mean, Krum.

``f`` is the number of clients whose updates may be anything (``aggregate.attackers``).

- *clip*: an update longer than the median norm is shortened to it, and weighs no more than the
  median weight
- *median*: of each number the median over clients (Yin et al., ICML 2018)
- *trimmed*: of each number the mean without the f largest and the f smallest (the same)
- *krum*: the update with the least sum of squared distances to its K - f - 2 nearest others
  (Blanchard et al., NeurIPS 2017); needs K >= 2 f + 3 clients

Rows of a table are merged among the clients that touched them. Where these are 2 f or fewer a rule
cannot tell who is right: each row is shortened to the median row norm, and they are averaged. Where
fewer clients answer in a round than a rule needs, it is clip.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch

Rule = Literal["mean", "clip", "median", "trimmed", "krum"]


def least(rule: str, f: int) -> int:
    """Return the fewest updates that a rule with ``f`` attackers is defined for."""
    return {"krum": 2 * f + 3, "median": 2 * f + 1, "trimmed": 2 * f + 1}.get(rule, 1)


def merged(rows: torch.Tensor, rule: str, f: int, weights: np.ndarray | None = None
           ) -> torch.Tensor:
    """Return the average [D] of updates [K, D] by a rule; K is at least :func:`least`.

    ``weights`` [K] above 0 count for "clip" alone: a weight is the client's own word.
    """
    if rule == "median":
        return middle(rows)
    if rule == "trimmed":
        return rows.sort(0).values[f:len(rows) - f].mean(0)
    if rule == "krum":
        return rows[int(krum(rows, f).argmin())]
    w = np.ones(len(rows)) if weights is None else np.minimum(weights, np.median(weights))
    return (shortened(rows) * torch.from_numpy(w / w.sum()).to(rows)[:, None]).sum(0)


def shortened(rows: torch.Tensor, most: float | torch.Tensor | None = None) -> torch.Tensor:
    """Return updates [..., D], none longer than ``most``; by default the median of their norms."""
    norms = rows.double().norm(dim=-1, keepdim=True)
    bound = middle(norms) if most is None else most
    return rows * (bound / norms.clamp(min=1e-300)).clamp(max=1).to(rows)


def middle(rows: torch.Tensor, axis: int = 0) -> torch.Tensor:
    """Return the median along an axis; of an even number the mean of both middle ones."""
    ordered, count = rows.sort(axis).values, rows.shape[axis]
    return (ordered.select(axis, (count - 1) // 2) + ordered.select(axis, count // 2)) / 2


def krum(rows: torch.Tensor, f: int) -> torch.Tensor:
    """Return the scores [K] of updates [K, D]: squared distances to the K - f - 2 nearest."""
    x = rows.double()
    apart = torch.stack([((x - one) ** 2).sum(1) for one in x])
    apart.fill_diagonal_(torch.inf)
    return apart.sort(1).values[:, :len(rows) - f - 2].sum(1)


def merged_rows(parts: Mapping[str, tuple[np.ndarray, torch.Tensor]], rule: str, f: int,
                scores: Mapping[str, float]) -> tuple[np.ndarray, torch.Tensor, np.ndarray]:
    """Merge rows of a table, each among the clients that touched it.

    Args:
        parts: by client, row numbers int32 [n], each once, and differences float32 [n, d].
        rule: not "mean".
        f: attackers.
        scores: of :func:`krum`, by client; for that rule.

    Returns:
        Row numbers [R], differences float32 [R, d], and how many clients touched each, [R].
    """
    names = list(parts)
    number = np.concatenate([parts[n][0] for n in names])
    change = torch.cat([parts[n][1] for n in names])
    score = np.repeat([scores.get(n, 0.0) for n in names], [len(parts[n][0]) for n in names])
    order = np.lexsort((score, number))     # of a row: who is nearest to the others first
    rows, first, touching = np.unique(number[order], return_index=True, return_counts=True)
    norms = [parts[n][1].double().norm(dim=1) for n in names]
    usual = middle(torch.stack([middle(x[x > 0]) for x in norms if (x > 0).any()]
                               or [torch.tensor(0.0, dtype=torch.float64)]))
    found = torch.empty(len(rows), change.shape[1], dtype=change.dtype)
    for count in np.unique(touching):
        here = np.flatnonzero(touching == count)
        at = order[first[here][:, None] + np.arange(count)]
        block = change[torch.from_numpy(at)].transpose(0, 1)        # [count, rows, d]
        if count <= 2 * f:
            one = shortened(block, usual).mean(0)
        elif rule == "krum":
            one = block[0]
        elif rule == "clip":
            one = shortened(block).mean(0)
        else:
            one = merged(block, rule, f)
        found[torch.from_numpy(here)] = one
    return rows, found, touching
