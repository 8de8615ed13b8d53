"""What ``power_plus`` chooses for itself: opinions about a node, their weights, and the counts.

A node's score of class c, with E = mean(diag G) lambda of the closed form, is

    closed_c + rows alike_c + net log p_c                                                     (d)

where closed is h W, alike the cosine of u and the mean row of class c, both averaged ``steps``
times over neighbours and in units of their spread over classes, and p are the network's
probabilities. Of two classes the spread would leave +1 and -1 of every node, so there the unit is
that of the classes' mean rows, the same for all nodes. A :class:`Trial` is one choice of all this.

Each fold of labelled nodes is answered by sums without it, and clients count right answers of all
trials. Of the network, which has seen most nodes, only the answers for nodes that it has not seen
count. Answers are noisy: a trial must win by more, the farther it is from the usual one. Then each
client chooses its own correction of the closed form, :mod:`fedvine.methods._power_plus.own_sums`.
At last the probabilities of each fold's nodes are counted, from which thresholds of classes follow
(:func:`fedvine.tasks.class_measures.thresholds`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from fedvine.aggregate.noise import from_fixed, to_fixed
from fedvine.core.clients import Clients
from fedvine.core.expect import Flag
from fedvine.core.method import Client, Field, Server, World, on_client
from fedvine.core.rng import rng
from fedvine.data.graph import Graph
from fedvine.methods._power_plus import own_sums, prior
from fedvine.methods._power_plus.closed_form import ClosedForm
from fedvine.methods._power_plus.prior import UNKNOWN, Level
from fedvine.methods._power_plus.products import folded
from fedvine.methods._power_plus.propagation import means
from fedvine.tasks.class_incremental import NodeQueries
from fedvine.tasks.class_measures import GRID, histograms, softmax

RIDGES = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01)
STEPS = (2, 0)
ROWS = (0.5, 0.0, 1.0, 2.0)
NETS = (0.2, 0.0, 0.5, 1.0)
# What is chosen by answers, not summed over rows: in ``server.closed``, and of a client.
CHOSEN = ("right", "held", "tried", "unseen", "chosen", "levels", "level", "held back", "known")
OF_CLIENT = ("right", "tried", "correction", "alone", "against")
UNSEEN = 8          # one labelled node in so many judges the network, which does not learn from it


class Trial(NamedTuple):
    """One way to answer.

    - ``own``: the regression has the node's own features v beside u
    - ``steps``: averages of scores over neighbours
    - ``ridge``: lambda
    - ``rows``, ``net``: weights of the other two opinions; the closed form's is 1
    """

    own: bool
    steps: int
    ridge: float
    rows: float
    net: float


@lru_cache
def trials(rows: bool, net: bool) -> list[Trial]:
    """Return all trials; the first is the usual one. Without an opinion its weight is 0."""
    ridges = sorted(RIDGES, key=lambda ridge: ridge != 0.3)
    return [Trial(*values) for values in product(
        (True, False), STEPS, ridges, ROWS if rows else (0.0,), NETS if net else (0.0,))]


def opinions(h: np.ndarray, near: csr_matrix, weight: np.ndarray, rows: np.ndarray, steps: int
             ) -> tuple[np.ndarray, np.ndarray]:
    """Compute closed and alike of all nodes, float32 [N, C] both, of Eq. (d).

    Args:
        h: rows of Eq. (a), float32 [N, D].
        near: averages over neighbours, [N, N].
        weight: W [D, C]; with fewer rows it uses the first columns of ``h`` alone.
        rows: mean rows of length 1, [columns of u, C]; 0 for classes that are not known.
        steps: averages of scores over neighbours.

    Returns:
        closed and alike; closed is :data:`UNKNOWN` for classes that are not known.
    """
    known = np.asarray(rows.any(0))
    closed, alike = h[:, :len(weight)] @ weight, h[:, :len(rows)] @ rows
    units = [typical(rows.T @ of[:len(rows)], known) for of in (weight, rows)]
    alike = spread(alike, known, units[1])
    for _ in range(steps):
        closed, alike = near @ closed, near @ alike
    return np.where(known, spread(closed, known, units[0]), UNKNOWN).astype(np.float32), alike


def typical(scores: np.ndarray, known: np.ndarray) -> float | None:
    """Return the spread of the scores [C, C] of two classes' mean rows; None of more classes."""
    return float(scores[np.ix_(known, known)].std(1).mean()) if known.sum() == 2 else None


