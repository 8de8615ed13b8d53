"""Studies of exchanges and of partitions that grow: what they show is what the runs wrote down."""

import csv

import numpy as np
import pytest

from fedvine.core.rng import rng
from fedvine.data.ids import Ids
from fedvine.data.node_data import NodeData
from fedvine.data.spec import Data
from fedvine.data.stream import EventStream
from fedvine.experiments import run_folder
from fedvine.experiments.experiment import Experiment
from fedvine.papers import dgcolearn, reproduce
from fedvine.papers.dgcolearn import (
    EXCHANGES,
    LINES,
    PARTITIONERS,
    SCHEDULES,
    cost,
)
from fedvine.papers.published import PAPERS
from fedvine.papers.study import carry_out
from fedvine.results.cells import cells, exchanges

NAMES = dgcolearn.STUDIES
OPTIONS = {"only": "patent", "seeds": 2, "jobs": 1, "budget": 0, "tell": print}
ROUNDS, HIDDEN, STAGES = 3, 4, 4


def small() -> EventStream:
    """80 nodes of three classes; seven of ten edges stay inside a class."""
    draw, count, many = rng("dynamic studies"), 80, 480
    y = np.arange(count) % 3
    src = draw.integers(0, count, many)
    near = (src + 3 * draw.integers(1, 8, many)) % count
    dst = np.where(draw.random(many) < 0.7, near, draw.integers(0, count, many))
    return EventStream(src.astype(np.int32), dst.astype(np.int32), np.arange(many),
                       Ids.of([f"n{i}" for i in range(count)]), name="patent",
                       nodes=NodeData.make(np.arange(count), np.zeros(count, int), y, list("abc")))


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Every cell of the studies, with few rounds, on a small stream; one seed of two."""
    with pytest.MonkeyPatch.context() as patch:
        stream = small()
        patch.setattr(Data, "open", lambda self: stream)
        patch.setattr(dgcolearn, "METHOD", dgcolearn.METHOD | {
            "rounds": ROUNDS, "epochs": 2, "hidden": HIDDEN})
        patch.setattr(dgcolearn, "experiment", experiment)
        folder = tmp_path_factory.mktemp("cells")
        lines = [*({"schedule": s} for s in SCHEDULES), *({"exchange": e} for e in EXCHANGES),
                 *PARTITIONERS.values(), *LINES.values()]
        every = cells((experiment("patent", line) for line in lines), folder)
        for cell in {c.folder: c for c in every}.values():
            cell.experiment.run(cell.folder).finish()
        yield folder


def experiment(data, fields):
    """Four stages of it."""
    return Experiment.model_validate({
        "data": data, "method": dgcolearn.METHOD | fields, "stages": 480 // STAGES,
        "split": {"by": "hash", "k": 5}})


def one(folder, **fields):
    """The finished cell of seed 0 with these fields."""
    cell, = cells([experiment("patent", fields)], folder)
    assert cell.finished
    return cell


def summary(cell):
    """What the cell's run ended with."""
    found = run_folder.read_summary(cell.folder)
    assert found is not None
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_study_shows_what_is_finished_and_says_what_is_not(name, ran):
    sheet = reproduce.reproduce(f"{name}", folder=ran, **OPTIONS)
    assert name in reproduce.names() and sheet.notes[0] and sheet.records
    for grid in sheet.grids:
        assert grid.rows and all(len(row) == len(grid.columns) for row in grid.rows)
    assert any("were not made, the budget was spent" in note for note in sheet.notes)
    assert (sheet.picture is None) == ("table" in name)
    assert sheet.picture is None or sheet.picture.rendered()[:4] == b"\x89PNG"
    nothing = carry_out(NAMES[name](), folder=ran / "none", **OPTIONS)     # no cell is finished
    assert not nothing.records and nothing.picture is None
    assert not any(note.startswith("Ours") for note in nothing.notes)


def test_exchanges_are_told_apart_by_how_they_end():
    """Two in a row; then one for states, of raw features; in the end scores; older names, too."""
    said = "train say say hold say say hold trained offer take say say embed say say embed".split()
    lines = [{"t": 0, "r": 1, "function": f, "seconds": 1.0, "up": 10 ** i, "down": 2 * 10 ** i}
             for i, f in enumerate(said)]
    assert [(e["calls"], e["seconds"], e["up"], e["down"]) for e in exchanges(lines)] == [
        (3, 3.0, 1110, 2200), (3, 3.0, 1110000, 2200000)]


def test_the_formula_gives_what_the_paper_prints():
    for N, cut, edges, T, D, printed in dgcolearn.PRINTED.values():
        kilo, seconds = printed.removesuffix("s").split("KB + ")
        assert cost(N, cut, edges, D) / 1e3 == pytest.approx(float(kilo))
        assert float(seconds) == pytest.approx(T * dgcolearn.LATENCY)


def test_table_5_has_the_scores_of_the_runs_and_the_paper_beside_them(ran):
    ours, paper = carry_out(dgcolearn.table5(), folder=ran, **OPTIONS).grids
    for row, schedule in zip(ours.rows, SCHEDULES, strict=True):
        mean = summary(one(ran, schedule=schedule))["scores"]["test"]["mean"]
        assert row[1:3] == [f"{mean['f1_micro']:.3f}", f"{mean['f1_macro']:.3f}"]
        assert row[3] == ("3" if schedule in ("first-epoch", "last-epoch", "before") else "1")
    with (PAPERS / "dgcolearn_table5_exchange_schedules.csv").open() as file:
        printed = {(p["schedule"], p["dataset"]): p for p in csv.DictReader(file)}
    assert [row[0] for row in paper.rows] == list(SCHEDULES.values())[:4]
    for label, *cells_ in paper.rows:
        assert cells_ == [printed[label, d][key] for key in ("f1", "communication_time_s")
                          for d in ("DBLP5", "DBLP3", "Reddit")]
