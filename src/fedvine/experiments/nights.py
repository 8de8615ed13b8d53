"""The nights of a run that goes on: what each brought, and the way back to before one.

Before rows are taken in, the state of the run is kept in ``nights/``: ``<number>.json`` has what
its small files said, and the digests of the pieces of its newest save. Pieces are files in
``nights/pieces``, compressed; nights share those that did not change. The rows themselves only
grow, so their earlier state is that of the earlier ``rows.json``.

``nights/log.jsonl`` has a line a night, and one for each way back. Neither it nor what a ledger, an
account or an erasure has written is ever taken back.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shlex
import shutil
import sys
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tomlkit

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic, cache_folder
from fedvine.core.message import Packed
from fedvine.core.settings import merged
from fedvine.data.graph import Graph
from fedvine.data.io.database import SQLITE, path_of
from fedvine.data.io.target import Place, is_table
from fedvine.experiments import run_folder
from fedvine.experiments.prepare import FINAL
from fedvine.experiments.run_files import BACK, NIGHTS, WRITTEN, read_object
from fedvine.living.rows import StoredRows

PIECE = 1 << 18         # bytes of an array that are kept as one piece
_SMALL = ("summary.json", "clients.json")
HOW = "how.json"        # how the last night was started


def keep(folder: str | os.PathLike[str], most: int) -> None:
    """Keep the state of a run before a night, as far as it has learned a whole stage.

    The last ``most`` are kept. The folder must be locked.
    """
    place = Path(folder)
    if not most:
        return
    nights = place / NIGHTS
    ends = [save for save in sorted((place / "saves").glob("[0-9]*"))
            if read_object(save / "position.json").get("end")]
    if not ends:
        return
    rows = read_object(place / "data" / "rows.json")
    last = read_object((_files(place) or [nights])[-1])
    if last and last["rows"]["plan"] == rows["plan"]:   # kept before a night that was killed
        return
    save = run_folder.RunFolder(place, None).restore(end=ends[-1].name)
    assert save is not None
    pieces = nights / "pieces"
    pieces.mkdir(parents=True, exist_ok=True)
    kept = {"format": 1, "at": _now(), "logs": read_object(ends[-1] / "position.json")["logs"],
            "rows": rows,
            "small": {name: read_object(place / name) for name in _SMALL
                      if (place / name).exists()},
            "save": {**save._asdict(), "server": _cut(save.server, pieces), "clients": {
                name: _cut(packed, pieces) for name, packed in save.clients.items()}}}
    if isinstance(graph := StoredRows.open(place / "data").split.stream, Graph):
        kept["rows"]["names"] = [len(graph.classes), len(graph.owner.names) if graph.owner else 0]
    numbers = [int(file.stem) for file in _files(place)]
    with atomic(nights / f"{max(numbers, default=0) + 1:06d}.json", "w") as file:
        json.dump(kept, file)
    for old in _files(place)[:-most]:
        old.unlink()
    needed = {piece for file in _files(place) for piece in _pieces(read_object(file)["save"])}
    for piece in pieces.iterdir():
        if piece.name not in needed:
            piece.unlink()


def back(folder: str | os.PathLike[str], nights: int = 1) -> str:
    """Go back to the state before the last ``nights``; return when that was kept.

    Raises :class:`FedvineError` where so many are not kept, or a piece cannot be read; nothing is
    changed then. A way back that was stopped is finished by the same call.
    """
    place = Path(folder)
    with run_folder.alone(place):
        if not (place / BACK).exists():
            files = _files(place)
            if not 0 < nights <= len(files):
                have = f"{len(files)} night{'s' * (len(files) != 1)}"
                raise FedvineError(f"{folder} can go back by {have}; say a number of nights up to "
                                   "that." if files else
                                   f"{folder} has kept no night to go back to.")
            _save_of(place, read_object(files[-nights]))      # all pieces are there
            with atomic(place / BACK, "w") as file:
                json.dump({"number": files[-nights].stem, "nights": nights,
                           "to": read_object(files[-nights])["at"]}, file)
        said = read_object(place / BACK)
        mark = place / NIGHTS / f"{said['number']}.json"
        if mark.exists():       # else a kill left only the last step
            _put_back(place, read_object(mark), mark.stat().st_mtime_ns)
            log(place, {"back": said["nights"], "to": said["to"],
                        "left": len(StoredRows.open(place / "data").plan)})
            for later in reversed(_files(place)):       # the mark is the last one
                if later.stem >= said["number"]:
                    later.unlink()
        (place / BACK).unlink()
    return said["to"]


def _put_back(place: Path, kept: dict[str, Any], since: int) -> None:
    save = _save_of(place, kept)
    for name in _SMALL:
        (place / name).unlink(missing_ok=True)
    for note in (place / name for name in ("follow.json", WRITTEN)):
        # An erasure has to find the file of forecasts; nobody is answered from it (top = 0).
        if note.exists() and note.stat().st_mtime_ns >= since:
            with atomic(note, "w") as file:
                json.dump({**read_object(note), "top": 0, "stages": -1}, file)
    StoredRows.back(place / "data", kept["rows"])
    runs = run_folder.RunFolder(place, None, unfinished=BACK)
    runs.logs.living = True
    runs.logs.cut(kept["logs"])
    shutil.rmtree(place / "saves", ignore_errors=True)
    runs.save(save)
    if (place / FINAL).exists():    # it is fitted anew by the run's next command
        shutil.rmtree(place / FINAL)
        kept["small"].pop("summary.json", None)
    for name, content in kept["small"].items():
        with atomic(place / name, "w") as file:
            json.dump(content, file, indent=1)


def noted(folder: str | os.PathLike[str], settings: dict[str, Any]) -> None:
    """Keep the settings of a night that no score depends on, and the folder it was started in."""
    file = Path(folder) / NIGHTS / HOW
    file.parent.mkdir(exist_ok=True)
    with atomic(file, "w") as handle:
        json.dump({"settings": settings, "folder": str(Path.cwd())}, handle)


def log(folder: str | os.PathLike[str], line: dict[str, Any]) -> None:
    """Add a line to the log of nights."""
    file = Path(folder) / NIGHTS / "log.jsonl"
    file.parent.mkdir(exist_ok=True)
    with open(file, "ab+") as handle:
        if handle.tell():       # a line that a power cut tore ends here
            handle.seek(-1, os.SEEK_END)
            handle.write(b"" if handle.read(1) == b"\n" else b"\n")
        handle.write(json.dumps({"at": _now(), **line}).encode() + b"\n")


def ended(folder: str | os.PathLike[str], state: str, why: list[str]) -> None:
    """Keep in ``summary.json`` what became of the newest night: ``night``, and when it ended."""
    file = Path(folder) / "summary.json"
    if found := read_object(file):
        with atomic(file, "w") as handle:
            json.dump({**found, "night": {"at": _now(), "state": state, "why": why}}, handle,
                      indent=1)


def lines(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the lines of the log of nights; raise :class:`FedvineError` for no run's folder."""
    run_folder.read_experiment(folder)
    file = Path(folder) / NIGHTS / "log.jsonl"
    try:
        text = file.read_text("utf-8") if file.exists() else ""
    except (OSError, ValueError) as error:
        raise FedvineError(f"{file} cannot be read ({error}); delete it.") from error
    found = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):       # of one that a power cut tore
            found.append(json.loads(line))
    return found


