"""The files of a run folder, which may come from another person, and its logs as they grow."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedvine.core.errors import FedvineError, NotWritten
from fedvine.core.files import atomic
from fedvine.data.dates import Dates

FORMAT = 1          # of a run folder, in its experiment.toml; raised when an older one is not read
CHOICE = "auto.json"
PENDING = ".erased"     # in a run folder while persons are being erased
WRITTEN = "forecasts.json"      # where the forecasts of all users were written last
RECEIPTS = "receipts"           # of erasures
NIGHTS, BACK = "nights", ".back"    # what is kept of nights; there while a run goes back
_KEYS = {"t", "stage", "client", "n", "scores"}


def read_object(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file, an empty one where there is none that can be read."""
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def read_experiment(path: str | os.PathLike[str], unfinished: str = "") -> dict[str, Any]:
    """Return the resolved experiment of a run folder.

    Raises :class:`FedvineError` if the folder has none, is of another format, or holds anything but
    files and folders, such as a link; and while persons are being erased from it, or it goes back
    by a night, unless ``unfinished`` names that (:data:`PENDING`, :data:`BACK`).
    """
    refuse_links(Path(path))
    at_once = read_object(Path(path) / PENDING / "receipt.json").get("kind") == "at once"
    if (Path(path) / PENDING / "data").exists() or (at_once and unfinished != PENDING):
        raise FedvineError(f"An erasure in {path} was stopped on its way; give fedvine erase {path}"
                           ", which finishes it.")
    if (Path(path) / BACK).exists() and unfinished != BACK:
        raise FedvineError(f"{path} was going back to an earlier night, and was stopped; give "
                           f"fedvine rollback {path}, which finishes it.")
    try:
        found = tomllib.loads((Path(path) / "experiment.toml").read_text("utf-8"))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise FedvineError(f"{path} is not a run folder (experiment.toml: {why}); give the folder "
                           "that fedvine run --out wrote.") from error
    if found.pop("format", None) != FORMAT:
        raise FedvineError(f"{path} was written by another version of fedvine, which writes run "
                           "folders in another format; open it with that version, or run the "
                           "experiment again in another folder.")
    return found


def zone(experiment: Mapping[str, Any]) -> Dates:
    """Return the name of the time zone of a run folder's experiment; True: UTC."""
    return experiment["data"].get("experiment", {}).get("data", {}).get("timezone") or True


def read_summary(path: str | os.PathLike[str], stages: int = 0) -> dict[str, Any] | None:
    """Return the summary of a finished run, else None.

    A run whose plan has got more than its summary's stages since is not finished; ``stages`` is the
    number of the plan's. Raises :class:`FedvineError` if the summary cannot be read.
    """
    try:
        found = json.loads((Path(path) / "summary.json").read_text("utf-8"))
        if not isinstance(found, dict) or not isinstance(found.get("scores"), dict):
            raise ValueError("it has no scores")
        return found if found.get("stages", stages) >= stages else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise FedvineError(f"{path}/summary.json cannot be read ({error}); delete it and give the "
                           "run's command again.") from error


