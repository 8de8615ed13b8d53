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
from fedvine.papers.ahead import ahead
from fedvine.papers.published import PaperTable
from fedvine.papers.reproduce import lacks
from fedvine.results.entry import Entry


@pytest.mark.slow
def test_an_empty_folder_lacks_every_row(tmp_path):
    lines = lacks("power-table2", only="Squirrel", folder=tmp_path)
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
                        lambda table, *_: [f"1: {table.title} is not built yet."])
    lines = lacks("all", folder=tmp_path)
    assert [line.split(",")[0] for line in lines] == sorted(published.names())


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
    lines = lacks("fedlink-table1", only="5", folder=tmp_path / "cells")
    assert not any("has 0 of" in line for line in lines)        # by the lines, whatever the content
    with at_hand(), pytest.raises(FedvineError, match="not at hand, and nothing is downloaded"):
        Experiment.model_validate({"data": "wikipedia", "method": "recency"}).data.open()


def test_the_command_fails_where_something_is_lacking(tmp_path, monkeypatch):
    monkeypatch.setattr("fedvine.papers.reproduce.lacks", lambda *_, **__: ["Cora: a lacks."])
    found = CliRunner().invoke(app, ["reproduce", "power-table2", "--check"])
    assert found.exit_code == 1 and "Cora: a lacks." in found.output
    monkeypatch.setattr("fedvine.papers.reproduce.lacks", lambda *_, **__: [])
    found = CliRunner().invoke(app, ["reproduce", "power-table2", "--check"])
    assert found.exit_code == 0 and "is complete" in found.output


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
