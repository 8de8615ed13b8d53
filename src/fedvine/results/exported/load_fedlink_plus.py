"""Score pairs by an exported fedlink_plus model. It needs NumPy, pyarrow and safetensors alone.

python load.py CLIENT USER ITEM [ITEM ...]
"""

import sys
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow.parquet as pq
from safetensors.numpy import load_file

HERE = Path(__file__).parent


def scores(client, users, items):
    """Return the scores float64 [n] of pairs of names at a client; NaN for one not exported."""
    table = pq.read_table(HERE / "clients" / quote(client, safe="") / "pairs.parquet")
    weights = load_file(HERE / "model.safetensors")["weights"]
    names = zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True)
    row = {pair: i for i, pair in enumerate(names)}
    at = np.array([row.get((str(user), str(item)), -1)
                   for user, item in zip(users, items, strict=True)], int)
    features = np.stack([table[column].to_numpy() for column in table.column_names[2:]], 1)
    return np.where(at >= 0, features[at].astype(np.float64) @ weights, np.nan)


if __name__ == "__main__":
    where, who, *what = sys.argv[1:]
    for thing, score in zip(what, scores(where, [who] * len(what), what), strict=True):
        print(thing, score)
