"""An experiment: data, split, stages, protocol, method and seed; read from TOML and run."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sys
import time
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializationInfo,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)

from fedvine.core import registry
from fedvine.core.device import ABOUT, Device
from fedvine.core.errors import FedvineError
from fedvine.core.method import Method
from fedvine.core.settings import assignment, build, merged
from fedvine.data import handed
from fedvine.data import plan as plans
from fedvine.data.calendar import on_calendar
from fedvine.data.dates import time_of
from fedvine.data.graph import Graph
from fedvine.data.identity import digest, names
from fedvine.data.io.checks import ask_about_stages
from fedvine.data.io.source import exists
from fedvine.data.plan import Plan
from fedvine.data.spec import Data, of_folder
from fedvine.data.split import Split
from fedvine.data.stream import EventStream
from fedvine.experiments import nights, run_folder
from fedvine.experiments.prepare import check_final
from fedvine.experiments.run import Run, of_kept, run
from fedvine.living.gate import Gate
from fedvine.living.news import Changed
from fedvine.living.rows import StoredRows
from fedvine.living.run import LivingRun, check_lead
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.tasks.task import Task, of
from fedvine.tasks.task_plan import SHARES, TaskPlan, TaskSettings

AUTO = "auto"     # stands for a method where one is to be chosen


class SplitBy(BaseModel):
    """The table ``[split]`` of an experiment: the arguments of ``stream.split``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    by: str | None = Field(default=None, description="a column, or a partition such as hash; if "
                           "not said the data set's, or a table's client column, or hash")
    k: int | None = Field(default=None, ge=1, description="number of clients of a partition")
    seed: int | None = Field(default=None, ge=0, description="what a partition draws from")
    clients: list[str] | None = Field(default=None, min_length=1,
                                      description="only these clients; all if not said")


def _method(value: Any) -> Any:
    """Return the method of ``"fedlink"`` or ``{"name": "fedlink", "capacity": 4000}``."""
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, dict):
        return value
    if not isinstance(value.get("name"), str):
        raise FedvineError('The key "method.name" is missing; fedvine list shows the methods.')
    if value["name"] == AUTO:
        raise FedvineError("auto is not a method: it chooses one; use fedvine run auto, or "
                           "fedvine.run_auto.")
    digest = value.get("file_digest")
    found = (registry.method(value["name"]) if digest is None else
             registry.of_digest(value["name"], str(digest)))
    assert issubclass(found, Method)
    return build(found, {k: v for k, v in value.items() if k not in ("name", "file_digest")},
                 under="method.")


def _protocol(value: dict[str, Any], method: Any) -> Task:
    """Return the protocol of the method's task with these settings."""
    found = _method(method)
    task = of(found) if isinstance(found, Method) else LinkPrediction
    return build(task, value, under="protocol.")


def with_aggregate(values: dict[str, Any]) -> dict[str, Any]:
    """Return an experiment's values with its table ``aggregate`` as the method's own."""
    if "aggregate" not in values:
        return values
    given = values.get("method", {})
    given = ({"name": given} if isinstance(given, str) else given if isinstance(given, dict)
             else {**given.constants(), **given.model_dump(exclude_unset=True)})
    return {k: v for k, v in values.items() if k != "aggregate"} | {
        "method": merged(given, {"aggregate": values["aggregate"]})}


