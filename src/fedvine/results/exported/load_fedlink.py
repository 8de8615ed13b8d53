"""Score pairs by an exported FedLink model. It needs NumPy, pyarrow and safetensors alone.

python load.py CLIENT USER ITEM [ITEM ...]
"""

import sys
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow.parquet as pq
from safetensors.numpy import load_file

HERE = Path(__file__).parent


def embeddings(client):
    """Compute the rows of all users and items of a client, float64 [n, width] each."""
    part = load_file(HERE / "clients" / quote(client, safe="") / "arrays.safetensors")
    net = {name: value.astype(np.float64) for name, value in
           {**load_file(HERE / "model.safetensors"), **part}.items()}
    rows = {"users": net["users.rows"], "items": net["items.rows"]}
    user, item, count = part["edges.user"], part["edges.item"], net["edges.count"]
    layers = sum(name.endswith("users.self") for name in net)
    for layer in range(layers):
        made = {}
        for side, other, at, away in (("users", "items", user, item),
                                      ("items", "users", item, user)):
            degree = np.bincount(at, count, len(rows[side]))
            near = np.zeros((len(degree), rows[other].shape[1]))
            np.add.at(near, at, count[:, None] * rows[other][away])
            near /= np.maximum(degree, 1e-12)[:, None]      # the mean over a node's edges
            own = f"layer{layer}.{side}"
            made[side] = (rows[side] @ net[f"{own}.self"] + near @ net[f"{own}.near"]
                          + np.log1p(degree)[:, None] * net[f"{own}.degree"] + net[f"{own}.bias"])
        rows = made if layer + 1 == layers else {
            side: np.maximum(x, 0) for side, x in made.items()}
    if net["cosine"][0]:
        rows = {side: x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
                for side, x in rows.items()}
        rows["users"] = rows["users"] * net["scale"]
    return rows["users"], rows["items"]


def scores(client, users, items):
    """Return the scores float64 [n] of pairs of names at a client; higher is likelier."""
    folder = HERE / "clients" / quote(client, safe="")
    number = [{name: i for i, name in enumerate(
        pq.read_table(folder / f"{side}.parquet")["name"].to_pylist())}
        for side in ("users", "items")]
    z_users, z_items = embeddings(client)
    return np.array([z_users[number[0][str(user)]] @ z_items[number[1][str(item)]]
                     for user, item in zip(users, items, strict=True)])


if __name__ == "__main__":
    where, who, *what = sys.argv[1:]
    for thing, score in zip(what, scores(where, [who] * len(what), what), strict=True):
        print(thing, score)
