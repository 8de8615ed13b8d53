"""Statements of the answers to queries: raw scores, and what a client measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedvine.core.errors import Refused
from fedvine.core.expect import Named, Number, Several, Text, bounded, check
from fedvine.core.tensors import is_tensor

BINS = 10   # of probabilities, by which classes are measured


@dataclass(frozen=True)
class Scores:
    """State raw scores, finite floats of any shape, alone or beside other arrays by name."""

    def check(self, value: Any, where: str, sizes: dict[str, int]) -> None:
        """Raise :class:`Refused` unless ``value`` is such an array, or a dictionary of them."""
        parts = value if isinstance(value, dict) else {"scores": value}
        for key, part in parts.items():
            if not (isinstance(part, np.ndarray) or is_tensor(part)):
                raise Refused(f"{where}[{key!r:.50}] is not an array of scores")
            bounded(part, where, None, None)


@dataclass(frozen=True)
class Measured:
    """State a client's scores: ``{"n": counts, "scores": numbers}``; curves, drift if they are on.

    ``subsets`` are the endings of counts such as ``n_new``. A score needs a count of at least 1,
    which ``counted`` names; None: that of its own ending. Scores lie between ``low`` and ``high``,
    or 0 and the value that ``above`` has for them. ``classes``: with counts by class
    (``fedvine.tasks.class_measures``).
    """

    subsets: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 1.0
    counted: Callable[[str], str] | None = None
    above: Mapping[str, float] = field(default_factory=dict)
    classes: bool = False

    def count(self, key: str) -> str:
        """Return the key of the count that a score is a mean over."""
        if self.counted is not None:
            return self.counted(key)
        return next((f"n_{s}" for s in self.subsets if key.endswith(f"_{s}")), "n")

    def check(self, value: Any, where: str, sizes: dict[str, int]) -> None:
        """Raise :class:`Refused` unless ``value`` is such a dictionary."""
        if not isinstance(value, dict) or not {"n", "scores"} <= value.keys() <= {
                "n", "scores", "parts", "curve", "drift", *(["classes"] * self.classes)}:
            raise Refused(f"{where} does not have the parts that were asked for")
        counts = frozenset(["n", *(f"n_{s}" for s in self.subsets)])
        check(value["n"], Named(Number(0, 2 ** 53, whole=True), only=counts,
                                least=frozenset(["n"])), f"{where}['n']", sizes)
        check(value["scores"], Named(Number(), most=1000), f"{where}['scores']", sizes)
        for key, score in value["scores"].items():
            check(score, Number(0.0, self.above[key]) if key in self.above else
                  Number(self.low, self.high), f"{where}['scores']", sizes)
            if value["n"].get(self.count(key), 0) < 1:
                raise Refused(f"{where}['scores'] has {key:.50}, of which nothing was counted")
        if "classes" in value:
            _classes(value["classes"], value["n"]["n"], f"{where}['classes']", sizes)
        if "curve" in value:
            _curve(value["curve"], f"{where}['curve']")
        if "drift" in value:
            share = Number(0, 1)
            check(value["drift"], {
                "edges": Number(0, 2 ** 53, whole=True), "new": Named(share, most=10),
                "rivals": Named(Named(Number(self.low, self.high), most=100), most=10)},
                f"{where}['drift']", sizes)
        if "parts" in value:
            check(value["parts"], Named(Several(Number(0, 2 ** 53, whole=True), 2)),
                  f"{where}['parts']", sizes)


def _classes(value: Any, most: int, where: str, sizes: dict[str, int]) -> None:
    """Check what is counted by class, of ``most`` nodes."""
    count = Number(0, most)
    check(value, {"confusion": Named(Named(count)), "ap": Named(Number(0, 1)),
                  "bins": Named([count, count, count], frozenset(map(str, range(BINS))))},
          where, sizes)
    rows, bins = value["confusion"].values(), value["bins"].values()
    if not all(key.isascii() and key.isdecimal() and len(key) < 7 for key in
               {*value["ap"], *value["confusion"]}.union(*rows)):
        raise Refused(f"{where} has a key that is not the number of a class")
    slack = 1 + 1e-9        # shares of equal scores are rounded
    if (max(sum(sum(row.values()) for row in rows), sum(one[0] for one in bins)) > most * slack
            or any(max(one) > one[0] * slack for one in bins)):
        raise Refused(f"{where} counts more nodes than there are")


def _curve(value: Any, where: str) -> None:
    if not isinstance(value, list) or len(value) > 100_000:
        raise Refused(f"{where} is not a list of what was asked for")
    for i, point in enumerate(value):
        if not isinstance(point, dict):
            raise Refused(f"{where}[{i}] does not have the parts that were asked for")
        for key, part in point.items():
            check(part, Text(100) if key == "moment" else Number(), f"{where}[{i}][{key!r:.50}]")
