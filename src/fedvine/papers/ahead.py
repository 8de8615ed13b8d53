"""Our method in a paper's table, beside the best rival of each experiment."""

from __future__ import annotations

from fedvine.papers.published import PaperTable
from fedvine.papers.study import Found
from fedvine.results.entry import score
from fedvine.tasks import metrics


def ahead(table: PaperTable, found: Found) -> list[str]:
    """Return our row less the best rival of each experiment, in the first column, paired.

    Rows that see what no method of the paper may (``rival = false``) are no rivals.
    """
    if not table.ours:
        return []
    column, lines = table.column[0], []
    digits = 1 if column.unit == "%" else score(column.ours).digits
    for panel in found.panels:
        mine = found.entry(panel.name, table.ours).values(column.ours)
        by = {row.name: {s: x for s, x in found.entry(panel.name, row.name).values(
            column.ours).items() if s in mine} for row in table.row
            if row.rival and row.name != table.ours}
        by = {name: values for name, values in by.items() if len(values) > 1}
        if not by:
            continue
        best = max(by, key=lambda name: sum(by[name].values()) / len(by[name]))
        seeds = sorted(by[best])
        mean, half, p = metrics.paired([mine[s] for s in seeds], [by[best][s] for s in seeds])
        lines.append(f"{panel.about.place} {mean:+.{digits}f} ±{half:.{digits}f} (p = {p:.3f}, "
                     f"{len(seeds)} seeds) {best}")
    return [f"{table.ours} less the rival with the best {column.name}, paired over seeds: "
            f"{'; '.join(lines)}."] if lines else []
