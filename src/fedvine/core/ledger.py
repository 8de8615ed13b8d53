"""Keep what a client has released with noise, in a file that is written before a release is sent.

A release is an upload at a place of a run, among certain participants. Its noise follows from a key
of 32 bytes of the operating system. The key is on disk before the upload leaves, so that a round
which is played again, after a kill or a lost answer, sends the same bytes, and reveals nothing
more. A release that differs in anything, for example in who else takes part, gets a key of its own
and is charged again: two uploads under one noise would show their difference.

The charge is the rho of zero-concentrated differential privacy (Bun and Steinke, TCC 2016), which
adds up over releases. A ledger spans all runs of the client, as they are about the same table.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError, NotWritten
from fedvine.core.files import atomic, write_whole

Fresh = Callable[[str], bytes]      # a release's name -> 32 random bytes


class Spent(FedvineError):
    """A client's limit on its losses of privacy is reached: it does not answer."""


class Ledger:
    """The releases of one client.

    Args:
        file: of lines of JSON, for its user alone; None: in memory, for a run without a folder.
        client: its name.
        run: releases of another run have another noise.
        limit: largest epsilon at ``delta`` of all releases of all runs together; None: no limit.
        delta: of the limit.
        fresh: makes a key. By default the operating system does; tests give a seeded one
            (:func:`seeded`). No setting of an experiment reaches this argument.
    """

    def __init__(self, file: Path | None = None, client: str = "", run: str = "", *,
                 limit: float | None = None, delta: float = 1e-5, fresh: Fresh | None = None
                 ) -> None:
        self.client, self.run, self.limit, self.delta = client, run, limit, delta
        self.fresh: Fresh = fresh or (lambda name: secrets.token_bytes(32))
        self._lines: list[dict[str, Any]] = []
        self.file = file

    @property
    def file(self) -> Path | None:
        """Return where the releases are kept; setting it reads those that are there."""
        return self._file

    @file.setter
    def file(self, file: Path | None) -> None:
        self._file = file
        if file is not None and file.exists():
            self._lines = _read(file)

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
        names = sorted(participants)
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
        self._append({"release": name, "content": content.hex(), "key": key.hex(), "rho": rho})
        return key

    def opened(self, key: bytes, came: Iterable[str]) -> None:
        """Note whose uploads are in the sum that the release with this ``key`` is in.

        A release that was opened without somebody is not repeated: :meth:`key` makes a new one.
        Raises :class:`FedvineError` where the sum was opened before, of other clients: the two
        would show the upload of those that are in one of them alone. The next attempt is a new
        release.
        """
        line, names = next(x for x in self._lines if x["key"] == key.hex()), sorted(came)
        if line.get("came", names) != names:
            self._append({"of": line["key"], "came": []}, line)
            raise FedvineError("The server would open a sum a second time, of other clients; "
                               "refused. Another attempt has other noise.")
        if "came" not in line:
            self._append({"of": line["key"], "came": names}, line)

    def spent(self) -> float:
        """Return the rho of all releases."""
        return sum(line.get("rho") or 0.0 for line in self._lines)

    def summary(self) -> dict[str, Any]:
        """Return the number of releases with a promise, and what they cost together."""
        charged = [line for line in self._lines if line.get("rho") is not None]
        return {"releases": len(charged), "epsilon": epsilon(self.spent(), self.delta),
                "delta": self.delta, "limit": self.limit}

    def _append(self, line: dict[str, Any], of: dict[str, Any] | None = None) -> None:
        """Write a release, or, with ``of``, who came to one."""
        if self._file is not None:
            try:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                handle = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                try:
                    write_whole(handle, (json.dumps(line) + "\n").encode())
                    os.fsync(handle)
                finally:
                    os.close(handle)
            except OSError as error:
                raise NotWritten(f"{self._file} could not be written: {error.strerror or error}; "
                                 "nothing with noise leaves before its noise is kept.") from error
        if of is None:
            self._lines.append(line)
        else:
            of["came"] = line["came"]


def _read(file: Path) -> list[dict[str, Any]]:
    """Return the releases; a last line that a kill cut off was never sent, and is removed."""
    text = file.read_text("utf-8")
    whole, _, torn = text.rpartition("\n")
    if torn:
        with atomic(file, "w") as handle:
            handle.write(whole + "\n" if whole else "")
        file.chmod(0o600)
    lines: list[dict[str, Any]] = []
    by_key: dict[str, dict[str, Any]] = {}
    for number, row in enumerate(whole.splitlines(), 1):
        try:
            line = json.loads(row)
            if "of" in line:
                by_key[line["of"]]["came"] = line["came"]
            else:
                by_key[line["key"]] = line
                lines.append(line)
        except (ValueError, KeyError, TypeError) as error:
            raise FedvineError(f"{file}, line {number} is no release; without it nobody knows what "
                               "was spent: restore the file from a backup.") from error
    return lines


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
