"""Find what is missing from a paper's table: rows, searches of settings, or data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fedvine.papers.published import PaperTable
from fedvine.papers.study import planned
from fedvine.papers.tables import study
from fedvine.results.cells import FOLDER
from fedvine.results.tune import searched

COMPLETE, MISSING, UNTUNED, ABSENT = 0, 1, 3, 4     # exit codes of --check; 2 is a wrong command


@dataclass
class Lacks:
    """List what is missing from a table.

    - ``missing``: a sentence for each row that is not built or has too few seeds
    - ``untuned``: rows without the search that every row gets, by experiment
    - ``absent``: experiments whose data are not at hand, and of which nothing is kept
    - ``searched``: whether the rows of the table are to be tuned
    """

    missing: list[str] = field(default_factory=list)
    untuned: dict[str, list[str]] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)
    searched: bool = False

    @property
    def code(self) -> int:
        """Return the exit code of the most serious thing that is missing."""
        return (MISSING if self.missing else UNTUNED if self.untuned else
                ABSENT if self.absent else COMPLETE)

    def sentences(self) -> list[str]:
        """Return what is missing, or that the table is complete."""
        rows = "; ".join(f"{place}: {', '.join(names)}" for place, names in self.untuned.items())
        whole = not (self.missing or self.untuned)
        found = [*self.missing, *([f"not tuned: {rows}."] if rows else [])]
        if self.absent:
            found.append(f"{'complete except for ' if whole else ''}data that are not at hand: "
                         f"{', '.join(self.absent)}.")
        elif whole:
            found.append("complete.")
        if whole and not self.searched:
            found[-1] = (f"{found[-1][:-1]}; its rows are not tuned, and have the settings of its "
                         "file.")
        return found


def worst(codes: Iterable[int]) -> int:
    """Return the exit code of several tables: the most serious one."""
    order = (COMPLETE, ABSENT, UNTUNED, MISSING)
    return max(codes, key=order.index, default=COMPLETE)


def lacking(table: PaperTable, only: str | None = None, seeds: int = 5,
            folder: str | Path = FOLDER) -> Lacks:
    """Return what the experiments of a table lack; runs nothing.

    A row is complete if it is built, has ``seeds`` finished runs (or as many as the experiment is
    to have, where it says so) and, in a table whose rows are tuned, settings of the same search as
    the other rows. Rows without settings to search need none. Raises :class:`FedvineError` where
    ``only`` names no experiment.
    """
    found = planned(study(table), only, seeds, folder)
    lacks = Lacks(absent=list(found.absent), searched=table.tuned is not None)
    for panel in found.panels:
        setting = panel.about
        for row in table.row:
            if row.method is None:
                lacks.missing.append(f"{setting.place}: {row.name} is not built yet.")
                continue
            have, want = len(found.finished(panel.name, row.name)), panel.seeds or seeds
            if have < min(want, seeds):
                lacks.missing.append(
                    f"{setting.place}: {row.name} has {have} of {min(want, seeds)} seeds.")
            searchable = searched(table.plain(setting, row).method)
            if table.tuned and searchable and table.search(setting, row, folder) is None:
                lacks.untuned.setdefault(setting.place, []).append(row.name)
    return lacks
