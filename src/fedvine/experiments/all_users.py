"""Forecasts of all users by several processes, each with the run and a part of the users.

A process writes its part into files of its own, one a group of users; when all are done the parts
are joined in the order that one process has, block by block, so that memory does not grow with the
number of users.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from fedvine.core.errors import FedvineError
from fedvine.experiments.answers import Wanted, write_tables
from fedvine.experiments.forecasts import Forecasts
from fedvine.experiments.reopened import forecasts_of

_LOOK = 0.2         # seconds between two looks at how far the processes are


def every(folder: str | os.PathLike[str], found: Forecasts, at: float | None, count: int,
          out: str | os.PathLike[str], wanted: Wanted | None, jobs: int,
          say: Callable[[int, int], object] = lambda done, users: None) -> int:
    """Do as :meth:`Forecasts.every` of the run in ``folder`` by ``jobs`` processes.

    ``found`` and ``at`` are as :func:`fedvine.experiments.reopened.forecasts_of` has them. Raises
    :class:`FedvineError` where a process ends before its part is done, too.
    """
    if jobs < 2:
        return found.every(count, out, wanted, say)
    context = multiprocessing.get_context("spawn")    # with this environment, as it is now
    done: Any = context.Array("q", 2 * jobs)        # users that are done, and of all, by process
    with TemporaryDirectory(prefix="fedvine-") as name:
        work = Path(name)
        processes = [context.Process(target=_part, args=(
            str(folder), at, count, wanted, (mine, jobs), str(work), done), daemon=True)
            for mine in range(jobs)]
        try:
            for process in processes:
                process.start()
            while any(process.is_alive() for process in processes):
                time.sleep(_LOOK)
                if all(done[1::2]):
                    say(sum(done[::2]), sum(done[1::2]))
                if any(process.exitcode for process in processes):
                    break
            if any(process.exitcode != 0 for process in processes):
                said = [file.read_text("utf-8") for file in work.glob("*.error")]
                raise FedvineError(said[0] if said else "A process that computes forecasts was "
                                   "ended; is there enough memory for --jobs?")
            rows = write_tables(out, _joined(work))
        finally:
            for process in processes:
                process.kill()
    found.note(out, count)
    return rows


def _part(folder: str, at: float | None, count: int, wanted: Wanted | None, share: tuple[int, int],
          work: str, done: Any) -> None:
    """Write the tables of one process."""
    mine = share[0]
    from fedvine.experiments.summary import keep_large_blocks
    keep_large_blocks()

    def say(some: int, users: int) -> None:
        done[2 * mine], done[2 * mine + 1] = some, users

    writer, now = None, -1
    try:
        for group, table in forecasts_of(folder, at).tables(count, wanted, say, share):
            if group != now:
                if writer is not None:
                    writer.close()
                now, writer = group, pa.ipc.new_stream(Path(work, f"{group:06}-{mine:04}.arrow"),
                                                       table.schema)
            assert writer is not None
            writer.write_table(table)
        if writer is not None:
            writer.close()
    except FedvineError as error:
        Path(work, f"{mine}.error").write_text(str(error), "utf-8")
        raise SystemExit(1) from error


def _joined(work: Path) -> Iterator[pa.Table]:
    """Yield the tables of all processes, in order."""
    for file in sorted(work.glob("*.arrow")):
        with pa.memory_map(str(file)) as source, pa.ipc.open_stream(source) as stream:
            for batch in stream:
                yield pa.Table.from_batches([batch])
        file.unlink()
