"""The source of a run's edges: a data set by name, one or two tables, or a query."""

from __future__ import annotations

import contextlib
import inspect
import re
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from fedvine.core import registry
from fedvine.core.errors import FedvineError, near
from fedvine.core.rng import rng
from fedvine.core.units import names_in
from fedvine.data.calendar import zone_of
from fedvine.data.graph import Graph
from fedvine.data.io.look import Look
from fedvine.data.io.source import exists, is_query, title
from fedvine.data.plan import seconds
from fedvine.data.stream import EventStream

_COLUMNS = ("src", "dst", "time", "client", "weight")
# Other arguments of reading.
_READ = ("features", "time_format", "timezone", "bipartite", "sure", "database", "missing", "key")
_OF_GRAPHS = ("node", "label", "client", "src", "dst", "sure", "missing", "database", "time",
              "weight", "time_format", "timezone")


class Data(BaseModel):
    """The ``[data]`` of an experiment."""

    # Python's own error would show a refused password.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    source: str = Field(description="a data set's name, a CSV or Parquet file, a folder or "
                        "pattern of such files, or an SQL query")
    edges: str | None = Field(default=None, description="a second table, of edges, where source is "
                              "one of nodes, see fedvine.data.io.nodes")
    node: str | None = Field(default=None, description="the column of ids of a table of nodes; "
                             "node or id if not said")
    label: str | None = Field(default=None, description="its column of classes; label if not said")
    src: str | None = Field(default=None, description="a table's column of users; src if not said")
    dst: str | None = Field(default=None, description="its column of items; dst if not said")
    time: str | None = Field(default=None, description="its column of times; time if not said")
    client: str | None = Field(default=None, description="its column of clients, if it has one")
    weight: str | None = Field(default=None, description="its column of weights, from which "
                               "methods learn: numbers, which may be negative")
    features: tuple[str, ...] | None = Field(default=None, description="its columns of features "
                                             "of edges: numbers, and text as categories")
    time_format: str | None = Field(default=None, description="how its times are written, such as "
                                    "%d.%m.%Y %H:%M; ISO dates and numbers need none")
    timezone: str | None = Field(default=None, description="the time zone, such as Europe/Berlin, "
                                 "of a table's times that name none, of stages that begin at a "
                                 "time of day, and in which times are shown; UTC if not said")
    missing: tuple[str, ...] | None = Field(default=None, description="words such as NA, whose "
                                            "cells count as empty")
    key: str | None = Field(default=None, description="its column by which errors name a row, such "
                            "as the number of a sale; they count rows if not said")
    bipartite: bool | None = Field(default=None, description="false: users and items are nodes of "
                                   "one kind, with one dictionary; true if not said")
    sure: bool | None = Field(default=None, description="true: columns that are doubted (amounts "
                              "as times, thousands of clients) are meant")
    undirected: bool | None = Field(default=None, description="true: the edges have no direction, "
                                    "and src and dst are of one kind; false: they have one; if not "
                                    "said what the data set knows, and a table's have one")
    users: str | None = Field(default=None, description="a table of users, or of all nodes of one "
                              "kind: a key column, called as src is or the first one, and columns "
                              "of numbers and categories")
    items: str | None = Field(default=None, description="a table of items, likewise; its key "
                              "column is called as dst is, or the first one")
    folder: str | None = Field(default=None, description="the folder of a data set's own files")
    share: float | None = Field(default=None, gt=0, le=1, description="share of the edges that are "
                                "kept, drawn evenly, the same ones in every run")
    database: str | None = Field(default=None, description="where a query runs: sqlite:FILE, or "
                                 "postgres://USER@HOST/NAME without a password (PGPASSWORD, "
                                 "~/.pgpass); if not said over the files that it names")
    append_only: bool | str | None = Field(
        default=None, description="true: rows are only added, and a run that grows reads new ones "
        "alone: new files of a folder or pattern, or of a query the rows from the last learned "
        "time on; a duration such as 3d: of a query also rows that came late by up to that time")
    options: dict[str, Any] = Field(
        default_factory=dict, description="more arguments of the data set's load, of read or of "
        "read_graph, such as features")

    @field_validator("features", "missing", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """Read names with commas between them, as the command line has them."""
        names = names_in(value) if isinstance(value, str) and value else value
        return tuple(n.strip() if isinstance(n, str) else n for n in names) if names else None

    @field_validator("source", "edges", "users", "items", "folder")
    @classmethod
    def _absolute(cls, value: str | None, info: Any) -> str | None:
        """Make the path of a file absolute, so that it is found again from any folder."""
        if value is None or (info.field_name != "folder" and not is_file(value)):
            return value
        try:
            return str(Path(value).expanduser().absolute())
        except RuntimeError as error:   # the ~name of an unknown user
            raise FedvineError(f"{value} starts with an unknown user's folder; write the whole "
                               "path.") from error

    @field_validator("options")
    @classmethod
    def _no_place(cls, value: dict[str, Any], info: Any) -> dict[str, Any]:
        """Refuse ``store``: an experiment file may be somebody else's and cannot name a folder."""
        if "store" in value:
            raise FedvineError("There is no key data.options.store; FEDVINE_CACHE says where "
                               "streams are kept.")
        if (found := {"users", "items"} & set(value)) and not dataset(
                info.data.get("source", "")):
            raise FedvineError(f"There is no key data.options.{min(found)}; write "
                               f"data.{min(found)}.")
        if found := {"look", "database"} & set(value):
            raise FedvineError(f"There is no key data.options.{found.pop()}; a database is named "
                               "by data.database.")
        return value

    @field_validator("timezone")
    @classmethod
    def _zone(cls, value: str | None) -> str | None:
        if value is not None:
            zone_of(value)
        return value

    @field_validator("database")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        from fedvine.data.io.database import checked
        return None if value is None else checked(value)

    @field_validator("append_only", mode="before")
    @classmethod
    def _yes(cls, value: Any) -> Any:
        """Read yes and no as the command line has them; a duration must be one."""
        value = {"yes": True, "true": True, "no": None, "false": None}.get(
            value.lower(), value) if isinstance(value, str) else value
        if isinstance(value, str):
            seconds(value)
        return value or None

    @model_validator(mode="after")
    def _fitting(self) -> Data:
        """Refuse ``database`` and ``append_only`` for sources that they do not fit."""
        query = is_query(self.source)
        if self.database and not any(map(is_query, (self.source, self.edges, self.users,
                                                    self.items))):
            raise FedvineError(f"{self.source} is no query; write what of the database is read, "
                               "such as SELECT * FROM sales.")
        if self.append_only and (self.edges or self.share or self.dataset):
            raise FedvineError("append_only is for a folder or pattern of files, or a query, all "
                               "rows of which are read; leave it out, or edges and share.")
        if isinstance(self.append_only, str) and not query:
            raise FedvineError("append_only is a duration for queries alone; of files write yes.")
        return self

    @property
    def name(self) -> str:
        """A short name, fit for a folder: the data set, the file's stem, or ``query``."""
        if not is_file(self.source):
            return self.source if dataset(self.source) else "query"
        return of_folder(title(self.source))

    @property
    def dataset(self) -> Any:
        """The data set, see :func:`dataset`."""
        return dataset(self.source)

    def open(self, look: Look | None = None, store: Path | None = None) -> Any:
        """Return the stream, or the labelled graph; raises :class:`FedvineError` if unreadable.

        ``look`` reads a part of a table, into the folder ``store``.
        """
        if self.append_only and not is_query(self.source) and Path(self.source).is_file():
            raise FedvineError(f"{self.source} is one file, and append_only is for a folder or "
                               "pattern to which files are added; leave it out.")
        found = self._whole({} if look is None else {"look": look, "store": store})
        if self.timezone is not None and not isinstance(found, Graph):
            if not getattr(found, "dates", False):
                raise FedvineError(f"{found.name} has no dates for a time zone: its times are "
                                   "plain numbers, or there are none; leave out timezone.")
            found = found.in_zone(self.timezone)
        if self.undirected is not None:
            if isinstance(found, Graph):
                raise FedvineError("The edges of a labelled graph have no direction anyway; leave "
                                   "out undirected.")
            whole, found = found, found.with_direction(not self.undirected)
            found.notes = whole.notes
        if self.users or self.items:
            from fedvine.data.io.nodes import with_tables
            if isinstance(found, Graph):
                raise FedvineError("A labelled graph has its features in its table of nodes; leave "
                                   "out users and items.")
            found = with_tables(found, self.users, self.items, src=self.src or "src",
                                dst=self.dst or "dst", sure=bool(self.sure), look=look,
                                database=self.database, missing=self.missing or ())
        return found if self.share is None else thinned(found, self.share)

    def _whole(self, part: dict[str, Any]) -> Any:
        from fedvine.data.io.read import read
        if self.edges is not None and not self.dataset:
            return self._graph(part.get("look"))
        columns = {c: getattr(self, c) for c in _COLUMNS if getattr(self, c) is not None}
        twice = [c for c, name in columns.items() if list(columns.values()).count(name) > 1]
        if twice:
            raise FedvineError(f'{" and ".join(twice)} are the same column '
                               f'"{columns[twice[0]]}" of {self.source}; name two.')
        if self.dataset:
            given = [*(c for c in columns if c != "weight"), *(
                k for k in ("edges", "node", "label", "time_format", "bipartite", "missing", "key")
                if getattr(self, k) is not None)]
            if given:
                raise FedvineError(f"{self.source} is a data set that knows its columns; "
                                   f"leave out {', '.join(given)}.")
            return load(self.source, self.folder, **self._learned(), **self.options)
        if self.folder:
            raise FedvineError(f"A folder belongs to a data set, and {self.source} is none; "
                               "leave it out.")
        if self.node or self.label:
            raise FedvineError(f"node and label are columns of a table of nodes; if {self.source} "
                               "is one, name the table of its edges with --edges, or under "
                               "[data].")
        try:
            if self.undirected and self.bipartite:
                raise FedvineError("Edges without a direction join nodes of one kind; leave out "
                                   "bipartite or undirected.")
            kind = {"bipartite": False} if self.undirected else {}
            how = {key: getattr(self, key) for key in _READ if getattr(self, key) is not None
                   and (key != "database" or is_query(self.source))}
            if self.features and "features" in self.options:
                raise FedvineError("There are features under data and under data.options; leave "
                                   "out one of them.")
            return _call(read, self.source, **{"src": "src", "dst": "dst", "time": "time",
                                               **columns, **kind, **how, **part, **self.options})
        except FedvineError as error:
            if "has no column" in str(error) and not {"src", "dst", "time"} <= columns.keys():
                times = ("Links need times: a table of edges has a column of them. "
                         if any(w in str(error) for w in ('column "time"', 'no "time"')) else "")
                raise FedvineError(f"{error} {times}Name its columns with --src, --dst and "
                                   "--time, or under [data]; if it is a table of nodes, name "
                                   "that of its edges with --edges.") from error
            raise

    def _learned(self) -> dict[str, Any]:
        """Return the columns of a data set's edges that methods learn from, as its load has them.

        Raises :class:`FedvineError` for a data set without such columns.
        """
        found = {key: value for key, value in (("weight", self.weight),
                                               ("edge_features", self.features)) if value}
        takes = inspect.signature(self.dataset.load).parameters if self.dataset else {}
        for key in found:
            if key not in takes:
                raise FedvineError(f"The edges of {self.source} have no "
                                   f"{key.removeprefix('edge_')}; leave it out.")
        return found

    def _graph(self, look: Look | None = None) -> Graph:
        from fedvine.data.io.nodes import read_graph
        for key in ("folder", "bipartite", "key"):
            if getattr(self, key) is not None:
                raise FedvineError(f"A labelled graph of two tables has no {key}; leave it out.")
        for key in ("time_format", "timezone"):
            if getattr(self, key) is not None and self.time is None:
                raise FedvineError(f"{key} is of times, and no column of {self.edges} is named as "
                                   "that; leave it out, or name one with --time.")
        columns = {c: getattr(self, c) for c in _OF_GRAPHS if getattr(self, c) is not None}
        columns |= {} if self.features is None else {"edge_features": self.features}
        columns |= {} if look is None else {"look": look, "sure": True}
        try:
            return _call(read_graph, self.source, self.edges, **{**columns, **self.options})
        except FedvineError as error:
            if 'has no column "' in str(error):
                raise FedvineError(f"{error} Name columns with --node, --label, --src and --dst, "
                                   "or under [data].") from error
            raise


def load(name: str, folder: str | Path | None = None, **options: Any) -> Any:
    """Load a data set by its name; ``folder`` holds its own files where it needs some.

    Raises :class:`FedvineError` if the name is unknown, its files cannot be found or read, or an
    option is of another type than the data set takes.
    """
    found = registry.find("datasets", name)
    with contextlib.suppress(NameError, PydanticUserError):     # hints for type checkers alone
        hints = get_type_hints(found.load)
        for option, value in options.items():
            try:
                TypeAdapter(hints.get(option, Any)).validate_python(value, strict=True)
            except ValidationError as error:
                raise FedvineError(f"data.options has {option} = {value!r}: "
                                   f"{error.errors()[0]['msg']}.") from error
    made = _call(found.load, None if folder is None else Path(folder), **options)
    if getattr(found, "DATES", False):
        made.dates = True
    return made


def thinned(stream: Any, share: float) -> EventStream:
    """Return the stream with this share (0 to 1) of its edges, always the same ones.

    Each edge is drawn by itself. The stream's name ends in the share, as ``flights-50%``. Raises
    :class:`FedvineError` for a labelled graph, and where no edge is left.
    """
    if isinstance(stream, Graph):
        raise FedvineError(f"{stream.name} is a labelled graph, and data.share is of streams; "
                           "leave it out and set tasks.edges.")
    drawn = rng("share", repr(float(share))).random(len(stream)) < share
    if not drawn.any():
        raise FedvineError(f"No edge of {stream.name} is left with data.share = {share:g}; take "
                           "more.")
    found = stream.take(drawn.nonzero()[0])
    found.name, found.notes = f"{stream.name}-{100 * share:g}%", stream.notes
    return found


def of_folder(name: str) -> str:
    """Return a name without spaces and signs, fit for a part of a folder's name."""
    return re.sub(r"[^\w.-]+", "_", name)


def dataset(source: str) -> Any:
    """Return the module or class of a data set, None if ``source`` is a table."""
    return registry.find("datasets", source) if source in registry.names("datasets") else None


def is_file(source: str) -> bool:
    """Return whether ``source`` is a path; raises :class:`FedvineError` for an unknown name."""
    known = registry.names("datasets")
    if source in known or is_query(source):
        return False
    if "\0" in source:
        raise FedvineError(f"{source!r} is no file's path; leave out the zero byte.")
    if not source.strip() or not (Path(source).suffix or "/" in source
                                  or exists(source)):
        raise FedvineError(f'There is no data set and no file called "{source}"'
                           f"{near(source, known)}; fedvine list shows the data sets.")
    return True


def _call(function: Any, *given: Any, **options: Any) -> Any:
    """Call a function; raise :class:`FedvineError` for an option that it does not take."""
    try:
        return function(*given, **options)
    except TypeError as error:
        unknown = re.search(r"(?:unexpected keyword|multiple values for) argument '(\w+)'",
                            str(error))
        if unknown and unknown[1] in options:
            raise FedvineError(f'data.options has "{unknown[1]}", which {function.__module__}.'
                               f"{function.__name__} does not take.") from error
        raise