def forget(folder: str | os.PathLike[str], names: re.Pattern[str]) -> None:
    """Take names out of the reasons for which nights were refused."""
    found = lines(folder)
    left = [{**line, "refused": [names.sub("...", why) for why in line["refused"]]}
            if "refused" in line else line for line in found]
    if left != found:
        with atomic(Path(folder) / NIGHTS / "log.jsonl", "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in left)


# -- for a monitor and a timer ---------------------------------------------------------------------
def metrics(folder: str | os.PathLike[str], run: str | None = None) -> str:
    """Return numbers of a run as Prometheus reads them; none has the name of a user or item.

    ``run`` is the label of the run, None: the name of its folder. Raises :class:`FedvineError` for
    no run's folder.
    """
    every = lines(folder)
    said = run_folder.read_summary(folder) or {}
    name = _label(Path(folder).resolve().name if run is None else run)
    learned: list[dict[str, Any]] = []      # and not taken back
    for line in every:
        learned = [x for x in learned if x["stages"] <= line.get("left", x["stages"])] if (
            "back" in line) else [*learned, *([line] if "stages" in line else [])]
    newest = learned[-1] if learned else {}
    turned = [line for line in every if "back" not in line]
    spent = said.get("privacy", {}).get("epsilon")
    found: list[tuple[str, str, dict[str, str], Any]] = [
        ("nights_total", "nights that were learned", {}, sum("stages" in x for x in every)),
        ("refused_total", "nights that the gate refused", {}, sum("refused" in x for x in every)),
        ("gate_closed", "whether the last night was refused", {},
         int(bool(turned) and "refused" in turned[-1])),
        ("stages", "stages learned", {}, newest.get("stages", said.get("stages"))),
        ("rows", "rows learned", {}, newest.get("rows")),
        ("night_seconds", "seconds of the last night", {}, newest.get("seconds")),
        ("last_night_timestamp_seconds", "when it ended", {}, newest and datetime.fromisoformat(
            newest["at"]).timestamp()),
        *(("bytes_total", "bytes between clients and server", {"direction": way},
           said.get(f"bytes_{way}")) for way in ("up", "down")),
        ("epsilon", "privacy spent", {}, spent),
        *(("score", "mean over clients in a period", {"period": period, "score": key}, value)
          for period, scores in said.get("scores", {}).items()
          for key, value in scores["mean"].items())]
    text, before = [], ""
    for metric, about, labels, value in found:
        if not isinstance(value, int | float):
            continue
        if metric != before:
            kind = "counter" if metric.endswith("_total") else "gauge"
            text += [f"# HELP fedvine_{metric} {about}", f"# TYPE fedvine_{metric} {kind}"]
        marks = "".join(f",{key}={_label(held)}" for key, held in labels.items())
        text.append(f"fedvine_{metric}{{run={name}{marks}}} {value}")
        before = metric
    return "\n".join(text) + "\n"


def _label(text: str) -> str:
    """Quote a label: other escapes than these three are an error to Prometheus."""
    return '"' + text.replace("\\", r"\\").replace('"', r'\"').replace("\n", r"\n") + '"'


_SERVICE = """\
[Unit]
Description=A night of the fedvine run {name}
After=network-online.target

[Service]
Type=oneshot
WorkingDirectory={here}
{known}ExecStart={command}
{after}NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=strict
ReadWritePaths={write}
UMask=0077
"""
_TIMER = """\
[Unit]
Description=Nights of the fedvine run {name}

[Timer]
OnCalendar=*-*-* {at}:00{zone}
Persistent=yes

[Install]
WantedBy=timers.target
"""


def unit(folder: str | os.PathLike[str], out: str | os.PathLike[str], at: str = "02:00",
         forecasts: str | None = None, notify: str | None = None) -> str:
    """Write a night's experiment, systemd service and timer to ``out``; return lines for cron.

    ``forecasts`` is a file, or a table of a database. Raises :class:`FedvineError` for a run that
    does not go on, and a time that is none.
    """
    place, target = Path(folder).absolute(), Path(out).absolute()
    if not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", at):
        raise FedvineError(f'"{at}" is no time of day; write for example 02:00.')
    found = run_folder.read_experiment(place).get("data", {}).get("experiment") or {}
    how = read_object(place / NIGHTS / HOW)
    found = merged(found, how.get("settings", {}))
    if not found.get("open_end"):
        raise FedvineError(f"{folder} is of a table that does not grow (--open); it has no nights.")
    name = re.sub(r"[^\w.-]+", "-", place.name)
    file = target / f"fedvine-{name}.toml"
    dated = bool(read_object(place / "data" / "rows.json").get("stream", {}).get("dates"))
    night = [sys.executable, "-m", "fedvine", "run", str(file), "--out", str(place), "--open-data",
             *([] if "gate" in found else ["--stop-on", "all"]),
             *(["--as-of", "now"] if dated else []),
             *(["--notify", notify] if notify else [])]
    into = Place.of(forecasts) if forecasts and is_table(forecasts) else None
    file_of = Path(forecasts or "") if into is None else path_of(into.database)
    kept = (f"{into.database}/{into.name}" if into else str(file_of.absolute()))
    after = [sys.executable, "-m", "fedvine", "predict", str(place), "--all", "--out", kept]
    write = [place, cache_folder(), *([file_of.absolute().parent] if forecasts and (
        into is None or into.database.startswith(SQLITE)) else [])]
    target.mkdir(parents=True, exist_ok=True)
    zone = found["data"].get("timezone")
    here = how.get("folder", str(target))
    for path, text in ((file, tomlkit.dumps(found)), (target / f"fedvine-{name}.service", (
            _SERVICE.format(name=name, here=here.replace("%", "%%"), command=_quoted(night),
                            known="".join(
                f"Environment={_quoted([f'{key}={os.environ[key]}'])}\n"
                for key in ("FEDVINE_CACHE", "FEDVINE_DATA") if key in os.environ),
                            after=f"ExecStartPost={_quoted(after)}\n" if forecasts else "",
                            write=_quoted(map(str, write))))),
            (target / f"fedvine-{name}.timer", _TIMER.format(
                name=name, at=at, zone=f" {zone}" if zone else ""))):
        with atomic(path, "w") as handle:
            handle.write(text)
    hour, minute = at.split(":")
    clock = f"CRON_TZ={zone}\n" if zone else ""
    return clock + (f"{int(minute)} {int(hour)} * * * cd {shlex.quote(here)} && {shlex.join(night)}"
            + (f" && {shlex.join(after)}" if forecasts else "")).replace("%", r"\%")


def _quoted(words: Iterable[str]) -> str:
    """Return words as a unit's line has them."""
    return " ".join(json.dumps(word, ensure_ascii=False).replace("%", "%%").replace("$", "$$")
                    for word in words)


# -- pieces of a save ------------------------------------------------------------------------------
def _cut(packed: Packed, pieces: Path) -> list[Any]:
    """Write the pieces of a message that are not there yet; return what makes it again."""
    return [_piece(packed.skeleton, pieces),
            [[b.dtype.str, list(b.shape), [_piece(part, pieces) for part in _parts(b)]]
             for b in packed.buffers]]


def _parts(array: np.ndarray) -> Iterator[bytes]:
    whole = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    for begin in range(0, len(whole), PIECE):
        yield whole[begin:begin + PIECE].tobytes()


def _piece(content: bytes, pieces: Path) -> str:
    name = hashlib.blake2b(content, digest_size=16).hexdigest()
    if not (pieces / name).exists():
        temporary = pieces / f".{name}.{secrets.token_hex(4)}"
        temporary.write_bytes(pa.compress(content, "zstd", asbytes=True))
        os.replace(temporary, pieces / name)
    return name


def _joined(cut: list[Any], pieces: Path) -> Packed:
    return Packed(_content(cut[0], pieces), [
        np.frombuffer(b"".join(_content(name, pieces) for name in names), dtype).reshape(shape)
        if names else np.empty(shape, dtype) for dtype, shape, names in cut[1]])


def _content(name: str, pieces: Path) -> bytes:
    try:
        packed = (pieces / name).read_bytes()
        # pieces of earlier versions, which later nights share, are zlib's
        content = (zlib.decompress(packed) if packed[:1] == b"\x78" else
                   pa.input_stream(pa.py_buffer(packed), compression="zstd").read())
    except (OSError, zlib.error) as error:
        raise FedvineError(f"{pieces / name} of a kept night cannot be read ({error}).") from error
    if hashlib.blake2b(content, digest_size=16).hexdigest() != name:
        raise FedvineError(f"{pieces / name} of a kept night was changed.")
    return content


def _pieces(save: dict[str, Any]) -> Iterator[str]:
    for skeleton, buffers in (save["server"], *save["clients"].values()):
        yield skeleton
        for _, _, names in buffers:
            yield from names


def _save_of(place: Path, kept: dict[str, Any]) -> run_folder.Save:
    pieces, save = place / NIGHTS / "pieces", kept["save"]
    return run_folder.Save(**{**save, "server": _joined(save["server"], pieces), "clients": {
        name: _joined(cut, pieces) for name, cut in save["clients"].items()}})


def _files(place: Path) -> list[Path]:
    return sorted((place / NIGHTS).glob("[0-9]*.json"))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
