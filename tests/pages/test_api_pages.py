"""docs/api_pages.py: what the pages of the API reference have, and when they are written."""

import importlib
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

import fedvine
from fedvine.core import registry

DOCS = Path(__file__).parents[2] / "docs"
reference = SimpleNamespace(**runpy.run_path(str(DOCS / "api_pages.py")))
PAGES = reference.pages()
FILES = sorted(".".join(("fedvine", *f.relative_to(reference.SOURCE).with_suffix("").parts))
               for f in reference.SOURCE.rglob("*.py")
               if not f.name.startswith("__") and not f.match(reference.SCRIPTS))


@pytest.mark.parametrize("room", reference.rooms())
def test_a_rooms_page_names_all_of_its_face(room):
    for name in getattr(importlib.import_module(f"fedvine.{room}"), "__all__", ()):
        assert f":py:obj:`{name} <" in PAGES[room]


def test_the_packages_own_page_names_what_it_gives():
    for name in dir(fedvine):
        assert name.startswith("_") or f":py:obj:`{name} <" in PAGES["fedvine"]


def test_every_file_is_on_one_page_once():
    text = "\n".join(PAGES.values()).splitlines()
    assert {f: text.count(f".. automodule:: {f}") for f in FILES} == dict.fromkeys(FILES, 1)


@pytest.mark.parametrize("method", registry.methods().values())
def test_a_method_is_an_entry_and_its_table_has_every_field(method):
    room = method.__module__.split(".")[1]
    assert f".. autoclass:: {method.__module__}.{method.__qualname__}\n" in PAGES[room]
    table = list(reference.fields(method))
    for field, has in method.model_fields.items():
        row = table.index(f"   * - ``{field}``")
        assert table[row + 1].endswith(f"; ``{has.default!r}``")
        assert table[row + 2] == f"     - {has.description}"


def test_pages_that_are_the_same_keep_their_time_and_old_ones_go(tmp_path):
    reference.write(tmp_path)
    (tmp_path / "old.rst").write_text("old")
    (tmp_path / "core.rst").write_text("changed")
    before = (tmp_path / "data.rst").stat().st_mtime_ns
    reference.write(tmp_path)
    assert (tmp_path / "data.rst").stat().st_mtime_ns == before
    assert {f.stem: f.read_text() for f in tmp_path.iterdir()} == PAGES
