"""Methods, models, data sets and partitions by name: a class's ``name``, or the file's name.

There is nothing to register. Packages of others add to a room with an entry point in the group
``fedvine.<room>``.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from fedvine.core.errors import FedvineError, near

_NAMED = re.compile(r'^    name: ClassVar\[str\] = "(\w+)"$', re.MULTILINE)
_ROOMS = {"methods": ("methods", "rivals")}     # others: the room of that name alone


def names(room: str) -> list[str]:
    """List the names of ``"methods"``, ``"datasets"``, ``"partitions"`` or ``"models"``.

    Nothing is imported: files are read as text.
    """
    return sorted(_places(room))


def _places(room: str) -> dict[str, str | EntryPoint]:
    """Return by name the module that holds it, or another package's entry point.

    A name that is used here is not another package's.
    """
    own = _own(room, tuple(folder for name in _ROOMS.get(room, (room,))
                           for folder in importlib.import_module(f"fedvine.{name}").__path__))
    return own | {e.name: e for e in _others(f"fedvine.{room}", tuple(sys.path))
                  if e.name not in own}


@lru_cache(maxsize=16)
def _own(room: str, folders: tuple[str, ...]) -> dict[str, str]:
    """Return the module of each name here: the names of its classes, or else the file's.

    A file in the rooms of methods without such a class holds no method; the file's own name also
    counts where it has a function ``load`` beside classes.
    """
    return {name: f"fedvine.{file.parent.name}.{file.stem}"
            for folder in folders for file in Path(folder).glob("[!_]*.py")
            for text in (file.read_text("utf-8"),)
            for name in (_NAMED.findall(text) or ([] if room == "methods" else [file.stem]))
            + ([file.stem] if room == "datasets" and "\ndef load(" in text else [])}


@lru_cache(maxsize=16)
def _others(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return entry points of other packages on the path; reading all of them takes 20 ms."""
    return tuple(entry_points(group=group))


def find(room: str, name: str) -> Any:
    """Return the module of that name, or the class of a data set that is one of several in a file.

    Raises :class:`FedvineError` with a near name if it is unknown.
    """
    known = _places(room)
    if name not in known:
        raise FedvineError(f'There is no {room[:-1]} called "{name}"{near(name, sorted(known))}; '
                           f"fedvine list shows all.")
    found = _opened(known[name])
    return found if room != "datasets" else next((
        v for v in vars(found).values() if isinstance(v, type) and vars(v).get("name") == name),
        found)


def _opened(place: str | EntryPoint) -> Any:
    if isinstance(place, str):
        return importlib.import_module(place)
    try:
        return place.load()
    except Exception as error:      # of a package of others
        raise FedvineError(f'"{place.name}" of another package cannot be loaded '
                           f"({type(error).__name__}: {error}); mend or uninstall it.") from error


def method(name: str) -> type:
    """Return the method class of that name; raises :class:`FedvineError` if there is none.

    Only the file that holds it is imported: others may need what this one does not.
    """
    places = _places("methods")
    found = _methods_in(places[name]) if name in places else methods()
    if name not in found:
        raise FedvineError(f'There is no method called "{name}"{near(name, sorted(found))}; '
                           "fedvine list shows all.")
    return found[name]


def _methods_in(place: str | EntryPoint) -> dict[str, type]:
    """Return the method classes of a module by name; of a module here only its own."""
    from fedvine.core.method import Method
    return {v.name: v for v in vars(_opened(place)).values()
            if isinstance(v, type) and issubclass(v, Method) and v.name
            and (not isinstance(place, str) or v.__module__ == place)}


def first_lines(room: str) -> dict[str, str]:
    """Return the first line about each name of a room, sorted; files here are read as text.

    These are the lines of classes with that name, or else those of files.
    """
    found: dict[str, str | None] = {}
    for name, place in _places(room).items():
        if not isinstance(place, str):
            try:
                found[name] = inspect.getdoc(method(name) if room == "methods" else
                                             _opened(place))
            except FedvineError as error:
                found[name] = str(error)
            continue
        spec = importlib.util.find_spec(place)
        tree = ast.parse(Path(str(spec and spec.origin)).read_text("utf-8"))
        found[name] = ast.get_docstring(tree)
        for node in (n for n in tree.body if isinstance(n, ast.ClassDef)):
            for part in node.body:
                match part:
                    case ast.AnnAssign(target=ast.Name("name"), value=ast.Constant(value)):
                        if value == name:
                            found[name] = ast.get_docstring(node)
    return {name: (text or "").split("\n")[0] for name, text in sorted(found.items())}


