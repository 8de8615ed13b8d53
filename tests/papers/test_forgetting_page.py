"""Figure 14: the page shows what the runs forgot."""

import numpy as np
import pytest
from two_classes import stream

from fedvine.data.spec import Data
from fedvine.experiments.experiment import Experiment
from fedvine.papers import dgcolearn_runs
from fedvine.papers.dgcolearn_runs import FORGETTING as LINES
from fedvine.papers.dgcolearn_runs import figure14
from fedvine.papers.study import carry_out, planned

SMALL = {"rounds": 2, "hidden": 4, "features": 4, "epochs": 1}


@pytest.mark.slow
def test_the_page_has_what_each_run_forgot(tmp_path, monkeypatch):
    data = stream()
    monkeypatch.setattr(Data, "open", lambda self: data)
    monkeypatch.setattr(dgcolearn_runs, "forgetting_run", lambda d, method:
                        Experiment.model_validate({
                            "data": d, "method": method | SMALL, "stages": 60,
                            "protocol": {"forgetting": True}, "split": {"by": "hash", "k": 3}}))
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
