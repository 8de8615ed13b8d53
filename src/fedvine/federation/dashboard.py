"""The operator's view of a federation: the run's place, each client's state, the last scores."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from fedvine.core.units import clock, seconds, size
from fedvine.data.dates import moment
from fedvine.experiments.progress import SHOWN


class Dashboard:
    """A display of the states that :class:`fedvine.federation.supervisor.Supervisor` reads.

    It is live on a terminal, else a line a stage. ``sentences`` are kept; the last few are shown
    below the table.
    """

    def __init__(self, console: Console) -> None:
        self.console, self.began = console, time.monotonic()
        self.state: dict[str, Any] = {"state": "waiting"}
        self.sentences: list[str] = []
        self._told: Any = None
        self._waits: float | None = None
        self._refused: dict[str, str] = {}
        self._far: set[str] = set()     # clients that were named for their updates

    def say(self, text: str) -> None:
        """Add a sentence about an event."""
        self.sentences.append(f"{time.strftime('%H:%M:%S %Z')}  {text}")
        if not self.console.is_terminal:
            self.console.print(self.sentences[-1], soft_wrap=True, highlight=False, markup=False)

    def show(self, state: dict[str, Any]) -> None:
        """Show the run's current state."""
        self.state = state
        place = (state.get("t"), state.get("r"))
        if state["state"] == "waiting" and "next" in state and state["next"] != self._waits:
            self._waits = state["next"]
            self.say(waits(state))
        for name, client in sorted(state.get("clients", {}).items()):
            if client.get("outlier") and name not in self._far:
                self._far.add(name)
                self.say(f"{name}: {update(client)}")
        for name, why in refusals(state).items():
            if self._refused.get(name) != why:
                self._refused[name] = why
                self.say(why)
        if self.console.is_terminal or state["state"] != "running" or place == self._told:
            return
        self._told = place
        if state["r"] in (0, state["R"]):
            each = "  ".join(f"{n} {how(c)} {seconds(c['seconds'])} {size(c['up'])} up"
                             for n, c in sorted(state["clients"].items()))
            self.console.print(f"{self.position()}  {each}", soft_wrap=True, highlight=False,
                               markup=False)

    def position(self) -> str:
        """Return the state, stage, round and elapsed time in one line."""
        state = self.state
        where = (f"  stage {state['t'] + 1}/{state['stages']}  round {state['r']}/{state['R']}"
                 if "t" in state else "")
        return f"{state['state']}{where}  {clock(time.monotonic() - self.began)} gone"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.position())
        scores = self.state.get("scores", {})
        keys = [k for k in SHOWN if any(k in s for s in scores.values())]
        table = Table(box=None)
        for column in ("client", "state"):
            table.add_column(column)
        for column in ("time", "down", "up", *keys):
            table.add_column(column, justify="right")
        for name, c in sorted(self.state.get("clients", {}).items()):
            mine = scores.get(name, {})
            table.add_row(Text(name), how(c), seconds(c["seconds"]), size(c["down"]),
                          size(c["up"]),
                          *(f"{mine[k]:.3f}" if k in mine else "-" for k in keys))
        yield table
        for sentence in self.sentences[-5:]:
            yield Text(sentence)


def waits(state: dict[str, Any]) -> str:
    """Return for which time a run that lives waits, and how far each site has come."""
    if "dates" not in state:        # tasks of labelled graphs
        away = ", ".join(n for n, client in sorted(state["clients"].items()) if client["gone"])
        return (f"{state['stages']} tasks are learned; {state['next']}"
                + (f"; {away} away" if away else ""))
    dates = state["dates"]
    clients = sorted(state["clients"].items())
    come = ", ".join(f"{name} " + (
        "is away" if client["gone"] else "has no row" if client["last"] is None else
        f"has come to {moment(client['last'], dates)}") for name, client in clients)
    doubted = "".join(
        f"; {name} has a row at {moment(client['far'], dates)}, far from its others, that does not "
        "count: correct it there, or set sure = true under [data] of its site.toml"
        for name, client in clients if client.get("far") is not None)
    return (f"{state['stages']} stages are learned; the next one waits for events at "
            f"{moment(state['next'], dates)} or later ({come}){doubted}")


def refusals(state: dict[str, Any]) -> dict[str, str]:
    """Return by client why it takes no part, or why its last answer was refused."""
    return {**{name: client["refused"] for name, client in state.get("clients", {}).items()
               if client.get("refused")}, **state.get("declined", {})}


def update(client: dict[str, Any]) -> str:
    """Return how large a client's last update was; an empty text where it sent none."""
    if "norm" not in client:
        return ""
    return f"an update of norm {client['norm']:.3g}" + (
        ", more than five times the median" if client["outlier"] else "")


def how(client: dict[str, Any]) -> str:
    """Return a client's state in a word, and how often it fell back on weights of its own."""
    alone = f" ({client['alone']} times by weights of its own)" if client.get("alone") else ""
    return ("gone" if client["gone"] else "answers" if client["answers"] else "late") + alone
