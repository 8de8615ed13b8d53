"""Names that would act as markup, mathematics, tags or formulas, from the table to every page."""

import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from wrong import fedvine

from fedvine.core.text import cells, drawn, unguarded
from fedvine.experiments.answers import read_tables, write_tables
from fedvine.results.report import PAGE

NASTY = ["[/red]", "[bold", r"$\frac{$", "$a$", "<script>alert(1)</script>", '=HYPERLINK("x","y")',
         "@SUM(1)", "_hidden", "a|b](http://x)", ":smile:", "wide 你好", "esc\x1b[2J",
         "'\"&amp;"]
FORMULA = re.compile(r"^[=+\-@]")


class Tags(HTMLParser):
    """The tags of a page with their attributes, in their order."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, attrs))

    def alone(self):
        """Whether these are the tags of the page itself, its policy and the answers that it has."""
        own = {("meta", "http-equiv"), ("script", "type")}
        page = Tags(PAGE.read_text("utf-8")).found
        more = [tag for tag in self.found if tag not in page]
        return ([tag for tag in self.found if tag in page] == page and len(more) == 2
                and {(name, attributes[0][0]) for name, attributes in more} == own)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A table whose users, items, clients, columns and file are called so, and a run of it."""
    place = tmp_path_factory.mktemp("nasty")
    rows = [[f"u {NASTY[i % len(NASTY)]}" if i % 2 else NASTY[i % len(NASTY)],
             NASTY[i * 7 // 3 % len(NASTY)], 1000 + 10 * i, NASTY[i % 9 if i % 4 else 8]]
            for i in range(260)]
    columns = ["<b>who", "=what", r"$\frac{$", "[red]"]
    with open(place / "<script>x.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([columns, *rows])
    return place, ["--data", "<script>x.csv", "--src", columns[0], "--dst", columns[1], "--time",
                   columns[2], "--client", columns[3]]


@pytest.fixture
def table(made, monkeypatch):
    monkeypatch.chdir(made[0])
    monkeypatch.setenv("COLUMNS", "300")
    return made[1]


def done(*arguments):
    code, out, told = fedvine(*arguments)
    assert code == 0, told
    assert "\x1b" not in out + told
    return out


@pytest.mark.slow
def test_from_the_run_to_pages_pictures_and_tables(table):
    out = done("run", "edgebank", *table, "--out", "run", "--json", "scores.json")
    for name in NASTY[:6]:
        assert name in out                      # as it is called, and nothing missing of it
    assert {r["client"] for r in json.loads(Path("scores.json").read_text())} >= set(NASTY[:6])
    assert "<script>" in done("show", "run")
    done("report", "run", "--out", "page.html")
    text = Path("page.html").read_text("utf-8")
    assert Tags(text).alone() and r"\u003cscript>alert(1)" in text
    done("compare", "edgebank", "popularity", *table, "--seeds", "1", "--markdown", "all.md",
         "--plot", "all.png", "--json", "all.json")
    assert Path("all.png").read_bytes().startswith(b"\x89PNG")
    written = Path("all.md").read_text("utf-8")
    assert "<script" not in written and "](http" not in written
    lines = [line for line in written.splitlines() if line.startswith("| ")]
    assert any(r"a\|b" in line for line in lines)
    assert "<script" in done("compare", "edgebank", "popularity", *table, "--seeds", "1")


@pytest.mark.slow
def test_forecasts_in_csv_parquet_and_on_the_terminal(table):
    done("run", "edgebank", *table, "--out", "asked")
    done("predict", "asked", "--all", "--out", "all.csv")
    done("predict", "asked", "--all", "--out", "all.parquet")
    with open("all.csv", newline="", encoding="utf-8") as file:
        head, *rows = list(csv.reader(file))
    assert head == ["client", "user", "rank", "item", "score", "known", "basis", "as_of",
                    "run", "model"]
    exact = parquet.read_table("all.parquet").to_pydict()
    for column in ("client", "user", "item"):
        i = head.index(column)
        assert not any(FORMULA.match(row[i]) for row in rows)
        assert {row[i] for row in rows} & {"'@SUM(1)"}
        assert [row[i].removeprefix("'") for row in rows] == [
            name.removeprefix("'") for name in exact[column]]
    assert set(exact["user"]) >= set(NASTY[::2])
    assert all(float(row[4]) >= 0 for row in rows)
    for client, user in list(zip(exact["client"], exact["user"], strict=True))[::40]:
        assert "item" in done("predict", "asked", "--client", client, "--user", user)
    Path("p.csv").write_text('client,user,item\n[/red],[/red],"<script>alert(1)</script>"\n')
    done("predict", "asked", "--pairs", "p.csv", "--out", "pairs.csv")
    code, _, told = fedvine("predict", "asked", "--client", "[/red]x\x1b[2J", "--user", "a")
    assert code == 2 and "[/red]x" in told and "\x1b" not in told


def test_classes_and_clients_of_a_graph(made, monkeypatch):
    monkeypatch.chdir(made[0])
    classes = NASTY[:4]
    nodes = ["node,label,[/red],<i>x", *(
        f'"{i}{NASTY[0]}","{classes[i % 4]}","{NASTY[2 + i % 2 * 2]}",{i % 7 / 7}'
        for i in range(160))]
    Path("$nodes$.csv").write_text("\n".join(nodes))
    Path("edges.csv").write_text("src,dst\n" + "".join(
        f"{i}{NASTY[0]},{(i + 4) % 160}{NASTY[0]}\n" for i in range(160)))
    out = done("run", "fedavg", "--data", "$nodes$.csv", "--edges", "edges.csv", "--client",
               "[/red]", "--set", "method.rounds=1", "--set", "method.epochs=1", "--out", "graph")
    assert NASTY[2] in out and NASTY[4] in out
    done("report", "graph", "--out", "graph.html")
    assert Tags(Path("graph.html").read_text("utf-8")).alone()


@pytest.mark.parametrize("name", [*NASTY, "x" * 500, "$" * 7, "\\$", "__", "", "\u202eabc"])
def test_a_picture_of_any_name(name):
    from matplotlib.figure import Figure
    figure = Figure(layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], label=drawn(name))
    axes.set_title(drawn(name))
    if name:
        assert len(axes.legend().get_texts()) == 1
    axes.set_xticks([0], [drawn(name)])
    figure.savefig(io.BytesIO(), format="png")


def test_names_that_look_like_guarded_ones_stay_apart():
    names = ["=x", "'=x", "''=x", "'x", "-", "-1", "'-1"]
    written = cells(pa.table({"name": names}))["name"].to_pylist()
    assert [unguarded(name) for name in written] == names and len({*written}) == len(names)


def test_names_with_line_ends_are_read_back_from_a_long_file(tmp_path):
    names = [f"user\n{n}" for n in range(60_000)]
    written = pa.table({"client": names, "user": names, "item": names, "score": [0.5] * 60_000})
    write_tables(tmp_path / "all.csv", iter([written]))
    assert read_tables(str(tmp_path / "all.csv"))["item"].to_pylist() == names


def test_numbers_in_csv_stay_numbers():
    texts = ["-5", "+1e3", "-.5", "=1+1", "-x", "@b", "+", "", None, "a=b", "\t=1", "－1"]
    table = pa.table({"text": texts, "number": [-1.5] * len(texts)})
    assert cells(table).to_pydict() == {"number": [-1.5] * len(texts), "text": [
        "-5", "+1e3", "-.5", "'=1+1", "'-x", "'@b", "'+", "", None, "a=b", "'\t=1", "'－1"]}
