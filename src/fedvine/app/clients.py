"""The clients of a run for the page: sizes, bytes, seconds, missed calls, newest scores."""

from __future__ import annotations

from typing import Any

from fedvine.app.plain import number, text
from fedvine.app.watched import Watched
from fedvine.core.units import seconds, size
from fedvine.tasks.shown import furthest

MOST = 500      # rows of the table
_SIZES = {"stream": ("edges", "users", "items"), "classes": ("edges", "nodes", "nodes"),
          "graph": ("nodes", "edges")}


def names(seen: Watched) -> list[str]:
    """Return the names of the clients that the folder knows, sorted."""
    said = seen.run.experiment["split"].get("clients") if seen.run else None
    known = {*seen.sizes, *seen.moved, *seen.calls.missed, *map(str, said or ()),
             *(str(line["client"]) for line in (seen.run.lines if seen.run else ()))}
    return sorted(known - {"all"} or known)


def asked(seen: Watched) -> list[str]:
    """Return the clients that can be asked: all, or "all" where the server holds the graph."""
    held = {str(line["client"]) for line in (seen.run.lines if seen.run else ())}
    return ["all"] if held == {"all"} else names(seen)[:10 * MOST]


def table(seen: Watched) -> dict[str, Any]:
    """Return a row a client, the largest first; each cell is a value to sort by, and a text."""
    run, every = seen.run, names(seen)
    assert run is not None
    kinds = _SIZES[run.task.data]
    keys = [key for key in run.task.main if any(key in line["scores"] for line in run.lines)][:2]
    newest: dict[str, dict[str, float]] = {}
    for line in furthest(run.lines):
        newest.setdefault(str(line["client"]), {}).update(line["scores"])
    if not keys and run.lines:      # classes task by task: of the newest task
        keys = [key for key in ("accuracy",) if any(key in by for by in newest.values())]
    own = run.summary.get("seconds_by_client") or {}
    every.sort(key=lambda name: -(seen.sizes.get(name) or [0])[0])
    wide = max((len(its) for its in seen.sizes.values()), default=1)
    made = []
    for name in every[:MOST]:
        sizes, moved = seen.sizes.get(name, []), seen.moved.get(name, {})
        cells = [_cell(value, f"{value:,}") for value in (*sizes, *[None] * (wide - len(sizes)))]
        for key, unit in (("down", size), ("up", size), ("seconds", seconds)):
            cells.append(_cell(moved.get(key), unit))
        cells += [_cell(own.get(name), seconds)] if own else []
        cells.append(_cell(seen.calls.missed.get(name, 0), "{:,}".format))
        cells += [_cell(newest.get(name, {}).get(key), "{:.3f}".format) for key in keys]
        made.append({"name": text(name), "cells": cells,
                     "refused": text(seen.calls.refused.get(name, ""))})
    scores = run.task.scores
    titles = [scores[key].name if key in scores else f"{key}, newest task" for key in keys]
    return {"columns": [*kinds[:wide], "to it", "from it", "time", *(["a round"] if own else []),
                        "missed", *titles],
            "rows": made, "count": len(every), "size": kinds[0], "moved": bool(seen.moved)}


def _cell(value: float | None, shown: Any) -> list[Any]:
    """Return a value and its text; ``shown`` is the text or a function of the value."""
    if value is None:
        return [None, "-"]
    return [number(value), shown if isinstance(shown, str) else shown(value)]
