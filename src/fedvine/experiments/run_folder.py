"""A run folder: everything a run leaves behind, and all that it needs to go on.

- ``experiment.toml``: the resolved experiment; a folder of another experiment is refused
- ``metrics.jsonl``: one line a stage and client: counts and scores
- ``messages.jsonl``: one line a call: clients, bytes down and up, seconds
- ``summary.json``: written last; a run that has it is finished
- ``saves/``: the two last saves: memory of server and clients at one moment (safetensors), with
  checksums that belong to this experiment
- ``data/``: a copy of the stream and its parts, of a run made from Python alone
- ``.lock``: held by the process that carries the run out

A folder may come from somebody else: links in it are not followed, and what was changed is refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tomlkit
from safetensors import SafetensorError

from fedvine.core import renamed
from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic, atomic_folder
from fedvine.core.message import Packed
from fedvine.experiments import saves
from fedvine.experiments.differ import difference
from fedvine.experiments.saves import checked, moment, read_packs, write_packs

__all__ = ["RunFolder", "Save", "checked", "moment", "read_experiment", "read_lines", "read_packs",
           "read_summary", "write_packs"]

_LOGS = ("metrics.jsonl", "messages.jsonl")
_KEYS = {"metrics.jsonl": {"t", "stage", "client", "n", "scores"}}


class Save(NamedTuple):
    """Memory of both sides at one moment: after round ``r`` of stage ``t`` (R + 1: scored)."""

    t: int
    r: int
    server: Packed
    clients: dict[str, Packed]
    seconds: float


class RunFolder:
    """One run on disk. Raises :class:`FedvineError` if it belongs to another experiment."""

    def __init__(self, path: str | os.PathLike[str], experiment: Mapping[str, Any]) -> None:
        self.path = Path(path)
        text = tomlkit.dumps(_plain(experiment))
        file = self.path / "experiment.toml"
        _refuse_links(self.path)
        try:
            there = file.exists()
            taken = not there and self.path.exists() and any(
                p for p in self.path.iterdir() if p.name[0] != ".")
        except OSError as error:
            raise FedvineError(f"{self.path} cannot be a run folder ({error.strerror}); "
                               "choose another one with --out.") from error
        if taken:
            raise FedvineError(f"{self.path} is a folder with other things in it; "
                               "choose another one with --out.")
        if there:
            differs = difference(tomllib.loads(text), _today(read_experiment(self.path)))
            if differs:
                raise FedvineError(f"{self.path} holds a run of another experiment ({differs}); "
                                   "choose another folder with --out or delete it.")
        else:
            with atomic(file, "w") as handle:
                handle.write(text)
        self._key = bytes.fromhex(saves.digest_of(read_experiment(self.path)))
        self._sums: dict[str, Any] = {}     # of the logs, as they grow

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """While this lasts no other process (or run) writes to the folder.

        Raises :class:`FedvineError` if one does.
        """
        try:
            lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise FedvineError(f"{self.path}/.lock cannot be used ({error.strerror}); delete it."
                               ) from error
        with open(lock, "rb+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise FedvineError(f"Another process is carrying out the run in {self.path}; wait "
                                   "for it, or choose another folder with --out.") from error
            yield

    def keep(self, split: Any) -> None:
        """Keep a stream and its parts in ``data/``, for a run whose data nothing else names."""
        if not (self.path / "data").exists():
            with atomic_folder(self.path / "data") as folder:
                split.stream.write(folder / "stream")
                split.write(folder)

    # -- logs ----------------------------------------------------------------------------------
    def append(self, log: str, lines: list[dict[str, Any]]) -> None:
        """Add lines to ``metrics.jsonl`` or ``messages.jsonl``."""
        try:
            text = "".join(json.dumps(line) + "\n" for line in lines).encode()
            self._sum(log).update(text)
            with open(self.path / log, "ab", opener=_no_link) as file:
                file.write(text)
        except OSError as error:
            raise FedvineError(f"{self.path / log} could not be written: {error.strerror}; free "
                               "space and give the same command again, it goes on.") from error

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the summary: the run is finished."""
        with atomic(self.path / "summary.json", "w") as file:
            json.dump(summary, file, indent=1)

    # -- saves ---------------------------------------------------------------------------------
    def save(self, save: Save) -> None:
        """Keep a save and drop all but the last two."""
        name, sizes = moment(save.t, save.r), {}
        for log in _LOGS:  # what a resumed run cuts the logs back to
            file = self.path / log
            if file.exists():
                with open(file, "rb") as handle:
                    os.fsync(handle.fileno())
                    sizes[log] = os.fstat(handle.fileno()).st_size
        position = {"t": save.t, "r": save.r, "logs": sizes, "seconds": save.seconds}
        with atomic_folder(self._saves / name) as folder:
            saves.write({"server": save.server}, folder / "server.safetensors", self._at(name))
            saves.write(save.clients, folder / "clients.safetensors", self._at(name))
            (folder / "position.json").write_text(json.dumps(
                {**position, "sum": self._position_sum(position)}))
        for old in sorted(self._saves.glob("[0-9]*"))[:-2]:
            shutil.rmtree(old, ignore_errors=True)

    @property
    def _saves(self) -> Path:
        return self.path / "saves"

    def _at(self, name: str) -> bytes:
        """The key of checksums of one moment."""
        return self._key + name.encode()

    def _sum(self, log: str, size: int | None = None) -> Any:
        """The hash of a log's first ``size`` bytes, or of all it holds, then kept up to date."""
        if size is None and log in self._sums:
            return self._sums[log]
        file = self.path / log
        found = hashlib.blake2b(file.read_bytes()[:size] if file.exists() else b"", digest_size=16)
        if size is None:
            self._sums[log] = found
        return found

    def _position_sum(self, position: Mapping[str, Any], known: bool = False) -> str:
        """The checksum of a position and of the logs up to it, at a save or (``known``) later."""
        logs = {log: self._sum(log, size if known else None).hexdigest()
                for log, size in position["logs"].items()}
        return saves.digest_of([position, logs], self._key)

    def restore(self, common: set[str] | None = None, end: str | None = None) -> Save | None:
        """The last readable save; the logs are cut back to it. None at the start of a run.

        ``common`` are the moments that clients elsewhere can go back to. ``end`` is the last
        moment of a finished run: no other save will do, and its logs stay as they are. Raises
        :class:`FedvineError` when there are saves but none can be read, or not that of the end.
        """
        broken = []
        for folder in ([self._saves / end] if end else
                       sorted(self._saves.glob("[0-9]*"), reverse=True)):
            if common is not None and folder.name not in common:
                continue
            try:
                position = json.loads((folder / "position.json").read_text())
                known = position.pop("sum", "")
                if folder.name != moment(position["t"], position["r"]):
                    raise ValueError("position.json is that of another moment")
                for log in _LOGS:
                    read_lines(self.path, log, position["logs"].get(log, 0))
                if known != self._position_sum(position, known=True):
                    raise ValueError("position.json or a log was changed, or is another run's")
                key = self._at(folder.name)
                found = Save(position["t"], position["r"],
                             saves.read(folder / "server.safetensors", key)["server"],
                             saves.read(folder / "clients.safetensors", key), position["seconds"])
            except (OSError, ValueError, KeyError, TypeError, AttributeError,
                    SafetensorError) as error:
                broken.append(f"{folder.name} ({getattr(error, 'strerror', None) or error})")
                continue
            if not end:
                self._cut(position["logs"])
            return found
        if broken or end:
            raise FedvineError(f"{self.path} has no save that can be read: {', '.join(broken)}; "
                               + ("delete its summary.json and give the run's command again."
                                  if end else "delete the folder to start afresh."))
        self._cut({})
        return None

    def _cut(self, sizes: Mapping[str, int]) -> None:
        for log in _LOGS:
            if (self.path / log).exists():
                with open(self.path / log, "rb+", opener=_no_link) as file:
                    file.truncate(sizes.get(log, 0))
        self._sums = {}