def read_choice(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return ``auto.json``, what ``fedvine run auto`` chose, or None; raise if it is unreadable."""
    try:
        found = json.loads((Path(path) / CHOICE).read_text("utf-8"))
        if not (isinstance(found, dict) and isinstance(found.get("chosen"), str)):
            raise ValueError("it names no method")
        return found
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise FedvineError(f"{path}/{CHOICE} cannot be read ({error}); delete the folder to choose "
                           "anew.") from error


def files_of(path: str | os.PathLike[str], log: str) -> list[str]:
    """Return the names of a log's files in their order; see :class:`Logs`."""
    fits = re.compile(re.escape(log.removesuffix(".jsonl")) + r"(-\d{6})?\.jsonl")
    try:
        found = [file.name for file in Path(path).iterdir() if fits.fullmatch(file.name)]
    except FileNotFoundError:
        return []
    return sorted(found, key=lambda name: (name != log, name))


def parts(path: str | os.PathLike[str], log: str) -> list[str]:
    """Return the names of the files whose lines are the log: all, or the last file of calls."""
    found = files_of(path, log)
    return found[-1:] if log == "messages.jsonl" else found


def read_lines(path: str | os.PathLike[str], log: str) -> list[dict[str, Any]]:
    """Return the whole lines of a log, of all its files.

    A last line that was cut short is left out. Raises :class:`FedvineError` for a line that a run
    cannot have written.
    """
    return [line for name in parts(path, log) for line in read_part(path, name)]


def read_part(path: str | os.PathLike[str], name: str, size: int | None = None
              ) -> list[dict[str, Any]]:
    """Return the whole lines of one file of a log, or of its first ``size`` bytes.

    Raises :class:`FedvineError` as :func:`read_lines` does, and where it has too few bytes.
    """
    file = Path(path) / name
    text = file.read_bytes() if file.exists() else b""
    if size is not None and len(text) < size:
        raise FedvineError(f"{name} has lost its end")
    return parsed(name, text[:size])


def parsed(name: str, text: bytes, first: int = 1) -> list[dict[str, Any]]:
    """Return the whole lines in ``text``, bytes of the file ``name`` of a log.

    ``first`` is the number of the first line. Raises :class:`FedvineError` for a line that a run
    cannot have written.
    """
    keys, found = _KEYS if name.startswith("metrics") else {"t"}, []
    for number, line in enumerate(text.split(b"\n")[:-1], first):
        try:
            found.append(json.loads(line))
            if not keys <= found[-1].keys():
                raise ValueError
        except (ValueError, AttributeError) as error:
            raise FedvineError(f"{name}, line {number} was not written by a run") from error
    return found


def refuse_links(path: Path) -> None:
    """Raise :class:`FedvineError` where anything below ``path`` is neither a file nor a folder."""
    for place, folders, files in os.walk(path):     # not through links either
        for entry in (Path(place) / name for name in (*folders, *files)):
            try:
                kind = entry.lstat().st_mode
            except FileNotFoundError:       # another process has finished with it
                continue
            if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
                raise FedvineError(f"{entry} is a link or no file at all, which a run does not "
                                   "make; delete it, or do not use this folder.")


def no_link(path: str, flags: int) -> int:
    """Open a file for :func:`open`, but not through a link."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


# -- read the log of a run while the run writes it: at each look only what was added ---------------
_KNOWN = 64     # bytes before the place that must still be the same


class _Place(NamedTuple):
    """How far a file was read: bytes, lines, and the last bytes before the place."""

    size: int = 0
    lines: int = 0
    last: bytes = b""


class Tail:
    """The lines of a log, ``metrics.jsonl`` or ``messages.jsonl``, of the run folder ``path``."""

    def __init__(self, path: str | os.PathLike[str], log: str) -> None:
        self.path, self.log = Path(path), log
        self._places: dict[str, _Place] = {}

    def more(self) -> tuple[list[dict[str, Any]], bool]:
        """Return the whole lines that were added since the last call.

        And whether they are the log from its beginning: at the first call, and where a run that was
        stopped cut its log back, or summed it up in a further file. Raises :class:`FedvineError`
        for a line that a run cannot have written, and :class:`OSError` where a file cannot be read;
        it may be gone a moment later.
        """
        names = parts(self.path, self.log)
        found = self._added(names) if self._places else None
        if found is not None:
            return found, False
        self._places = {}
        return self._added(names) or [], True

    def _added(self, names: list[str]) -> list[dict[str, Any]] | None:
        """Return the lines after the places; None where a file is not what it was."""
        if not set(self._places) <= set(names):
            return None
        found, places = [], dict(self._places)
        for name in names:
            place = places.get(name, _Place())
            with open(self.path / name, "rb", opener=no_link) as file:
                file.seek(place.size - len(place.last))
                text = file.read()
            if not text.startswith(place.last):
                return None
            text = text[len(place.last):]
            text = text[:text.rfind(b"\n") + 1]
            found += (lines := parsed(name, text, place.lines + 1))
            places[name] = _Place(place.size + len(text), place.lines + len(lines),
                                  (place.last + text)[-_KNOWN:])
        self._places = places
        return found


# -- the logs: ``metrics.jsonl``, ``messages.jsonl``, and what follows them ------------------------
# A run that goes on for years keeps its logs small. A log is never changed in place: a file with
# the next number is begun, and each save names the files that belong to it, with their sizes. So a
# run that is killed at any moment goes back to a save whose logs are all there.
# Scores are kept: lines after the first LARGEST bytes are in ``metrics-000001.jsonl``, and so on.
# All of them together are the log. Calls are summed: at the end of a stage at which the file is
# larger, ``messages-000001.jsonl`` begins with a line a stage and client function, and takes its
# place. The file before it is deleted when no save needs it any more.
LARGEST = 4 << 20           # bytes of a file after which the next one is begun
LOGS = ("metrics.jsonl", "messages.jsonl")
_ADDED = ("calls", "clients", "down", "up", "seconds")


class Logs:
    """The logs of the run folder ``path``; ``living`` true: their files may have numbers."""

    def __init__(self, path: Path) -> None:
        self.path, self.living = path, False
        self._sums: dict[str, Any] = {}     # hashes of the files, as they grow
        self._newest: dict[str, str] = {}   # the file to which a log's lines are added

    def append(self, log: str, lines: list[dict[str, Any]]) -> None:
        """Add lines to a log; raises :class:`FedvineError` if they cannot be written."""
        name = self._file(log)
        try:
            if self.living and log == "metrics.jsonl" and self._size(name) > LARGEST:
                self._newest[log] = name = _next(name)
            text = "".join(json.dumps(line) + "\n" for line in lines).encode()
            self._sum(name).update(text)
            with open(self.path / name, "ab", opener=no_link) as file:
                file.write(text)
        except OSError as error:
            raise NotWritten(f"{self.path / name} could not be written: {error.strerror}; free "
                             "space and give the same command again, it goes on.") from error

    def add_up(self) -> None:
        """Begin the next file of calls with this one's sums, if it is large; before a save."""
        name = self._file("messages.jsonl")
        if not self.living or self._size(name) <= LARGEST:
            return
        found = summed(read_part(self.path, name, self._size(name)), LARGEST // 2)
        self._newest["messages.jsonl"] = _next(name)
        with atomic(self.path / _next(name), "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in found)
        self._sums.pop(_next(name), None)

    def sizes(self) -> dict[str, int]:
        """Return the files that belong to a save with their sizes in bytes, which are on disk."""
        found = {}
        for name in (name for log in LOGS for name in parts(self.path, log)):
            with open(self.path / name, "rb") as handle:
                os.fsync(handle.fileno())
                found[name] = os.fstat(handle.fileno()).st_size
        return found

    def sums(self, sizes: Mapping[str, int], known: bool = False) -> dict[str, str]:
        """Return the hashes of the files; ``known``: of their first bytes, as ``sizes`` has it."""
        return {name: self._sum(name, size if known else None).hexdigest()
                for name, size in sizes.items()}

    def check(self, sizes: Mapping[str, int]) -> None:
        """Raise :class:`FedvineError` where a save names files that are not a run's logs."""
        for name, size in sizes.items():
            if not any(name in (log, _numbered(log, _number(name))) for log in LOGS):
                raise FedvineError(f"{name!r} is not the name of a log")
            read_part(self.path, name, size)

    def cut(self, sizes: Mapping[str, int]) -> None:
        """Cut the logs back to those of a save: its files to these sizes, none after them.

        Files before them may belong to an earlier save and stay.
        """
        for log in LOGS:
            mine = [_number(name) for name in sizes if name in (log, _numbered(log, _number(name)))]
            for name in files_of(self.path, log):
                if _number(name) > max(mine, default=0):
                    (self.path / name).unlink()
                elif name in sizes or not mine:
                    with open(self.path / name, "rb+", opener=no_link) as file:
                        file.truncate(sizes.get(name, 0))
        self._sums, self._newest = {}, {}

    def drop(self, saves: Iterable[Mapping[str, int]]) -> None:
        """Delete files of calls that neither these saves name nor the run adds to."""
        needed = {name for sizes in saves for name in sizes}
        for name in files_of(self.path, "messages.jsonl")[:-1]:
            if name not in needed:
                (self.path / name).unlink()
                self._sums.pop(name, None)

    def _file(self, log: str) -> str:
        if log not in self._newest:
            self._newest[log] = (parts(self.path, log) or [log])[-1]
        return self._newest[log]

    def _size(self, name: str) -> int:
        file = self.path / name
        return file.stat().st_size if file.exists() else 0

    def _sum(self, name: str, size: int | None = None) -> Any:
        """Return the hash of a file's first ``size`` bytes, or of all of it, kept up to date."""
        if size is None and name in self._sums:
            return self._sums[name]
        file = self.path / name
        found = hashlib.blake2b(file.read_bytes()[:size] if file.exists() else b"", digest_size=16)
        if size is None:
            self._sums[name] = found
        return found


def summed(lines: Iterable[Mapping[str, Any]], most: int) -> list[dict[str, Any]]:
    """Return the lines of ``messages.jsonl`` summed by stage and client function, in their order.

    Each has ``t``, ``function``, the sums of ``calls``, ``clients``, ``down``, ``up`` and
    ``seconds``, the largest ``slowest``, and in ``missing`` and ``refused`` how often by client.
    Lines that were summed before are summed further. Where they have more than ``most`` bytes, the
    earliest stages are summed into one, whose ``t`` is the last of them; ``stages`` is their
    number.
    """
    found: dict[int, dict[str, dict[str, Any]]] = {}
    for line in lines:
        _add(found.setdefault(line["t"], {}), line)
    stages = sorted(found)
    sizes = {t: sum(len(json.dumps(line)) + 1 for line in found[t].values()) for t in stages}
    total, many = sum(sizes.values()), 0
    while total > most and many < len(stages) - 1:
        total -= sizes[stages[many]]
        many += 1
    if many:
        first, count = {}, 0
        for t in stages[:many + 1]:
            count += max(line.get("stages", 1) for line in found[t].values())
            for line in found.pop(t).values():
                _add(first, line)
        last = stages[many]
        found[last] = {name: {**line, "t": last, "stages": count} for name, line in first.items()}
    return [line for t in sorted(found) for line in found[t].values()]


def _add(sums: dict[str, dict[str, Any]], line: Mapping[str, Any]) -> None:
    """Add a line, of a call or summed before, to the sums of its stage by client function."""
    name = line["function"]
    its = sums.setdefault(name, {"t": line["t"], "function": name, **dict.fromkeys(_ADDED, 0),
                                 "slowest": 0.0, "missing": {}, "refused": {}})
    if "stages" in line:
        its["stages"] = line["stages"]
    for key in _ADDED:
        its[key] += line.get(key, 1 if key == "calls" else 0)
    its["slowest"] = max(its["slowest"], line.get("slowest", 0.0))
    for key in ("missing", "refused"):
        of = line.get(key) or {}
        was_summed = "calls" in line
        for client in of:
            its[key][client] = its[key].get(client, 0) + (of[client] if was_summed else 1)


def _number(name: str) -> int:
    """Return the number in a log file's name, 0 for the first file."""
    text = name[:-len(".jsonl")].rpartition("-")[2]
    return int(text) if text.isdecimal() else 0


def _numbered(log: str, number: int) -> str:
    stem = log[:-len(".jsonl")]
    return f"{stem}-{number:06d}.jsonl" if number else log


def _next(name: str) -> str:
    log = name[:-len(".jsonl")].partition("-")[0] + ".jsonl"
    return _numbered(log, _number(name) + 1)
