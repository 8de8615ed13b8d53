"""The scores of a run in its log, and the summary at its end."""

from __future__ import annotations

import contextlib
import ctypes
import re
import resource
import statistics
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedvine.core.clients import Clients
from fedvine.core.ledger import Ledger, epsilon
from fedvine.core.method import At
from fedvine.core.state import Memory
from fedvine.data.dates import stage_names
from fedvine.experiments.prepare import Prepared, StageScores
from fedvine.experiments.run_files import read_lines
from fedvine.tasks.drift import drift
from fedvine.tasks.shown import Lines
from fedvine.tasks.task import REPLICATES, Task

# -- costs of a run: seconds of rounds, calls and clients, and bytes, continued after a stop -------
KEPT = 4096     # rounds whose seconds are kept one by one
_MOVED = ("down", "up", "seconds")


class Costs:
    """The costs of a run, which the loop updates.

    :meth:`begin` is called before an arrival or a round, :meth:`round_done` after it,
    :meth:`count` for the log of calls. The rounds of a stage share the seconds of its arrival
    equally; those of scores and saves count only in the total. Of a run of many rounds the seconds
    of the last ones are kept, at least :data:`KEPT`, and their median is that of the run; of
    earlier rounds there are sums.
    """

    def __init__(self) -> None:
        self.earlier = 0.0                      # seconds of the run before it was stopped
        self.earlier_cpu = 0.0                  # and of the processor, of all threads
        self.rounds: list[float] = []           # seconds of each round
        self.client: list[float] = []           # of one client, by round
        self.calls: list[float] = []            # of all calls, by round
        self.before = [0, 0.0, 0.0, 0.0]        # rounds before these, and the sums of the three
        self.own: dict[str, float] | None = {}  # of rounds, by client; None: not known
        # Of this stage's arrival: its seconds, of one client, of all calls; and by client.
        self.arrival: tuple[list[float], dict[str, float]] = [0.0, 0.0, 0.0], {}
        self.bytes: dict[str, Any] = {"down": 0, "up": 0, "calls": 0, "by": {}}
        self._started = self._began = time.perf_counter()
        self._started_cpu = time.process_time()
        self._before: dict[str, float] = {}     # seconds of each client before the round
        self._earlier: dict[str, dict[str, float]] = {}     # by client, of the run when it stopped
        self._since: dict[str, dict[str, float]] | None = None  # ... of the process, before the run

    def begin(self, clients: Clients) -> None:
        """Start the clock of an arrival or a round."""
        self._began = time.perf_counter()
        if self._since is None:
            self._since = _moved(clients)
        self._before = {name: its["seconds"] for name, its in clients.traffic.items()}

    def round_done(self, at: At, clients: Clients) -> None:
        """Add the costs of the round ``at``, and its share of those of the stage's arrival."""
        calls = [c for c in clients.log if (c["t"], c["r"]) == (at.t, at.r)]
        spent = [time.perf_counter() - self._began,
                 sum(c["seconds"] / max(c["clients"], 1) for c in calls),
                 sum(c["seconds"] for c in calls)]
        own = {name: its["seconds"] - self._before.get(name, 0.0)
               for name, its in clients.traffic.items()}
        if at.r == 0:
            self.arrival = spent, own
            return
        for column, mine, shared in zip((self.rounds, self.client, self.calls), spent,
                                        self.arrival[0], strict=True):
            column.append(mine + shared / at.R)
        self._shorten()
        if self.own is not None:
            self.own = {name: self.own.get(name, 0.0) + mine
                        + self.arrival[1].get(name, 0.0) / at.R for name, mine in own.items()}

    def _shorten(self) -> None:
        if len(self.rounds) >= 2 * KEPT:
            self.before[0] += KEPT
            for i, column in enumerate((self.rounds, self.client, self.calls), 1):
                self.before[i] += sum(column[:KEPT])
                del column[:KEPT]

    def count(self, log: Iterable[dict[str, Any]]) -> None:
        """Add bytes and seconds of these calls, in all and by client function."""
        for call in log:
            self.bytes["down"] += call["down"]
            self.bytes["up"] += call["up"]
            self.bytes["calls"] += 1
            by = self.bytes["by"].setdefault(call["function"], dict.fromkeys(
                ("calls", "down", "up", "seconds"), 0))
            for key, more in (("calls", 1), *((k, call[k]) for k in ("down", "up", "seconds"))):
                by[key] += more

    def by_client(self, clients: Clients) -> dict[str, dict[str, float]]:
        """Return bytes ``down`` and ``up`` and ``seconds`` of all calls so far, by client.

        Where the clients are real machines, seconds are those until the answer came.
        """
        found = {name: dict(its) for name, its in self._earlier.items()}
        for name, its in _moved(clients).items():
            before = (self._since or {}).get(name, {})
            mine = found.setdefault(name, dict.fromkeys(_MOVED, 0))
            for key in _MOVED:
                mine[key] += its[key] - before.get(key, 0)
        return dict(sorted(found.items()))

    @property
    def seconds(self) -> float:
        """Return the seconds of the run so far, without those between a stop and the next start."""
        return self.earlier + time.perf_counter() - self._started

    @property
    def seconds_cpu(self) -> float:
        """Return the CPU seconds that this process spent on the run so far, in all threads."""
        return self.earlier_cpu + time.process_time() - self._started_cpu

    def dump(self) -> dict[str, Any]:
        """Return the costs for a save, except :attr:`seconds`, which the save has itself."""
        return {"own": self.own, "arrival": self.arrival, "bytes": self.bytes,
                "cpu": self.seconds_cpu, "before": self.before,
                "rounds": [self.rounds, self.client, self.calls]}

    def load(self, state: dict[str, Any], seconds: float) -> None:
        """Continue from the costs of a save."""
        self.earlier, self.bytes = seconds, state["bytes"]
        self.rounds, self.client, self.calls = state["rounds"]
        self.before = list(state["before"])
        self.own = state["own"]
        self.arrival = tuple(state["arrival"])
        self._earlier = state.get("by_client", {})
        self.earlier_cpu = state["cpu"]

    def summary(self) -> dict[str, Any]:
        """Return the costs as keys of a run's summary."""
        rounds = self.before[0] + len(self.rounds)
        whole, client, calls = (before + sum(column) for before, column in zip(
            self.before[1:], (self.rounds, self.client, self.calls), strict=True))
        found: dict[str, Any] = {
            "seconds_total": self.seconds, "seconds_cpu": self.seconds_cpu,
            "seconds_round": statistics.median(self.rounds) if self.rounds else 0.0,
            "seconds_client": client / rounds if rounds else 0.0,
            "seconds_server": (whole - calls) / rounds if rounds else 0.0,
            "peak_memory_bytes": peak_memory(),
            "bytes_down": self.bytes["down"], "bytes_up": self.bytes["up"],
            "calls": self.bytes["calls"], "by": self.bytes["by"]}
        if rounds and self.own:
            found["seconds_by_client"] = {n: s / rounds for n, s in self.own.items()}
        return found


