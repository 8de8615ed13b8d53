"""Score pairs by an exported FedLink model. It needs NumPy, pyarrow and safetensors alone.

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


def places(names, wanted, what, client):
    """Return the places of names; raise LookupError, a sentence, for one that is not there."""
    number = {name: i for i, name in enumerate(names)}
    for name in wanted:
        if str(name) not in number:
            raise LookupError(f"The {what} {name} had no edge at {client}; load.py scores users "
                              "and items of a client alone, fedvine predict also users of others.")
    return [number[str(name)] for name in wanted]


def embeddings(client):
    """Compute the rows of all users and items of a client, float64 [n, width] each."""
    part = load_file(folder_of(client) / "arrays.safetensors")
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
    at = [places(pq.read_table(folder_of(client) / f"{side}.parquet")["name"].to_pylist(), wanted,
                 what, client) for side, wanted, what in (("users", users, "user"),
                                                  ("items", items, "item"))]
    z_users, z_items = embeddings(client)
    return np.array([z_users[u] @ z_items[i] for u, i in zip(*at, strict=True)])


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    try:
        where, who, *what = sys.argv[1:]
        for thing, score in zip(what, scores(where, [who] * len(what), what), strict=True):
            print(thing, score)
    except LookupError as error:
        sys.exit(str(error))
