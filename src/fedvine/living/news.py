"""Data that grow: the rows of a table that a run does not have yet, and their place in it.

A run keeps the rows that it has learned (:mod:`fedvine.living.rows`). A table that is read again
must still have them all; the others are new. No node and no row is ever renumbered.

Of a stream :func:`news` compares both as multisets. A row that is older than the learned time came
late; it is appended like any other. A node keeps what its table said when it was first read. Of a
labelled graph see :mod:`fedvine.living.graph_news`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError, Unanswered
from fedvine.core.lookup import find
from fedvine.data.dates import moment
from fedvine.data.graph import Graph
from fedvine.data.ids import Ids
from fedvine.data.io.checks import ask_about_new
from fedvine.data.io.look import Look
from fedvine.data.names import WHOLE
from fedvine.data.node_data import NodeTable
from fedvine.data.stream import CATEGORY, NUMBER, EventStream, as_time

_VALUES = ("weight", "features", "label", "deleted")


@dataclass(frozen=True)
class News:
    """Rows of ``table`` that a run does not have: ranks int64, in order of time.

    ``late`` are those before the learned time; ``rest`` those from then on.
    """

    table: EventStream
    late: np.ndarray
    rest: np.ndarray


class Changed(Unanswered):
    """Learned rows are gone from a table, or have other values there.

    - ``what``: has changed, without what may be done
    - ``rows``: their ranks, int64 [n]
    - ``there``: which of them are there with other values, bool [n]
    - ``values``: by column the new values of those, in their order
    """

    def __init__(self, what: str, how: str, rows: np.ndarray, there: np.ndarray,
                 values: dict[str, np.ndarray]) -> None:
        super().__init__(f"{what}; {how}")
        self.what = what
        self.rows, self.there, self.values = rows, there, values


def news(kept: EventStream, table: EventStream, learned: float, column: str | None = None,
         where: str | os.PathLike[str] = "this run") -> News:
    """Return the rows of ``table`` that ``kept`` does not have.

    ``kept`` are the rows of the run, all before the time ``learned``; ``table`` is the table as it
    is now, sorted by time. ``column`` is that of clients, where it is part of a row's key beside
    src, dst and t, ``where`` the folder of the run, for messages. Raises :class:`Changed` with the
    rows of ``kept`` that are not in the table any more, or there with other values; deletions are
    events of their own.
    """
    check_columns(kept, table)
    end = table._rank(learned)
    before = table[:end]
    rest = np.arange(end, len(table))
    if end == len(kept) and _same(kept, before, column):
        return News(table, np.empty(0, np.int64), rest)
    ours, other = _unequal(kept, before, column)
    few, before = kept.take(ours), before.take(other)
    numbers = [_keys(few, kept, column), _keys(before, kept, column)]
    key, count = kinds_of(*numbers)
    gone = np.bincount(key[:len(few)], minlength=count) > np.bincount(key[len(few):],
                                                                      minlength=count)
    values = [_values(few), _values(before)]
    row, count = kinds_of(*(np.concatenate([k, v], 1) for k, v in zip(numbers, values,
                                                                      strict=True)))
    mine, theirs = row[:len(few)], row[len(few):]
    have = np.bincount(mine, minlength=count)
    short = have > np.bincount(theirs, minlength=count)
    if short.any():
        first = np.flatnonzero(gone[key[:len(few)]]) if gone.any() else np.flatnonzero(short[mine])
        said = _row(kept, int(ours[first[0]]), column)
        what = (f"has lost {said}, which was learned in {where}" if gone.any() else
                f"has other values for {said}, which was learned in {where}")
        lost = beyond(mine, np.bincount(theirs, minlength=count))
        instead = replacing(key[lost], key[len(few):], beyond(theirs, have))
        raise Changed(
            f"{table.name} {what} ({len(lost):,} such row{'s' * (len(lost) != 1)})",
            "--changed relearn learns again from there on, --changed append takes the old row out "
            "and learns the new one as a late one; or put the old one back.", ours[lost],
            instead >= 0, {name: np.asarray(getattr(before, name))[instead[instead >= 0]]
                           for name in _VALUES if getattr(before, name) is not None})
    return News(table, other[beyond(theirs, have)], rest)


def replacing(lost: np.ndarray, keys: np.ndarray, came: np.ndarray) -> np.ndarray:
    """Return for each key of ``lost`` a row of ``came`` with that key in ``keys``, -1 for none."""
    by_key: dict[int, list[int]] = {}
    for row in came.tolist()[::-1]:
        by_key.setdefault(int(keys[row]), []).append(row)
    return np.array([by_key[key].pop() if by_key.get(key) else -1 for key in lost.tolist()],
                    np.int64)


def check_columns(kept: EventStream, table: EventStream) -> None:
    """Raise :class:`FedvineError` where columns are of another kind than those that were learned.

    These are times with fractions after whole ones, and features of edges that were numbers or
    categories.
    """
    for name, kind in kept.edge_columns.items():
        if table.edge_columns.get(name, kind) != kind:
            raise FedvineError(f'Column "{name}" of {table.name} was a {kind} when the run began, '
                               f"and is a {table.edge_columns[name]} now; write it as it was.")
    if kept.t.dtype != table.t.dtype and kept.t.dtype.kind in "iu":
        row = int(np.argmax(np.asarray(table.t) % 1 != 0))
        raise FedvineError(f"{table.name} has a time with a fraction in {_row(table, row, None)}, "
                           "and those that were learned are whole numbers; write it as a whole "
                           "number, or begin a new run with another --out.")


def ask_about_names(what: str, known: Sequence[str], every: Sequence[str], numbers: np.ndarray,
                    label: str, sure: bool) -> list[str]:
    """Return notes on the names of ``every`` after the ``known`` ones; ask unless ``sure``.

    ``numbers`` are those of the rows, -1 for none. Raises :class:`FedvineError` as
    :func:`fedvine.data.io.checks.ask_about_new`, whose ``what`` and ``label`` these are.
    """
    counts = np.bincount(numbers[numbers >= 0], minlength=len(every)).tolist()
    new = dict(zip(every[len(known):], counts[len(known):], strict=True))
    return ask_about_new(what, known, new, label, sure)


def like(kept: Any, column: str | None = None) -> Look:
    """Return how a table is read with the kinds that a run began with.

    ``kept`` are the rows of the run, a stream or a graph, ``column`` that of a stream's clients.
    """
    if isinstance(kept, Graph):
        owner = [] if kept.owner is None else [("client", kept.owner.names)]
        return Look(whole={role: all(re.fullmatch(WHOLE, name) for name in names) for role, names
                           in (("node", texts(kept)), ("label", kept.classes), *owner)},
                    kinds={} if kept.rows is None else {"edges": kept.rows.kinds})
    roles = ("src", "dst", *(["client"] if column in kept.codes else []))
    return Look(whole={role: role in kept.whole for role in roles}, kinds=_kinds(kept))


def as_before(kept: Any, table: Any, again: Callable[[Look], Any], column: str | None = None
              ) -> Any:
    """Return a table whose columns have the kinds that a run began with, as far as they count.

    ``kept`` and ``column`` are as in :func:`like`, ``table`` as it was read without knowing of the
    run. ``again`` reads it again where its columns have other kinds; names that were whole numbers
    may be written with a point then. Raises :class:`FedvineError` where a cell does not fit; the
    sentence names it.
    """
    if type(table) is not type(kept):
        return table
    was, now = like(kept, column), like(table, column)
    same = all(now.whole.get(role) or not whole for role, whole in was.whole.items()) and all(
        now.kinds.get(side, {}).get(name, kind) == kind for side, columns in was.kinds.items()
        for name, kind in columns.items())
    return table if same else again(was)


def texts(graph: Graph) -> list[str]:
    """Return the names of a graph's nodes; raise :class:`FedvineError` where they have none."""
    if graph.ids is None:
        raise FedvineError(f"{graph.name} does not name its nodes; only own tables can grow.")
    return [graph.ids[i] for i in range(len(graph))]


