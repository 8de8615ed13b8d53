"""Cells of a table: one experiment with one seed each, of which no run is made twice.

What a finished cell measured is a line in a folder of kept cells (:mod:`fedvine.results.kept`);
only what has none is run (:mod:`fedvine.results.fill`), in a run folder of its own.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import fedvine
from fedvine.core.errors import FedvineError
from fedvine.data.spec import digest, names
from fedvine.experiments import run_folder
from fedvine.experiments.experiment import Experiment
from fedvine.results import cell_logs
from fedvine.results.kept import FOLDER as KEPT
from fedvine.results.kept import Identity, Kept, Line
from fedvine.results.records import listed

FOLDER = "runs/cells"
DIGITS = 7          # significant ones of a kept number
_opened: ContextVar[dict[str, tuple[str, int, str] | FedvineError] | None] = ContextVar(
    "_opened", default=None)


@dataclass(frozen=True)
class Job:
    """One experiment with its run folder; ``data`` and ``edges`` are its stream's.

    ``content`` is the digest of the data, None where they are not at hand; ``absent`` says then
    why. Such a cell can be read if it is kept, and not be run.
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
        """What the cell's scores depend on."""
        return Identity(self.experiment, self.content)

    @property
    def line(self) -> Line | None:
        """What is kept of the cell, None if it is not."""
        return self.kept.find(self.identity) if self.kept is not None else None

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do."""
        return self.line is not None or (self.folder / "summary.json").exists()

    def keep(self, **other: Any) -> None:
        """Write the line of a cell whose run has just finished, if it has none; ``other`` values
        take the place of the summary's."""
        if self.kept is not None and self.content is not None and self.line is None:
            self.kept.keep(self.identity, self._written(other))

    def _written(self, other: dict[str, Any]) -> Line:
        summary = run_folder.read_summary(self.folder)
        if summary is None:
            raise FedvineError(f"The run in {self.folder} is not finished; give its command "
                               "again, it goes on.")
        scores = {"test": {k: summary["scores"]["test"][k] for k in ("mean", "client")},
                  "val": {"mean": summary["scores"].get("val", {}).get("mean", {})}}
        short = {k: v for k, v in summary.items() if k != "by"} | {"scores": scores} | other
        return {"method": self.experiment.method.name, "data": self.data, "edges": self.edges,
                "seed": self.experiment.seed, "content": self.content,
                "revision": self.identity.revision, "fedvine": fedvine.__version__,
                "made": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "settings": self.identity.settings, "summary": rounded(short),
                "logs": rounded(cell_logs.of(self.folder))}

    @property
    def _found(self) -> Line:
        """The line, also where it is not kept."""
        return self.line or self._written({})

    @property
    def summary(self) -> dict[str, Any]:
        """What the finished run ended with: scores, costs, what the method reports."""
        return self._found["summary"]

    def records(self) -> list[dict[str, Any]]:
        """What the finished run measured; see :func:`fedvine.results.records.records`."""
        line = self._found
        return listed({k: line[k] for k in ("method", "data", "seed")}, line["summary"])

    def log(self, name: str) -> Any:
        """What is kept of the run's logs under this name, see :mod:`fedvine.results.cell_logs`;
        None where the run has nothing of it."""
        return self._found["logs"].get(name)

    def measured(self, name: str, measure: Callable[[Job], Any]) -> Any:
        """What ``measure`` finds out from the data once, and the line keeps under this name.

        Raises :class:`FedvineError` where it is not kept and the data are not at hand.
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
    """The cells of these experiments; runs go below ``folder``, lines :func:`kept_beside` it.

    The data of each is opened. Where they cannot be had, cells that are kept are as good as any;
    without one among them the error is raised.

    A run folder's name tells method, data, seed, and 12 digits of everything that scores depend
    on: settings, revisions, the edges themselves and fedvine's version.
    """
    opened = _opened.get()
    opened = {} if opened is None else opened
    store, made, missing = Kept(kept_beside(folder)), [], []
    for experiment in experiments:
        data = experiment.data.model_dump_json()
        if data not in opened:
            try:
                stream = experiment.data.open()
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
    """While this lasts :func:`cells` opens the same data once, not each time."""
    token = _opened.set({})
    try:
        yield
    finally:
        _opened.reset(token)


def kept_beside(folder: str | Path) -> Path:
    """Where the lines of cells are whose runs go below ``folder``: in ``docs/results/cells`` of a
    checkout for the usual one, else in ``kept`` below it."""
    usual = Path(folder) == Path(FOLDER) and Path(KEPT).is_dir()
    return Path(KEPT) if usual else Path(folder) / "kept"


def rounded(value: Any) -> Any:
    """The same with :data:`DIGITS` significant digits in every number that is not whole."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {str(k): rounded(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(v) for v in value]
    return value.item() if hasattr(value, "item") else value
