"""Answers of a run as tables: pairs to score, forecasts and labels with names, last edges."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from fedvine.core.errors import FedvineError, near
from fedvine.core.files import atomic
from fedvine.core.text import cells, short, unguarded
from fedvine.data.dates import moment
from fedvine.data.graph import Graph
from fedvine.data.ids import Ids, named
from fedvine.data.io import target
from fedvine.data.names import name_of
from fedvine.data.stream import EventStream
from fedvine.tasks.class_measures import rare, softmax, thresholds
from fedvine.tasks.task import Labelled

if TYPE_CHECKING:
    from fedvine.experiments.run import Run

WANTED = ("client", "user", "item")


class Best(NamedTuple):
    """Most likely items, best first: ``user`` [n]; ``item``, ``score``, ``known`` [n, count]."""

    user: np.ndarray
    item: np.ndarray
    score: np.ndarray
    known: np.ndarray


def rows_of(client: str, src: Sequence[str] | Ids, dst: Sequence[str] | Ids,
            blocks: Iterator[Best],
            likely: Callable[[np.ndarray], np.ndarray] | None = None,
            facts: Mapping[str, str] | None = None) -> Iterator[pa.Table]:
    """Yield blocks as tables with names, with the probabilities that ``likely`` gives scores.

    ``facts`` are columns with the same text in every row. A score of -infinity is no forecast.
    """
    users, items = (pa.array([ids[i] for i in range(len(ids))], pa.string()) for ids in (src, dst))
    for best in blocks:
        count, width = best.item.shape
        rank = np.tile(np.arange(1, width + 1, dtype=np.int32), count)
        there = np.flatnonzero(best.score.reshape(-1) > -np.inf)
        score = best.score.reshape(-1)[there]
        same = {"client": client, **(facts or {})}
        columns = {name: pa.array([text]).take(pa.array(np.zeros(len(there), np.int64)))
                   for name, text in same.items()}
        yield pa.table({"client": columns.pop("client"),
                        "user": users.take(pa.array(np.repeat(best.user, width)[there])),
                        "rank": pa.array(rank[there]),
                        "item": items.take(pa.array(best.item.reshape(-1)[there])),
                        "score": pa.array(score),
                        **({} if likely is None else {"probability": pa.array(
                            likely(score), from_pandas=True)}),
                        "known": pa.array(best.known.reshape(-1)[there]), **columns})


class Wanted(NamedTuple):
    """Say what lists of all users may name.

    - ``new_only``: no item that the user has met at the client
    - ``items``: the items that may be named, None: all
    - ``exclude``: pairs that are not named, a table with ``client``, ``user`` and ``item``
    - ``cap``: a column of categories of the table of items, and how many of each a list has at most
    """

    new_only: bool = False
    items: frozenset[str] | None = None
    exclude: pa.Table | None = None
    cap: tuple[str, int] | None = None

    @staticmethod
    def read(new_only: bool = False, items: Path | None = None, exclude: Path | None = None,
             cap: str | None = None) -> Wanted:
        """Read the files and texts of a command; raise :class:`FedvineError` for unusable ones.

        ``items`` is a CSV or Parquet file with a column ``item``, ``exclude`` one with ``client``,
        ``user`` and ``item``, ``cap`` such as ``"category=2"``.
        """
        named_items, limit = None, None
        if items is not None:
            from fedvine.data.io.one_table import opened_table
            with opened_table(items, "items", ("item",)) as table:
                if "item" not in table.source.columns:
                    raise FedvineError(f'{items} has no column "item".')
                columns = table.raw({"r0": "item"})
                found = table.arrow(f"CAST({columns.name('r0')[0]} AS VARCHAR) AS item")["item"]
                named_items = frozenset(name for item in found.to_pylist() if item is not None
                                        for name in (item, unguarded(item)))
        if cap is not None:
            column, _, most = cap.rpartition("=")
            if not column or not most.isdecimal() or int(most) < 1:
                raise FedvineError(f'--cap is "{cap}"; write a column of the table of items and a '
                                   "number, such as category=2.")
            limit = column, int(most)
        return Wanted(new_only, named_items, None if exclude is None else read_pairs(
            exclude, written=False), limit)


def read_pairs(pairs: Any, kind: str = "pairs", written: bool = True) -> pa.Table:
    """Return all columns of a CSV or Parquet file or a frame, with client, user and item as text.

    ``kind`` says what the table is of, ``written`` that scores will be added to it. Raises
    :class:`FedvineError` for a table that cannot be read, lacks a column, or, where scores will be
    added, has one called score or known, and for a name that is empty.
    """
    from fedvine.data.io.one_table import opened_table
    from fedvine.data.io.parts import identifier
    with opened_table(pairs, kind, WANTED) as table:
        known = list(table.source.columns)
        for name in WANTED:
            if name not in known:
                raise FedvineError(f'{table.label} has no column "{name}"; it needs client, user '
                                   f"and item and has {short(', '.join(known), 200)}.")
        for name in ("score", "known"):
            if written and name in known:
                raise FedvineError(f'{table.label} has a column "{name}" already, which is to be '
                                   "written; rename it.")
        roles = {f"r{i}": name for i, name in enumerate(known)}
        columns = table.raw(roles)
        return table.arrow(", ".join(
            (f"CAST({columns.name(role)[0]} AS VARCHAR)" if name in WANTED else role)
            + f" AS {identifier(name)}" for role, name in roles.items()))


def pairs_of(pairs: Any) -> pa.Table:
    """Return pairs as a table of text columns client, user and item.

    ``pairs`` is a pandas or polars frame, a pyarrow table, or a list of tuples or dictionaries.
    Raises :class:`FedvineError` for anything else, and for a value that is missing.
    """
    if isinstance(pairs, pa.Table) or hasattr(pairs, "columns"):
        return read_pairs(pairs).select(list(WANTED))
    rows = [tuple(row[name] for name in WANTED if name in row) if isinstance(row, Mapping)
            else tuple(row) for row in pairs]
    bad = next((i for i, row in enumerate(rows) if len(row) != 3), None)
    if bad is not None:
        raise FedvineError(f"Row {bad + 1} of the pairs is not a client, a user and an item.")
    if all(type(name) is str and name and name == name_of(name) for row in rows for name in row):
        return pa.table([pa.array([row[i] for row in rows], pa.string()) for i in range(3)],
                        list(WANTED))
    return read_pairs({name: [row[i] for row in rows] for i, name in enumerate(WANTED)})


def write_tables(out: str | os.PathLike[str], tables: Iterator[pa.Table]) -> int:
    """Write tables of one schema below each other, all or nothing; return the number of rows.

    ``out`` ends in .csv, .jsonl (a JSON object a line) or .parquet, or is a table of a database
    (:mod:`fedvine.data.io.target`), which is made anew. In CSV, text that a spreadsheet would take
    as a formula starts with an apostrophe.
    """
    if target.is_table(str(out)):
        return target.write(str(out), tables)
    suffix = Path(out).suffix
    if suffix not in (".csv", ".jsonl", ".parquet", ".pq"):
        raise FedvineError(f"{out} must end in .csv, .jsonl or .parquet, which says what to write, "
                           "or be a table of a database, such as sqlite:shop.db/forecasts or "
                           "postgres://user@host/shop/forecasts.")
    writer, count = None, 0
    with atomic(out) as file:
        for table in map(cells, tables) if suffix == ".csv" else tables:
            if writer is None:
                writer = (csv.CSVWriter(file, table.schema) if suffix == ".csv" else
                          _Lines(file) if suffix == ".jsonl" else
                          parquet.ParquetWriter(file, table.schema))
            writer.write_table(table)
            count += len(table)
        if writer is None:
            raise FedvineError("There is no user to make a forecast for.")
        writer.close()
    return count


def read_tables(out: str) -> pa.Table:
    """Return what :func:`write_tables` wrote to ``out``; names are text.

    Raises :class:`FedvineError`, :class:`OSError` or :class:`pyarrow.ArrowException` where it
    cannot be read.
    """
    if target.is_table(out):
        found = target.read(out)
    elif Path(out).suffix in (".parquet", ".pq"):
        return parquet.read_table(out)
    elif Path(out).suffix == ".jsonl":
        with open(out, encoding="utf-8") as file:
            found = pa.Table.from_pylist([json.loads(line) for line in file])
    else:
        texts = {name: pa.string() for name in (*WANTED, "as_of", "run", "model")}
        found = csv.read_csv(out, parse_options=csv.ParseOptions(newlines_in_values=True),
                             convert_options=csv.ConvertOptions(column_types=texts))
        for name in WANTED:
            names = found[name].dictionary_encode().combine_chunks()
            plain = pa.array(map(unguarded, names.dictionary.to_pylist()), pa.string())
            found = found.set_column(found.column_names.index(name), name,
                                     plain.take(names.indices))
    return found


def forget(out: str) -> None:
    """Delete what :func:`write_tables` wrote to ``out``: nothing that has other columns."""
    with contextlib.suppress(FileNotFoundError):
        if target.is_table(out):
            target.drop(out)
        elif Path(out).suffix in (".parquet", ".pq"):
            names = parquet.read_schema(out).names
            if names[0] == WANTED[0]:
                Path(out).unlink()
        elif Path(out).suffix in (".csv", ".jsonl"):
            with open(out, "rb") as file:
                ours = file.read(12).lstrip(b"{").startswith(b'"client"')
            if ours:
                Path(out).unlink()


class _Lines:
    """A writer of tables as JSON, an object a line."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def write_table(self, table: pa.Table) -> None:
        """Write the rows of a table."""
        for batch in table.to_batches(max_chunksize=10_000):
            self.file.writelines(json.dumps(row, ensure_ascii=False, default=str).encode() + b"\n"
                                 for row in batch.to_pylist())

    def close(self) -> None:
        """Do nothing: the file is its owner's."""