def _moved(clients: Clients) -> dict[str, dict[str, float]]:
    """Return bytes and seconds of this process so far, by client."""
    return {name: {key: its[key] for key in _MOVED} for name, its in clients.traffic.items()}


def lines(stage: StageScores, protocol: Task, plan: Any) -> list[dict[str, Any]]:
    """Return the lines of ``metrics.jsonl`` for the scores of a stage."""
    return [{"t": stage.t, "stage": s, "period": protocol.period(plan, stage.t, s),
             "client": name, **result}
            for s, by in stage.found.items() for name, result in by.items()]


def logged(folder: Path) -> list[StageScores]:
    """Return the scores of the stages in a run folder's ``metrics.jsonl``, by stage."""
    found: dict[int, dict[int, dict[str, Any]]] = {}
    for line in read_lines(folder, "metrics.jsonl"):
        found.setdefault(line["t"], {}).setdefault(line["stage"], {})[line["client"]] = {
            key: line[key] for key in ("n", "scores", "classes", "classes_val", "parts", "drift",
                                       REPLICATES) if key in line}
    return [StageScores(t, by) for t, by in sorted(found.items())]


def summary(ready: Prepared, server: Memory, stages: list[StageScores], costs: Costs,
            ledgers: Iterable[Ledger] = ()) -> dict[str, Any]:
    """Return ``summary.json`` of a run that has ended: scores, costs, sizes and the report.

    ``ledgers`` are the clients', of all their releases with noise.
    """
    method, plan = ready.method, ready.plan
    found = {"scores": ready.protocol.summary(stages, plan), "stages": len(plan),
             **costs.summary(), "sizes": {name: len(part) for name, part in ready.parts.items()}}
    if names := ready.class_names:
        found["classes"] = list(names)
    if replicates := ready.protocol.replicates_of(stages, plan):
        found[REPLICATES] = replicates
    if ready.dates:
        found |= {"dates": ready.dates, "bounds": list(getattr(plan, "bounds", ()))}
    bounds: Any = getattr(plan, "bounds", ())
    if len(bounds) and not found["scores"]["test"]["client"]:
        found["unscored"] = {"step": ready.step, "times": [bounds[0], bounds[-1]]}
    log = [line for stage in stages for line in lines(stage, ready.protocol, plan)]
    if any("drift" in line for line in log):
        shown = ready.protocol.shown
        found["drift"] = drift(log, shown.compared, shown.scores, method.name,
                               stage_names(found.get("bounds"), ready.dates))
    if ready.notes:
        found["notes"] = list(ready.notes)
    if ready.self_loops is not None:
        found["self_loops_left_out"] = ready.self_loops
    stated = method.privacy(sum(map(method.rounds_at, range(len(plan)))))
    for ledger in ledgers if stated else ():    # also what was learned again, after a way back
        more = epsilon(ledger.spent(), stated["delta"])
        if more > stated["epsilon"]:
            stated |= {"epsilon": more, "uploads": ledger.summary()["releases"]}
    found |= {"privacy": stated} if stated else {}
    report = method.report(server)
    return found | ({"report": report} if report else {})


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


# -- memory of the process -------------------------------------------------------------------------
# glibc returns every large block to the system at once, and a block that is allocated afresh costs
# a page fault for every page: ten times the time of filling it. With kept blocks the memory of the
# process stays at its highest value.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3     # of malloc.h
MOST = 2**31 - 1


def keep_large_blocks() -> bool:
    """Keep freed blocks up to 2 GB in this process from now on; return whether the system can.

    For a process that computes and ends; ``fedvine run`` and the benchmarks call it.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):        # no glibc
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, MOST)) and bool(mallopt(M_TRIM_THRESHOLD, MOST))


def peak_memory() -> int:
    """Return the highest resident memory of this process so far, in bytes.

    The system's ``ru_maxrss`` includes the process that this one was forked from, so it is only
    used where ``/proc`` does not exist.
    """
    with contextlib.suppress(OSError):
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        if found:
            return int(found[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
