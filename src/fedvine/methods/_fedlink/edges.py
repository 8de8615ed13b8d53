"""Edges that a client trains on: ends of events, constant edge buffers, and how many to keep.

Nothing here needs torch, so that rivals without a model do not either.

With ``capacity = "auto"`` a client finds the number of edges from its own new ones: they are
predicted from the last w known ones by a walk of three steps, user - item - user - item (Cooper et
al. 2014), which is two layers of means without anything trained. Some w predicts best: fewer edges
are noisy, more contain interests that have changed. Eq. (2)
of the paper has no such optimum, as it leaves out noise; so the number is measured.

The network that is trained remembers older edges in its rows, and learns more about rare users than
a walk does. So edges are dropped only where they are measured to do harm, by a walk that is better
than chance; before anything was measured, and where the walk is not better, all are kept.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from fedvine.data.stream import EventStream
from fedvine.tasks import metrics

PAIRS = 1000        # new edges that are predicted at most, a stage
RARE = 1e-3         # weight of an item's popularity beside a walk's share, for unknown users
FADES = 0.8         # weight of an earlier stage, relative to the one after it
HARM = 0.004        # AUC by which all edges must be worse than the best size to be too many
TELLS = 0.55        # AUC that the best size must have: below it the walk supports no choice

# A buffer has 1,000 to 64,000 edges: a network learns little from fewer, and dropping fewer edges
# saves nothing. Where a user has MANY edges on average, C edges drawn evenly leave enough of them;
# else they would separate edges that belong together.
SMALLEST, DOUBLINGS, MANY = 1000, 6, 5


def edges(events: EventStream) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the events that are edges (int32 [n] each); deletions are left out."""
    src, dst = np.asarray(events.src), np.asarray(events.dst)
    return (src, dst) if events.deleted is None else (src[~events.deleted], dst[~events.deleted])


def kept(events: EventStream) -> EventStream:
    """Return the events that are edges; deletions are left out."""
    return events if events.deleted is None else events.take(
        np.flatnonzero(~np.asarray(events.deleted)))


