"""A comparison holds what its runs measured, makes no run twice, and says who is not beaten."""

import json
import re
import shutil
import subprocess
import tomllib

import numpy as np
import pytest
import quick
import shop

from fedvine.cli import main
from fedvine.core.errors import FedvineError
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.reopened import reopened
from fedvine.results.cells import cells, rounded
from fedvine.results.compare import compare, experiments, labels
from fedvine.results.comparison import UNBEATEN, Comparison, chart
from fedvine.results.entry import Entry
from fedvine.results.fill import fill
from fedvine.results.view import records
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.tasks.metrics import mean_interval, paired

TINY = ["rounds=2", "capacity=30", "buffers=2", "steps=2", "width=4"]


def made(tmp_path, *words):
    data = {"source": str(shop.write(tmp_path)), **shop.COLUMNS}
    return experiments(words, {"data": data, "stages": "400s"}, ["protocol.negatives=5"])


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Two methods and two seeds, run once for this file, and what was told meanwhile."""
    folder, told = tmp_path_factory.mktemp("compared"), []
    wanted = made(folder, "popularity", ":".join(["fedlink", *TINY]))
    with pytest.MonkeyPatch.context() as patch:
        quick.here(patch)
        found = compare(wanted, 2, folder / "cells", jobs=2, tell=told.append)
    return folder, wanted, found, told


@pytest.mark.slow
def test_the_numbers_are_those_of_the_run_folders(shared):
    folder, _, found, told = shared
    runs = {s: [rounded(records(p)) for p in sorted((folder / "cells").glob(f"{s}-*"))]
            for s in ("popularity", "fedlink")}
    assert [len(r) for r in runs.values()] == [2, 2]
    assert len([line for line in told if re.match(r"\d+/4  ", line)]) == 4
    by_key = {name: np.array([r[0]["scores"]["auc_new"] for r in run])
              for name, run in runs.items()}
    first, second = found.entries
    for entry in (first, second):
        assert entry.estimate("auc_new") == pytest.approx(mean_interval(by_key[entry.label]))
        assert entry.cost("bytes_up") == np.mean([r[0]["bytes_up"] for r in runs[entry.label]])
        assert entry.cost("seconds_cpu") > 0
        assert entry.cost("peak_memory_bytes") == max(
            r[0]["peak_memory_bytes"] for r in runs[entry.label])
    assert found.difference(second, first, "auc_new").mean == pytest.approx(
        paired(by_key["fedlink"], by_key["popularity"])[0])
    assert second.estimate("auc", "bob") == pytest.approx(mean_interval(
        [x["scores"]["auc"] for run in runs["fedlink"] for x in run if x["client"] == "bob"]))
    def plain(record):      # without what only sentences and intervals need
        return str({k: v for k, v in record.items() if k not in ("of", "replicates")})
    assert sorted(map(plain, found.records())) == sorted(
        plain(x) for run in runs.values() for r in run for x in r)
    grid = found.grids()[0]
    assert grid.columns[:3] == ["method", "AUC new", "MRR new"]
    score = np.mean(list(second.values("auc_new").values()))
    assert grid.rows[1][1].startswith(f"{score:.3f} ±")     # of two seeds one over users


@pytest.mark.slow
def test_a_finished_cell_is_not_run_again(shared, monkeypatch, tmp_path):
    folder, wanted, found, _ = shared

    def never(*args, **kwargs):
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", never)
    again = compare(wanted, 2, folder / "cells", tell=never)
    assert again == found
    assert compare(wanted[::-1], 1, folder / "cells", tell=never).seeds == 1
    with pytest.raises(AssertionError, match="process"):
        compare(wanted, 3, shutil.copytree(folder / "cells", tmp_path / "cells"), tell=print)


def test_of_a_kept_run_the_logs_stay_and_the_saves_go(shared):
    folders = [f for f in (shared[0] / "cells").glob("*-*") if f.is_dir()]
    assert len(folders) == 4
    for folder in folders:
        assert (folder / "summary.json").exists() and (folder / "metrics.jsonl").exists()
        assert not (folder / "saves").exists()
        with pytest.raises(FedvineError, match="no save"):
            reopened(folder).ask("bob", {})


def test_a_cell_belongs_to_its_settings_and_its_edges(tmp_path):
    one, = made(tmp_path, "popularity")
    name = cells([one], tmp_path)[0].folder.name
    assert re.fullmatch(r"popularity-shop-[0-9a-f]{12}-s0", name)
    assert cells([one.model_copy(update={"seed": 4})], tmp_path)[0].folder.name == name[:-1] + "4"
    other = one.with_settings(["method.decay=0.25"])
    assert cells([other], tmp_path)[0].folder.name[:23] != name[:23]
    shop.write(tmp_path, seed=1)
    assert cells([one], tmp_path)[0].folder.name[:23] != name[:23]


def test_budget_marks_what_is_left_over(tmp_path):
    found = compare(made(tmp_path, "popularity", "edgebank"), 1, tmp_path / "cells", budget=0)
    assert [e.records for e in found.entries] == [{}, {}]
    assert [n for n in found.notes() if n.startswith("Not run (budget)")] == [
        "Not run (budget): popularity on shop, seed 0.", "Not run (budget): edgebank on shop, "
        "seed 0."]
    assert found.grids()[0].rows == [["popularity"], ["edgebank"]]


@pytest.mark.slow
def test_a_failing_run_is_reported_by_its_own_sentence(tmp_path):
    cell, = cells(made(tmp_path, "popularity"), tmp_path / "cells")
    cell.folder.mkdir(parents=True)
    (cell.folder / "mine.txt").write_text("x")
    with pytest.raises(FedvineError, match=r"popularity on shop, seed 0 failed: .* other things"):
        fill([[cell]], tell=print)


@pytest.mark.slow
def test_a_spent_budget_stops_what_runs_and_the_next_call_finishes_it(tmp_path):
    cell, = cells(made(tmp_path, ":".join(["fedlink", *TINY])), tmp_path / "cells")
    assert fill([[cell]], budget=0.1, tell=print) == [cell]     # CPU seconds: Python starts in more
    assert not list((tmp_path / "cells").glob("*.log"))
    assert fill([[cell], [cell]], tell=print) == []
    assert cell.finished


def entry(label, method, **scores):
    return Entry(label, method, {seed: [{"client": None, "scores": {
        k: v[seed] for k, v in scores.items()}}] for seed in range(len(next(iter(
            scores.values()))))})


def test_who_does_not_beat_a_simple_rival_is_marked():
    bank = entry("edgebank", "edgebank", auc_new=[0.5] * 4, auc=[0.9, 0.8, 0.9, 0.8])
    good = entry("good", "fedlink", auc_new=[0.7, 0.701, 0.7, 0.7], auc=[0.8, 0.7, 0.8, 0.7])
    noisy = entry("noisy", "fedlink", auc_new=[0.8, 0.52, 0.4, 0.6], auc=[0.95, 0.85, 0.95, 0.85])
    found = Comparison("x", 4, LinkPrediction(negatives=5), [good, noisy, bank])
    assert found.unbeaten(good, "auc_new") == []
    assert found.unbeaten(good, "auc") == [bank]
    assert found.unbeaten(noisy, "auc_new") == [bank]     # higher, but not surely
    assert found.unbeaten(noisy, "auc") == []             # always higher by 0.05
    assert found.unbeaten(bank, "auc_new") == []
    assert found.score(noisy, "auc_new").endswith("†")
    assert "On new pairs (AUC) edgebank, which has no model, is not beaten by noisy." in \
        found.notes()
    assert UNBEATEN in found.notes()
    alone = Comparison("x", 4, LinkPrediction(negatives=5), [good])
    assert any("lacks: edgebank, frequency, popularity, recency" in note for note in alone.notes())


def asked(label, method, clients, **scores):
    """An entry with records of these clients and of their mean."""
    return Entry(label, method, {seed: [{"client": c, "scores": {k: v[seed] for k, v in
                                                                 scores.items()}}
                                        for c in (None, *clients)] for seed in range(4)})


def test_no_difference_between_methods_that_were_asked_different_questions():
    low, high = [0.5, 0.51, 0.52, 0.5], [0.7, 0.71, 0.7, 0.72]
    whole = asked("dgcolearn", "dgcolearn", ["all"], auc_new=low)
    parts = asked("fedlink", "fedlink", ["a", "b"], auc_new=high)
    bank = asked("edgebank", "edgebank", ["a", "b"], auc_new=high)
    pooled = asked("edgebank on all", "edgebank", ["client-1"], auc_new=high)
    found = Comparison("x", 4, LinkPrediction(negatives=5), [whole, parts, bank])
    assert found.difference(parts, whole, "auc_new")[0] is None
    assert found.difference(parts, bank, "auc_new")[0] == 0
    assert found.unbeaten(whole, "auc_new") == [] and found.unbeaten(parts, "auc_new") == [bank]
    grid = next(g for g in found.grids() if g.title.startswith("Difference"))
    assert [row[1] for row in grid.rows] == ["-", "-"]
    note, = (n for n in found.notes() if n.startswith("Not all were asked the same"))
    assert "dgcolearn about one whole graph" in note
    assert "fedlink, edgebank at 2 clients (a, b)" in note
    alike = Comparison("x", 4, LinkPrediction(negatives=5), [whole, pooled])
    assert alike.unbeaten(whole, "auc_new") == [pooled]     # one graph, whatever it is called
    assert not any(n.startswith("Not all") for n in alike.notes())


def test_settings_name_methods_that_are_there_twice(tmp_path):
    wanted = made(tmp_path, "fedlink:capacity=30", "fedlink:capacity=60", "edgebank")
    assert labels(wanted) == ["fedlink (capacity=30)", "fedlink (capacity=60)", "edgebank"]
    with pytest.raises(FedvineError, match="twice"):
        labels(wanted[:1] * 2)
    other = Experiment.model_validate({**wanted[2].model_dump(exclude_unset=True), "stages": 100})
    with pytest.raises(FedvineError, match="another stages than fedlink"):
        compare([wanted[0], other], 1, tmp_path)
    with pytest.raises(FedvineError, match="one seed or more"):
        compare(wanted, 0, tmp_path)


def test_the_command_shows_and_writes(shared, monkeypatch, tmp_path, capsys):
    folder, _, found, _ = shared
    monkeypatch.chdir(tmp_path)
    columns = [x for key, value in shop.COLUMNS.items() for x in (f"--{key}", value)]
    with pytest.raises(SystemExit) as ended:
        main.main(["compare", "popularity", ":".join(["fedlink", *TINY]), "--data",
                  str(folder / "shop.csv"), *columns, "--stages", "400s", "--seeds", "2", "--set",
                  "protocol.negatives=5", "--folder", str(folder / "cells"), "--json", "a.json",
                  "--markdown", "a.md", "--plot", "a.png"])
    assert not ended.value.code
    out, told = capsys.readouterr()
    assert told == ""
    assert "popularity" in out
    assert json.loads((tmp_path / "a.json").read_text()) == found.records()
    assert (tmp_path / "a.md").read_text() == found.sheet().markdown()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_of_few_or_no_runs(tmp_path):
    for entries in ([], [entry("edgebank", "edgebank", auc_new=[0.5, 0.5])]):
        for e in entries:
            for found in e.records.values():
                found[0] |= dict.fromkeys(("seconds_total", "bytes_up", "bytes_down"), 0)
        chart(Comparison("x", 2, LinkPrediction(negatives="all"), entries), tmp_path / "a.png")
        assert (tmp_path / "a.png").stat().st_size > 1000


@pytest.mark.slow
def test_partitions_times_initialisations(tmp_path, monkeypatch):
    quick.here(monkeypatch)
    options = {"data": {"source": "digits"}, "split": {"k": 2}}
    wanted = experiments(["fedavg:rounds=1:hidden=4"], options)
    found = compare(wanted, 2, tmp_path, partitions=2, tell=lambda line: None)
    assert all(len(e.records) == 4 for e in found.entries)
    assert "2 partitions x 2 seeds" in found.title
    made = [tomllib.loads((f / "experiment.toml").read_text())["data"]["experiment"]
            for f in tmp_path.glob("fedavg-*")]
    assert sorted((m["split"]["seed"], m["tasks"]["seed"], m["seed"]) for m in made) == [
        (0, 0, 0), (0, 0, 1), (1, 1, 0), (1, 1, 1)]
    each = [by[0]["scores"]["am"] for _, by in sorted(found.entries[0].records.items())]
    values = list(found.entries[0].values("am").values())      # seeds of a partition are one value
    assert values == pytest.approx([sum(each[:2]) / 2, sum(each[2:]) / 2])
    assert values[0] != values[1]
    with pytest.raises(FedvineError, match="drawn of labelled graphs"):
        compare(experiments(["edgebank"], {"data": {"source": "flights"}}), 1, tmp_path,
                partitions=2)
