"""Data that grow: the rows of a table that a run does not have yet, and their place in it.

A run keeps the rows that it has learned (:mod:`fedvine.living.rows`). A table that is read again
must still have them all; the others are new. No node and no row is ever renumbered.

Of a stream :func:`news` compares both as multisets. A row that is older than the learned time came
late; it is appended like any other. A node keeps what its table said when it was first read.

Of a labelled graph :func:`merged` compares nodes by name and edges by their ends. New nodes,
classes and clients get the numbers after the last one. Each row keeps the block of stages in which
it may first be seen (:class:`fedvine.data.graph.Came`), so a plan can return the graph as it was at
any stage.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, issparse, vstack

from fedvine.core.errors import FedvineError, Unanswered
from fedvine.core.lookup import find
from fedvine.data.dates import moment
from fedvine.data.edge_rows import EdgeRows
from fedvine.data.graph import Came, Graph, Owner
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

    - ``rows``: their ranks, int64 [n]
    - ``there``: which of them are there with other values, bool [n]
    - ``values``: by column the new values of those, in their order
    """

    def __init__(self, text: str, rows: np.ndarray, there: np.ndarray,
                 values: dict[str, np.ndarray]) -> None:
        super().__init__(text)
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
    key, count = _kinds_of(*numbers)
    gone = np.bincount(key[:len(few)], minlength=count) > np.bincount(key[len(few):],
                                                                      minlength=count)
    values = [_values(few), _values(before)]
    row, count = _kinds_of(*(np.concatenate([k, v], 1) for k, v in zip(numbers, values,
                                                                      strict=True)))
    mine, theirs = row[:len(few)], row[len(few):]
    have = np.bincount(mine, minlength=count)
    short = have > np.bincount(theirs, minlength=count)
    if short.any():
        first = np.flatnonzero(gone[key[:len(few)]]) if gone.any() else np.flatnonzero(short[mine])
        said = _row(kept, int(ours[first[0]]), column)
        what = (f"has lost {said}, which was learned in {where}" if gone.any() else
                f"has other values for {said}, which was learned in {where}")
        lost = _beyond(mine, np.bincount(theirs, minlength=count))
        instead = _instead(key[lost], key[len(few):], _beyond(theirs, have))
        raise Changed(
            f"{table.name} {what} ({len(lost):,} such row{'s' * (len(lost) != 1)}); "
            "--changed relearn learns again from there on, --changed append takes the old row out "
            "and learns the new one as a late one; or put the old one back.", ours[lost],
            instead >= 0, {name: np.asarray(getattr(before, name))[instead[instead >= 0]]
                           for name in _VALUES if getattr(before, name) is not None})
    return News(table, other[_beyond(theirs, have)], rest)


def _instead(lost: np.ndarray, keys: np.ndarray, came: np.ndarray) -> np.ndarray:
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
                           in (("node", _texts(kept)), ("label", kept.classes), *owner)},
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


def _kinds_of(*rows: np.ndarray) -> tuple[np.ndarray, int]:
    """Return a number for each row of all arrays [*, W], the same for equal rows, and how many."""
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


def _beyond(rows: np.ndarray, have: np.ndarray) -> np.ndarray:
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


# -- labelled graphs -------------------------------------------------------------------------------
class ChangedGraph(Changed):
    """Learned nodes or edges are gone from the tables of a labelled graph, or have other values.

    - ``gone``, ``other``: bool [N], nodes that are gone, and those with other values
    - ``edges``, ``told``: which edges bool [E], and rows of their table bool [R], are still there
    - ``now``: the run's graph with the values that its nodes and rows of edges have now, without
      such rows that are gone
    """

    def __init__(self, text: str, gone: np.ndarray, other: np.ndarray, edges: np.ndarray,
                 told: np.ndarray, now: Graph) -> None:
        super().__init__(text, np.flatnonzero(gone | other), other[gone | other], {})
        self.gone, self.other, self.edges, self.told, self.now = gone, other, edges, told, now


