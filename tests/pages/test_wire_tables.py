"""Tables of "what crosses the wire" and "what a client remembers" name what the code has."""

import re
from pathlib import Path

import pytest

from fedvine.core import registry
from fedvine.core.state import Client
from fedvine.testing import run_small

DOCS = Path(__file__).parents[2] / "docs"
#: Method: page, the sections with its calls, and that of a client's memory, if it has a table.
PAGES = {
    "fedlink": ("fedlink", ["What crosses the wire"], "What a client remembers"),
    "fedlink_plus": ("fedlink-plus", ["What crosses the wire"], "What is remembered"),
    "power": ("power", ["What crosses the wire"], "What a client remembers"),
    "power_plus": ("power", ["`power_plus`"], None),
    "dgcolearn": ("dgcolearn", ["What crosses the wire", "Backbones"], "What a client remembers"),
}
#: Of a base class, and never called by the method.
UNCALLED = {"power": {"train"}, "power_plus": {"train"}}


def rows(page, heading):
    """Cells of the lines of all tables of a section that begin with a name in code."""
    text = (DOCS / f"reference-{page}.md").read_text()
    section = re.split(r"^## ", text, flags=re.M)
    section, = (s for s in section if s.startswith(heading + "\n"))
    return [[cell.strip() for cell in line.strip("|").split("|")]
            for line in section.splitlines() if re.match(r"\| (client \| )?`", line)]


def names(cell):
    return re.findall(r"`([A-Za-z_]+)(?:\([^)]*\))?`", cell)


@pytest.mark.parametrize("name", PAGES)
def test_every_client_function_is_in_the_table_and_nothing_else(name):
    page, sections, _ = PAGES[name]
    method = registry.method(name)
    there = {f for f in dir(method) if getattr(getattr(method, f, None), "__on_client__", False)}
    said = {n for s in sections for cells in rows(page, s) if len(cells) in (3, 4)
            for n in names(cells[0])}
    assert said == there - UNCALLED.get(name, set())


@pytest.mark.parametrize("name", [n for n in PAGES if PAGES[n][2]])
def test_what_a_client_saves_is_in_the_table(name):
    page, _, section = PAGES[name]
    said = {n.split(".")[0] for cells in rows(page, section)
            for n in re.findall(r"`([a-z_]+)[.a-z_]*`", cells[1 if cells[0] == "client" else 0])}
    made = run_small(registry.method(name).tiny()).finish()
    for worker in made.clients.workers.values():
        saved = {n for n in vars(worker.client) if n not in Client.given and n[0] != "_"}
        assert saved and saved <= said, f"{saved - said} of {name} is in no table"