# -- the last edges of a node at a client, which an answer about the node rests on -----------------
class LastEdge(NamedTuple):
    """An edge of a node: the node at its other end, with its class in the data, and the time.

    ``label`` is None where the data give no class, ``time`` where edges have none.
    """

    node: str
    time: str | None = None
    label: str | None = None


def last_edges(part: EventStream | Graph, plan: Any, node: str, count: int = 10,
               learned: int | None = None) -> list[LastEdge]:
    """Return the last edges of a node that a client has learned, the newest first.

    None where the client does not know the node; ``learned`` is the last learned stage of a
    labelled graph that grows (None: all). Edges of a labelled graph do not have times and keep its
    order.
    """
    if isinstance(part, Graph):
        return _neighbours(part, node, count, learned)
    number = int(part.src_ids.numbers([node])[0])
    if number < 0:
        return []
    known = part.before(plan.bounds[-1])
    mine = known.src == number
    if not part.bipartite and not part.mirrored:
        mine |= known.dst == number
    rows = np.flatnonzero(mine)[::-1][:count]
    other = np.where(known.src[rows] == number, known.dst[rows], known.src[rows])
    return [LastEdge(part.dst_ids[int(end)], moment(float(known.t[row]), part.dates))
            for row, end in zip(rows, other, strict=True)]