def _kinds(stream: EventStream) -> dict[str, dict[str, str]]:
    """Return the kinds of the columns of edges, and of the tables of users and items."""
    return {"edges": stream.edge_columns, **{
        side: {**dict.fromkeys(table.named, NUMBER), **dict.fromkeys(table.texts, CATEGORY)}
        for side, table in stream.tables().items()}}


def taken(kept: EventStream, found: News, learned: float, upto: float) -> EventStream:
    """Return the new rows before the time ``upto``, numbered as ``kept`` is; late ones first.

    New names come after those of ``kept``, in the order in which the rows have them; the
    dictionaries are those of both. ``arrived`` is there where a row came late, now or before.
    """
    table = found.table
    on_time = found.rest[:np.searchsorted(found.rest, table._rank(upto))]
    rows = table.take(np.concatenate([found.late, on_time]))
    if kept.bipartite:
        src, src_ids, src_new = _renumbered(rows.src, kept.src_ids, table.src_ids)
        dst, dst_ids, dst_new = _renumbered(rows.dst, kept.dst_ids, table.dst_ids)
        if table.dst_table is not None:     # items that are listed now, without an edge so far
            listed = np.flatnonzero(table.dst_table.known)
            listed = listed[dst_ids.numbers(table.dst_ids.take(listed)) < 0]
            dst_ids, dst_new = (dst_ids.joined(table.dst_ids.take(listed)),
                                np.append(dst_new, listed))
    else:
        both = np.stack([rows.src, rows.dst], 1).reshape(-1)
        both, src_ids, src_new = _renumbered(both, kept.src_ids, table.src_ids)
        src, dst, dst_ids, dst_new = both[0::2].copy(), both[1::2].copy(), None, src_new
    t = rows.t if rows.t.dtype == kept.t.dtype else np.asarray(rows.t, kept.t.dtype)
    arrived = None
    if len(found.late) or kept.arrived is not None:
        arrived = np.maximum(t, as_time(t, learned))
    codes, categories = {}, {}
    for column, code in kept.codes.items():
        names = list(kept.categories[column])
        number = {name: i for i, name in enumerate(names)}
        theirs = list(map(str, table.categories[column]))
        for i in dict.fromkeys(np.asarray(rows.codes[column]).tolist()):
            if theirs[i] not in number:
                number[theirs[i]] = len(names)
                names.append(theirs[i])
        as_ours = np.array([number.get(name, -1) for name in theirs], code.dtype)
        codes[column], categories[column] = as_ours[rows.codes[column]], names
    made = EventStream(src, dst, t, src_ids, dst_ids, arrived=arrived, codes=codes,
                       categories=categories, directed=kept.directed, mirrored=kept.mirrored,
                       name=kept.name, **{c: getattr(rows, c) for c in _VALUES},
                       edge_columns=kept.edge_columns,
                       src_table=_longer(kept.src_table, table.src_table, src_new),
                       dst_table=_longer(kept.dst_table, table.dst_table, dst_new))
    made.dates, made.whole = kept.dates, kept.whole
    return made


