"""Keep what a client has released with noise, in a file that is written before a release is sent.

A release is an upload at a place of a run, among certain participants. Its noise follows from a key
of 32 bytes of the operating system. The key is on disk before the upload leaves, so that a round
which is played again, after a kill or a lost answer, sends the same bytes, and reveals nothing
more. A release that differs in anything, for example in who else takes part, gets a key of its own
and is charged again: two uploads under one noise would show their difference.

The charge is the rho of zero-concentrated differential privacy (Bun and Steinke, TCC 2016), which
adds up over releases. A ledger spans all runs of the client, as they are about the same table.

Each line has a hash of itself and of the line before, and is written under a lock, after what other
processes wrote was read. At a site a counter outside of the kit (:class:`Counter`) knows how many
lines there are, so a ledger that was cut, deleted, or restored from a backup is refused.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError, NotWritten
from fedvine.core.files import write_whole

Fresh = Callable[[str], bytes]      # a release's name -> 32 random bytes


class Spent(FedvineError):
    """A client's limit on its losses of privacy is reached: it does not answer."""


class Ledger:
    """The releases of one client, in ``file``; None: in memory, for a run without a folder.

    Releases of another ``run`` have another noise. ``limit`` is the largest epsilon at ``delta`` of
    all releases of all runs together, None: there is no limit. ``fresh`` makes a key: by default
    the operating system does, tests give a seeded one (:func:`seeded`), and no setting of an
    experiment reaches it. ``counter`` is the file of the :class:`Counter`, None: there is none.
    ``restored``: whatever the counter says, the owner wants to go on with this file; what may have
    been spent besides is charged.
    """

    def __init__(self, file: Path | None = None, client: str = "", run: str = "", *,
                 limit: float | None = None, delta: float = 1e-5, fresh: Fresh | None = None,
                 counter: Path | None = None, restored: bool = False) -> None:
        self.client, self.run, self.limit, self.delta = client, run, limit, delta
        self.fresh: Fresh = fresh or (lambda name: secrets.token_bytes(32))
        self._counter = None if counter is None else Counter(counter)
        self._restored = restored
        self._clear()
        self.file = file

    def _clear(self) -> None:
        self._lines: list[dict[str, Any]] = []      # releases
        self._by_key: dict[str, dict[str, Any]] = {}
        self._chain = [""]      # after each row of the file
        self._end = 0           # bytes of the file that were read

    @property
    def file(self) -> Path | None:
        """Return where the releases are kept; setting it reads those that are there."""
        return self._file

    @file.setter
    def file(self, file: Path | None) -> None:
        self._file = file
        if file is not None and (file.exists() or self._counter is not None):
            self._clear()
            with self._alone():
                pass

    def key(self, place: tuple[int, ...], purpose: str, content: bytes, rho: float | None,
            participants: Iterable[str] = ()) -> bytes:
        """Return the key of a release's noise, which is on disk when this returns.

        Args:
            place: stage, round and call.
            purpose: what is released there.
            content: a digest of what is released, without noise, and of the noise's size.
            rho: what it costs; None: nothing is promised.
            participants: the clients whose uploads are added to this one, where it is masked.

        Returns:
            32 bytes; the same as before for the same release.

        Raises:
            Spent: where a new release would pass the limit.
            FedvineError: where the file cannot be written.
        """
        with self._alone() as handle:
            return self._key(handle, place, purpose, content, rho, sorted(participants))

    def _key(self, handle: int, place: tuple[int, ...], purpose: str, content: bytes,
             rho: float | None, names: list[str]) -> bytes:
        name = json.dumps([self.run, [*place], purpose, names])
        same = [line for line in self._lines if line.get("release") == name]
        for line in same:
            if line["content"] == content.hex() and line.get("came", names) == names:
                return bytes.fromhex(line["key"])
        if self.limit is not None and rho is not None:
            total = epsilon(self.spent() + rho, self.delta)
            if total > self.limit:
                raise Spent(f"The limit of privacy here is spent: one more answer would make "
                            f"epsilon {total:.4g}, and {self.limit:g} is allowed (at delta "
                            f"{self.delta:g}).")
        key = self.fresh(json.dumps([self.client, [*place], purpose, names, len(same)]))
        self._append(handle, {"release": name, "content": content.hex(), "key": key.hex(),
                              "rho": rho})
        return key

    def opened(self, key: bytes, came: Iterable[str]) -> None:
        """Note whose uploads are in the sum that the release with this ``key`` is in.

        A release that was opened without somebody is not repeated: :meth:`key` makes a new one.
        Raises :class:`FedvineError` where the sum was opened before, of other clients: the two
        would show the upload of those that are in one of them alone. The next attempt is a new
        release.
        """
        with self._alone() as handle:
            line, names = self._by_key[key.hex()], sorted(came)
            if line.get("came", names) != names:
                self._append(handle, {"of": line["key"], "came": []})
                raise FedvineError("The server would open a sum a second time, of other clients; "
                                   "refused. Another attempt has other noise.")
            if "came" not in line:
                self._append(handle, {"of": line["key"], "came": names})

    def spent(self) -> float:
        """Return the rho of all releases."""
        return sum(line.get("rho") or 0.0 for line in self._lines)

    def summary(self) -> dict[str, Any]:
        """Return the number of releases with a promise, and what they cost together."""
        charged = [line for line in self._lines if line.get("rho") is not None]
        return {"releases": len(charged), "epsilon": epsilon(self.spent(), self.delta),
                "delta": self.delta, "limit": self.limit}

    @contextmanager
    def _alone(self) -> Iterator[int]:
        """Hold the file alone, with all that other processes wrote in it read; yield its handle."""
        if self._file is None:
            yield -1
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise self._unwritten(error) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            self._read(handle)
            if self._counter is not None:
                self._compare(self._counter, handle)
            yield handle
        finally:
            os.close(handle)

    def _unwritten(self, error: OSError) -> NotWritten:
        return NotWritten(f"{self._file} could not be written: {error.strerror or error}; nothing "
                          "with noise leaves before its noise is kept.")

    def _append(self, handle: int, line: dict[str, Any]) -> None:
        """Write a release, or who came to one (``of``)."""
        chain = _next(self._chain[-1], line)
        if handle >= 0:
            row = (json.dumps({**line, "chain": chain}) + "\n").encode()
            try:
                write_whole(handle, row)
                os.fsync(handle)
            except OSError as error:
                raise self._unwritten(error) from error
            self._end += len(row)
        self._take(line, chain)
        if handle >= 0 and self._counter is not None:
            self._counter.write(len(self._chain) - 1, chain, self.spent())

    def _take(self, line: dict[str, Any], chain: str) -> None:
        if "of" in line:
            self._by_key[line["of"]]["came"] = line["came"]
        else:
            self._by_key[line["key"]] = line
            self._lines.append(line)
        self._chain.append(chain)

    def _read(self, handle: int) -> None:
        """Read the rows that are new; a last one that a kill cut off was never sent, and goes."""
        if os.fstat(handle).st_size < self._end:        # it was cut: from the start
            self._clear()
        text = b""
        while part := os.pread(handle, 1 << 20, self._end + len(text)):
            text += part
        whole, _, torn = text.rpartition(b"\n")
        if torn:
            os.ftruncate(handle, self._end + len(text) - len(torn))
        for row in whole.splitlines():
            try:
                line = json.loads(row)
                chain = line.pop("chain")
                good = chain == _next(self._chain[-1], line)
                self._take(line, chain)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise FedvineError(f"{self._file}, line {len(self._chain)} is no release; without "
                                   "it nobody knows what was spent: restore the file from a "
                                   "backup.") from error
            if not good:
                raise FedvineError(f"{self._file}, line {len(self._chain) - 1} does not follow "
                                   "from the lines before: some were changed or are missing. "
                                   "Restore the file from a backup.")
        self._end += len(text) - len(torn)

    def _compare(self, counter: Counter, handle: int) -> None:
        """Compare the lines with the counter; raise :class:`FedvineError` unless they fit.

        A counter may be behind, as after a kill between the two. Where the owner wants to go on all
        the same, what may have been spent besides is charged: what the counter knows of, or
        without a counter all that the limit allows.
        """
        count, known = len(self._chain) - 1, counter.read()
        if known is None and not count:
            counter.write(0, "", 0.0)
            return
        if known is not None and known[0] <= count and self._chain[known[0]] == known[1]:
            return
        if not self._restored:
            there = f"{self._file} has {count} lines"
            raise FedvineError(
                f"{there}, and there is no {counter.file} that says how many it had; if the kit "
                "was moved, move that file, too." if known is None else
                f"{there}, and by {counter.file} it had {known[0]}: it is older, shorter or "
                "another one, as from a backup. Its owner can go on with fedvine join KIT "
                "--restored; all that may have been spent meanwhile then counts as spent.")
        own, spent = self.spent(), math.nan
        if known is not None:       # one that is no longer than before is taken for its beginning
            spent = max(known[2] - own, 0.0) if known[0] > count else known[2]
        elif self.limit is not None:
            spent = _rho(self.limit, self.delta) - own
        if not spent > 0:
            spent = 0.0
        self._append(handle, {"release": json.dumps(["restored", count]), "content": "",
                              "key": secrets.token_bytes(32).hex(), "rho": spent})


