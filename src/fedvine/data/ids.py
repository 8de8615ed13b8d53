"""The dictionary of a stream: from dense numbers to names of nodes and back."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Sequence
from numbers import Number
from pathlib import Path
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError, near
from fedvine.core.files import append_rows, atomic, mapped
from fedvine.core.lookup import find
from fedvine.core.rng import mixed
from fedvine.data.names import WHOLE, name_of

# -- from names to numbers: an index of a dictionary's names, built once with NumPy ----------------
# Text is found by a 64-bit hash of its bytes, in an array of sorted hashes; the name itself is then
# compared, so that names of equal hash do not matter. Whole numbers are sorted as they are.
_PRIME = np.uint64(0x100000001B3)
_ENDS, _CLOSE = 8, 500      # bytes of either end that are compared, and names that difflib compares
_BLOCK = 1 << 22            # bytes of text that are hashed at a time


class NameIndex:
    """An index of whole numbers int64 [N], or of text as UTF-8 bytes with offsets int64 [N + 1].

    Of a name that is there twice the first number is found.
    """

    def __init__(self, numbers: np.ndarray | None, offsets: np.ndarray | None,
                 text: np.ndarray | None) -> None:
        self.numbers, self.offsets, self.text = numbers, offsets, text
        keys = np.asarray(numbers) if numbers is not None else hashed(offsets, text)  # type: ignore[arg-type]
        self.order = np.argsort(keys, kind="stable").astype(np.int32)
        self.keys = keys[self.order]

    def find(self, names: Iterable[str]) -> np.ndarray:
        """Return the number of each name, int64, -1 for an unknown one."""
        names = list(names)
        if self.numbers is not None:
            whole = [whole_number(name) for name in names]
            at = find(self.keys, np.array([0 if n is None else n for n in whole], np.int64))
            at[np.array([n is None for n in whole], bool)] = -1
            return np.where(at >= 0, self.order[np.maximum(at, 0)] if len(self.order) else -1, -1)
        raw = [name.encode("utf-8", "surrogatepass") for name in names]
        offsets = np.zeros(len(raw) + 1, np.int64)
        np.cumsum([len(r) for r in raw], out=offsets[1:])
        return self.find_text(offsets, np.frombuffer(b"".join(raw), np.uint8))

    def find_numbers(self, numbers: np.ndarray) -> np.ndarray:
        """Return the number of each name, int64, -1 for an unknown one; names are whole numbers."""
        at = find(self.keys, numbers)
        return np.where(at >= 0, self.order[at] if len(self.order) else -1, -1).astype(np.int64)

    def find_text(self, offsets: np.ndarray, text: np.ndarray) -> np.ndarray:
        """Return the number of each name, int64, -1 for an unknown one; names are as at the top."""
        assert self.offsets is not None and self.text is not None
        offsets, known = np.asarray(offsets), np.asarray(self.offsets)
        at = find(self.keys, hashed(offsets, text))
        found = np.where(at >= 0, self.order[at] if len(self.order) else -1, -1).astype(np.int64)
        asked = np.flatnonzero(found >= 0)
        sizes, starts = np.diff(offsets)[asked], known[found[asked]]
        other = known[found[asked] + 1] - starts != sizes       # another name of the same hash
        sizes = np.where(other, 0, sizes)
        within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        unlike = (np.asarray(text)[np.repeat(offsets[asked], sizes) + within]
                  != np.asarray(self.text)[np.repeat(starts, sizes) + within])
        other |= np.bincount(np.repeat(np.arange(len(asked)), sizes), unlike, len(asked)) > 0
        for i in asked[other]:
            found[i] = self._place(int(at[i]), text[offsets[i]:offsets[i + 1]].tobytes())
        return found

    def _place(self, at: int, name: bytes) -> int:
        """Return the number of ``name``, the first whose hash is at ``at`` or equal to that."""
        key = self.keys[at]
        while at < len(self.keys) and self.keys[at] == key:
            number = int(self.order[at])
            if self._bytes(number) == name:
                return number
            at += 1
        return -1

    def _bytes(self, number: int) -> bytes:
        assert self.offsets is not None and self.text is not None
        return self.text[self.offsets[number]:self.offsets[number + 1]].tobytes()

    def near(self, name: str) -> str:
        """Return ' (did you mean "..."?)' if a known name is close to ``name``, else ''.

        Of many names only those that agree in most bytes of their two ends are compared in full.
        """
        return near(name, self._close(name))

    def _close(self, name: str) -> Sequence[str]:
        if self.numbers is not None:
            texts = np.asarray(self.numbers).astype(str)
            if len(texts) <= _CLOSE:
                return texts.tolist()
            texts = texts.astype("S")
            offsets = np.zeros(len(texts) + 1, np.int64)
            np.cumsum(np.char.str_len(texts), out=offsets[1:])
            return NameIndex(None, offsets, np.frombuffer(b"".join(texts.tolist()), np.uint8)
                             )._close(name)
        assert self.offsets is not None and self.text is not None
        starts, stops = np.asarray(self.offsets)[:-1], np.asarray(self.offsets)[1:]
        numbers = np.arange(len(starts))
        if len(numbers) > _CLOSE:
            raw = name.encode("utf-8", "surrogatepass")
            sizes, agree = stops - starts, np.zeros(len(starts))
            last = len(self.text) - 1
            for i in range(min(_ENDS, len(raw))):
                agree += (sizes > i) & (self.text[np.minimum(starts + i, last)] == raw[i])
                agree += (sizes > i) & (self.text[np.maximum(stops - 1 - i, 0)] == raw[-1 - i])
            agree -= np.abs(sizes - len(raw))
            numbers = np.argpartition(-agree, _CLOSE)[:_CLOSE]
        return [self._bytes(int(n)).decode("utf-8", "replace") for n in numbers]


def hashed(offsets: np.ndarray, text: np.ndarray) -> np.ndarray:
    """Return a 64-bit hash uint64 [N] of each of N texts, from its bytes and its length.

    The hash of bytes b is sum_j b[j] p^j + length x p^-1, modulo 2^64, and then mixed.
    """
    offsets = np.asarray(offsets)
    sizes = np.diff(offsets)
    powers = np.ones(int(sizes.max(initial=0)) + 1, np.uint64)
    powers[1:] = np.multiply.accumulate(np.full(len(powers) - 1, _PRIME))
    found = sizes.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    start = 0
    while start < len(sizes):   # in blocks: the hash of a byte takes 8 bytes and more
        stop = max(int(np.searchsorted(offsets, offsets[start] + _BLOCK)), start + 1)
        stop = min(stop, len(sizes))
        first, size = offsets[start:stop], sizes[start:stop]
        within = np.arange(int(size.sum())) - np.repeat(first - first[0], size)
        values = (text[first[0]:offsets[stop]].astype(np.uint64) + np.uint64(1)) * powers[within]
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(values, dtype=np.uint64)])
        found[start:stop] += sums[offsets[start + 1:stop + 1] - first[0]] - sums[first - first[0]]
        start = stop
    found ^= found >> np.uint64(31)
    return found * np.uint64(0xBF58476D1CE4E5B9)


def whole_number(name: str) -> int | None:
    """Return the whole number that ``name`` is the text of, also 3.0; None for any other text."""
    if not re.fullmatch(WHOLE, name) or len(name) > 40:
        return None
    number = int(name.partition(".")[0])
    return number if -2**63 <= number < 2**63 else None


# -- the dictionaries ------------------------------------------------------------------------------
def named(name: Any, what: str) -> str:
    """Return a name that a person gave as text; 3, and 3.0 as frames have it, are "3".

    Raises :class:`FedvineError` for what is no name, such as a list or a number with a fraction;
    ``what`` is named, such as "user".
    """
    found = name_of(name) if isinstance(name, str | Number) and not isinstance(
        name, bool) else None
    if found is None or (not isinstance(name, str) and "." in found):
        raise FedvineError(f"The {what} is {name!r}, but must be text or a whole number.")
    return found


class Ids:
    """Names of nodes, text or whole numbers, by dense number.

    Whole numbers are one int64 array; text is one block of UTF-8 bytes with offsets. Both are
    mapped from disk, so a dictionary that is not used takes no memory.

    Args:
        numbers: int64 [N], where all names are whole numbers.
        offsets: int64 [N + 1] into ``text``, where names are text.
        text: uint8, the UTF-8 bytes of all names.
        secret: of :meth:`keys`; institutions share one of their own.
    """

    def __init__(self, numbers: np.ndarray | None = None, offsets: np.ndarray | None = None,
                 text: np.ndarray | None = None, secret: bytes = b"fedvine") -> None:
        self._numbers, self._offsets, self._text = numbers, offsets, text
        self.secret = secret
        self._index: NameIndex | None = None

    @staticmethod
    def of(names: Iterable[str] | np.ndarray) -> Ids:
        """Make a dictionary of names by dense number: an integer array, or any iterable of text."""
        if (isinstance(names, np.ndarray) and names.dtype.kind in "iu"
                and names.max(initial=0) < 2**63):
            return Ids(numbers=names.astype(np.int64))
        pieces = [str(n).encode() for n in names]
        offsets = np.zeros(len(pieces) + 1, np.int64)
        np.cumsum([len(p) for p in pieces], out=offsets[1:])
        return Ids(offsets=offsets, text=np.frombuffer(b"".join(pieces), np.uint8))

    def __len__(self) -> int:
        return len(self._numbers) if self._numbers is not None else len(self._offsets) - 1  # type: ignore[arg-type]

    def __getitem__(self, number: int) -> str:
        """Return the name of a node as text."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        return self._bytes(int(number)).decode()

    def _bytes(self, number: int) -> bytes:
        if self._numbers is not None:
            return str(int(self._numbers[number])).encode()
        assert self._offsets is not None and self._text is not None
        return self._text[self._offsets[number]:self._offsets[number + 1]].tobytes()

    @property
    def index(self) -> NameIndex:
        """Return the index of the names, built when it is first needed."""
        if self._index is None:
            self._index = NameIndex(self._numbers, self._offsets, self._text)
        return self._index

    def numbers(self, names: Ids | Iterable[str]) -> np.ndarray:
        """Return the number of each name, int64, -1 for an unknown one."""
        if isinstance(names, Ids) and self._text is not None and names._offsets is not None:
            assert names._text is not None
            return self.index.find_text(names._offsets, names._text)
        if isinstance(names, Ids) and self._numbers is not None and names._numbers is not None:
            return self.index.find_numbers(np.asarray(names._numbers))
        return self.index.find(names[i] for i in range(len(names))) if isinstance(
            names, Ids) else self.index.find(names)

    def find(self, name: str | int) -> int:
        """Return the number of a name; raises :class:`FedvineError` with a near name if unknown."""
        name = named(name, "node")
        number = int(self.numbers([name])[0])
        if number < 0:
            raise FedvineError(f'no node is called "{name}"{self.index.near(name)}.')
        return number

    def keys(self, numbers: np.ndarray) -> np.ndarray:
        """Return 64-bit keys (uint64) for the names: HMAC-SHA256 of their text, cut.

        Sites that share a ``secret`` give the same person the same key; without the secret nobody
        can compute the name from the key. A secret with a ``key_of`` of its own makes them by it
        (:mod:`fedvine.federation.pseudonyms`).
        """
        made = getattr(self.secret, "key_of", lambda name: hmac.digest(self.secret, name, "sha256"))
        digests = b"".join(made(self._bytes(int(n)))[:8] for n in numbers)
        return np.frombuffer(digests, np.dtype("<u8")).astype(np.uint64)

    def hashes(self) -> np.ndarray:
        """Return a hash uint64 [N] of each name's text, which has no secret; draws are named by it.

        The same name has the same hash in every dictionary, whatever the order of names.
        """
        if self._numbers is None:
            assert self._offsets is not None and self._text is not None
            return hashed(self._offsets, self._text)
        texts = np.asarray(self._numbers).astype("S20")
        offsets = np.append(0, np.cumsum(np.char.str_len(texts))).astype(np.int64)
        return hashed(offsets, np.frombuffer(b"".join(texts.tolist()), np.uint8))

    def uniform(self) -> np.ndarray:
        """Return a number for each name from its hash, float64 [N], even in [0, 1)."""
        return (mixed(self.hashes()) >> np.uint64(11)) * 2.0**-53

    def take(self, numbers: np.ndarray) -> Ids:
        """Return the names of a subset, renumbered from 0 in the order given."""
        if self._numbers is not None:
            return Ids(numbers=np.asarray(self._numbers)[numbers], secret=self.secret)
        assert self._offsets is not None and self._text is not None
        starts = np.asarray(self._offsets)[numbers]
        sizes = np.asarray(self._offsets)[numbers + 1] - starts
        offsets = np.zeros(len(numbers) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes)
        return Ids(offsets=offsets, secret=self.secret,
                   text=np.asarray(self._text)[np.repeat(starts, sizes) + within])

    def starts(self, other: Ids) -> bool:
        """Return whether ``other`` begins with all names of this dictionary, in the same order."""
        if len(other) < len(self):
            return False
        if self._numbers is not None and other._numbers is not None:
            return np.array_equal(self._numbers, other._numbers[:len(self)])
        if self._numbers is not None or other._numbers is not None:
            return all(self[i] == other[i] for i in range(len(self)))
        assert self._offsets is not None and self._text is not None
        assert other._offsets is not None and other._text is not None
        return (np.array_equal(self._offsets, other._offsets[:len(self._offsets)])
                and np.array_equal(self._text, other._text[:len(self._text)]))

    def joined(self, names: Ids) -> Ids:
        """Return this dictionary with those of ``names`` after its own."""
        if self._numbers is not None and names._numbers is not None:
            return Ids(numbers=np.concatenate([self._numbers, names._numbers]), secret=self.secret)
        ours, theirs = self._as_text(), names._as_text()
        assert ours._offsets is not None and ours._text is not None
        assert theirs._offsets is not None and theirs._text is not None
        return Ids(offsets=np.concatenate([ours._offsets, theirs._offsets[1:] + ours._offsets[-1]]),
                   text=np.concatenate([ours._text, theirs._text]), secret=self.secret)

    def _as_text(self) -> Ids:
        return self if self._numbers is None else Ids.of(self[i] for i in range(len(self)))

    def extended(self, names: Iterable[str]) -> Ids:
        """Return the same dictionary with ``names`` after the last one."""
        more = Ids.of(names)
        assert more._offsets is not None and more._text is not None
        if self._offsets is not None and self._text is not None:
            offsets = np.concatenate([self._offsets, self._offsets[-1] + more._offsets[1:]])
            return Ids(offsets=offsets, text=np.concatenate([self._text, more._text]),
                       secret=self.secret)
        whole = [whole_number(more[i]) for i in range(len(more))]
        if None not in whole:
            return Ids(numbers=np.concatenate([self._numbers, np.array(whole, np.int64)]),  # type: ignore[list-item]
                       secret=self.secret)
        found = Ids.of([*(self[i] for i in range(len(self))), *(more[i] for i in range(len(more)))])
        found.secret = self.secret
        return found

    def columns(self) -> list[np.ndarray]:
        """Return the arrays that hold the names."""
        return [a for a in (self._numbers, self._offsets, self._text) if a is not None]

    def write(self, folder: Path, side: str) -> None:
        """Write to ``folder`` as ``ids-<side>*.npy``."""
        if self._numbers is not None:
            np.save(folder / f"ids-{side}.npy", self._numbers)
        else:
            np.save(folder / f"ids-{side}-offsets.npy", self._offsets)  # type: ignore[arg-type]
            np.save(folder / f"ids-{side}-text.npy", self._text)  # type: ignore[arg-type]

    def append(self, folder: Path, side: str, count: int) -> None:
        """Add the names from number ``count`` on to files that :meth:`write` wrote with fewer."""
        if self._numbers is not None:
            append_rows(folder / f"ids-{side}.npy", count, np.asarray(self._numbers[count:]))
            return
        offsets, text = folder / f"ids-{side}-offsets.npy", folder / f"ids-{side}-text.npy"
        assert self._offsets is not None and self._text is not None
        if not offsets.exists():    # the names were whole numbers so far
            for file, column in ((text, self._text), (offsets, self._offsets)):
                with atomic(file) as handle:
                    np.save(handle, column)
            return
        append_rows(text, int(self._offsets[count]), np.asarray(self._text[self._offsets[count]:]))
        append_rows(offsets, count + 1, np.asarray(self._offsets[count + 1:]))

    @staticmethod
    def open(folder: Path, side: str, count: int | None = None) -> Ids:
        """Open the files of :meth:`write`, mapped; the first ``count`` names, None: all."""
        if (folder / f"ids-{side}-offsets.npy").exists():
            offsets = mapped(folder / f"ids-{side}-offsets.npy")
            offsets = offsets if count is None else offsets[:count + 1]
            return Ids(offsets=offsets,
                       text=mapped(folder / f"ids-{side}-text.npy")[:int(offsets[-1])])
        return Ids(numbers=mapped(folder / f"ids-{side}.npy")[:count])