class GraphNews(NamedTuple):
    """Counts of what a reading added: nodes, labels of nodes known before, edges, classes."""

    nodes: int = 0
    labels: int = 0
    edges: int = 0
    classes: int = 0
    clients: int = 0


def merged(kept: Graph, table: Graph, block: int) -> tuple[Graph, GraphNews]:
    """Return the graph ``kept`` with the rows of ``table`` that it does not have, and their counts.

    New rows may be seen as of ``block``. The order of rows of ``table`` decides the numbers of new
    nodes alone. A class for a node that did not have one is new. Where the clients are those of a
    partition, a new node joins the client of most of its neighbours, or the smallest client. Raises
    :class:`FedvineError` where other columns are features than before, and :class:`ChangedGraph`
    where a node or an edge has vanished, or a node has other features, another class or another
    client; the sentence names the first.
    """
    came = kept.came
    assert came is not None
    old, now = _texts(kept), _texts(table)
    was, told = ({} if one.rows is None else one.rows.kinds for one in (kept, table))
    _check_columns(was, told, table.name)
    if table.features != kept.features:
        raise FedvineError(f"{table.name} has {table.features} columns of features, and had "
                           f"{kept.features}; a run that goes on needs them as they were: put "
                           "them back, or start a new run in another folder.")
    row = {node: i for i, node in enumerate(now)}
    at = np.fromiter((row.get(node, -1) for node in old), np.int64, len(old))
    y, classes = _numbered(table.y, table.classes, kept.classes)
    new = np.setdiff1d(np.arange(len(now)), at)
    number = np.empty(len(now), np.int64)           # of each row of the table, in the run
    number[at[at >= 0]] = np.flatnonzero(at >= 0)
    number[new] = len(kept) + np.arange(len(new))
    ids = [*old, *(now[i] for i in new)]
    codes = _codes(table.edges, number, len(ids))
    rows_of_edges, lost = _rows_of_edges(kept, table, number, block)
    _check(kept, table, at, y, classes, ids, codes, lost, rows_of_edges)
    known = _codes(kept.edges, np.arange(len(kept)), len(ids))
    more = np.setdiff1d(codes, known)
    every = np.concatenate([known, more])
    order = np.argsort(every)
    edges = np.stack(np.divmod(every[order], max(len(ids), 1))).astype(np.int32)
    given = (kept.y < 0) & (y[at] >= 0)
    rows = np.concatenate([at, new])
    owner = _owners(kept, table, rows, edges)
    own: Any = (csr_matrix(vstack([kept.own, table.own[new]], format="csr")) if issparse(kept.x)
                else np.concatenate([kept.own, table.own[new]]))    # type: ignore[list-item]
    grown = replace(
        kept, x=own, rows=None, y=y[rows], classes=classes, edges=edges,
        nodes=np.arange(len(rows)), ids=table.names().take(rows), notes=table.notes, owner=owner,
        came=Came(_stamped(came.node, len(new), block),
                  _stamped(np.where(given, block, came.label), len(new), block),
                  _stamped(came.edge, len(more), block)[order])).with_rows(rows_of_edges)
    clients = 0 if owner is None or kept.owner is None else (
        len(owner.names) - len(kept.owner.names))
    return grown, GraphNews(len(new), int(given.sum()), len(more),
                            len(classes) - len(kept.classes), clients)


