"""When drift is named: rarely for series that stay as they are, soon after a planted change."""

import json

import numpy as np
import pytest

from fedvine import testing
from fedvine.core.rng import rng
from fedvine.data.dates import stage_names
from fedvine.experiments.run import run
from fedvine.methods.edgebank import EdgeBank
from fedvine.results.view import RunView
from fedvine.tasks.drift import BEFORE, FALSE, behind, drift, unusual
from fedvine.tasks.link_prediction import LinkPrediction

TASK = LinkPrediction.shown
DRAWS, STAGES = 1500, 12


def lines(auc, rival, new, clients=("JFK", "LGA"), edges=400):
    """A line a stage and client; ``auc``, ``rival``, ``new`` are functions of (stage, client)."""
    return [{"t": t, "stage": t + 1, "client": c, "n": {"n": 100, "n_new": 10},
             "scores": {"auc": auc(t, c), "auc_new": auc(t, c)},
             "drift": {"edges": edges, "new": {"pairs": new(t, c), "users": 0.01},
                       "rivals": {"popularity": {"auc": rival(t, c), "auc_new": rival(t, c)},
                                  "edgebank": {"auc": 0.4}}}}
            for t in range(STAGES) for c in clients]


def said(found):
    return drift(found, TASK.compared, TASK.scores, "fedlink",
                 stage_names([1_370_217_600 + 86_400 * 30 * i for i in range(STAGES + 2)]))


def test_a_rival_that_came_ahead_is_named_with_numbers_and_date():
    draw = rng("ahead")
    found = said(lines(lambda t, c: (0.7 if t < 8 else 0.61) + draw.normal(0, 0.004),
                       lambda t, c: 0.66 + draw.normal(0, 0.004), lambda t, c: 0.2))
    text = "Since stage 10 (2014-02-28 UTC) fedlink is below popularity by AUC new: 0.6"
    assert sum(s.startswith(text) and s.endswith("4 stages in a row.") for s in found) == 1
    assert sum("by AUC all" in s for s in found) == 1
    assert not any("edgebank" in s or "Client" in s for s in found)


def test_a_score_that_fell_is_named():
    found = said(lines(lambda t, c: 0.5 if t == STAGES - 1 else 0.7 + 0.002 * (t % 3),
                       lambda t, c: 0.4, lambda t, c: 0.2))
    assert found == [f"AUC {what} of fedlink is 0.500 in stage 13 (2014-05-29 UTC), below the "
                     "0.702 of the stages before." for what in ("new", "all")]


def test_a_client_whose_data_changed_is_named_and_the_others_are_not():
    found = said(lines(lambda t, c: 0.7, lambda t, c: 0.6,
                       lambda t, c: 0.41 if c == "JFK" and t > 9 else 0.12 + 0.005 * (t % 3)))
    assert found == ["Client JFK: 41 % new pairs in stage 13 (2014-05-29 UTC), above the 12 % of "
                     "the stages before (since stage 12 (2014-04-29 UTC))."]
    few = said(lines(lambda t, c: 0.7, lambda t, c: 0.6,
                     lambda t, c: 0.41 if c == "JFK" and t > 9 else 0.12, edges=5))
    assert few == []                            # two of five edges may be new by chance


@pytest.mark.slow
@pytest.mark.parametrize("stages", [BEFORE + 1, 8, 12, 30])
def test_false_alarms_of_stationary_series_are_few(stages):
    draw = rng("stationary", stages)
    rates = {
        "equally good": np.mean([behind(*draw.normal(0.6, 0.02, (2, stages))) > 0
                                 for _ in range(DRAWS)]),
        "scores": np.mean([unusual(draw.normal(0.6, 0.02, stages), 0.0, below=True)[0] > 0
                           for _ in range(DRAWS)]),
        "shares": np.mean([unusual(draw.binomial(50, 0.3, stages) / 50, 0.0,
                                   edges=[50] * stages)[0] > 0 for _ in range(DRAWS)])}
    assert all(rate < 3 * FALSE for rate in rates.values()), rates


@pytest.mark.parametrize("stages", [6, 10, 20])
def test_a_planted_change_is_found(stages):
    draw = rng("planted", stages)
    ahead = clear = changed = 0
    for _ in range(300):
        ours, theirs = draw.normal(0.65, 0.005, stages + 3), draw.normal(0.63, 0.005, stages + 3)
        ours[-3:] -= 0.06
        ahead += behind(ours, theirs) == 3
        clear += behind(theirs[:-3], ours[:-3]) > 0     # the other way round it was always behind
        share = np.append(draw.normal(0.12, 0.02, stages), 0.41)
        changed += unusual(share, 0.05, edges=[300] * (stages + 1))[0] == 1
    assert min(ahead, clear, changed) > 0.9 * 300


def test_a_run_keeps_its_sentences_and_shows_them(tmp_path):
    split, plan = testing.tiny_case()
    protocol = LinkPrediction(negatives=5, positives=40, drift=True)
    made = run(EdgeBank(), split, plan, protocol=protocol, out=tmp_path / "run").finish()
    kept = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert kept["drift"] == [] == made.summary["drift"]
    kept["drift"] = ["Since stage 3 it rains."]
    (tmp_path / "run" / "summary.json").write_text(json.dumps(kept))
    assert RunView.read(tmp_path / "run").printed()[-1] == "Since stage 3 it rains."
    plain = run(EdgeBank(), split, plan, protocol=LinkPrediction.tiny()).finish()
    assert "drift" not in plain.summary
