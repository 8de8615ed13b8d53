"""Forecasts of a run, by name: for one user, for all of them, for a table of pairs."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from fedvine.core.errors import FedvineError, HandedOver, near
from fedvine.core.files import atomic
from fedvine.core.lookup import unique
from fedvine.core.text import unguarded
from fedvine.data.dates import moment
from fedvine.data.ids import Ids, named
from fedvine.data.io.target import is_table
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream
from fedvine.experiments.answers import Best, Wanted, read_pairs, rows_of, write_tables
from fedvine.experiments.run_files import WRITTEN
from fedvine.experiments.run_folder import learned, read_experiment
from fedvine.living.news import news, taken
from fedvine.living.rows import StoredRows
from fedvine.tasks.chances import of_stages

if TYPE_CHECKING:
    from fedvine.data.node_data import NodeTable
    from fedvine.data.spec import Data
    from fedvine.experiments.run import Run
    from fedvine.tasks.task import Task

# -- the likeliest candidates of a block of users, by their scores ---------------------------------
BLOCK = 1 << 21     # pairs in one query; about 24 bytes each, twice
GUESTS = 1000       # users without an edge that are answered together


def best(task: Task, part: EventStream, users: np.ndarray, score: np.ndarray, count: int,
         known: Callable[[np.ndarray, np.ndarray], np.ndarray],
         barred: np.ndarray | None = None) -> Best:
    """Return the ``count`` most likely candidates of each user, with their scores.

    ``users`` are local numbers int64 [n], ``score`` those of all candidates float64 [n,
    candidates]. ``known`` says of users and candidates (same shape) whether the data have the pair;
    ``barred`` candidates, bool [candidates], are not named.
    """
    score = of_others(task, part, users, score)
    score = score if barred is None else np.where(barred, -np.inf, score)
    item = likeliest(score, min(count, int((score > -np.inf).sum(1).max(initial=1))))
    found = known(np.repeat(users, item.shape[1]), item.reshape(-1))
    return Best(users, item, np.take_along_axis(score, item, 1), found.reshape(item.shape))


def of_others(task: Task, part: EventStream, users: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Return scores float64 [n, items] in which no user is their own candidate (-infinity).

    Only where edges have no direction; ``users`` int64 [n] above the items' numbers are guests.
    """
    if task.no_self and not part.directed:
        rows = np.flatnonzero(users < score.shape[1])
        score = score.copy()
        score[rows, users[rows]] = -np.inf
    return score


def likeliest(score: np.ndarray, count: int) -> np.ndarray:
    """Return the numbers int64 [n, count] of the highest of each row [n, items], best first.

    Ties are in order of the items.
    """
    if 4 * count >= score.shape[1]:
        return np.argsort(-score, axis=1, kind="stable")[:, :count]
    least = -np.partition(-score, count - 1, axis=1)[:, count - 1:count]
    found = np.empty((len(score), count), np.int64)
    for n, row in enumerate(score):         # items that tie with the last one are sorted, too
        some = np.flatnonzero(row >= least[n])
        found[n] = some[np.argsort(-row[some], kind="stable")[:count]]
    return found


def capped(score: np.ndarray, codes: np.ndarray, most: int) -> np.ndarray:
    """Return scores [n, items] that keep the ``most`` best items of each category in a row.

    ``codes`` int [items] are the categories, -1 for items without one, of which all are kept. The
    others get -infinity.
    """
    score = score.copy()
    for row in score:
        order = np.argsort(-row, kind="stable")
        place = np.argsort(codes[order], kind="stable")     # by category, the best first
        ranked = codes[order][place]
        within = np.arange(len(ranked)) - np.searchsorted(ranked, ranked)
        row[order[place[(within >= most) & (ranked >= 0)]]] = -np.inf
    return score


def _categories(part: EventStream, column: str) -> np.ndarray:
    """Return the category of each item in a column of the table of items; raise if it has none."""
    table = part.dst_table
    if table is None or column not in table.texts:
        known = "" if table is None else f"; it has {', '.join(table.texts) or 'none'}"
        raise FedvineError(f'{part.name} has no table of items with categories "{column}"{known}.')
    return np.asarray(table.codes)[:, table.texts.index(column)]


class Forecast(NamedTuple):
    """One item for one user: the method's score, higher is more likely, and whether it is known.

    ``known`` is true where the user has met the item at this client before. Scores of one client
    can be compared; the scale of a difference depends on the method. ``probability`` is that of
    being met in the next stage, where the run learned it (``protocol.chances``), else None.
    """

    item: str
    score: float
    known: bool
    probability: float | None = None


