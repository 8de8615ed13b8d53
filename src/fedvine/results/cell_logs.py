"""The parts of a run's logs that pages need besides scores, small enough for a kept cell."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedvine.experiments import run_folder
from fedvine.tasks.snapshot_classification import forgotten


def of(folder: Path) -> dict[str, Any]:
    """Return the parts of a finished run that it has.

    These are ``curves``, ``accuracies``, ``forgetting`` and ``exchanges``.
    """
    metrics = run_folder.read_lines(folder, "metrics.jsonl")
    messages = run_folder.read_lines(folder, "messages.jsonl")
    found = {"curves": curves(metrics), "accuracies": accuracies(metrics),
             "forgetting": forgetting(metrics), "exchanges": total(exchanges(messages))}
    return {name: value for name, value in found.items() if value}


# -- accuracies inside a round -------------------------------------------------------------------
def curves(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines of ``metrics.jsonl`` of the last task with curves; points are columns."""
    last = max((line["t"] for line in lines if "curve" in line), default=None)
    return [{k: line[k] for k in ("t", "stage", "client", "n")}
            | {"curve": columns(line.get("curve", []))} for line in lines if line["t"] == last]


def columns(points: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return a list of objects as an object of lists; None where an object does not have a key."""
    keys = dict.fromkeys(key for point in points for key in point)
    return {key: [point.get(key) for point in points] for key in keys}


def points(table: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Return the list of objects that :func:`columns` made a table of."""
    rows = zip(*table.values(), strict=True)
    return [{k: v for k, v in zip(table, row, strict=True) if v is not None} for row in rows]


# -- classes named over snapshots ----------------------------------------------------------------
def accuracies(lines: Iterable[dict[str, Any]]) -> list[float]:
    """Return the accuracy in [0, 1] of each client with nodes, in each scored snapshot."""
    return [right / n for line in lines if line["period"] == "test"
            for right, n in line.get("parts", {}).values() if n]


def forgetting(lines: Iterable[dict[str, Any]]) -> list[float]:
    """Return F_k by learned snapshot k, in their order; see :func:`forgotten`."""
    return list(forgotten({(line["t"], line["stage"]): line["scores"]["accuracy"]
                           for line in lines if line["period"] == "past" and line["scores"]}
                          ).values())


# -- exchanges between clients -------------------------------------------------------------------
def exchanges(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the exchanges of training among the lines of ``messages.jsonl``, in their order.

    Each has ``t``, ``r``, ``calls``, ``seconds``, ``down`` and ``up`` (bytes). Clients also
    exchange when states are made and when the library scores: such an exchange ends with all their
    rows (``embed``), one of training with epochs or with the clients' models. The first ``say``
    sends down the shared model, or nothing, which is not counted.

    Args:
        lines: lines of ``messages.jsonl``. Those that were summed have no order any more and are
            left out.

    Returns:
        A mapping for each exchange.
    """
    found: list[dict[str, Any]] = []
    spoken: list[list[dict[str, Any]]] = [[]]
    for line in (line for line in lines if "calls" not in line):
        if line["function"] in ("say", "hold", "offer", "take"):
            spoken[-1].append(line)
            if line["function"] in ("hold", "take"):
                spoken.append([])
            continue
        for one in spoken[:-1] if line["function"] in ("train", "trained") else []:
            found.append({"t": line["t"], "r": line["r"], "calls": len(one), **{
                key: sum(s[key] for s in one) for key in ("seconds", "down", "up")}})
            found[-1]["down"] -= one[0]["down"] if one[0]["function"] == "say" else 0
        spoken = [[]]
    return found


def total(found: list[dict[str, Any]]) -> dict[str, float]:
    """Return the number of exchanges and the sums of calls, seconds and bytes; empty for none."""
    sums = {key: sum(one[key] for one in found) for key in ("calls", "seconds", "down", "up")}
    return {"exchanges": len(found), **sums} if found else {}
