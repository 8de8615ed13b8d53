"""Progress of a run for a person: a live table on a terminal, or a line a stage."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fedvine.core.clients import Clients
from fedvine.core.compiling import Compiling
from fedvine.core.method import At
from fedvine.core.units import clock, size
from fedvine.experiments.run import Run, StageScores

SHOWN = ("auc_new", "mrr_new", "auc", "mrr", "accuracy", "accuracy_val")


def follow(run: Run, console: Console) -> Run:
    """Run to the end and show the progress; return at once for a finished run."""
    if run.summary is not None:
        return run
    shown = Progress(run)
    before = run.on_round

    def on_round(at: At, clients: Clients) -> None:
        before(at, clients)
        shown.round_done(at, clients)

    def on_final(at: At, clients: Clients) -> None:
        if not shown.final and not console.is_terminal:
            console.print("fitting once more on all labelled nodes", highlight=False)
        shown.final, shown.at = True, at

    run.on_round, run.on_final = on_round, on_final
    with shown.compiling.watch(), (
            Live(shown, console=console, refresh_per_second=2) if console.is_terminal else
            contextlib.nullcontext()):
        for stage in run:
            shown.scored(stage)
            if not console.is_terminal:
                beside = getattr(console.file, "beside", None)      # a log for machines
                if beside:
                    beside(**shown.numbers(stage))
                console.print(shown.line(stage), soft_wrap=True, highlight=False)
    return run


class Progress:
    """Position of the run, remaining time, and the last scores of each client."""

    def __init__(self, run: Run) -> None:
        self.run, self.began, self.moved = run, time.perf_counter(), 0
        self.final = False                     # whether all labelled nodes are learned now
        self.at = At(0, 0, run.method.rounds_at(0))
        self.last: StageScores | None = None
        self.compiling = Compiling()
        self._before = [0]                     # rounds, arrivals and scorings before each stage
        for t in range(len(run.plan)):
            self._before.append(self._before[-1] + run.method.rounds_at(t) + 2)
        self._first: tuple[int, float] | None = None

    def round_done(self, at: At, clients: Clients) -> None:
        """Record that a round was carried out (``on_round`` of :func:`fedvine.run`)."""
        self._advance(at)
        self.moved += sum(c["down"] + c["up"] for c in clients.log
                          if (c["t"], c["r"]) == (at.t, at.r))

    def scored(self, stage: StageScores) -> None:
        """Record that a stage was scored."""
        R = self.run.method.rounds_at(stage.t)
        self._advance(At(stage.t, R + 1, R))
        if stage.scores:
            self.last = stage

    def _advance(self, at: At) -> None:
        self.at = at
        if self._first is None:
            self._first = self._place(), time.perf_counter()

    def _place(self) -> int:
        return self._before[self.at.t] + self.at.r + 1

    def left(self) -> float | None:
        """Return the seconds left at the speed so far; None at the start."""
        if self._first is None or self._place() == self._first[0]:
            return None
        done, seconds = self._place() - self._first[0], time.perf_counter() - self._first[1]
        return seconds / done * (self._before[-1] - self._place())

    def position(self) -> str:
        """Return stage, round, bytes and times in one line."""
        t, r, R = self.at
        left = None if self.final else self.left()
        return ("once more on all labelled nodes: " * self.final
                + f"stage {t + 1}/{len(self.run.plan)}  "
                + (f"round {min(r, R)}/{R}  " if R else "")
                + f"moved {size(self.moved)}  {clock(time.perf_counter() - self.began)} gone"
                + ("" if left is None else f", about {clock(left)} left")
                + (", compiling loops, once on this machine" if self.compiling.now else ""))

    def numbers(self, stage: StageScores) -> dict[str, Any]:
        """Return stage, stages, bytes and seconds so far, and the means of the newest scores."""
        means = {key: sum(have) / len(have) for key in _keys(stage)
                 if (have := [s[key] for s in stage.scores.values() if key in s])}
        return {"stage": self.at.t + 1, "stages": len(self.run.plan), "bytes": self.moved,
                "seconds": round(time.perf_counter() - self.began, 3), "scores": means}

    def line(self, stage: StageScores) -> str:
        """Return the position and the means over the clients' newest scores, in one line."""
        return "  ".join([self.position(), *(f"{key} {mean:.3f}" for key, mean
                                             in self.numbers(stage)["scores"].items())])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.position())
        if self.last is not None:
            keys = _keys(self.last)
            table = Table(box=None)
            table.add_column(f"scores of stage {max(self.last.found) + 1}")
            for key in keys:
                table.add_column(key, justify="right")
            for client, scores in self.last.scores.items():
                table.add_row(client, *(f"{scores[k]:.3f}" if k in scores else "-" for k in keys))
            yield table


def _keys(stage: StageScores) -> list[str]:
    """Return the scores to show: those of links, else the first four."""
    known = list(dict.fromkeys(key for scores in stage.scores.values() for key in scores))
    return [key for key in SHOWN if key in known] or known[:4]
