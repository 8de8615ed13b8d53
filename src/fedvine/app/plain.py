"""Plots, tables and numbers as plain values for JSON, in which there is no NaN."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fedvine.core.text import shown
from fedvine.data import dates
from fedvine.tasks.shown import Lines, Matrix, Rows

SERIES = 24     # of a plot


def number(value: Any) -> float | None:
    """Return a number with six digits, None for NaN and infinity."""
    value = float(value)
    return float(f"{value:.6g}") if math.isfinite(value) else None


def plot(made: Lines | Matrix, bounds: Sequence[float] = ()) -> dict[str, Any]:
    """Return a plot; ``bounds`` of the stages are in seconds since 1970, empty without dates.

    Of many series only the first :data:`SERIES` are there; ``left_out`` is the number of others.
    """
    if isinstance(made, Matrix):
        return {"kind": "matrix", "title": text(made.title), "x": made.x, "y": made.y,
                "names": [text(name) for name in made.names],
                "values": [[number(v) for v in row] for row in made.values]}
    return {"kind": "lines", "title": text(made.title or made.y), "x": made.x,
            "limits": made.limits and [number(v) for v in made.limits],
            "shaded": made.shaded and [number(v) for v in made.shaded],
            "dates": dates.shown(list(bounds)) if made.stages and bounds else [],
            "left_out": max(0, len(made.series) - SERIES),
            "series": [{"name": text(name), "points": [
                [number(a), number(b)] for a, b in zip(x, y, strict=True)]}
                for name, x, y in made.series[:SERIES]]}


def rows(made: Rows) -> dict[str, Any]:
    """Return a table."""
    return {"columns": [text(c) for c in made.columns], "total": made.total,
            "rows": [[text(cell) for cell in row] for row in made.rows]}


def text(value: object) -> str:
    """Return text without control codes and characters that change the direction of writing."""
    return shown(str(value))
