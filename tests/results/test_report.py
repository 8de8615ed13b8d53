"""The page of finished runs: one picture and table for several, dates, and a narrow window."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedvine import testing
from fedvine.cli.main import main
from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.core.rng import rng
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream
from fedvine.experiments.answers import Labels
from fedvine.experiments.reopened import reopened
from fedvine.experiments.run import run
from fedvine.results.report import report
from fedvine.results.view import Group, RunView
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.tasks.task import of

DAY = 86_400
START = 1_356_998_400       # 2013-01-01


def dated(days: float = 30) -> tuple[EventStream, Plan]:
    """The tiny stream over four stages of so many days, with dates."""
    plain, (_, plan) = testing.tiny_stream(), testing.tiny_case()
    step = days * DAY / 1000
    made = EventStream(plain.src, plain.dst, (START + plain.t * step).astype(np.int64),
                       plain.src_ids, plain.dst_ids, codes=plain.codes,
                       categories=plain.categories, name="tiny")
    made.dates = True
    return made, Plan(tuple(START + b * step for b in plan.bounds), plan.val, plan.test)


def finished(folder: Path, name: str, *, dates: bool = True, seed: int = 0, **protocol) -> Path:
    stream, plan = dated() if dates else (testing.tiny_stream(), testing.tiny_case()[1])
    settings = {"negatives": 5, "positives": 40, **protocol}
    run(registry.method(name)(), stream.split("client"), plan, seed=seed, out=folder,
        protocol=LinkPrediction(**settings)).finish()
    return folder


def page(*folders: Path) -> str:
    return report(folders, folders[0].parent / "page.html").read_text()


def answers(text: str) -> dict[str, Any]:
    """What the page has in place of a server's answers; no other part of it depends on runs."""
    found, = re.findall('<script type="application/json" id="answers">(.*?)</script>', text, re.S)
    assert text.replace(found, "").count("<script") == 2 and "<" not in found
    return json.loads(found)


@pytest.mark.slow
def test_a_run_with_dates_says_them_and_one_without_says_stages(tmp_path):
    run = answers(page(finished(tmp_path / "dated", "popularity")))["/api/runs/0"]
    periods, = [note for note in run["notes"] if note.startswith("Stages from 2013-01-01 UTC to")]
    assert "test 2013-04-01 UTC to 2013-05-01 UTC" in periods
    assert run["by_stage"]["rows"][0][:3] == ["2", "2013-01-31 UTC", "train"]
    assert any(note.endswith("Times are given in UTC.") for note in run["notes"])
    assert run["path"] == "dated"           # and no folder of this machine
    summary = json.loads((tmp_path / "dated" / "summary.json").read_text())
    assert summary["dates"] is True and summary["bounds"][0] == START
    text = page(finished(tmp_path / "plain", "popularity", dates=False))
    run = answers(text)["/api/runs/0"]
    assert "2013-" not in text and run["by_stage"]["rows"][0][:2] == ["2", "train"]
    assert str(tmp_path) not in text
    assert "dates" not in json.loads((tmp_path / "plain" / "summary.json").read_text())


def test_dates_change_no_experiment_and_no_score(tmp_path):
    """The folder of a run whose stream did not know its dates is gone on with."""
    finished(tmp_path / "run", "popularity")
    experiment = (tmp_path / "run" / "experiment.toml").read_bytes()
    stream, plan = dated()
    stream.dates = False
    made = run(registry.method("popularity")(), stream.split("client"), plan, out=tmp_path / "run",
               protocol=LinkPrediction(negatives=5, positives=40))
    assert made.summary is not None and b"\ndates" not in experiment
    again = run(registry.method("popularity")(), stream.split("client"), plan,
                out=tmp_path / "other", protocol=LinkPrediction(negatives=5, positives=40)).finish()
    assert again.scores == made.scores
    assert (tmp_path / "other" / "experiment.toml").read_bytes() == experiment


@pytest.mark.slow
def test_several_runs_are_in_one_table_and_one_picture(tmp_path):
    folders = [finished(tmp_path / "a", "popularity"), finished(tmp_path / "b", "edgebank"),
               finished(tmp_path / "c", "edgebank", seed=1, drift=True)]
    found = answers(page(*folders))
    assert [row["title"] for row in found["/api/runs"]["runs"]] == [
        "popularity on tiny, seed 0", "edgebank on tiny, seed 0", "edgebank on tiny, seed 1"]
    group, = found["/api/compared"]["groups"]
    assert (group["heading"], group["runs"], found["/api/compared"]["remarks"]) == (
        "tiny", [0, 1, 2], [])
    auc, = [plot for plot in group["plots"] if plot["title"] == "AUC all"]
    for number, (folder, series) in enumerate(zip(folders, auc["series"], strict=True)):
        made = RunView.read(folder)
        assert series["name"].startswith(made.method) and series["run"] == number
        assert [x for x, _ in series["points"]] == [2, 3, 4]
        last = [line["scores"]["auc"] for line in made.lines if line["stage"] == 3]
        assert series["points"][-1][1] == pytest.approx(np.mean(last), rel=1e-5)
        total = found[f"/api/runs/{number}"]["tables"]
        assert f"{made.summary['scores']['test']['mean']['auc']:.3f}" in json.dumps(total)


