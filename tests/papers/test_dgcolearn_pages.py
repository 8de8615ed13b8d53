"""Studies of exchanges and of partitions that grow: what they show is what the runs wrote down."""

import csv
from collections import Counter

import numpy as np
import pytest

from fedvine.core.errors import FedvineError
from fedvine.core.rng import rng
from fedvine.data.ids import Ids
from fedvine.data.node_data import NodeData
from fedvine.data.spec import Data
from fedvine.data.stream import EventStream
from fedvine.experiments import run_folder
from fedvine.experiments.experiment import Experiment
from fedvine.methods._dgcolearn.placement import Placement
from fedvine.papers import dgcolearn, reproduce
from fedvine.papers.dgcolearn import (
    EXCHANGES,
    LINES,
    ORDERS,
    PARTITIONERS,
    SCHEDULES,
    cost,
    partition_seconds,
)
from fedvine.papers.published import PAPERS
from fedvine.papers.study import carry_out, planned
from fedvine.results.cells import cells, exchanges

NAMES = dgcolearn.STUDIES
OPTIONS = {"only": "patent", "seeds": 2, "jobs": 1, "budget": 0, "tell": print}
ROUNDS, HIDDEN, FEATURES, STAGES = 3, 4, 6, 4


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
            "rounds": ROUNDS, "epochs": 2, "hidden": HIDDEN, "features": FEATURES})
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


@pytest.mark.slow
@pytest.mark.parametrize(("schedule", "rounds"), [
    ("before", [1, 2, 3]), ("first-epoch", [1, 2, 3]), ("last-epoch", [1, 2, 3]),
    ("first-round", [1]), ("middle-round", [2])])
def test_exchanges_of_training_are_told_from_those_of_states_and_scores(ran, schedule, rounds):
    lines = run_folder.read_lines(one(ran, schedule=schedule).folder, "messages.jsonl")
    found = exchanges(lines)
    assert [(e["t"], e["r"]) for e in found] == [(t, r) for t in range(STAGES) for r in rounds]
    assert {e["calls"] for e in found} == {3}                      # two layers, and holding on
    count = Counter(line["function"] for line in lines)
    assert count["hold"] == len(found)
    assert count["send_messages"] == 2 * (len(found) + count["finish"] + count["save_states"])
    assert sum(e["seconds"] for e in found) < sum(
        line["seconds"] for line in lines if line["function"] in ("send_messages", "hold"))


def test_exchanges_are_told_apart_by_how_they_end():
    """Two in a row; then one for states, of raw features; in the end scores; older names, too."""
    said = "train say say hold say say hold trained offer take say say embed say say embed".split()
    lines = [{"t": 0, "r": 1, "function": f, "seconds": 1.0, "up": 10 ** i, "down": 2 * 10 ** i}
             for i, f in enumerate(said)]
    assert [(e["calls"], e["seconds"], e["up"], e["down"]) for e in exchanges(lines)] == [
        (3, 3.0, 1110, 2200), (3, 3.0, 1110000, 2200000)]


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["before", "last-epoch"])
def test_bytes_of_an_exchange_are_rows_and_sums_of_border_nodes(ran, schedule):
    """Also where the shared model goes along."""
    experiment = one(ran, schedule=schedule).experiment
    done = experiment.run().finish()
    server = done.server
    assert server is not None
    (a, b), owner = server.snapshot.edges, server.placement.owner
    rows = len(np.unique(np.concatenate([a, b])[np.tile(owner[a] != owner[b], 2)]))
    last = exchanges(run_folder.read_lines(one(ran, schedule=schedule).folder,
                                           "messages.jsonl"))[-1]
    layers = 2 * rows * HIDDEN * 4                                 # the narrower width, twice
    named = 4 * (len(server.snapshot.nodes) + 4 * rows)            # places go down, too
    for way, more in (("up", 0), ("down", named)):
        assert layers <= last[way] <= layers + more + 5 * 3 * 120, way     # five clients, 3 calls


@pytest.mark.parametrize("exchange", ["paper", "fedgcn"])
def test_raw_features_travel_once_a_snapshot(ran, exchange):
    found = exchanges(run_folder.read_lines(one(ran, exchange=exchange).folder, "messages.jsonl"))
    assert [(e["t"], e["r"], e["calls"]) for e in found] == [(t, 1, 2) for t in range(STAGES)]


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


