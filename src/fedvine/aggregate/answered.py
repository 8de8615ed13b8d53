"""Remember which rows a client's sums were of, and of which clients: no two differ by a few rows.

The difference of two sums of the same rows, one without a client, is that client's part; the
difference of two sums of nearly the same rows of the same clients is of the rows in one of them
alone. So a client keeps a hash of each row that was in a sum, and when a stage begins decides what
it gives:

- the same rows as before: for a sum in which the others give what they gave then, and no other;
  those of other sums than before, as where stages are cut otherwise, wait for new ones
- rows that are new, fewer than ``grain``: they wait, and are in the next stage's; what came before
  is given for a sum of the same clients as before
- rows of which only some were in a sum before, so that fewer than ``grain`` are left out or alone,
  as when a cell of the table was changed: none of the stage
- other rows: for a sum of any clients

Each client says with its keys for a sum what it gives, its ``content``: a hash of these rows under
a key of its own, or "" where it adds 0. So a client that adds 0 now, and did not before, is to the
others as one that is away.

What is kept are disjoint parts of all rows, where those of one part were in the same sums, and of
each sum its parts, and the contents by client. A site keeps them for all its runs, in a file that
is written before a sum can be opened.
"""

from __future__ import annotations

import fcntl
import hashlib
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
Contents = dict[str, str]       # what clients give, without those that give nothing


class Given(NamedTuple):
    """State what of a stage is in sums: its rows are ``in``, ``wait``, or are left ``out``.

    ``listed`` is what a sum must be of, as :func:`fits` reads it.
    """

    kind: Kind
    listed: Contents = {}       # noqa: RUF012 - never changed


def fits(listed: Contents, contents: Contents) -> bool:
    """Return whether a sum of ``contents`` is of what is ``listed``: {} any, "" any of a client."""
    return not listed or (listed.keys() == contents.keys() and all(
        content in ("", contents[name]) for name, content in listed.items()))


