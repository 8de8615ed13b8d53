"""Measures of classes: equal to scikit-learn's, ties by their mean, sums over clients, bounds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as theirs

from fedvine.core.errors import Refused
from fedvine.core.expect import check
from fedvine.core.rng import rng
from fedvine.data.graph import Graph
from fedvine.federation.policy import coarse_scores
from fedvine.tasks import class_measures as ours
from fedvine.tasks.class_incremental import ClassIncremental
from fedvine.tasks.task_plan import by_task


def answers(seed, count=60, classes=4, equal=False):
    draw = rng("classes", seed)
    y = draw.integers(0, classes, count)
    scores = draw.normal(size=(count, classes)) + np.eye(classes)[y]
    return y, np.round(scores) if equal else scores


def by_hand(y, scores):
    """The confusion matrix, one node and one class at a time."""
    found = np.zeros((scores.shape[1], scores.shape[1]))
    for true, row in zip(y, scores, strict=True):
        best = [c for c in range(len(row)) if row[c] == max(row)]
        for c in best:
            found[true, c] += 1 / len(best)
    return found


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 999), st.integers(1, 40), st.integers(2, 6), st.booleans())
def test_equal_scores_count_by_their_share(seed, count, classes, equal):
    y, scores = answers(seed, count, classes, equal)
    matrix = ours.confusion(y, ours.shares(scores))
    np.testing.assert_allclose(matrix, by_hand(y, scores))
    order = rng("order", seed).permutation(classes)         # the classes' numbers do not matter
    moved = ours.confusion(np.argsort(order)[y], ours.shares(scores[:, order]))
    np.testing.assert_allclose(moved, matrix[np.ix_(order, order)])
    assert ours.overall(moved) == pytest.approx(ours.overall(matrix))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 999), st.integers(8, 60), st.integers(2, 6))
def test_without_ties_they_are_those_of_scikit_learn(seed, count, classes):
    y, scores = answers(seed, count, classes)
    named, p = scores.argmax(1), ours.softmax(scores)
    found = ours.summed([ours.measured(y, scores)])
    every, nan = found["class"], float("nan")
    assert set(every) == {*y.tolist(), *named.tolist()}
    assert found["confusion"] == [[((y == a) & (named == b)).sum() for b in every] for a in every]
    options = {"labels": every, "average": None, "zero_division": nan}
    for key, score in (("precision", theirs.precision_score), ("recall", theirs.recall_score),
                       ("f1", theirs.f1_score)):
        np.testing.assert_allclose([nan if v is None else v for v in found[key]],
                                   score(y, named, **options))
    for c, ap, n in zip(every, found["ap"], found["n"], strict=True):
        if 0 < n < count:
            assert ap == pytest.approx(theirs.average_precision_score(y == c, p[:, c]))
        else:
            assert ap is None
    made = ours.scalars(found)
    assert made["accuracy"] == pytest.approx(theirs.accuracy_score(y, named))
    assert made["f1_macro"] == pytest.approx(theirs.f1_score(y, named, average="macro"))
    wide = np.concatenate([scores, np.full((count, 1), -99.0)], 1)      # a class that is nowhere
    assert ours.overall(ours.confusion(y, ours.shares(wide))) == pytest.approx(
        {key: made[key] for key in ("accuracy", "f1_macro", "balanced")})
    assert made["balanced"] == pytest.approx(np.mean(
        [(named[y == c] == c).mean() for c in np.unique(y)]))


def test_the_calibration_error_is_that_of_its_definition():
    y, scores = answers(3, 400)
    p = ours.softmax(scores)
    error = 0.0
    for low in np.arange(10) / 10:
        here = (p.max(1) >= low) & (p.max(1) < low + 0.1)
        if here.any():
            error += here.mean() * abs((p.argmax(1) == y)[here].mean() - p.max(1)[here].mean())
    assert ours.scalars(ours.summed([ours.measured(y, scores)]))["ece"] == pytest.approx(error)
    sure = np.where(np.eye(4)[y] > 0, 50.0, 0.0)             # right, and sure of it
    assert ours.scalars(ours.summed([ours.measured(y, sure)]))["ece"] == pytest.approx(0, abs=1e-9)
    wrong = np.roll(sure, 1, axis=1)
    assert ours.scalars(ours.summed([ours.measured(y, wrong)]))["ece"] == pytest.approx(1)


def test_measures_of_all_clients_are_those_of_the_sums():
    parts = [answers(seed, count) for seed, count in ((1, 10), (2, 90), (3, 41))]
    found = ours.summed([ours.measured(*part) for part in parts])
    whole = ours.summed([ours.measured(*map(np.concatenate, zip(*parts, strict=True)))])
    assert {k: v for k, v in found.items() if k not in ("ap", "bins")} == {
        k: v for k, v in whole.items() if k not in ("ap", "bins")}
    np.testing.assert_allclose(found["bins"], whole["bins"])
    for i, c in enumerate(found["class"]):      # of the ranking each client has its own
        own = [(theirs.average_precision_score(y == c, ours.softmax(s)[:, c]), (y == c).sum())
               for y, s in parts]
        assert found["ap"][i] == pytest.approx(sum(v * n for v, n in own) / sum(
            n for _, n in own))
    assert ours.summed([]) == ours.scalars({}) == {}


def test_the_commonest_class_is_that_of_the_training_nodes():
    y = np.array([0, 0, 1, 2, 2, 2])
    assert ours.commonest([5, 9, 2], y) == pytest.approx(1 / 6)
    assert ours.commonest([5, 5, 2], y) == pytest.approx(3 / 12)    # classes 0 and 1 alike
    graph = Graph.make(np.zeros((400, 1)), np.zeros((2, 0)), np.repeat([0, 1, 2, 3], [40, 60, 200,
                                                                                      100]))
    scorer = ClassIncremental().scorer(graph, by_task(graph, 2, orders="same", seed=5), "a", 0)
    for learned in (0, 1):
        scorer.learned = learned
        known = scorer.plan.past(graph, learned).y
        top = np.bincount(known[known >= 0]).argmax()
        for t in range(learned + 1):
            asked = scorer.queries(t)
            _, _, classes, test = scorer.plan.held_out(graph, t)
            found = scorer.measure(t, np.zeros((len(asked), 4)))
            assert found["scores"]["common"] == pytest.approx((classes[test] == top).mean())


def sent():
    y, scores = answers(7, 50, equal=True)
    return {"n": {"n": 50, "n_val": 0}, "scores": {"accuracy": 0.5},
            "classes": ours.measured(y, scores)}


def test_what_a_client_sends_is_bounded():
    expect = ClassIncremental.measured
    check(sent(), expect)

    def changed(change):
        found = sent()
        change(found["classes"])
        return found

    def row(c):
        return next(iter(c["confusion"].values()))

    for change in (lambda c: c.pop("ap"), lambda c: c.update(names=["secret"]),
                   lambda c: c["confusion"].update({"Ada": {"0": 1.0}}),
                   lambda c: row(c).update({"-1": 1.0}), lambda c: row(c).update({"0": -1.0}),
                   lambda c: row(c).update({"0": float("nan")}),
                   lambda c: row(c).update({"3": 49.0}), lambda c: c["ap"].update({"0": 1.5}),
                   lambda c: c["bins"].update({"11": [1.0, 1.0, 1.0]}),
                   lambda c: c["bins"].update({"1": [1.0, 2.0, 0.0]}),
                   lambda c: c["bins"].update({"1": [50.0, 2.0, 0.0]}),
                   lambda c: c["bins"].update({"1": [1.0]})):
        with pytest.raises(Refused):
            check(changed(change), expect)
    from fedvine.tasks.link_prediction import LinkPrediction
    with pytest.raises(Refused):
        check(sent(), LinkPrediction.measured)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 999), st.integers(1, 200), st.sampled_from([2, 10, 25]))
def test_a_site_sends_multiples_of_its_grain(seed, count, grain):
    y, scores = answers(seed, count, 5, equal=seed % 2 == 0)
    whole = {"n": {"n": count, "n_val": 0}, "scores": {"accuracy": 0.5},
             "classes": ours.measured(y, scores)}
    found = coarse_scores(whole, grain)
    assert ("classes" in found) == (count >= grain)
    if count < grain:
        return
    check(found, ClassIncremental.measured)
    exact, coarse = whole["classes"], found["classes"]
    for c, row in exact["confusion"].items():
        for k, cell in row.items():
            kept = coarse["confusion"].get(c, {}).get(k, 0)
            assert kept % grain == 0 and kept <= cell < kept + grain
            assert kept or c not in coarse["confusion"] or k not in coarse["confusion"][c]
    for c in coarse["ap"]:
        assert grain <= (y == int(c)).sum() <= count - grain
    for b, (n, p, right) in coarse["bins"].items():
        assert n >= grain and n % grain == 0
        assert [p / n, right / n] == pytest.approx([v / exact["bins"][b][0]
                                                    for v in exact["bins"][b][1:]])
