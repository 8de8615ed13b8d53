"""Save a run at a site: its client's memory, forecasts or labels, and a secret of its own.

Forecasts and labels are also left by a server that holds the graph, in its run folder; a site's are
in ``KIT/memory``, one file a run. They are tables as ``fedvine predict RUN --all`` writes them; a
mark in the metadata says which are labels.
"""

from __future__ import annotations

import json
import secrets
import shutil
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from fedvine.core.errors import FedvineError, near
from fedvine.core.files import atomic
from fedvine.core.worker import ClientWorker
from fedvine.data.graph import Graph
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream
from fedvine.experiments import run_folder
from fedvine.experiments.answers import Best, alerted, answers, rows, rows_of, write_tables
from fedvine.experiments.forecasts import BLOCK, Forecast, best
from fedvine.tasks.chances import Chances, Parts, on_curve
from fedvine.tasks.task import Task

Kind = Literal["forecasts", "labels"]
FILES: dict[Kind, str] = {"forecasts": "forecasts.parquet", "labels": "labels.parquet"}
MARK = b"fedvine labels"
LISTS, STAGES = "lists.json", 30    # in a run's folder at a site, and of how many stages it is
BLOCKS = 100_000  # of users of one site for which forecasts are made, at most
KEPT = 3  # saves a site keeps; one more than the server, which may be killed between two


