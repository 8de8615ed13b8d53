"""Take persons out of the rows of a run: users, items, nodes, or all that a client has.

What is left is what the run would have kept without them. A name that has no row any more goes, the
others keep their order, so that names which were known before a person's first row keep their
numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError, near
from fedvine.data.graph import Graph, Owner
from fedvine.data.names import name_of
from fedvine.data.node_data import NodeData
from fedvine.data.split import LazyParts, Split, owning_node, parts
from fedvine.data.stream import EventStream
from fedvine.living.graph_news import ChangedGraph
from fedvine.living.news import Changed
from fedvine.living.rows import StoredRows, of_owners
from fedvine.tasks.task_plan import TaskPlan

SIDES = ("user", "item", "node", "client")


@dataclass(frozen=True)
class Gone:
    """Hold what is to be taken out, by number.

    - ``src``, ``dst``: users and items of a stream, or nodes, bool [N] each; the same array where
      nodes are of one kind
    - ``client``: clients, bool, by position in the stream's column or the graph's owners
    - ``rows``: edges of a stream, or nodes of a graph, bool
    - ``touched``: these, and rows that got other values
    """

    src: np.ndarray
    dst: np.ndarray
    client: np.ndarray
    rows: np.ndarray
    touched: np.ndarray


def canonical(names: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Return names, by a word of :data:`SIDES`, in the form that runs keep (:func:`name_of`)."""
    return {side: [name_of(name) or name for name in found] for side, found in names.items()}


def marked(kept: StoredRows, names: Mapping[str, Iterable[str]]) -> Gone:
    """Return what the ``names``, by a word of :data:`SIDES`, stand for in a run's rows.

    Raises :class:`FedvineError` for a name that the run does not know, for a node where users and
    items are two kinds, and for a client that a partition made.
    """
    data = kept.split.stream
    wanted = canonical({side: names.get(side, ()) for side in SIDES})
    graph = isinstance(data, Graph)
    ids = (data.names(), data.names()) if graph else (data.src_ids, data.dst_ids)
    if wanted["node"] and not graph and data.bipartite:
        raise FedvineError(f"{data.name} has users and items; say --user or --item.")
    one_kind = graph or not data.bipartite
    found = [np.zeros(len(one), bool) for one in ids]
    for side, at in (("user", 0), ("item", 1), ("node", 0)):
        numbers = ids[at].numbers(wanted[side])
        for name, number in zip(wanted[side], numbers.tolist(), strict=True):
            if number < 0:
                raise FedvineError(f'This run has learned no {side} "{name}"'
                                   f"{ids[at].index.near(name)}; nothing is erased.")
        found[at][numbers] = True
    src, dst = (found[0] | found[1],) * 2 if one_kind else found
    clients = _clients(kept, graph)
    client = np.zeros(len(clients), bool)
    for name in wanted["client"]:
        if name not in clients:
            raise FedvineError(f'This run has no client "{name}" with rows of its own'
                               f"{near(name, clients)}; nothing is erased.")
        client[clients.index(name)] = True
    if graph:
        rows = src.copy() if data.owner is None else src | client[data.owner.of]
        return Gone(rows, rows, client, rows, rows)
    rows = src[data.src] | dst[data.dst]
    if client.any():
        rows |= client[data.codes[kept.split.by]]
    return Gone(src, dst, client, rows, rows)


def corrected(kept: StoredRows, found: Changed, relearn: bool) -> tuple[StoredRows, Gone]:
    """Return the rows of a run as its table has them now, and which of them go.

    ``relearn``: rows with other values stay in their places with these; else they go, too, and come
    as late ones when the table is read.
    """
    if isinstance(found, ChangedGraph):
        return _corrected_graph(kept, found, relearn)
    stream = kept.split.stream[:]
    touched = np.zeros(len(stream), bool)
    touched[found.rows] = True
    rows = touched.copy()
    if relearn:
        stay = found.rows[found.there]
        rows[stay] = False
        for name, values in found.values.items():
            column = np.array(getattr(stream, name))
            column[stay] = values
            setattr(stream, name, column)
    src, dst, client = (np.zeros(n, bool) for n in (stream.num_src, stream.num_dst,
                                                    len(_clients(kept, False))))
    return (replace(kept, split=replace(kept.split, stream=stream)),
            Gone(src, dst, client, rows, touched))


def _corrected_graph(kept: StoredRows, found: ChangedGraph, relearn: bool
                     ) -> tuple[StoredRows, Gone]:
    graph = (found.now if relearn else kept.split.stream).kept(found.edges)
    if graph.rows is not None and not relearn:
        graph = graph.with_rows(graph.rows.taken(found.told))
    gone = found.gone if relearn else found.gone | found.other
    parts = of_owners(graph, kept.facts["clients"]).parts
    client = np.zeros(len(graph.owner.names) if graph.owner else 0, bool)
    return (replace(kept, split=replace(kept.split, stream=graph, parts=parts)),
            Gone(gone, gone, client, gone, gone | found.other))


def _clients(kept: StoredRows, graph: bool) -> list[str]:
    """Return the names of the clients that the data name themselves."""
    split = kept.split
    if graph:
        return list(split.stream.owner.names) if split.stream.owner is not None else []
    return list(map(str, split.stream.categories.get(split.by, ()))) if split.owner is None else []


def first_stage(kept: StoredRows, gone: Gone) -> int:
    """Return the first stage that has learned a row which is to go; the plan's length for none."""
    if not gone.touched.any():
        return len(kept.plan)
    if isinstance(kept.split.stream, Graph):
        came, blocks = kept.split.stream.came, kept.plan.blocks
        block = 0 if came is None else int(came.node[gone.touched].min())
        return blocks[block - 1] if blocks and block else 0
    order = np.asarray(kept.split.stream.order)[int(np.argmax(gone.touched))]
    return max(int(np.searchsorted(kept.plan.bounds, float(order), side="right")) - 1, 0)


