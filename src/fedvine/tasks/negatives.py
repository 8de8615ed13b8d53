"""Negatives of link prediction, drawn without replacement by a hash of the row that asks.

A row (an edge, or a user) and a candidate have a number, a hash of both, and a row gets the allowed
candidates with the lowest numbers. So a draw depends on the row, on the candidates and on nothing
else: one row less changes no other draw, and of fewer allowed candidates the same ones remain.

The code of a pair is user * width + item, where ``width`` is the number of items.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fedvine.core.rng import key, mixed

BLOCK = 256         # candidates that a row skips or looks at together, where there are many
SCANNED = 4096      # candidates that a row looks at, at least; of fewer it looks at all
MARKED = 2048       # codes of a user up to which they are marked, and not searched
_ALL = np.uint64(2**64 - 1)


def salt(*place: str | int) -> np.uint64:
    """Return the number of a place (run, client, stage, purpose) from which rows are hashed."""
    return np.uint64(key(*place) & (2**64 - 1))


def rows(place: np.uint64, *columns: np.ndarray) -> np.ndarray:
    """Return a hash uint64 [Q] of each row of these columns at a place.

    Columns are hashes of names (uint64 [Q]) or times (float64 [Q]). Equal rows have equal hashes.
    """
    found = np.full(len(columns[0]), place, np.uint64)
    for column in columns:
        found = mixed(found ^ (np.asarray(column, float).view(np.uint64)
                               if column.dtype.kind != "u" else column))
    return found


class Candidates:
    """Draw negatives from a set of items, by the hashes of their names.

    Args:
        items: numbers int64 [M].
        hashes: of the names of all items, uint64; ``items`` are positions in it.
    """

    def __init__(self, items: np.ndarray, hashes: np.ndarray) -> None:
        order = np.argsort(hashes[items], kind="stable")
        self.items, self.keys = items[order].astype(np.int64), hashes[items[order]]
        blocks = 1 << max(len(items) // BLOCK, 1).bit_length() - 1
        starts = np.arange(blocks, dtype=np.uint64) * np.uint64(2**64 // blocks % 2**64)
        self._starts = np.append(np.searchsorted(self.keys, starts), len(items)).astype(np.int64)

    def __len__(self) -> int:
        return len(self.items)

    def drawn(self, rows: np.ndarray, many: int, users: np.ndarray | None = None, width: int = 1,
              *taken: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draw candidates for each row, each at most once.

        Args:
            rows: hashes uint64 [Q] (:func:`rows`).
            many: candidates a row.
            users: of the rows, int64 [Q]; needed where something is ``taken``.
            width: number of items in codes.
            *taken: up to two sorted arrays of codes int64 of pairs that are not drawn.

        Returns:
            Counts int64 [Q], at most ``many``, fewer where fewer are allowed; and the items of all
                rows, one row after the other, int64 [sum of counts], in the order of their hashes.
        """
        many = min(many, len(self))
        found = np.empty((len(rows), many), np.int64)
        count = np.zeros(len(rows), np.int64)
        if many and len(rows):
            none = np.empty(0, np.int64)
            first, second = (*taken, none, none)[:2]
            user = np.zeros(len(rows), np.int64) if users is None else users
            bounds = np.stack([np.searchsorted(codes, edge) for codes in (first, second)
                               for edge in (user * width, (user + 1) * width)])
            _lowest(rows, self.keys, self.items, self._starts, user, width, first, second, bounds,
                    found, count)
        return count, found[np.arange(many) < count[:, None]]

    def free(self, users: np.ndarray, width: int, taken: np.ndarray) -> np.ndarray:
        """Return how many candidates are not ``taken`` (sorted codes) by each user, int64 [Q]."""
        here = np.zeros(width, bool)
        here[self.items] = True
        before = np.append(0, np.cumsum(here[taken % width])) if len(taken) else np.zeros(1, int)
        begin, end = (np.searchsorted(taken, edge) for edge in (users * width, (users + 1) * width))
        return len(self) - (before[end] - before[begin])