@pytest.mark.slow
def test_runs_of_other_tasks_protocols_or_stages_are_not_compared(tmp_path):
    one, two = (finished(tmp_path / n, "popularity", negatives=k) for n, k in (("a", 5), ("b", 6)))
    said, = answers(page(one, two))["/api/compared"]["remarks"]
    assert said.startswith("These runs are not compared: task, protocol")
    split, plan = testing.tiny_graphs()
    common = registry.method("common")()
    run(common, split, plan, out=tmp_path / "n").finish()
    run(common, split, plan, seed=1, out=tmp_path / "m").finish()
    found = answers(page(one, two, finished(tmp_path / "c", "edgebank"), tmp_path / "n",
                      tmp_path / "m"))["/api/compared"]
    assert any(said.endswith("They are not for: popularity on tiny, seed 0.")
               for said in found["remarks"])
    assert {"tiny, seed 0", "common, tiny"} <= {group["heading"] for group in found["groups"]}
    same = [shutil.copytree(one, tmp_path / "copy"), one]
    assert Group([RunView.read(f) for f in same]).names == [
        "popularity (copy)", "popularity (a)"]
    other = shutil.copytree(one, tmp_path / "other" / "a")
    assert len({*Group([RunView.read(f) for f in (*same, other)]).names}) == 3


@pytest.mark.slow
def test_drift_is_shown(tmp_path):
    folder = finished(tmp_path / "a", "edgebank", drift=True)
    summary = json.loads((folder / "summary.json").read_text())
    summary["drift"] = ["Since stage 3 (2013-03-02) <b>edgebank</b> is below recency."]
    (folder / "summary.json").write_text(json.dumps(summary))
    text = page(folder)
    drift = answers(text)["/api/runs/0"]["drift"]
    assert drift["sentences"] == summary["drift"] and "<b>edgebank" not in text
    assert {"AUC new, all clients", "new pairs, %"} <= {plot["title"] for plot in drift["plots"]}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dgcolearn", "last_label", "common"])
def test_runs_of_every_task_are_shown(tmp_path, name):
    method = registry.method(name).tiny()
    split, plan = testing._case(method)
    run(method, split, plan, out=tmp_path / "run",
        protocol=of(method).tiny().model_copy(update={"drift": True})).finish()
    found = answers(page(tmp_path / "run"))["/api/runs/0"]
    assert found["plots"] and any("columns" in part for part in found["tables"])


@pytest.mark.slow
def test_folders_that_no_run_wrote_are_named(tmp_path):
    one, two = finished(tmp_path / "a", "popularity"), finished(tmp_path / "b", "edgebank")
    summary = json.loads((two / "summary.json").read_text())
    del summary["seconds_total"]
    (two / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(FedvineError, match=r"b holds what no run has written \(KeyError"):
        page(one, two)


@pytest.mark.slow
def test_rare_classes_have_their_precision_and_recall_beside_what_the_commonest_gets(tmp_path,
                                                                                    capsys):
    """Classes of 86, 10 and 4 % at two banks: report, page and terminal have the same numbers."""
    draw = rng("rare classes")
    y = draw.choice(3, 600, p=[0.86, 0.10, 0.04])
    x = draw.normal(size=(600, 4)) + 2.5 * np.eye(3, 4)[y] * (y[:, None] > 0)
    words = ("plain", "shop", "an account with a name that is longer than its column")
    rows = [f"{i},{'ab'[i % 2]},{','.join(f'{v:.3f}' for v in x[i])},{words[y[i]]}"
            for i in range(600)]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,bank,u,v,w,z,label", *rows]))
    ends = [(i, int(j)) for i in range(600) for j in draw.integers(0, 300, 2) * 2 + i % 2 if i != j]
    (tmp_path / "edges.csv").write_text("\n".join(["src,dst", *(f"{a},{b}" for a, b in ends)]))
    with pytest.raises(SystemExit):
        main(["run", "power_plus", "--data", str(tmp_path / "nodes.csv"), "--edges",
              str(tmp_path / "edges.csv"), "--client", "bank", "--stages", "3", "--set",
              "method.by=balanced", "--set", "method.rounds=0", "--out", str(tmp_path / "run")])
    out, shown_run = capsys.readouterr().out, answers(page(tmp_path / "run"))["/api/runs/0"]
    rows = [row for part in shown_run["tables"] if "rows" in part for row in part["rows"]]
    made = reopened(tmp_path / "run")
    asked, right = [], []       # true classes and answers, counted anew from the model's labels
    scored = run(made.method, made.ready.stream.split("bank"), made.plan, seed=0).finish()
    for part in scored.parts.values():
        _, nodes, true, test = made.plan.held_out(part, 0)
        found = Labels(scored).table(part.names()[n] for n in nodes[test])
        asked += [words.index(made.ready.stream.classes[c]) for c in true[test]]
        right += [words.index(label) for label in found["label"].to_pylist()]
    asked, right = np.array(asked), np.array(right)
    common = f"{np.mean(asked == 0):.3f}"
    assert common in out and any(common in row for row in rows)
    for c, word in enumerate(words):
        shown = [f"{(asked == c).sum()}", f"{(asked[right == c] == c).mean():.3f}",
                 f"{(right[asked == c] == c).mean():.3f}"]
        assert any(row[:1 + len(shown)] == [word, *shown] for row in rows)
        assert all(value in out for value in shown)
    assert any(plot["title"].startswith("confusion matrix") for plot in shown_run["plots"])
