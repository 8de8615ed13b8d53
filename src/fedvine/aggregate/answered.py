"""Remember which rows a client's sums were of, and of which clients: no two differ by a few rows.

The difference of two sums of the same rows, one without a client, is that client's part; the
difference of two sums of nearly the same rows of the same clients is of the rows in one of them
alone. So a client keeps a hash of each row that was in a sum, and when a stage begins decides what
it gives:

- the same rows as before: for a sum of the same clients as before, and no other
- rows that are new, fewer than ``grain``: they wait, and are in the next stage's; what came before
  is given for a sum of the same clients as before
- rows of which only some were in a sum before, so that fewer than ``grain`` are left out or alone,
  as when a cell of the table was changed: none of the stage
- other rows: for a sum of any clients

What is kept are disjoint parts of all rows, where those of one part were in the same sums, and the
parts and clients of each sum. A site keeps them for all its runs, in a file that is written before
a sum can be opened.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple
from zipfile import BadZipFile

import numpy as np

from fedvine.core.errors import FedvineError, NotWritten
from fedvine.core.files import atomic
from fedvine.core.lookup import find, unique
from fedvine.core.method import Client
from fedvine.data.identity import rows_of

Kind = Literal["in", "wait", "out"]


class Given(NamedTuple):
    """State what of a stage is in sums: its rows are ``in``, ``wait``, or are left ``out``.

    ``listed`` are the clients that a sum must be of; () for any.
    """

    kind: Kind
    listed: tuple[str, ...] = ()


class Answered:
    """The rows that were in sums, in ``file``; None: in memory."""

    def __init__(self, file: Path | None = None) -> None:
        self.file, self._read_at = file, 0
        self.rows = np.empty(0, np.uint64)      # ascending
        self.part = np.empty(0, np.int64)       # of each row
        self.sums: list[tuple[list[int], list[str]]] = []       # its parts, and the clients in it

    def stage(self, client: Client, grain: int) -> Kind:
        """Return what of the client's stage is in sums.

        The memory ``client.summed`` has its rows and those that waited, whether they were
        ``given``, and the clients of the ``last`` sum.
        """
        was, t = vars(client).get("summed"), client.place[0]
        if was is None or was["t"] != t:
            rows = unique(rows_of(client.stage))
            if was is not None and not was["given"] and was["kind"] != "out":
                rows = unique(np.concatenate([was["rows"], rows]))
            with self._alone():
                kind = self.given(rows, grain).kind
            client.summed = was = {"t": t, "rows": rows, "kind": kind, "given": False,
                                   "last": [] if was is None else was["last"]}
        return was["kind"]

    def listed(self, client: Client, grain: int, whole: bool) -> tuple[str, ...]:
        """Return the clients that a sum of this stage must be of; () for any.

        ``whole``: the sum is also of rows of earlier stages.
        """
        kind = self.stage(client, grain)
        with self._alone():
            return self._listed(client, grain, whole, kind)

    def agree(self, client: Client, came: list[str], grain: int, whole: bool) -> None:
        """Keep that the client's stage is in a sum of the clients ``came``.

        Raises :class:`FedvineError` where it must be of others.
        """
        kind, names = self.stage(client, grain), sorted(came)
        with self._alone():
            listed = self._listed(client, grain, whole, kind)
            other = kind == "in" and self.given(client.summed["rows"], grain).kind != "in"
            if other or (listed and list(listed) != names):
                raise FedvineError("The server would open a sum of what was in one of other "
                                   "clients before, and the difference would show one of them; "
                                   "refused. What is new goes into the next stage's.")
            if kind == "in":
                self._keep(client.summed["rows"], names)
        client.summed = {**client.summed, "given": client.summed["given"] or kind == "in",
                         "last": names}

    def given(self, rows: np.ndarray, grain: int) -> Given:
        """Return what is given of ``rows`` uint64 [n], ascending, none twice."""
        at = find(self.rows, rows)
        new, old = int((at < 0).sum()), self.part[at[at >= 0]]
        mine, whole = (np.bincount(part, minlength=self._parts) for part in (old, self.part))
        if ((mine > 0) & (mine < whole) & (np.minimum(mine, whole - mine) < grain)).any():
            return Given("out")
        if 0 < new < grain:
            return Given("wait")
        if new or not len(rows):
            return Given("in")
        parts = set(np.flatnonzero(mine).tolist())
        cut = bool((mine[mine > 0] < whole[mine > 0]).any())
        same = {tuple(names) for of, names in self.sums if set(of) == parts and not cut}
        lists = same or {tuple(names) for of, names in self.sums if parts & set(of)}
        return Given("in", lists.pop()) if len(lists) == 1 else Given("wait")

    @property
    def _parts(self) -> int:
        return int(self.part.max(initial=-1)) + 1

    def _listed(self, client: Client, grain: int, whole: bool, kind: Kind) -> tuple[str, ...]:
        rows = client.summed["rows"]
        if kind == "in" and len(rows):
            return self.given(rows, grain).listed
        return tuple(client.summed["last"]) if whole else ()

    def _keep(self, rows: np.ndarray, names: list[str]) -> None:
        """Cut the parts by ``rows``, and note that these were in a sum of ``names``."""
        if not len(rows):
            return
        at, P = find(self.rows, rows), self._parts
        here = np.zeros(len(self.rows), bool)
        here[at[at >= 0]] = True
        new = rows[at < 0]
        place = np.searchsorted(self.rows, new)
        code = np.insert(2 * self.part + here, place, 2 * P + 1)
        codes = np.flatnonzero(np.bincount(code))
        pieces: dict[int, list[int]] = {}       # what became of each part
        for number, c in enumerate(codes.tolist()):
            pieces.setdefault(c // 2, []).append(number)
        sums = [([piece for p in of for piece in pieces[p]], who) for of, who in self.sums]
        mine = np.flatnonzero(codes % 2).tolist()
        if (mine, names) in sums and len(codes) == P:
            return
        self.rows, self.part = np.insert(self.rows, place, new), np.searchsorted(codes, code)
        self.sums = [*sums, (mine, names)]
        if self.file is not None:
            with atomic(self.file, "wb") as handle:
                np.savez(handle, rows=self.rows, part=self.part, sums=np.frombuffer(
                    json.dumps(self.sums).encode(), np.uint8))
            self._read_at = self.file.stat().st_mtime_ns

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the file alone, and what other runs wrote in it read."""
        if self.file is None:
            yield
            return
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise NotWritten(f"{self.file} could not be written: {error.strerror or error}; no "
                             "sum is given before it is noted.") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if self.file.exists() and self.file.stat().st_mtime_ns != self._read_at:
                self._read()
            yield
        finally:
            os.close(handle)

    def _read(self) -> None:
        assert self.file is not None
        at = self.file.stat().st_mtime_ns
        try:
            with np.load(self.file, allow_pickle=False) as found:
                self.rows, self.part = found["rows"], found["part"]
                self.sums = [(of, names) for of, names in json.loads(found["sums"].tobytes())]
            if len(self.rows) != len(self.part):
                raise ValueError
        except (OSError, ValueError, KeyError, BadZipFile) as error:
            raise FedvineError(f"{self.file} is damaged; it says which rows sums were of. Restore "
                               "it from a backup.") from error
        self._read_at = at


def answered(client: Client) -> Any:
    """Return what the client's sums were of; in one process it is kept in memory."""
    if client.answered is None:
        client.answered = Answered()
    return client.answered
