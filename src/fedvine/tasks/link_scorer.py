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
from fedvine.core.rng import mixed
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream
from fedvine.tasks import chances, negatives
from fedvine.tasks.drift import Rivals, new_shares
from fedvine.tasks.link_measures import Asked, Group, UserLists, measured, resampled
from fedvine.tasks.negatives import Candidates

if TYPE_CHECKING:
    from fedvine.tasks.link_prediction import LinkPrediction

# -- keep one client's pairs, users and items before a stage, and find the candidates of it --------
# Which items are candidates, and why: :mod:`fedvine.tasks.link_prediction`.
_NEVER = np.iinfo(np.int32).max     # the first stage of a node without an edge so far


class History:
    """Keep the pairs of one client before a stage, and the first stage of its users and items.

    - ``known``, ``recent``: codes of the pairs, and of those first seen from validation on, int64
      ascending
    - ``users``, ``items``: the stage of the first edge, int32 by local number
    - ``edges_of``: the number of edges of each item, float64
    """

    def __init__(self, protocol: LinkPrediction, part: EventStream, plan: Plan) -> None:
        self.protocol, self.part, self.plan = protocol, part, plan
        self._forget()

    def _forget(self) -> None:
        self._upto = 0                                  # stages already in the history
        self.known = self.recent = np.empty(0, np.int64)   # pairs; those first seen since val
        self.users = np.full(self.part.num_src, _NEVER, np.int32)      # stage of the first edge
        self.items = np.full(self.part.num_dst, _NEVER, np.int32)
        self.edges_of = np.zeros(self.part.num_dst)    # edges of each item so far

    def learn(self, t: int) -> None:
        """Set the history to all events before stage ``t``."""
        if t < self._upto:
            self._forget()
        for stage in range(self._upto, t):
            events = self.plan.stage(self.part, stage)
            met = np.unique(self.codes(events))
            fresh = met[find(self.known, met) < 0]
            self.known = merged(self.known, fresh)
            if stage >= self.plan.val:
                self.recent = merged(self.recent, fresh)
            self.edges_of += np.bincount(events.dst, minlength=self.part.num_dst)
            for first, nodes in ((self.users, events.src), (self.items, events.dst),
                                 *(() if self.part.bipartite else
                                   ((self.items, events.src), (self.users, events.dst)))):
                nodes = np.asarray(nodes)
                first[nodes] = np.minimum(first[nodes], stage)
        self._upto = t

    def codes(self, events: EventStream) -> np.ndarray:
        """Return the codes ``src * num_dst + dst`` of the events, int64 [E]."""
        return events.src.astype(np.int64) * self.part.num_dst + events.dst

    def candidates(self, t: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the items that a forecast of stage ``t`` could name, and those that are listed.

        A forecast of stage t is made ``lead`` stages before it has ended. Listed are the items of
        the table of items, from the time in its column ``since`` on; none without a table. Both are
        ascending int64.
        """
        self.learn(t)
        rule, begin = self.protocol.candidates, t + 1 - self.protocol.lead
        listed, table = np.zeros(self.part.num_dst, bool), self.part.dst_table
        if table is not None:
            listed = np.asarray(table.known) & (table.since <= self.plan.bounds[max(begin, 0)])
        known = self.items < begin
        if rule == "catalogue":
            known = known | listed
        elif rule == "dataset":
            known = np.ones(self.part.num_dst, bool)
        elif rule == "roland":
            events = self.plan.stage(self.part, t)
            known = self.items < t
            known[np.asarray(events.dst)] = True
            if not self.part.bipartite:
                known[np.asarray(events.src)] = True
        return np.flatnonzero(known), np.flatnonzero(listed)


def without(codes: np.ndarray, now: np.ndarray) -> np.ndarray:
    """Return ascending ``codes`` without those of ``now``; nothing as long as them is sorted."""
    at = find(codes, now)
    return np.delete(codes, at[at >= 0])


def merged(codes: np.ndarray, fresh: np.ndarray) -> np.ndarray:
    """Return ascending ``codes`` with ascending ``fresh`` ones, of which none is there yet."""
    return np.insert(codes, np.searchsorted(codes, fresh), fresh)


_OF_RIVALS = ("auc", "mrr", "auc_new", "mrr_new")      # the scores that are kept of simple rivals
_POOL = 1 << 16     # pairs met before, from which historical negatives are drawn
_LISTS, _PAIRS = 2000, 1 << 24      # users who are asked for a list, and pairs of these, at most


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


class _Pairs:
    """Pairs that are collected block by block."""

    def __init__(self) -> None:
        self.blocks: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.count = 0

    def add(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Add a block of pairs; return their positions, int64."""
        self.blocks.append((src, dst, t))
        self.count += len(src)
        return np.arange(self.count - len(src), self.count)

    def queries(self) -> EdgeQueries:
        """Return all pairs."""
        src, dst, t = (np.concatenate(column) for column in zip(*self.blocks, strict=True))
        return EdgeQueries(src, dst, t)


class Scorer:
    """The queries of one client's part and the measures of the answers.

    The pairs of earlier stages, and the items that may be named, are those of
    :class:`History`. Queries are drawn from the client's ``name``,
    ``seed``, the stage and the row.
    """

    def __init__(self, protocol: LinkPrediction, part: EventStream, plan: Plan, name: str,
                 seed: int) -> None:
        self.protocol, self.part, self.plan, self.name, self.seed = protocol, part, plan, name, seed
        self.drift, self._rivals = protocol.drifts(plan), Rivals(part.num_dst)
        self.history = History(protocol, part, plan)
        self._current: tuple[int, EdgeQueries, Asked] | None = None
        self.resampled: dict[int, dict[str, Any]] = {}      # replicates by stage
        self.learned = -1       # the last learned stage, where the server holds the graph
        self.whole = False      # whether this is that server's scorer, which adds random pairs

    def _hashes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return hashes of the names of users and of items, by number, uint64."""
        if not hasattr(self, "_named"):
            users = self.part.src_ids.hashes()
            self._named = users, self.part.dst_ids.hashes() if self.part.bipartite else users
        return self._named

    def shown(self, events: EventStream) -> EventStream:
        """Return the events that a method may see: all of them."""
        return events

    def queries(self, t: int) -> EdgeQueries:
        """Return the pairs of stage ``t``: the positives, then each kind of negatives."""
        if self._current is None or self._current[0] != t:
            self.history.learn(t)
            pairs, asked = self._draw(t)
            self._current = (t, self._both_ways(pairs), asked)
        return self._current[1]

    def given(self, pairs: dict[str, Any]) -> EdgeQueries:
        """Return the queries about pairs: local numbers ``src``, ``dst`` and times ``t``, [P]."""
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

    def _draw(self, t: int) -> tuple[EdgeQueries, Asked]:
        """Draw the pairs of stage ``t``; return them with the facts that :meth:`measure` needs.

        For P positives these are P random, P historical and P inductive negatives, a random one of
        each new pair among items that its user has not met, the negatives for the ranks, the same
        of cold positives, the lists of users, and, where ``whole``, 2 P random pairs of nodes.
        """
        protocol, width = self.protocol, max(self.part.num_dst, 1)
        users, names = self._hashes()
        items, listed = self.history.candidates(t)
        candidates, events = Candidates(items, names), self._edges(t)
        if events.arrived is not None:      # edges that came late are learned, not asked
            events = events.take(np.flatnonzero(events.t >= self.plan.bounds[t]))
        now = np.unique(self.history.codes(events))
        if not self.part.bipartite:                         # a node is not a negative of itself
            now = np.union1d(now, items * (width + 1))
        src, dst = events.src.astype(np.int64), events.dst.astype(np.int64)
        time, every = np.asarray(events.t, float), protocol.negatives == "all"
        many = len(items) if every else int(protocol.negatives)
        row = negatives.rows(negatives.salt(self.seed, self.name, "queries", t),
                             users[src], names[dst], time)

        def chosen(among: np.ndarray, free: np.ndarray) -> np.ndarray:
            """Return the rows to ask: those with a negative, at most ``positives``."""
            found = among[free > 0]
            if len(found) > protocol.positives:
                found = np.sort(found[np.argsort(row[found], kind="stable")[:protocol.positives]])
            return found

        named = np.flatnonzero(find(items, dst) >= 0)
        free = candidates.free(src[named], width, now)
        n = {"unknown": len(src) - len(named), "unasked": int((free == 0).sum())}
        rows = chosen(named, free)
        code = src[rows] * width + dst[rows]
        n["few"] = 0 if every else int((candidates.free(src[rows], width, now) < many).sum())
        away = (self.part.first_seen_elsewhere[src[rows]] < self.plan.bounds[t]
                if self.part.first_seen_elsewhere is not None else np.zeros(len(rows), bool))
        pairs = _Pairs()

        def ask(at: np.ndarray, item: np.ndarray) -> np.ndarray:
            """Ask the users of these rows, at their times, about these items."""
            return pairs.add(src[at], item, time[at])

        count, wide = candidates.drawn(row[rows], many, src[rows], width, now)
        single = wide[np.cumsum(count) - count]             # the first one of each row
        if protocol.historical and not every:
            count, wide = self._with_met(row[rows], src[rows], count, wide, now, items)
        own = np.repeat(np.arange(len(rows)), count)
        positive, random = ask(rows, dst[rows]), ask(rows, single)
        pools = [self._pool(row[rows], without(pool, now), src[rows] * width + single)
                 for pool in (self.history.known, self.history.recent)]
        historical, inductive = (pairs.add(pool // width, pool % width, time[rows])
                                 for pool in pools)
        # New pairs are asked among items that their user has not met: of the same draw those that
        # the user has not met, and as many more as it takes.
        past = merged(now, without(self.history.known, now))
        new = np.flatnonzero(find(self.history.known, code) < 0)
        free = candidates.free(src[rows[new]], width, past)
        n["unasked_new"], new = int((free == 0).sum()), new[free > 0]
        more, unmet = candidates.drawn(row[rows[new]], many, src[rows[new]], width, past)
        of_new = np.repeat(np.arange(len(new)), more)
        random_new = ask(rows[new], unmet[np.cumsum(more) - more])
        both, at = np.unique(np.append(own * width + wide, new[of_new] * width + unmet),
                             return_inverse=True)
        there = ask(rows[both // width], both % width)[at.reshape(-1)]
        groups = [
            Group(positive, random, own, there[:len(own)], {
                "all": np.ones(len(rows), bool), "travelled": away,
                "arrived": away & (self.history.users[src[rows]] >= t)}, src[rows]),
            Group(positive[new], random_new, of_new, there[len(own):],
                  {"new": np.ones(len(new), bool)}, src[rows[new]])]
        if protocol.cold and len(listed):
            catalogue = Candidates(listed, names)
            cold = np.flatnonzero((self.history.items[dst] >= t + 1 - protocol.lead)
                                  & (find(listed, dst) >= 0))
            n["unknown"] -= int((find(items, dst[cold]) < 0).sum())
            cold = chosen(cold, catalogue.free(src[cold], width, now))
            count, wide = catalogue.drawn(row[cold], max(many, 1) if not every else len(listed),
                                          src[cold], width, now)
            groups.append(Group(
                ask(cold, dst[cold]), ask(cold, wide[np.cumsum(count) - count]),
                np.repeat(np.arange(len(cold)), count), ask(np.repeat(cold, count), wide),
                {"cold": np.ones(len(cold), bool)}, src[cold]))
        asked = Asked(n, groups, historical, inductive, protocol.k)
        if protocol.ranking and self.plan.period(t) != "train":     # others are never reported
            asked.lists = self._lists(t, events, items, pairs)
        if protocol.chances:
            asked.chances = self._chances(t, now, items, pairs)
        if self.whole:      # pairs of random nodes; those at two clients count
            people = Candidates(np.flatnonzero(self.history.users < t + 1 - protocol.lead), users)
            at, left, right = self._random_pairs(row[rows], people, candidates, now)
            asked.nodes = pairs.add(left, right, time[rows[at]])
        return pairs.queries(), asked

    def _with_met(self, row: np.ndarray, src: np.ndarray, count: np.ndarray, wide: np.ndarray,
                  now: np.ndarray, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Put items met before in place of a share of the negatives; random where there are fewer.

        An item that is among both counts once.
        """
        width, names = max(self.part.num_dst, 1), self._hashes()[1]
        past, share = without(self.history.known, now), round(
            self.protocol.historical * self.protocol.negatives)     # type: ignore[operator]
        begin, end = (np.searchsorted(past, edge) for edge in (src * width, (src + 1) * width))
        own = np.repeat(np.arange(len(src)), end - begin)
        step = np.repeat(begin, end - begin) + _rank(own)
        met = past[step] % width
        known = find(items, met) >= 0       # before the stage in which it is forecast
        own, met = own[known], met[known]
        order = np.lexsort((mixed(row[own] ^ names[met]), own))
        own, met = own[order], met[order]
        first = _rank(own) < share
        own = np.append(own[first], np.repeat(np.arange(len(src)), count))
        both = np.append(met[first], wide)
        _, at = np.unique(own * width + both, return_index=True)
        at = np.sort(at)
        at = at[np.argsort(own[at], kind="stable")]
        at = at[_rank(own[at]) < count[own[at]]]
        return np.bincount(own[at], minlength=len(src)), both[at]

    def _pool(self, row: np.ndarray, pool: np.ndarray, instead: np.ndarray) -> np.ndarray:
        """Draw a pair of the pool for each row, codes int64 [P]; ``instead`` where it is empty."""
        if not len(pool):
            return instead
        (users, names), width = self._hashes(), max(self.part.num_dst, 1)
        keys = mixed(users[pool // width] ^ mixed(names[pool % width]))
        if len(pool) > _POOL:           # of very many pairs an even share, again by their hashes
            some = np.flatnonzero(keys < np.uint64(_POOL / len(pool) * 2.0**64))
            pool, keys = pool[some], keys[some]
        return pool[Candidates(np.arange(len(pool)), keys).drawn(row, 1)[1]]

    def _random_pairs(self, row: np.ndarray, users: Candidates, items: Candidates, now: np.ndarray
                      ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw two pairs of a random user and a random item for each row, if they are not of now.

        These are rows, users and items, int64 [at most 2 P].
        """
        count, src = users.drawn(mixed(row + np.uint64(1)), 2)
        many, dst = items.drawn(mixed(row + np.uint64(2)), 2)
        own, other = (np.repeat(np.arange(len(row)), c) for c in (count, many))
        both = np.minimum(count, many)
        src, dst = src[_rank(own) < both[own]], dst[_rank(other) < both[other]]
        left = find(now, src * max(self.part.num_dst, 1) + dst) < 0
        return np.repeat(np.arange(len(row)), both)[left], src[left], dst[left]

    def _lists(self, t: int, events: EventStream, items: np.ndarray, pairs: _Pairs) -> UserLists:
        """Draw the users who are asked for a list of items, and ask all candidates of each.

        A user can have a list who has an edge here or at another client before the stage, or a row
        in the table of users. They are asked for the middle of the stage; where answers are
        refreshed by events of the stage, for its beginning.
        """
        width, (users, names) = max(self.part.num_dst, 1), self._hashes()
        place = negatives.salt(self.seed, self.name, "lists", t)
        met = np.unique(self.history.codes(events))
        met = met[find(items, met % width) >= 0]            # what could be named
        user = np.unique(met // width)
        most = min(_LISTS, max(_PAIRS // max(len(items), 1), 1))
        row = negatives.rows(place, users[user])
        if len(user) > most:
            some = np.sort(np.argsort(row, kind="stable")[:most])
            user, row = user[some], row[some]
        begin = t + 1 - self.protocol.lead
        seen = self.history.users[user] < begin
        if self.part.first_seen_elsewhere is not None:
            seen |= self.part.first_seen_elsewhere[user] < self.plan.bounds[max(begin, 0)]
        if self.part.src_table is not None:
            seen |= np.asarray(self.part.src_table.known)[user]
        start, end = self.plan.bounds[t:t + 2]
        when = start if self.protocol.step is not None else (start + end) / 2
        asked = user[seen]
        at = pairs.add(np.repeat(asked, len(items)), np.tile(items, len(asked)),
                       np.full(len(asked) * len(items), when))
        known = _grid(self.history.known, asked, items, width)
        wanted = _grid(met, asked, items, width)
        barred = (items == asked[:, None] if not self.part.directed else
                  np.zeros((len(asked), len(items)), bool))
        lost = met[np.isin(met // width, user[~seen])]
        new = lost[find(self.history.known, lost) < 0]
        return UserLists(at, known, wanted, barred,
                     mixed(row[seen][:, None] ^ names[items][None, :]),
                     asked, np.unique(lost // width), np.unique(new // width),
                     self.history.edges_of[items])

    def _chances(self, t: int, now: np.ndarray, items: np.ndarray, pairs: _Pairs
                 ) -> tuple[np.ndarray, np.ndarray]:
        """Draw users that are known before the stage, and ask all candidates of each."""
        width, (users, _) = max(self.part.num_dst, 1), self._hashes()
        most = min(self.protocol.chances, _PAIRS // max(len(items), 1))
        known = np.flatnonzero(self.history.users < t + 1 - self.protocol.lead)
        row = negatives.rows(negatives.salt(self.seed, self.name, "chances", t), users[known])
        user = np.sort(known[np.argsort(row, kind="stable")[:most]])
        start, end = self.plan.bounds[t:t + 2]
        when = start if self.protocol.step is not None else (start + end) / 2
        at = pairs.add(np.repeat(user, len(items)), np.tile(items, len(user)),
                       np.full(len(user) * len(items), when)).reshape(len(user), len(items))
        if not self.part.bipartite:     # a node is in no list of its own, and `now` has it with it
            at = np.where(items == user[:, None], -1, at)
        return at, _grid(now, user, items, width)

    def by_client(self, t: int, answer: Any) -> dict[str, dict[str, Any]]:
        """Return what :meth:`measure` does; all clients are asked together."""
        return {"all": self.measure(t, answer)}

    def measure(self, t: int, answer: Any) -> dict[str, Any]:
        """Return counts and scores of an answer to ``queries(t)``.

        Keys are those of :func:`fedvine.tasks.link_measures.measured`. An answer is one score a
        query, [P], higher is more likely; or ``{"scores": ..., "across": bool [P]}``. Returns
        ``{"n": counts of positives, "scores": values by key}``. Where the protocol measures drift
        also ``drift``: ``edges`` of the stage, shares of them that are ``new``, and scores of
        simple ``rivals``; where it learns chances, ``parts``
        (:func:`fedvine.tasks.chances.counted`). Raises :class:`MethodError` for another length or
        values that are not finite.
        """
        pairs, (_, _, asked) = self.queries(t), self._current  # type: ignore[misc]
        plain = answer["scores"] if isinstance(answer, Mapping) else answer
        scores = np.asarray(plain, float).reshape(-1)
        if len(scores) != len(pairs) or not np.isfinite(scores).all():
            raise MethodError(f'client "{self.name}" answered {len(scores)} scores to {len(pairs)} '
                              "pairs, or some that are not finite; predict must give one each.")
        answer, across = self.answered(answer), None
        if isinstance(answer, Mapping):
            answer, across = answer["scores"], np.asarray(answer["across"], bool)
        scores = np.asarray(answer, float).reshape(-1)
        n, found = measured(scores, asked, across)
        if self.protocol.replicates and self.plan.period(t) == "test":
            others = None if self.part.directed else pairs.dst
            self.resampled[t] = resampled(scores, asked, self._hashes()[0],
                                          self.protocol.replicates, others)
        result = {"n": n, "scores": found} | ({"drift": self._drift(t)} if self.drift else {})
        if asked.chances is not None:
            at, met = asked.chances
            result["parts"] = chances.counted(
                np.where(at >= 0, scores[at], -np.inf), met, self.protocol.k)
        return result

    def _drift(self, t: int) -> dict[str, Any]:
        """Return how new stage ``t`` is, and the rivals' scores of its queries.

        The rivals know the stages that the model has learned: all but the last ``lead - 1`` before
        stage ``t``.
        """
        queries, (_, _, asked) = self.queries(t), self._current  # type: ignore[misc]
        upto = max(t + 1 - self.protocol.lead, 0)
        if upto < self._rivals.learned:
            self._rivals = Rivals(self.part.num_dst)
        for stage in range(self._rivals.learned, upto):
            self._rivals.learn(self.plan.stage(self.part, stage))
        rivals = {}     # none beside a model that sees the stage's edges: they would know less
        for name, scores in ({} if self.protocol.step else self._rivals.scores(queries)).items():
            _, found = measured(self.answered(scores), asked)
            rivals[name] = {key: found[key] for key in _OF_RIVALS if key in found}
        events, past = self._edges(t), self.history
        return {"edges": len(events), "rivals": rivals,
                "new": new_shares(events, past.codes(events), past.known, past.users < t,
                                  past.items < t)}


def _rank(own: np.ndarray) -> np.ndarray:
    """Return the place of each entry among those of the same ascending number, from 0 on."""
    return np.arange(len(own)) - np.searchsorted(own, own)


def _grid(codes: np.ndarray, users: np.ndarray, items: np.ndarray, width: int) -> np.ndarray:
    """Return which pairs of users and items are among sorted codes, bool [users, items]."""
    found = np.zeros((len(users), len(items)), bool)
    own, item = find(users, codes // width), find(items, codes % width)
    there = (own >= 0) & (item >= 0)
    found[own[there], item[there]] = True
    return found


def lists_are_cheap(protocol: LinkPrediction, parts: Mapping[str, EventStream], plan: Plan
                    ) -> bool:
    """Return whether lists take at most 101 pairs for each positive, in the first reported stage.

    Both are added up over the clients.
    """
    t, lists, edges = min(max(plan.val, protocol.lead), len(plan) - 1), 0, 0
    for part in parts.values():
        known, now = part.before(plan.bounds[max(t + 1 - protocol.lead, 0)]), plan.stage(part, t)
        items = known.dst if part.bipartite else np.append(known.src, known.dst)
        lists += min(len(np.unique(now.src)), _LISTS) * len(np.unique(items))
        edges += min(len(now), protocol.positives)
    return lists <= 101 * edges