def save(worker: ClientWorker, folder: Path, moment: str) -> None:
    """Keep the client's memory in ``folder``, under the save's name."""
    run_folder.write_packs({"client": worker.save()}, folder / run_folder.checked_save(moment))
    for old in sorted(folder.glob("[0-9]*"))[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def restore(worker: ClientWorker, folder: Path, moment: str | None) -> None:
    """Restore the client of that save or the newest before it (None: a fresh client)."""
    wanted = "" if moment is None else run_folder.checked_save(moment)
    if moment is None:
        for old in folder.glob("[0-9]*"):
            shutil.rmtree(old, ignore_errors=True)
    earlier = [m for m in moments(folder) if m <= wanted]
    if earlier:
        worker.restore(run_folder.read_packs(folder / earlier[-1])["client"])
    else:
        worker.renew()


def moments(folder: Path) -> list[str]:
    """Return the saves that this site can restore."""
    return sorted(p.name for p in folder.glob("[0-9]*"))


def forecasts(worker: ClientWorker, name: str, file: Path, count: int,
              curve: np.ndarray | None = None, grain: int = 1) -> int:
    """Begin forecasts of ``count`` items a user, or labels; with ``count`` 0 write them.

    ``curve`` float64 are the probabilities of scores (:mod:`fedvine.tasks.chances`). Returns the
    number of blocks of users, each of a multiple of ``grain``; of a labelled graph all nodes are
    one.
    """
    if worker.part is None:
        return 0
    if count:
        task, plan = worker.protocol, worker.plan
        assert isinstance(task, Task)       # as the site opened it
        worker.forecasts = made = (
            SiteLabels(name, task, worker.part, plan) if task.data == "graph" else
            SiteForecasts(name, task, worker.part, plan, count, grain))  # type: ignore[arg-type]
        return made.blocks
    if isinstance(worker.forecasts, SiteLabels):
        worker.forecasts.write(file, worker.client.cache.get("held back"))
    elif isinstance(worker.forecasts, SiteForecasts):
        worker.forecasts.write(file, curve)
    return 0


def count_lists(folder: Path, t: int, parts: Parts | None = None) -> Chances:
    """Keep what came of the lists of a stage, learned after stage ``t``; return all counts here.

    The site's own counts are exact, those that it sends are multiples of its grain.
    """
    file, found = folder / LISTS, Chances()
    kept = json.loads(file.read_text("utf-8")) if file.exists() else {}
    if parts is not None:
        kept = {key: one for key, one in kept.items() if t - STAGES < int(key) < t} | {
            str(t): parts}
        folder.mkdir(parents=True, exist_ok=True)
        with atomic(file, "w") as handle:
            json.dump(kept, handle)
    for _, one in sorted(kept.items(), key=lambda item: int(item[0])):
        found.add({"": {"parts": one}})
    return found


def secret(folder: Path) -> bytes:
    """Return random bytes of this site alone, made once."""
    file = folder / "secret"
    if not file.exists():
        with atomic(file) as handle:
            handle.write(secrets.token_bytes(32))
        file.chmod(0o600)
    return file.read_bytes()


# -- forecasts of a site's own users, made and kept at the site ------------------------------------
class SiteForecasts:
    """The likeliest ``count`` items of every user of ``part``, found in blocks of users."""

    def __init__(self, name: str, task: Task, part: EventStream, plan: Plan, count: int,
                 grain: int = 1) -> None:
        self.name, self.task, self.part, self.plan, self.count = name, task, part, plan, count
        self.step = max(1, BLOCK // max(1, part.num_dst), -(-part.num_src // BLOCKS))
        self.step += -self.step % grain     # the number of blocks says no more than a count does
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

    def write(self, file: Path, curve: np.ndarray | None = None) -> None:
        """Write them as Parquet: client, user, rank, item, score, known; probability by a curve."""
        keep(file, pa.concat_tables(rows_of(
            self.name, self.part.src_ids, self.part.dst_ids,
            iter([b for _, b in sorted(self.found.items())]),
            None if curve is None else partial(on_curve, curve))), "forecasts")


# -- labels of a site's own nodes, made and kept at the site ---------------------------------------
class SiteLabels:
    """The label of every node of ``part`` with its probabilities, found in one block."""

    blocks = 1

    def __init__(self, name: str, task: Task, part: Graph, plan: Any) -> None:
        self.name, self.task, self.part, self.plan = name, task, part, plan
        self.found: Any = None

    def pairs(self, block: int) -> dict[str, Any]:
        """Return the query about all nodes."""
        return self.task.ask(self.part, self.plan, np.arange(len(self.part)), ())

    def keep(self, block: int, answer: Any) -> int:
        """Keep the scores [nodes, classes]; return the number of nodes."""
        self.found = answers(self.name, self.task.labelled(self.part), answer)
        return len(self.part)

    def write(self, file: Path, held: np.ndarray | None = None) -> None:
        """Write them as Parquet, with columns of :class:`.answers.Labels`, and what alerts need."""
        if self.found is not None:
            keep(file, rows(self.found, np.arange(len(self.part))), "labels", held)


# -- the tables of a kit, or of the run folder of a server that holds the graph --------------------
def there(folder: Path) -> bool:
    """Return whether ``folder`` is a kit, or the folder of a run that left such a table."""
    return (folder / "fedvine.json").exists() or any((folder / f).exists() for f in FILES.values())


def keep(file: Path, table: pa.Table, kind: Kind, held: np.ndarray | None = None) -> None:
    """Write a table of this kind, as a whole; ``held`` are counts for thresholds."""
    marked = {MARK: json.dumps(None if held is None else held.tolist())} if kind == "labels" else {}
    with atomic(file) as target:
        parquet.write_table(table.replace_schema_metadata(marked), target)


def newest(folder: Path, kind: Kind | None = None, run: str | None = None) -> Path:
    """Return the newest file, maybe of one ``kind`` or ``run``; raise where there is none."""
    pattern = f"{run}-{'[0-9a-f]' * 12}.parquet" if run else "*.parquet"
    files = [*(folder / "memory").glob(pattern), *(folder / f for f in FILES.values()
                                                   if (folder / f).exists())]
    found = [f for f in files if kind is None or _kind(f) == kind]
    if not found:
        raise FedvineError(f"{folder} has no {kind or 'forecasts'}{f' of {run}' if run else ''}; "
                           "they are made when a run of the federation ends.")
    return max(found, key=lambda file: file.stat().st_mtime)


def kept(folder: Path, user: str, count: int = 5, run: str | None = None) -> list[Forecast]:
    """Return a user's forecasts, best first, of the newest run or ``run``; raise without one."""
    table = parquet.read_table(newest(folder, "forecasts", run))
    found = table.filter(pa.array([u == user for u in table["user"].to_pylist()]))
    if not len(found):
        raise FedvineError(f'{folder} has never seen a user called "{user}"'
                           f"{near(user, table['user'].unique().to_pylist())}.")
    return [Forecast(r["item"], r["score"], r["known"], r.get("probability"))
            for r in found.sort_by("rank").slice(0, count).to_pylist()]


def labels(folder: Path, node: str | None = None, alerts: int | None = None,
           precision: float | None = None) -> pa.Table:
    """Return the labels of the nodes, those without a class first, or of one ``node``.

    ``alerts`` and ``precision`` are those of :func:`fedvine.experiments.answers.alerted`; what is
    rare follows from the nodes of this table. Raises :class:`FedvineError` for an unknown node, or
    if no run has ended here.
    """
    table = parquet.read_table(newest(folder, "labels"))
    held, names = json.loads((table.schema.metadata or {}).get(MARK, b"null")), table.column_names
    held = None if held is None else np.array(held)
    given = table["given"].to_pylist()
    known = [given.count(name[2:-1]) for name in names[names.index("given") + 1:]]
    table = alerted(table, np.array(known), held, alerts, precision)
    if node is None:
        given = np.asarray(table["given"].is_valid())
        return table.take(pa.array(np.argsort(given, kind="stable")))
    names = table["node"].to_pylist()
    if node not in names:
        raise FedvineError(f'{folder} has no node called "{node}"{near(node, names)}.')
    return table.slice(names.index(node), 1)


def write(folder: Path, out: Path, top: int, kind: Kind | None = None, *how: Any) -> int:
    """Write the newest table to ``out``, of forecasts ``top`` items a user; return its rows.

    ``how`` are the last arguments of :func:`labels`.
    """
    file = newest(folder, kind)
    table: Any = labels(folder, None, *how) if _kind(file) == "labels" else parquet.read_table(file)
    if "rank" in table.column_names:
        table = table.filter(pa.array(np.asarray(table["rank"]) <= top))
    return write_tables(out, iter([table]))


def _kind(file: Path) -> Kind:
    return "labels" if MARK in (parquet.read_schema(file).metadata or {}) else "forecasts"