def _same(kept: EventStream, table: EventStream, column: str | None) -> bool:
    """Return whether both have the same rows with the same names in the same order."""
    if kept.arrived is not None or not np.array_equal(kept.t, table.t):
        return False
    for side in ("src", "dst"):
        ours, theirs = getattr(kept, f"{side}_ids"), getattr(table, f"{side}_ids")
        if not (ours.starts(theirs) and np.array_equal(getattr(kept, side), getattr(table, side))):
            return False
    if any(_changed(getattr(kept, c), getattr(table, c)) for c in _VALUES):
        return False
    return column not in kept.codes or (
        list(kept.categories[column]) == list(table.categories[column][
            :len(kept.categories[column])])
        and np.array_equal(kept.codes[column], table.codes[column]))


def _unequal(kept: EventStream, table: EventStream, column: str | None
             ) -> tuple[np.ndarray, np.ndarray]:
    """Return the ranks of the rows, in each, at times where both do not have the same rows.

    The same rows in another order count as other rows. Equal rows have equal times, so that the
    others need not be compared any more; where few rows came late, few are left.
    """
    order = np.argsort(kept.t, kind="stable")
    ours, theirs = np.asarray(kept.t)[order], np.asarray(table.t, kept.t.dtype)
    starts, others = _runs(ours), _runs(theirs)
    size, at = np.diff(starts), find(theirs[others[:-1]], ours[starts[:-1]])
    same = at >= 0
    same[same] = np.diff(others)[at[same]] == size[same]
    many = size[same]
    mine = order[np.repeat(same, size)]
    its = np.arange(len(mine)) + np.repeat(others[at[same]] - np.cumsum(many) + many, many)
    differ = np.zeros(len(mine), bool)
    for a, b in zip(_columns(kept, kept, column), _columns(table, kept, column), strict=True):
        if a is None or b is None:
            differ |= a is not b
        else:
            unlike = a[mine] != b[its]
            differ |= unlike if unlike.ndim == 1 else unlike.any(1)
    run = np.repeat(np.flatnonzero(same), many)
    same[run[differ]] = False
    left = np.ones(len(others) - 1, bool)
    left[at[same]] = False
    return (np.sort(order[np.repeat(~same, size)]),
            np.flatnonzero(np.repeat(left, np.diff(others))))


def _runs(times: np.ndarray) -> np.ndarray:
    """Return where each run of equal times starts, and the end of the last one."""
    new = np.flatnonzero(times[1:] != times[:-1]) + 1
    return np.concatenate([[0], new, [len(times)]]) if len(times) else np.zeros(1, np.int64)


def _columns(rows: EventStream, kept: EventStream, column: str | None
             ) -> Iterator[np.ndarray | None]:
    """Yield the columns of :func:`_keys` but the time, and those of values, as they are."""
    yield _side(rows, kept, "src")
    yield _side(rows, kept, "dst")
    yield _client(rows, kept, column)
    for name in _VALUES:
        yield getattr(rows, name)


