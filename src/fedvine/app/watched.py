"""A run folder that is looked at again and again, and read as it grows."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

from fedvine.app.calls import Calls
from fedvine.core.errors import FedvineError
from fedvine.data.graph import Graph
from fedvine.experiments.reopened import kept
from fedvine.experiments.run_files import Tail, read_experiment, read_summary
from fedvine.results.finished import Finished

_FILES = ("experiment.toml", "summary.json", "clients.json", "data/rows.json", "data/kept.json",
          "data/split.json")


class Watched:
    """The folder of a run as it is so far; :meth:`look` reads what changed.

    - ``version``: a number that grows whenever something changed
    - ``error``: why the folder cannot be shown; empty where it can
    - ``run``: experiment, task and lines; its ``summary`` is empty until the run is finished
    - ``calls``: the sums of its calls
    - ``moved``: bytes and seconds by client at the newest save, empty before it
    - ``sizes``: by client the number of edges (or nodes), of users and of items (or of edges)
    - ``stages``: number of stages of the plan so far
    - ``classes``: names of the classes of a labelled graph, where the folder keeps it
    - ``wrote``: when the run wrote last, in seconds since 1970
    """

    def __init__(self, folder: str | os.PathLike[str], number: int = 0) -> None:
        self.folder, self.number, self.version = Path(folder), number, 0
        self.lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self.error, self.wrote, self._seen = "", 0.0, None
        self.run: Finished | None = None
        self.calls, self._lines = Calls(), list[dict[str, Any]]()
        self._metrics = Tail(self.folder, "metrics.jsonl")
        self._messages = Tail(self.folder, "messages.jsonl")
        self.moved: dict[str, dict[str, float]] = {}
        self.sizes: dict[str, list[int]] = {}
        self.stages, self.living, self.dates = 0, False, list[float]()
        self.classes: tuple[str, ...] = ()
        self._kept: Any = None

    def look(self) -> None:
        """Read what changed since the last look; what cannot be read is said in ``error``."""
        with self.lock:
            now = self._signs()
            if now == self._seen:
                return
            try:
                self._read()
                self.error = ""
            except OSError as error:        # a file that was replaced; the next look finds it
                self.error = "" if self.run else f"{self.folder} cannot be read ({error.strerror})."
                return
            except FedvineError as error:
                self._begin()
                self.error = str(error)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
                self._begin()
                self.error = (f"{self.folder} holds what no run has written "
                              f"({type(error).__name__}: {error}); it cannot be shown.")
            self._seen = now
            self.version += 1

    def _signs(self) -> list[tuple[str, int, int]]:
        """Return name, size and time of change of the files that are read."""
        found = []
        logs = [p.name for p in self.folder.glob("m*.jsonl")]
        for name in (*_FILES, *sorted(logs)):
            try:
                its = os.lstat(self.folder / name)
            except OSError:
                continue
            found.append((name, its.st_size, its.st_mtime_ns))
        return found

    def _read(self) -> None:
        experiment = read_experiment(self.folder)
        if self.run is not None and experiment != self.run.experiment:
            self._begin()
        lines, anew = self._metrics.more()
        self._lines = lines if anew else [*self._lines, *lines]
        calls, anew = self._messages.more()
        if anew:
            self.calls = Calls()
        self.calls.add(calls)
        self._read_kept(experiment)
        summary = read_summary(self.folder, self.stages) or {}
        self.run = Finished(self.folder, experiment, summary)
        self.run.__dict__["lines"] = self._lines
        if not self.stages:
            self.stages = len(self.run.task.plan_of(experiment["stages"]))
        if summary:
            self.dates = self.run.bounds or self.dates
            for name, count in (summary.get("sizes") or {}).items():
                self.sizes.setdefault(str(name), [int(count)])
        self.moved = self._read_moved()
        self.wrote = max((its[2] for its in self._signs()), default=0) / 1e9

    def _read_moved(self) -> dict[str, dict[str, float]]:
        """Return ``clients.json``, empty where the run did not write it."""
        try:
            found = json.loads((self.folder / "clients.json").read_text("utf-8"))
        except FileNotFoundError:
            return {}
        return {str(name): {key: float(its[key]) for key in ("down", "up", "seconds")}
                for name, its in found.items()}

    def _read_kept(self, experiment: dict[str, Any]) -> None:
        """Read the plan and the sizes of the parts, of what the folder keeps of the data."""
        now = [sign for sign in self._signs() if sign[0].startswith("data/")]
        if not now or now == self._kept:
            return
        split, plan = kept(self.folder / "data", experiment["stages"])
        self.stages, self.living = len(plan), bool(plan.living)
        self.classes = getattr(split.stream, "classes", ())
        for name, part in split.parts.items():
            ends = ([part.edges.shape[1]] if isinstance(part, Graph) else
                    [part.num_src, part.num_dst] if part.bipartite else [part.num_src])
            self.sizes[name] = [len(part), *ends]
        if getattr(split.stream, "dates", False):
            self.dates = [float(bound) for bound in getattr(plan, "bounds", ())]
        self._kept = now
