"""The rows of a paper's table that are not complete yet."""

from __future__ import annotations

from pathlib import Path

from fedvine.papers.published import PaperTable
from fedvine.papers.study import planned
from fedvine.papers.tables import study
from fedvine.results.cells import FOLDER
from fedvine.results.tune import searched


def lacking(table: PaperTable, only: str | None = None, seeds: int = 5,
            folder: str | Path = FOLDER) -> list[str]:
    """Return a sentence for each row of an experiment that is not complete; runs nothing.

    A row is complete if it is built, has ``seeds`` finished runs (or as many as the experiment is
    to have, where it says so) and, in a table whose rows are tuned, settings of the same search as
    the other rows. Rows without settings to search need none. Experiments without data are left
    out. Raises :class:`FedvineError` where ``only`` names no experiment.
    """
    found = planned(study(table), only, seeds, folder)
    lines = []
    for panel in found.panels:
        setting = panel.about
        for row in table.row:
            if row.method is None:
                lines.append(f"{setting.place}: {row.name} is not built yet.")
                continue
            have, want = len(found.finished(panel.name, row.name)), panel.seeds or seeds
            if have < min(want, seeds):
                lines.append(f"{setting.place}: {row.name} has {have} of {min(want, seeds)} seeds.")
            searchable = searched(table.plain(setting, row).method)
            if table.tuned and searchable and table.search(setting, row, folder) is None:
                lines.append(f"{setting.place}: {row.name} is not tuned.")
    return lines
