"""The scores and costs of a finished run as plain records, and as tables for a terminal."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic
from fedvine.core.units import seconds, size
from fedvine.experiments import run_folder
from fedvine.tasks.shown import Rows
from fedvine.tasks.task import REPLICATES, Task

_COSTS = ("seconds_round", "seconds_client", "seconds_server", "seconds_total", "seconds_cpu",
          "peak_memory_bytes", "bytes_up", "bytes_down")
SHOWN = 20      # values of a fact that are shown; summary.json in the run's folder has all


def records(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return a record a client, and one for their mean (``client`` None), of the test period.

    Keys: ``method``, ``data``, ``seed``, ``client``, ``scores`` (``auc``, ``auc_new``, ``ap``,
    ``mrr``, ...) and, the same in all records of a run, ``seconds_round`` (median),
    ``seconds_client`` (of one client in a round, mean), ``seconds_server`` (in a round, mean),
    ``seconds_total``, ``seconds_cpu`` (of all threads), ``peak_memory_bytes``, ``bytes_up``,
    ``bytes_down``. ``seconds_own`` are the seconds of the client itself in a round (mean), in the
    record of the mean those of the slowest client; None where the run does not have rounds, or was
    made before they were recorded. The record of the mean also has ``replicates`` by key, where the
    run was asked for them, and ``of``: of scores that are no mean of all clients that have them
    both numbers of clients, 0 where the mean is over queries. Raises :class:`FedvineError` if the
    run is not finished.
    """
    experiment, summary = run_folder.read_experiment(folder), run_folder.read_summary(folder)
    if summary is None:
        raise FedvineError(f"The run in {folder} is not finished; give its command again, "
                           "it goes on.")
    return listed({"method": experiment["method"]["name"], "data": experiment["data"]["name"],
                   "seed": experiment["seed"]}, summary)


def listed(shared: Mapping[str, Any], summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the records of a run with this summary; ``shared`` has its method, data and seed."""
    found, own = summary["scores"]["test"], dict(summary.get("seconds_by_client") or {})
    own[None] = max(own.values(), default=None)
    made = [{**shared, "client": client, "scores": scores, **{c: summary.get(c) for c in _COSTS},
             "seconds_own": own.get(client)}
            for client, scores in [(None, found["mean"]), *found["client"].items()]]
    having = {key: sum(key in scores for scores in found["client"].values())
              for key in found.get("of", {})}
    if few := {key: [of, having[key]] for key, of in found.get("of", {}).items()
               if of < having[key]}:
        made[0]["of"] = few
    if REPLICATES in summary:
        made[0][REPLICATES] = summary[REPLICATES]
    return made


def write_json(found: list[dict[str, Any]], file: str | os.PathLike[str]) -> None:
    """Write records as one JSON list."""
    with atomic(Path(file), "w") as handle:
        json.dump(found, handle, indent=1)


def tables(summary: Mapping[str, Any], task: Task) -> list[RenderableType]:
    """Return sentences and tables for a person: a choice, the test period's scores, drift."""
    return [*(_choice(summary["auto"]) if "auto" in summary else ()),
            *(rows if isinstance(rows, str) else table(rows) for rows in task.tables(summary)),
            *map(str, summary.get("drift", []))]


def _choice(found: Mapping[str, Any]) -> list[RenderableType]:
    """Return the sentence on a method that was chosen, and the table of its candidates."""
    def ahead(value: Any) -> str:
        return "" if value is None else f"{value[0]:+.3f} ±{value[1]:.3f}"
    rows = [[one["name"], "-" if one["score"] is None else f"{one['score']:.3f}",
             ahead(one["difference"]), seconds(one["seconds"]), size(one["bytes"]),
             "left out" if one["left_out"] else "chosen" if one["name"] == found["chosen"] else ""]
            for one in found["candidates"]]
    return [str(found["why"]),
            table(Rows(["candidate", str(found["score"]), "above the chosen", "CPU time", "moved",
                        ""], rows)),
            *(f"{one['name']} is left out: {one['left_out']}".rstrip(".") + "."
              for one in found["candidates"] if one["left_out"])]


def table(rows: Rows) -> Table:
    """Return a table for a terminal."""
    made = Table(rows.columns[0], box=None, pad_edge=False)
    for column in rows.columns[1:]:
        made.add_column(column, justify="right")
    for i, row in enumerate(rows.rows):
        made.add_row(*row, style="bold" if rows.total and i == len(rows.rows) - 1 else "")
    return made


def facts(report: Mapping[str, Any]) -> str:
    """Return the report of a method as text, one line a fact.

    Of more than :data:`SHOWN` values, such as one a client, the first ones and how many more. What
    the report says in a sentence (``said``) is shown as that.
    """
    said = report.get("said", {})

    def joined(values: list[str]) -> str:
        more = len(values) - SHOWN
        return ", ".join(values[:SHOWN]) + (f" and {more:,} more" if more > 0 else "")

    def text(value: Any) -> str:
        if isinstance(value, Mapping):
            return joined([f"{k} {text(v)}" for k, v in value.items()])
        if isinstance(value, list):
            return joined([text(v) for v in value])
        return f"{value:.3g}" if isinstance(value, float) else str(value)
    return "\n".join(said.get(k) or f"{k.replace('_', ' ')}: {text(v)}" for k, v in report.items()
                     if k != "said" and not (isinstance(v, list) and v
                                             and isinstance(v[0], Mapping)))
