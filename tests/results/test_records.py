"""Records and tables of a finished run hold what its scores file says."""

import numpy as np
import pytest
import shop
from rich.console import Console

from fedvine.core.errors import FedvineError
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.run_folder import read_lines
from fedvine.methods._fedlink_plus import samples
from fedvine.methods._fedlink_plus.newton import SIMPLE, Newton
from fedvine.results.entry import Entry
from fedvine.results.view import facts, records, tables


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


def test_users_who_never_travel_get_no_table(tmp_path):
    experiment = Experiment.model_validate(
        {"data": {"source": str(shop.write(tmp_path)), **shop.COLUMNS}, "method": "popularity",
         "split": {"clients": ["ada"]}})
    run = experiment.run().finish()
    run.summary["scores"]["test"]["n"]["ada"] |= {"n_travelled": 0, "n_arrived": 0}
    shown = text(tables(run.summary, run.protocol))
    assert "n travelled" not in shown
    assert "n new" in shown


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
        "choose stages shorter than 60d (times go from 2024-01-12 to 2024-03-01).")
    old = {key: value for key, value in run.summary.items() if key != "unscored"}
    assert tables(old, run.protocol)[0].endswith("choose shorter stages.")


@pytest.mark.parametrize(("rows", "stages", "said"), [
    (["u1,i1,5,a", "u2,i2,5,a"], None, "all edges are at the time 5, and"),
    (["u1,i1,5,a", "u2,i2,5,a"], "2.0", "all edges are at the time 5, and"),
    (["u1,i1,5,a"], 1, "there is one edge, at the time 5, and")])
def test_where_no_stages_can_be_cut_no_shorter_ones_are_advised(tmp_path, rows, stages, said):
    file = tmp_path / "few.csv"
    file.write_text("\n".join(["user,item,at,town", *rows, ""]))
    run = Experiment.model_validate({
        "data": {"source": str(file), **shop.COLUMNS}, "stages": stages,
        "method": "popularity"}).run(tmp_path / "run").finish()
    sentence, = tables(run.summary, run.protocol)
    assert sentence.startswith(f"Nothing was scored: {said} ")
    assert "add rows of later times" in sentence and "choose" not in sentence
    wide = run.summary | {"unscored": {"step": 1, "times": [5.0, 9.0]}}
    assert tables(wide, run.protocol)[0].endswith("shorter than one edge; add rows of later times.")


def test_an_unfinished_run_has_no_records(tmp_path):
    experiment = Experiment.model_validate(
        {"data": {"source": str(shop.write(tmp_path)), **shop.COLUMNS}, "method": "popularity"})
    experiment.run(tmp_path / "run")
    with pytest.raises(FedvineError, match="not finished"):
        records(tmp_path / "run")


def test_seconds_of_the_clock_are_of_the_runs_that_did_not_wait():
    def entry(*runs):
        return Entry("FedLink", "fedlink", {seed: [{
            "client": None, "scores": {}, "seconds_round": each, "seconds_total": total,
            "seconds_cpu": cpu}] for seed, (each, total, cpu) in enumerate(runs)})
    quiet, busy, worse = (1.0, 10.0, 9.5), (3.0, 30.0, 10.0), (9.0, 90.0, 10.0)
    assert entry(quiet, busy, (2.0, 20.0, 19.0)).cost("seconds_round") == 1.5
    assert entry(worse, busy).cost("seconds_round") == 3.0      # where all waited
    assert entry(quiet, busy).cost("seconds_total") == 10.0
    assert entry(quiet, busy).cost("seconds_cpu") == 9.75       # CPU time is of all
    assert entry((1.0, 10.0, None), (2.0, 20.0, None)).cost("seconds_round") == 1.5


def test_what_answered_is_one_sentence_also_of_many_stages():
    assert facts(samples.report(["all"] * 4)) == "All forecasts were made by the whole model."
    many = [*["all"] * 60, *["without steps"] * 20, *["met pairs / 4"] * 10, *SIMPLE]
    said = facts(samples.report(many))
    assert said == (
        "Forecasts are made by what ranked the newest edges best. After 92 stages that was the "
        "whole model (60 times), the model without what item follows which (20), the whole model "
        "with the odds of known pairs divided by 4 (10), others (2); summary.json has each.")
    assert samples.report(many)["answers"] == many
    assert {"items", *samples.WORDS} == set(Newton(1.0).parts)


def test_a_fact_of_a_thousand_clients_is_one_line_that_can_be_read():
    assert facts({"nodes": list(range(20))}).endswith("18, 19")
    assert facts({"nodes": list(range(1020))}).endswith("18, 19 and 1,000 more")
    assert facts({"of_client": {f"c{i}": i for i in range(21)}}).endswith("c19 19 and 1 more")
