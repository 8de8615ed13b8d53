"""Statements of what a client's reply must be: types, shapes, bounds, sizes and order.

A reply is a tree of plain values and arrays, and so is a statement of it:

    clients.call(self.count, expect=(Array("uint64", ("n",), keys="unique"),
                                     Array("float64", ("n",), low=0)))

``None`` stands for None, :class:`Array`, :class:`Number`, :class:`Flag` and :class:`Text` for one
value, ``{"a": ..., "b": ...}`` for exactly these keys, a tuple or a list for exactly these parts,
:class:`Named` and :class:`Several` for any number of parts of one kind, :class:`Maybe` for a part
that may be None. A tensor or an array stands for one of its dtype and shape (it may be of torch's
"meta" device). With any statement, a number must be finite and at most :data:`LARGEST`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

import numpy as np

from fedvine.core.errors import Refused

if TYPE_CHECKING:
    import torch

LARGEST = 1e12       # no correct mean or count comes near it
LARGEST_WEIGHT = 1e6    # no correct model comes near this, and others can still compute with it
MOST_BYTES = 1 << 30  # of one array, unless a statement has another bound
# Bytes of a value by the name of its dtype, of the dtypes that may travel.
WIDTHS = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4,
          "int16": 2, "int8": 1, "uint8": 1, "bool": 1}
BINS = 10   # of probabilities, by which classes are measured


def is_tensor(value: Any) -> TypeGuard[torch.Tensor]:
    """Return whether ``value`` is a torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


@cache
def name_of(dtype: Any) -> str:
    """Return the name of a dtype of torch or NumPy, such as ``"float32"``."""
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True)
class Array:
    """State an array: dtype, shape, bounds, bytes and order.

    Args:
        dtype: its name, such as ``"float32"``.
        shape: an axis is a number, None (free), or a name: axes of one name have one size.
        low: least value, itself allowed; of floats at most :data:`LARGEST` in size.
        high: largest value, likewise.
        most: largest size in bytes.
        keys: ``"sorted"``: strictly ascending; ``"unique"``: no value twice (both: one axis).
        tensor: whether it is a torch tensor.
    """

    dtype: str
    shape: tuple[int | str | None, ...]
    low: float | None = None
    high: float | None = None
    most: int = MOST_BYTES
    keys: Literal["sorted", "unique"] | None = None
    tensor: bool = False

    def check(self, value: Any, where: str, sizes: dict[str, int]) -> None:
        """Raise :class:`Refused` unless ``value`` is such an array."""
        if not (is_tensor(value) if self.tensor else isinstance(value, np.ndarray)):
            raise Refused(f"{where} is not {'a tensor' if self.tensor else 'an array'}")
        dtype = name_of(value.dtype)
        if dtype != self.dtype:
            raise Refused(f"{where} is of type {dtype} instead of {self.dtype}")
        if len(value.shape) != len(self.shape):
            raise Refused(f"{where} has the shape {tuple(value.shape)} instead of {self._shape()}")
        for axis, size in zip(self.shape, value.shape, strict=True):
            wanted = sizes.setdefault(axis, size) if isinstance(axis, str) else axis
            if wanted is not None and size != wanted:
                raise Refused(f"{where} has the shape {tuple(value.shape)} instead of "
                              f"{self._shape(sizes)}")
        if value.nbytes > self.most:
            raise Refused(f"{where} has {value.nbytes:,} bytes; at most {self.most:,} are taken")
        bounded(value, where, self.low, self.high)
        if self.keys and len(value) > 1:
            plain = np.asarray(value)
            if self.keys == "sorted" and not bool((plain[1:] > plain[:-1]).all()):
                raise Refused(f"{where} is not in ascending order, each value once")
            if self.keys == "unique" and len(np.unique(plain)) < len(plain):
                raise Refused(f"{where} has a value twice")

    def _shape(self, sizes: dict[str, int] | None = None) -> str:
        axes = [(sizes or {}).get(a, a) if isinstance(a, str) else "any" if a is None else a
                for a in self.shape]
        return f"({', '.join(map(str, axes))}{',' * (len(axes) == 1)})"


@dataclass(frozen=True)
class Tensor(Array):
    """State a tensor: an :class:`Array` that is a torch tensor."""

    tensor: bool = True


@dataclass(frozen=True)
class Number:
    """State a number between ``low`` and ``high``, both allowed; ``whole``: an int."""

    low: float = -LARGEST
    high: float = LARGEST
    whole: bool = False

    def check(self, value: Any, where: str, sizes: dict[str, int]) -> None:
        """Raise :class:`Refused` unless ``value`` is such a number; NaN is refused."""
        if isinstance(value, bool) or not isinstance(value, int if self.whole else (int, float)):
            raise Refused(f"{where} is not a {'whole ' * self.whole}number")
        if not self.low <= value <= self.high:      # false for NaN, too
            raise Refused(f"{where} is {value:g}, which is not between {self.low:g} and "
                          f"{self.high:g}" if abs(value) < 1e300 else
                          f"{where} is not a finite number" if isinstance(value, float) else
                          f"{where} is too large")


@dataclass(frozen=True)
class Flag:
    """State a value that is True or False."""

    def check(self, value: Any, where: str, sizes: dict[str, int]) -> None:
        """Raise :class:`Refused` unless ``value`` is True or False."""
        if not isinstance(value, bool):
            raise Refused(f"{where} is neither true nor false")


