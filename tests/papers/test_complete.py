"""What a paper's table lacks, and our row beside the best rival."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pooch
import pytest
from typer.testing import CliRunner

from fedvine.cli.main import app
from fedvine.core.errors import FedvineError
from fedvine.datasets import at_hand
from fedvine.experiments.experiment import Experiment
from fedvine.papers import published
from fedvine.papers.published import PaperTable
from fedvine.papers.reproduce import lacks
from fedvine.papers.tables import Lacks, ahead
from fedvine.results.entry import Entry
from fedvine.tasks.link_prediction import LinkPrediction


@pytest.mark.slow
def test_an_empty_folder_lacks_every_row(tmp_path):
    lines = lacks("power-table2", only="Squirrel", folder=tmp_path)["power-table2"].missing
    rows = [row.name for row in PaperTable.named("power-table2").row]
    for name in rows:
        assert any(f" {name} has 0 of 5 seeds" in line for line in lines) or not lines


def test_what_cannot_be_checked_is_told_from_what_is_unknown(tmp_path):
    with pytest.raises(FedvineError, match=r"tgb-wiki is no paper's table .* one of dgcolearn-"):
        lacks("tgb-wiki", folder=tmp_path)
    with pytest.raises(FedvineError, match=r'no table called "power-tabel2" \(did you mean "power'):
        lacks("power-tabel2", folder=tmp_path)
    with pytest.raises(FedvineError, match="--only belongs to one page"):
        lacks("all", only="1", folder=tmp_path)


def test_all_are_checked_and_each_line_names_its_table(tmp_path, monkeypatch):
    monkeypatch.setattr("fedvine.papers.reproduce.lacking",
                        lambda table, *_: Lacks([f"1: {table.title} is not built yet."]))
    assert list(lacks("all", folder=tmp_path)) == sorted(published.names())


@pytest.mark.slow
def test_what_is_lacking_is_said_without_a_download(tmp_path, monkeypatch):
    def never(*_, **__):
        raise AssertionError("something is downloaded")
    monkeypatch.setattr(pooch, "retrieve", never)
    monkeypatch.delenv("FEDVINE_DATA", raising=False)
    monkeypatch.setenv("FEDVINE_CACHE", str(tmp_path))
    kept = Path(__file__).parents[2] / "docs/results/cells"
    store = tmp_path / "cells" / "kept"
    store.mkdir(parents=True)
    shutil.copy(kept / "wikipedia-early.jsonl", store)
    monkeypatch.setattr(LinkPrediction, "revision", 1)          # of the lines that were copied
    table = PaperTable.named("fedlink-table1")      # they are older than two of its rows
    older = table.model_copy(update={"row": [r for r in table.row if r.name not in (
        "Frequency", "Popularity, all clients")]})
    monkeypatch.setattr(PaperTable, "named", staticmethod(lambda name: older))
    found = lacks("fedlink-table1", only="5", folder=tmp_path / "cells")["fedlink-table1"]
    assert not found.missing and not found.absent               # by the lines, whatever the content
    found = lacks("fedlink-table1", only="5,6", folder=tmp_path / "cells")["fedlink-table1"]
    assert (found.code, len(found.absent)) == (4, 1)
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
