"""Cells of a table: each is one experiment with one seed, and is run at most once.

The results of a finished cell are a line in a folder of kept cells (:mod:`fedvine.results.kept`);
only a cell without a line is run (:mod:`fedvine.results.fill`), in a run folder of its own.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import fedvine
from fedvine.core.device import processor
from fedvine.core.errors import FedvineError
from fedvine.core.files import cache_folder
from fedvine.data.identity import digest, names
from fedvine.experiments import run_folder
from fedvine.experiments.experiment import Experiment
from fedvine.results.kept import FOLDER as KEPT
from fedvine.results.kept import Identity, Kept, Line
from fedvine.results.view import finished, listed
from fedvine.tasks.snapshot_classification import forgotten

FOLDER = "runs/cells"
DIGITS = 6          # significant ones of a kept number
SENDS = "send_messages", "say"      # the call of DG-CoLearn that sends messages, now and before
#: Facts of data that were opened, and folders of kept cells.
_Opened = tuple[dict[tuple[str, str], tuple[str, int, str] | FedvineError], dict[Path, Kept]]
_opened: ContextVar[_Opened | None] = ContextVar("_opened", default=None)


@dataclass(frozen=True)
class Job:
    """One experiment with its run folder; ``data`` and ``edges`` are those of its stream.

    ``content`` is the digest of the data, None where they are not available, with the reason in
    ``absent``. Such a cell can be read if it is kept, but not be run.
    """

    experiment: Experiment
    folder: Path
    data: str
    edges: int
    content: str | None = None
    kept: Kept | None = None
    absent: str = ""

    def __str__(self) -> str:
        return f"{self.experiment.method.name} on {self.data}, seed {self.experiment.seed}"

    @cached_property
    def identity(self) -> Identity:
        """Return the settings and data that the cell's scores depend on."""
        return Identity(self.experiment, self.content)

    @property
    def line(self) -> Line | None:
        """Return the kept line of the cell, None if there is none."""
        return self.kept.find(self.identity) if self.kept is not None else None

    @property
    def finished(self) -> bool:
        """Return whether the cell is kept or its run has ended."""
        return self.line is not None or (self.folder / "summary.json").exists()

    def keep(self, **other: Any) -> None:
        """Write the line of a cell whose run has just finished, if it is not kept yet.

        ``other`` values replace those of the summary.
        """
        if self.kept is not None and self.content is not None and self.line is None:
            self.kept.keep(self.identity, self._written(other))

    def drop_saves(self) -> None:
        """Remove the saves of a run whose line is kept: a page needs its line and logs alone."""
        if self.line is not None:
            shutil.rmtree(self.folder / "saves", ignore_errors=True)

    def _written(self, other: dict[str, Any]) -> Line:
        """Return the line of a finished run; ``other`` values replace those of the summary."""
        summary = finished(self.folder)
        test = summary["scores"]["test"]
        kept = {k: test[k] for k in ("mean", "client", "mean_edges", "chances") if k in test}
        if bins := test.get("classes", {}).get("bins"):
            kept["bins"] = bins
        scores = {"test": kept,
                  "val": {"mean": summary["scores"].get("val", {}).get("mean", {})}}
        short = {k: v for k, v in summary.items() if k not in ("by", "classes")} | {
            "scores": scores} | other
        if "notes" in short:
            short["notes"] = [without_folders(note) for note in short["notes"]]
        return {"method": self.experiment.method.name, "data": self.data, "edges": self.edges,
                "seed": self.experiment.seed, "content": self.content,
                "revision": self.identity.revision, "fedvine": fedvine.__version__,
                "processor": processor(), "made": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "settings": self.identity.settings, "summary": rounded(short),
                "logs": rounded(logs_of(self.folder))}

    @property
    def _found(self) -> Line:
        """Return the kept line, or the line of the run folder."""
        return self.line or self._written({})

    @property
    def summary(self) -> dict[str, Any]:
        """Return the summary of the finished run: scores, costs, and the method's report."""
        return self._found["summary"]

    def records(self) -> list[dict[str, Any]]:
        """Return the records of the finished run; see :func:`fedvine.results.view.records`."""
        line = self._found
        return listed({k: line[k] for k in ("method", "data", "seed")}, line["summary"])

    def log(self, name: str) -> Any:
        """Return the part ``name`` of the run's logs (:func:`logs_of`), None if it is not there."""
        return self._found["logs"].get(name)

    def measured(self, name: str, measure: Callable[[Job], Any]) -> Any:
        """Return ``measure(self)``, computed from the data once and then kept under ``name``.

        Raises :class:`FedvineError` where it is not kept and the data are not available.
        """
        line = self.line
        if line is not None and name in line.get("measured", {}):
            return line["measured"][name]
        found = rounded(measure(self))
        if line is not None and self.kept is not None and self.content is not None:
            more = line.get("measured", {}) | {name: found}
            self.kept.keep(self.identity, {**line, "measured": more})
        return found


