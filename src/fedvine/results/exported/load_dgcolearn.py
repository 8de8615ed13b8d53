"""Score pairs, or classes of nodes, by an exported DG-CoLearn model.

It needs NumPy, pyarrow and safetensors alone.

python load.py USER [ITEM ...]
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from safetensors.numpy import load_file

HERE = Path(__file__).parent
NET = {name: value.astype(np.float64)
       for name, value in load_file(HERE / "model.safetensors").items()}


def rows(side, names):
    """Return the rows float64 [n, width] of nodes by name, of "users" or "items"."""
    table = pq.read_table(HERE / "clients" / "all" / f"{side}.parquet")
    number = {name: i for i, name in enumerate(table["name"].to_pylist())}
    column = table["embedding"].combine_chunks()
    values = column.flatten().to_numpy().reshape(len(column), -1).astype(np.float64)
    return values[[number[str(name)] for name in names]]


def scores(users, items):
    """Return the scores float64 [n] of pairs by name; higher is likelier."""
    a, b = rows("users", users), rows("items", items)
    ends = (a, b) if NET["directed"][0] else (a + b, np.abs(a - b))
    both = np.maximum(np.concatenate([a * b, *ends], 1) @ NET["pair_in"] + NET["pair_bias"], 0)
    return (a * b).sum(1) + (both @ NET["pair_out"])[:, 0]


def classes(nodes):
    """Return the scores float64 [n, classes] of nodes by name."""
    return rows("users", nodes) @ NET["class_out"] + NET["class_bias"]


if __name__ == "__main__":
    who, *what = sys.argv[1:]
    if "class_out" in NET:
        print(*classes([who]))
    for thing in what:
        print(thing, *scores([who], [thing]))