@dataclass(frozen=True)
class Text:
    """State text, or with ``kind=bytes`` bytes, of ``least`` to ``most`` characters."""

    most: int = 10_000
    kind: type = str
    least: int = 0

    def check(self, value: Any, where: str, sizes: dict[str, int]) -> None:
        """Raise :class:`Refused` unless ``value`` is such text or bytes."""
        if not isinstance(value, self.kind):
            raise Refused(f"{where} is not {'text' if self.kind is str else 'bytes'}")
        if not self.least <= len(value) <= self.most:
            raise Refused(f"{where} has {len(value):,} characters instead of {self.least:,} to "
                          f"{self.most:,}")


@dataclass(frozen=True)
class Named:
    """State a dictionary with keys of text (``whole``: ints) and values of one kind, ``each``.

    ``only`` are the keys that may be there, ``least`` those that must; ``most`` bounds their
    number.
    """

    each: Any
    only: frozenset[Any] | None = None
    least: frozenset[Any] = frozenset()
    most: int = 100_000
    whole: bool = False

    def check(self, value: Any, where: str, sizes: dict[str, int]) -> None:
        """Raise :class:`Refused` unless ``value`` is such a dictionary."""
        if not isinstance(value, dict) or len(value) > self.most:
            raise Refused(f"{where} does not have the parts that were asked for")
        kind = int if self.whole else str
        if (any(type(k) is not kind for k in value) or not self.least <= value.keys()
                or (self.only is not None and not value.keys() <= self.only)):
            raise Refused(f"{where} does not have the parts that were asked for")
        for key, part in value.items():     # named axes hold within one part
            check(part, self.each, f"{where}[{key!r:.50}]", dict(sizes))


@dataclass(frozen=True)
class Several:
    """State a list of at most ``most`` parts of one kind, ``each``."""

    each: Any
    most: int = 100_000

    def check(self, value: Any, where: str, sizes: dict[str, int]) -> None:
        """Raise :class:`Refused` unless ``value`` is such a list."""
        if not isinstance(value, list) or len(value) > self.most:
            raise Refused(f"{where} is not a list of what was asked for")
        for i, part in enumerate(value):
            check(part, self.each, f"{where}[{i}]", dict(sizes))


@dataclass(frozen=True)
class Maybe:
    """State a part that is None or as ``each`` states."""

    each: Any

    def check(self, value: Any, where: str, sizes: dict[str, int]) -> None:
        """Raise :class:`Refused` unless ``value`` is None or as ``each`` states."""
        if value is not None:
            check(value, self.each, where, sizes)


def check(value: Any, expect: Any, where: str = "it", sizes: dict[str, int] | None = None) -> None:
    """Raise :class:`Refused` unless ``value`` is as ``expect`` states; its text is for a person.

    A statement of another kind is an object with ``check(value, where, sizes)`` that does the same;
    ``sizes`` holds the named axes seen so far. Raises :class:`TypeError` where ``expect`` is not a
    statement.
    """
    sizes = {} if sizes is None else sizes
    if expect is None:
        if value is not None:
            raise Refused(f"{where} should be nothing (expect= states what a reply must be)")
    elif isinstance(expect, dict):
        if not isinstance(value, dict) or value.keys() != expect.keys():
            raise Refused(f"{where} does not have the parts that were asked for")
        for name, part in expect.items():
            check(value[name], part, f"{where}[{name!r}]", sizes)
    elif isinstance(expect, (tuple, list)):
        if type(value) is not type(expect) or len(value) != len(expect):
            raise Refused(f"{where} does not have the parts that were asked for")
        for i, part in enumerate(expect):
            check(value[i], part, f"{where}[{i}]", sizes)
    elif is_tensor(expect) or isinstance(expect, np.ndarray):
        dtype = name_of(expect.dtype)
        most = LARGEST_WEIGHT if "float" in dtype else None
        Array(dtype, tuple(expect.shape), most and -most, most, max(MOST_BYTES, expect.nbytes),
              tensor=is_tensor(expect)).check(value, where, sizes)
    elif hasattr(type(expect), "check"):
        expect.check(value, where, sizes)
    else:
        raise TypeError(f"expect= does not take {expect!r}; see fedvine.core.expect.")


def bounded(value: np.ndarray | torch.Tensor, where: str, low: float | None,
             high: float | None) -> None:
    """Refuse numbers that are not finite, above :data:`LARGEST`, or outside the bounds."""
    floats = (value.dtype.kind == "f" if isinstance(value, np.ndarray)
              else value.is_floating_point())
    if not (floats or low is not None or high is not None):
        return
    if not math.prod(value.shape):
        return
    if is_tensor(value):     # one pass; a NaN is both
        least, most = (x.item() for x in value.aminmax())
    else:
        least, most = value.min().item(), value.max().item()
    if floats:
        if not (math.isfinite(least) and math.isfinite(most)):
            raise Refused(f"{where} holds a number that is not finite")
        low, high = (-LARGEST if low is None else low), (LARGEST if high is None else high)
    if (low is not None and least < low) or (high is not None and most > high):
        off = least if low is not None and least < low else most
        raise Refused(f"{where} holds {off:g}, which is not between "
                      f"{'-' if low is None else f'{low:g}'} and "
                      f"{'-' if high is None else f'{high:g}'}")


# -- answers to queries: raw scores, and what a client measured ------------------------------------
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
        classes = ["classes", "classes_val"] * self.classes
        if not isinstance(value, dict) or not {"n", "scores"} <= value.keys() <= {
                "n", "scores", "parts", "curve", "drift", *classes}:
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
        for key, count in (("classes", "n"), ("classes_val", "n_val")):
            if key in value:
                _classes(value[key], value["n"].get(count, 0), f"{where}['{key}']", sizes)
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
