"""The dictionary of a stream: from dense numbers to names of nodes and back."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from numbers import Number
from pathlib import Path
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.core.files import append_rows, atomic, mapped
from fedvine.core.rng import mixed
from fedvine.data.name_index import NameIndex, hashed, whole_number
from fedvine.data.names import name_of


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
        if isinstance(names, np.ndarray) and names.dtype.kind in "iu":
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
        can compute the name from the key.
        """
        digests = b"".join(hmac.digest(self.secret, self._bytes(int(n)), "sha256")[:8]
                           for n in numbers)
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
