"""Replicates of scores: a slow obvious bootstrap, the same weights for all, known distributions."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvine.core.rng import rng
from fedvine.tasks import metrics
from fedvine.tasks.metrics import period_means, replicate_aucs, replicate_means, replicate_weights


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=9),
       st.integers(0, 1000))
@settings(max_examples=60)
def test_weighted_auc_is_that_of_the_repeated_queries(scores, seed):
    positive, negative = np.array(scores, float).T
    weight = rng(seed, "weights").integers(0, 4, (3, len(scores)))
    for found, w in zip(replicate_aucs(positive, negative, weight), weight, strict=True):
        slow = metrics.auc(np.repeat(positive, w), np.repeat(negative, w))
        assert found == pytest.approx(slow, nan_ok=True)


def test_weighted_means_are_those_of_the_repeated_queries():
    draw = rng(1, "means")
    values, many = draw.random(20), draw.integers(0, 3, (50, 20))
    many[7] = 0
    for b, found in enumerate(replicate_means(values, many)):
        assert found == pytest.approx(np.repeat(values, many[b]).mean() if b != 7 else np.nan,
                                      nan_ok=True)


def test_a_user_has_one_weight_in_a_replicate_wherever_it_is_asked():
    users = rng(2, "users").integers(0, 2**63, 40).astype(np.uint64)
    found = replicate_weights(users, 30)
    assert found.dtype == np.uint8 and found.shape == (30, 40)
    some = np.array([3, 3, 39, 0])
    assert (replicate_weights(users[some], 30) == found[:, some]).all()   # whoever else is there
    assert (replicate_weights(users, 10) == found[:10]).all()             # and how many replicates


def stage(t, **clients):
    return SimpleNamespace(t=t, found={t: clients})


def result(n, values, score="auc"):
    return {"n": {"n": 1}, "scores": {score: 0.5},
            "replicates": {"n": {"n": np.array(n)}, "scores": {score: np.array(values)}}}


PLAN = SimpleNamespace(period=lambda t: "val" if t == 0 else "test")


def test_a_run_is_averaged_over_stages_then_over_clients():
    stages = [stage(0, ada=result([9, 9], [9.0, 9.0])),
              stage(1, ada=result([1, 3], [0.2, 0.4]), bob=result([2, 0], [0.6, np.nan])),
              stage(2, ada=result([3, 1], [0.6, 0.8]))]
    ada = [(0.2 + 3 * 0.6) / 4, (3 * 0.4 + 0.8) / 4]
    found = period_means(stages, PLAN, lambda _: "n", {"auc": ["ada", "bob"]})
    assert found["auc"] == pytest.approx([(ada[0] + 0.6) / 2, ada[1]])
    whole = period_means(stages, PLAN, lambda _: "n", {"auc": []})      # the mean over queries
    assert whole["auc"] == pytest.approx([(0.2 + 1.8 + 1.2) / 6, ada[1]])
    del stages[2].found[2]["ada"]["replicates"]                         # of a run that was resumed
    assert period_means(stages, PLAN, lambda _: "n", {"auc": ["ada"]}) == {}


def test_it_agrees_with_a_slow_obvious_bootstrap():
    """Two clients, two stages, users with several queries: draw users, repeat rows, score, mean."""
    draw = rng(5, "slow")
    data = {(t, c): (draw.integers(0, 30, 80), draw.normal(0.6, 1, 80), draw.normal(0, 1, 80))
            for t in (1, 2) for c in ("ada", "bob")}

    def run(weight):
        """The mean over clients of the mean over stages; ``weight`` [users]."""
        means = []
        for c in ("ada", "bob"):
            total = count = 0.0
            for t in (1, 2):
                users, high, low = data[t, c]
                many = weight[users]
                total += metrics.auc(np.repeat(high, many), np.repeat(low, many)) * many.sum()
                count += many.sum()
            means.append(total / count)
        return np.mean(means)

    B, made = 300, []
    for t in (1, 2):
        by = {}
        for c in ("ada", "bob"):
            users, high, low = data[t, c]
            w = replicate_weights(users.astype(np.uint64), B)
            by[c] = result(w.sum(1), replicate_aucs(high, low, w))
        made.append(stage(t, **by))
    found = period_means(made, PLAN, lambda _: "n", {"auc": ["ada", "bob"]})["auc"]
    w = replicate_weights(np.arange(30, dtype=np.uint64), B)
    assert found == pytest.approx([run(w[b]) for b in range(B)])
    slow = [run(np.bincount(draw.integers(0, 30, 30), minlength=30)) for _ in range(600)]
    assert np.std(found) == pytest.approx(np.std(slow), rel=0.15)
    assert np.mean(found) == pytest.approx(np.mean(slow), abs=0.01)
