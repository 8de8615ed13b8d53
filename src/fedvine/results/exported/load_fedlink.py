"""Score pairs by an exported FedLink model. It needs NumPy, pyarrow and safetensors alone.

python load.py CLIENT USER ITEM [ITEM ...]
"""

import pyarrow.parquet as pq

from fedvine.results.exported.load_common import HERE, folder_of, load_file, main, np, places, wide


def embeddings(client):
    """Compute the rows of all users and items of a client, float64 [n, width] each."""
    file = folder_of(client) / "arrays.safetensors"
    part = load_file(file)
    net = wide(HERE / "model.safetensors", file)
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
    at = [places(pq.read_table(folder_of(client) / f"{what}s.parquet")["name"].to_pylist(), wanted,
                 lambda name, what=what: f"The {what} {name} had no edge at {client}; load.py "
                 "scores users and items of a client alone, fedvine predict also users of others.")
          for what, wanted in (("user", users), ("item", items))]
    z_users, z_items = embeddings(client)
    return np.array([z_users[u] @ z_items[i] for u, i in zip(*at, strict=True)])


def tell(client, user, *items):
    """Print the scores of a user's items."""
    for item, score in zip(items, scores(client, [user] * len(items), items), strict=True):
        print(item, score)


if __name__ == "__main__":
    main(3, tell)
