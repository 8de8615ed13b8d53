"""A run folder that is looked at again and again, and read as it grows."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedvine.core.errors import FedvineError
from fedvine.data.graph import Graph
from fedvine.experiments.run_files import Tail, read_experiment, read_summary
from fedvine.living.rows import Rows
from fedvine.results.finished import Finished
from fedvine.tasks.shown import Lines

# -- the calls of a run, summed as their lines come: by round and by client ------------------------
POINTS = 400        # of a plot


class Calls:
    """Sums over the lines of ``messages.jsonl``.

    - ``rounds``: bytes down and up and seconds by (stage, round); of stages whose calls the log has
      summed up, by (stage, None)
    - ``missed``: number of calls that a client did not answer, or answered wrongly, by name
    - ``refused``: the last reason why a client's answer was refused, by name
    """

    def __init__(self) -> None:
        self.rounds: dict[tuple[int, int | None], list[float]] = {}
        self.missed: dict[str, int] = {}
        self.refused: dict[str, str] = {}

    def add(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Add lines, of calls or summed before."""
        for line in lines:
            sums = self.rounds.setdefault((int(line["t"]), line.get("r")), [0, 0, 0.0])
            for i, key in enumerate(("down", "up", "seconds")):
                sums[i] += float(line[key])
            for name in (missing := line.get("missing") or []):
                self.missed[name] = self.missed.get(name, 0) + (
                    missing[name] if isinstance(missing, Mapping) else 1)
            for name, why in (line.get("refused") or {}).items():
                if isinstance(why, str):
                    self.refused[name] = why

    @property
    def place(self) -> tuple[int, int | None] | None:
        """Return the newest stage and round; None before the first call."""
        return max(self.rounds, key=_order, default=None)

    @property
    def total(self) -> tuple[float, float]:
        """Return the bytes to clients and from them."""
        return (sum(its[0] for its in self.rounds.values()),
                sum(its[1] for its in self.rounds.values()))

    def plots(self) -> list[Lines]:
        """Return the bytes so far and the seconds of each round; x counts stages from 1.

        Where there are many rounds, some points are left out of the first plot, and in the second
        one a point is the slowest of several rounds.
        """
        places = sorted(self.rounds, key=_order)
        most = max((r for _, r in places if r is not None), default=0)
        x = [t + 1 + (1.0 if r is None else r / (most + 1)) for t, r in places]
        down, up, seconds = ([self.rounds[place][i] for place in places] for i in range(3))
        step = -(-len(x) // POINTS) or 1
        blocks = [slice(i, i + step) for i in range(0, len(x), step)]
        ends = [x[block][-1] for block in blocks]
        made = [Lines("megabytes so far", "stage", [
            (name, ends, [1e-6 * total for total in _ends(values, step)])
            for name, values in (("to clients", down), ("from clients", up))], stages=True)]
        slow = [(end, worst) for end, block in zip(ends, blocks, strict=True) if (worst := max(
            (seconds[i] for i in range(len(x))[block] if places[i][1]), default=None)) is not None]
        if slow:
            made.append(Lines("seconds of calls a round", "stage", [
                ("a round", [at for at, _ in slow], [worst for _, worst in slow])], stages=True))
        return made if x else []


def _order(place: tuple[int, int | None]) -> tuple[int, int]:
    """Return a key that puts a summed stage before the rounds of the same one."""
    return place[0], -1 if place[1] is None else place[1]


def _ends(values: list[float], step: int) -> list[float]:
    """Return the running sums after each block of ``step`` values."""
    found, total = [], 0.0
    for i in range(0, len(values), step):
        total += sum(values[i:i + step])
        found.append(total)
    return found


_FILES = ("experiment.toml", "summary.json", "clients.json", "data/rows.json")


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
        self._read_kept()
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

    def _read_kept(self) -> None:
        """Read the plan and the sizes of the parts, of what the folder keeps of the data."""
        now = [sign for sign in self._signs() if sign[0].startswith("data/")]
        if not now or now == self._kept:
            return
        rows = Rows.open(self.folder / "data")
        split, plan = rows.split, rows.plan
        self.stages, self.living = len(plan), bool(plan.living)
        self.classes = getattr(split.stream, "classes", ())
        for name, part in split.parts.items():
            ends = ([part.edges.shape[1]] if isinstance(part, Graph) else
                    [part.num_src, part.num_dst] if part.bipartite else [part.num_src])
            self.sizes[name] = [len(part), *ends]
        if getattr(split.stream, "dates", False):
            self.dates = [float(bound) for bound in getattr(plan, "bounds", ())]
        self._kept = now
