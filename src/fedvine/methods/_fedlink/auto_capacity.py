"""How far back a client's edges still tell what comes: measured on its own new edges.

New edges are foretold from the last w known ones by a walk of three steps, user - item - user -
item (Cooper et al. 2014), which is two layers of means without anything trained. Some w foretells
best: with fewer edges chance weighs, with more tastes that are gone. That is what the theory of
buffers says too (:mod:`fedvine.methods._fedlink.theory`).

The network that is trained remembers older edges in its rows, and learns more from rare users than
a walk does. So edges are dropped only where they are seen to do harm, by a walk that tells more
than chance; before anything was measured, and where the walk cannot tell, all are kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from fedvine.tasks import metrics

PAIRS = 1000        # new edges that are foretold at most, a stage
RARE = 1e-3         # what an item's popularity adds to a walk's share, for users nobody knows
FADES = 0.8         # what an earlier stage counts, beside the one after it
HARM = 0.004        # AUC by which all edges must be worse than the best size to be too many
TELLS = 0.55        # AUC that the best size must have: below it the walk supports no choice


class AutoCapacity:
    """Scores of windows of ``sizes`` edges (ascending), as new edges come."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self.auc, self.weight = np.zeros(len(sizes)), 0.0

    def see(self, src: np.ndarray, dst: np.ndarray, new: int, draw: np.random.Generator) -> None:
        """Edges [n], oldest first, of which the last ``new`` have just come: they are foretold
        from those before, against one random item each of those known by then."""
        past = len(src) - new
        if not past or not new:
            return
        chosen = past + draw.choice(new, min(PAIRS, new), replace=False)
        u, i = src[chosen].astype(np.int64), dst[chosen].astype(np.int64)
        users, items = int(src.max()) + 1, int(dst.max()) + 1
        ends = np.stack([i, draw.integers(0, items, len(u))])
        found = np.zeros(len(self.sizes))
        for n, size in enumerate(self.sizes):
            if n and self.sizes[n - 1] >= past:     # nothing more to look back on
                found[n] = found[n - 1]
                continue
            window = slice(max(past - size, 0), past)
            found[n] = metrics.auc(*walks(src[window], dst[window], users, items, u, ends))
        self.auc = FADES * self.auc + len(u) * found
        self.weight = FADES * self.weight + len(u)

    def wanted(self, count: int) -> int:
        """Return how many of ``count`` edges to keep: all, up to the largest size; the best size
        where that has an AUC of TELLS at least and all edges are worse by HARM. No fewer than the
        smallest size."""
        best = self.sizes[-1]
        if self.weight:
            auc = self.auc / self.weight
            if auc.max() >= TELLS and auc[-1] < auc.max() - HARM:
                best = self.sizes[int(auc.argmax())]
        return int(np.clip(count, self.sizes[0], best))

    def state_dict(self) -> dict[str, Any]:
        """What a save keeps."""
        return {"auc": self.auc, "weight": self.weight}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the one that was saved."""
        self.auc, self.weight = np.array(state["auc"]), float(state["weight"])


def walks(src: np.ndarray, dst: np.ndarray, users: int, items: int, u: np.ndarray,
          i: np.ndarray) -> np.ndarray:
    """The chance that three random steps over the edges lead from user u [P] to item i [k, P],
    and RARE times the item's share of the edges; float64 [k, P]."""
    met: Any = sparse.csr_array((np.ones(len(src), np.float32), (src, dst)), (users, items))
    share = met.sum(0)
    there = _of_each(met, met.sum(1))
    who, at = np.unique(u, return_inverse=True)
    halfway = (there[who] @ _of_each(met.T.tocsr(), share))[at]     # [P, users]: two steps
    last = there.T.tocsr()                                          # [items, users]: the third
    return np.stack([halfway.multiply(last[to]).sum(1) + RARE * share[to] / len(src) for to in i])


def _of_each(met: Any, count: np.ndarray) -> Any:
    """Rows divided by their sums."""
    return (sparse.diags_array(1 / np.maximum(count, 1)) @ met).tocsr()