def _today(found: dict[str, Any]) -> dict[str, Any]:
    """Return a run's experiment with its method's fields under today's names."""
    data = found.get("data")
    if isinstance(data, dict) and isinstance(data.get("experiment"), dict):
        found = {**found, "data": {**data, "experiment": _today(data["experiment"])}}
    if isinstance(found.get("method"), dict):
        found = {**found, "method": renamed.fields(found["method"], silent=True)}
    return found


def read_experiment(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The resolved experiment of a run folder.

    Raises :class:`FedvineError` if it is none, or holds a link or anything else that is neither a
    file nor a folder.
    """
    _refuse_links(Path(path))
    try:
        return tomllib.loads((Path(path) / "experiment.toml").read_text("utf-8"))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise FedvineError(f"{path} is not a run folder (experiment.toml: {why}); give the folder "
                           "that fedvine run --out wrote.") from error


def read_summary(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The summary of a finished run, else None."""
    try:
        found = json.loads((Path(path) / "summary.json").read_text("utf-8"))
        if not isinstance(found, dict) or not isinstance(found.get("scores"), dict):
            raise ValueError("it has no scores")
        return found
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise FedvineError(f"{path}/summary.json cannot be read ({error}); delete it and give the "
                           "run's command again.") from error


def read_lines(path: str | os.PathLike[str], log: str, size: int | None = None
               ) -> list[dict[str, Any]]:
    """The whole lines of a log, or its first ``size`` bytes; a last line cut short is left out.

    Raises :class:`FedvineError` for a line that a run cannot have written, or too few bytes.
    """
    file, found = Path(path) / log, []
    text = file.read_bytes() if file.exists() else b""
    if size is not None and len(text) < size:
        raise FedvineError(f"{log} has lost its end")
    for number, line in enumerate(text[:size].split(b"\n")[:-1], 1):
        try:
            found.append(json.loads(line))
            if not _KEYS.get(log, {"t"}) <= found[-1].keys():
                raise ValueError
        except (ValueError, AttributeError) as error:
            raise FedvineError(f"{log}, line {number} was not written by a run") from error
    return found


def _refuse_links(path: Path) -> None:
    for place, folders, files in os.walk(path):     # not through links either
        for entry in (Path(place) / name for name in (*folders, *files)):
            kind = entry.lstat().st_mode
            if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
                raise FedvineError(f"{entry} is a link or no file at all, which a run does not "
                                   "make; delete it, or do not use this folder.")


def _no_link(path: str, flags: int) -> int:
    """Opens a file for :func:`open`, but not through a link."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _plain(value: Any) -> Any:
    """TOML has no null: what is None is left out."""
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items() if v is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value
