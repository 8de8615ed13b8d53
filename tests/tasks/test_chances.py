"""Probabilities of what is listed: counts by a loop, known rates, and runs that learn them."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from hypothesis.extra.numpy import arrays

import fedvine as fv
from fedvine.data.stream import EventStream
from fedvine.federation.policy import coarse_scores
from fedvine.tasks import chances
from fedvine.tasks.link_tables import _chances
from fedvine.testing import tiny_stream


@given(arrays(float, (4, 6), elements=some.sampled_from([-np.inf, -40.0, -0.3, 0.2, 0.3, 7.0])),
       arrays(bool, (4, 6)), some.integers(1, 8))
def test_counts_are_those_of_a_loop_over_lists(scores, met, k):
    expected = {}
    for row, came in zip(scores, met, strict=True):
        best = sorted(range(6), key=lambda i: -row[i])[:k]
        for place, i in enumerate(best, 1):
            if row[i] > -np.inf:
                score = max(min(round(row[i] / chances.STEP), chances.ENDS), -chances.ENDS)
                for key in (f"score {score}", f"place {place}"):
                    n, m = expected.get(key, (0, 0))
                    expected[key] = [n + 1, m + int(came[i])]
    assert chances.counted(scores, met, k) == expected


def drawn(draw, users=400):
    """Lists of users whose pairs meet with the probability of half their score, as log odds."""
    scores = draw.normal(-1, 2, (users, 12))
    met = draw.random(scores.shape) < 1 / (1 + np.exp(-scores / 2))
    return {"parts": chances.counted(scores, met, 10)}


def test_probabilities_are_the_rates_that_pairs_meet_with():
    draw, found = np.random.default_rng(0), chances.Chances()
    for _ in range(8):
        found.add({"a": drawn(draw), "few": drawn(draw, 3)})
    s = np.linspace(-3, 3, 13)
    for name, off in (("a", 0.04), ("few", 0.1), ("another", 0.04)):   # that has those of all
        p = found.probabilities(name, s)
        assert (np.diff(p) >= 0).all() and p == pytest.approx(1 / (1 + np.exp(-s / 2)), abs=off)
    assert np.isnan(chances.Chances().probabilities("a", s)).all()


def test_what_was_said_is_compared_with_what_was_met():
    draw = np.random.default_rng(1)
    stages = [SimpleNamespace(t=t, found={t + 1: {"a": drawn(draw)}}) for t in range(12)]
    assert chances.reliability(stages[:1], lambda t, s: True) is None      # nothing was said yet
    found = chances.reliability(stages, lambda t, s: t >= 4)
    n, said, met = np.array(found["bins"]).T
    assert n.sum() == 8 * 400 * 10 and found["loss"] < found["loss_places"] - 0.01
    assert (np.abs(said - met)[n > 500] < 0.03 * n[n > 500]).all()


@pytest.mark.parametrize("directed", [True, False])
def test_a_run_learns_them_and_its_forecasts_have_them(directed, tmp_path):
    stream = tiny_stream()
    if not directed:        # among users alone
        stream = EventStream(stream.src, stream.dst, stream.t, stream.src_ids).with_direction(False)
    made = {n: fv.run(fv.FedLinkPlus.tiny(), stream.split("hash", k=2), stream.by_count(60),
                      protocol=fv.LinkPrediction(negatives=5, chances=n), seed=1,
                      out=tmp_path / f"{n}").finish() for n in (0, 5)}
    assert made[5].scores["test"]["client"] == made[0].scores["test"]["client"]
    assert sum(n for n, _, _ in made[5].scores["test"]["chances"]["bins"]) > 0
    asked = fv.open_run(tmp_path / "5")
    client = asked.clients[0]
    found = fv.Forecasts(made[5]).top(client, made[5].parts[client].src_ids[0], 4)
    assert found == asked.predict(client, made[5].parts[client].src_ids[0], 4)
    p = [one.probability for one in found]
    assert p == sorted(p, reverse=True) and 0 < p[-1] <= p[0] < 1
    plain = fv.Forecasts(made[0]).top(client, made[0].parts[client].src_ids[0])
    assert plain[0].probability is None
    fv.Forecasts(made[5]).every(3, tmp_path / "all.csv")
    assert (tmp_path / "all.csv").read_text().splitlines()[0].endswith(
        '"probability","known","basis","as_of","run","model"')


def test_a_site_sends_counts_of_enough_alone():
    sent = {"n": {"n": 100}, "scores": {}, "parts": {"score 1": [14, 4], "place 1": [3, 2]}}
    assert coarse_scores(sent, 5)["parts"] == {"score 1": [10, 0], "place 1": [0, 0]}


def test_where_the_place_says_more_it_is_said():
    found = {"bins": [[10.0, 0.5, 1.0], *[[0.0, 0.0, 0.0]] * 9], "loss": 0.5, "loss_places": 0.4}
    assert "0.4000, which is better" in _chances(found)[0]
    assert "better" not in _chances({**found, "loss": 0.3})[0]


def test_what_was_said_rests_on_stages_that_are_over_and_lists_may_be_long():
    draw = np.random.default_rng(0)
    one = chances.counted(draw.normal(size=(3, 1500)), draw.random((3, 1500)) < 0.1, 1200)
    every = [SimpleNamespace(t=t, found={t + 2: {"a": {"parts": one}}}) for t in range(3)]
    assert chances.reliability(every[:2], lambda t, s: True) is None    # stage 2 is not over yet
    assert chances.reliability(every, lambda t, s: True)["loss"] > 0
