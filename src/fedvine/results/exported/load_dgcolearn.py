"""Score pairs, or classes of nodes, by an exported DG-CoLearn model.

It needs NumPy, pyarrow and safetensors alone.

python load.py USER [ITEM ...]
"""

import pyarrow.parquet as pq

from fedvine.results.exported.load_common import HERE, main, np, places, wide

NET = wide(HERE / "model.safetensors")


def rows(side, names):
    """Return the rows float64 [n, width] of nodes by name, of "users" or "items"."""
    table = pq.read_table(HERE / "clients" / "all" / f"{side}.parquet")
    at = places(table["name"].to_pylist(), names, lambda name: (
        f"The model knows no {side[:-1]} {name}: it had no edge in the run."))
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


def tell(user, *items):
    """Print a node's classes, or the scores of a user's items."""
    if "class_out" in NET:
        print(*classes([user]))
    for item in items:
        print(item, *scores([user], [item]))


if __name__ == "__main__":
    main(1, tell)