# -- constant edge buffers (Section 3.2.1) ---------------------------------------------------------
class EdgeBuffers:
    """The last S x C edges of a stream, in S buffers of C: first in, first out.

    They are cut from the newest edge backwards, and numbered so: buffer 0 has the newest C edges,
    buffer S - 1 the oldest. The paper numbers from the oldest: its G^1 is buffer S - 1, its G^S
    buffer 0. All are in two arrays of a fixed size.

    ``seen`` counts all edges ever pushed; it names the content, so it can key a cache.
    """

    def __init__(self, C: int, S: int = 1) -> None:
        self.buffers, self.seen = S, 0
        self._allocate(S * C)

    def _allocate(self, capacity: int) -> None:
        self.capacity = capacity
        self._src, self._dst = np.zeros(capacity, np.int32), np.zeros(capacity, np.int32)

    @property
    def C(self) -> int:
        """Return the edges of one buffer; the oldest may have fewer."""
        return -(-self.capacity // self.buffers)

    def __len__(self) -> int:
        return min(self.seen, self.capacity)

    def push(self, src: np.ndarray, dst: np.ndarray) -> None:
        """Append edges int32 [n] in time order; the oldest leave."""
        self.seen += len(src)
        src, dst = src[-self.capacity:], dst[-self.capacity:]
        first = self.seen - len(src)
        start = first % self.capacity
        room = min(self.capacity - start, len(src))
        for ring, new in ((self._src, src), (self._dst, dst)):
            ring[start:start + room] = new[:room]
            ring[:len(new) - room] = new[room:]

    def last(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Return edges start to stop - 1 counted back from the newest (0), oldest first: int32."""
        start, stop = min(start, len(self)), min(stop, len(self))
        at = np.arange(self.seen - stop, self.seen - start) % self.capacity
        return self._src[at], self._dst[at]

    def resize(self, capacity: int, src: np.ndarray, dst: np.ndarray) -> None:
        """Change the capacity, and replace what is kept by these edges, oldest first."""
        self._allocate(capacity)
        self.seen = max(self.seen - len(src), 0)
        self.push(src, dst)

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps; arrays are the live ones."""
        return {"seen": self.seen, "src": self._src, "dst": self._dst}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` gave."""
        self.seen, self._src, self._dst = state["seen"], state["src"].copy(), state["dst"].copy()
        self.capacity = len(self._src)


# -- how many edges to keep ------------------------------------------------------------------------
class AutoCapacity:
    """AUC of windows of ``sizes`` edges (ascending), measured as new edges come."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self.auc, self.weight = np.zeros(len(sizes)), 0.0

    @classmethod
    def of(cls, buffers: int) -> AutoCapacity:
        """Return a measurement of the sizes that so many buffers may have together."""
        return cls([buffers * SMALLEST << n for n in range(DOUBLINGS + 1)])

    def resize(self, kept: EdgeBuffers, src: np.ndarray, dst: np.ndarray, new: int,
               draw: np.random.Generator) -> None:
        """Measure, and resize ``kept`` where the size that is best differs by a factor of 1.25.

        ``src`` and ``dst`` [n] are all edges so far, oldest first, the last ``new`` have just come.
        """
        self.measure(src, dst, new, draw)
        best = self.best(len(src))
        if not 0.8 < best / kept.capacity < 1.25:
            kept.resize(best, src[-best:], dst[-best:])

    @staticmethod
    def draw(edges: int, users: int) -> Literal["uniform", "newest"]:
        """Return how a step draws from so many edges of so many users; see ``MANY``."""
        return "uniform" if edges >= MANY * users else "newest"

    def measure(self, src: np.ndarray, dst: np.ndarray, new: int, draw: np.random.Generator
                ) -> None:
        """Add the AUC of every size, measured on the ``new`` last of edges [n], to a running mean.

        Edges are in time order; new ones are predicted from those before them, against a random
        known item each.
        """
        past = len(src) - new
        if not past or not new:
            return
        chosen = past + draw.choice(new, min(PAIRS, new), replace=False)
        u, i = src[chosen].astype(np.int64), dst[chosen].astype(np.int64)
        users, items = int(src.max()) + 1, int(dst.max()) + 1
        ends = np.stack([i, draw.integers(0, items, len(u))])
        found = np.zeros(len(self.sizes))
        for n, size in enumerate(self.sizes):
            if n and self.sizes[n - 1] >= past:     # no more edges than in the last window
                found[n] = found[n - 1]
                continue
            window = slice(max(past - size, 0), past)
            found[n] = metrics.auc(*walks(src[window], dst[window], users, items, u, ends))
        self.auc = FADES * self.auc + len(u) * found
        self.weight = FADES * self.weight + len(u)

    def best(self, count: int) -> int:
        """Return how many of ``count`` edges to keep, no fewer than the smallest size.

        All, up to the largest size; the best size where it has an AUC of TELLS at least and all
        edges are worse by HARM.
        """
        best = self.sizes[-1]
        if self.weight:
            auc = self.auc / self.weight
            if auc.max() >= TELLS and auc[-1] < auc.max() - HARM:
                best = self.sizes[int(auc.argmax())]
        return int(np.clip(count, self.sizes[0], best))

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps."""
        return {"auc": self.auc, "weight": self.weight}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` gave."""
        self.auc, self.weight = np.array(state["auc"]), float(state["weight"])


def walks(src: np.ndarray, dst: np.ndarray, users: int, items: int, u: np.ndarray,
          i: np.ndarray) -> np.ndarray:
    """Return the chance that three random steps over the edges lead from user u [P] to i [k, P].

    RARE times the item's share of the edges is added; float64 [k, P].
    """
    from scipy import sparse  # takes .1 s, and few ask for it
    met: Any = sparse.csr_array((np.ones(len(src), np.float32), (src, dst)), (users, items))
    share = met.sum(0)
    there = _of_each(met, met.sum(1))
    who, at = np.unique(u, return_inverse=True)
    halfway = (there[who] @ _of_each(met.T.tocsr(), share))[at]     # [P, users]: two steps
    last = there.T.tocsr()                                          # [items, users]: the third
    return np.stack([halfway.multiply(last[to]).sum(1) + RARE * share[to] / len(src) for to in i])


def _of_each(met: Any, count: np.ndarray) -> Any:
    """Return rows divided by their sums."""
    from scipy import sparse
    return (sparse.diags_array(1 / np.maximum(count, 1)) @ met).tocsr()
