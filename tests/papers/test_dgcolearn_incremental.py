"""Figure 5 shows the bytes that the reports of the runs have, by snapshot."""

import numpy as np
import pytest

from fedvine.core.rng import rng
from fedvine.data.ids import Ids
from fedvine.data.spec import Data
from fedvine.data.stream import EventStream
from fedvine.experiments.experiment import Experiment
from fedvine.papers import dgcolearn_runs as figure
from fedvine.papers.study import carry_out
from fedvine.results.cells import cells


def experiment(data, fields):
    return Experiment.model_validate({
        "data": data, "method": figure.INCREMENTAL | {
            "rounds": 1, "hidden": 4, "features": 4} | fields,
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
