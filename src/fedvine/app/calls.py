"""The calls of a run, summed as their lines come: by round and by client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fedvine.tasks.shown import Lines

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
