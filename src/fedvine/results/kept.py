"""Kept cells: settings, scores and costs of a finished run, one line of JSON each.

A folder of them has a file for each data set, ``<data>.jsonl``, sorted by ``key``, so that lines
that two machines added merge by taking both. ``docs/results/cells`` is committed: a page is made
from it without any run folder, and without the data.

A line stands for a wanted cell if method, seed, the data's content and all settings are equal. A
setting that the line does not have did not exist when it was written; it counts as equal where it
is wanted at its default of today. A setting that a line has and nobody knows any more is a
difference. ``revision`` of a method, protocol or partition is raised by whoever makes the same
settings give other scores; lines of an older one are not taken.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from fedvine.core import registry, renamed
from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic
from fedvine.experiments.experiment import Experiment

FOLDER = "docs/results/cells"
Line = dict[str, Any]


@dataclass(frozen=True)
class Identity:
    """What a cell's scores depend on. ``content`` is the digest of its data, None where they are
    not at hand."""

    experiment: Experiment
    content: str | None = None

    @cached_property
    def tables(self) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
        """By table of the experiment: its values, and the defaults of today."""
        made = self.experiment.resolved()
        found: dict[str, BaseModel] = {"method": made.method, "protocol": made.protocol,
                                       "split": made.split, "data": made.data}
        if made.protocol.settings is not None:
            found["tasks"] = made.tasks
        tables = {name: (table.model_dump(mode="json"), defaults(table))
                  for name, table in found.items()}
        data = tables["data"][0]
        for path in ("folder", "edges"):            # the content stands for what is in them
            data.pop(path, None)
        data["source"] = self.data                  # no path of a machine
        run = {"stages", "threads", "quorum"}
        tables["run"] = (made.model_dump(mode="json", include=run),
                         {k: v for k, v in defaults(made).items() if k in run})
        return tables

    @property
    def settings(self) -> dict[str, dict[str, Any]]:
        """All values, by table."""
        return {name: values for name, (values, _) in self.tables.items()}

    @cached_property
    def data(self) -> str:
        """The data set's name, or a table's, as its file here is called."""
        return self.experiment.data.name

    @cached_property
    def revision(self) -> dict[str, int]:
        """The revisions of method, protocol and partition; those at 1 are left out."""
        made, found = self.experiment.resolved(), {}
        for name, thing in (("method", made.method), ("protocol", made.protocol),
                            *((f"partition {p}", registry.find("partitions", p)) for p in (
                                made.split.by, getattr(made.method, "partition", None))
                              if p in registry.names("partitions"))):
            if (number := getattr(thing, "revision", 1)) != 1:
                found[name] = number
        return found

    @property
    def key(self) -> str:
        """16 hex digits of all of it."""
        facts = [self.experiment.method.name, self.experiment.seed, self.content, self.revision,
                 self.settings]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]

    def stands(self, line: Line, *, anything: bool = False) -> bool:
        """Whether the line is this cell; with ``anything`` whatever its data's content and its
        revisions are."""
        if (line["method"], line["seed"]) != (self.experiment.method.name, self.experiment.seed):
            return False
        if not anything and (line.get("revision", {}) != self.revision
                             or self.content not in (None, line["content"])):
            return False
        return self.asked_alike(line["settings"])

    def asked_alike(self, there: Mapping[str, Mapping[str, Any]]) -> bool:
        """Whether these settings, once written down, are the wanted ones."""
        if there.keys() - self.tables.keys():
            return False
        for name, (values, usual) in self.tables.items():
            kept = there.get(name, {})
            if kept.keys() - values.keys():         # what it was set to means nothing today
                return False
            for key, value in values.items():
                if value != (kept[key] if key in kept else usual.get(key)):
                    return False
        return True


def defaults(table: BaseModel) -> dict[str, Any]:
    """The defaults of all fields, as JSON has them; those without one are left out."""
    fields = {name: field.get_default(call_default_factory=True)
              for name, field in type(table).model_fields.items() if not field.is_required()}
    return json.loads(json.dumps(fields, default=_plain))


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else list(value)


class Kept:
    """A folder of kept cells; files are read when they are first asked for."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._files: dict[str, list[Line]] = {}

    def lines(self, data: str) -> list[Line]:
        """The cells of a data set, sorted by key."""
        if data not in self._files:
            self._files[data] = read(self._file(data))
        return self._files[data]

    def every(self) -> Iterator[Line]:
        """All cells of all data."""
        for file in sorted(self.folder.glob("*.jsonl")):
            yield from self.lines(file.stem)

    def find(self, wanted: Identity) -> Line | None:
        """The line that stands for this cell; where the content of the data is not known and
        several are kept, the one that was made last."""
        found = [line for line in self.lines(wanted.data) if wanted.stands(line)]
        return max(found, key=lambda line: line.get("made", "")) if found else None

    def keep(self, wanted: Identity, line: Line) -> None:
        """Add the line of this cell, or put it in the place of the one that stands for it.

        Of a data set of the shelf, lines with the same settings that can no longer be asked for
        (other content, an older revision) go. Raises :class:`FedvineError` if the file cannot be
        written.
        """
        stale = wanted.experiment.data.dataset is not None
        with self._alone():
            others = [x for x in read(self._file(wanted.data))
                      if not wanted.stands(x, anything=stale)]
            lines = sorted([*others, {"key": wanted.key, **line}], key=lambda x: x["key"])
            with atomic(self._file(wanted.data), "w") as file:
                file.writelines(json.dumps(x) + "\n" for x in lines)
            self._files[wanted.data] = lines

    def _file(self, data: str) -> Path:
        return self.folder / f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', data)}.jsonl"

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While this lasts no other process writes to the folder."""
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
    """The lines of a file of cells, sorted by key; none where there is no file.

    Raises :class:`FedvineError` that names the first line that is no cell.
    """
    try:
        facts = file.stat()
    except OSError:
        return []
    return list(_read(file, facts.st_mtime_ns, facts.st_size, facts.st_ino))


@lru_cache(maxsize=64)
def _read(file: Path, *unchanged: int) -> tuple[Line, ...]:
    found = {}
    try:
        texts = file.read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise FedvineError(f"{file} cannot be read ({error}).") from error
    for number, text in enumerate(texts, 1):
        try:
            line = json.loads(text)
            if not {"key", "method", "seed", "content", "settings", "summary"} <= line.keys():
                raise ValueError("a key is missing")
        except (ValueError, AttributeError) as error:
            raise FedvineError(f"{file}, line {number} is no kept cell; if two branches were "
                               "merged, keep the lines of both, without marks between them."
                               ) from error
        if isinstance(line["settings"].get("method"), dict):
            line["settings"]["method"] = renamed.fields(line["settings"]["method"], silent=True)
        found[line["key"]] = line
    return tuple(found[key] for key in sorted(found))