def without(kept: StoredRows, gone: Gone) -> tuple[Split, Any]:
    """Return the split and the plan of a run's rows without what is ``gone``.

    Raises :class:`FedvineError` where nothing is left to learn from.
    """
    if gone.rows.all():
        raise FedvineError("That is all that this run has learned; delete its folder.")
    made = _graph if isinstance(kept.split.stream, Graph) else _stream
    split, plan = made(kept, gone)
    wanted = kept.facts.get("clients")
    if wanted is not None:
        split = split.only([name for name in wanted if name in split.parts])
    return split, plan


def _stream(kept: StoredRows, gone: Gone) -> tuple[Split, Any]:
    stream, by = kept.split.stream, kept.split.by
    rows = stream.take(np.flatnonzero(~gone.rows))
    ends = [_left(getattr(stream, side), getattr(rows, side), drop) for side, drop in (
        ("src", gone.src), ("dst", gone.dst))]
    if not stream.bipartite:
        before, now = (np.concatenate([one.src, one.dst]) for one in (stream, rows))
        ends = [_left(before, now, gone.src)] * 2
    if stream.dst_table is not None and stream.bipartite:   # items that are listed stay
        ends[1] = np.flatnonzero(_held(ends[1], len(gone.dst)) | (
            np.asarray(stream.dst_table.known) & ~gone.dst))
    rows = _narrowed(rows, ends[0], ends[1])
    if by in stream.codes and kept.split.owner is None:
        left = _left(stream.codes[by], rows.codes[by], gone.client)
        rows.codes[by] = _places(left, len(gone.client)).astype(np.int32)[rows.codes[by]]
        rows.categories[by] = [stream.categories[by][i] for i in left]
        return rows.split(by), kept.plan
    if kept.split.owner is None:
        return Split({}, rows, by), kept.plan
    names, owner = list(kept.split.names), np.asarray(kept.split.owner)[ends[1]]
    cut = LazyParts(sorted(names), lambda: parts(rows, owner[owning_node(rows)], names, owner))
    return Split(cut, rows, by, owner, kept.split.names, kept.split.seed), kept.plan


def _left(before: np.ndarray, now: np.ndarray, gone: np.ndarray) -> np.ndarray:
    """Return the numbers that stay, ascending.

    They are those that are not ``gone``, bool [N], and have a row ``now`` or had none ``before``.
    """
    many = len(gone)
    return np.flatnonzero(~gone & (_held(now, many) | ~_held(before, many)))


def _held(numbers: np.ndarray, many: int) -> np.ndarray:
    found = np.zeros(many, bool)
    found[numbers] = True
    return found


def _places(left: np.ndarray, many: int) -> np.ndarray:
    """Return the new number of each of ``many`` old ones, -1 for those that go."""
    place = np.full(many, -1, np.int32)
    place[left] = np.arange(len(left), dtype=np.int32)
    return place


def _narrowed(rows: EventStream, src: np.ndarray, dst: np.ndarray) -> EventStream:
    """Return a stream with these of its names alone, numbered anew in the same order."""
    place = _places(src, rows.num_src)
    nodes = rows.nodes
    if nodes is not None:
        stay = place[nodes.node] >= 0
        nodes = NodeData(place[nodes.node[stay]], nodes.t[stay], nodes.y[stay], nodes.classes,
                         None if nodes.x is None else nodes.x[stay])
    made = EventStream(
        place[rows.src], _places(dst, rows.num_dst)[rows.dst], rows.t, rows.src_ids.take(src),
        rows.dst_ids.take(dst) if rows.bipartite else None, weight=rows.weight,
        features=rows.features, label=rows.label, deleted=rows.deleted, arrived=rows.arrived,
        codes=rows.codes, categories=rows.categories, nodes=nodes,
        src_table=rows.src_table and rows.src_table.take(src),
        dst_table=rows.dst_table and rows.dst_table.take(dst), edge_columns=rows.edge_columns,
        directed=rows.directed, mirrored=rows.mirrored, name=rows.name)
    made.dates, made.whole, made.notes = rows.dates, rows.whole, rows.notes
    return made


def _graph(kept: StoredRows, gone: Gone) -> tuple[Split, TaskPlan]:
    whole: Graph = kept.split.stream
    left = np.flatnonzero(~gone.rows)
    place = _places(left, len(whole))
    owner = whole.owner
    if whole.rows is not None:
        going = np.append(gone.rows, False)
        whole = whole.with_rows(whole.rows.taken(~going[whole.rows.src] & ~going[whole.rows.dst]))
    graph = replace(whole.induced(left), nodes=np.arange(len(left)))
    if owner is not None:
        stay = _left(owner.of, owner.of[left], gone.client)
        numbers = _places(stay, len(owner.names))
        graph = replace(graph, owner=Owner(numbers[owner.of[left]],
                                           tuple(owner.names[i] for i in stay), owner.column))
        owner = graph.owner
    found = {}
    for name, part in kept.split.parts.items():
        if owner is None or name in owner.names:
            cut = part.induced(np.flatnonzero(place[part.nodes] >= 0))
            if cut.rows is not None:
                cut = cut.with_rows(whole.induced(cut.nodes).rows)
            found[name] = replace(cut, nodes=place[cut.nodes].astype(np.int64), owner=owner and (
                owner._replace(of=owner.of[place[cut.nodes]])))
    return Split(found, graph, kept.split.by), kept.plan.cut_anew(graph)
