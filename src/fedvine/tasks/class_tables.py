"""The table of a classification by class, and its matrix of confusions, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedvine.tasks.shown import Matrix, Rows

MEASURES = ("After the last task, between 0 and 1. Commonest: the accuracy of always answering the "
            "client's most frequent training class. Balanced: the mean recall of the classes. ECE: "
            "expected calibration error, the mean distance between the probability of an answer "
            "and the share of such answers that are right.")
ROWS = 40       # classes of a table; summary.json has all
CELLS = 24      # of a matrix; others are one
SHORT = 24      # characters of a class that is named in place of another


def name(number: int, names: Sequence[str]) -> str:
    """Return the name of a class, its number where names are not known."""
    return names[number] if number < len(names) else f"class {number}"


def tables(found: Mapping[str, Any] | None, names: Sequence[str]) -> list[str | Rows]:
    """Return a sentence and a table with a row a class; nothing where nothing was measured.

    ``found`` is of :func:`fedvine.tasks.class_measures.summed`. Columns: nodes, precision, recall,
    F1, average precision, confusions.
    """
    if not found:
        return []
    keys, rows = ("precision", "recall", "f1", "ap"), []
    for i, number in enumerate(found["class"][:ROWS]):
        row, n = found["confusion"][i], found["n"][i]
        other = max((k for k in range(len(row)) if k != i), key=row.__getitem__, default=i)
        wrong = name(found["class"][other], names)
        wrong = wrong if len(wrong) <= SHORT else f"{wrong[:SHORT - 1]}…"
        rows.append([name(number, names), f"{n:,.0f}",
                     *("-" if found[key][i] is None else f"{found[key][i]:.3f}" for key in keys),
                     f"{wrong} {100 * row[other] / n:.0f} %" if other != i and row[other] else "-"])
    more = len(found["class"]) - len(rows)
    return ["Each class, over the test nodes of all clients and tasks after the last task. AP: "
            "average precision of the class against the others of its task, weighted over clients "
            "by nodes of the class. Confused with: the most frequent wrong answer."
            + (f" The {more} smallest classes are only in summary.json." if more > 0 else ""),
            Rows(["class", "n", "precision", "recall", "F1", "AP", "confused with"], rows)]


def matrix(found: Mapping[str, Any] | None, names: Sequence[str]) -> list[Matrix]:
    """Return the heat map of what each class's nodes are named, in percent, if there is any.

    Arguments are those of :func:`tables`. The smallest of more than :data:`CELLS` classes are one.
    """
    if not found:
        return []
    numbers, cells = list(found["class"]), [list(row) for row in found["confusion"]]
    shown = [name(number, names) for number in numbers]
    if len(shown) > CELLS:
        cut = CELLS - 1
        cells = [[*row[:cut], sum(row[cut:])] for row in cells]
        cells = [*cells[:cut], [sum(column) for column in zip(*cells[cut:], strict=True)]]
        shown = [*shown[:cut], f"{len(numbers) - cut} others"]
    share = [[100 * v / sum(row) if sum(row) else float("nan") for v in row] for row in cells]
    return [Matrix("confusion matrix, % of a class", "predicted class", "true class", share, shown)]
