"""The tables of ``fedvine list``, made without importing a method or a data set."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from fedvine.core import registry


def everything() -> Iterator[Table]:
    """Yield tables of methods, data sets and partitions, each name with its first line."""
    for room in ("methods", "datasets", "partitions"):
        table = Table(room, "", box=None, show_header=True)
        for name, line in registry.first_lines(room).items():
            table.add_row(name, line)
        yield table
