"""A paper's table: its printed numbers, and how each of its cells is run here.

The folder ``papers`` of the package holds both: ``.csv`` files as printed, and a ``.toml`` file
for each table that can be run.
"""

from __future__ import annotations

import csv
import tomllib
from importlib.resources import files
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from fedvine.errors import FedvineError
from fedvine.experiment import Experiment
from fedvine.settings import build, merged

PAPERS = files("fedvine") / "papers"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Column(_Part):
    """A number that is shown of every cell."""

    name: str
    ours: str = Field(description="a score, or a cost such as seconds_round")
    published: str | None = Field(default=None, description="its column in the paper's numbers")
    spread: str | None = Field(default=None, description="the column of its standard deviation")
    unit: Literal["", "%", "s", "MB", "GB"] = ""


class Setting(_Part):
    """One of a table's experiments: data, split, stages."""

    id: str
    name: str
    settings: dict[str, Any]
    half: Literal["early", "late"] | None = Field(
        default=None, description="only this half of the data's time span")
    methods: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="fields of a method in this experiment, by its name")
    seeds: int | None = Field(default=None, ge=1, description="no more seeds than this")


class Row(_Part):
    """One of a table's methods; without ``method`` it is not built yet."""

    name: str
    method: dict[str, Any] | None = None
    published: bool = True
    settings: dict[str, Any] = {}


class PaperTable(_Part):
    """Experiments x methods. Made by :meth:`named`."""

    title: str
    numbers: str
    experiment_column: str | None = None
    method_column: str
    metric_column: str | None = Field(default=None, description="where a line is one number: the "
                                      "column of its name; the number is in value")
    differences: list[str]
    common: dict[str, Any] = {}
    column: list[Column]
    experiment: list[Setting]
    row: list[Row]

    @staticmethod
    def named(name: str) -> PaperTable:
        """The table ``name``, one of :func:`names`."""
        return build(PaperTable, tomllib.loads((PAPERS / f"{name}.toml").read_text("utf-8")), name)

    def printed(self) -> dict[tuple[str, str], dict[str, str]]:
        """The paper's numbers, as printed, by (experiment, method)."""
        column, found = self.experiment_column, {}
        for line in numbers(self.numbers):
            place = line[column] if column else self.experiment[0].id, line[self.method_column]
            more = {line[self.metric_column]: line["value"]} if self.metric_column else line
            found.setdefault(place, {}).update(more)
        return found

    def chosen(self, only: str | None) -> list[Setting]:
        """The experiments whose id is ``only`` or whose name holds it; several with commas."""
        found = []
        for word in only.split(",") if only else []:
            some = [e for e in self.experiment if word.strip() == e.id] or [
                e for e in self.experiment if word.strip().lower() in e.name.lower()]
            if not some:
                raise FedvineError(f'{self.title} has no experiment "{word.strip()}"; there are '
                                   + ", ".join(f"{e.id} ({e.name})" for e in self.experiment) + ".")
            found += some
        return [e for e in self.experiment if not only or e in found]

    def build(self, setting: Setting, row: Row, data: dict[str, Any] | None = None) -> Experiment:
        """The experiment of a cell; ``data`` takes the place of the setting's own."""
        assert row.method is not None
        own = setting.methods.get(row.method["name"], {})
        values = merged(merged(self.common, setting.settings), row.settings)
        values = merged(values, {"method": {**row.method, **own}})
        return build(Experiment, {**values, **({"data": data} if data else {})},
                     f"{self.title}, experiment {setting.id}, {row.name}")


def names() -> list[str]:
    """The tables that can be run."""
    return sorted(f.name[:-5] for f in PAPERS.iterdir() if f.name.endswith(".toml")
                  and "[[panel]]" not in f.read_text("utf-8"))


def numbers(file: str) -> list[dict[str, str]]:
    """The lines of one of the papers' ``.csv`` files, as text."""
    return list(csv.DictReader((PAPERS / file).read_text("utf-8").splitlines()))
