"""A run folder: everything that a run writes, and all that it needs to go on.

- ``experiment.toml``: the resolved experiment; a folder of another experiment is refused
- ``metrics.jsonl``: one line a stage and client: counts and scores
- ``messages.jsonl``: one line a call: clients, bytes down and up, seconds
- ``clients.json``: bytes and seconds of each client at the newest save, for people
- ``summary.json``: written last; a run that has it is finished
- ``saves/``: the two last saves: memory of server and clients at one time (safetensors), with
  checksums that belong to this experiment
- ``data/``: the rows that the run has learned, and the newest plan
- ``.lock``: held by the process that carries the run out

A folder may come from another person: links in it are not followed, and changed files are refused.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tomlkit
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from fedvine.core.errors import Busy, FedvineError
from fedvine.core.files import atomic, atomic_folder
from fedvine.core.message import Packed, pack, unpack
from fedvine.experiments import run_files
from fedvine.experiments.run_files import (
    WRITTEN,
    Logs,
    read_experiment,
    read_lines,
    read_summary,
    zone,
)
from fedvine.living.rows import StoredRows

# -- the memory of a client or the server on disk: safetensors with a checksum, nothing unpickled --
# A checksum is made with a key (of the experiment, and of the save's name), so that a save that was
# changed, or that belongs to another run or another place in it, is refused.
_SAVED = "1"        # the format of a save; raised when an older one is not read


def checkpoint(t: int, r: int) -> str:
    """Return the name of the save after round ``r`` of stage ``t``; names sort as the saves do."""
    return f"{t:06d}-{r:06d}"


def checked_save(name: str) -> str:
    """Return the name of a save, which becomes a folder's; raise for any other text."""
    if not re.fullmatch(r"[0-9]{6}-[0-9]{6}", name):
        raise FedvineError(f"{name!r} is not the name of a checkpoint; refused.")
    return name


