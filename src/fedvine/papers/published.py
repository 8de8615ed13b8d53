"""A paper's table: its printed numbers, and how each of its cells is run here.

The folder ``papers`` of the package holds both: ``.csv`` files as printed, and a ``.toml`` file
for each table that can be run.
"""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Collection, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic, cache_folder
from fedvine.core.settings import build, merged
from fedvine.data.identity import digest
from fedvine.data.spec import Data, load
from fedvine.experiments.experiment import Experiment
from fedvine.papers.study import chosen
from fedvine.results.cells import FOLDER
from fedvine.results.tune import SHIPPED, Search, find_search, stated

PAPERS = files("fedvine") / "papers"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Column(_Part):
    """A number that is shown for every cell."""

    name: str
    ours: str = Field(description="a score, or a cost such as seconds_round")
    published: str | None = Field(default=None, description="its column in the paper's numbers")
    spread: str | None = Field(default=None, description="the column of its standard deviation")
    unit: Literal["", "%", "s", "MB", "GB"] = ""
    each: bool = Field(default=False, description="one column a client of the experiment; {} in "
                       "the name stands for the client")
    mean: bool = Field(default=False, description="the paper prints it by client: its number is "
                       "computed, the mean of those")
    client: str | None = Field(default=None, description="of this client; else of all")
    place: tuple[str, str] | None = Field(default=None, description="experiment and client under "
                                          "which the paper prints it; the paper's alone")
    variant: str = Field(default="", description="its runs are those of this variant of the table")


class Setting(_Part):
    """One of a table's experiments: data, split, stages."""

    id: str
    name: str
    settings: dict[str, Any]
    half: Literal["early", "late"] | None = Field(
        default=None, description="only this half of the data's time span")
    methods: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="fields of a method in this experiment, by its name")
    like: str = Field(default="", description="the experiment whose searches its rows take")
    seeds: int | None = Field(default=None, ge=1, description="no more seeds than this")
    clients: list[str] = Field(default=[], description="the clients that have columns, in the "
                               "paper's order")
    client: str = Field(default="{}", description="how the paper writes a client, such as {}(50%)")
    printed_mean: tuple[str, str] | None = Field(
        default=None, description="experiment and client under which the paper prints a mean over "
        "the clients after all")
    variant: str = Field(default="", description="of which variant it is; see PaperTable.every")
    varied: bool = Field(default=True, description="whether the table's variants are run on it")

    @property
    def place(self) -> str:
        """Return its id, with its variant."""
        return f"{self.id}, {self.variant}" if self.variant else self.id


class Row(_Part):
    """One of a table's methods; without ``method`` it is not built yet."""

    name: str
    method: dict[str, Any] | None = None
    published: bool = True
    rival: bool = Field(default=True, description="false where it sees what no method may")
    settings: dict[str, Any] = {}


class Tuning(_Part):
    """The search that every row of a table gets, see :mod:`fedvine.results.tune`."""

    trials: int = Field(default=12, ge=1)
    seed: int = Field(default=100, ge=100)
    seeds: int = Field(default=3, ge=1)
    score: str