@njit(cache=True, nogil=True)
def _mix(x):    # pragma: no cover - compiled; the scalar form of fedvine.core.rng.mixed
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(cache=True, nogil=True)
def _in(codes, begin, end, wanted):     # pragma: no cover - compiled
    """Return whether ``wanted`` is among the ascending codes[begin:end]."""
    while begin < end:
        middle = (begin + end) // 2
        if codes[middle] < wanted:
            begin = middle + 1
        else:
            end = middle
    return begin < len(codes) and codes[begin] == wanted


@njit(cache=True, nogil=True)
def _mark(taken, codes, begin, first, second, bounds, to):  # pragma: no cover - compiled
    """Set ``taken`` at the items of a user whose codes are few; the first item's is ``begin``."""
    if codes <= MARKED:
        for i in range(bounds[0], bounds[1]):
            taken[first[i] - begin] = to
        for i in range(bounds[2], bounds[3]):
            taken[second[i] - begin] = to


@njit(cache=True, nogil=True)
def _sort(value, n, limit, begin, order):   # pragma: no cover - compiled
    """Write to ``order`` how to sort value[:n], which are spread evenly from 0 to ``limit``."""
    begin[:n + 1] = 0
    scale = n / (np.float64(limit) + 1.0)
    for i in range(n):
        begin[min(int(value[i] * scale), n - 1) + 1] += 1
    for bucket in range(n):
        begin[bucket + 1] += begin[bucket]
    for i in range(n):
        bucket = min(int(value[i] * scale), n - 1)
        order[begin[bucket]] = i
        begin[bucket] += 1
    for i in range(1, n):       # within a bucket few are left to move
        j, one = i, order[i]
        while j > 0 and value[order[j - 1]] > value[one]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = one


@njit(cache=True, nogil=True)
def _lowest(rows, keys, items, starts, users, width, first, second, bounds, found, count):
    # pragma: no cover - compiled
    """Write the allowed items of lowest hash of each row to ``found``, and how many to ``count``.

    Of many candidates a row looks at a share, whole blocks by a hash of row and block, and of these
    at those below a limit; where that was too little it looks again, at four times as much.
    """
    size, many = len(keys), found.shape[1]
    value, hashed = np.empty(size, np.uint64), np.empty(size, np.uint64)
    place, order, begin = np.empty((3, size + 1), np.int64)
    taken = np.zeros(width, np.bool_)       # by the user of a row, where it has few codes
    for q in range(len(rows)):
        codes = bounds[1, q] - bounds[0, q] + bounds[3, q] - bounds[2, q]
        _mark(taken, codes, users[q] * width, first, second, bounds[:, q], True)
        row, share = rows[q], min(1.0, max(16.0 * many, SCANNED) / size)
        part = min(1.0, (2.0 * many + 16.0) / (share * size))
        while True:
            chosen = _ALL if share >= 1.0 else np.uint64(share * 2.0**64)
            limit = _ALL if part >= 0.5 else np.uint64(part * 2.0**64)
            n = 0
            for block in range(len(starts) - 1):
                if share < 1.0 and _mix(row + np.uint64(block)) >= chosen:
                    continue
                low, high = starts[block], starts[block + 1]
                for i in range(low, high):      # nothing else, so that several are hashed at a time
                    hashed[i - low] = _mix(row ^ keys[i])
                for i in range(low, high):
                    if hashed[i - low] <= limit:
                        code = users[q] * width + items[i]
                        if codes == 0 or not (taken[items[i]] if codes <= MARKED else (
                                _in(first, bounds[0, q], bounds[1, q], code)
                                or _in(second, bounds[2, q], bounds[3, q], code))):
                            value[n], place[n] = hashed[i - low], i
                            n += 1
            if n >= many or (share >= 1.0 and limit == _ALL):
                break
            share, part = min(4.0 * share, 1.0), min(4.0 * part, 1.0)
        _mark(taken, codes, users[q] * width, first, second, bounds[:, q], False)
        _sort(value, n, limit, begin, order)
        count[q] = min(n, many)
        for j in range(count[q]):
            found[q, j] = items[place[order[j]]]
