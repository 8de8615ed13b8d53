"""Pages of runs of DG-CoLearn's family: they show what the runs' reports have."""

import numpy as np
import pytest
from two_classes import stream

from fedvine.core.rng import rng
from fedvine.data.ids import Ids
from fedvine.data.spec import Data
from fedvine.data.stream import EventStream
from fedvine.experiments.experiment import Experiment
from fedvine.papers import dgcolearn_runs
from fedvine.papers import dgcolearn_runs as figure
from fedvine.papers import dgcolearn_runs as scale
from fedvine.papers.dgcolearn_runs import FORGETTING as LINES
from fedvine.papers.dgcolearn_runs import figure14
from fedvine.papers.study import carry_out, planned
from fedvine.results.cells import cells


def experiment(data, fields):
    return Experiment.model_validate({
        "data": data, "method": figure.INCREMENTAL | {
            "rounds": 1, "hidden": 4} | fields,
        "stages": 40, "split": {"by": "hash", "k": 3}})


@pytest.mark.slow
def test_bytes_of_every_snapshot_are_those_of_the_reports(tmp_path, monkeypatch):
    draw = rng("figure 5")
    stream = EventStream(*draw.integers(0, 60, (2, 200)).astype(np.int32), np.arange(200),
                         Ids.of([f"n{i}" for i in range(60)]), name="uci")
    monkeypatch.setattr(Data, "open", lambda self: stream)
    monkeypatch.setattr(figure, "incremental_run", experiment)
    options = {"only": "uci", "seeds": 1, "jobs": 1, "budget": 0, "tell": print}
    nothing = carry_out(figure.figure5(), folder=tmp_path / "none", **options)
    assert not nothing.records and nothing.picture is None
    made = cells((experiment("uci", fields) for fields in figure.BOUNDS.values()), tmp_path)
    for cell in made:
        cell.experiment.run(cell.folder).finish()
    page = carry_out(figure.figure5(), folder=tmp_path, **options)
    assert page.picture is not None and page.picture.rendered()[:4] == b"\x89PNG"
    assert [r["line"] for r in page.records] == list(figure.BOUNDS)
    for record, cell in zip(page.records, made, strict=True):
        passes = [p for p in cell.summary["report"]["passes"] if p["passes"]]
        assert len(passes) == 4
        assert record["bytes"] == [p["bytes"] for p in passes]
        assert all(0 < a <= b for a, b in zip(record["bytes"], record["bytes_full"], strict=True))
    (grid,), moved = page.grids, sum(page.records[0]["bytes"]) / 1e6
    assert [row[0] for row in grid.rows] == list(figure.BOUNDS)
    assert f"{moved:.2f}" in grid.rows[0][1]


SMALL = {"source": "generated", "options": {"nodes": 120, "edges": 1200, "snapshots": 5}}


@pytest.mark.slow
@pytest.mark.parametrize("study", [scale.table9, scale.table10])
def test_costs_are_those_of_rounds_and_an_edge_is_cut_or_not(study, tmp_path, monkeypatch):
    monkeypatch.setattr(scale, "DRAWN", SMALL)
    options = {"only": "generated", "seeds": 1, "folder": tmp_path, "tell": print}
    nothing = carry_out(study(), budget=0, **options)
    assert not nothing.records and nothing.grids[0].rows[0][1:] == ["-"] * 8
    name, wanted = (("CLASSES", ("FedDGL", "commonest class")) if study is scale.table9 else
                    ("LINKS", ("recency",)))
    lines = {line: fields | ({"rounds": 2} if line not in ("commonest class", "recency") else {})
             for line, fields in getattr(scale, name).items()
             if line in (scale.ANEW, "DG-CoLearn", *wanted)}
    monkeypatch.setattr(scale, name, lines)
    for cell in cells((scale.scale_run(SMALL, m) for m in lines.values()), tmp_path):
        cell.experiment.run(cell.folder).finish()
    page = carry_out(study(), budget=0, **options)
    found = {r["line"]: r for r in page.records}
    assert list(found) == list(lines)
    anew, ours = found[scale.ANEW], found["DG-CoLearn"]
    for one in (anew, ours):
        assert min(one["training"], one["exchange"], one["cpu"], one["partition"]) > 0
        assert 0 < one["cut"] < 100 and one["megabytes"] > 0
    assert ours["megabytes"] <= anew["megabytes"]       # of rows that did not change none travels
    if study is scale.table9:
        assert found["FedDGL"]["megabytes"] == 0 and "training" not in found["commonest class"]
        assert 0 < ours["f1_micro"] <= 1
    else:
        assert "partition" not in found["recency"] and 0 < found["recency"]["auc"] < 1
    paper = {row[0]: row[1] for row in page.grids[-1].rows}
    assert paper["DG-CoLearn"] == ("53.56" if study is scale.table9 else "151.6")


FEW = {"rounds": 2, "hidden": 4, "epochs": 1}


@pytest.mark.slow
def test_the_page_has_what_each_run_forgot(tmp_path, monkeypatch):
    data = stream()
    monkeypatch.setattr(Data, "open", lambda self: data)
    whole = dgcolearn_runs.forgetting_run
    monkeypatch.setattr(dgcolearn_runs, "forgetting_run", lambda d, line: whole(d, line).updated(
        {"method": FEW, "stages": 60, "split": {"k": 3}}))
    for (_, _), (cell, *_) in planned(figure14(), "patent", 1, tmp_path).cells.items():
        cell.experiment.run(cell.folder).finish()
    page = carry_out(figure14(), only="patent", seeds=1, folder=tmp_path, budget=0)
    grid, = page.grids
    assert [row[0] for row in grid.rows] == list(LINES)
    assert page.picture.rendered()[:4] == b"\x89PNG"
    for record, row in zip(page.records, grid.rows, strict=True):
        assert len(record["forgetting"]) == 3                           # after stages 1, 2, 3
        assert row[1] == f"{record['forgetting'][-1]:.3f}"
        assert row[2] == f"{np.mean(record['forgetting']):.3f}"
        assert row[3] == f"{record['f1_micro']:.3f}"
    assert any(r["forgetting"] != page.records[0]["forgetting"] for r in page.records)


def test_a_page_without_runs_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(Data, "open", lambda self: stream())
    page = carry_out(figure14(), only="patent", seeds=1, folder=tmp_path, budget=0)
    assert not page.grids[0].rows and page.picture is None
    assert any("6 runs were not made" in note for note in page.notes)