class PaperTable(_Part):
    """Experiments x methods. Made by :meth:`named`."""

    title: str
    numbers: str
    experiment_column: str | None = None
    method_column: str
    metric_column: str | None = Field(default=None, description="where a line is one number: the "
                                      "column of its name; the number is in value")
    client_column: str | None = Field(default=None, description="where a line is one client's")
    differences: list[str]
    common: dict[str, Any] = {}
    column: list[Column]
    experiment: list[Setting]
    variant: dict[str, dict[str, Any]] = Field(
        default={}, description="settings in which experiments are run once more, by name; "
        "columns name the variant whose runs they show")
    row: list[Row]
    ours: str = Field(default="", description="the row that is set beside the best rival")
    tuned: Tuning | None = Field(default=None, description="rows take the settings that a search "
                                 "of this size has found, where one was made")

    @staticmethod
    def named(name: str) -> PaperTable:
        """Read the table ``name``, one of :func:`names`."""
        return build(PaperTable, tomllib.loads((PAPERS / f"{name}.toml").read_text("utf-8")), name)

    def printed(self) -> dict[tuple[str, str], dict[str, str]]:
        """Return the paper's numbers, as printed, by (experiment, method).

        Where a line is one client's, only numbers that are the same for all clients are right.
        """
        column, found = self.experiment_column, {}
        for line in numbers(self.numbers):
            place = line[column] if column else self.experiment[0].id, line[self.method_column]
            more = {line[self.metric_column]: line["value"]} if self.metric_column else line
            found.setdefault(place, {}).update(more)
        return found

    def printed_by_client(self) -> dict[tuple[str, str, str], dict[str, str]]:
        """Return them by (experiment, method, client as the paper writes it), or nothing."""
        places = self.experiment_column, self.method_column, self.client_column
        return {tuple(line[p] for p in places): line  # type: ignore[misc]
                for line in numbers(self.numbers)} if all(places) else {}

    def columns(self, setting: Setting, small: Collection[str] = ()) -> list[Column]:
        """Return an experiment's columns, one a client where wanted; those in ``small`` marked."""
        made = []
        for c in self.column:
            made += [c.model_copy(update={"name": c.name.format(name + "‡" * (name in small)),
                                          "client": name}) for name in setting.clients
                     ] if c.each else [c]
            if c.mean and setting.printed_mean:
                made.append(c.model_copy(update={"name": f"{c.name}, as printed", "mean": False,
                                                 "place": setting.printed_mean}))
        return made

    def paper(self, setting: Setting, row: Row, column: Column) -> str:
        """Return the paper's number of a cell, as printed, with its spread; ``-`` for none."""
        by_client = self.printed_by_client()
        if column.place:
            line = by_client.get((column.place[0], row.name, column.place[1]), {})
            return line.get(column.published or "", "-")
        key, names = column.published or "", [column.client] if column.client else setting.clients
        lines = [by_client.get((setting.id, row.name, setting.client.format(n)), {}) for n in names]
        if column.mean:
            found = [float(line[key]) for line in lines if key in line]
            return f"{sum(found) / len(found):.3f}" if found else "-"
        line = lines[0] if column.client else self.printed().get((setting.id, row.name), {})
        spread = line.get(column.spread or "")
        return line.get(key, "-") + (f" ±{spread}" if spread else "")

    @property
    def every(self) -> list[Setting]:
        """Return all experiments, those that are varied with variants after them, of their ids."""
        return [made for e in self.experiment for made in (e, *(e.model_copy(update={
            "name": f"{e.name}, {name}", "variant": name, "settings": merged(e.settings, more)})
            for name, more in self.variant.items() if e.varied))]

    def chosen(self, only: str | None) -> list[Setting]:
        """Return the experiments that ``only`` names, see :func:`.study.chosen`; all without it."""
        return chosen(self.title, self.every, only) or self.every

    def build(self, setting: Setting, row: Row, data: dict[str, Any] | None = None) -> Experiment:
        """Build the experiment of a cell; ``data`` takes the place of the setting's own."""
        assert row.method is not None
        own = setting.methods.get(row.method["name"], {})
        values = merged(merged(self.common, setting.settings), row.settings)
        values = merged(values, {"method": {**row.method, **own}})
        return build(Experiment, {**values, **({"data": data} if data else {})},
                     f"{self.title}, experiment {setting.id}, {row.name}")

    def of(self, setting: Setting, row: Row, folder: str | Path = FOLDER) -> Experiment:
        """Build the experiment of a cell, with the settings of its :meth:`search`."""
        made, search = self.plain(setting, row), self.search(setting, row, folder)
        own = setting.methods.get(made.method.name, {})     # which a search elsewhere does not know
        return made if search is None else made.updated({"method": {
            key: value for key, value in search.fields.items() if key not in own}})

    def plain(self, setting: Setting, row: Row) -> Experiment:
        """Build the experiment of a cell as it is before a search."""
        return self.build(setting, row, half(setting) if setting.half else None)

    def stated(self, settings: Sequence[Setting], folder: str | Path) -> list[str]:
        """Say where the settings of every row that is run come from."""
        by_row: dict[str, dict[str, list[str]]] = {}
        for row in (r for r in self.row if r.method is not None):
            for setting in settings:
                own = {**(row.method or {}), **setting.methods.get((row.method or {})["name"], {})}
                text = stated(own, self.search(setting, row, folder))
                by_row.setdefault(row.name, {}).setdefault(text, []).append(setting.place)
        lines: dict[str, list[str]] = {}
        for name, texts in by_row.items():
            for text, places in texts.items():
                some = f" in {'; '.join(places)}" if len(texts) > 1 else ""
                lines.setdefault(text, []).append(f"{name}{some}")
        if list(lines) == [SHIPPED]:
            return [f"Settings: {SHIPPED} in every row."]
        return ["Settings:", *(f"- {', '.join(names)}: {text}." for text, names in lines.items())]

    def searched(self, setting: Setting) -> Setting:
        """Return the experiment on whose data the settings of this one's rows are searched."""
        return setting if not setting.like else next(
            s for s in self.every if (s.id, s.variant) == (setting.like, setting.variant))

    def search(self, setting: Setting, row: Row, folder: str | Path = FOLDER) -> Search | None:
        """Return the search for a cell kept beside ``folder``; None if there is no such one."""
        if self.tuned is None or row.method is None:
            return None
        made = find_search(self.plain(self.searched(setting), row), self.tuned.seed, folder)
        same = made and (made.trials, made.seeds, made.score) == (
            self.tuned.trials, self.tuned.seeds, self.tuned.score)
        return made if same else None

    def cells(self, setting: Setting, folder: str | Path = FOLDER) -> dict[str, Experiment]:
        """Build the experiments of a setting by the names of its rows, of those that are built."""
        return {row.name: self.of(setting, row, folder) for row in self.row if row.method}


def half(setting: Setting) -> dict[str, Any]:
    """Write the early or the late half of a data set's time span as a Parquet file in the cache.

    Returns the table ``data`` of the experiment that reads it. The bound is the middle between
    first and last time; it belongs to the early half. Without the data set the file is only named:
    its cells may be kept.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq
    data = Data.model_validate(setting.settings["data"])
    name = f"{data.source}-{setting.half}"
    try:
        stream = load(data.source, data.folder, **data.options)
    except FedvineError:
        return {"source": str(cache_folder() / "halves" / f"{name}.parquet")}
    file = cache_folder() / f"halves-{digest(stream)}" / f"{name}.parquet"
    if not file.exists():
        middle = (float(stream.t[0]) + float(stream.t[-1])) / 2
        first = stream.t <= middle
        part = stream.take((first if setting.half == "early" else ~first).nonzero()[0])
        columns = {"src": [stream.src_ids[int(u)] for u in part.src],
                   "dst": [stream.dst_ids[int(v)] for v in part.dst], "time": part.t}
        with atomic(file) as handle:
            pq.write_table(pa.table(columns), handle)
    return {"source": str(file)}


def names() -> list[str]:
    """List the tables that can be run."""
    return sorted(f.name[:-5] for f in PAPERS.iterdir() if f.name.endswith(".toml")
                  and "[[panel]]" not in f.read_text("utf-8"))


def numbers(file: str) -> list[dict[str, str]]:
    """Read the lines of one of the papers' ``.csv`` files, as text."""
    return list(csv.DictReader((PAPERS / file).read_text("utf-8").splitlines()))
