"""Intervals: what they are over, by replicates of users, and corrected for several tests."""

import json
import math

import numpy as np
import pytest
import quick
import shop

from fedvine.core.rng import rng
from fedvine.results.compare import compare, experiments
from fedvine.results.comparison import Comparison
from fedvine.results.entry import (
    EACH,
    NONE,
    SEEDS,
    USERS,
    Entry,
    difference,
    estimate,
    half_width,
    holm,
    p_value,
)
from fedvine.results.kept import read
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.tasks.metrics import COUNT, replicate_means, replicate_weights

TASK = LinkPrediction(negatives=5)


@pytest.fixture(autouse=True)
def resampled(monkeypatch):
    monkeypatch.setattr(LinkPrediction, "resampled", True)


NOISE = rng(1, "noise").normal(size=(2, 50))


def entry(label, method, values, spread=None, level=0.0):
    """Values by seed, with replicates around them that move by ``spread`` of a shared noise."""
    def record(value):
        more = {} if spread is None else {"replicates": {"auc_new": (
            value + spread * NOISE[0] + level * NOISE[1]).tolist()}}
        return {"client": None, "scores": {"auc_new": value}, **more}
    return Entry(label, method, {s: [record(v)] for s, v in enumerate(values)})


LEARNED = [0.70, 0.71, 0.72, 0.71]
STEADY = [0.6] * 4


@pytest.mark.parametrize(("found", "over"), [
    (entry("a", "fedlink", LEARNED), SEEDS),
    (entry("a", "fedlink", LEARNED, 0.01), SEEDS),
    (entry("a", "fedlink", LEARNED[:3], 0.01), USERS),
    (entry("a", "fedlink", LEARNED[:3]), EACH),
    (entry("a", "fedlink", STEADY), NONE),
    (entry("a", "popularity", STEADY, 0.01), USERS),
    (entry("a", "popularity", [0.6, 0.601, 0.6, 0.6], 0.01), USERS),
    (entry("a", "popularity", [0.6, 0.601, 0.6, 0.6]), NONE),
    (entry("a", "popularity", STEADY[:1], 0.0), EACH)])
def test_what_an_interval_is_over(found, over):
    made = estimate(found, "auc_new", TASK.shown.simple)
    assert made.over == over and (made.half == made.half) == (over in (SEEDS, USERS))
    if len(made.values) == 3 and over == USERS:
        apart = np.std(made.values, ddof=1) / 3 ** 0.5 * 4.3027         # Student's t, 2 degrees
        assert made.half > apart > 0 and made.half ** 2 - apart ** 2 == pytest.approx(
            half_width(found.replicates("auc_new")[0]) ** 2, rel=0.5)


def test_two_methods_without_chance_have_no_certainty_from_seeds():
    """A difference of .001 in every seed: by users it is within the interval, or outside it."""
    near = entry("recency", "recency", [x + 0.001 for x in STEADY], 0.01, 0.002)
    bank = entry("edgebank", "edgebank", STEADY, 0.01)
    found = difference(near, bank, "auc_new", TASK.shown.simple)
    assert found.over == USERS and found.p > 0.3 and found.half > 0.001
    sure = entry("recency", "recency", [x + 0.001 for x in STEADY], 0.01, 0.0001)
    assert difference(sure, bank, "auc_new", TASK.shown.simple).p < 0.001
    bare = [Entry(e.label, e.method, {s: [{k: r[k] for k in ("client", "scores")}]
                                      for s, (r,) in e.records.items()}) for e in (near, bank)]
    found = difference(*bare, "auc_new", TASK.shown.simple)
    assert found.over == NONE and math.isnan(found.p) and math.isnan(found.half)
    table = Comparison("x", 4, TASK, bare[::-1])
    assert [row[1] for row in table.grids()[0].rows] == ["0.600", "0.601"]
    assert any(n.startswith("No interval for edgebank, recency") for n in table.notes())


