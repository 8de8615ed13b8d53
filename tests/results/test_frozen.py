"""Pages of runs with an earlier protocol are text: nothing overwrites them."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedvine.cli.main import app
from fedvine.core.errors import FedvineError
from fedvine.papers import reproduce
from fedvine.results import frozen

ROOT = Path(__file__).parents[2]


def write(page, *lines):
    page.write_text("\n".join([*lines, "", "| a |", "|---|", "| 1 |", ""]))
    return page


def test_the_mark_stands_near_the_top(tmp_path):
    assert frozen.frozen(write(tmp_path / "a.md", f"{frozen.MARK} The runs ..."))
    assert frozen.frozen(write(tmp_path / "b.md", "# Title", "", f"{frozen.MARK} The runs ..."))
    assert not frozen.frozen(write(tmp_path / "c.md", *(["text"] * 20), frozen.MARK))
    assert not frozen.frozen(tmp_path / "none.md") and frozen.names_in(tmp_path) == {"a", "b"}


def test_a_command_does_not_overwrite_it(tmp_path, monkeypatch):
    page = write(tmp_path / "page.md", f"{frozen.MARK} The runs ...")
    before = page.read_text()
    for words in (["reproduce", "power-table4"], ["compare", "edgebank", "--data", "flights"]):
        found = CliRunner().invoke(app, [*words, "--markdown", str(page)])
        assert isinstance(found.exception, FedvineError)
        assert "page.md is of runs with an earlier version" in str(found.exception)
    assert page.read_text() == before


def test_all_pages_leave_it_out_and_run_nothing_for_it(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduce, "names", lambda: ["power-table4"])
    found = reproduce.reproduce_all(without={"power-table4"}, folder=tmp_path)
    assert found == {"power-table4": reproduce.LEFT_OUT} and not list(tmp_path.iterdir())


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/results/*.md")), ids=lambda p: p.name)
def test_a_frozen_page_says_why_in_one_line(page):
    if frozen.frozen(page):
        line, = (x for x in page.read_text().splitlines() if x.startswith(frozen.MARK))
        assert "earlier version of " in line and line.endswith("before release 0.1.0.")