class Counter:
    """Store the length of a ledger, the hash of its last line, and what was spent, in a file.

    The file is changed in place, so its folder need not be writable. It has two places, which are
    written in turn, so that one is whole whenever the process is killed.
    """

    SIZE = 256      # bytes of a place

    def __init__(self, file: Path) -> None:
        self.file = file

    def read(self) -> tuple[int, str, float] | None:
        """Return lines, hash and rho; None where there is no file, or an empty one."""
        try:
            text = self.file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FedvineError(f"{self.file} cannot be read ({error.strerror}); it says how many "
                               "lines the ledger has.") from error
        found = [one for one in (_place(text[i:i + self.SIZE]) for i in (0, self.SIZE)) if one]
        if text and not found:
            raise FedvineError(f"{self.file} is damaged; it says how many lines the ledger has.")
        return max(found)[1:] if found else None

    def write(self, lines: int, chain: str, rho: float) -> None:
        """Write them; raise :class:`FedvineError` where that cannot be done."""
        try:
            handle = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                found = [_place(os.pread(handle, self.SIZE, i)) for i in (0, self.SIZE)]
                numbers = [one[0] if one else 0 for one in found]
                body = json.dumps([max(numbers) + 1, lines, chain, rho])
                row = json.dumps([body, hashlib.sha256(body.encode()).hexdigest()[:16]]).encode()
                os.pwrite(handle, row.ljust(self.SIZE), self.SIZE * numbers.index(min(numbers)))
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise NotWritten(f"{self.file} could not be written: {error.strerror or error}; it "
                             "says how many lines the ledger has, and nothing with noise leaves "
                             "without it.") from error


