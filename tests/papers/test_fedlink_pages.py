"""FedLink's figures: their cells are those of the tables, their numbers those of the runs."""

from dataclasses import dataclass
from typing import Any

import pytest

from fedvine.core.errors import FedvineError
from fedvine.papers import fedlink, published, reproduce, study
from fedvine.papers.fedlink import AUTO, SHARES, THINNED, table1, with_method
from fedvine.papers.published import PaperTable
from fedvine.results.cells import Job

NAMES = fedlink.STUDIES
OPTIONS: dict[str, Any] = {"seeds": 2, "jobs": 1, "budget": 0, "tell": print}
ABSENT = "wikipedia"


def scores(experiment):
    """Made up, so that each cell has its own: AUC is best at a capacity of 1,000 or 1,150."""
    method = experiment.method
    capacity = getattr(method, "capacity", 1)
    near = 0.0 if capacity == AUTO else abs(capacity - 1000) / 1e6
    base = 0.8 - near - 0.001 * len(method.name) - 0.1 * (1 - (experiment.data.share or 1))
    return base + 0.01 * experiment.seed * (capacity == AUTO) + 0.0001 * method.rounds


@dataclass(frozen=True)
class Made(Job):
    """A finished cell without a run."""

    @property
    def finished(self):
        return not (self.experiment.method.name == "stfl" and self.experiment.seed == 1)

    def records(self):
        auc, method = scores(self.experiment), self.experiment.method
        cost = {"seconds_round": 0.01 * method.rounds,
                "peak_memory_bytes": 500_000_000 + 1_000_000 * method.rounds}
        countries = self.experiment.data.options.get("countries", ["x", "y"])
        return [{"client": c, "scores": {"auc": auc + 0.001 * i, "auc_new": auc - 0.1}, **cost}
                for i, c in enumerate([None, *countries])]


@pytest.fixture(autouse=True)
def cells(monkeypatch, tmp_path):
    """Every cell is finished, but STFL's second seed; there are no data of Wikipedia."""
    asked = []

    def made(experiments, folder):
        found = []
        for e in experiments:
            if ABSENT in e.data.source:
                raise FedvineError("Wikipedia is not here.")
            found.append(Made(e, tmp_path / "none", e.data.source, 1000))
        asked.extend(found)
        return found
    monkeypatch.setattr(study, "cells", made)
    monkeypatch.setattr(study, "fill", lambda rows, **options: [])
    monkeypatch.setattr(published, "half", lambda setting: {"source": "wikipedia"})
    return asked


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_figure_has_tables_and_a_picture_and_says_what_is_not_here(name):
    sheet = reproduce.reproduce(name, **OPTIONS)
    assert name in reproduce.names() and sheet.records
    for grid in sheet.grids:
        assert grid.rows and all(len(row) == len(grid.columns) for row in grid.rows)
    assert sheet.picture and sheet.picture.rendered()[:4] == b"\x89PNG"
    assert sheet.notes[0].startswith("The paper")
    gone = [note for note in sheet.notes if "Wikipedia is not here." in note]
    assert len(gone) == {"fedlink-figure2": 1, "fedlink-figurec3": 1, "fedlink-figure3": 2}.get(
        name, 0)
    if name == "fedlink-figure2":
        nothing = reproduce.reproduce(name, only="wiki", **OPTIONS)
        assert nothing.picture is None and not nothing.records


@pytest.mark.slow
def test_buffers_by_client_the_best_and_auto():
    sheet = reproduce.reproduce("fedlink-figure2", only="Foursquare,flights", **OPTIONS)
    whole, flights, last = sheet.grids
    assert whole.columns == ["edges of a buffer", "US", "BR", "ID", "TR", "JP", "mean", "AUC new",
                             "memory (MB)"]
    assert [row[0] for row in whole.rows] == [
        "125", "250", "500", "1,150 *", "2,300", "4,600", "9,200", "auto (each client's own)"]
    assert [row[0] for row in flights.rows] == ["250", "1,000 *", "4,000", "16,000", "64,000",
                                                "auto (each client's own)"]
    best = table1("1")
    assert whole.rows[3][1] == " ".join([f"{scores(best) + 0.001:.3f}"] * 2)     # two seeds
    assert {row[-1] for row in whole.rows} == {"520"}       # of the whole process
    assert [row[:2] for row in last.rows] == [["Foursquare", "1,150"], ["flights", "1,000"]]
    each = [scores(with_method(best, capacity=AUTO).model_copy(update={"seed": s})) - scores(best)
            for s in (0, 1)]                                    # seeds differ by 0.01
    assert last.rows[0][4] == last.rows[0][5] == " ".join(f"{d:+.3f}" for d in each)


@pytest.mark.slow
def test_thinned_data_are_those_of_table_c3(cells):
    sheet = reproduce.reproduce("fedlink-figurec5", **OPTIONS)
    plain = [c.experiment.plain() for c in cells]
    c3, first = PaperTable.named("fedlink-tablec3"), PaperTable.named("fedlink-table1")
    for setting in c3.experiment:
        for row in c3.row:
            assert c3.build(setting, row).plain() in plain
    for place in (0, 2):
        for row in first.row:
            assert (first.build(first.experiment[place], row).plain() in plain) == (
                row.name in THINNED)
    auc = next(g for g in sheet.grids if g.title == "Foursquare US BR JP MX ES: AUC")
    assert auc.columns == ["method", "100 %", "50 %", "25 %", "2 %"]
    rows = {row[0]: row[1:] for row in auc.rows}
    assert rows["STFL"] == [f"{scores(table1('3', 'STFL', s)):.3f}" for s in SHARES]   # one seed
    assert rows["Local"] == [" ".join([f"{scores(table1('3', 'Local', s)):.3f}"] * 2)
                             for s in SHARES]
