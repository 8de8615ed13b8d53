"""Tables of nodes as inputs of a model: the same columns, in the same units, at every client.

Before a run each client counts, of the users and items of its first stage, the values of every
column of numbers, and sums them and their squares (:func:`sums`). The sums over clients give a mean
and a deviation (:func:`scales`), which all sides know from then on (``World.facts["tables"]``) and
which stay as they are for as long as the run lives. A node's features are, in this order:

- each number less its mean, over its deviation, at most :data:`FAR` in size; 0 where it is missing
- for each number, 1 where it is missing, else 0
- :data:`BUCKETS` buckets: each category adds 1 or -1 to one of them, both chosen by its hash
  (K. Weinberger and others, *Feature Hashing for Large Scale Multitask Learning*, ICML 2009)
- 1 where the table has a row for the node; a node without one has 0 everywhere

A node that two clients have counts twice in the sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.data.edge_rows import place
from fedvine.data.graph import Graph
from fedvine.data.node_data import BUCKETS, EDGES, FAR, NodeTable

if TYPE_CHECKING:
    from fedvine.core.state import Client, World
    from fedvine.data.stream import EventStream

SIDES = ("users", "items")
_SAME = 1e-13       # a variance below this share of the mean square is rounding: no deviation

# By side: {"numbers": {column: [count, sum, sum of squares]}, "texts": [column]}.
Sums = dict[str, dict[str, Any]]


def tables(part: Any) -> dict[str, NodeTable]:
    """Return the tables of a stream by side; of one with nodes of one kind both are the same."""
    found = {side: getattr(part, f"{end}_table", None)
             for side, end in zip(SIDES, ("src", "dst"), strict=True)}
    return {side: table for side, table in found.items() if table is not None}


def sums(stage: EventStream | Graph) -> Sums:
    """Return the sums of one client's table over the nodes with an edge in ``stage``.

    They are empty without a table. Those of the edges' own columns stand beside them. Of a labelled
    graph those of the features from its edges are returned (:mod:`fedvine.data.edge_rows`), called
    by their places, over all nodes that it began with.
    """
    from fedvine.data import edge_features
    if isinstance(stage, Graph):
        return _of_edges(stage)
    found: Sums = {EDGES: edge_features.sums(stage)} if stage.edge_columns else {}
    for side, table in tables(stage).items():
        ends = {"users": [stage.src], "items": [stage.dst]}[side] if stage.bipartite else [
            stage.src, stage.dst]
        x = np.asarray(table.numbers)[np.unique(np.concatenate(ends))].astype(np.float64)
        some = np.isfinite(x)
        x = np.where(some, x, 0.0)
        columns = np.stack([some.sum(0).astype(float), x.sum(0), np.square(x).sum(0)], 1)
        found[side] = {"numbers": dict(zip(table.named, columns.tolist(), strict=True)),
                       "texts": list(table.texts)}
    return found


def _of_edges(graph: Graph) -> Sums:
    if graph.rows is None:
        return {}
    wide, began = len(graph.rows.names), slice(None)
    if graph.came is not None:
        graph, began = graph.of_rows_until(0), graph.came.node == 0
    x = np.asarray(graph.x[began, graph.features - wide:], np.float64)
    columns = np.stack([np.full(wide, float(len(x))), x.sum(0), np.square(x).sum(0)], 1)
    return {EDGES: {"numbers": dict(zip(map(place, range(wide)), columns.tolist(), strict=True)),
                    "texts": []}}


def scales(found: Iterable[Sums]) -> dict[str, Any]:
    """Return mean and deviation of each column over all clients: ``World.facts["tables"]``.

    ``{side: {"numbers": {column: [mean, deviation]}, "texts": [column]}}``, columns in order of
    their names. The deviation is 0 for a column without two different values. A client need not
    have every column. Raises :class:`FedvineError` for a column that holds numbers at one client
    and text at another.
    """
    given, made = list(found), {}
    for side in (*SIDES, EDGES):
        mine = [one[side] for one in given if side in one]
        texts = sorted({name for one in mine for name in one["texts"]})
        numbers: dict[str, list[float]] = {}
        for name in sorted({name for one in mine for name in one["numbers"]}):
            if name in texts:
                raise FedvineError(f'Column "{name}" of the tables of {side} holds numbers at one '
                                   "client and text at another; write it alike.")
            count, total, squares = np.sum([one["numbers"][name] for one in mine
                                            if name in one["numbers"]], 0)
            mean, square = total / max(count, 1.0), squares / max(count, 1.0)
            variance = square - mean ** 2
            numbers[name] = [float(mean), float(np.sqrt(variance))
                             if variance > _SAME * square else 0.0]
        if mine:
            made[side] = {"numbers": numbers, "texts": texts}
    return made


def width(world: World, side: str) -> int:
    """Return the number of features of a user ("users") or an item ("items"), 0 without any."""
    said = world.facts.get("tables", {}).get(side)
    return 0 if said is None else (2 * len(said["numbers"]) + BUCKETS * bool(said["texts"]) + 1)


def features(client: Client, side: str) -> np.ndarray | None:
    """Return the features of all users ("users") or items ("items") that a client knows.

    Args:
        client: it keeps the array in ``client.cache``.
        side: "users" or "items".

    Returns:
        float32 [``num_src`` or ``num_dst`` of ``client.past``, :func:`width`], row i of local
        number i, also of guests, not to be written to; None where no client has such a table.
    """
    if not width(client.world, side):
        return None
    count = client.past.num_src if side == "users" else client.past.num_dst
    table, kept = tables(client.past).get(side), client.cache.get(f"features of {side}")
    if kept is None or kept[0] is not table or len(kept[1]) != count:
        kept = table, encoded(table, client.world.facts["tables"][side], count)
        client.cache[f"features of {side}"] = kept
    return kept[1]


def encoded(table: NodeTable | None, said: Mapping[str, Any], count: int) -> np.ndarray:
    """Return features float32 [count, D] of a client's table, None where it has none.

    ``said`` is what :func:`scales` returned for that side.
    """
    F, buckets = len(said["numbers"]), BUCKETS * bool(said["texts"])
    x = np.zeros((count, 2 * F + buckets + 1), np.float32)
    if table is None:
        return x
    known = np.asarray(table.known)
    x[known, F:2 * F] = x[known, -1] = 1
    for j, (name, (mean, deviation)) in enumerate(said["numbers"].items()):
        if name in table.named:
            value = np.asarray(table.numbers)[:, table.named.index(name)].astype(np.float64)
            some = np.isfinite(value)
            far = (value[some] - mean) / (deviation or np.inf)
            x[some, j], x[some, F + j] = np.clip(far, -FAR, FAR), 0
    for name in said["texts"]:
        if name in table.texts:
            code = np.asarray(table.codes)[:, table.texts.index(name)]
            some = np.flatnonzero(code >= 0)
            x[some, 2 * F + code[some] % BUCKETS] += np.where(code[some] >> 32 & 1, 1, -1)
    return x