def test_tables_6_and_7_multiply_what_the_report_says(ran):
    sheet = carry_out(dgcolearn.table67(), folder=ran, **OPTIONS)
    rows = {row[0].split(", ")[1]: row for row in sheet.grids[0].rows}
    width = {"layerwise": 2 * HIDDEN, "paper": FEATURES + HIDDEN, "fedgcn": FEATURES}
    for exchange, D in width.items():
        history = summary(one(ran, exchange=exchange))["report"]["snapshots"]
        cut = np.mean([h["cut"] for h in history])
        N, shown, edges, T, found, formula = rows[exchange][1:7]
        assert (N, edges, T, found) == ("1", "480", str(STAGES), str(D))
        assert shown == f"{cut:.3f}" and formula == f"{cut * 480 * 4 * D / 1e3:,.0f} + 0.4 s"
    up = {r["line"]: r["up"] for r in sheet.records}
    assert up["fedgcn"] < up["layerwise"] < up["paper"]            # 6, 8 and 10 numbers a node


@pytest.mark.slow
def test_lines_by_snapshot_are_those_of_the_reports(ran):
    history = {line: summary(one(ran, **fields))["report"]["snapshots"]
               for line, fields in LINES.items()}
    cut, = carry_out(dgcolearn.figure7(), folder=ran, **OPTIONS).grids
    entropy, = carry_out(dgcolearn.figure12(), folder=ran, **OPTIONS).grids
    inside, ends = carry_out(dgcolearn.figure9(), folder=ran, **OPTIONS).grids
    assert f"log2(n) = {np.log2(3):.2f}" in entropy.title
    for line, *row in cut.rows:
        values = [h["cut"] for h in history[line]]
        assert row == [f"{np.mean(values):.3f}", *(f"{v:.2f}" for v in values)]
    for grid, key in ((inside, "cov_inside"), (ends, "cov")):
        for line, *row in grid.rows:
            values = [h[key] for h in history[line]]       # t, t + 1 and t + 2 for t = 0, 1
            assert row[:3] == [f"{np.mean(values[i:i + 2]):.3f}" for i in range(3)]


def test_orders_that_make_the_same_partition_are_named(ran, monkeypatch):
    def said() -> bool:
        notes = carry_out(dgcolearn.figure7(), folder=ran, **OPTIONS).notes
        return any(note.startswith("On patent the three orders") for note in notes)
    history = [summary(one(ran, order=o))["report"]["snapshots"] for o in ORDERS]
    assert said() == (history[0] == history[1] == history[2])
    monkeypatch.setattr(dgcolearn, "ORDERS", ("mincut_first",) * 3)
    assert said()


def test_boxes_are_quartiles_of_clients_accuracies(ran):
    grid, = carry_out(dgcolearn.figure13(), folder=ran, **OPTIONS).grids
    for line, n, median, low, high, iqr, *_ in grid.rows:
        folder = one(ran, **LINES[line]).folder
        values = [right / many for found in run_folder.read_lines(folder, "metrics.jsonl")
                  if found["stage"] == found["t"] + 2 for right, many in found["parts"].values()]
        kept = sorted(one(ran, **LINES[line]).log("accuracies"))
        assert sorted(values) == pytest.approx(kept) and n == str(len(values))
        q = np.percentile(values, [25, 50, 75])
        assert (low, median, high) == tuple(f"{v:.3f}" for v in q)
        assert float(iqr) == pytest.approx(q[2] - q[0], abs=0.001)


def test_a_partition_that_is_timed_alone_is_the_one_of_the_run(ran, monkeypatch):
    cell, parts = one(ran, partition="louvain"), []
    assign = Placement.assign

    def watched(placement, *now):
        assign(placement, *now)
        parts.append(placement.part)
    monkeypatch.setattr(Placement, "assign", watched)
    assert 0 < partition_seconds(cell) < 60
    assert len(parts) == 3 * STAGES
    report = summary(cell)["report"]
    for last in parts[STAGES - 1::STAGES]:
        assert np.bincount(last[last >= 0], minlength=5).tolist() == report["nodes"]


def test_data_are_chosen_by_a_part_of_their_name(ran):
    def names(only):
        return [p.name for p in planned(dgcolearn.table5(), only, 1, ran).chosen]
    assert names(None) == ["sociopatterns", "patent", "flights"]
    assert names("patt, wiki") == ["sociopatterns", "wikipedia"]
    with pytest.raises(FedvineError, match=r'no experiment "patents" \(did you mean "patent"'):
        names("patents")
