"""A site's account of what left: one line a request, in ``<kit>/memory/account``.

Files are numbered and end at :data:`LARGEST` bytes; of more than :data:`KEPT` the oldest is summed
into ``sums.json`` and deleted, so that the account is bounded and its sums are whole. Refusals are
also counted in ``refusals.json``, by kind, which no number of requests pushes out.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedvine.core.files import atomic, write_whole

_LOG = logging.getLogger(__name__)
LARGEST, KEPT = 1_000_000, 8    # bytes of a file, files
SENTENCE = 500      # characters of a sentence that are kept
MANY = 1000         # sums that are kept; of more those of the oldest runs become one
FOLDER, NOTHING = "account", "nothing"


class Account:
    """Lines about requests, in ``folder``; made at the first line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.last: dict[str, Any] = {}      # the last line of this process

    def add(self, **line: Any) -> None:
        """Write one line: run, function, kind, bytes "in" and "out"; "why" of a refusal.

        A full disk does not stop a site: the line is then lost, and the log says so.
        """
        if "why" in line:
            line["why"] = " ".join(line["why"].split())[:SENTENCE]
        self.last = {"at": datetime.now(UTC).isoformat(timespec="seconds"), **line}
        text = json.dumps(self.last) + "\n"
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(self.folder, os.O_RDONLY)
        except OSError as error:
            _LOG.error("the account in %s could not be written: %s", self.folder, error)
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)    # join and the process of a job both write
            files = _files(self.folder)
            number = int(files[-1].stem) if files else self._counted() + 1
            if files and files[-1].stat().st_size + len(text) > LARGEST:
                number += 1
            file = os.open(self.folder / f"{number:08}.jsonl",
                           os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
            try:
                write_whole(file, text.encode())
            finally:
                os.close(file)
            for old in _files(self.folder)[:-KEPT]:
                self._count(old)
            if "why" in line:
                self._refused(self.last)
        except OSError as error:
            _LOG.error("the account in %s could not be written: %s", self.folder, error)
        finally:
            os.close(lock)

    def _refused(self, line: dict[str, Any]) -> None:
        """Count a refusal by its code and function, with the first one's sentence."""
        found = self.refused()
        one = found.setdefault(f"{line.get('code', '')} {line['function']}", {
            "count": 0, "why": line["why"], "run": line["run"], "first": line["at"]})
        one |= {"count": one["count"] + 1, "last": line["at"]}
        with atomic(self.folder / "refusals.json", "w") as file:
            json.dump(found, file)

    def refused(self) -> dict[str, dict[str, Any]]:
        """Return refusals by code and function: count, first and last time, the first's reason."""
        with contextlib.suppress(OSError, ValueError):
            return json.loads((self.folder / "refusals.json").read_text("utf-8"))
        return {}

    def forget(self, words: Iterable[str]) -> None:
        """Take the reasons of refusals out that have one of ``words``, names of erased persons."""
        fits = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, words))})(?![\w-])")
        refused = {key: {**one, "why": fits.sub("...", one["why"])}
                   for key, one in self.refused().items()}
        if refused != self.refused():
            with atomic(self.folder / "refusals.json", "w") as file:
                json.dump(refused, file)
        for old in _files(self.folder):
            lines = [{**line, "why": fits.sub("...", line["why"])} if "why" in line else line
                     for line in _lines(old)]
            if lines != list(_lines(old)):
                with atomic(old, "w") as file:
                    file.writelines(json.dumps(line) + "\n" for line in lines)

    def sums(self) -> list[dict[str, Any]]:
        """Return a line for each run, function and kind: requests, bytes in and out, from, to."""
        kept, counted = _sums(self.folder)
        for file in _files(self.folder):
            if int(file.stem) > counted:
                _into(kept, _lines(file))
        return [dict(zip(("run", "function", "kind"), key, strict=True), **value)
                for key, value in sorted(kept.items())]

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the lines that are kept, oldest first."""
        for file in _files(self.folder):
            yield from _lines(file)

    def since(self, after: int) -> tuple[list[dict[str, Any]], int]:
        """Return the lines from byte ``after`` on, and where they end.

        ``after`` below 0: none. Ends count on from file to file.
        """
        files, found, end = _files(self.folder), [], max(0, after)
        for path in files:
            start = int(path.stem) * 10 * LARGEST
            size = path.stat().st_size
            if after < 0 or (path != files[-1] and start + size <= after):
                end = start + size
                continue
            with open(path, "rb") as file:
                file.seek(max(0, after - start))
                text = file.read(LARGEST)
            text = text[:text.rfind(b"\n") + 1]      # a line that is being written comes next time
            found += _read(text.decode("utf-8", "replace"))
            end = max(after, start) + len(text)
        return found, end

    def _counted(self) -> int:
        return _sums(self.folder)[1]

    def _count(self, old: Path) -> None:
        """Sum a file and delete it; after a kill between the two it is not summed again."""
        kept, counted = _sums(self.folder)
        if int(old.stem) > counted:
            _into(kept, _lines(old))
            for key in sorted(kept, key=lambda key: kept[key]["to"])[:len(kept) - MANY]:
                _add(kept, ("earlier runs", *key[1:]), kept.pop(key))
            with atomic(self.folder / "sums.json", "w") as file:
                json.dump({"counted": int(old.stem), "sums": [
                    [*key, value] for key, value in sorted(kept.items())]}, file)
        old.unlink(missing_ok=True)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9]*.jsonl"))


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    return _read(file.read_text("utf-8", "replace"))


def _read(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        with contextlib.suppress(ValueError):       # one may be cut short, on a full disk
            yield json.loads(line)


def _sums(folder: Path) -> tuple[dict[tuple[str, str, str], dict[str, Any]], int]:
    file = folder / "sums.json"
    if not file.exists():
        return {}, 0
    found = json.loads(file.read_text("utf-8"))
    return {(run, function, kind): value for run, function, kind, value in found["sums"]
            }, found["counted"]


def _into(sums: dict[tuple[str, str, str], dict[str, Any]], lines: Iterator[dict[str, Any]]
          ) -> None:
    for line in lines:
        _add(sums, (line["run"], line["function"], line["kind"]), {
            "requests": 1, "in": line["in"], "out": line["out"], "from": line["at"],
            "to": line["at"]})


def _add(sums: dict[tuple[str, str, str], dict[str, Any]], key: tuple[str, str, str],
         more: dict[str, Any]) -> None:
    if (one := sums.get(key)) is None:
        sums[key] = dict(more)
        return
    for name in ("requests", "in", "out"):
        one[name] += more[name]
    one["from"], one["to"] = min(one["from"], more["from"]), max(one["to"], more["to"])
