"""Simple rivals of a model of links, and how new a stage is to a client; for sentences on drift.

A client computes both beside its own data, on the queries that the model answers. A few numbers
travel with the scores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedvine.core.lookup import find
from fedvine.data.stream import EventStream

if TYPE_CHECKING:
    from fedvine.tasks.link_scorer import EdgeQueries

DECAY = 0.5     # of a count from one stage to the next, the default of methods/popularity.py
TIES = 1e-6     # of popularity among pairs that met, as in methods/popularity.py


class Rivals:
    """The scores of EdgeBank, frequency, popularity and recency with their default constants.

    They are those of the methods of these names: ``methods/edgebank.py``, ``frequency.py``,
    ``popularity.py`` and ``recency.py``. Pairs are kept as codes user * ``width`` + item.
    """

    def __init__(self, width: int) -> None:
        self.width, self.learned = width, 0                 # stages learned
        self.count = np.zeros(width)                        # of edges, by item
        self.pairs = np.empty(0, np.int64)                  # ascending, with ...
        self.last, self.often = np.empty(0), np.empty(0)    # ... last times, and counts

    def learn(self, events: EventStream) -> None:
        """Take in the edges of the next stage."""
        if events.deleted is not None:
            events = events.take(np.flatnonzero(~events.deleted))
        self.learned += 1
        self.count = DECAY * self.count + np.bincount(events.dst, minlength=self.width)
        codes, at, many = np.unique(events.src.astype(np.int64) * self.width + events.dst,
                                    return_inverse=True, return_counts=True)
        time = np.full(len(codes), -np.inf)
        np.maximum.at(time, at.reshape(-1), np.asarray(events.t, float))
        here = find(self.pairs, codes)
        old, new = here[here >= 0], here < 0
        self.last[old] = np.maximum(self.last[old], time[~new])
        self.often[old] += many[~new]
        place = np.searchsorted(self.pairs, codes[new])
        self.pairs = np.insert(self.pairs, place, codes[new])
        self.last = np.insert(self.last, place, time[new])
        self.often = np.insert(self.often, place, many[new])

    def scores(self, queries: EdgeQueries) -> dict[str, np.ndarray]:
        """Return the scores of each rival, float64 [Q]; higher is more likely."""
        at = find(self.pairs, queries.src * self.width + queries.dst)
        popularity = self.count[queries.dst]
        recency = frequency = popularity / (1 + self.count.max(initial=0))
        if len(self.last):
            first = self.last.min()
            when = (self.last - first) / max(self.last.max() - first, 1e-300)
            recency = np.where(at >= 0, 1 + when[at], recency)
            frequency = np.where(at >= 0, 1 + self.often[at] + TIES * frequency, frequency)
        return {"edgebank": (at >= 0).astype(float), "frequency": frequency,
                "popularity": popularity, "recency": recency}


def new_shares(events: EventStream, codes: np.ndarray, known: np.ndarray, users: np.ndarray,
               items: np.ndarray) -> dict[str, float]:
    """Return the shares of a stage's edges that are new to the client, in [0, 1]; {} without edges.

    ``codes`` int64 [E] are the edges', ``known`` sorted those of all stages before; ``users`` and
    ``items`` (or nodes of one kind) say which occur in these. Keys: ``users``, ``items``,
    ``pairs``; where nodes are of one kind ``nodes`` (ends that are new) and ``pairs``.
    """
    if not len(events):
        return {}
    pairs = {"pairs": float((find(known, codes) < 0).mean())}
    if events.bipartite:
        return {"users": float(1 - users[events.src].mean()),
                "items": float(1 - items[events.dst].mean()), **pairs}
    return {"nodes": float(1 - (items[events.src].mean() + items[events.dst].mean()) / 2), **pairs}
