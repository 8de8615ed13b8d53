"""Tables of text, shown on a terminal or written as Markdown, LaTeX or CSV from the same cells."""

from __future__ import annotations

import csv
import json as jsons
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import rich.table
from rich.cells import cell_len
from rich.console import Console, Group

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic
from fedvine.core.text import latex, marked, plain, shown, tagless
from fedvine.results.pictures import Drawing
from fedvine.tasks import metrics

LONGEST = 30        # characters of a word that a column is never narrower than
FEW_SEEDS = 4       # with fewer values each is shown, and no interval
EACH_SEED = f"Where there are fewer than {FEW_SEEDS} seeds the value of each is shown, in order."


@dataclass(frozen=True)
class Table:
    """A title, the names of the columns, and rows of as many texts; the first column is names."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def rich(self, width: int) -> Group:
        """Return the table for a terminal of this width, with numbers to the right.

        Names fold and numbers do not: where the columns do not fit beside each other there is one
        part of the table below the other.
        """
        heads = [name.replace(", ", "\n") for name in self.columns]
        columns = [[head, *(row[i] if i < len(row) else "" for row in self.rows)]
                   for i, head in enumerate(heads)]
        least = [min(max(_widths(c, r"\s+")), LONGEST) for c in columns]
        most = [max(_widths(c, r"\n")) for c in columns]
        parts: list[list[int]] = [[0]]
        for i in range(1, len(columns)):
            if len(parts[-1]) > 1 and _total([least[j] for j in (*parts[-1], i)]) > width:
                parts.append([0])
            parts[-1].append(i)
        found: list[Any] = []
        for part in parts:
            wide = _spread([least[i] for i in part], [most[i] for i in part], width)
            table = rich.table.Table(title="" if found else self.title, title_justify="left",
                                     title_style="bold", box=None, pad_edge=False, padding=(0, 1))
            for i, w in zip(part, wide, strict=True):
                table.add_column(columns[i][0], width=w, justify="right" if i else "left",
                                 overflow="fold")
            for row in range(len(self.rows)):
                table.add_row(*(columns[i][row + 1] for i in part))
            found += ["", table] if found else [table]
        return Group(*found)

    def markdown(self) -> str:
        """Return a pipe table under a bold title."""
        def line(cells: Sequence[str]) -> str:
            return "| " + " | ".join(map(marked, cells)) + " |"
        rule = "|---|" + "---:|" * (len(self.columns) - 1)
        return "\n".join([f"**{marked(self.title)}**", "", line(self.columns), rule,
                          *map(line, self.rows)])

    def latex(self) -> str:
        """Return a ``tabular`` under a comment with the title; the first column is to the left."""
        def line(cells: Sequence[str]) -> str:
            return " & ".join(map(latex, cells)) + r" \\"
        return "\n".join([f"% {shown(self.title)}".replace("\n", " "),
                          rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}", r"\hline",
                          line(self.columns), r"\hline", *map(line, self.rows), r"\hline",
                          r"\end{tabular}", ""])


@dataclass(frozen=True)
class TableSet:
    """The output of a command: tables, the sentences under them, and the same as plain records."""

    grids: Sequence[Table]
    notes: Sequence[str]
    records: Sequence[dict[str, Any]]
    picture: Drawing | None = None

    def show(self, console: Console) -> None:
        """Print tables and sentences on a terminal."""
        for grid in self.grids:
            console.print(grid.rich(console.width), "")
        for note in self.notes:
            console.print(note, highlight=False)

    def markdown(self) -> str:
        """Return everything as Markdown; notes that start with a dash become a list."""
        text = "\n\n".join([*(g.markdown() for g in self.grids), *map(tagless, self.notes)])
        return re.sub(r"(?m)(^- .*)\n\n(?=- )", r"\1\n", text) + "\n"

    def latex(self) -> str:
        """Return everything as LaTeX: a ``tabular`` a table, which needs no package, and comments.

        The title of a table is the comment above it, the notes are comments at the end.
        """
        notes = [f"% {shown(line)}" for note in self.notes for line in note.splitlines()]
        return "\n".join([*(grid.latex() for grid in self.grids), *notes]) + "\n"

    def csv(self) -> str:
        """Return all tables as CSV, one below the other, with their titles and an empty line."""
        out = StringIO()
        writer = csv.writer(out, lineterminator="\n")
        for i, grid in enumerate(self.grids):
            writer.writerows([*([[]] if i else []), [plain(grid.title)], map(plain, grid.columns),
                              *(map(plain, row) for row in grid.rows)])
        return out.getvalue()

    def write(self, *, markdown: str | Path | None = None, json: str | Path | None = None,
              plot: str | Path | None = None, table: str | Path | None = None) -> None:
        """Write files, each whole or not at all; the suffix of ``table`` names its kind.

        Raises :class:`FedvineError` for a plot where there is no picture, after the other files.
        """
        kinds = {".md": self.markdown, ".tex": self.latex, ".csv": self.csv}
        for file, text in ((markdown, self.markdown), (
                json, lambda: jsons.dumps(list(self.records), indent=1)), (
                table, kinds[Path(table or ".md").suffix.lower() or ".md"])):
            if file is not None:
                with atomic(Path(file), "w") as handle:
                    handle.write(text())
        if plot is not None:
            if self.picture is None:
                raise FedvineError("There is no picture of this; leave out --plot.")
            with atomic(Path(plot)) as handle:
                handle.write(self.picture.rendered(Path(plot).suffix[1:].lower()))

def _widths(texts: Iterable[str], between: str) -> Iterable[int]:
    """Return the widths of the parts of texts."""
    return [cell_len(part) for text in texts for part in re.split(between, text)]


def _total(widths: Sequence[int]) -> int:
    """Return the width of a table of columns with two spaces between them."""
    return sum(widths) + 2 * (len(widths) - 1)


def _spread(least: Sequence[int], most: Sequence[int], width: int) -> list[int]:
    """Return widths from ``least`` to ``most`` that fit: numbers grow before names, evenly."""
    found = list(least)
    while _total(found) < width and (narrow := [i for i in range(len(found))
                                                if found[i] < most[i]]):
        found[min(narrow, key=lambda i: (i == 0, found[i]))] += 1
    return found


def spread(values: Iterable[float], digits: int = 3, sign: str = "") -> str:
    """Return values of seeds as text, such as ``0.712 ±0.004``; ``-`` for none.

    That is the mean and the half width of the 95 % interval; of fewer than :data:`FEW_SEEDS` values
    each one, ``0.712 0.708``.
    """
    found = list(values)
    if len(found) < FEW_SEEDS:
        return " ".join(f"{v:{sign}.{digits}f}" for v in found) or "-"
    return plus_minus(*metrics.mean_interval(found), digits=digits, sign=sign)


def about_seeds(counts: Iterable[int], over: str = "seeds") -> list[str]:
    """Return the sentences under a table whose rows have so many seeds."""
    found = [c for c in counts if c]
    if found and max(found) == 1:
        return [f"One {over[:-1]}: no intervals and no test; take more."]
    return [*([f"± is the half width of the 95 % interval over {over}."]
              if any(c >= FEW_SEEDS for c in found) else []),
            *([EACH_SEED.replace("seeds", over)] if any(c < FEW_SEEDS for c in found) else [])]


def plus_minus(mean: float | None, half: float, digits: int = 3, sign: str = "") -> str:
    """Return ``0.712 ±0.004``, without the second number where it is NaN; ``-`` for None."""
    if mean is None:
        return "-"
    return f"{mean:{sign}.{digits}f}" + (f" ±{half:.{digits}f}" if half == half else "")
