"""Read the files of a run folder that may come from another person."""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from fedvine.core.errors import FedvineError

FORMAT = 1          # of a run folder, in its experiment.toml; raised when an older one is not read
CHOICE = "auto.json"
_KEYS = {"t", "stage", "client", "n", "scores"}


def read_experiment(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the resolved experiment of a run folder.

    Raises :class:`FedvineError` if the folder has none, is of another format, or holds anything but
    files and folders, such as a link.
    """
    refuse_links(Path(path))
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
    """Return the names of a log's files in their order; see :mod:`fedvine.experiments.logs`."""
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
            kind = entry.lstat().st_mode
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
