"""Kept cells: settings, scores and costs of a finished run, one line of JSON each.

A folder of them has a file for each data set, ``<data>.parquet``, with the columns key, method,
seed and line, sorted by ``key``. ``docs/results/cells`` is committed: a page is made from it
without any run folder, and without the data.

A line counts as a wanted cell if method, seed, the data's content and all settings are equal. A
setting that is not in the line did not exist when the line was written; it counts as equal if it is
wanted at its present default. A setting of a line that no longer exists is a difference. On which
``device`` a run computes is no setting here, nor is the number of ``replicates``.
``revision`` of a method, protocol or partition is raised when the same settings give other scores;
lines of an older one are not used, nor those of a method's own file before it was changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel

from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic
from fedvine.experiments.experiment import Experiment
from fedvine.tasks.task import REPLICATES

FOLDER = "docs/results/cells"
QUICK, SMALLEST = 9, 19     # levels of zstd: after each cell, and when folders are merged (seconds)
Line = dict[str, Any]


@dataclass(frozen=True, eq=False)       # compared by identity, as a key of Kept._found
class Identity:
    """The settings and data that a cell's scores depend on.

    ``content`` is the digest of the data, None where they are not available.
    """

    experiment: Experiment
    content: str | None = None

    @cached_property
    def tables(self) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
        """Return the values and the present defaults of each table of the experiment."""
        made = self.experiment.resolved()
        found: dict[str, BaseModel] = {"method": made.method, "protocol": made.protocol,
                                       "split": made.split, "data": made.data}
        if made.protocol.settings is not None:
            found["tasks"] = made.tasks
        tables = {name: (table.model_dump(mode="json"), defaults(table))
                  for name, table in found.items()}
        data = tables["data"][0]
        for path in ("folder", "edges"):            # the digest of the content covers them
            data.pop(path, None)
        data["source"] = self.data                  # no path of a machine
        tables["protocol"][0].pop(REPLICATES, None)     # changes no score
        run = {"stages", "origin", "open_end", "threads", "quorum"}
        tables["run"] = (made.model_dump(mode="json", include=run),
                         {k: v for k, v in defaults(made).items() if k in run})
        return tables

    @property
    def settings(self) -> dict[str, dict[str, Any]]:
        """Return all values, by table."""
        return {name: values for name, (values, _) in self.tables.items()}

    @cached_property
    def data(self) -> str:
        """Return the name of the data set or table, which names its file of kept cells."""
        return self.experiment.data.name

    @cached_property
    def revision(self) -> dict[str, int | str]:
        """Return the revisions of method, protocol and partition, without those at 1.

        Of a method in a file of its own the digest of the file is one, too.
        """
        made, found = self.experiment.resolved(), dict[str, int | str]()
        if made.method.file_digest:
            found["file"] = made.method.file_digest
        for name, thing in (("method", made.method), ("protocol", made.protocol),
                            *((f"partition {p}", registry.find("partitions", p)) for p in (
                                made.split.by, getattr(made.method, "partition", None))
                              if p in registry.names("partitions"))):
            if (number := getattr(thing, "revision", 1)) != 1:
                found[name] = number
        return found

    @property
    def key(self) -> str:
        """Return a digest of all of it, 16 hex digits."""
        facts = [self.experiment.method.name, self.experiment.seed, self.content, self.revision,
                 self.settings]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]

    def stands(self, line: Line, *, anything: bool = False) -> bool:
        """Return whether the line is this cell; ``anything``: of any content and revisions."""
        if (line["method"], line["seed"]) != (self.experiment.method.name, self.experiment.seed):
            return False
        if not anything and (line.get("revision", {}) != self.revision
                             or self.content not in (None, line["content"])):
            return False
        return self.same_settings(line["settings"])

    def same_settings(self, there: Mapping[str, Mapping[str, Any]]) -> bool:
        """Return whether the settings ``there``, of a line, are the wanted ones."""
        if there.keys() - self.tables.keys():
            return False
        for name, (values, usual) in self.tables.items():
            kept = {key: value for key, value in there.get(name, {}).items() if key != "device"}
            if kept.keys() - values.keys():         # a setting that no longer exists
                return False
            for key, value in values.items():
                was = kept[key] if key in kept else usual.get(key)
                if isinstance(was, dict) and isinstance(usual.get(key), dict):
                    was = usual[key] | was      # a setting within it that is newer
                if value != was:
                    return False
        return True


def defaults(table: BaseModel) -> dict[str, Any]:
    """Return the defaults of all fields that have one, as JSON values."""
    fields = {name: field.get_default(call_default_factory=True)
              for name, field in type(table).model_fields.items() if not field.is_required()}
    return json.loads(json.dumps(fields, default=_plain))


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else list(value)


class Kept:
    """A folder of kept cells; a file is read at its first use."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._files: dict[str, list[Line]] = {}
        self._found: dict[Identity, Line | None] = {}       # until a file is written

    def lines(self, data: str) -> list[Line]:
        """Return the cells of a data set, sorted by key."""
        if data not in self._files:
            self._files[data] = read(self._file(data))
        return self._files[data]

    def every(self) -> Iterator[Line]:
        """Yield all cells of all data."""
        for file in sorted(self.folder.glob("*.parquet")):
            yield from self.lines(file.stem)

    def find(self, wanted: Identity) -> Line | None:
        """Return the line of this cell; of several contents the latest; None without one."""
        if wanted not in self._found:
            self._found[wanted] = max(filter(wanted.stands, self.lines(wanted.data)),
                                      key=lambda line: line.get("made", ""), default=None)
        return self._found[wanted]

    def keep(self, wanted: Identity, line: Line) -> None:
        """Add the line of this cell, or replace the one that there is.

        Of a data set of fedvine, lines with the same settings that can no longer be used (other
        content, an older revision) are removed. Raises :class:`FedvineError` if the file cannot be
        written.
        """
        stale = wanted.experiment.data.dataset is not None
        with self._alone():
            others = [x for x in read(self._file(wanted.data))
                      if not wanted.stands(x, anything=stale)]
            self._write(wanted.data, [*others, {"key": wanted.key, **line}])

    def add(self, other: Kept) -> int:
        """Add the cells of another folder that this one lacks; return how many these are.

        Of two lines with one key the later one stays; to one that is as old what was measured of
        the other is added.
        """
        added = 0
        with self._alone():
            for data in (file.stem for file in sorted(other.folder.glob("*.parquet"))):
                found = {x["key"]: x for x in read(self._file(data))}
                newer = []
                for x in other.lines(data):
                    mine = found.get(x["key"])
                    if mine is None or x.get("made", "") > mine.get("made", ""):
                        newer.append(x)
                    elif x.get("measured", {}).keys() - mine.get("measured", {}).keys():
                        newer.append({**mine, "measured": x["measured"] | mine.get("measured", {})})
                if newer:
                    self._write(data, list((found | {x["key"]: x for x in newer}).values()),
                                SMALLEST)
                added += len(newer)
        return added

    def _write(self, data: str, lines: list[Line], level: int = QUICK) -> None:
        lines = sorted(lines, key=lambda x: x["key"])
        table = pa.table({key: [x[key] for x in lines] for key in ("key", "method", "seed")}
                         | {"line": [json.dumps(x) for x in lines]})
        with atomic(self._file(data), "wb") as file:        # one page, or little is compressed
            pq.write_table(table, file, compression="zstd", compression_level=level,
                           data_page_size=2 ** 28, use_dictionary=False)
        self._files[data] = lines
        self._found.clear()

    def _file(self, data: str) -> Path:
        return self.folder / f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', data)}.parquet"

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the folder inside the ``with`` block: no other process writes to it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.folder, os.O_RDONLY)
        except OSError as error:
            raise FedvineError(f"{self.folder} cannot be written to ({error.strerror}); free space "
                               "or choose another folder with --folder.") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def read(file: Path) -> list[Line]:
    """Return the lines of a file of cells sorted by key, [] without a file; raise for a bad one."""
    try:
        facts = file.stat()
    except OSError:
        return []
    return list(_read(file, facts.st_mtime_ns, facts.st_size, facts.st_ino))


