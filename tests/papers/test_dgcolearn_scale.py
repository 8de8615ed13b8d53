"""Tables 9 and 10: what a large graph costs, on a small one."""

import pytest

from fedvine.papers import dgcolearn_runs as scale
from fedvine.papers.study import carry_out
from fedvine.results.cells import cells

SMALL = {"source": "generated", "options": {"nodes": 120, "edges": 1200, "snapshots": 5}}


@pytest.mark.slow
@pytest.mark.parametrize("study", [scale.table9, scale.table10])
def test_costs_are_those_of_rounds_and_an_edge_is_cut_or_not(study, tmp_path, monkeypatch):
    monkeypatch.setattr(scale, "DRAWN", SMALL)
    options = {"only": "generated", "seeds": 1, "folder": tmp_path, "tell": print}
    nothing = carry_out(study(), budget=0, **options)
    assert not nothing.records and nothing.grids[0].rows[0][1:] == ["-"] * 8
    lines = scale.CLASSES if study is scale.table9 else scale.LINKS
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


@pytest.mark.slow
def test_cutting_anew_starts_from_nothing_in_every_snapshot(tmp_path):
    (cell,) = cells([scale.scale_run(SMALL, scale.ALL)], tmp_path)
    cell.experiment.run(cell.folder).finish()
    found = scale.cut_anew(cell)
    placed = [h["cut"] for h in cell.summary["report"]["snapshots"]]
    assert 0 < found["cut"] < 1 and found["seconds"] > 0
    assert found["cut"] < sum(placed) / len(placed)     # beside neighbours alone cuts more