class Forecasts:
    """Forecasts of a run whose clients are in this process: finished, or reopened at some stage.

    ``parts`` are the clients' streams with the names; where the server holds the graph there is one
    part, called ``all``.

    ``at``: the time of the forecasts; a client's own events before it that no round has learned
    enter its local state. None: the end of what was learned.
    """

    def __init__(self, run: Run, at: float | None = None) -> None:
        if run.summary is None and run.learned is None:
            raise FedvineError("The run is not finished; finish it first, it goes on from where "
                               "it was saved.")
        self.run, self.task, self._met = run, run.protocol, dict[str, Any]()
        self.parts = dict(run.parts)
        # A run that goes on is asked about the end of the stage that it has learned.
        plan: Any = run.plan
        self.plan = plan if run.learned is None or run.learned == len(plan) - 1 else plan.cut(
            run.learned + 1)
        self.chances = None
        if getattr(self.task, "chances", 0):
            self.chances = of_stages(stage for stage in run.stages or run.measured()
                                     if run.learned is None or stage.t <= run.learned)
        if end := getattr(self.plan, "bounds", None):       # a client may have newer rows alone
            self.parts = {n: p for n, p in self.parts.items() if len(p.before(end[-1]))}
        self.fresh = at is not None
        if at is not None:
            self.plan = plan_at(run, self.plan, at)

    def load(self) -> None:
        """Build what questions need of the streams, so that the first one is as quick as later."""
        for name, part in self.parts.items():
            part.src_ids.numbers([])
            part.dst_ids.numbers([])
            self._known(name, np.empty(0, np.int64), np.empty(0, np.int64))

    def top(self, client: str | int, user: str | int, count: int = 5) -> list[Forecast]:
        """Return the most likely items of one user at one client, best first.

        Names that are whole numbers may be numbers, as in all questions by name. The user may be a
        guest: not seen at this client, but known at another one, or in the run's table of users.
        Ties are in order of arrival. Raises :class:`FedvineError` for an unknown client or user.
        """
        client, user = named(client, "client"), named(user, "user")
        part, guests = self._part(client), []
        number = part.src_ids.numbers([user])
        if number[0] < 0:
            if not self._guests(client, [user]):
                near = next((n for p in [part, *self.parts.values()]
                             if (n := p.src_ids.index.near(user))), "")
                raise FedvineError(f'No client has ever seen a user called "{user}"{near}.')
            number, guests = np.array([part.num_src]), [user]
        best = next(self.blocks(client, number, count, guests))
        names = self.task.outcomes(part)
        return self._named(client, names, best.item[0], best.score[0], best.known[0])

    def tops(self, client: str | int, users: Sequence[str | int], count: int = 5
             ) -> list[list[Forecast]]:
        """Return what :meth:`top` does for many users; an empty list for one whom nobody knows.

        Raises :class:`FedvineError` for an unknown client.
        """
        client, users = named(client, "client"), [named(user, "user") for user in users]
        part, wanted = self._part(client), list(dict.fromkeys(users))
        numbers = part.src_ids.numbers(wanted)
        guests = self._guests(client, [wanted[i] for i in np.flatnonzero(numbers < 0)])
        place = {user: part.num_src + i for i, user in enumerate(guests)}
        numbers = np.array([place.get(user, -1) if number < 0 else number
                            for user, number in zip(wanted, numbers.tolist(), strict=True)],
                           np.int64)
        known, names, found = np.flatnonzero(numbers >= 0), self.task.outcomes(part), {}
        blocks = self.blocks(client, numbers[known], count, guests)
        rows = (row for best in blocks for row in zip(best.item, best.score, best.known,
                                                      strict=True))
        for at, row in zip(known.tolist(), rows, strict=True):
            found[wanted[at]] = self._named(client, names, *row)
        return [found.get(user, []) for user in users]

    def _named(self, client: str, names: Any, items: np.ndarray, scores: np.ndarray,
               known: np.ndarray) -> list[Forecast]:
        """Return forecasts from numbers of items, their scores, and whether they are known."""
        likely: list[Any] = [None] * len(items)
        if self.chances is not None and self.chances.curve(client) is not None:
            likely = self.chances.probabilities(client, scores).tolist()
        return [Forecast(names[int(item)], float(score), bool(met), p) for item, score, met, p
                in zip(items, scores, known, likely, strict=True) if score > -np.inf]

    def why(self, client: str | int, user: str | int, items: Sequence[str | int]) -> list[str]:
        """Return why the items of :meth:`top` have their scores, in words.

        Empty where the method does not say, for a user whom nobody knows, where nodes have no
        directions, and as of a time after the last stage.
        """
        client, user = named(client, "client"), named(user, "user")
        part = self._part(client)
        number = part.src_ids.numbers([user])
        if self.fresh or not part.directed or not hasattr(self.run.method, "explain"):
            return []
        guests = self._guests(client, [user]) if number[0] < 0 else []
        if number[0] < 0:
            if not guests:
                return []
            number = np.array([part.num_src])
        numbers = part.dst_ids.numbers([named(item, "item") for item in items])
        pairs = self.task.pairs(self.plan, np.repeat(number, len(numbers)), numbers, guests)
        pairs = self._with_rows(pairs)
        return self.run.explain(client, pairs) if len(numbers) and numbers.min() >= 0 else []

    def homes(self, user: str | int) -> list[str]:
        """Return the clients that have seen a user."""
        user = named(user, "user")
        return [name for name, part in self.parts.items() if part.src_ids.numbers([user])[0] >= 0]

    def every(self, count: int, out: str | os.PathLike[str], wanted: Wanted | None = None,
              say: Callable[[int, int], object] = lambda done, users: None) -> int:
        """Write the most likely items of every user of every client; return the number of rows.

        Users of the run's own table of users who have no edge yet are answered at every client, by
        what the table says of them. Columns are ``client``, ``user``, ``rank`` (from 1), ``item``,
        ``score``, ``probability`` where the run learned it (``protocol.chances``), ``known``,
        ``basis``: ``edges`` of the user at the client, or ``table``; and of a run with a folder
        ``as_of`` (the end of what was learned), ``run`` (its name) and ``model`` (16 digits that
        change with what it has learned). Rows are computed and written in blocks.

        Args:
            count: items a user, at most.
            out: the file or table, see :func:`fedvine.experiments.answers.write_tables`.
            wanted: what lists may name; None: everything.
            say: gets the number of users that are done, and of all.

        Returns:
            The number of rows.

        Raises:
            FedvineError: where the file cannot be written, and for a column of categories that the
                table of items does not have.
        """
        rows = write_tables(out, (table for _, table in self.tables(count, wanted, say)))
        self.note(out, count)
        return rows

    def tables(self, count: int, wanted: Wanted | None = None,
               say: Callable[[int, int], object] = lambda done, users: None,
               share: tuple[int, int] = (0, 1)) -> Iterator[tuple[int, pa.Table]]:
        """Yield the tables of :meth:`every` in their order, each with the number of its group.

        Groups are users of a client with an edge, then those without one. Of each group only part
        ``share[0]`` of ``share[1]`` is made.
        """
        new, (mine, of) = [] if self.task.no_pairs else self._newcomers(), share
        groups = [(name, part, guests, users) for name, part in self.parts.items()
                  for guests, users in (([], self._there(part)), (new, np.arange(len(new))))]
        bounds = [(len(users) * mine // of, len(users) * (mine + 1) // of) for *_, users in groups]
        facts = self._facts()
        done, whole = 0, sum(high - low for low, high in bounds)

        def counted(blocks: Iterator[Best], shift: int) -> Iterator[Best]:
            nonlocal done
            for block in blocks:
                yield block._replace(user=block.user - shift)
                done += len(block.user)
                say(done, whole)

        for number, ((name, part, guests, there), (low, high)) in enumerate(zip(
                groups, bounds, strict=True)):
            likely = self.chances and partial(self.chances.probabilities, name)
            columns = {"basis": "table" if guests else "edges", **facts}
            step = GUESTS if guests else max(high - low, 1)
            for start in range(low, high, step):
                some, shift = guests[start:min(start + step, high)], part.num_src * bool(guests)
                users = shift + np.arange(len(some)) if guests else there[low:high]
                yield from ((number, table) for table in rows_of(
                    name, some or part.src_ids, self.task.outcomes(part), counted(
                        self.blocks(name, users, count, some, wanted), shift), likely, columns))

    def _there(self, part: EventStream) -> np.ndarray:
        """Return the numbers of a client's users with an edge by the plan's end, ascending."""
        known = part.before(self.plan.bounds[-1])
        return unique(known.src if part.bipartite else np.concatenate([known.src, known.dst]))

    def note(self, out: str | os.PathLike[str], count: int) -> None:
        """Note in the run's folder where lists of ``count`` items were written."""
        from fedvine.data import handed
        if self.run.folder is not None:     # for erasures, and for the page; it may be read alone
            place = out if is_table(str(out)) else Path(out).absolute()
            with contextlib.suppress(OSError), atomic(self.run.folder.path / WRITTEN, "w") as file:
                json.dump({"file": str(place), "top": count}, file)
            handed.remember_file(self.run.folder.path, str(place))

    def _facts(self) -> dict[str, str]:
        """Return what tells these forecasts from others: when they are of, run and model."""
        folder = self.run.folder
        if folder is None:
            return {}
        bounds = getattr(self.plan, "bounds", None)
        return {"as_of": moment(bounds[-1], self.run.ready.dates) if bounds else "",
                "run": folder.path.resolve().name, "model": (learned(folder.path) or "")[:16]}

    def pairs(self, table: str | os.PathLike[str], out: str | os.PathLike[str]) -> tuple[int, int]:
        """Score the pairs of a table, and write it with two columns more, ``score`` and ``known``.

        A user may be a guest, known at another client or by the run's table of users; where nobody
        knows the user, or the client has not seen the item, the score is empty. An unknown name
        that has the apostrophe of a CSV file of forecasts is taken without it.

        Args:
            table: CSV or Parquet file with the columns ``client``, ``user`` and ``item``.
            out: file to write, .csv or .parquet; the table's columns keep their order.

        Returns:
            The number of rows, and the number of rows with a score.

        Raises:
            FedvineError: for an unknown client, a task without pairs, or a file that cannot be
                read.
        """
        found = self.scored(read_pairs(Path(table)))
        write_tables(out, iter([found]))
        return len(found), len(found) - found["score"].null_count

    def scored(self, wanted: pa.Table) -> pa.Table:
        """Return a table of pairs with the columns ``score`` and ``known``; see :meth:`pairs`."""
        if self.task.no_pairs:
            raise FedvineError(self.task.no_pairs)
        score, known = np.full(len(wanted), np.nan), np.zeros(len(wanted), bool)
        client = np.array([c if c in self.parts else unguarded(c)
                           for c in wanted["client"].to_pylist()], object)
        for name in dict.fromkeys(client):
            part, rows = self._part(name), np.flatnonzero(client == name)
            users, items = (wanted[column].take(pa.array(rows)).to_pylist()
                            for column in ("user", "item"))
            users, src = _numbers(part.src_ids, users)
            items, dst = _numbers(part.dst_ids, items)
            guests = self._guests(name, [users[i] for i in np.flatnonzero(src < 0)])
            places = {user: part.num_src + i for i, user in enumerate(guests)}
            for i in np.flatnonzero(src < 0):
                src[i] = places.get(users[i], -1)
            found = (src >= 0) & (dst >= 0)
            rows, src, dst = rows[found], src[found], dst[found]
            for start in range(0, len(rows), BLOCK):
                some = slice(start, start + BLOCK)
                score[rows[some]] = self._ask(name, self.task.pairs(
                    self.plan, src[some], dst[some], guests))
            known[rows] = self._known(name, src, dst)
        return wanted.append_column("score", pa.array(score, mask=np.isnan(score))).append_column(
            "known", pa.array(known))

    # -- numbers ---------------------------------------------------------------------------------
    def _part(self, client: str) -> EventStream:
        if client not in self.parts:
            raise FedvineError(f'This run has no client "{client}"{near(client, self.parts)}; '
                               f"it has {', '.join(self.parts)}.")
        return self.parts[client]

    def _guests(self, client: str, users: list[str]) -> list[str]:
        """Return the ``users`` that another client or the table of users knows, each once."""
        found = np.zeros(len(users), bool)
        for name, part in self.parts.items():
            if name != client and users:
                found |= part.src_ids.numbers(users) >= 0
        if not found.all() and (rows := self._rows(users)) is not None:
            found |= rows.known
        return list(dict.fromkeys(u for u, known in zip(users, found, strict=True) if known))

    def _newcomers(self) -> list[str]:
        """Return the users of the run's own table of users who have no edge at any client."""
        data = self._data
        if data is None:
            return []
        from fedvine.data.io.nodes import names_in
        names = names_in(data.users, "users", data.src or "src", data.database)
        met = np.zeros(len(names), bool)
        for part in self.parts.values():
            met |= part.src_ids.numbers(names) >= 0
        return [name for name, there in zip(names, met, strict=True) if not there]

    def _rows(self, users: list[str]) -> NodeTable | None:
        """Return what clients' tables, then the run's own file, say of users, or None."""
        held = [part for part in self.parts.values() if part.src_table is not None]
        if not held:
            return None
        found = held[0].src_table.take(np.empty(0, np.int64)).padded(len(users))
        for part in held:
            found = found.filled(part.src_table, part.src_ids.numbers(users))
        data = self._data
        if data is not None and not found.known.all():
            from fedvine.data.io.nodes import read_nodes
            from fedvine.living.news import like
            names = Ids.of(users)
            found = found.filled(read_nodes(
                data.users, "users", data.src or "src", names, True, data.database, None,
                data.missing or (), like(held[0], None).kinds["src"], held[0].dates)[0],
                np.arange(len(users)))
        return found

    @functools.cached_property
    def _data(self) -> Data | None:
        """The run's data, with a table of users; None where there is none, or it may not be read.

        A folder that was handed over does not make this machine read other places, or a database.
        """
        from fedvine.data import handed
        from fedvine.data.io.source import exists, is_query
        from fedvine.data.spec import Data
        if self.run.folder is None:
            return None
        said = (read_experiment(self.run.folder.path).get("data", {}).get("experiment") or {})
        if not said.get("data", {}).get("users"):
            return None
        data = Data.model_validate(said["data"])
        try:
            handed.check(data, self.run.folder.path)
        except HandedOver:
            return None
        assert data.users is not None
        return data if is_query(data.users) or exists(data.users) else None

    def _ask(self, client: str, query: dict[str, Any]) -> np.ndarray:
        """Return the scores float64 that answer a query, in its order."""
        query = self._with_rows(query)
        if self.fresh:
            query = {**query, "refresh": True}
        found = self.run.ask(client, query)     # some methods also say which pairs lie across
        return np.asarray(found["scores"] if isinstance(found, Mapping) else found,
                          float).reshape(-1)

    def _with_rows(self, query: dict[str, Any]) -> dict[str, Any]:
        """Return a query with what tables say of its guests."""
        if not query.get("guests") or (rows := self._rows(query["guests"])) is None:
            return query
        return {**query, "said": {"known": rows.known, "numbers": rows.numbers,
                                  "codes": rows.codes}}

    def _known(self, client: str, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        if client not in self._met:
            self._met[client] = self.task.met(self.parts[client], self.plan)
        return self._met[client](users, items)

    def blocks(self, client: str, users: np.ndarray, count: int, guests: Sequence[str] = (),
              wanted: Wanted | None = None) -> Iterator[Best]:
        """Yield blocks of users with their likeliest candidates, of those that are ``wanted``."""
        part = self.parts[client]
        if count < 1:
            raise FedvineError(f"{count} items a user were asked for; ask for 1 or more.")
        every, barred = len(self.task.outcomes(part)), self.task.barred(part, self.plan)
        step = max(1, BLOCK // max(1, every))
        left_out = None if wanted is None else self._left_out(client, wanted, guests)
        codes, most = (None, 0) if wanted is None or wanted.cap is None else (
            _categories(part, wanted.cap[0]), wanted.cap[1])
        for start in range(0, len(users), step):
            some = users[start:start + step]
            score = self._ask(client, self.task.ask(part, self.plan, some, guests))
            score = of_others(self.task, part, some, score.reshape(len(some), every))
            if left_out is not None:
                score = np.where(left_out(some), -np.inf, score)
            if codes is not None:
                if barred is not None:      # they take no place of their category
                    score = np.where(barred, -np.inf, score)
                score = capped(score, codes, most)
            yield best(self.task, part, some, score, count,
                       lambda users, items: self._known(client, users, items), barred)

    def _left_out(self, client: str, wanted: Wanted, guests: Sequence[str] = ()
                  ) -> Callable[[np.ndarray], np.ndarray]:
        """Return a function from users int64 [n] to the pairs that no list names, bool [n, items].

        Raises :class:`FedvineError` where nodes are of one kind or classes are asked for.
        """
        part, names = self.parts[client], self.task.outcomes(self.parts[client])
        every = len(names)
        allowed = np.ones(every, bool) if wanted.items is None else np.array(
            [names[i] in wanted.items for i in range(every)], bool)
        barred = np.empty((0, 2), np.int64)
        if wanted.exclude is not None:
            mine = wanted.exclude.filter(pa.array([
                client in (c, unguarded(c)) for c in wanted.exclude["client"].to_pylist()],
                pa.bool_()))
            barred = np.stack([np.maximum(ids.numbers(at), ids.numbers(list(map(unguarded, at))))
                               for ids, at in ((part.src_ids, mine["user"].to_pylist()),
                                               (part.dst_ids, mine["item"].to_pylist()))], 1)
            late = {name: part.num_src + i for i, name in enumerate(guests)}
            for row, name in enumerate(mine["user"].to_pylist() if late else ()):
                barred[row, 0] = late.get(name, late.get(unguarded(name), barred[row, 0]))
            barred = barred[(barred >= 0).all(1)]

        def found(users: np.ndarray) -> np.ndarray:
            out = np.tile(~allowed, (len(users), 1))
            if wanted.new_only:
                out |= self._known(client, np.repeat(users, every), np.tile(
                    np.arange(every), len(users))).reshape(out.shape)
            place = np.searchsorted(users, barred[:, 0])        # users are ascending
            there = (place < len(users)) & (users[np.minimum(place, len(users) - 1)]
                                            == barred[:, 0])
            out[place[there], barred[there, 1]] = True
            return out

        return found


def _numbers(ids: Ids, names: list[str]) -> tuple[list[str], np.ndarray]:
    """Return names as they were before an apostrophe, and their numbers, -1 for unknown ones."""
    found = ids.numbers(names)
    if (found < 0).any():
        names = [n if i >= 0 else unguarded(n) for n, i in zip(names, found, strict=True)]
        found = ids.numbers(names)
    return names, found


# -- as of a time after the last learned stage: where the newer rows are, and the plan -------------
# A client lets its own events before that time into a copy of its local state
# (:mod:`fedvine.core.refresh`). A run that goes on has them in its own data; the table of a
# finished run is read again, and may only have got rows after the learned ones.
def plan_at(run: Run, plan: Plan, at: float) -> Plan:
    """Return the plan of the learned stages with its end moved to ``at``, which is asked about.

    Raises :class:`FedvineError` for a method that takes in no events between two stages, and for a
    time before the end of what was learned.
    """
    if run.method.refreshes == "stage":
        raise FedvineError(f"{run.method.name} answers from what its rounds have learned and takes "
                           "in no events after that; leave out --at.")
    if not at >= plan.bounds[-1]:
        end, asked = (moment(t, run.ready.dates) for t in (plan.bounds[-1], at))
        raise FedvineError(f"The run has learned the events up to {end}; --at names a time after "
                           f"that, and {asked} is not.")
    return replace(plan, bounds=(*plan.bounds[:-1], float(at)), at=float(at))


def has_newer(run: Run, plan: Plan) -> bool:
    """Return whether a client of the run has rows after the learned ``plan``."""
    return any(len(part) > len(part.before(plan.bounds[-1])) for part in run.parts.values())


def take_newer(run: Run, plan: Plan, folder: str | os.PathLike[str], table: EventStream) -> None:
    """Give a run's clients the rows that are new in its table, on a copy of the rows it keeps.

    Nothing changes where no row is new. Raises :class:`FedvineError` for a run whose rows cannot
    grow, and where learned rows are gone or have changed.
    """
    place, learned = Path(folder) / "data", plan.bounds[-1]
    if not StoredRows.there(place):
        raise FedvineError(f"{folder} does not keep the rows that its run learned, with which the "
                           "table could be compared; leave out --at.")
    kept = StoredRows.open(place)
    stream = kept.split.stream
    found = news(stream, table, learned, kept.column, folder)
    rows = taken(stream, found, learned, float(np.nextafter(max([learned, *table.t[-1:]]), np.inf)))
    if not len(rows):
        return
    with TemporaryDirectory() as made:      # what is mapped from it stays readable
        shutil.copytree(place, Path(made) / "data")
        split = StoredRows.open(Path(made) / "data").take(rows, plan).split
    run.parts = {name: split.parts[name] for name in run.parts}
    for name, worker in run.clients.workers.items():    # type: ignore[attr-defined]
        worker.part = run.parts[name]
        worker.scorer = run.protocol.scorer(worker.part, run.plan, name, run.clients.world.seed)
        worker.client.place = (-1, *worker.client.place[1:])    # attaches the stage again