def _changed(ours: np.ndarray | None, theirs: np.ndarray | None) -> bool:
    return (ours is None) != (theirs is None) or (
        ours is not None and not np.array_equal(ours, theirs))  # type: ignore[arg-type]


def _keys(rows: EventStream, kept: EventStream, column: str | None) -> np.ndarray:
    """Return src, dst, t and client of rows, int64 [E, 3 or 4]; names new to ``kept`` come last."""
    t = np.ascontiguousarray(rows.t, kept.t.dtype)
    found = [_side(rows, kept, "src"), _side(rows, kept, "dst"), t.view(np.int64)]
    if (client := _client(rows, kept, column)) is not None:
        found.append(client)
    return np.stack(found, 1).astype(np.int64)


def _side(rows: EventStream, kept: EventStream, side: str) -> np.ndarray:
    ours, theirs = getattr(kept, f"{side}_ids"), getattr(rows, f"{side}_ids")
    if theirs is ours:
        return np.asarray(getattr(rows, side))
    number = ours.numbers(theirs)
    number = np.where(number < 0, len(ours) + np.arange(len(number)), number)
    return number[getattr(rows, side)]


def _client(rows: EventStream, kept: EventStream, column: str | None) -> np.ndarray | None:
    if column not in kept.codes:
        return None
    names = {name: i for i, name in enumerate(kept.categories[column])}
    return np.array([names.get(name, len(names) + i)
                     for i, name in enumerate(rows.categories[column])], np.int64
                    )[rows.codes[column]]


def _values(rows: EventStream) -> np.ndarray:
    """Return the other columns of each row as int64 [E, W], equal where all values are."""
    found = [np.zeros((len(rows), 0), np.int64)]
    for name in _VALUES:
        if (column := getattr(rows, name)) is not None:
            wide = np.asarray(column).reshape(len(rows), int(np.prod(column.shape[1:])))
            found.append(wide.astype(np.float64).view(np.int64) if wide.dtype.kind == "f" else
                         wide.astype(np.int64))
    return np.concatenate(found, 1)


def kinds_of(*rows: np.ndarray) -> tuple[np.ndarray, int]:
    """Return a number for each row of all arrays [n, W], the same for equal rows, and how many."""
    whole = np.ascontiguousarray(np.concatenate(rows))
    if not whole.shape[1] or not len(whole):
        return np.zeros(len(whole), np.int64), 1
    order = np.lexsort(whole.T)
    step = np.ones(len(whole), np.int64)
    step[0] = 0
    step[1:] = (whole[order[1:]] != whole[order[:-1]]).any(1)
    number = np.empty(len(whole), np.int64)
    number[order] = np.cumsum(step)
    return number, int(step.sum()) + 1


def beyond(rows: np.ndarray, have: np.ndarray) -> np.ndarray:
    """Return the ranks of ``rows`` (numbers of kinds) beyond the first ``have[kind]`` of each."""
    order = np.argsort(rows, kind="stable")
    kind = rows[order]
    start = np.searchsorted(kind, kind, side="left")
    return np.sort(order[np.arange(len(kind)) - start >= have[kind]])


def _longer(kept: NodeTable | None, table: NodeTable | None, new: np.ndarray
            ) -> NodeTable | None:
    """Return the kept table with the rows of new nodes, numbered as in ``table``, after its own."""
    if kept is None:
        return None
    return kept.padded(len(new)) if table is None else kept.joined(table.take(new))


def _renumbered(numbers: np.ndarray, ours: Ids, theirs: Ids
                ) -> tuple[np.ndarray, Ids, np.ndarray]:
    """Return numbers of ``theirs`` as those of ``ours``, which gets new names as they appear.

    The last value are the numbers in ``theirs`` of the new names, in that order.
    """
    used, first = np.unique(numbers, return_index=True)
    known = ours.numbers(theirs.take(used))
    new = np.flatnonzero(known < 0)
    new = new[np.argsort(first[new], kind="stable")]
    known[new] = len(ours) + np.arange(len(new))
    place = np.zeros(len(theirs), np.int32)
    place[used] = known
    return place[numbers], ours.joined(theirs.take(used[new])), used[new]


def _row(rows: EventStream, row: int, column: str | None) -> str:
    """Name a row for a person: its two ends, its time, and its client."""
    said = (f'the row "{rows.src_ids[int(rows.src[row])]}", "{rows.dst_ids[int(rows.dst[row])]}" '
            f"at time {moment(rows.t[row].item(), rows.dates)}")
    if column in rows.codes:
        said += f' of client "{rows.categories[column][rows.codes[column][row]]}"'
    return said