def test_the_sentences_say_what_was_used_and_how_it_was_corrected():
    first = entry("fedlink", "fedlink", LEARNED, 0.01)
    other = entry("stfl", "stfl", [0.69, 0.69, 0.73, 0.7], 0.01)
    bank = entry("popularity", "popularity", STEADY, 0.01, 0.03)
    found = Comparison("x", 4, TASK, [first, other, bank])
    notes = found.notes()
    assert "± is the half width of the 95 % interval over seeds." in notes
    assert any(n.startswith("± of popularity is") and "over users" in n for n in notes)
    assert any("paired t test over seeds or a paired bootstrap over users" in n
               and "Holm's correction over the 2 differences" in n for n in notes)
    raw = [found.difference(e, first, "auc_new").p for e in (other, bank)]
    shown = [row[1].split("p")[1] for row in next(
        g for g in found.grids() if g.title.startswith("Difference")).rows]
    least = min(raw)
    assert shown[raw.index(least)] == ("<.001" if 2 * least < 0.001 else
                                       f"={2 * least:.3f}".replace("0.", "."))


@pytest.mark.parametrize("seeds", [2, 3, 4, 8])
def test_a_difference_to_a_method_without_chance_is_no_surer_than_its_seeds(seeds):
    ours = entry("a", "fedlink", [0.6 + 0.1 * (-1) ** n for n in range(seeds)], 0.01)
    found = difference(ours, entry("b", "popularity", [0.6] * seeds, 0.01, 0.002), "auc_new",
                       TASK.shown.simple)
    assert found.half > 0.05 and found.p > 0.05


def test_a_difference_over_partitions_is_of_the_runs_that_both_have():
    whole, part = (Entry(name, "fedlink", {
        n: [{"client": None, "scores": {"auc_new": n % 2}}] for n in runs}, together=2)
        for name, runs in (("whole", range(6)), ("part", (0, 2, 4))))
    found = difference(whole, part, "auc_new", TASK.shown.simple)
    assert found.mean == 0 and set(found.values) == {0}


@pytest.mark.slow
def test_replicates_reach_the_table_and_change_nothing_else(tmp_path, monkeypatch):
    quick.here(monkeypatch)
    data = {"source": str(shop.write(tmp_path)), **shop.COLUMNS}
    asked = experiments(["popularity", "edgebank"], {"data": data, "stages": "400s"},
                        ["protocol.negatives=5"])
    with monkeypatch.context() as patch:
        patch.setattr(LinkPrediction, "resampled", False)
        plain = compare(asked, 1, tmp_path / "plain")
    assert all(e.replicates("auc") == {} for e in plain.entries)
    found = compare(asked, 1, tmp_path / "cells")
    for before, after in zip(plain.entries, found.entries, strict=True):
        assert before.values("auc") == after.values("auc")
        assert before.cost("bytes_up") == after.cost("bytes_up")    # replicates are not sent
        replicates = after.replicates("auc")[0]
        assert len(replicates) == COUNT
        assert abs(np.mean(replicates) - after.values("auc")[0]) < 3 * np.std(replicates)
        made = found.estimate(after, "auc")
        assert made.over == USERS and 0.001 < made.half < 0.3
    assert any(d.over == USERS for row in found._differences() for d in row)
    assert not any("replicates" in r for r in found.records())
    line = read(tmp_path / "cells" / "kept" / "shop.parquet")[0]
    assert "replicates" not in line["settings"]["protocol"]         # no setting of a score
    assert json.loads(json.dumps(line["summary"]["replicates"]))["mrr"]
    again = compare(asked, 1, tmp_path / "plain")       # kept ones are taken as they are
    assert again.entries[0].replicates("auc") == {}


def test_the_interval_covers_the_truth_as_often_as_it_says():
    inside, many = 0, 300
    w = replicate_weights(np.arange(60, dtype=np.uint64), 200)
    for seed in range(many):
        values = rng(seed, "sample").exponential(size=60)
        inside += abs(values.mean() - 1.0) < half_width(replicate_means(values, w))
    assert 0.90 < inside / many < 0.98


def test_paired_replicates_see_a_difference_that_is_small_beside_the_spread_of_users():
    w, draw = replicate_weights(np.arange(100, dtype=np.uint64), 200), rng(1, "paired")
    users = draw.normal(size=100)
    ours, theirs = users + 0.05 + 0.01 * draw.normal(size=100), users
    found = replicate_means(ours, w) - replicate_means(theirs, w)
    assert half_width(replicate_means(ours, w)) > 0.1 > 0.01 > half_width(found)
    assert p_value(float(ours.mean() - theirs.mean()), half_width(found)) < 1e-6


def test_holm_is_that_of_the_textbook():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, math.nan, 0.9])[::2] == [1.0, 1.0]
    assert holm([]) == []
