"""A run folder that is looked at again and again, and read as it grows."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedvine.core.errors import FedvineError
from fedvine.data.graph import Graph
from fedvine.experiments.run_files import Tail, read_experiment, read_summary
from fedvine.experiments.summary import Calls
from fedvine.living.rows import StoredRows
from fedvine.results.view import RunView, groups, kept_in, plain

_FILES = ("experiment.toml", "summary.json", "clients.json", "data/rows.json")


class Watched:
    """The folder of a run as it is so far; :meth:`look` reads what changed.

    - ``version``: a number that grows whenever something changed
    - ``error``: why the folder cannot be shown; empty where it can
    - ``run``: the view of it, None where it cannot be shown
    - ``wrote``: when the run wrote last, in seconds since 1970
    """

    def __init__(self, folder: str | os.PathLike[str], number: int = 0) -> None:
        self.folder, self.number, self.version = Path(folder), number, 0
        self.lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self.error, self.wrote, self._seen = "", 0.0, None
        self.run: RunView | None = None
        self._now: RunView | None = None        # as it is read; ``run`` once all is
        self._metrics = Tail(self.folder, "metrics.jsonl")
        self._messages = Tail(self.folder, "messages.jsonl")
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
        if self._now is None or experiment != self._now.experiment:
            self._begin()
            self._now = RunView(self.folder, experiment, {}, [])
        run = self._now
        lines, anew = self._metrics.more()
        run.lines = lines if anew else [*run.lines, *lines]
        calls, anew = self._messages.more()
        if anew:
            run.calls = Calls()
        run.calls.add(calls)
        self._read_kept(run)
        run.summary = read_summary(self.folder, run.stages) or {}
        run.stages = run.stages or len(run.task.plan_of(experiment["stages"]))
        for name, count in (run.summary.get("sizes") or {}).items():
            run.sizes.setdefault(str(name), [int(count)])
        run.moved = self._moved()
        self.run, self.wrote = run, max((its[2] for its in self._signs()), default=0) / 1e9

    def _moved(self) -> dict[str, dict[str, float]]:
        """Return ``clients.json``, empty where the run did not write it."""
        try:
            found = json.loads((self.folder / "clients.json").read_text("utf-8"))
        except FileNotFoundError:
            return {}
        return {str(name): {key: float(its[key]) for key in ("down", "up", "seconds")}
                for name, its in found.items()}

    def _read_kept(self, run: RunView) -> None:
        """Read the plan and the sizes of the parts, of what the folder keeps of the data."""
        now = [sign for sign in self._signs() if sign[0].startswith("data/")]
        if not now or now == self._kept:
            return
        split, plan = (rows := StoredRows.open(self.folder / "data")).split, rows.plan
        run.stages, run.living, run.kept = len(plan), bool(plan.living), kept_in(self.folder)
        run.classes = getattr(split.stream, "classes", ())
        for name, part in split.parts.items():
            ends = ([part.edges.shape[1]] if isinstance(part, Graph) else
                    [part.num_src, part.num_dst] if part.bipartite else [part.num_src])
            run.sizes[name] = [len(part), *ends]
        if getattr(split.stream, "dates", False):
            run.times = [float(bound) for bound in getattr(plan, "bounds", ())]
        self._kept = now

    # -- for JSON ----------------------------------------------------------------------------------
    def row(self) -> dict[str, Any]:
        """Return the run's row in the list of runs."""
        return {**self._about(), **({"state": "error"} if self.run is None else
                                    plain(self.run.row()))}

    def detail(self) -> dict[str, Any]:
        """Return all about the run."""
        return self.row() if self.run is None else {**self._about(), **self.run.dump()}

    def _about(self) -> dict[str, Any]:
        return {"id": self.number, "version": self.version, "wrote": self.wrote, **plain({
            "error": self.error, "folder": self.folder.name or str(self.folder),
            "path": str(self.folder)})}


def compared(every: Sequence[Watched]) -> dict[str, Any]:
    """Return the runs side by side, in groups whose task, protocol and stages are the same."""
    number = {id(seen.run): seen.number for seen in every}
    found, remarks = groups([seen.run for seen in every if seen.run is not None])
    made = []
    for group in found:
        ids = {name: number[id(run)] for name, run in zip(group.names, group.runs, strict=True)}
        plots = []
        for lines in group.plots():
            longest = max(group.runs, key=lambda run: len(run.bounds))
            values = plain(lines, longest.bounds, longest.zone)
            for series, (name, _, _) in zip(values["series"], lines.series, strict=False):
                series["run"] = ids[name]
            plots.append(values)
        made.append({"heading": plain(group.heading), "runs": list(ids.values()), "plots": plots})
    return {"groups": made, "remarks": plain(remarks)}
