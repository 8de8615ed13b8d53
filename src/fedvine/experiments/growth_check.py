"""Check that a run whose data grow, a night at a time, gives what one run on all of them gives."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.core.ledger import seeded
from fedvine.core.method import Method
from fedvine.data.ids import Ids
from fedvine.data.plan import Plan
from fedvine.data.split import relabel
from fedvine.data.stream import EventStream
from fedvine.experiments.run import Run, run
from fedvine.living.rows import StoredRows
from fedvine.living.run import LivingRun
from fedvine.tasks.task import of
from fedvine.tasks.task_plan import TaskSettings

STEP = "600"
NIGHTS = (1500, 1600, 2900, 4000)   # two stages, nothing new, two more, two more
LATE = 2000                         # when the last client comes
WAITS = 1300                        # and the one before: its first rows wait in the first night


def check(method: Method, stream: EventStream) -> str | None:
    """Return how the scores of the nights differ from those of one run; None where they do not.

    Also None where the method's task says that its runs do not go on when their data grow. Times of
    ``stream`` are 0 to 4000; it has a column ``client``.
    """
    late = not method.server_holds_graph    # there the clients are those of the first night
    last = len(stream.categories["client"]) - 1 - stream.codes["client"]
    whole = stream.take(np.flatnonzero(
        ((last != 0) | (stream.t >= LATE)) & ((last != 1) | (stream.t >= WAITS)) | (not late)))
    with tempfile.TemporaryDirectory() as folder:
        out, made = Path(folder) / "run", None
        for end in NIGHTS:
            try:
                made = _night(method, as_read(whole.before(end)), out)
            except FedvineError as error:
                if "do not go on when their data grow" in str(error):
                    return None
                raise
        assert made is not None and isinstance(made.plan, Plan)
        table = as_read(whole.before(made.plan.bounds[-1]))
        other = _run(method, table.split("client"), made.plan).finish()
        wrong = _differences(made, other)
    return "; ".join(wrong) or None


def as_read(stream: EventStream) -> EventStream:
    """Return the stream with its rows' nodes and clients, numbered as a reader of a table does."""
    if stream.bipartite:
        (src, src_ids), (dst, dst_ids) = (_numbered(stream.src, stream.src_ids),
                                          _numbered(stream.dst, stream.dst_ids))
    else:
        both, src_ids = _numbered(np.stack([stream.src, stream.dst], 1).reshape(-1),
                                  stream.src_ids)
        src, dst, dst_ids = both[0::2].copy(), both[1::2].copy(), None
    clients, code = np.unique(stream.codes["client"], return_inverse=True)
    names = list(map(str, stream.categories["client"]))
    return EventStream(src, dst, np.asarray(stream.t), src_ids, dst_ids,
                       codes={"client": code.astype(np.int32)},
                       categories={"client": [names[k] for k in clients.tolist()]},
                       name=stream.name)


def _numbered(numbers: np.ndarray, ids: Ids) -> tuple[np.ndarray, Ids]:
    number, used = relabel(numbers)
    return number, ids.take(used)


def _night(method: Method, table: EventStream, out: Path) -> Run:
    if StoredRows.there(out / "data"):
        living = LivingRun(out / "data", nullcontext)
        living.take(table)
        return _run(method, living.rows.split, living.rows.plan, out).finish()
    split, plan = of(method).prepare_open(table, {"by": "client"}, STEP, TaskSettings(), 7)
    return _run(method, split, plan, out).finish()


def _run(method: Method, split: Any, plan: Any, out: Path | None = None) -> Run:
    return run(method, split, plan, seed=7, protocol=of(method).tiny(), out=out, step=STEP,
               source={"digest": "nights", "edges": 0}, fresh=seeded(7))


def _differences(made: Run, other: Run) -> Iterable[str]:
    """Yield where two runs' scores differ, stage by stage."""
    ours, theirs = ({(stage.t, scored): json.dumps(by, sort_keys=True) for stage in found.stages
                     for scored, by in stage.found.items()} for found in (made, other))
    if len(made.plan) < len(NIGHTS) or ours.keys() != theirs.keys():
        yield f"{len(made.plan)} stages were learned"
    for t, scored in sorted(ours.keys() & theirs.keys()):
        if ours[t, scored] != theirs[t, scored]:
            yield f"scores of stage {scored} after stage {t} differ"
