"""Score pairs by an exported fedlink_plus model. It needs NumPy, pyarrow and safetensors alone.

python load.py CLIENT USER ITEM [ITEM ...]
"""

import pyarrow.parquet as pq

from fedvine.results.exported.load_common import HERE, folder_of, load_file, main, np


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


def tell(client, user, *items):
    """Print the scores of a user's items."""
    found = scores(client, [user] * len(items), items)
    if np.isnan(found).all():
        raise LookupError(f"No pair of the user {user} with these items was exported at {client}; "
                          "load.py scores users of a client alone, fedvine predict also users of "
                          "others.")
    for item, score in zip(items, found, strict=True):
        print(item, score)


if __name__ == "__main__":
    main(3, tell)