def spread(scores: np.ndarray, known: np.ndarray, unit: Any = None) -> np.ndarray:
    """Return scores [N, C] less their mean over the known classes, in units of their spread.

    ``unit`` takes the place of each node's own spread.
    """
    if not known.any():
        return np.zeros_like(scores)
    found = scores - scores[:, known].mean(1, keepdims=True)
    if unit is None:
        unit = np.sqrt((found[:, known] ** 2).mean(1, keepdims=True))
    return np.where(known, found / np.maximum(unit, 1e-6), 0).astype(np.float32)


def penalty(trial: Trial, usual: Trial) -> float:
    """Return how far a trial is from the usual one; the network's weight is not counted."""
    return ((trial.own != usual.own) + (trial.steps != usual.steps)
            + abs(np.log(trial.ridge / usual.ridge)) / np.log(9) + abs(trial.rows - usual.rows))


def best(every: list[Trial], right: np.ndarray, held: np.ndarray, tried: int, unseen: int) -> int:
    """Return the position of the trial to answer by.

    First all but the network's weight is chosen, by ``right`` answers [T] of trials without the
    network to ``tried`` nodes, then this weight, by right answers ``held`` [T] to the ``unseen``
    nodes that it was not trained on. A step away from the usual trial must win by a fifth of a
    standard error of a count, one of the network's weight by a whole one.
    """
    usual = every[0]
    alone = [i for i, t in enumerate(every) if t.net == 0]
    margin = 0.2 * error(float(right[alone].max()), tried)
    first = max(alone, key=lambda i: right[i] - margin * penalty(every[i], usual))
    same = [i for i, t in enumerate(every) if t[:-1] == every[first][:-1]]
    margin = error(float(held[same].max()), unseen)
    return max(same, key=lambda i: held[i] - margin * (every[i].net != usual.net))


def error(right: float, tried: int) -> float:
    """Return the standard error of a count of right answers among ``tried``, at least 1."""
    share = right / max(tried, 1)
    return float(np.sqrt(max(tried * share * (1 - share), 1)))


