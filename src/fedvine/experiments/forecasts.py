"""Forecasts of a finished run, by name: for one user, for all of them, for a table of pairs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from fedvine.core.errors import FedvineError, near
from fedvine.core.files import atomic
from fedvine.core.text import cells
from fedvine.data.ids import Ids
from fedvine.data.io import source as sources
from fedvine.data.io.source import CLOSED, identifier
from fedvine.data.io.store import sentence
from fedvine.data.stream import EventStream

if TYPE_CHECKING:
    from fedvine.experiments.run import Run
    from fedvine.tasks.task import Task

BLOCK = 1 << 21     # pairs asked for at a time; about 24 bytes each, twice


class Forecast(NamedTuple):
    """One item for one user: the method's score, higher = likelier, and whether it is known.

    ``known`` says that the user has met the item at this client before. Scores of one client
    can be compared; what a difference means is the method's own.
    """

    item: str
    score: float
    known: bool


class Forecasts:
    """Asks a finished run whose clients live in this process.

    ``parts`` are the clients' streams, which hold the names; where the server holds the graph
    there is one part, called ``all``.
    """

    def __init__(self, run: Run) -> None:
        if run.summary is None:
            raise FedvineError("The run is not finished; finish it first, it goes on from where "
                               "it was saved.")
        self.run, self.task, self._met = run, run.protocol, dict[str, Any]()
        self.parts = dict(run.parts)

    def top(self, client: str, user: str, count: int = 5) -> list[Forecast]:
        """The likeliest items of one user at one client, best first; ties in order of arrival.

        The user may be a guest: never seen at this client, but known at another one. Raises
        :class:`FedvineError` for a client or user that nobody knows.
        """
        part, guests = self._part(client), []
        number = _numbers(part.src_ids, [user])
        if number[0] < 0:
            if not self.homes(user):
                raise FedvineError(f'No client has ever seen a user called "{user}"'
                                   f"{near(user, (part.src_ids[i] for i in range(part.num_src)))}.")
            number, guests = np.array([part.num_src]), [user]
        best = next(self._best(client, number, count, guests))
        names = self.task.candidates(part)
        return [Forecast(names[int(item)], float(score), bool(known)) for item, score, known
                in zip(best.item[0], best.score[0], best.known[0], strict=True)]

    def homes(self, user: str) -> list[str]:
        """The clients that have seen a user."""
        return [name for name, part in self.parts.items()
                if _numbers(part.src_ids, [user])[0] >= 0]

    def every(self, count: int, out: str | os.PathLike[str]) -> int:
        """Write the likeliest items of every user of every client, in blocks; the rows written.

        Columns ``client``, ``user``, ``rank`` (from 1), ``item``, ``score``, ``known``; CSV if
        ``out`` ends in .csv, else Parquet.
        """
        return _write(out, (table for name, part in self.parts.items() for table in _rows(
            name, part.src_ids, self.task.candidates(part),
            self._best(name, np.arange(part.num_src), count))))

    def pairs(self, table: str | os.PathLike[str], out: str | os.PathLike[str]) -> tuple[int, int]:
        """Score a table's pairs: CSV or Parquet with columns ``client``, ``user`` and ``item``.

        Writes all of the table's columns in their order, then ``score`` and ``known``. A user may
        be a guest, known at another client; where nobody knows the user, or the client has never
        seen the item, the score is empty. Returns the number of rows, and how many of them have a
        score. Raises :class:`FedvineError` for an unknown client.
        """
        if self.task.no_pairs:
            raise FedvineError(self.task.no_pairs)
        asked = _read(Path(table))
        score, known = np.full(len(asked), np.nan), np.zeros(len(asked), bool)
        client = np.array(asked["client"].to_pylist(), object)
        for name in dict.fromkeys(client):
            part, rows = self._part(name), np.flatnonzero(client == name)
            src, dst = (_numbers(ids, asked[column].take(pa.array(rows)).to_pylist())
                        for column, ids in (("user", part.src_ids), ("item", part.dst_ids)))
            guests = self._guests(name, asked["user"].take(pa.array(rows[src < 0])).to_pylist())
            src[src < 0] = [part.num_src + guests.index(u) if u in guests else -1 for u in
                            asked["user"].take(pa.array(rows[src < 0])).to_pylist()]
            found = (src >= 0) & (dst >= 0)
            rows, src, dst = rows[found], src[found], dst[found]
            for start in range(0, len(rows), BLOCK):
                some = slice(start, start + BLOCK)
                score[rows[some]] = self._ask(name, self.task.pairs(
                    self.run.plan, src[some], dst[some], guests))
            known[rows] = self._known(name, src, dst)
        answered = ~np.isnan(score)
        columns = {"score": pa.array(score, mask=~answered), "known": pa.array(known)}
        for column, values in columns.items():
            asked = asked.append_column(column, values)
        _write(out, iter([asked]))
        return len(asked), int(answered.sum())

    # -- numbers ---------------------------------------------------------------------------------
    def _part(self, client: str) -> EventStream:
        if client not in self.parts:
            raise FedvineError(f'This run has no client "{client}"{near(client, self.parts)}; '
                               f"it has {', '.join(self.parts)}.")
        return self.parts[client]

    def _guests(self, client: str, users: list[str]) -> list[str]:
        """Those of ``users`` that another client knows, each once."""
        found = np.zeros(len(users), bool)
        for name, part in self.parts.items():
            if name != client and users:
                found |= _numbers(part.src_ids, users) >= 0
        return list(dict.fromkeys(u for u, known in zip(users, found, strict=True) if known))

    def _ask(self, client: str, query: dict[str, Any]) -> np.ndarray:
        """Return the scores float64 that answer a query, in its order."""
        found = self.run.ask(client, query)     # some methods also say which pairs lie across
        return np.asarray(found["scores"] if isinstance(found, Mapping) else found,
                          float).reshape(-1)

    def _known(self, client: str, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        if client not in self._met:
            self._met[client] = self.task.met(self.parts[client], self.run.plan)
        return self._met[client](users, items)

    def _best(self, client: str, users: np.ndarray, count: int, guests: Sequence[str] = ()
              ) -> Iterator[Best]:
        """Yield blocks of users with their likeliest candidates."""
        part = self.parts[client]
        every = len(self.task.candidates(part))
        step = max(1, BLOCK // max(1, every))
        for start in range(0, len(users), step):
            some = users[start:start + step]
            score = self._ask(client, self.task.ask(part, self.run.plan, some, guests))
            yield best(self.task, part, some, score.reshape(len(some), every), count,
                       lambda users, items: self._known(client, users, items))


def best(task: Task, part: EventStream, users: np.ndarray, score: np.ndarray, count: int,
         known: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Best:
    """Return the ``count`` likeliest candidates of ``users`` int64 [n] by ``score`` [n, all].

    ``known`` says of users and candidates (same shape) which the data know.
    """
    itself = users if task.no_self and not part.directed else None
    item = likeliest(score, count, itself)
    found = known(np.repeat(users, item.shape[1]), item.reshape(-1))
    return Best(users, item, np.take_along_axis(score, item, 1), found.reshape(item.shape))


def likeliest(score: np.ndarray, count: int, itself: np.ndarray | None = None) -> np.ndarray:
    """The ``count`` highest of each row [n, items], best first; ties in order of the items.

    ``itself`` int [n] is an item that a row does not name: a node meets others, where edges have no
    direction (a number above those of the items is of a guest, and names all).
    """
    if itself is not None:
        rows = np.flatnonzero(itself < score.shape[1])
        score, count = score.copy(), min(count, score.shape[1] - 1)
        score[rows, itself[rows]] = -np.inf
    if 4 * count >= score.shape[1]:
        return np.argsort(-score, axis=1, kind="stable")[:, :count]
    least = -np.partition(-score, count - 1, axis=1)[:, count - 1:count]
    found = np.empty((len(score), count), np.int64)
    for n, row in enumerate(score):         # what ties with the last one is sorted too, and cut
        some = np.flatnonzero(row >= least[n])
        found[n] = some[np.argsort(-row[some], kind="stable")[:count]]
    return found


class Best(NamedTuple):
    """Likeliest items, best first: ``user`` [n], and ``item``, ``score``, ``known`` [n, count]."""

    user: np.ndarray
    item: np.ndarray
    score: np.ndarray
    known: np.ndarray


def _rows(client: str, src: Ids, dst: Sequence[str] | Ids, blocks: Iterator[Best]
          ) -> Iterator[pa.Table]:
    """Blocks as tables with names."""
    users, items = (pa.array([ids[i] for i in range(len(ids))], pa.string()) for ids in (src, dst))
    for best in blocks:
        count, width = best.item.shape
        rank = np.tile(np.arange(1, width + 1, dtype=np.int32), count)
        yield pa.table({"client": pa.array([client] * (count * width), pa.string()),
                        "user": users.take(pa.array(np.repeat(best.user, width))),
                        "rank": pa.array(rank), "item": items.take(pa.array(best.item.reshape(-1))),
                        "score": pa.array(best.score.reshape(-1)),
                        "known": pa.array(best.known.reshape(-1))})


def _numbers(ids: Ids, names: list[str]) -> np.ndarray:
    """Local numbers of names, -1 where there is none."""
    wanted = set(names)
    found = {name: i for i in range(len(ids)) if (name := ids[i]) in wanted}
    return np.array([found.get(name, -1) for name in names], np.int64)


def _read(path: Path) -> pa.Table:
    """All columns of a CSV or Parquet file; client, user and item as text."""
    wanted = ("client", "user", "item")
    sources.first_bytes(path)
    try:
        with duckdb.connect(config=CLOSED) as connection:
            source = sources.from_files(connection, [path], wanted)
            for name in wanted:
                if name not in source.columns:
                    raise FedvineError(f'{path} has no column "{name}"; it needs client, user and '
                                       f"item and has {', '.join(source.columns)}.")
            for name in ("score", "known"):
                if name in source.columns:
                    raise FedvineError(f'{path} has a column "{name}" already, which is to be '
                                       "written; rename it.")
            picked = ", ".join(
                f"{f'CAST({sql} AS VARCHAR)' if name in wanted else sql} AS {identifier(name)}"
                for name, sql in source.columns.items())
            table = connection.sql(f"SELECT {picked} FROM {source.relation}").to_arrow_table()
    except duckdb.Error as error:
        raise FedvineError(sentence(error, str(path))) from error
    for name in wanted:
        if table[name].null_count:
            row = table[name].is_null().to_pylist().index(True) + 1
            raise FedvineError(f'{path}: column "{name}" is empty in row {row}; fill it in or '
                               "leave that row out.")
    return table


def _write(out: str | os.PathLike[str], tables: Iterator[pa.Table]) -> int:
    """Write tables of one schema below each other, at once or not at all; the rows written.

    In CSV, text that a spreadsheet would take as a formula starts with an apostrophe.
    """
    if Path(out).suffix not in (".csv", ".parquet", ".pq"):
        raise FedvineError(f"{out} must end in .csv or .parquet, which says what to write.")
    writer, count = None, 0
    with atomic(out) as file:
        for table in map(cells, tables) if Path(out).suffix == ".csv" else tables:
            if writer is None:
                writer = (csv.CSVWriter(file, table.schema) if Path(out).suffix == ".csv"
                          else parquet.ParquetWriter(file, table.schema))
            writer.write_table(table)
            count += len(table)
        if writer is None:
            raise FedvineError("There is no user to make a forecast for.")
        writer.close()
    return count
