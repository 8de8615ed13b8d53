"""Finding a method, model, data set or partition by name: the file name is the name.

There is nothing to register. Other people's packages add to a shelf with an entry point in
the group ``fedvine.<shelf>``.
"""

from __future__ import annotations

import importlib
import pkgutil
from importlib.metadata import entry_points
from types import ModuleType

from fedvine.errors import FedvineError, near


def names(shelf: str) -> list[str]:
    """All names on ``shelf`` (``"methods"``, ``"datasets"``, ``"partitions"``, ``"models"``)."""
    package = importlib.import_module(f"fedvine.{shelf}")
    own = [m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_")]
    return sorted({*own, *(e.name for e in entry_points(group=f"fedvine.{shelf}"))})


def find(shelf: str, name: str) -> ModuleType:
    """The module of that name; raises :class:`FedvineError` with a near name if unknown."""
    for entry in entry_points(group=f"fedvine.{shelf}"):
        if entry.name == name:
            return entry.load()
    known = names(shelf)
    if name not in known:
        raise FedvineError(f'There is no {shelf[:-1]} called "{name}"{near(name, known)}; '
                           f"fedvine list shows all.")
    return importlib.import_module(f"fedvine.{shelf}.{name}")


def method(name: str) -> type:
    """The method class on the shelf ``methods`` under that name.

    A file holds one method, named like the file; a variant (``fedlink_local``) may live in the
    file of its parent and is found by its class's ``name``.
    """
    from fedvine.method import Method
    known = methods()
    if name not in known:
        raise FedvineError(f'There is no method called "{name}"{near(name, known)}; '
                           "fedvine list shows all.")
    found = known[name]
    assert issubclass(found, Method)
    return found


def methods() -> dict[str, type]:
    """All method classes by name."""
    from fedvine.method import Method
    found: dict[str, type] = {}
    for file in names("methods"):
        for value in vars(find("methods", file)).values():
            if isinstance(value, type) and issubclass(value, Method) and value.name:
                found[value.name] = value
    return found
