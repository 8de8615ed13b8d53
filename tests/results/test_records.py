"""Records and tables of a finished run hold what its scores file says."""

import numpy as np
import pytest
import shop
from rich.console import Console

from fedvine.core.errors import FedvineError
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.run_folder import read_lines
from fedvine.results.view import records, tables


@pytest.fixture
def run(tmp_path):
    experiment = Experiment.model_validate(
        {"data": {"source": str(shop.write(tmp_path)), **shop.COLUMNS}, "method": "popularity",
         "seed": 3, "stages": "400s"})
    return experiment.run(tmp_path / "run").finish()


def text(parts):
    console = Console(width=100)
    with console.capture() as captured:
        for part in parts:
            console.print(part, highlight=False)
    return captured.get()


def test_records_are_the_mean_and_each_client_with_what_the_run_cost(run):
    found = records(run.folder.path)
    assert [(r["method"], r["data"], r["seed"], r["client"]) for r in found] == [
        ("popularity", "shop", 3, name) for name in (None, "ada", "bob", "cyd")]
    lines = read_lines(run.folder.path, "metrics.jsonl")
    for record in found[1:]:
        mine = [(x["scores"]["auc_new"], x["n"]["n_new"]) for x in lines if x["client"] == record[
            "client"] and x["period"] == "test" and "auc_new" in x["scores"]]
        values, weights = np.array(mine).T
        assert record["scores"]["auc_new"] == pytest.approx(np.average(values, weights=weights))
    asked = [sum(x["n"]["n"] for x in lines if x["client"] == r["client"] and x["period"] == "test")
             for r in found[1:]]
    assert max(asked) < 30                  # too few for a mean of clients: it is over all queries
    assert found[0]["scores"]["auc"] == pytest.approx(
        np.average([r["scores"]["auc"] for r in found[1:]], weights=asked))
    calls = read_lines(run.folder.path, "messages.jsonl")
    assert found[0]["bytes_up"] == sum(c["up"] for c in calls)
    assert found[0]["bytes_down"] == sum(c["down"] for c in calls)
    assert found[0]["peak_memory_bytes"] > 10_000_000
    assert found[0]["seconds_total"] > 0


def test_the_table_leads_with_new_pairs_and_names_the_negatives(run):
    shown = text(tables(run.summary, run.protocol))
    assert shown.index("n new") < shown.index("n all") < shown.index("n travelled")
    assert "one for AUC and AP, 100 for MRR." in " ".join(shown.split())
    row = next(line for line in shown.splitlines() if line.strip().startswith("bob"))
    scores, n = run.scores["test"]["client"]["bob"], run.scores["test"]["n"]["bob"]
    assert row.split() == ["bob", str(n["n_new"]), *(f"{scores[k]:.3f}" for k in (
        "auc_new", "ap_new", "mrr_new")), str(n["n"]), *(f"{scores[k]:.3f}" for k in (
            "auc", "ap", "mrr"))]


@pytest.mark.parametrize(("stages", "said"), [
    (480, "choose stages of fewer than 480 edges (times go from 10 to 3982)."),
    ("100d", "choose stages shorter than 100d (times go from 10 to 3982, which count as "
             "seconds).")])
def test_a_run_of_one_stage_says_that_nothing_was_scored(tmp_path, stages, said):
    experiment = Experiment.model_validate(
        {"data": {"source": str(shop.write(tmp_path)), **shop.COLUMNS}, "method": "popularity",
         "stages": stages})
    run = experiment.run(tmp_path / "run").finish()
    sentence, = tables(run.summary, run.protocol)
    assert sentence.startswith("Nothing was scored: ") and sentence.endswith(said)
    dated = run.summary | {"dates": True, "unscored": {"step": "60d", "times": [
        1_705_017_600.0, 1_709_251_200.0]}}
    assert tables(dated, run.protocol)[0].endswith(
        "choose stages shorter than 60d (times go from 2024-01-12 UTC to 2024-03-01 UTC).")
    old = {key: value for key, value in run.summary.items() if key != "unscored"}
    assert tables(old, run.protocol)[0].endswith("choose shorter stages.")


def test_an_unfinished_run_has_no_records(tmp_path):
    experiment = Experiment.model_validate(
        {"data": {"source": str(shop.write(tmp_path)), **shop.COLUMNS}, "method": "popularity"})
    experiment.run(tmp_path / "run")
    with pytest.raises(FedvineError, match="not finished"):
        records(tmp_path / "run")