def _neighbours(part: Graph, node: str, count: int, learned: int | None) -> list[LastEdge]:
    names = part.names()
    number = int(names.numbers([node])[0])
    mine = (part.edges == number).any(0)
    if part.came is not None and learned is not None:
        mine &= part.came.edge <= learned
    rows = np.flatnonzero(mine)[-count:][::-1] if number >= 0 else []
    ends = part.edges[:, rows].sum(0) - number
    return [LastEdge(names[int(end)], None,
                     part.classes[part.y[end]] if part.y[end] >= 0 else None) for end in ends]


# -- labels of nodes, with probabilities: of all nodes of a client, computed once ------------------
class Answers(NamedTuple):
    """Probabilities ``p`` float64 [N, classes so far] of nodes, and their ``client`` names [N]."""

    nodes: Labelled
    p: np.ndarray
    client: np.ndarray


class Labels:
    """The labels that the model of a finished run, or of a run's last stage, gives to nodes.

    Raises :class:`FedvineError` where the run's task does not name classes of nodes.
    """

    def __init__(self, run: Run) -> None:
        self.run, self.task, self.parts = run, run.protocol, dict(run.parts)
        self._found: dict[str, Answers] = {}
        self._known: np.ndarray | None = None       # counts of labelled nodes by class
        self._held: np.ndarray | None = None
        if self.parts:
            self.task.labelled(next(iter(self.parts.values())))

    def table(self, nodes: Iterable[Any] | None = None, client: str | None = None,
              alerts: int | None = None, precision: float | None = None) -> pa.Table:
        """Return a row a node; see :meth:`fedvine.experiments.reopened.OpenRun.labels`."""
        client = None if client is None else named(client, "client")
        if client is not None and client not in self.parts:
            raise FedvineError(f'This run has no client "{client}"{near(client, self.parts)}; '
                               f"it has {', '.join(self.parts)}.")
        names = list(self.parts) if client is None else [client]
        if self._known is None:
            y = [self.task.labelled(part) for part in self.parts.values()]
            self._known = np.bincount(np.concatenate([n.y[n.y >= 0] for n in y]),
                                      minlength=max(len(n.classes) for n in y))
            asked = self.run.final or self.run
            self._held = asked.method.held_back(asked.at_the_end()[0])
        return alerted(self._table(nodes, names), self._known, self._held, alerts, precision)

    def _table(self, nodes: Iterable[Any] | None, names: list[str]) -> pa.Table:
        if nodes is None:
            tables = [self._rows(name, np.arange(len(self._of(name).nodes.y))) for name in names]
            found = pa.concat_tables(tables)
            given = np.asarray(found["given"].is_valid())
            return found.take(pa.array(np.argsort(given, kind="stable")))
        wanted = [named(node, "node") for node in nodes]
        at = {name: self._of(name).nodes.names.numbers(wanted) for name in names}
        here = np.array([at[name] >= 0 for name in names]).reshape(len(names), len(wanted))
        if not here.any(0).all():
            missing = wanted[int((~here.any(0)).argmax())]
            close = next((c for name in names if (c := self._of(name).nodes.names.index.near(
                missing))), "")
            raise FedvineError(f'No node is called "{missing}"{close}.')
        first = here.argmax(0)      # where several clients have the node, the first of them
        order, tables = [], []
        for i, name in enumerate(names):
            mine = np.flatnonzero(first == i) if len(wanted) else np.empty(0, np.int64)
            order.append(mine)
            tables.append(self._rows(name, at[name][mine]))
        return pa.concat_tables(tables).take(pa.array(np.argsort(np.concatenate(order))))

    def _of(self, name: str) -> Answers:
        """Return the answers about a client's nodes, asked for when they are first needed."""
        if name not in self._found:
            nodes = self.task.labelled(self.parts[name])
            query = self.task.ask(self.parts[name], self.run.plan, np.arange(len(nodes.y)), ())
            answer = self.run.ask(name, query) if len(nodes.y) else np.zeros((0, 1))
            self._found[name] = answers(name, nodes, answer)
        return self._found[name]

    def _rows(self, name: str, numbers: np.ndarray) -> pa.Table:
        return rows(self._of(name), numbers)


