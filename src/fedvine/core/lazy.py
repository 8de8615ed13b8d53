"""Faces of rooms: public names that are imported at their first use."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy(room: str, **files: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` (PEP 562) of the package ``room``.

    ``files`` gives each public name the file of the room that defines it. Importing a room then
    imports none of its files, so that ``fedvine --help`` does not wait for torch.
    """
    def get(name: str) -> Any:
        if name not in files:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        return getattr(import_module(f"{room}.{files[name]}"), name)

    return get, lambda: sorted(files)