class Experiment(BaseModel):
    """Everything that a run's scores depend on; ``data`` and ``method`` may be given as names.

    >>> made = Experiment.model_validate({"data": "flights", "method": "edgebank"})
    >>> made.with_settings(["method.window=3"]).method
    EdgeBank(window=3)
    """

    # Python's own error would show a refused password.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: str | None = Field(default=None, min_length=1, max_length=80, description="what the run "
                             "is called where runs are shown; if not said as its data are")
    data: Data = Field(description="where the edges come from")
    split: SplitBy = Field(default_factory=SplitBy, description="who owns what")
    stages: Annotated[int, Field(ge=1, strict=True)] | str | None = Field(
        default=None, description='a duration such as "30d" or "1mo", or a number of edges; if not '
        "said the data set's, or about 10 stages of equal count; of a labelled graph the number of "
        "classes a task, of an own table all if not said, or \"batches\", of nodes of any class")
    origin: str | None = Field(default=None, description='the time of day, such as "00:00", at '
                               "which stages of whole days, weeks (from Monday on) or months, or "
                               "of hours that divide a day, begin, in data.timezone; if not said "
                               "that of the first event, or 00:00 with a time zone and for months")
    open_end: bool = Field(default=False, description="the table grows: stages lie on an open "
                           "grid, and rows after the last whole one wait for the next run of the "
                           "command")
    gate: Gate | None = Field(default=None, description="a night of a table that grows whose rows "
                              "or scores are far from the usual ones is not learned; none: every "
                              "one is")
    keep_nights: int = Field(default=7, ge=0, le=1000, description="nights of a table that grows "
                             "to which the run can go back")
    tasks: TaskSettings = Field(default_factory=lambda: TaskSettings(), description="tasks of a "
                                "labelled graph")
    protocol: SerializeAsAny[Task] = Field(default_factory=LinkPrediction,
                                           description="how answers are scored")
    method: Annotated[Method, BeforeValidator(_method)] = Field(
        description="the method's name and its fields")
    final: bool | None = Field(default=None, description="fit the model that answers once more on "
                               "all labelled nodes, after it was scored; if not said so for a "
                               "table of nodes, not for a data set, nor with noise")
    seed: int = Field(default=0, ge=0, description="all randomness of the run comes from here")
    threads: int = Field(default=1, ge=1, le=4096, description="threads of torch; another number "
                         "may change the last bits of a score")
    device: Device = Field(default="auto", description=ABOUT)
    quorum: float = Field(default=1.0, gt=0, le=1,
                          description="share of the clients that must answer a call")
    engine: Literal["local", "ray"] = Field(
        default="local", description="where the clients are: local (in this process), or ray (on "
        "the workers of a Ray cluster; scores are the same)")
    workers: Annotated[int, Field(ge=1, le=4096)] | Literal["auto"] | None = Field(
        default=None, description="clients that compute at a time: threads of this process, one if "
        "not said, or processes of ray, one a processor if not said (auto); scores are the same")
    address: str | None = Field(default=None, description="of a Ray cluster to join; if not said "
                                "ray starts one on this machine")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, values: Any) -> Any:
        values = with_aggregate(values) if isinstance(values, dict) else values
        if isinstance(values, dict) and isinstance(values.get("data"), str):
            values = {**values, "data": {"source": values["data"]}}
        for key in values if isinstance(values, dict) else ():
            if key not in cls.model_fields and (better := cls._meant(str(key), values)):
                raise FedvineError(f'There is no key "{key}" outside of a table (did you mean '
                                   f'"{better}"?).')
        if isinstance(values, dict) and isinstance(values.get("protocol"), dict):
            values = {**values, "protocol": _protocol(values["protocol"], values.get("method"))}
        return values

    @staticmethod
    def _meant(key: str, values: dict[str, Any]) -> str | None:
        """Return ``method.rounds`` for ``rounds``, if a table has a key of that name."""
        tables: dict[str, type[BaseModel]] = {"data": Data, "split": SplitBy,
                                              "tasks": TaskSettings}
        if "method" in values:
            method = _method(values["method"])
            tables = {"method": type(method), "protocol": of(method), **tables}
        return next((f"{table}.{key}" for table, model in tables.items()
                     if key in model.model_fields), None)

    @model_validator(mode="after")
    def _protocol_of_the_task(self) -> Experiment:
        wanted = of(self.method)
        if not isinstance(self.protocol, wanted):
            if self.protocol.model_fields_set - {"task"}:
                raise FedvineError(f"{self.method.name} answers for {self.method.task}s; the "
                                   f"[protocol] is one for {self.protocol.task}s.")
            object.__setattr__(self, "protocol", wanted())
        self.protocol.check(self.method)
        if self.protocol.settings is None and self.tasks.model_fields_set:
            raise FedvineError(f"[tasks] is of labelled graphs, and {self.method.name} answers for "
                               f"{self.method.task}s; leave it out.")
        return self

    @model_validator(mode="after")
    def _final_of_the_task(self) -> Experiment:
        check_final(bool(self.final), self.protocol, self.method)
        return self

    @model_validator(mode="after")
    def _engine_of_the_workers(self) -> Experiment:
        if self.threads != 1 and (self.engine == "ray" or self.workers not in (None, 1)):
            raise FedvineError("Workers compute with one thread of torch each; leave out threads, "
                               "and ask for more workers.")
        if self.engine != "ray" and self.address is not None:
            raise FedvineError('address belongs to engine = "ray"; name it too (--engine ray).')
        return self

    @field_validator("name")
    @classmethod
    def _printable(cls, value: str | None) -> str | None:
        if value is not None and not (value.strip() and value.isprintable()):
            raise FedvineError(f"The name {value!r} cannot be shown; write letters and digits.")
        return value

    @property
    def title(self) -> str:
        """Return what the run, or else its data, are called, fit for a folder's name."""
        return self.data.name if self.name is None else of_folder(self.name)

    @model_validator(mode="after")
    def _calendar(self) -> Experiment:
        if self.protocol.data == "graph" and self.origin is not None:
            raise FedvineError("A labelled graph has no times; leave out origin.")
        on_calendar(self.stages, self.origin, self.data.timezone)
        return self

    @field_serializer("method")
    def _dump_method(self, method: Method, info: SerializationInfo) -> dict[str, Any]:
        values = method.model_dump(exclude_unset=bool(info.exclude_unset))
        if info.exclude_none:   # TOML does not have null
            values = {key: value for key, value in values.items() if value is not None}
        return {**{k: v for k, v in method.constants().items() if k in ("name", "file_digest")},
                **values}

    @model_serializer(mode="wrap")
    def _dump_aggregate(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the values with the method's ``aggregate`` as a table, where it is set."""
        values = dump(self)
        method = values.get("method", {})
        if (combined := method.pop("aggregate", None)) and (
                self.method.combining != type(self.method).model_fields["aggregate"].default):
            values["aggregate"] = combined
        return values

    # -- made from files -------------------------------------------------------------------------
    @staticmethod
    def read(path: str | os.PathLike[str]) -> Experiment:
        """Read a TOML file; a table's path in it is relative to the file.

        Raises :class:`FedvineError` that names the file and the key.
        """
        return build(Experiment, Experiment.values_of(path), str(path))

    @staticmethod
    def values_of(path: str | os.PathLike[str]) -> dict[str, Any]:
        """Return the values of a TOML file, with paths as :meth:`read` takes them.

        Raises :class:`FedvineError` where the file cannot be read or is not TOML.
        """
        path = Path(path)
        try:
            values = tomllib.loads(path.read_text("utf-8"))
        except OSError as error:
            raise FedvineError(f"{path} cannot be read ({error.strerror or error}).") from error
        except ValueError as error:
            raise FedvineError(f"{path} is not TOML: {error}.") from error
        values.pop("format", None)      # of the run folder that it stands in
        data = values.get("data")
        if isinstance(data, dict):
            for key in ("source", "edges", "users", "items", "folder"):
                beside = path.absolute().parent / str(data.get(key))
                if isinstance(data.get(key), str) and exists(beside):
                    data[key] = str(beside)
            base = str(data.get("database", "")).removeprefix("sqlite:")
            if f"sqlite:{base}" == data.get("database") and exists(
                    path.absolute().parent / base):
                data["database"] = f"sqlite:{path.absolute().parent / base}"
        return values

    @staticmethod
    def of_run(folder: str | os.PathLike[str]) -> Experiment:
        """Return the experiment of the run in ``folder``; raise :class:`FedvineError` for none."""
        data = run_folder.read_experiment(folder).get("data")
        found = data.get("experiment") if isinstance(data, dict) else None
        if isinstance(data, dict) and data.get("name") == "federation":
            raise FedvineError(f"{folder} is the run of a federation, whose data lie at its sites; "
                               "there fedvine predict KIT --user ... shows forecasts.")
        if found is None:
            raise FedvineError(f"{folder} was run from Python without an Experiment; it cannot be "
                               "told as one.")
        return build(Experiment, found, f"{folder}/experiment.toml")

    def with_settings(self, settings: Iterable[str]) -> Experiment:
        """Return the experiment changed by ``KEY=VALUE``, such as ``"method.capacity=100000"``.

        A value is read as TOML, and as text if it is not TOML.
        """
        return self.updated(*map(assignment, settings))

    def updated(self, *changes: dict[str, Any]) -> Experiment:
        """Return the experiment with these values merged in, table by table."""
        values = self.model_dump(exclude_unset=True)
        for change in changes:
            values = merged(values, change)
        return build(Experiment, values)

    # -- resolved values, data and runs ----------------------------------------------------------
    def resolved(self) -> Experiment:
        """Return the experiment with the defaults of its data where it does not have a value."""
        found = self.data.dataset
        split = self.split.model_dump(exclude_none=True)
        if "by" not in split:
            given = self.protocol.default_split(self.data.client)
            split = {**(found.SPLIT if found else given), **split}
        stages = found.STAGES if found and self.stages is None else self.stages
        tasks = self.tasks
        if self.protocol.settings is not None:
            tasks = tasks.filled(found is None, getattr(found, "SHARES", SHARES))
        return self.model_copy(update={"split": SplitBy(**split), "stages": stages, "tasks": tasks,
                                       "final": self.final if self.final is not None else
                                       self._usual_final or None})

    @property
    def _usual_final(self) -> bool:
        """Return whether a model is by default fitted once more on all labelled nodes."""
        return self.protocol.refits and not self.data.dataset and not self.method.noisy()

    @property
    def step(self) -> int | str | None:
        """Return the duration or number of edges of a stage, with the calendar that it follows."""
        return on_calendar(self.resolved().stages, self.origin, self.data.timezone)

    def plain(self) -> dict[str, Any]:
        """Return all keys, resolved, as values that TOML can hold; keys with None are left out."""
        values = self.resolved().model_dump(mode="json", exclude_none=True)
        if not self.data.options:
            del values["data"]["options"]
        values["data"].pop("append_only", None)     # how it is read; what is learned is the same
        for key in _HOW:    # likewise
            values.pop(key, None)
        if not self.open_end:
            del values["open_end"]
        if not self._usual_final and not self.final:
            values.pop("final", None)
        if self.protocol.settings is None:
            del values["tasks"]
        return values

    def identity(self) -> str:
        """Return 16 hex digits that identify the settings; a data file counts by its path alone."""
        text = json.dumps(self.plain(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def open(self) -> tuple[Method, Split, Plan | TaskPlan]:
        """Return the method, the split data and the plan of stages.

        Raises :class:`FedvineError` where the data do not fit the method's task.
        """
        return self._prepared(self.data.open())

    def _prepared(self, stream: Any, as_of: float | None = None
                  ) -> tuple[Method, Split, Plan | TaskPlan]:
        """Return what :meth:`open` does, for data that are read already; ``as_of``: :meth:`run`."""
        made, more = self.resolved(), {} if as_of is None else {"as_of": as_of}
        check_data(self, stream if as_of is None else stream.before(np.nextafter(as_of, np.inf)))
        if self.open_end:
            if self.data.share is not None:
                raise FedvineError("data.share draws other rows whenever the table has grown; "
                                   "leave it out, or do not say that the table grows (--open).")
            check_lead(getattr(self.protocol, "lead", 1))
        prepare = self.protocol.prepare_open if self.open_end else self.protocol.prepare
        split, plan = prepare(stream, made.split.model_dump(exclude_none=True), self.step,
                              made.tasks, made.seed, **more)
        return made.method, split, plan

    def _time(self, as_of: str | float, stream: Any) -> float:
        """Return the time ``as_of``; raise :class:`FedvineError` for one that no row can have."""
        if not isinstance(stream, EventStream):
            raise FedvineError("A labelled graph has no times; leave out as_of (--as-of).")
        if isinstance(as_of, str):
            if not stream.dates and not re.fullmatch(r"[-+]?[.\d]+([eE][-+]?\d+)?", as_of):
                raise FedvineError(f"{stream.name} has times that are plain numbers; write as_of "
                                   "(--as-of) as such a number, and not as a date or now.")
            if stream.dates and re.fullmatch(r"\d{8}|\d{14}", as_of):
                raise FedvineError(f"as_of (--as-of) is {as_of}, which counts seconds since 1970; "
                                   "write a date such as 2024-03-20 or 2024-03-20T02:00.")
            as_of = time_of(as_of, self.data.timezone or True)
        if not math.isfinite(as_of):
            raise FedvineError(f"as_of (--as-of) is {as_of}, which is not a time.")
        if stream.dates and as_of > time.time() + 86_400 and not self.data.sure:
            raise FedvineError("as_of (--as-of) is later than today, so stages would be learned "
                               "before their rows can be there; say --sure if that is meant.")
        return as_of

    def run(self, out: str | os.PathLike[str] | None = None, *, now: bool = False,
            as_of: str | float | None = None, keep: bool = True, table: Any = None,
            changed: str | None = None, anyway: bool = False, **options: Any) -> Run:
        """Prepare the run; ``options`` are those of :func:`fedvine.run`.

        Sets the number of threads that torch uses in this process.

        Args:
            out: the run folder. Where it has a run of this experiment, rows that the data have got
                since are taken in (:meth:`grown`).
            now: make a stage of the rows after the last whole one, too.
            as_of: a time, "now" or a date as text, in the experiment's zone. Stages of a duration
                are whole when their end is at or before it, with or without rows, and later rows
                wait. None: when there is a row at or past their end.
            keep: the folder gets a copy of the data.
            table: the data, opened before; None: they are opened.
            changed: what to do where rows that were learned are gone from the data, or have other
                values. "relearn" learns again from the first of them on; "append" takes them out,
                and learns what is there instead as rows that came late.
            anyway: learn also where the gate would be closed.
            **options: of :func:`fedvine.run`.

        Returns:
            The run.

        Raises:
            FedvineError: where the data do not fit, or the folder has another run; and where rows
                that it learned are gone or have changed (:class:`fedvine.living.news.Changed`), and
                ``changed`` does not say what to do.
        """
        if changed not in (None, "relearn", "append"):
            raise FedvineError(f'--changed is "{changed}", but must be relearn or append.')
        if "torch" in sys.modules:      # where the method uses it, its file has imported it
            sys.modules["torch"].set_num_threads(self.threads)
        if self.engine == "ray" and "engine" not in options:
            options |= {"engine": "ray", "address": self.address,
                        "workers": None if self.workers == "auto" else self.workers}
        elif self.workers is not None and "engine" not in options:
            options |= {"workers": self.workers}
        if as_of is not None and now:
            raise FedvineError("as_of (--as-of) says which stages are whole, and now (--now) makes "
                               "one of all rows that are left; leave out one of them.")
        try:
            found = self.grown(out, now, as_of=as_of, anyway=anyway) if out is not None else None
        except Changed as other:
            if out is None or changed is None:
                raise
            from fedvine.experiments.erase import correct, trial
            with trial(out) as copy:    # a night that is refused changes nothing
                correct(copy, other, changed == "relearn")
                self.grown(copy, now, as_of=as_of, anyway=anyway)
            correct(out, other, changed == "relearn")
            if self.gate is not None and not anyway:    # it compares with these scores
                of_kept(out, run_folder.read_experiment(out), out=out,
                        final=bool(self.resolved().final)).finish()
            found = self.grown(out, now, as_of=as_of, anyway=anyway)
        if found is not None:
            living, source = found
            method = self.resolved().method
            split, plan = living.rows.split, living.rows.plan
        else:
            table = self.data.open() if table is None else table
            if as_of is not None and not self.open_end:
                raise FedvineError("as_of (--as-of) is for a table that grows; write open_end = "
                                   "true (--open) too.")
            as_of = None if as_of is None else self._time(as_of, table)     # of one moment alone
            method, split, plan = self._prepared(table, as_of)
            source = {"digest": digest(split.stream), "names": names(split.stream),
                      "experiment": self.plain()}
        step = self.protocol.stage_size(split.stream, self.step)
        made = run(method, split, plan, seed=self.seed, protocol=self.protocol, out=out,
                   source=source, device=self.device, quorum=self.quorum, keep=keep, step=step,
                   final=bool(self.resolved().final), **options)
        if out is not None:     # its user's own: it may be opened again from the folder
            handed.remember_run(self.data)
            if self.open_end:
                given = self.model_dump(mode="json", exclude_unset=True, exclude_none=True)
                nights.noted(out, {key: given[key] for key in _HOW if key in given} | {"data": {
                    "append_only": self.data.append_only} if self.data.append_only else {}})
        if found is None and self.open_end and out is not None and keep:
            if now:     # the rows are kept: go on from them
                return self.run(out, now=True, anyway=anyway, **options)
            found = self.grown(out, table=table, as_of=as_of)   # counts the rows that wait
        if out is not None and self.gate is not None and not anyway:
            made.check = self.gate.check_scores
            made.undo = lambda: nights.back(out)
        made.notes = (*made.notes, *dealt(self, len(split.parts)))
        made.news = [] if found is None else found[0].sentences
        return made

    def grown(self, out: str | os.PathLike[str], now: bool = False, table: Any = None,
              as_of: str | float | None = None, anyway: bool = False
              ) -> tuple[LivingRun, dict[str, Any]] | None:
        """Return the data of the run in ``out`` with what is new in them, and facts about them.

        The facts are those that ``experiment.toml`` has. None where the folder does not have data
        that can grow, or another run: that is refused when it is opened, with the keys that differ.
        ``now``, ``table``, ``as_of`` and ``anyway`` are as in :meth:`run`. Raises
        :class:`FedvineError` if the folder is in use while rows are to be added, or has learned
        rows that the data do not have any more; nothing is changed then.
        """
        folder = Path(out) / "data"
        if not StoredRows.there(folder):
            return None
        known = run_folder.read_experiment(out).get("data", {})
        if not self.began(known):
            return None
        def before(kept: StoredRows, rows: Any, plan: Any) -> None:
            if watched and isinstance(rows, EventStream):
                watched.check_rows(kept, rows, plan)
            nights.keep(out, max(self.keep_nights, int(self.gate is not None)))

        watched = None if anyway else self.gate
        living = LivingRun(folder, lambda: run_folder.alone(out), getattr(self.protocol, "lead", 1),
                           before)
        if self.protocol.data == "graph" and not living.rows.plan.living:
            return None
        at = None if as_of is None else self._time(as_of, living.rows.split.stream)
        living.look(self.data, now, table, at)
        return living, {key: known[key] for key in ("digest", "names", "edges", "experiment")
                        if key in known}

    def began(self, known: Mapping[str, Any]) -> bool:
        """Return whether ``known``, the ``[data]`` of a folder, has this experiment.

        ``data.sure`` may differ: a table that grows may raise a doubt on any day.
        """
        return _but_sure(known.get("experiment")) == _but_sure(self.plain())


_HOW = ("device", "engine", "workers", "address", "gate", "keep_nights")


def _but_sure(found: Any) -> Any:
    data = found.get("data") if isinstance(found, dict) else None
    if not isinstance(data, dict):
        return found
    return {**found, "data": {key: value for key, value in data.items() if key != "sure"}}


def check_data(experiment: Experiment, stream: Any) -> None:
    """Raise :class:`FedvineError` where the data are not what the task and the split need.

    Also where a time of a table is far from all others, or stages of edges are thousands, unless
    the experiment is sure.
    """
    method, split = experiment.method, experiment.resolved().split
    if isinstance(stream, Graph) != (experiment.protocol.data == "graph"):
        raise FedvineError(f"{method.name} answers for {method.task}s; {stream.name} is " + (
            "a labelled graph; choose a method for nodes, such as power_plus."
            if isinstance(stream, Graph) else "a stream of edges; choose a method for links, such "
            "as fedlink_plus, or name a table of nodes as data, and its edges with --edges."))
    if isinstance(stream, EventStream) and not (experiment.data.dataset or experiment.data.sure):
        stages = experiment.protocol.stage_size(stream, experiment.step)
        plans.ask_about_far(stream.name, stream.order, stages, stream.dates)
        if experiment.stages is not None:
            ask_about_stages(len(stream), stages, stream.name)
    owner = getattr(stream, "owner", None)
    if (experiment.split.k, experiment.split.seed) != (None, None) and split.by in (
            *getattr(stream, "codes", ()), *((owner.column, "client") if owner else ())):
        raise FedvineError("k (--k) and split.seed are of a partition, and "
                           f'{stream.name} is split by its column "{split.by}"; leave them out, or '
                           "name a partition with --split, such as louvain.")


def dealt(experiment: Experiment, count: int) -> tuple[str, ...]:
    """Return the note on a table without clients, which is dealt to ``count`` of them."""
    given, data = experiment.split, experiment.data
    if data.dataset or data.client or given.by or given.k is not None or given.clients:
        return ()
    return (f"No column of clients was named, so the {experiment.protocol.unit} are split into "
            f"{count} clients by {experiment.resolved().split.by}; name a column with --client, or "
            "say how with --split and --k.",)