def _check(kept: Graph, table: Graph, at: np.ndarray, y: np.ndarray, classes: tuple[str, ...],
           ids: list[str], codes: np.ndarray, lost: np.ndarray, rows: EdgeRows | None) -> None:
    """Raise :class:`ChangedGraph` where a node, an edge or a row of edges is not as before.

    ``at`` are rows of the table, -1 for none, ``y`` the classes of these; ``ids`` names by number,
    ``codes`` those of the table's edges, ``lost`` rows of the run's edges that are not there, and
    ``rows`` then those of the run with the values that they have now.
    """
    gone = at < 0
    here = np.where(gone, 0, at)
    other = {}
    if not _is_degree(table):       # a node keeps the degree with which it came
        differs: Any = kept.own != table.own[here]
        other["other features"] = np.asarray(differs.sum(1)).reshape(-1) > 0
    other["another class"] = (kept.y >= 0) & (y[here] != kept.y)
    clients = _clients(kept, table)
    if clients is not None:
        other["another client"] = clients[0][here] != kept.owner.of     # type: ignore[union-attr]
    changed = np.any([*other.values()], 0) & ~gone
    stay = np.isin(_codes(kept.edges, np.arange(len(kept)), len(ids)), codes)
    told = np.ones(0 if kept.rows is None else len(kept.rows), bool)
    told[lost] = False
    if not gone.any() and not changed.any() and stay.all() and told.all():
        return
    if gone.any() or changed.any():
        first = int((gone | changed).argmax())
        what = "has vanished" if gone[first] else "has " + next(
            name for name, mask in other.items() if mask[first]) + " than before"
        said = f'node "{ids[first]}" {what}'
    elif not stay.all():
        a, b = kept.edges[:, (~stay).argmax()]
        said = f'the edge of "{ids[a]}" and "{ids[b]}" has vanished'
    else:
        said = _row_of_edges(kept, int(lost[0]), ids)
    values: Any = kept.own.copy()
    values[changed] = table.own[here][changed]
    now = replace(kept, x=values, rows=None, y=np.where(changed, y[here], kept.y), classes=classes,
                  owner=kept.owner if clients is None or kept.owner is None else
                  kept.owner._replace(of=np.where(changed, clients[0][here], kept.owner.of).astype(
                      np.int32), names=clients[1]))
    raise ChangedGraph(
        f"{table.name}: {said}; --changed relearn learns again with what is there now, --changed "
        "append takes what is gone or has changed out and learns what is there instead as new; or "
        "put it back.", gone, changed, stay, told, now.with_rows(rows if len(lost) else kept.rows))


def _check_columns(was: dict[str, str], now: dict[str, str], name: str) -> None:
    """Raise where other columns of edges are read than before, or of another kind."""
    for column in (*was, *now):
        if was.get(column) != now.get(column):
            old, new = (f"a {kinds[column]}" if column in kinds else "not read"
                        for kinds in (was, now))
            raise FedvineError(f'Column "{column}" of the edges of {name} was {old} when the run '
                               f"began, and is {new} now; write and name it as it was.")


def _codes(edges: np.ndarray, number: np.ndarray, count: int) -> np.ndarray:
    """Return a number for each edge [2, E] of nodes of these numbers, below ``count``, int64."""
    ends = np.sort(number[edges].astype(np.int64), axis=0)
    return ends[0] * count + ends[1]


def _rows_of_edges(kept: Graph, table: Graph, number: np.ndarray, block: int
                   ) -> tuple[EdgeRows | None, np.ndarray]:
    """Return all rows of the table of edges, numbered as the run's nodes, with their blocks.

    A row that the run has keeps its block, also where an end of it is a node only now. Returns also
    the rows of the run that are not there. If there are any, the first value are the run's rows:
    such a row has the values of a new one with the same ends, or is left out.
    """
    old, now = kept.rows, table.rows
    if old is None or now is None:
        return None, np.zeros(0, np.int64)
    number = np.append(number, -1)
    ends = np.stack([number[now.src], number[now.dst]], 1)
    known = np.where(ends < len(kept), ends, -1)
    key, count = _kinds_of(*(np.concatenate([e, rows.values.view(np.int64)], 1) for e, rows in (
        (np.stack([old.src, old.dst], 1).astype(np.int64), old), (known, now))))
    mine, theirs = key[:len(old)], key[len(old):]
    lost = _beyond(mine, np.bincount(theirs, minlength=count))
    new = _beyond(theirs, np.bincount(mine, minlength=count))
    if len(lost):
        ends_of = [rows.astype(np.int64) @ [len(kept) + 1, 1] for rows in (
            np.stack([old.src, old.dst], 1)[lost], known)]
        instead = _instead(ends_of[0], ends_of[1], new)
        values, stay = old.values.copy(), np.ones(len(old), bool)
        stay[lost] = instead >= 0
        values[lost[instead >= 0]] = now.values[instead[instead >= 0]]
        return replace(old, values=values).taken(stay), lost
    came = np.full(len(now), block, np.int32)
    first = np.setdiff1d(np.arange(len(now)), new)
    assert old.came is not None
    came[first[np.argsort(theirs[first], kind="stable")]] = old.came[np.argsort(mine,
                                                                                kind="stable")]
    return EdgeRows(ends[:, 0].astype(np.int32), ends[:, 1].astype(np.int32), now.values,
                    old.kinds, came), lost