class Answered:
    """The rows that were in sums, in ``file``; None: in memory."""

    def __init__(self, file: Path | None = None) -> None:
        self.file, self._read_at = file, 0
        self.key = os.urandom(16)               # of the hashes that others see
        self.rows = np.empty(0, np.uint64)      # ascending
        self.part = np.empty(0, np.int64)       # of each row
        # Its parts, whether it was also of rows of earlier stages, and what was in it.
        self.sums: list[tuple[list[int], bool, Contents]] = []

    def stage(self, client: Client, grain: int) -> Kind:
        """Return what of the client's stage is in sums.

        The memory ``client.summed`` has its rows and those that waited, whether they were
        ``given``, the ``content`` that was given last, and those of all in the ``last`` sum.
        """
        was, t = vars(client).get("summed"), client.place[0]
        if was is None or was["t"] != t:
            rows = unique(rows_of(client.stage))
            if was is not None and not was["given"] and was["kind"] != "out":
                rows = unique(np.concatenate([was["rows"], rows]))
            with self._alone():
                kind = self.given(rows, grain).kind
            client.summed = was = {"t": t, "rows": rows, "kind": kind, "given": False,
                                   "content": "" if was is None else was["content"],
                                   "last": {} if was is None else was["last"]}
        return was["kind"]

    def terms(self, client: Client, grain: int, whole: bool) -> dict[str, Any]:
        """Return the ``content`` of the client in a sum of this stage, and what is ``listed``.

        ``whole``: the sum is also of rows of earlier stages.
        """
        kind, was = self.stage(client, grain), client.summed
        if self.sits_out(client, grain, whole):
            return {"listed": {}, "content": ""}
        with self._alone():
            fresh = kind == "in" and len(was["rows"]) > 0
            return {"listed": self._listed(client, grain, whole), "content": self._content(
                was["rows"]) if fresh else was["content"] if whole and kind != "out" else ""}

    def agree(self, client: Client, contents: Contents, grain: int, whole: bool) -> None:
        """Keep that the client's stage is in a sum of ``contents``, by client; "": it adds 0.

        Raises :class:`FedvineError` where it must be of others.
        """
        kind, found = self.stage(client, grain), {n: c for n, c in contents.items() if c}
        rows, other = client.summed["rows"], self.sits_out(client, grain, whole)
        if other and client.name not in found:      # it adds 0
            return
        with self._alone():
            if other or not fits(self._listed(client, grain, whole), found):
                raise FedvineError("The server would open a sum of what was in one of others "
                                   "before, and the difference would show one of them; "
                                   "refused. What is new goes into the next stage's.")
            if kind == "in":
                self._keep(rows, found, whole)
            content = self._content(rows) if kind == "in" and len(rows) else ""
        client.summed = {**client.summed, "given": client.summed["given"] or kind == "in",
                         "content": content or client.summed["content"], "last": found}

    def sits_out(self, client: Client, grain: int, whole: bool) -> bool:
        """Return whether the stage is in sums, but not in those that are ``whole``, or are not."""
        if self.stage(client, grain) != "in" or not len(client.summed["rows"]):
            return False
        with self._alone():
            return self.given(client.summed["rows"], grain, whole).kind != "in"

    def given(self, rows: np.ndarray, grain: int, whole: bool = False) -> Given:
        """Return what is given of ``rows`` uint64 [n], ascending, none twice.

        Sums that are also of earlier stages (``whole``) and those that are not are of different
        vectors, so that none of one kind is taken from one of the other: a row is new to each.
        """
        at = find(self.rows, rows)
        mine, all_of = (np.bincount(part, minlength=self._parts)
                        for part in (self.part[at[at >= 0]], self.part))
        if ((mine > 0) & (mine < all_of) & (np.minimum(mine, all_of - mine) < grain)).any():
            return Given("out")
        before = [(set(of), there) for of, also, there in self.sums if also == whole]
        met = set[int]().union(*(of for of, _ in before))
        parts = set(np.flatnonzero(mine).tolist())
        new = int((at < 0).sum()) + int(sum(mine[part] for part in parts - met))
        if 0 < new < grain:
            return Given("wait")
        if new or not parts:
            return Given("in")
        same = [there for of, there in before if of == parts]
        whole_parts = bool((mine[sorted(parts)] == all_of[sorted(parts)]).all())
        return Given("in", same[-1]) if same and whole_parts else Given("wait")

    @property
    def _parts(self) -> int:
        return int(self.part.max(initial=-1)) + 1

    def _listed(self, client: Client, grain: int, whole: bool) -> Contents:
        was = client.summed
        if was["kind"] == "in" and len(was["rows"]):
            return self.given(was["rows"], grain, whole).listed
        return dict.fromkeys(was["last"], "") if whole and was["kind"] != "out" else {}

    def _content(self, rows: np.ndarray) -> str:
        """Return the hash of rows uint64 [n] that others see; nobody can test a guess by it."""
        return hashlib.blake2b(rows.tobytes(), key=self.key, digest_size=16).hexdigest()

    def _keep(self, rows: np.ndarray, contents: Contents, whole: bool) -> None:
        """Cut the parts by ``rows``, and note that these were in a sum of ``contents``."""
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
        sums = [([piece for p in of for piece in pieces[p]], also, there)
                for of, also, there in self.sums]
        mine = np.flatnonzero(codes % 2).tolist()
        if (mine, whole, contents) in sums and len(codes) == P:
            return
        self.rows, self.part = np.insert(self.rows, place, new), np.searchsorted(codes, code)
        self.sums = [*sums, (mine, whole, contents)]
        self._write()

    def forget(self, rows: np.ndarray) -> None:
        """Put random numbers in place of the hashes ``rows`` uint64 [n], of persons to be erased.

        That there was a row is still known, so no other sum is given of what is left beside it.
        """
        with self._alone():
            at = find(self.rows, unique(rows))
            at = at[at >= 0]
            if not len(at):
                return
            found = np.array(self.rows)
            found[at] = np.frombuffer(os.urandom(8 * len(at)), np.uint64)
            order = np.argsort(found, kind="stable")
            self.rows, self.part = found[order], self.part[order]
            self._write()

    def _write(self) -> None:
        if self.file is not None:
            with atomic(self.file, "wb") as handle:
                np.savez(handle, rows=self.rows, part=self.part, sums=np.frombuffer(
                    json.dumps([self.key.hex(), *self.sums]).encode(), np.uint8))
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
                key, *sums = json.loads(found["sums"].tobytes())
                self.key, self.sums = bytes.fromhex(key), [tuple(one) for one in sums]
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
