"""The page of finished runs: one picture and table for several, dates, and a narrow window."""

import json
import re
import shutil
from pathlib import Path

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


@pytest.mark.slow
def test_a_run_with_dates_says_them_and_one_without_says_stages(tmp_path):
    text = page(finished(tmp_path / "dated", "popularity"))
    assert "Stages from <span class=day>2013-01-01 UTC</span> to" in text
    assert ("test <span class=day>2013-04-01 UTC</span> to <span class=day>2013-05-01 UTC</span>"
            in text)
    assert "<td>2</td><td>2013-01-31 UTC</td><td>train</td>" in text
    assert "Times are those of UTC." in text
    summary = json.loads((tmp_path / "dated" / "summary.json").read_text())
    assert summary["dates"] is True and summary["bounds"][0] == START
    text = page(finished(tmp_path / "plain", "popularity", dates=False))
    assert "2013" not in text and "<td>2</td><td>train</td>" in text
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
    text = page(*folders)
    first = text[:text.index("<h1>popularity on tiny, seed 0</h1>")]
    assert "<h2>tiny</h2>" in first and first.count("<img") == 2 and "compared" not in first
    rows = re.findall("<tr><td>(.*?)</td>", first)
    assert rows == ["popularity, seed 0", "edgebank, seed 0", "edgebank, seed 1"]
    runs = [RunView.read(folder) for folder in folders]
    shown = Group(runs).plots(every=False)
    assert [plot.title for plot in shown] == ["AUC new", "AUC all"]
    for made, (name, x, y) in zip(runs, shown[1].series, strict=True):
        assert name.startswith(made.method) and x == [2, 3, 4]
        last = [line["scores"]["auc"] for line in made.lines if line["stage"] == 3]
        assert y[-1] == pytest.approx(np.mean(last))
        assert f"{made.summary['scores']['test']['mean']['auc']:.3f}" in first
    assert "Runs beside each other" not in page(folders[0])


@pytest.mark.slow
def test_runs_of_other_tasks_protocols_or_stages_are_not_compared(tmp_path):
    one, two = (finished(tmp_path / n, "popularity", negatives=k) for n, k in (("a", 5), ("b", 6)))
    assert "These runs are not compared: task, protocol" in page(one, two)
    split, plan = testing.tiny_graphs()
    common = registry.method("common")()
    run(common, split, plan, out=tmp_path / "n").finish()
    run(common, split, plan, seed=1, out=tmp_path / "m").finish()
    text = page(one, two, finished(tmp_path / "c", "edgebank"), tmp_path / "n", tmp_path / "m")
    first = text[:text.index("<h1>popularity")]
    assert "They are not for: popularity on tiny, seed 0." in first
    assert "<h2>tiny, seed 0</h2>" in first and "<h2>common, tiny</h2>" in first
    assert "AM, test" in first and first.count("<img") == 3
    assert first.count("Scores are means over clients, of the periods") == 1
    assert first.count("Scores are over the nodes of all clients together, of the") == 1
    same = [shutil.copytree(one, tmp_path / "copy"), one]
    assert Group([RunView.read(f) for f in same]).names == [
        "popularity (copy)", "popularity (a)"]


@pytest.mark.slow
def test_drift_is_shown(tmp_path):
    folder = finished(tmp_path / "a", "edgebank", drift=True)
    summary = json.loads((folder / "summary.json").read_text())
    summary["drift"] = ["Since stage 3 (2013-03-02) <b>edgebank</b> is below recency."]
    (folder / "summary.json").write_text(json.dumps(summary))
    text = page(folder)
    assert ("<p>Since stage 3 (<span class=day>2013-03-02</span>) &lt;b&gt;edgebank&lt;/b&gt; is "
            "below recency.</p>") in text
    assert "alt='AUC new, all clients'" in text and "alt='new pairs, %'" in text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dgcolearn", "last_label", "common"])
def test_runs_of_every_task_are_shown(tmp_path, name):
    method = registry.method(name).tiny()
    split, plan = testing._case(method)
    run(method, split, plan, out=tmp_path / "run",
        protocol=of(method).tiny().model_copy(update={"drift": True})).finish()
    text = page(tmp_path / "run")
    assert text.count("<img") >= 3 and text.count("<div class='box'>") == text.count("<table>") > 0


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
    out, text = capsys.readouterr().out, page(tmp_path / "run")
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
    assert common in out and f"<td>{common}</td>" in text
    for c, word in enumerate(words):
        shown = [f"{(asked == c).sum()}", f"{(asked[right == c] == c).mean():.3f}",
                 f"{(right[asked == c] == c).mean():.3f}"]
        assert f"<td>{word}</td>" + "".join(f"<td>{value}</td>" for value in shown) in text
        assert all(value in out for value in shown)
    assert "alt='confusion matrix, % of a class'" in text