def _row_of_edges(kept: Graph, row: int, ids: list[str]) -> str:
    """Name a row of the table of edges that is gone or has changed, for a person."""
    rows = kept.rows
    assert rows is not None
    a, b = (ids[i] if i >= 0 else "a node of somebody else"
            for i in (int(rows.src[row]), int(rows.dst[row])))
    said = ", ".join(f"{name} {value:g}" for (name, kind), value in zip(
        rows.kinds.items(), rows.values[row], strict=True) if kind != CATEGORY)
    return f'a row of the edges from "{a}" to "{b}" ({said}) has vanished or changed'


def _clients(kept: Graph, table: Graph) -> tuple[np.ndarray, tuple[str, ...]] | None:
    """Return the run's number of the client of each row of ``table``, and the clients' names.

    None where the clients are those of a partition, or the table lacks their column.
    """
    if kept.owner is None or table.owner is None or kept.owner.column != table.owner.column:
        return None
    return _numbered(table.owner.of, table.owner.names, kept.owner.names)


def _owners(kept: Graph, table: Graph, rows: np.ndarray, edges: np.ndarray) -> Owner | None:
    if kept.owner is None:
        return None
    if clients := _clients(kept, table):
        return kept.owner._replace(of=clients[0][rows].astype(np.int32), names=clients[1])
    of = np.concatenate([kept.owner.of, np.full(len(rows) - len(kept), -1, np.int32)])
    size = np.bincount(kept.owner.of, minlength=len(kept.owner.names))
    near = csr_matrix((np.ones(2 * edges.shape[1], bool), (
        np.concatenate([edges[0], edges[1]]), np.concatenate([edges[1], edges[0]]))),
        (len(rows), len(rows)))
    for node in range(len(kept), len(rows)):
        others = of[near.indices[near.indptr[node]:near.indptr[node + 1]]]
        votes = np.bincount(others[others >= 0], minlength=len(size))
        of[node] = votes.argmax() if votes.any() else size.argmin()
        size[of[node]] += 1
    return kept.owner._replace(of=of)


def _texts(graph: Graph) -> list[str]:
    if graph.ids is None:
        raise FedvineError(f"{graph.name} does not name its nodes; only own tables can grow.")
    return [graph.ids[i] for i in range(len(graph))]


def _numbered(values: np.ndarray, names: tuple[str, ...], known: tuple[str, ...]
              ) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return numbers into ``names``, -1 for none, as numbers into the known names and new ones."""
    every = (*known, *(name for name in names if name not in set(known)))
    number = {name: i for i, name in enumerate(every)}
    into = np.array([*(number[name] for name in names), -1], np.int64)
    return into[values], every


def _stamped(came: np.ndarray, more: int, block: int) -> np.ndarray:
    return np.concatenate([came, np.full(more, block)]).astype(np.int32)


def _is_degree(graph: Graph) -> bool:
    """Return whether the one feature is that of a table without features, log(1 + degree)."""
    if graph.features != 1 or issparse(graph.x):
        return False
    degree = np.bincount(graph.edges.reshape(-1), minlength=len(graph))
    return np.array_equal(graph.x[:, 0], np.log1p(degree.astype(np.float32)))  # type: ignore[index]
