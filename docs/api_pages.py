"""Write the pages of the API reference, one a room, into docs/api; conf.py calls it.

Nothing is listed by hand: rooms are folders, public names are those of a room's face, and texts
are docstrings. A page has a table of the room's public names, then a section for each file.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import fedvine
from fedvine.cli.catalogue import kind_text
from fedvine.core import settings

SOURCE = Path(fedvine.__file__).parent
BY_NAME = ("datasets", "methods", "partitions", "rivals")     # found by name


def rooms() -> list[str]:
    """Return the names of the package's folders, sorted."""
    return sorted(face.parent.name for face in SOURCE.glob("*/__init__.py"))


def pages() -> dict[str, str]:
    """Return the text of every page, by the name of its file without .rst."""
    inside = {"fedvine": _package(), **{room: _room(room) for room in rooms()},
              "testing": [*_title("testing"), *_module("fedvine.testing")]}
    texts = {name: "\n".join(lines) + "\n" for name, lines in inside.items()}
    return {"index": "\n".join(_index(texts)) + "\n", **texts}


def write(folder: Path) -> None:
    """Write all pages. A page that is the same is not touched; one that is old is removed."""
    folder.mkdir(exist_ok=True)
    wanted = {folder / f"{name}.rst": text for name, text in pages().items()}
    for old in set(folder.glob("*.rst")) - set(wanted):
        old.unlink()
    for file, text in wanted.items():
        if not file.exists() or file.read_text() != text:
            file.write_text(text)


def fields(model: type[BaseModel]) -> Iterator[str]:
    """Yield the lines of a table of a model's fields, those inherited and of tables in it too."""
    rows = [(f"``{name}``", f"``{kind_text(field.annotation, field.metadata)}``; "
             + ("required" if field.is_required() else f"``{field.default!r}``"),
             field.description or "") for name, field in settings.fields(model).items()]
    if rows:
        yield from _table(("field", "type; default", "meaning"), rows)


# -- pages -----------------------------------------------------------------------------------------
def _index(names: Iterable[str]) -> Iterator[str]:
    yield from _title("API reference")
    yield from ("From the docstrings, a page for each room of the package, with links to the",
                "source. Import a public name from its room (``from fedvine.core import Method``)",
                "or from its file; the names on the page :doc:`fedvine <fedvine>` are also in the",
                "package itself.", "")
    yield from _table(("room", "purpose"), (
        (f":doc:`{name} <{name}>`", _first(_opened(name))) for name in names))
    yield from (".. toctree::", "   :hidden:", "", *(f"   {name}" for name in names))


def _package() -> Iterator[str]:
    yield from _title("fedvine")
    yield from ("``import fedvine as fv`` gives these names, and the class of every method, such",
                "as ``fv.FedLink`` (:doc:`methods <methods>`).", "")
    yield from _names(fedvine, (name for name in dir(fedvine) if not name.startswith("_")))


def _room(room: str) -> Iterator[str]:
    module = _opened(room)
    yield from (*_title(room), f".. automodule:: fedvine.{room}", "")
    files = sorted((SOURCE / room).rglob("*.py"), key=lambda f: (f.parent != SOURCE / room, f))
    if room in BY_NAME:
        listed = [f.stem for f in files if f.parent.name == room and not f.name.startswith("_")]
        yield from _table(("name", "what it is"), (
            row for n in listed for row in _things(room, n)))
        for name in listed:
            yield from _entry(f"fedvine.{room}.{name}", name)
        files = [f for f in files if f.parent.name != room or f.name.startswith("_")]
    else:
        yield from _names(module, getattr(module, "__all__", ()))
    for file in files:
        parts = file.relative_to(SOURCE).with_suffix("").parts
        if parts[-1] != "__init__":
            yield from _title("/".join(parts[1:]) + ".py", "-")
            yield from _module(".".join(("fedvine", *parts)))


def _things(room: str, file: str) -> list[tuple[str, str]]:
    """Rows of a table: the file, or the data sets in it if they are several."""
    module = _opened(f"{room}.{file}")
    several = [v for v in vars(module).values() if room == "datasets" and isinstance(v, type)
               and v.__module__ == module.__name__ and vars(v).get("name")]
    return ([(f":py:class:`{v.name} <{v.__module__}.{v.__name__}>`", _first(v)) for v in several]
            or [(f":py:mod:`{file} <fedvine.{room}.{file}>`", _first(module))])


def _entry(module: str, name: str) -> Iterator[str]:
    """A method's class, or a data set's or partition's functions, under the file's docstring."""
    yield from (*_title(name, "-"), f".. automodule:: {module}", "")
    for key, value in vars(importlib.import_module(module)).items():
        if key in ("SPLIT", "STAGES"):
            yield from (f"``{key} = {value!r}``", "")
        elif getattr(value, "__module__", "") == module:
            if isinstance(value, type) and (getattr(value, "name", "") or "load" in vars(value)):
                yield f".. autoclass:: {module}.{key}"
                yield from (("   :members: load", "") if "load" in vars(value) else ("",))
                yield from (line for setting in ("SPLIT", "STAGES") if hasattr(value, setting)
                            for line in (f"   ``{setting} = {getattr(value, setting)!r}``", ""))
            elif inspect.isfunction(value) and key in ("load", "partition", "partition_nodes"):
                yield from (f".. autofunction:: {module}.{key}", "")


# -- parts of pages --------------------------------------------------------------------------------
def _opened(name: str) -> Any:
    return importlib.import_module("fedvine" if name == "fedvine" else f"fedvine.{name}")


def _module(name: str) -> tuple[str, ...]:
    return (f".. automodule:: {name}", "   :members:", "   :ignore-module-all:",
            "   :member-order: bysource", "")


def _names(module: Any, names: Iterable[str]) -> Iterator[str]:
    found = [(name, getattr(module, name)) for name in names]
    if found:
        yield from _table(("name", "what it is"), (
            (f":py:obj:`{name} <{thing.__module__}.{thing.__qualname__}>`", _first(thing))
            for name, thing in found))


def _first(thing: Any) -> str:
    """The first sentence of a docstring, on one line."""
    home = getattr(thing, "__module__", None) or "fedvine"
    if not home.startswith("fedvine"):
        return f"``{thing.__name__}`` of {home.split('.')[0]}."
    text = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.;]) (?=[A-Z`])", text)[0].rstrip(":;")


def _title(text: str, under: str = "=") -> tuple[str, ...]:
    return text, under * len(text), ""


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield from (".. list-table::", "   :header-rows: 1", "   :widths: auto", "   :align: left", "")
    for row in (head, *rows):
        yield from (f"   {' ' if i else '*'} - {cell}" for i, cell in enumerate(row))
    yield ""
