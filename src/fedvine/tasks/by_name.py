"""Tasks by name: those of this room, of other packages, and of a method's own file."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedvine.core import registry
from fedvine.core.errors import FedvineError, near
from fedvine.tasks.task import Task


def every() -> list[type[Task]]:
    """Return the tasks of this room and of other packages, in the order of their files."""
    return [kind for file in registry.names("tasks")
            for kind in _in(vars(registry.find("tasks", file)), file)]


def of(method: Any) -> type[Task]:
    """Return the task of a method (or of its class): its own file's, or one of this room.

    Raises :class:`FedvineError` for a task that neither has, and for what is no method.
    """
    if not hasattr(method, "task"):
        raise FedvineError(f"A method is wanted, such as fedvine.FedLink(), and {method!r:.60} is "
                           "none.")
    return named(method.task, beside(method if isinstance(method, type) else type(method)))


def beside(kind: type) -> list[type[Task]]:
    """Return the tasks among the names of the file that defines the class ``kind``."""
    module = sys.modules.get(kind.__module__)
    return list(_in(vars(module), None)) if module else []


def named(name: str, own: Sequence[type[Task]] = ()) -> type[Task]:
    """Return the task of this name among ``own`` ones and this room's; raise if there is none."""
    found = {_name(kind): kind for kind in [*every(), *own]}
    if name not in found:
        raise FedvineError(f'There is no task called "{name}"{near(name, found)}; there are '
                           f"{', '.join(sorted(found))}.")
    return found[name]


def _in(names: Mapping[str, Any], file: str | None) -> Iterator[type[Task]]:
    """Yield the tasks among a module's names; with ``file`` only those that it defines."""
    for value in names.values():
        if isinstance(value, type) and issubclass(value, Task) and _name(value) and (
                file is None or value.__module__.endswith(f".{file}")):
            yield value


def _name(kind: type[Task]) -> str:
    """Return the name of a task, the default of its field ``task``."""
    return kind.model_fields["task"].default
