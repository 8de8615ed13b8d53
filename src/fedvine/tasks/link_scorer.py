"""Queries of link prediction and the measures of their answers, for one client's part.

Which pairs are queried, and why: :mod:`fedvine.tasks.link_prediction`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvine.core.errors import MethodError
from fedvine.core.lookup import find
from fedvine.core.rng import rng
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream
from fedvine.tasks import negatives
from fedvine.tasks.link_measures import measured
from fedvine.tasks.rivals import Rivals, new_shares

if TYPE_CHECKING:
    from fedvine.tasks.link_prediction import LinkPrediction

_OF_RIVALS = ("auc", "mrr", "auc_new", "mrr_new")      # the scores that are kept of simple rivals


@dataclass(frozen=True)
class EdgeQueries:
    """Pairs to score: local numbers ``src``, ``dst`` int64 [P] and times ``t`` float64 [P]."""

    src: np.ndarray
    dst: np.ndarray
    t: np.ndarray

    def __len__(self) -> int:
        return len(self.src)

    def take(self, index: np.ndarray) -> EdgeQueries:
        """Return the queries at these positions, in this order."""
        return EdgeQueries(self.src[index], self.dst[index], self.t[index])


class Scorer:
    """The queries of one client's part and the measures of the answers.

    A scorer keeps the pairs, users and items known before a stage.

    Args:
        protocol: number and kind of negatives, number of positives, k of hits@k.
        part: the client's part of the stream.
        plan: the stages.
        name: name of the client; queries are drawn from it, ``seed`` and the stage.
        seed: seed of the run.
    """

    def __init__(self, protocol: LinkPrediction, part: EventStream, plan: Plan, name: str,
                 seed: int) -> None:
        self.protocol, self.part, self.plan, self.name, self.seed = protocol, part, plan, name, seed
        self.drift, self._rivals = protocol.drifts(plan), Rivals(part.num_dst)
        self._forget()
        self._current: tuple[int, EdgeQueries, dict[str, Any]] | None = None
        self.learned = -1       # the last learned stage, where the server holds the graph
        self.whole = False      # whether this is that server's scorer, which adds random pairs

    def _forget(self) -> None:
        self._upto = 0                                  # stages already in the history
        self._known = self._recent = np.empty(0, np.int64)   # pairs; those first seen since val
        self._users = np.zeros(self.part.num_src, bool)
        self._items = np.zeros(self.part.num_dst, bool)      # any node, where there is one kind

    def _learn(self, t: int) -> None:
        """Set the history to all events before stage ``t``."""
        if t < self._upto:
            self._forget()
        for stage in range(self._upto, t):
            events = self.plan.stage(self.part, stage)
            met = np.unique(self._codes(events))
            fresh = met[find(self._known, met) < 0]
            self._known = _merged(self._known, fresh)
            if stage >= self.plan.val:
                self._recent = _merged(self._recent, fresh)
            self._users[np.asarray(events.src)] = True
            self._items |= self._met(events)
        self._upto = t

    def _met(self, events: EventStream) -> np.ndarray:
        """Return which items occur, bool [num_dst]; which nodes, where all are of one kind."""
        found = np.zeros(self.part.num_dst, bool)
        found[np.asarray(events.dst)] = True
        if not self.part.bipartite:
            found[np.asarray(events.src)] = True
        return found

    def _codes(self, events: EventStream) -> np.ndarray:
        """Return the codes ``src * num_dst + dst`` of the events, int64 [E]."""
        return events.src.astype(np.int64) * self.part.num_dst + events.dst

    def shown(self, events: EventStream) -> EventStream:
        """Return the events that a method may see: all of them."""
        return events

    def queries(self, t: int) -> EdgeQueries:
        """Return the pairs of stage ``t``: the positives, then each kind of negatives."""
        if self._current is None or self._current[0] != t:
            self._learn(t)
            pairs, extra = self._draw(t)
            self._current = (t, self._both_ways(pairs), extra)
        return self._current[1]

    def given(self, pairs: dict[str, Any]) -> EdgeQueries:
        """Return the queries about pairs that a person asks for.

        ``pairs`` has ``src`` and ``dst`` (local numbers) and ``t`` (times), each [P].
        """
        src, dst = (np.asarray(pairs[end], np.int64) for end in ("src", "dst"))
        return self._both_ways(EdgeQueries(src, dst, np.asarray(pairs["t"], float)))

    def ahead(self, t: int, queries: EdgeQueries) -> EventStream:
        """Return the client's events after stage ``t`` and before the last query, a view."""
        start = self.plan.bounds[t + 1]
        return self.part.between(start, max(float(queries.t.max(initial=start)), start))

    def _both_ways(self, pairs: EdgeQueries) -> EdgeQueries:
        """Return the queries for a method: without directions first all (u, v), then all (v, u)."""
        if self.part.directed:
            return pairs
        return EdgeQueries(np.concatenate([pairs.src, pairs.dst]),
                           np.concatenate([pairs.dst, pairs.src]), np.tile(pairs.t, 2))

    def answered(self, answer: Any) -> Any:
        """Return one score a pair, [P]: without directions the mean of (u, v) and (v, u)."""
        if self.part.directed:
            return answer
        if isinstance(answer, Mapping):
            there = np.asarray(answer["across"], bool)
            return {"scores": self.answered(answer["scores"]), "across": there[:len(there) // 2]}
        return np.asarray(answer, float).reshape(2, -1).mean(0)

    def _edges(self, t: int) -> EventStream:
        """Return the events of stage ``t`` that are edges; deletions are left out."""
        events = self.plan.stage(self.part, t)
        return (events if events.deleted is None else
                events.take(np.flatnonzero(~events.deleted)))

    def _draw(self, t: int) -> tuple[EdgeQueries, dict[str, Any]]:
        """Draw the pairs of stage ``t``; return them with the facts that :meth:`measure` needs.

        For P positives these are P random, P historical and P inductive negatives, P x W for the
        ranks, and, where ``whole``, 2 P random pairs of nodes.
        """
        draw = rng(self.seed, self.name, "queries", t)
        events = self._edges(t)
        now = np.unique(self._codes(events))
        met = self._items | self._met(events)
        items = np.flatnonzero(met)                         # known by the end of the stage
        users = items if not self.part.bipartite else np.flatnonzero(
            self._users | np.bincount(events.src, minlength=self.part.num_src).astype(bool))
        if not self.part.directed:                          # a node is not a negative of itself
            now = np.union1d(now, items * (self.part.num_dst + 1))
        if events.arrived is not None:      # edges that came late are learned, not asked
            events = events.take(np.flatnonzero(events.t >= self.plan.bounds[t]))
        if len(events) > self.protocol.positives:
            events = events.take(np.sort(draw.choice(len(events), self.protocol.positives, False)))
        src, dst = events.src.astype(np.int64), events.dst.astype(np.int64)
        count, width = len(src), self.part.num_dst
        single = negatives.random(draw, src, items, now, 1, width)
        wide = (np.tile(items, (count, 1)) if self.protocol.negatives == "all" else
                negatives.random(draw, src, items, now, self.protocol.negatives, width))
        if self.protocol.negatives == "all":
            # Pairs of now are replaced by dst, which ``own`` subtracts from the rank again.
            there = find(now, (src[:, None] * width + wide).reshape(-1)).reshape(wide.shape)
            wide = np.where(there >= 0, dst[:, None], wide)
        past = _without(self._known, now)
        if self.protocol.historical and self.protocol.negatives != "all":
            wide = negatives.met(draw, src, past, wide, self.protocol.historical, width)
        recent = _without(self._recent, now)
        historical, inductive = (draw.choice(pool, count) if len(pool) else
                                 src * width + single[:, 0] for pool in (past, recent))
        code = src * width + dst
        known = find(self._known, code) >= 0
        away = (self.part.first_seen_elsewhere[src] < self.plan.bounds[t]
                if self.part.first_seen_elsewhere is not None else np.zeros(count, bool))
        masks = {"all": np.ones(count, bool), "new": ~known, "travelled": away,
                 "arrived": away & ~self._users[src]}
        if self.protocol.cold:
            masks["cold"] = ~(self._users[src] | away) | ~self._items[dst]
        time = events.t.astype(float)
        blocks = [code, (src[:, None] * width + single)[:, 0], historical, inductive,
                  (src[:, None] * width + wide).reshape(-1)]
        times = [time] * 4 + [np.repeat(time, wide.shape[1])]
        if self.whole:      # pairs of random nodes; those at two clients count
            blocks.append(negatives.pairs(draw, users, items, now, 2 * count, width))
            times.append(np.repeat(time, 2))
        codes, times = np.concatenate(blocks), np.concatenate(times)
        return (EdgeQueries(codes // max(width, 1), codes % max(width, 1), times),
                {"masks": masks, "wide": wide.shape[1],
                 "own": (wide == dst[:, None]).sum(1) if self.protocol.negatives == "all" else 0})

    def measure(self, t: int, answer: Any) -> dict[str, Any]:
        """Return counts and scores of an answer to ``queries(t)``.

        Keys are those of :func:`fedvine.tasks.link_measures.measured`.

        Args:
            t: the stage; its queries are drawn if they were not.
            answer: one score a query, [P], higher is more likely; or ``{"scores": ..., "across":
                bool [P]}``.

        Returns:
            ``{"n": counts of positives, "scores": values by key}``; what is not defined is left
                out. Where the protocol measures drift also ``drift``: ``edges`` of the stage,
                shares of them that are ``new``, and scores of simple ``rivals``.

        Raises:
            MethodError: if the answer has another length or values that are not finite.
        """
        pairs, (_, _, extra) = self.queries(t), self._current  # type: ignore[misc]
        plain = answer["scores"] if isinstance(answer, Mapping) else answer
        scores = np.asarray(plain, float).reshape(-1)
        if len(scores) != len(pairs) or not np.isfinite(scores).all():
            raise MethodError(f'client "{self.name}" answered {len(scores)} scores to {len(pairs)} '
                              "pairs, or some that are not finite; predict must give one each.")
        answer, across = self.answered(answer), None
        if isinstance(answer, Mapping):
            answer, across = answer["scores"], np.asarray(answer["across"], bool)
        n, found = measured(np.asarray(answer, float).reshape(-1), extra, self.protocol.k, across)
        return {"n": n, "scores": found} | ({"drift": self._drift(t)} if self.drift else {})

    def _drift(self, t: int) -> dict[str, Any]:
        """Return how new stage ``t`` is, and the rivals' scores of its queries.

        The rivals know the stages that the model has learned: all but the last ``lead - 1`` before
        stage ``t``.
        """
        queries, (_, _, extra) = self.queries(t), self._current  # type: ignore[misc]
        upto = max(t + 1 - self.protocol.lead, 0)
        if upto < self._rivals.learned:
            self._rivals = Rivals(self.part.num_dst)
        for stage in range(self._rivals.learned, upto):
            self._rivals.learn(self.plan.stage(self.part, stage))
        rivals = {}
        for name, scores in self._rivals.scores(queries).items():
            _, found = measured(self.answered(scores), extra, self.protocol.k)
            rivals[name] = {key: found[key] for key in _OF_RIVALS if key in found}
        events = self._edges(t)
        return {"edges": len(events), "rivals": rivals,
                "new": new_shares(events, self._codes(events), self._known, self._users,
                                  self._items)}


def _without(codes: np.ndarray, now: np.ndarray) -> np.ndarray:
    """Return ascending ``codes`` without those of ``now``; nothing as long as them is sorted."""
    at = find(codes, now)
    return np.delete(codes, at[at >= 0])


def _merged(codes: np.ndarray, fresh: np.ndarray) -> np.ndarray:
    """Return ascending ``codes`` with ascending ``fresh`` ones, of which none is there yet."""
    return np.insert(codes, np.searchsorted(codes, fresh), fresh)
