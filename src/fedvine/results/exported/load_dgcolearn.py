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


def places(names, wanted, what):
    """Return the places of names; raise LookupError, a sentence, for one that is not there."""
    number = {name: i for i, name in enumerate(names)}
    for name in wanted:
        if str(name) not in number:
            raise LookupError(f"The model knows no {what} {name}: it had no edge in the run.")
    return [number[str(name)] for name in wanted]


def rows(side, names):
    """Return the rows float64 [n, width] of nodes by name, of "users" or "items"."""
    table = pq.read_table(HERE / "clients" / "all" / f"{side}.parquet")
    at = places(table["name"].to_pylist(), names, side[:-1])
    column = table["embedding"].combine_chunks()
    values = column.flatten().to_numpy().reshape(len(column), -1).astype(np.float64)
    return values[at]


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
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    try:
        who, *what = sys.argv[1:]
        if "class_out" in NET:
            print(*classes([who]))
        for thing in what:
            print(thing, *scores([who], [thing]))
    except LookupError as error:
        sys.exit(str(error))