def cells(experiments: Iterable[Experiment], folder: str | Path = FOLDER) -> list[Job]:
    """Return the cells of these experiments, in their order; their runs go below ``folder``.

    The data of each experiment are opened; those that its task refuses count as not available.
    Lines of cells are in :func:`kept_beside` of ``folder``. The name of a run folder has method,
    data, seed, and 12 digits of everything that scores depend on: settings, revisions, the edges
    themselves and fedvine's version. Raises :class:`FedvineError` where data are not available and
    no cell is finished.
    """
    opened, stores = _opened.get() or ({}, {})
    made, missing = [], []
    for experiment in experiments:
        experiment = experiment.model_copy(update={"final": False})     # scores do not need it
        beside = kept_beside(folder, own=experiment.data.dataset is None and not Path(
            experiment.data.source).is_relative_to(cache_folder()))     # as halves of a data set
        store = stores.setdefault(beside, Kept(beside))
        task = experiment.protocol
        data = experiment.data.model_dump_json(), type(task).__name__
        if data not in opened:
            try:
                stream = experiment.data.open()
                if why := task.refuses(stream):
                    raise FedvineError(why)
                opened[data] = stream.name, len(stream), digest(stream) + names(stream)
            except FedvineError as error:
                opened[data] = error
        facts = opened[data]
        if isinstance(facts, FedvineError):
            line = store.find(Identity(experiment))
            name, edges = ((line["data"], line["edges"]) if line else (experiment.data.name, 0))
            made.append(Job(experiment, Path(folder) / "none", name, edges, None, store,
                            str(facts)))
            missing.append(facts)
            continue
        name, edges, content = facts
        method = experiment.method.name
        all_of_it = [experiment.model_copy(update={"seed": 0}).plain(), content,
                     fedvine.__version__, Identity(experiment).revision]
        key = hashlib.sha256(json.dumps(all_of_it, sort_keys=True).encode()).hexdigest()[:12]
        short = re.sub(r"[^\w.-]+", "_", f"{method}-{name}-{key}-s{experiment.seed}")
        made.append(Job(experiment, Path(folder) / short, name, edges, content, store))
    if missing and not any(cell.finished for cell in made):
        raise missing[0]
    return made


@contextmanager
def opened_once() -> Iterator[None]:
    """Open the same data, and the kept cells, once for all calls of :func:`cells` in the block.

    So what is kept of one call's cells is seen by those of the others.
    """
    token = _opened.set(({}, {}))
    try:
        yield
    finally:
        _opened.reset(token)


def kept_beside(folder: str | Path, own: bool = False) -> Path:
    """Return the folder with the kept lines of cells whose runs go below ``folder``.

    It is ``docs/results/cells`` of a checkout for the default folder, else ``kept`` below
    ``folder``; for somebody's ``own`` table, whose clients' names are nobody else's, always that.
    """
    usual = not own and Path(folder) == Path(FOLDER) and Path(KEPT).is_dir()
    return Path(KEPT) if usual else Path(folder) / "kept"


def without_folders(text: str) -> str:
    """Return the text with the last part alone of each absolute path: no path of a machine."""
    return re.sub(r"(?<![\w.:/])/(?:[^\s/\"',;]+/)+", "", text)


def rounded(value: Any) -> Any:
    """Return the value with :data:`DIGITS` significant digits in every number that is not whole."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {str(k): rounded(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(v) for v in value]
    return value.item() if hasattr(value, "item") else value


def logs_of(folder: Path) -> dict[str, Any]:
    """Return a finished run's ``curves``, ``accuracies``, ``forgetting`` and ``exchanges``."""
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
    sends down the shared model, or nothing, which is not counted. Lines that were summed have no
    order any more and are left out.
    """
    found: list[dict[str, Any]] = []
    spoken: list[list[dict[str, Any]]] = [[]]
    for line in (line for line in lines if "calls" not in line):
        if line["function"] in (*SENDS, "hold", "offer", "take"):
            spoken[-1].append(line)
            if line["function"] in ("hold", "take"):
                spoken.append([])
            continue
        for one in spoken[:-1] if line["function"] in ("train", "trained") else []:
            found.append({"t": line["t"], "r": line["r"], "calls": len(one), **{
                key: sum(s[key] for s in one) for key in ("seconds", "down", "up")}})
            found[-1]["down"] -= one[0]["down"] if one[0]["function"] in SENDS else 0
        spoken = [[]]
    return found


def total(found: list[dict[str, Any]]) -> dict[str, float]:
    """Return the number of exchanges and the sums of calls, seconds and bytes; empty for none."""
    sums = {key: sum(one[key] for one in found) for key in ("calls", "seconds", "down", "up")}
    return {"exchanges": len(found), **sums} if found else {}
