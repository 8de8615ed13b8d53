"""Forecasts of a site's own users, made and kept at the site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream
from fedvine.experiments.forecast_tables import Best, rows_of
from fedvine.experiments.forecasts import BLOCK, best
from fedvine.federation.kept_answers import keep
from fedvine.tasks.task import Task


class SiteForecasts:
    """The likeliest ``count`` items of every user of ``part``, found in blocks of users."""

    def __init__(self, name: str, task: Task, part: EventStream, plan: Plan, count: int) -> None:
        self.name, self.task, self.part, self.plan, self.count = name, task, part, plan, count
        self.step = max(1, BLOCK // max(1, part.num_dst))
        self.blocks = -(-part.num_src // self.step)
        self.found: dict[int, Best] = {}
        self._met, self._barred = task.met(part, plan), task.barred(part, plan)

    def _users(self, block: int) -> np.ndarray:
        return np.arange(block * self.step, min((block + 1) * self.step, self.part.num_src))

    def pairs(self, block: int) -> dict[str, Any]:
        """Return the query about every item for each user of a block, at the end of the stream."""
        return self.task.ask(self.part, self.plan, self._users(block), ())

    def keep(self, block: int, answer: Any) -> int:
        """Keep the best of a block's answers [users x items]; return the number of users."""
        users = self._users(block)
        score = np.asarray(answer, float).reshape(len(users), self.part.num_dst)
        self.found[block] = best(self.task, self.part, users, score, self.count, self._met,
                                 self._barred)
        return len(users)

    def write(self, file: Path) -> None:
        """Write them as Parquet: client, user, rank, item, score, known."""
        keep(file, pa.concat_tables(rows_of(
            self.name, self.part.src_ids, self.part.dst_ids,
            iter([b for _, b in sorted(self.found.items())]))), "forecasts")
