"""LightGBM on twenty plain features of a pair, over all clients' rows in one place.

No federation could have these rows in one place: it is what sharing everything would give a plain
model, and the page of forecasts sets it beside methods that share little. It answers the protocol's
own queries, those that every method answers, client by client. For stage t + 1 it is trained on the
edges to known items of the stages t - 9 to t, each with the features before its own stage, and for
each of them on ten candidates of its client that its user does not meet in the stage, as the
protocol draws negatives of all pairs. CPU seconds are of features, training and answers for the
test period alone; those of the methods are of whole runs with their scores. It needs ``pip install
fedvine[trees]``.
"""

from __future__ import annotations

import importlib
import time
import warnings
from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

from fedvine.core.errors import FedvineError
from fedvine.core.lookup import find
from fedvine.core.rng import rng
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.prepare import StageScores
from fedvine.methods._fedlink.edges import edges, kept

STAGES, NEGATIVES, MOST, BLOCK = 10, 10, 60_000, 400_000
TREES: dict[str, Any] = {"objective": "binary", "num_leaves": 31, "learning_rate": 0.05,
                         "min_data_in_leaf": 100, "num_threads": 1, "verbosity": -1,
                         "deterministic": True, "force_row_wise": True, "seed": 0}
ROUNDS = 300
#: A word of 32 ones, and the place of a word's only one, from the five top bits of a product.
ALL, DE_BRUIJN = 0xffffffff, 0x077CB531
BIT = np.argsort([(DE_BRUIJN << k & ALL) >> 27 for k in range(32)])


class Rows:
    """All clients' edges with common numbers: user, item, client, time and stage, in any order."""

    def __init__(self, split: Any, plan: Any) -> None:
        self.stream, self.plan = split.stream, plan
        self.kind = self.stream.bipartite
        self.users, self.items = self.stream.num_src, self.stream.num_dst
        self.names = list(split.parts)
        self.of = [tuple(getattr(self.stream, ids).numbers(getattr(part, ids)).astype(np.int64)
                         for ids in ("src_ids", "dst_ids")) for part in split.parts.values()]
        columns: list[tuple[np.ndarray, ...]] = []
        for client, part in enumerate(split.parts.values()):
            for t in range(len(plan)):
                events = plan.stage(part, t)
                src, dst = edges(events)
                columns.append((self.of[client][0][src], self.of[client][1][dst],
                                np.full(len(src), client), np.asarray(kept(events).t, float),
                                np.full(len(src), t)))
        self.user, self.item, self.client, self.time, self.stage = (
            np.concatenate(column) for column in zip(*columns, strict=True))


@njit(cache=True, nogil=True)
def _sums(common: np.ndarray, place: np.ndarray, item: np.ndarray, start: np.ndarray,
          users: np.ndarray) -> np.ndarray:
    """Return the sum over each item's users of their columns in row ``place``, float32 [P]."""
    found = np.zeros(len(place), np.float32)
    for p in range(len(place)):
        total = 0.0
        for k in range(start[item[p]], start[item[p] + 1]):
            total += common[place[p], users[k]]
        found[p] = total
    return found


class Model:
    """Answer as LightGBM's model does, eight times as fast (7.4 to .9 us a pair on one core).

    A tree of at most 32 leaves is a table of its splits; a pair that goes right at a split cannot
    end in a leaf left of it, and ends in the first leaf that remains (Lucchese et al., QuickScorer,
    SIGIR 2015). So all splits are asked of many pairs at once, without a branch.
    """

    def __init__(self, booster: Any) -> None:
        splits: list[tuple[int, float, int]] = []
        leaves: list[list[float]] = []
        ends = [0]

        def walk(node: dict[str, Any], first: int) -> int:
            if "leaf_value" in node:
                leaves[-1][first] = node["leaf_value"]
                return 1
            left = walk(node["left_child"], first)
            splits.append((node["split_feature"], node["threshold"],
                           ~(((1 << left) - 1) << first) & ALL))
            return left + walk(node["right_child"], first + left)

        for tree in booster.dump_model()["tree_info"]:
            leaves.append([0.0] * 32)
            walk(tree["tree_structure"], 0)
            ends.append(len(splits))
        feature, threshold, right = zip(*splits, strict=True) if splits else [()] * 3
        near = np.array(threshold, np.float32)              # x > limit as x > threshold, in float32
        limit = np.where(near > threshold, np.nextafter(near, np.float32(-np.inf)), near)
        self.trees = (np.array(feature, np.int64), limit.astype(np.float32),
                      np.array(right, np.uint32), np.array(ends), np.array(leaves))

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return the probabilities float64 [P] of pairs' features, float32 [P, 20], without NaN."""
        return 1 / (1 + np.exp(-_answers(x, *self.trees, BIT)))