@lru_cache(maxsize=64)
def _read(file: Path, *unchanged: int) -> tuple[Line, ...]:
    try:
        table = pq.read_table(file, columns=["line"])
        found = list(map(json.loads, table["line"].to_pylist()))
        if not all({"key", "method", "seed", "content", "settings", "summary"} <= line.keys()
                   for line in found):
            raise ValueError("a key is missing")
    except (OSError, ValueError, TypeError, AttributeError, pa.ArrowException) as error:
        raise FedvineError(f"{file} is not a file of kept cells ({error}); two such files are "
                           "merged by fedvine cells --add FOLDER.") from error
    return tuple(sorted(found, key=lambda line: line["key"]))


def differing(lines: Iterable[Line]) -> list[tuple[Line, dict[str, Any]]]:
    """Return each line with those of its settings that most lines of its method do not have."""
    flat = [(line, {f"{table}.{key}": value for table, values in line["settings"].items()
                    for key, value in values.items()}) for line in lines]
    counts: dict[tuple[str, str], Counter[str]] = {}
    for line, settings in flat:
        for key, value in settings.items():
            counts.setdefault((line["method"], key), Counter())[json.dumps(value)] += 1
    usual = {key: count.most_common(1)[0][0] for key, count in counts.items()}
    return [(line, {key: value for key, value in settings.items()
                    if json.dumps(value) != usual[line["method"], key]}) for line, settings in flat]
