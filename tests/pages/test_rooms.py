"""Rooms of the package: complete faces, files that stand alone, pages of the reference."""

import ast
import importlib
import pkgutil
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import fedvine
from fedvine.core import registry, settings

SOURCE = Path(fedvine.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
ROOMS = sorted(f.parent for f in FILES if f.name == "__init__.py" and "= lazy(" in f.read_text())


@pytest.mark.parametrize("room", ROOMS, ids=lambda r: str(r.relative_to(SOURCE)))
def test_a_face_names_what_is_there_in_order(room):
    name = "fedvine." + ".".join(room.relative_to(SOURCE).parts)
    face = importlib.import_module(name)
    tree = ast.parse((room / "__init__.py").read_text())
    typed = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
             and (node.module or "").startswith(name) for alias in node.names} - {"lazy"}
    assert face.__all__ == dir(face) == sorted(typed)
    for public in face.__all__:
        assert getattr(face, public) is not None
        assert not (room / f"{public}.py").exists(), f"{public} is a file of that room, too"
    with pytest.raises(AttributeError, match="nobody"):
        face.nobody  # noqa: B018


def test_inside_the_package_files_are_imported_and_never_faces():
    faces = {"fedvine." + ".".join(r.relative_to(SOURCE).parts): r for r in ROOMS}
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module in faces:
                room = faces[node.module]
                for alias in node.names:
                    assert (room / f"{alias.name}.py").exists() or (room / alias.name).is_dir(), (
                        f"{file} takes {alias.name} from the face of {node.module}")


@pytest.mark.slow
def test_every_file_can_be_imported_in_either_order():
    """All files, by name and the other way round; ``scripts/check`` refuses circles of imports."""
    names = [m.name for m in pkgutil.walk_packages(fedvine.__path__, "fedvine.")
             if not m.name.endswith("__main__")]
    code = "import sys, importlib\nfor name in sys.argv[1:]: importlib.import_module(name)"
    for order in (names, names[::-1]):
        done = subprocess.run([sys.executable, "-c", code, *order], capture_output=True, text=True,
                              check=False)
        assert done.returncode == 0, done.stderr


DOCS = Path(__file__).parents[2] / "docs"
reference = SimpleNamespace(**runpy.run_path(str(DOCS / "api_pages.py")))
PAGES = reference.pages()
MODULES = sorted(".".join(("fedvine", *f.relative_to(reference.SOURCE).with_suffix("").parts))
               for f in reference.SOURCE.rglob("*.py")
               if not f.name.startswith("__"))


@pytest.mark.parametrize("room", reference.rooms())
def test_a_rooms_page_names_all_of_its_face(room):
    for name in getattr(importlib.import_module(f"fedvine.{room}"), "__all__", ()):
        assert f":py:obj:`{name} <" in PAGES[room]


def test_the_packages_own_page_names_what_it_gives():
    for name in dir(fedvine):
        assert name.startswith("_") or f":py:obj:`{name} <" in PAGES["fedvine"]


def test_every_file_is_on_one_page_once():
    text = "\n".join(PAGES.values()).splitlines()
    assert {f: text.count(f".. automodule:: {f}") for f in MODULES} == dict.fromkeys(MODULES, 1)


@pytest.mark.parametrize("method", registry.methods().values())
def test_a_method_is_an_entry_and_its_table_has_every_field(method):
    room = method.__module__.split(".")[1]
    assert f".. autoclass:: {method.__module__}.{method.__qualname__}\n" in PAGES[room]
    table = list(reference.fields(method))
    for field, has in settings.fields(method).items():
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
