"""The runner of pages, what a paper's table lacks, and our row beside the best rival."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pooch
import pytest
import shop
from typer.testing import CliRunner

from fedvine.cli.main import app
from fedvine.core.errors import FedvineError
from fedvine.datasets import at_hand
from fedvine.experiments.experiment import Experiment
from fedvine.papers import reproduce as reproducing
from fedvine.papers.published import PaperTable
from fedvine.papers.reproduce import lacks
from fedvine.papers.study import Panel, Study, carry_out, chosen, experiments, planned
from fedvine.papers.tables import Lacks, ahead
from fedvine.results.entry import Entry
from fedvine.results.tables import Table, TableSet


def page(found):
    """A row a line: how many cells are finished, of how many."""
    rows = [[panel, str(line), f"{len(found.finished(panel, line))} of {len(row)}"]
            for (panel, line), row in found.cells.items()]
    return TableSet([Table("cells", ["panel", "line", "finished"], rows)],
                    ["A page.", *found.seeds, *found.gaps], found.records)


@pytest.fixture
def study(tmp_path):
    """Two panels of a shop, one of them with a single seed; one without data; one extra."""
    here = {"source": str(shop.write(tmp_path)), **shop.COLUMNS}
    gone = {**here, "source": str(tmp_path / "none.csv")}

    def panel(name, data, **more):
        return Panel(name, lambda folder: experiments({
            m: {"data": data, "stages": "400s", "method": m} for m in ("popularity", "edgebank")}),
            **more)
    return Study("Shops", [panel("Shop", here, id="1", seeds=1), panel("Shop 50 %", here, id="10"),
                           panel("Gone", gone), panel("more", here, extra=True)], page)


def test_only_names_panels_by_id_or_name_or_a_part_of_the_name(study):
    def names(only):
        return [p.name for p in chosen(study.title, study.panels, only)]
    assert names("1") == names("shop") == names("SHOP,") == ["Shop"]       # whole names come first
    assert names("10") == names("50") == ["Shop 50 %"]
    assert names("go, sho") == ["Shop", "Shop 50 %", "Gone"]               # in the study's order
    assert names(None) == names("") == []
    with pytest.raises(FedvineError, match=r'Shops has no experiment "gon e" \(did you mean "Gone"'
                       r"\?\); there are 1 \(Shop\), 10 \(Shop 50 %\), Gone, more\."):
        names("gon e")


def test_cells_are_planned_by_panel_line_and_seed(study, tmp_path):
    found = planned(study, None, 3, tmp_path / "cells")
    assert {place: [c.experiment.seed for c in row] for place, row in found.cells.items()} == {
        ("Shop", "popularity"): [0], ("Shop", "edgebank"): [0],
        ("Shop 50 %", "popularity"): [0, 1, 2], ("Shop 50 %", "edgebank"): [0, 1, 2]}
    assert [p.name for p in found.chosen] == ["Shop", "Shop 50 %", "Gone"]
    assert [p.name for p in found.panels] == ["Shop", "Shop 50 %"]
    assert "more" in {name for name, _ in planned(study, "more", 1, tmp_path / "cells").cells}


def test_a_page_says_what_it_cost_and_what_is_missing(study, tmp_path):
    options = {"seeds": 2, "budget": 0, "folder": tmp_path / "cells"}
    first = planned(study, "1", 1, tmp_path / "cells").cells["Shop", "popularity"][0]
    first.experiment.run(first.folder).finish()
    sheet = carry_out(study, **options)
    assert [row[2] for row in sheet.grids[0].rows] == ["1 of 1", "0 of 1", "1 of 2", "0 of 2"]
    title, cost, seeds, left, gone = sheet.notes
    assert title == "A page." and seeds.startswith("One seed")
    assert cost.startswith("1 run, 0.0 CPU minutes") and cost.endswith("3 more are not made.")
    assert left.startswith("4 runs were not made, the budget was spent")
    assert gone.startswith("Gone was not run, its data are not here: ") and "none.csv" in gone
    assert {(r["panel"], r["line"]) for r in sheet.records} == {
        ("Shop", "popularity"), ("Shop 50 %", "popularity")}


def test_what_cannot_be_checked_is_told_from_what_is_unknown(tmp_path):
    with pytest.raises(FedvineError, match=r"tgb-wiki is no paper's table .* one of dgcolearn-"):
        lacks("tgb-wiki", folder=tmp_path)
    with pytest.raises(FedvineError, match=r'no table called "power-tabel2" \(did you mean "power'):
        lacks("power-tabel2", folder=tmp_path)
    with pytest.raises(FedvineError, match="--only belongs to one page"):
        lacks("all", only="1", folder=tmp_path)


@pytest.mark.slow
def test_what_is_lacking_is_said_without_a_download(tmp_path, monkeypatch):
    def never(*_, **__):
        raise AssertionError("something is downloaded")
    monkeypatch.setattr(pooch, "retrieve", never)
    monkeypatch.delenv("FEDVINE_DATA", raising=False)
    monkeypatch.setenv("FEDVINE_CACHE", str(tmp_path))
    store = tmp_path / "cells" / "kept"
    store.mkdir(parents=True)
    shutil.copy(Path(__file__).parents[2] / "docs/results/cells/foursquare.parquet", store)
    found = lacks("fedlink-table2", folder=tmp_path / "cells")["fedlink-table2"]
    assert not found.missing and not found.absent               # by the lines, whatever the content
    found = lacks("fedlink-table2", folder=tmp_path / "none")["fedlink-table2"]
    assert (found.code, len(found.absent)) == (4, 2)
    assert found.sentences()[0].startswith("complete except for data that are not at hand: ")
    with at_hand(), pytest.raises(FedvineError, match="not at hand, and nothing is downloaded"):
        Experiment.model_validate({"data": "wikipedia", "method": "recency"}).data.open()


@pytest.mark.parametrize(("found", "code", "said"), [
    (Lacks(searched=True), 0, ["complete."]),
    (Lacks(), 0, ["complete; its rows are not tuned, and have the settings of its file."]),
    (Lacks(absent=["Flickr", "OGB"], searched=True), 4,
     ["complete except for data that are not at hand: Flickr, OGB."]),
    (Lacks(untuned={"Cora": ["TWP", "DSLR"], "OTC": ["TGN"]}, searched=True), 3,
     ["not tuned: Cora: TWP, DSLR; OTC: TGN."]),
    (Lacks(["Cora: a has 0 of 5 seeds."], {"Cora": ["a"]}, ["Flickr"], True), 1,
     ["Cora: a has 0 of 5 seeds.", "not tuned: Cora: a.",
      "data that are not at hand: Flickr."])])
def test_the_command_tells_what_is_lacking_by_its_exit_code(found, code, said, monkeypatch):
    assert found.code == code and found.sentences() == said
    monkeypatch.setattr("fedvine.papers.reproduce.lacks", lambda *_, **__: {
        "power-table2": found, "power-table3": Lacks(searched=True)})
    ended = CliRunner().invoke(app, ["reproduce", "all", "--check"])
    assert ended.exit_code == code
    assert ended.output.splitlines() == [*(f"power-table2, {line}" for line in said),
                                         "power-table3, complete."]


@pytest.mark.slow
def test_missing_runs_are_priced_by_similar_ones_and_the_cheapest_page_comes_first(
        study, tmp_path, monkeypatch):
    dear = replace(study, panels=study.panels[:1])
    monkeypatch.setattr(reproducing, "names", lambda: ["shops", "dear"])
    monkeypatch.setattr(reproducing, "study", {"shops": study, "dear": dear}.get)
    found = reproducing.estimate(seeds=2, folder=tmp_path / "cells")
    assert {name: runs for name, (runs, _) in found.items()} == {"dear": 2, "shops": 4, "all": 4}
    assert list(found) == ["dear", "shops", "all"]
    assert 0 < found["dear"][1] < found["shops"][1]
    carry_out(dear, folder=tmp_path / "cells")
    assert reproducing.estimate(seeds=2, folder=tmp_path / "cells")["dear"] == (0, 0)
    ended = CliRunner().invoke(app, ["reproduce", "all", "--estimate", "--seeds", "2", "--folder",
                                     str(tmp_path / "cells")])
    assert ended.output.splitlines()[0] == "dear: 0 runs, 0.0 CPU hours"
    assert ended.output.splitlines()[-1].startswith("all: 2 runs, ")


def test_ours_is_set_beside_the_best_rival_and_not_beside_a_ceiling():
    table = PaperTable.named("power-table2")
    by = {"power_plus": [90.0, 92.0], "joint (ceiling)": [99.0, 99.0], "POWER": [80.0, 83.0],
          "FedAvg": [50.0, 50.0]}
    panel = SimpleNamespace(name="Cora", about=SimpleNamespace(place="Cora"))

    def entry(_, line):
        return Entry(line, "", {s: [{"client": None, "scores": {"am": x}}]
                                for s, x in enumerate(by.get(line, []))})

    found = SimpleNamespace(panels=[panel], entry=entry)
    (line,) = ahead(table, found)
    assert "Cora +9.5 ±" in line and line.endswith("POWER.") and "2 seeds" in line
