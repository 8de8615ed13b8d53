"""Weights and features of edges as inputs of a model: in the same units at every client.

What a stream says of each edge, of those columns that methods learn from
(``EventStream.edge_columns``). As with tables of nodes (:mod:`fedvine.data.node_features`), sums
over clients of the edges of the first stage give a mean and a deviation of every column of numbers,
which stay as they are (``World.facts["tables"]["edges"]``). The values of an edge, in this order:

- the weight, if there is one, and each number, less its mean, over its deviation, at most
  :data:`~fedvine.data.node_data.FAR` in size; 0 where the client does not have the column
- :data:`~fedvine.data.node_data.BUCKETS` buckets: each category adds 1 or -1 to one of them

Edges that are forecast have none of these: only of past edges are they known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.data.node_data import BUCKETS, EDGES, FAR
from fedvine.data.stream import CATEGORY, NUMBER, WEIGHT, EventStream

if TYPE_CHECKING:
    from fedvine.core.state import World

#: The weight's name among the columns, as clients may call it differently.
NAME = "*weight*"


def said(world: World) -> dict[str, Any]:
    """Return mean and deviation of columns of edges over clients; empty where there are none."""
    return world.facts.get("tables", {}).get(EDGES, {})


def names(world: World) -> list[str]:
    """Return the columns of numbers in the order of values; :data:`NAME` is the first if there."""
    return sorted(said(world).get("numbers", {}), key=lambda name: (name != NAME, name))


def width(world: World) -> int:
    """Return the number of values of an edge, 0 where no client has any."""
    return len(names(world)) + BUCKETS * bool(said(world).get("texts"))


def columns(events: EventStream) -> dict[str, tuple[str, np.ndarray]]:
    """Return kind and values [E] of each column; a weight is called :data:`NAME`.

    Raises :class:`FedvineError` where ``edge_columns`` does not fit the arrays.
    """
    features = [name for name, kind in events.edge_columns.items() if kind != WEIGHT]
    wide = 0 if events.features is None else events.features.shape[1]
    if (features and len(features) != wide) or (
            len(features) < len(events.edge_columns) and events.weight is None):
        raise FedvineError(f"{events.name}: edge_columns names {len(features)} features of "
                           f"{wide}, or a weight that is not there.")
    found: dict[str, tuple[str, np.ndarray]] = {}
    x = np.zeros((len(events), 0)) if events.features is None else events.features
    for name, kind in events.edge_columns.items():
        column = events.weight if kind == WEIGHT else x[:, features.index(name)]
        found[NAME if kind == WEIGHT else name] = kind, np.asarray(column)
    return found


def sums(stage: EventStream) -> dict[str, Any]:
    """Return counts, sums and sums of squares of the numbers of a stage's edges, and its texts.

    ``{"numbers": {column: [count, sum, sum of squares]}, "texts": [column]}``; deletions are left
    out.
    """
    there = slice(None) if stage.deleted is None else ~np.asarray(stage.deleted)
    numbers, texts = {}, []
    for name, (kind, values) in columns(stage).items():
        if kind == CATEGORY:
            texts.append(name)
            continue
        x = values[there].astype(np.float64)
        numbers[name] = [float(len(x)), float(x.sum()), float(np.square(x).sum())]
    return {"numbers": numbers, "texts": texts}


def encoded(events: EventStream, world: World) -> np.ndarray:
    """Return the values of events, float32 [E, :func:`width`]."""
    known, order = said(world), names(world)
    x = np.zeros((len(events), width(world)), np.float32)
    own: Mapping[str, tuple[str, np.ndarray]] = columns(events) if x.size else {}
    for j, name in enumerate(order):
        mean, deviation = known["numbers"][name]
        if own.get(name, ("",))[0] in (WEIGHT, NUMBER):
            far = (own[name][1].astype(np.float64) - mean) / (deviation or np.inf)
            x[:, j] = np.clip(far, -FAR, FAR)
    for name in known.get("texts", ()):
        if own.get(name, ("",))[0] == CATEGORY:
            code = own[name][1].astype(np.int64)
            some = np.flatnonzero(code >= 0)
            x[some, len(order) + code[some] % BUCKETS] += np.where(code[some] >> 23 & 1, 1, -1)
    return x
