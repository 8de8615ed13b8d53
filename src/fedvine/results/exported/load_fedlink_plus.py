"""Score pairs by an exported fedlink_plus model. It needs NumPy, pyarrow and safetensors alone.

python load.py CLIENT USER ITEM [ITEM ...]
"""

import sys
from pathlib import Path
from urllib.parse import quote, unquote

import numpy as np
import pyarrow.parquet as pq
from safetensors.numpy import load_file

HERE = Path(__file__).parent


def folder_of(client):
    """Return a client's folder; raise LookupError, a sentence, where it is not exported."""
    folder = HERE / "clients" / quote(client, safe="")
    if not folder.is_dir():
        there = ", ".join(sorted(unquote(f.name) for f in (HERE / "clients").iterdir()))
        raise LookupError(f"No client {client} was exported; there are {there}.")
    return folder


def scores(client, users, items):
    """Return the scores float64 [n] of pairs of names at a client; NaN for one not exported."""
    table = pq.read_table(folder_of(client) / "pairs.parquet")
    weights = load_file(HERE / "model.safetensors")["weights"]
    names = zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True)
    row = {pair: i for i, pair in enumerate(names)}
    at = np.array([row.get((str(user), str(item)), -1)
                   for user, item in zip(users, items, strict=True)], int)
    features = np.stack([table[column].to_numpy() for column in table.column_names[2:]], 1)
    return np.where(at >= 0, features[at].astype(np.float64) @ weights, np.nan)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    try:
        where, who, *what = sys.argv[1:]
        found = scores(where, [who] * len(what), what)
        if np.isnan(found).all():
            raise LookupError(f"No pair of the user {who} with these items was exported at "
                              f"{where}; load.py scores users of a client alone, fedvine predict "
                              "also users of others.")
        for thing, score in zip(what, found, strict=True):
            print(thing, score)
    except LookupError as error:
        sys.exit(str(error))