@njit(cache=True, nogil=True)
def _answers(x: np.ndarray, feature: np.ndarray, limit: np.ndarray, right: np.ndarray,
             ends: np.ndarray, leaves: np.ndarray, bit: np.ndarray) -> np.ndarray:
    """Return the sum of all trees' leaves, float64 [P]."""
    pairs, width = x.shape
    found = np.zeros(pairs)
    block, left = np.zeros((width, 128), np.float32), np.empty(128, np.uint32)
    for start in range(0, pairs, 128):
        size = min(128, pairs - start)
        for i in range(size):
            block[:, i] = x[start + i]
        for tree in range(len(ends) - 1):
            left[:] = np.uint32(ALL)
            for k in range(ends[tree], ends[tree + 1]):
                values, most, keep = block[feature[k]], limit[k], right[k]
                for i in range(128):
                    left[i] &= keep if values[i] > most else np.uint32(ALL)
            for i in range(size):
                lowest = left[i] & (~left[i] + np.uint32(1))
                found[start + i] += leaves[
                    tree, bit[np.uint32(lowest * np.uint32(DE_BRUIJN)) >> np.uint32(27)]]
    return found


class State:
    """Count all edges before stage ``t``."""

    def __init__(self, rows: Rows, t: int) -> None:
        self.rows, past = rows, rows.stage < t
        user, item, client = rows.user[past], rows.item[past], rows.client[past]
        bounds, lag = rows.plan.bounds, t - 1 - rows.stage[past]
        age = (bounds[t] - rows.time[past]) * t / (bounds[t] - bounds[0])       # in stages
        users, items = rows.users, rows.items

        def count(at: np.ndarray, size: int, fade: float | None = None) -> np.ndarray:
            return np.bincount(at, None if fade is None else fade ** lag, size).astype(np.float32)

        def last(at: np.ndarray, size: int) -> np.ndarray:
            found = np.full(size, np.inf, np.float32)
            np.minimum.at(found, at, age)
            return found

        here = client * items + item
        self.pair, place = np.unique(user * items + item, return_inverse=True)
        pairs = len(self.pair)
        self.candidate = count(here, len(rows.names) * items)
        self.known = self.candidate + (0 if rows.kind else count(
            client * users + user, len(self.candidate)))
        kinds = np.bincount(self.pair // items, minlength=users).astype(np.float32)
        buyers = np.bincount(self.pair % items, minlength=items).astype(np.float32)
        of_user, of_item = count(user, users), count(item, items)
        first = np.zeros(items, np.float32)
        np.maximum.at(first, item, age)
        self.of_user = [of_user, count(user, users, 0.8), last(user, users), kinds,
                        (of_user - kinds) / np.maximum(of_user, 1)]
        self.of_item = [of_item, count(item, items, 0.5), last(item, items), first, buyers,
                        (of_item - buyers) / np.maximum(of_item, 1)]
        self.of_here = [self.candidate, *(count(here, len(self.candidate), f) for f in (0.5, 0.8))]
        self.of_pair = [count(place, pairs), count(place, pairs, 0.8), last(place, pairs)]
        self.own = count(client * users + user, len(rows.names) * users)
        # Items are alike that have users in common: |both| / sqrt(|users of i| |users of j|).
        met = sparse.csr_matrix((np.ones(pairs, np.float32), (
            self.pair // items, self.pair % items)), (users, items))
        self.scale = (1 / np.sqrt(np.maximum(buyers, 1))).astype(np.float32)
        self.met, self.of = met, sparse.csr_matrix(met.T)

    def features(self, user: np.ndarray, item: np.ndarray, client: np.ndarray) -> np.ndarray:
        """Return the features float32 [P, 20] of pairs at clients, in common numbers.

        Of the user: edges, edges faded by 0.8 a stage, age of the last one, items, share of
        repeats, edges at the client. Of the item: edges, faded by 0.5, ages of the last and of the
        first one, users, share of repeats; edges at the client, faded by 0.5 and by 0.8. Of the
        pair: edges, faded by 0.8, age of the last one; the share of its edges in the user's, or,
        where nodes are of one kind, its edges in the other direction; and how alike the item is to
        those that the user met. Ages are in stages, infinite without an edge.
        """
        items, rows = self.rows.items, self.rows
        at = find(self.pair, user * items + item)
        there, here = at >= 0, client * items + item
        pair = [np.where(there, c[at], n) if len(c) else np.full(len(at), n)
                for c, n in zip(self.of_pair, (0, 0, np.inf), strict=True)]
        if rows.kind:
            other = pair[0] / np.maximum(self.of_user[0][user], 1)
        else:
            back = find(self.pair, item * items + user)
            other = np.where(back >= 0, self.of_pair[0][back], 0)
        # The sum over the user's items j but i is that over users v of i of what v and the user
        # have in common, sum_j 1 / sqrt(|users of j|), over sqrt(|users of i|); less 1 if it met i.
        who, place = np.unique(user, return_inverse=True)
        alike = np.empty(len(user), np.float32)
        order = np.argsort(place, kind="stable")
        step = max(2 ** 24 // rows.users, 1)
        for low in range(0, len(who), step):
            some = order[slice(*np.searchsorted(place[order], (low, low + step)))]
            common = (self.met[who[low:low + step]] @ sparse.diags(self.scale) @ self.of).toarray()
            alike[some] = _sums(common.astype(np.float32), place[some] - low, item[some],
                                self.of.indptr, self.of.indices)
        alike = np.maximum(alike * self.scale[item] - there, 0)
        return np.stack([*(c[user] for c in self.of_user),
                         self.own[client * rows.users + user], *(c[item] for c in self.of_item),
                         *(c[here] for c in self.of_here), *pair, other, alike],
                        1).astype(np.float32)

    def training(self, t: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return features and labels of the edges of stage ``t`` and of items drawn beside them."""
        rows, (users, items) = self.rows, (self.rows.users, self.rows.items)
        now = np.flatnonzero(rows.stage == t)
        code = (rows.client[now] * users + rows.user[now]) * items + rows.item[now]
        met = np.unique(code)
        asked = np.flatnonzero(self.known[rows.client[now] * items + rows.item[now]] > 0)
        draw = rng(seed, "trees", t)
        if len(asked) > MOST // STAGES:
            asked = np.sort(draw.choice(asked, MOST // STAGES, replace=False))
        own = np.repeat(asked, NEGATIVES)
        client, user = rows.client[now[own]], rows.user[now[own]]
        known = [np.flatnonzero(c) for c in self.known.reshape(-1, items)]
        width = np.array([len(k) for k in known])
        start = np.cumsum(width) - width
        drawn = (draw.random(len(own)) * width[client]).astype(int) + start[client]
        item = np.concatenate(known)[drawn] if len(own) else own
        other = (client * users + user) * items + item
        left = find(met, other) < 0
        if not rows.kind:
            left &= item != user
        pos = now[asked]
        pairs = [np.append(a, b[left]) for a, b in (
            (rows.user[pos], user), (rows.item[pos], item), (rows.client[pos], client))]
        return self.features(*pairs), np.arange(len(pairs[0])) < len(pos)


def pooled(experiment: Experiment) -> dict[str, Any]:
    """Return the test period's means of the pooled model over clients, and over all queries.

    The keys are ``mean``, ``mean_edges`` (scores by name) and ``seconds_cpu``. Data, split, seed
    and protocol are those of ``experiment``; its method does not count. Raises
    :class:`FedvineError` where LightGBM is not installed.
    """
    try:
        lightgbm: Any = importlib.import_module("lightgbm")
    except ImportError as error:
        raise FedvineError("LightGBM is not installed: pip install 'fedvine[trees]'.") from error
    warnings.filterwarnings("ignore", message="Changing the sparsity structure")
    _, split, plan = experiment.open()
    protocol = experiment.protocol.settled(split.parts, plan)
    rows, seed, spent = Rows(split, plan), experiment.seed, 0.0
    asks = [protocol.scorer(part, plan, name, seed) for name, part in split.parts.items()]
    sets: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    stages = []
    for t in range(1, len(plan)):
        begun = time.process_time()
        if all(plan.period(s) != "test" for s in range(t, min(t + STAGES + 1, len(plan)))):
            continue
        state, found = State(rows, t), {}
        if plan.period(t) == "test":
            spent += time.process_time() - begun
            begun = time.process_time()
            x, y = (np.concatenate(c) for c in zip(*(
                sets[s] for s in sorted(sets)[-STAGES:]), strict=True))
            model = Model(lightgbm.train(
                {**TREES, "seed": seed}, lightgbm.Dataset(x, y), ROUNDS))
            spent += time.process_time() - begun
            for client, (name, ask) in enumerate(zip(split.parts, asks, strict=True)):
                queries = ask.queries(t)
                begun = time.process_time()
                user, item = (of[ends] for of, ends in zip(
                    rows.of[client], (queries.src, queries.dst), strict=True))
                answer = [model.predict(state.features(
                    user[i:i + BLOCK], item[i:i + BLOCK], np.full(len(user[i:i + BLOCK]), client)))
                    for i in range(0, len(user), BLOCK)]
                spent += time.process_time() - begun
                found[name] = ask.measure(t, np.concatenate([np.empty(0), *answer]))
            stages.append(StageScores(t - 1, {t: found}))
        begun = time.process_time()
        sets[t] = state.training(t, seed)
        spent += time.process_time() - begun
    test = protocol.means(stages, plan)
    return {"mean": test["mean"], "mean_edges": test.get("mean_edges", {}), "seconds_cpu": spent}
