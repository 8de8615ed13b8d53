"""Forecasts of a site's own users, made and kept at the site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from fedvine.core.errors import FedvineError, near
from fedvine.core.files import atomic
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream
from fedvine.experiments.forecast_tables import Best, rows_of
from fedvine.experiments.forecasts import BLOCK, Forecast, best
from fedvine.tasks.task import Task


class SiteForecasts:
    """The likeliest ``count`` items of every user of ``part``, found in blocks of users."""

    def __init__(self, name: str, task: Task, part: EventStream, plan: Plan, count: int) -> None:
        self.name, self.task, self.part, self.plan, self.count = name, task, part, plan, count
        self.step = max(1, BLOCK // max(1, part.num_dst))
        self.blocks = -(-part.num_src // self.step)
        self.found: dict[int, Best] = {}
        self._met = task.met(part, plan)

    def _users(self, block: int) -> np.ndarray:
        return np.arange(block * self.step, min((block + 1) * self.step, self.part.num_src))

    def pairs(self, block: int) -> dict[str, Any]:
        """Return the query about every item for each user of a block, at the end of the stream."""
        return self.task.ask(self.part, self.plan, self._users(block), ())

    def keep(self, block: int, answer: Any) -> int:
        """Keep the best of a block's answers [users x items]; return the number of users."""
        users = self._users(block)
        score = np.asarray(answer, float).reshape(len(users), self.part.num_dst)
        self.found[block] = best(self.task, self.part, users, score, self.count, self._met)
        return len(users)

    def write(self, file: Path) -> None:
        """Write them as Parquet: client, user, rank, item, score, known."""
        with atomic(file) as target:
            parquet.write_table(pa.concat_tables(rows_of(
                self.name, self.part.src_ids, self.part.dst_ids,
                iter([b for _, b in sorted(self.found.items())]))), target)


def kept(kit: Path, user: str, count: int = 5, run: str | None = None) -> list[Forecast]:
    """Return a site's forecasts for one of its users, best first; of its newest run, or of ``run``.

    Raises :class:`FedvineError` for an unknown user, or if no run has ended here.
    """
    files = sorted((kit / "memory").glob(f"{run}-{'[0-9a-f]' * 12}.parquet" if run else
                                            "*.parquet"),
                   key=lambda file: file.stat().st_mtime)
    if not files:
        raise FedvineError(f"{kit} has no forecasts{f' of {run}' if run else ''}; they are made "
                           "when a run of the federation ends.")
    table = parquet.read_table(files[-1])
    found = table.filter(pa.array([u == user for u in table["user"].to_pylist()]))
    if not len(found):
        raise FedvineError(f'{kit} has never seen a user called "{user}"'
                           f"{near(user, table['user'].unique().to_pylist())}.")
    return [Forecast(r["item"], r["score"], r["known"])
            for r in found.sort_by("rank").slice(0, count).to_pylist()]
