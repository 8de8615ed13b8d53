"""Tables and pictures of comparisons show every number and label whole, and what they are of."""

import csv
import io
import re
import shutil
import subprocess

import pytest
from matplotlib.figure import Figure

from fedvine.core.errors import FedvineError
from fedvine.core.text import Terminal, plain
from fedvine.results import comparison as charts
from fedvine.results.comparison import Comparison
from fedvine.results.entry import Entry
from fedvine.results.pictures import Drawing
from fedvine.results.tables import Table, TableSet
from fedvine.tasks.link_prediction import LinkPrediction

LONG = "fedlink_bpr (steps=10, learning_rate=0.00186, negatives=5, masked=0.49)"
OTHER = "fedlink_bpr (steps=3, learning_rate=0.01, negatives=2, masked=0.5)"
HEADS = ["method", "AUC new", "MRR new", "AUC all", "MRR all"]


def shown(table, width=80):
    """Lines of a table on a terminal of this width."""
    out = io.StringIO()
    TableSet([table], [], []).show(Terminal(file=out, width=width))
    return out.getvalue().splitlines()


def entry(label, method, seeds, clients=("a", "b"), value=0.5):
    costs = dict.fromkeys(("seconds_total", "bytes_up", "bytes_down"), 1)
    return Entry(label, method, {s: [{"client": c, "scores": {
        "auc_new": value + s / 100, "auc": value, "mrr": value, "am": value}, **costs}
        for c in (None, *clients)] for s in range(seeds)})


@pytest.mark.parametrize("cell", ["0.512 0.548†", "0.512 ±0.048", "-0.013 ±0.016 p=.090"])
@pytest.mark.parametrize("width", [60, 80, 200])
def test_numbers_are_whole_beside_long_names(cell, width):
    lines = shown(Table("Scores", HEADS, [[LONG, *[cell] * 4], [OTHER, *[cell] * 4]]), width)
    text = " ".join(lines)
    assert max(map(len, lines)) <= width and "…" not in text
    for number in cell.split():
        assert text.count(number) == 8
    names = " ".join(re.split(r"\s{2,}| (?=[-0-9±p])", line)[0] for line in lines)
    for part in re.findall(r"\w+=[\d.]+", LONG + OTHER):
        assert part in names


def test_columns_that_do_not_fit_go_on_below_under_whole_heads():
    names = [f"fedlink_kind_{i}" for i in range(8)]
    lines = shown(Table("By client", ["client", *names], [
        ["ayr", *(f"0.{i}11 0.{i}22 0.{i}33" for i in range(8))]]))
    assert max(map(len, lines)) <= 80
    heads = [line.split() for line in lines if line.startswith("client")]
    assert len(heads) > 1 and [h for head in heads for h in head[1:]] == names
    assert all(f"0.{i}{j}{j}" in " ".join(lines) for i in range(8) for j in (1, 2, 3))


@pytest.fixture
def drawn(monkeypatch):
    """Draw a comparison, and return its figure and title."""
    def draw(found, file):
        kept = []

        def drawing(*given):
            kept.extend(given)
            return Drawing(*given)
        monkeypatch.setattr(charts, "Drawing", drawing)
        charts.chart(found, file)
        return kept
    return draw


def texts(figure):
    return [t.get_text() for t in figure.axes[0].get_yticklabels()]


def test_a_picture_has_whole_labels_and_the_seeds_that_were_run(drawn, tmp_path):
    found = Comparison("x", 3, LinkPrediction(negatives=5), [
        entry(LONG, "fedlink", 1), entry(OTHER, "fedlink", 2, value=0.6)], ["a", "b", "c"])
    figure, title = drawn(found, tmp_path / "a.png")
    assert [t.replace("\n", " ") for t in texts(figure)] == [LONG, OTHER]
    assert max(len(line) for t in texts(figure) for line in t.split("\n")) <= 40
    assert title == "x: test scores, 1 to 2 of 3 seeds"


NAMES = ["a_b & 50 % of {x} #1", "\\input{/etc/passwd}", "$x^2$~<y>|z", "=1+2", "+0.012 ±0.004"]


@pytest.fixture
def sheet():
    first = Table("50 % of a_b", ["method", "AUC, new"], [[n, "0.712 ±0.004†"] for n in NAMES])
    return TableSet([first, Table("Second", ["method"], [["x"]])], ["One note.\nTwo lines."], [],
                    Drawing(Figure(), "Title"))


def test_latex_has_no_command_of_a_name(sheet, tmp_path):
    sheet.write(table=tmp_path / "a.tex")
    text = (tmp_path / "a.tex").read_text()
    assert text.startswith("% 50 % of a_b\n\\begin{tabular}{lr}\n\\hline\n"
                           "method & AUC, new \\\\\n\\hline\n"
                           "a\\_b \\& 50 \\% of \\{x\\} \\#1 & 0.712 $\\pm$0.004\\dag{} \\\\\n")
    assert "\\textbackslash{}input\\{/etc/passwd\\}" in text and "\\input" not in text
    assert text.count("\\begin{tabular}") == text.count("\\end{tabular}") == 2
    assert text.endswith("% One note.\n% Two lines.\n")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(sheet, tmp_path):
    (tmp_path / "a.tex").write_text("\\documentclass{article}\\begin{document}" + sheet.latex()
                                    + "\n\\end{document}")
    subprocess.run(["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "a.tex"],
                   cwd=tmp_path, check=True, capture_output=True)


def test_csv_has_every_cell_and_no_formula(sheet, tmp_path):
    sheet.write(table=tmp_path / "a.csv")
    with open(tmp_path / "a.csv", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[:2] == [["50 % of a_b"], ["method", "AUC, new"]]
    assert [row[0] for row in rows[2:7]] == [*NAMES[:3], "'=1+2", "+0.012 ±0.004"]
    assert rows[7:] == [[], ["Second"], ["method"], ["x"]]
    assert sheet.write(table=tmp_path / "a.md") is None
    assert (tmp_path / "a.md").read_text() == sheet.markdown()


@pytest.mark.parametrize(("text", "escaped"), [
    ("-0.3", False), ("+1.2 ±0.4", False), ("-0.1 0.2 +0.3", False), ("-3 (2 of 3)", False),
    ("-2.5 %", False), ("-2+3+cmd|' /C calc'!A0", True), ('-1+HYPERLINK("http://x")', True),
    ("+1-1", True), ("-1.5e", True), ("@a", True)])
def test_numbers_stay_as_they_are_in_csv_and_formulas_behind_one_do_not(text, escaped):
    assert plain(text) == ("'" + text if escaped else text)


@pytest.mark.parametrize(("kind", "begin"), [("png", b"\x89PNG"), ("pdf", b"%PDF"),
                                             ("svg", b"<?xml")])
def test_a_picture_is_of_the_kind_of_its_name_and_the_same_each_time(sheet, kind, begin, tmp_path):
    sheet.write(plot=tmp_path / f"a.{kind}")
    found = (tmp_path / f"a.{kind}").read_bytes()
    assert found.startswith(begin) and found == sheet.picture.rendered(kind)
    with pytest.raises(FedvineError, match="no picture"):
        TableSet([], [], []).write(plot=tmp_path / f"b.{kind}")