def _place(text: bytes) -> tuple[int, int, str, float] | None:
    """Return a place of a counter: its number, lines, hash and rho; None where it is not whole."""
    try:
        body, check = json.loads(text)
        number, lines, chain, rho = json.loads(body)
        if hashlib.sha256(body.encode()).hexdigest()[:16] == check:
            return int(number), int(lines), str(chain), float(rho)
    except (ValueError, TypeError, AttributeError):
        pass
    return None


def _next(chain: str, line: dict[str, Any]) -> str:
    """Return the hash of a line after the one with the hash ``chain``."""
    return hashlib.sha256(f"{chain} {json.dumps(line)}".encode()).hexdigest()[:32]


def _rho(limit: float, delta: float) -> float:
    """Return the largest rho whose epsilon at ``delta`` is at most ``limit``."""
    low, high = 0.0, 1.0
    while epsilon(high, delta) <= limit:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon(middle, delta) <= limit else (low, middle)
    return low


def seeded(seed: Any) -> Fresh:
    """Return a source of keys that gives the same ones each time, for tests alone."""
    return lambda name: hashlib.blake2b(f"{seed} {name}".encode(), digest_size=32).digest()


def epsilon(rho: float, delta: float) -> float:
    """Return the epsilon at ``delta`` of ``rho``-zero-concentrated differential privacy.

    The smallest over orders alpha of rho alpha + log((alpha - 1)/alpha) - log(delta alpha)/(alpha -
    1) (Canonne, Kamath and Steinke 2020, Proposition 12); orders are tried on a fine grid, and each
    is an upper bound.
    """
    if rho <= 0:
        return 0.0
    if not math.isfinite(rho):
        return math.inf
    less = np.geomspace(1e-4, 1e7, 20_001)      # alpha - 1
    alpha = 1 + less
    found = rho * alpha + np.log(less / alpha) - (math.log(delta) + np.log(alpha)) / less
    return max(float(found.min()), 0.0)