class Choosing(ClosedForm):
    """Base of a method that chooses a trial after each task; ``server.closed`` has the counts.

    A client has those of its own correction: ``right`` [1 + MUS] of ``tried`` nodes, and whether
    it answers ``alone``.
    """

    fallback: bool = Field(default=True, description="a client whose nodes of the newest task are "
                           "answered worse by the sums of all than by its own answers by its own; "
                           "needs personal")
    by: prior.By = Field(default="accuracy", description="what the class prior is chosen by: right "
                         "answers, their mean share over classes, or the log loss")

    def setup(self, client: Client) -> None:
        super().setup(client)
        self.begin_counts(client)

    def begin_counts(self, client: Client) -> None:
        """Set the counts of right answers to 0, and choose no correction."""
        client.right = np.zeros(1 + len(own_sums.MUS), np.int64)
        client.tried, client.correction, client.alone = 0, 0, False
        client.against = np.zeros((2, 3))

    def trials(self) -> list[Trial]:
        """Return all trials; the first is used without a choice."""
        raise NotImplementedError

    def nothing(self, world: World) -> dict[str, Any]:
        none, C = np.zeros(len(self.trials()), np.int64), world.facts["classes"]
        return {**super().nothing(world), "right": none, "held": none, "tried": 0, "unseen": 0,
                "chosen": 0, "levels": prior.nothing(C), "level": list(Level()),
                "shares": np.zeros(C), "held back": np.zeros((2, C, len(GRID) + 1)),
                "known": np.zeros(0, np.int64)}

    def solve(self, server: Server, world: World) -> None:
        """Compute the weights and rows to answer by, as the chosen trial has them."""
        held, trial = server.closed, self.trials()[server.closed["chosen"]]
        W, held["rows"] = self.fitted(held, self.form(world), list(range(self.folds)), trial.own,
                                      (trial.ridge,))
        held["weight"] = W[0]

    def choose(self, server: Server, clients: Clients) -> None:
        """Choose a trial by the right answers to each fold without it, over all tasks so far."""
        if self.folds == 1:
            return
        held, form, every = server.closed, self.form(clients.world), self.trials()
        others = [[g for g in range(self.folds) if g != f] for f in range(self.folds)]
        own, near = ([self.fitted(held, form, fs, columns, RIDGES) for fs in others]
                     for columns in (True, False))
        without = {"own": [W for W, _ in own], "near": [W for W, _ in near],
                   "rows": [rows for _, rows in own]}
        model = server.model if self.answers == "global" and self.rounds else None
        T = len(every)
        total, _ = clients.sum(self.judge, model, without, held["order"], held["scale"],
                               length=2 * T + 2)
        right, seldom, sizes = np.split(total.view(np.int64), [T, 2 * T])
        held["right"], held["held"] = held["right"] + right, held["held"] + seldom
        held["tried"] += int(sizes[0])
        held["unseen"] += int(sizes[1])
        held["chosen"] = best(every, held["right"], held["held"], held["tried"], held["unseen"])
        self.solve(server, clients.world)
        chosen = every[held["chosen"]]
        kept, lam = without["own" if chosen.own else "near"], RIDGES.index(chosen.ridge)
        folds = {"weight": [W[lam] for W in kept], "rows": without["rows"]}
        held["shares"] = prior.log_shares(np.asarray(server.counts, float))
        found, _ = clients.sum(self.answers_to_folds, self.told(server), folds,
                               length=held["levels"].size)
        held["levels"] = prior.FADE * held["levels"] + from_fixed(found).reshape(
            held["levels"].shape)
        held["level"] = list(prior.chosen(held["levels"], self.by))
        if self.corrects:
            found = clients.call(self.adapt, self.told(server), folds, expect=Flag())
            for name in (name for name, alone in found.items() if alone):
                server.alone = {**server.alone, name: server.alone.get(name, 0) + 1}
        known = np.flatnonzero(np.asarray(server.counts) > 0)
        if len(known) > len(held.get("known", known)):      # probabilities are now among more
            stays = ~np.isin(np.arange(len(server.counts)), held["known"])
            held["held back"] = held["held back"] * stays[:, None]
        held["known"] = known
        found, _ = clients.sum(self.probable, self.told(server), folds,
                               length=held["held back"].size)
        held["held back"] = held["held back"] + from_fixed(found).reshape(held["held back"].shape)

    def held_back(self, server: Server) -> np.ndarray | None:
        found = (vars(server).get("closed") or {}).get("held back")
        if found is None:
            return None
        many = np.asarray(server.counts, float)
        sums = found.sum(2, keepdims=True)
        return found / np.maximum(sums, 1) * np.stack([many, many.sum() - many])[:, :, None]

    def told(self, server: Server) -> dict[str, Any] | None:
        """Return what a client needs to answer by the closed form; None without one."""
        if not vars(server).get("closed"):
            return None
        held = server.closed
        return {"weight": held["weight"], "rows": held["rows"], "order": held["order"],
                "scale": held["scale"], "trial": list(self.trials()[held["chosen"]]),
                "level": held["level"], "shares": held["shares"]}

    @on_client(combined="sum")
    def judge(self, client: Client, model: Any, without: dict[str, Any], order: np.ndarray,
              scale: float) -> np.ndarray:
        """Count right answers to each fold by sums ``without`` it, uint64 [2 T + 2].

        They are those of each trial to all labelled nodes, and to those that the network has not
        seen, then the numbers of both.
        """
        graph, fold, y = client.stage, self.fold(client), self.shared(client)
        if not self.aggregate.enough(int((fold >= 0).sum())):
            return np.zeros(2 * len(self.trials()) + 2, np.uint64)
        h, near = self.form(client.world).rows(graph, order, scale), means(graph)
        unseen, net = self.unseen(client), self.network(client, model, graph)
        client.cache["net"] = client.place[0], net
        found = np.zeros((2, len(self.trials())), np.int64)
        for f in range(self.folds):
            nodes, kept = np.flatnonzero(fold == f), {}
            for i, trial in enumerate(self.trials()):
                if trial[:3] not in kept:
                    W = without["own" if trial.own else "near"][f][RIDGES.index(trial.ridge)]
                    kept[trial[:3]] = [a[nodes] for a in opinions(
                        h, near, W, without["rows"][f], trial.steps)]
                closed, alike = kept[trial[:3]]
                scores = closed + trial.rows * alike + trial.net * net[nodes]               # (d)
                right = scores.argmax(1) == y[nodes]
                found[:, i] += right.sum(), right[unseen[nodes]].sum()
        counted = [*found.ravel(), (fold >= 0).sum(), unseen.sum()]
        return np.array(counted, np.int64).view(np.uint64)

    @on_client(combined="sum")
    def answers_to_folds(self, client: Client, closed: dict[str, Any], without: dict[str, Any]
                         ) -> np.ndarray:
        """Return the sums that the class prior and the temperature follow from, uint64.

        Each fold is answered by the sums ``without`` it, as :meth:`adapt` has them, and by the
        network where it has not seen the node: a rare class may have no such node.
        """
        total = prior.nothing(client.world.facts["classes"])
        for y, scores in self.scored_folds(client, closed, without, own=False):
            total += prior.judged(scores.astype(float), y, closed["shares"])                # (f)
        return to_fixed(total.ravel())

    @on_client(combined="sum")
    def probable(self, client: Client, closed: dict[str, Any], without: dict[str, Any]
                 ) -> np.ndarray:
        """Return histograms of the classes' probabilities, [2, C, 98] as one vector, uint64.

        Each fold is answered as in :meth:`answers_to_folds`, with the client's correction.
        """
        total = np.zeros((2, client.world.facts["classes"], len(GRID) + 1))
        for y, scores in self.scored_folds(client, closed, without, own=True):
            odds = prior.levelled(scores, Level(*closed["level"]), closed["shares"])
            known = odds.max(0, initial=UNKNOWN) > UNKNOWN / 2
            total[:, known] += histograms(y, softmax(odds))[:, known]
        return to_fixed(total.ravel())

    def scored_folds(self, client: Client, closed: dict[str, Any], without: dict[str, Any],
                     own: bool) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield classes int [n] and scores [n, C], Eq. (d), of each fold by sums without it.

        None where the client has too few nodes for a sum. ``own``: by its correction, or alone.
        """
        graph, fold, y, trial = (client.stage, self.fold(client), self.shared(client),
                                 Trial(*closed["trial"]))
        if not self.aggregate.enough(int((fold >= 0).sum())):
            return
        h = self.form(client.world).rows(graph, closed["order"], closed["scale"])
        near, alone = means(graph), own and client.alone
        t, net = client.cache.get("net", (-1, None))    # none where the client missed that call
        net = np.where(self.unseen(client)[:, None], trial.net * net, 0.0) if (
            t == client.place[0] and not alone) else np.zeros((len(y), 1))
        for f in range(self.folds):
            nodes, W, rows = np.flatnonzero(fold == f), without["weight"][f], without["rows"][f]
            others = [g for g in range(self.folds) if g != f]
            if alone:
                W, rows = own_sums.alone(self.own(client), others, len(W), len(rows))
            elif own and client.correction:
                mu = own_sums.MUS[client.correction - 1]
                W = own_sums.corrected(W, self.own(client), others, [mu])[0]                # (e)
            found, alike = opinions(h, near, W, rows, trial.steps)
            yield y[nodes], (found + trial.rows * alike + net)[nodes]                       # (d)

    @on_client
    def adapt(self, client: Client, closed: dict[str, Any], without: dict[str, Any]) -> bool:
        """Choose mu of Eq. (e) by right answers to each fold without it.

        ``closed`` is what the client answers by, ``without`` has the chosen trial's weights and
        rows of each fold. Right answers of all tasks so far count; whether the client answers
        alone goes by those of the newest ones, and is returned but under masks.
        """
        graph, fold, y, trial = (client.stage, self.fold(client), self.shared(client),
                                 Trial(*closed["trial"]))
        h = self.form(client.world).rows(graph, closed["order"], closed["scale"])
        near, held = means(graph), self.own(client)
        right = np.zeros_like(client.right)
        answered = np.zeros((len(right), len(y)), bool)     # rightly: by each correction,
        by_own = np.zeros(len(y), bool)                     # and without the others
        t, net = client.cache.get("net", (-1, None))
        for f in range(self.folds):
            nodes, W = np.flatnonzero(fold == f), without["weight"][f]
            others = [g for g in range(self.folds) if g != f]
            for i, V in enumerate([W, *own_sums.corrected(W, held, others, own_sums.MUS)]):
                found, alike = opinions(h, near, V, without["rows"][f], trial.steps)
                scores = (found + trial.rows * alike)[nodes]
                right[i] += int((scores.argmax(1) == y[nodes]).sum())
                if trial.net and t == client.place[0]:
                    scores = scores + trial.net * net[nodes]                                # (d)
                answered[i, nodes] = scores.argmax(1) == y[nodes]
            if self.fallback:
                V, rows = own_sums.alone(held, others, len(W), near=len(without["rows"][f]))
                found, alike = opinions(h, near, V, rows, trial.steps)
                by_own[nodes] = (found + trial.rows * alike)[nodes].argmax(1) == y[nodes]
        client.right, client.tried = client.right + right, client.tried + int((fold >= 0).sum())
        client.correction = own_sums.best(client.right, error(client.right.max(), client.tried))
        for i, of in enumerate((0, client.correction)):
            client.against[i] = own_sums.against(answered[of], by_own, client.against[i])
        client.alone = own_sums.worse(*client.against)
        client.sums["alone"] = client.alone
        return client.alone and not self.hides      # a bit of this client's own nodes

    def weight(self, client: Client, W: np.ndarray) -> np.ndarray:
        """Return W_k of Eq. (e), or ``W`` [D', C] where the client has chosen no correction."""
        place = vars(client).get("correction", 0)
        if not place or not self.corrects:
            return W
        kept = client.cache.get("weight")
        if kept is None or kept[0] != place or not np.array_equal(kept[1], W):
            mu = own_sums.MUS[place - 1]
            found = own_sums.corrected(W, self.own(client), range(self.folds), [mu])[0]     # (e)
            client.cache["weight"] = kept = place, W, found
        return kept[2]

    def unseen(self, client: Client) -> np.ndarray:
        """Return which nodes of the task the network does not learn from, bool [N]."""
        y = self.shared(client)
        if not self.width or not self.rounds or self.folds == 1:
            return np.zeros(len(y), bool)
        many = np.bincount(y[y >= 0], minlength=1) >= UNSEEN
        drawn = folded(y, UNSEEN, rng(client.world.seed, client.name, client.place[0], "unseen"))
        return (drawn == 0) & many[np.where(drawn == 0, y, 0)]

    def network(self, client: Client, model: Any, graph: Graph) -> np.ndarray:
        """Compute the network's log probabilities of all nodes, [N, C]; 0 without rounds."""
        if not self.rounds:
            return np.zeros((len(graph), client.world.facts["classes"]), np.float32)
        every = NodeQueries(graph, np.arange(len(graph)))
        return ClosedForm.predict(self, client, model, every).log_softmax(1).numpy()