def digest_of(value: Any, key: bytes = b"") -> str:
    """Return 32 hex digits that identify plain values under a ``key`` of at most 64 bytes."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16, key=key).hexdigest()


def write_packs(packs: Mapping[str, Packed], folder: Path, key: bytes = b"") -> None:
    """Write a folder with one safetensors file, whole or not at all."""
    with atomic_folder(folder) as target:
        _write_save(packs, target / "client.safetensors", key)


def read_packs(folder: Path, key: bytes = b"") -> dict[str, Packed]:
    """Return what :func:`write_packs` wrote; raise if it cannot be read or was changed."""
    try:
        return _read_save(folder / "client.safetensors", key)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise FedvineError(f"{folder} cannot be read ({error}); delete it, an earlier save will "
                           "be used.") from error


def _write_save(packs: Mapping[str, Packed], file: Path, key: bytes = b"") -> None:
    """Write packs as one safetensors file. Raises :class:`OSError` for a full disk."""
    tensors = {f"{number}/{i}": buffer for number, pack in enumerate(packs.values())
               for i, buffer in enumerate(pack.buffers)}
    skeletons = {name: base64.b64encode(pack.skeleton).decode() for name, pack in packs.items()}
    try:
        save_file(tensors or {"none": np.zeros(0, np.uint8)}, file,
                  {"format": _SAVED, "packs": json.dumps(skeletons), "sum": _sum(packs, key)})
    except SafetensorError as error:  # a full disk, above all
        raise OSError(str(error)) from error


def _read_save(file: Path, key: bytes = b"", check: bool = True) -> dict[str, Packed]:
    """Return what :func:`write` wrote with this key; raise :class:`ValueError` if it changed."""
    with safe_open(file, "numpy") as tensors:
        held: dict[int, list[tuple[int, str]]] = {}
        for name in tensors.keys():  # noqa: SIM118 (not a dict)
            if "/" in name:
                number, i = name.split("/")
                held.setdefault(int(number), []).append((int(i), name))
        notes = tensors.metadata() or {}
        if notes.get("format") != _SAVED:
            raise ValueError(f"{file.name} was written by another version of fedvine")
        found = {name: Packed(base64.b64decode(skeleton),
                              [tensors.get_tensor(t) for _, t in sorted(held.get(number, []))])
                 for number, (name, skeleton) in enumerate(json.loads(notes["packs"]).items())}
    if check and notes.get("sum") != _sum(found, key):
        raise ValueError(f"{file.name} was changed, or is another run's")
    return found


def _sum(packs: Mapping[str, Packed], key: bytes) -> str:
    """Return the checksum of packs under a key, 32 hex digits."""
    found = hashlib.blake2b(digest_size=16, key=key)
    for name, one in packs.items():
        facts = [name, len(one.skeleton), [(b.dtype.str, b.shape) for b in one.buffers]]
        found.update(json.dumps(facts).encode())
        found.update(one.skeleton)
        for buffer in one.buffers:
            found.update(np.ascontiguousarray(buffer).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def learned(place: Path) -> str | None:
    """Return the SHA-256 of what a run folder's newest save remembers; None where there is none.

    Times and the checksums under the run's own key are left out: equal runs give equal ones.
    """
    saves = sorted(place.glob("saves/[0-9]*"))
    if not saves:
        return None
    found = hashlib.sha256()
    for path in saves[-1] / "server.safetensors", saves[-1] / "clients.safetensors":
        packs = _read_save(path, check=False)
        if path.stem == "server":
            packs = {"server": pack(unpack(packs["server"])["server"])}
        found.update(_sum(packs, b"").encode())
    return found.hexdigest()


__all__ = ["RunFolder", "Save", "checked_save", "checkpoint", "learned", "read_experiment",
           "read_lines", "read_packs", "read_summary", "write_packs", "zone"]


class Save(NamedTuple):
    """Memory of both sides after round ``r`` of stage ``t`` (R + 1: after the stage was scored).

    ``end`` is true for the save of R + 1. ``stages`` is the number of stages that the plan had
    then, None if it was not given; ``night`` those before the night that it was made in.
    """

    t: int
    r: int
    server: Packed
    clients: dict[str, Packed]
    seconds: float
    end: bool = False
    stages: int | None = None
    night: int | None = None


def tidy(path: Path) -> None:
    """Delete unfinished files of processes that were killed; the folder must be locked."""
    for file in list(path.rglob(".*.tmp")):
        if file.is_dir():
            shutil.rmtree(file, ignore_errors=True)
        elif not file.name.startswith(f".{WRITTEN}."):      # which is written without the lock
            file.unlink(missing_ok=True)


class RunFolder:
    """The folder of one run; ``experiment`` None: of the run that is there.

    Raises :class:`FedvineError` if the folder holds another experiment or other files.
    """

    def __init__(self, path: str | os.PathLike[str], experiment: Mapping[str, Any] | None,
                 unfinished: str = "") -> None:
        self.path = Path(path)
        experiment = read_experiment(path, unfinished) if experiment is None else experiment
        plain = _plain(experiment)
        file = self.path / "experiment.toml"
        run_files.refuse_links(self.path)
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
        if there and experiment is not None:
            written = tomllib.loads(tomlkit.dumps(plain))
            differs = difference(written, read_experiment(self.path, unfinished))
            if differs:
                raise FedvineError(f"{self.path} holds a run of another experiment ({differs}); "
                                   "choose another folder with --out or delete it.")
        else:
            if not self.path.exists():      # its files hold what was learned: for its user alone
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.mkdir(mode=0o700, exist_ok=True)
            with atomic(file, "w") as handle:
                handle.write(tomlkit.dumps({"format": run_files.FORMAT, **plain}))
        self._key = bytes.fromhex(digest_of(read_experiment(self.path, unfinished)))
        self.logs = Logs(self.path)

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Lock the folder inside the ``with`` block; see :func:`alone`."""
        return alone(self.path)

    def keep(self, split: Any, plan: Any, **facts: Any) -> None:
        """Copy the data to ``data/``, unless it is there; ``facts`` as of :class:`StoredRows`."""
        if not (self.path / "data").exists():
            with atomic_folder(self.path / "data") as folder:
                StoredRows.create(folder, split, plan, **facts)

    # -- what people read ------------------------------------------------------------------------
    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the summary, which marks the run as finished."""
        with atomic(self.path / "summary.json", "w") as file:
            json.dump(summary, file, indent=1)

    def moved(self, by_client: Mapping[str, Mapping[str, float]]) -> None:
        """Write the bytes and the seconds of each client so far, for people who look at the run."""
        with atomic(self.path / "clients.json", "w") as file:
            json.dump(by_client, file)

    # -- saves ---------------------------------------------------------------------------------
    def save(self, save: Save) -> None:
        """Write a save; delete all but the last two, and the last one of the end of a stage."""
        name = checkpoint(save.t, save.r)
        if save.end:
            self.logs.add_up()
        position = {"t": save.t, "r": save.r, "logs": self.logs.sizes(), "seconds": save.seconds,
                    **({"end": True} if save.end else {}), "stages": save.stages,
                    **({} if save.night is None else {"night": save.night})}
        with atomic_folder(self._saves / name) as folder:
            _write_save({"server": save.server}, folder / "server.safetensors", self._at(name))
            _write_save(save.clients, folder / "clients.safetensors", self._at(name))
            (folder / "position.json").write_text(json.dumps(
                {**position, "sum": self._position_sum(position)}))
        kept = sorted(self._saves.glob("[0-9]*"))
        ends = [p for p in kept if
                run_files.read_object(p / "position.json").get("end")]
        needed = {*kept[-2:], *ends[-1:]}
        for old in kept:
            if old not in needed:
                shutil.rmtree(old, ignore_errors=True)
        self.logs.drop(run_files.read_object(p / "position.json").get("logs", {}) for p in needed)

    @property
    def _saves(self) -> Path:
        return self.path / "saves"

    def _at(self, name: str) -> bytes:
        """Return the key of the checksums of one save."""
        return self._key + name.encode()

    def _position_sum(self, position: Mapping[str, Any], known: bool = False) -> str:
        """Return the checksum of a position and of the logs up to it; ``known``: of a save."""
        return digest_of([position, self.logs.sums(position["logs"], known)], self._key)

    def restore(self, common: set[str] | None = None, end: str | None = None) -> Save | None:
        """Return the last readable save and cut the logs back to it; None at the start of a run.

        ``common`` are names of the saves that clients elsewhere can go back to, None: all. ``end``
        names a finished run's last save, the only one to use; logs stay as they are. Raises
        :class:`FedvineError` where no save can be read, though there are some, or not that of the
        end.
        """
        broken = []
        for folder in ([self._saves / end] if end else
                       sorted(self._saves.glob("[0-9]*"), reverse=True)):
            if common is not None and folder.name not in common:
                continue
            try:
                position = json.loads((folder / "position.json").read_text())
                known = position.pop("sum", "")
                if folder.name != checkpoint(position["t"], position["r"]):
                    raise ValueError("position.json is that of another checkpoint")
                self.logs.check(position["logs"])
                if known != self._position_sum(position, known=True):
                    raise ValueError("position.json or a log was changed, or is another run's")
                key = self._at(folder.name)
                found = Save(position["t"], position["r"],
                             _read_save(folder / "server.safetensors", key)["server"],
                             _read_save(folder / "clients.safetensors", key), position["seconds"],
                             position.get("end", False), position.get("stages"),
                             position.get("night"))
            except (OSError, ValueError, KeyError, TypeError, AttributeError,
                    SafetensorError) as error:
                broken.append(f"{folder.name} ({getattr(error, 'strerror', None) or error})")
                continue
            if not end:
                self.logs.cut(position["logs"])
            return found
        if broken or end:
            raise FedvineError(f"{self.path} has no save that can be read: {', '.join(broken)}; "
                               + ("delete the folder to start afresh." if not end else
                                  "give the run's command again."
                                  if not (self.path / "summary.json").exists() else
                                  "delete its summary.json and give the run's command again."))
        self.logs.cut({})
        return None


@contextlib.contextmanager
def alone(path: str | os.PathLike[str], name: str = ".lock", otherwise: str | None = None
          ) -> Iterator[None]:
    """Lock a run folder inside the ``with`` block; raise ``otherwise`` if another process did."""
    try:
        lock = os.open(Path(path) / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise FedvineError(f"{path}/{name} cannot be used ({error.strerror}); delete it."
                           if Path(path).is_dir() else f"There is no run in {path}.") from error
    with open(lock, "rb+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Busy(otherwise or f"Another process is carrying out the run in {path}; "
                       "wait for it, or choose another folder with --out.") from error
        yield


def _plain(value: Any) -> Any:
    """Return the value without keys that are None, which TOML does not have."""
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items() if v is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


# -- differences of two experiments, for the sentence that refuses a run folder --------------------
_LONG = 250         # characters; with more the keys alone are named


def difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Return the keys in which two resolved experiments differ, with both values; empty if none.

    Keys that only follow from another one (a digest from another table, the bounds of the stages
    from another data set) are named only where nothing else differs.
    """
    here, there = _flat(ours), _flat(theirs)
    if "data.names" not in there:   # written by a run that did not keep it
        here.pop("data.names", None)
    found: dict[str, str] = {}
    for place in sorted(here.keys() | there.keys()):
        if here.get(place) != there.get(place):
            if place.startswith("data.experiment.aggregate."):      # the method has all of them
                continue
            key = place.removeprefix("data.experiment.")
            key = key.replace("method.aggregate.", "aggregate.")
            x, y = there.get(place), here.get(place)
            found.setdefault(key, f"{key} is {_said(x, y)} there and {_said(y, x)} here")
    if "method.name" in found:      # another method has other fields
        found = {k: v for k, v in found.items() if not k.startswith("method.") or k[7:] == "name"}
    causes = {k: v for k, v in found.items() if not _follows(k)} or found
    text = "; ".join(causes.values())
    return text if len(text) <= _LONG else ", ".join(causes)


def _follows(key: str) -> bool:
    """Return whether a key's value follows from other keys."""
    return (key in ("data.digest", "data.names", "data.edges", "data.name")
            or key.startswith("stages."))


def _flat(table: Mapping[str, Any], under: str = "") -> dict[str, Any]:
    """Return nested tables as one: ``{"method": {"rounds": 3}}`` as ``{"method.rounds": 3}``."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= (_flat(value, f"{under}{key}.") if isinstance(value, Mapping)
                 else {f"{under}{key}": value})
    return flat


def _said(value: Any, other: Any) -> str:
    """Return a value as text; of a long one the part where it differs from the other."""
    text, beside = ("not set" if v is None else repr(v) for v in (value, other))
    if len(text) <= 60:
        return text
    differs = next((i for i, a in enumerate(text) if beside[i:i + 1] != a), len(text))
    at = max(0, min(differs - 15, len(text) - 54))
    return f"{'...' * (at > 0)}{text[at:at + 54]}{'...' * (at + 54 < len(text))}"