def methods() -> dict[str, type]:
    """Return all method classes by name; no other package's class takes the name of one here."""
    found: dict[str, type] = {}
    places = list({str(place): place for place in _places("methods").values()}.values())
    for place in sorted(places, key=lambda one: not isinstance(one, str)):  # those here first
        with contextlib.suppress(FedvineError):     # of another package; fedvine list says why
            found = _methods_in(place) | found
    return found


def package_of(name: str) -> str | None:
    """Return the package and version, ``"toys 1.0"``, of a method; None for one of fedvine's own.

    Raises :class:`FedvineError` if there is no such method.
    """
    found = method(name)
    for place in _places("methods").values():
        with contextlib.suppress(FedvineError):     # of a package that holds other methods
            if not isinstance(place, str) and found in vars(_opened(place)).values():
                return f"{place.dist.name} {place.dist.version}" if place.dist else place.value
    return None


# -- methods in a person's own file ----------------------------------------------------------------
def from_file(path: str | Path) -> type:
    """Return the method in a Python file that a person names; the file is executed.

    Of several methods it is the one with the name of the file. A copy stays in the cache, by the
    digest of the file's bytes, so that its runs can be opened again when the file has changed.
    Raises :class:`FedvineError` for a file that cannot be read or executed, or does not hold a
    method.
    """
    from fedvine.core.files import atomic, cache_folder
    path = Path(path)
    try:
        code = path.read_bytes()
    except OSError as error:
        raise FedvineError(f"{path} cannot be read ({error.strerror or error}).") from error
    digest = hashlib.sha256(code).hexdigest()[:16]
    found = _carried_out(path, digest, path.stem)
    copy = cache_folder() / "methods" / f"{digest}.py"
    if not copy.exists():
        with atomic(copy) as file:
            file.write(code)
    return found


def of_digest(name: str, digest: str) -> type:
    """Return the method of that name in a file that was given to :func:`from_file` before.

    Only files that a person has named themselves are ever executed: a run folder or an experiment
    gives a digest, never a path. Raises :class:`FedvineError` if no such file is known.
    """
    from fedvine.core.files import cache_folder
    copy = cache_folder() / "methods" / f"{digest}.py"
    if not (digest.isalnum() and copy.is_file()
            and hashlib.sha256(copy.read_bytes()).hexdigest()[:16] == digest):
        raise FedvineError(f'The method "{name}" is in a file of its own that is not known here; '
                           "give that file, unchanged, once to fedvine show FILE.py or fedvine run "
                           "FILE.py, or with --method where a command has it.")
    return _carried_out(copy, digest, name)


def path_of(found: type) -> Path:
    """Return the file of a method's class, as it was named to :func:`from_file`."""
    return Path(str(sys.modules[found.__module__].__file__))


def _carried_out(path: Path, digest: str, name: str) -> type:
    from fedvine.core.method import Method
    module = f"fedvine_method_{digest}"
    if module not in sys.modules:
        spec = importlib.util.spec_from_loader(module, None, origin=str(path))
        assert spec is not None
        made = sys.modules[module] = importlib.util.module_from_spec(spec)
        made.__file__ = str(path)
        try:
            exec(compile(path.read_bytes(), str(path), "exec"), made.__dict__)
        except Exception as error:
            del sys.modules[module]
            line = getattr(error, "lineno", None)
            place, at = f"{path}{f', line {line}' if line else ''}", error.__traceback__
            while at is not None:       # the last place in the file itself
                if at.tb_frame.f_code.co_filename == str(path):
                    place = f"{path}, line {at.tb_lineno}"
                at = at.tb_next
            raise FedvineError(f"{place} cannot be carried out ({type(error).__name__}: {error})."
                               ) from error
    held = [v for v in vars(sys.modules[module]).values() if isinstance(v, type)
            and issubclass(v, Method) and v.__module__ == module and v.name]
    found = [v for v in held if v.name == name] or held
    if len(found) != 1:
        raise FedvineError(f"{path} holds {len(found) or 'no'} method{'s' * (len(found) > 1)} with "
                           f'a name; give one of them the name "{name}".')
    found[0].file_digest = digest
    return found[0]