def answers(name: str, nodes: Labelled, answer: Any) -> Answers:
    """Return the probabilities of the nodes of the client ``name``.

    ``answer`` has the scores [N, classes]; or, where the server holds the graph, a mapping with
    them and the ``client`` of each node.
    """
    owner = [name] * len(nodes.y)
    if isinstance(answer, Mapping):
        answer, owner = answer["scores"], [str(n) for n in answer["client"]]
    scores = np.asarray(answer, float)
    scores = scores.reshape(len(nodes.y), scores.shape[-1])
    return Answers(nodes, softmax(scores), np.array(owner, object))


def rows(found: Answers, numbers: np.ndarray) -> pa.Table:
    """Return a row for each of the nodes ``numbers``, as :meth:`Labels.table` has them."""
    nodes, p, client = found
    classes, p, y = pa.array(nodes.classes, pa.string()), p[numbers], nodes.y[numbers]
    best = p.argmax(1) if len(p) else np.empty(0, np.int64)
    columns = {"client": pa.array(client[numbers], pa.string()),
               "node": pa.array([nodes.names[int(n)] for n in numbers], pa.string()),
               "label": classes.take(pa.array(best)),
               "probability": pa.array(p[np.arange(len(p)), best]),
               "given": classes.take(pa.array(y, mask=y < 0))}
    absent = np.zeros(len(p))
    for i, of in enumerate(nodes.classes):      # a class that is not learned yet has none
        columns[f"p({of})"] = pa.array(p[:, i] if i < p.shape[1] else absent)
    return pa.table(list(columns.values()), list(columns))


def alerted(table: pa.Table, known: np.ndarray, held: np.ndarray | None, alerts: int | None = None,
            precision: float | None = None) -> pa.Table:
    """Return a table of labels with the column ``alert``: rare classes, or "" where there is none.

    Args:
        table: of :meth:`Labels.table`.
        known: labelled nodes of each class [C], which say what is rare
            (:func:`fedvine.tasks.class_measures.rare`) where there is no ``held``.
        held: counts for :func:`fedvine.tasks.class_measures.thresholds`; a class is named where its
            probability is above its threshold. None: there are none, nor the column.
        alerts: in place of thresholds the likeliest rare class of so many nodes, those that most
            probably have a rare class, of the nodes whose class is not ``given``.
        precision: the least one to expect of alerts; None: the best F1.

    Returns:
        The table, ``alert`` after ``given``.

    Raises:
        FedvineError: for both ``alerts`` and ``precision``, or a precision without ``held``.
    """
    if alerts is not None and precision is not None:
        raise FedvineError("Give a number of alerts or a precision, not both.")
    if alerts is None and held is None:
        if precision is not None:
            raise FedvineError("This run has no thresholds, as no labelled nodes were held back; "
                               "give a number of alerts, or run power_plus.")
        return table
    first = table.column_names.index("given") + 1
    classes = [name[2:-1] for name in table.column_names[first:]]
    p = np.stack([np.asarray(column, float) for column in table.columns[first:]], 1)
    few = np.flatnonzero(rare(known if held is None else held[0].sum(1)))
    said = np.full(len(p), "", object)
    if alerts is not None:
        free = np.flatnonzero(~np.asarray(table["given"].is_valid()))
        named = free[np.argsort(-p[free][:, few].sum(1), kind="stable")[:alerts]]
        said[named] = [classes[few[i]] for i in p[named][:, few].argmax(1)] if len(few) else ""
    elif held is not None:
        found = thresholds(held, precision)
        for i, row in enumerate(p):
            said[i] = ", ".join(classes[c] for c in few if c < len(found) and (
                one := found[c]) and row[c] > one.probability)
    return table.add_column(first, "alert", pa.array(said, pa.string()))
