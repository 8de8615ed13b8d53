"""From names to numbers: an index of a dictionary's names, built once with NumPy.

Text is found by a 64-bit hash of its bytes, in an array of sorted hashes; the name itself is then
compared, so that names of equal hash do not matter. Whole numbers are sorted as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from fedvine.core.errors import near
from fedvine.core.lookup import find
from fedvine.data.names import WHOLE

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
