"""The small stream with columns of its edges, and with tables of its users and items."""

import numpy as np

from fedvine.data.node_data import NodeTable
from fedvine.data.stream import CATEGORY, NUMBER, WEIGHT


def with_columns(stream, seed=0, numbers=1, weight=True, category=True):
    """Add a weight, numbers and a category to every edge."""
    draw = np.random.default_rng(seed)
    found, n = stream[:], len(stream)
    found.weight = draw.normal(2, 3, n).astype(np.float32) if weight else None
    columns = [draw.normal(size=n) for _ in range(numbers)]
    columns += [draw.integers(-1, 2 ** 24, n) for _ in range(category)]
    found.features = np.stack(columns, 1).astype(np.float32) if columns else None
    found.edge_columns = {**({"w": WEIGHT} if weight else {}),
                          **{f"x{j}": NUMBER for j in range(numbers)},
                          **({"c": CATEGORY} if category else {})}
    return found


def table(count, seed=0, numbers=2, categories=1, missing=0.2):
    """Return a table of ``count`` nodes, some of which are not in it and some cells of which are
    empty."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(count, numbers)).astype(np.float32)
    x[draw.random(x.shape) < missing] = np.nan
    known = draw.random(count) > missing
    x[~known] = np.nan
    codes = np.where(known[:, None], draw.integers(0, 5, (count, categories)) * 7919, -1)
    return NodeTable(known, x, codes, tuple(f"x{j}" for j in range(numbers)),
                     tuple(f"c{j}" for j in range(categories)))


def with_tables(stream):
    """Add tables of users and items."""
    return stream.with_tables(table(stream.num_src), table(stream.num_dst, seed=1, categories=0))
