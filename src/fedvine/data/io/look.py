"""The part of a source that is read when its rows are only added: new files, or late times."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FILE = "*file*"     # the column with the file of each row, among the codes of a stream


@dataclass(frozen=True)
class Look:
    """The rows that are read, and the form of their values.

    - ``files``: these alone; the stream that is read has the column :data:`FILE`; None: a query
    - ``since``: of a query at least the rows from this time on; None: all
    - ``dates``: whether times are seconds since 1970; ``form``: how they are written, if that is
      said
    - ``timezone``: of times that name none; None: UTC
    - ``whole``: by role (src, dst, client; of a table of nodes node, client, label), whether its
      names are whole numbers; others are text then also where all look like numbers
    - ``kinds``: of the columns of edges, users (src) and items (dst) whether they are numbers or
      categories, by name
    """

    files: tuple[Path, ...] | None = None
    since: float | None = None
    dates: bool = False
    form: str | None = None
    timezone: str | None = None
    whole: Mapping[str, bool] = field(default_factory=dict)
    kinds: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def second(self) -> int:
        """Return a whole second that is not after ``since``, also on a clock of the time zone."""
        assert self.since is not None
        return math.floor(self.since) - (86_400 if self.timezone else 0)

    def condition(self, column: str, kind: str) -> str:
        """Return DuckDB's condition for a column of this type; rows without a time fulfil it.

        Rows before ``since`` may fulfil it too, as of types that do not tell a time's form.
        """
        if self.since is None or self.form is not None:
            return "true"
        if kind == "DATE" or kind.startswith("TIMESTAMP"):
            least = f"make_timestamp({self.second() * 1_000_000})"
        elif kind != "VARCHAR":
            least = str(self.second())
        elif self.dates:
            least = f"make_timestamp({self.second() * 1_000_000})"
            column = f"TRY_CAST({column} AS TIMESTAMPTZ)"      # lenient: more rows are read
        else:
            least, column = str(self.second()), f"TRY_CAST({column} AS DOUBLE)"
        return f"({column} >= {least} OR {column} IS NULL)"
