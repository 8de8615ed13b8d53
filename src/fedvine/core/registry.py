"""Methods, models, data sets and partitions by name: that of the file, or of a method's class.

There is nothing to register. Packages of others add to a room with an entry point in the group
``fedvine.<room>``.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from fedvine.core.errors import FedvineError, near

_NAMED = re.compile(r'^    name: ClassVar\[str\] = "(\w+)"$', re.MULTILINE)


def names(room: str) -> list[str]:
    """List the names of ``"methods"``, ``"datasets"``, ``"partitions"`` or ``"models"``."""
    return sorted(_files(room))


def _files(room: str) -> dict[str, EntryPoint | None]:
    """Return the names, with another package's entry point, or None for a file here.

    A name that is used here is not another package's.
    """
    package = importlib.import_module(f"fedvine.{room}")
    own = _own(tuple(package.__path__))
    others = {e.name: e for e in _others(f"fedvine.{room}", tuple(sys.path))}
    taken = {*own, *(_indexed(tuple(package.__path__)) if others and room == "methods" else ())}
    return dict.fromkeys(own) | {n: e for n, e in others.items() if n not in taken}


@lru_cache(maxsize=16)
def _own(folders: tuple[str, ...]) -> list[str]:
    """Return the names of the files in a room; looking for them takes 4 ms."""
    return [m.name for m in pkgutil.iter_modules(folders) if not m.name.startswith("_")]


@lru_cache(maxsize=16)
def _indexed(folders: tuple[str, ...]) -> dict[str, str]:
    """Return the file of each method here by the method's name; the files are read as text."""
    return {name: file.stem for folder in folders for file in Path(folder).glob("[!_]*.py")
            for name in _NAMED.findall(file.read_text("utf-8"))}


@lru_cache(maxsize=16)
def _others(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return entry points of other packages on the path; reading all of them takes 20 ms."""
    return tuple(entry_points(group=group))


def find(room: str, name: str) -> ModuleType:
    """Return the module of that name; raises :class:`FedvineError` with a near name if unknown."""
    known = _files(room)
    if name not in known:
        raise FedvineError(f'There is no {room[:-1]} called "{name}"{near(name, sorted(known))}; '
                           f"fedvine list shows all.")
    return _opened(room, name, known[name])


def _opened(room: str, name: str, entry: EntryPoint | None) -> ModuleType:
    return entry.load() if entry else importlib.import_module(f"fedvine.{room}.{name}")


def method(name: str) -> type:
    """Return the method class of that name; raises :class:`FedvineError` if there is none.

    A file here may hold several, each found by its class's ``name``.
    """
    from fedvine.core.method import Method
    files = _files("methods")
    own = _indexed(tuple(importlib.import_module("fedvine.methods").__path__))
    file = own.get(name, name)
    if file in files:       # only its own file is opened: others may need what this one does not
        for value in vars(_opened("methods", file, files[file])).values():
            if isinstance(value, type) and issubclass(value, Method) and value.name == name:
                return value
    known = methods()
    if name not in known:
        raise FedvineError(f'There is no method called "{name}"{near(name, known)}; '
                           "fedvine list shows all.")
    found = known[name]
    assert issubclass(found, Method)
    return found


def method_names() -> list[str]:
    """List the names of all methods without importing one: their files are read as text."""
    package = importlib.import_module("fedvine.methods")
    own = _indexed(tuple(package.__path__))
    return sorted({*own, *(name for name, entry in _files("methods").items() if entry)})


def first_lines(room: str) -> dict[str, str]:
    """Return the first line about each name of a room, sorted; files here are read as text.

    For ``"methods"`` these are the lines of classes, for other rooms those of files.
    """
    package = importlib.import_module(f"fedvine.{room}")
    found: dict[str, str | None] = {}
    for file in (f for folder in package.__path__ for f in Path(folder).glob("[!_]*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        if room != "methods":
            found[file.stem] = ast.get_docstring(tree)
            continue
        for node in (n for n in tree.body if isinstance(n, ast.ClassDef)):
            for part in node.body:
                match part:
                    case ast.AnnAssign(target=ast.Name("name"), value=ast.Constant(str(name))):
                        found[name] = ast.get_docstring(node)
    for name, entry in _files(room).items():
        if entry:
            found[name] = inspect.getdoc(method(name) if room == "methods" else entry.load())
    return {name: (text or "").split("\n")[0] for name, text in sorted(found.items())}


def methods() -> dict[str, type]:
    """Return all method classes by name."""
    from fedvine.core.method import Method
    found: dict[str, type] = {}
    # Those here come first, and no other package's class takes their name.
    for file, entry in sorted(_files("methods").items(), key=lambda one: (bool(one[1]), one[0])):
        for value in vars(_opened("methods", file, entry)).values():
            if isinstance(value, type) and issubclass(value, Method) and value.name and not (
                    entry and value.name in found):
                found[value.name] = value
    return found


def package_of(name: str) -> str | None:
    """Return the package and version, ``"toys 1.0"``, of a method; None for one of fedvine's own.

    Raises :class:`FedvineError` if there is no such method.
    """
    found = method(name)
    for file, entry in _files("methods").items():
        if entry and (file == name or found in vars(_opened("methods", file, entry)).values()):
            return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
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
