"""Score pairs, or classes of nodes, by an exported model.

It needs NumPy, pyarrow and safetensors alone, and for a GAT on a client's graph SciPy.

    python load.py CLIENT USER ITEM [ITEM ...]
    python load.py CLIENT NODE [NODE ...]           where classes of nodes are named (a GAT)
    python load.py USER [ITEM ...]                  where the server held the graph (DG-CoLearn)
"""

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from safetensors.numpy import load_file

HERE = Path(__file__).parent
ALL = "all"         # the client of a model whose server held the graph


def about(key):
    """Return a fact of ``about.json``."""
    return json.loads((HERE / "about.json").read_text())[key]


def folder_of(client):
    """Return a client's folder; raise LookupError, a sentence, where it is not exported."""
    folders = about("folders")
    if client not in folders:
        raise LookupError(f"No client {client} was exported; there are {', '.join(folders)}.")
    return HERE / "clients" / folders[client]


def names_of(client, table):
    """Return the names in a client's table."""
    return pq.read_table(folder_of(client) / f"{table}.parquet")["name"].to_pylist()


def places(names, wanted, sentence):
    """Return the places of names; raise LookupError, the sentence, for one that is not there."""
    number = {name: i for i, name in enumerate(names)}
    for name in wanted:
        if str(name) not in number:
            raise LookupError(sentence(name))
    return [number[str(name)] for name in wanted]


def arrays(client=None):
    """Return all arrays that the clients share, and a client's own, by name, float64."""
    files = [HERE / "model.safetensors"]
    if client is not None:
        files.append(folder_of(client) / "arrays.safetensors")
    return {name: value.astype(np.float64) for file in files
            for name, value in load_file(file).items()}


def scores(client, users, items):
    """Return the scores float64 [n] of pairs of names at a client; higher is likelier.

    NaN for a pair that was not exported (fedlink_plus). Where edges have no direction a score is
    the mean of both.
    """
    script = about("script")
    one = {"fedlink": of_embeddings, "fedlink_plus": of_features, "dgcolearn": of_rows}[script]
    if about("directed") or script == "dgcolearn":
        return one(client, users, items)
    return (one(client, users, items) + one(client, items, users)) / 2


# -- FedLink: GraphSAGE over the edges that the client keeps ---------------------------------------
def of_embeddings(client, users, items):
    """Return the products, or scaled cosines, of the rows of users and items."""
    at = [places(names_of(client, f"{what}s"), wanted, lambda name, what=what: (
        f"The {what} {name} had no edge at {client}; load.py scores users and items of a client "
        "alone, fedvine predict also users of others."))
        for what, wanted in (("user", users), ("item", items))]
    z_users, z_items = embeddings(client)
    return np.array([z_users[u] @ z_items[i] for u, i in zip(*at, strict=True)])


def embeddings(client):
    """Compute the rows of all users and items of a client, float64 [n, width] each."""
    net, part = arrays(client), load_file(folder_of(client) / "arrays.safetensors")
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


# -- fedlink_plus: a pair's features times the weights, on a common level --------------------------
def of_features(client, users, items):
    """Return the log odds of pairs: of the sum s of features times weights and of the user."""
    table, net = pq.read_table(folder_of(client) / "pairs.parquet"), arrays(client)
    names = zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True)
    row = {pair: i for i, pair in enumerate(names)}
    at = np.array([row.get((str(user), str(item)), -1)
                   for user, item in zip(users, items, strict=True)], int)
    features = np.stack([table[column].to_numpy() for column in table.column_names[2:]], 1)
    s = features[at].astype(np.float64) @ net["weights"]
    about_user = pq.read_table(folder_of(client) / "users.parquet")
    v = dict(zip(about_user["name"].to_pylist(), about_user["known"].to_pylist(), strict=True))
    v = np.array([v.get(str(user), [0.0] * 6) for user in users])
    a, b, c, _, _, f = v.T
    met = table["pair_met"].to_numpy()[at]
    columns = np.column_stack([s, np.ones(len(s)), v, a * b, c * c, a * a, b * f, c * a,
                               met, met * a, met * b, met * c, met * f])
    return np.where(at >= 0, columns @ net["level"], np.nan)


# -- DG-CoLearn: the newest rows of all nodes ------------------------------------------------------
def rows_of(side, names):
    """Return the rows float64 [n, width] of nodes by name, of "users" or "items"."""
    column = pq.read_table(folder_of(ALL) / f"{side}.parquet")["embedding"].combine_chunks()
    values = column.flatten().to_numpy().reshape(len(column), -1).astype(np.float64)
    return values[places(names_of(ALL, side), names, lambda name: (
        f"The model knows no {side[:-1]} {name}: it had no edge in the run."))]


def of_rows(client, users, items):
    """Return the scores of pairs from the rows of both nodes."""
    net, a, b = arrays(), rows_of("users", users), rows_of("items", items)
    ends = (a, b) if net["directed"][0] else (a + b, np.abs(a - b))
    both = np.maximum(np.concatenate([a * b, *ends], 1) @ net["pair_in"] + net["pair_bias"], 0)
    return (a * b).sum(1) + (both @ net["pair_out"])[:, 0]


# -- classes of nodes: DG-CoLearn's rows, or a GAT over a client's graph ---------------------------
def classes(client, nodes):
    """Return the scores float64 [n, classes] of nodes by name; their softmax are probabilities."""
    if about("script") == "dgcolearn":
        net = arrays()
        return rows_of("users", nodes) @ net["class_out"] + net["class_bias"]
    from scipy.sparse import csr_matrix
    net, part = arrays(client), load_file(folder_of(client) / "arrays.safetensors")
    x = net["x"] if "x" in part else csr_matrix(
        (net["x.data"], part["x.indices"], part["x.indptr"]), shape=tuple(part["x.shape"]))
    names = names_of(client, "nodes")
    wanted = places(names, nodes, lambda name: f"The model knows no node {name} at this client.")
    (a, b), loops = part["edges"], np.arange(len(names))
    src, dst = np.concatenate([a, b, loops]), np.concatenate([b, a, loops])
    h = np.maximum(attention(net, "first", x, src, dst), 0)
    return attention(net, "second", h, src, dst)[wanted]


def attention(net, name, h, src, dst):
    """Compute sum_j alpha_ij h_j W + b, with alpha_ij = softmax_j LeakyReLU(a . (h_j W, h_i W))."""
    h = h @ net[f"{name}.weight"]
    e = (h @ net[f"{name}.source"])[src] + (h @ net[f"{name}.target"])[dst]
    e = np.where(e > 0, e, 0.2 * e)
    most = np.full(len(h), -np.inf)
    np.maximum.at(most, dst, e)
    a = np.exp(e - most[dst])
    out = np.zeros((len(h), h.shape[1]))
    np.add.at(out, dst, a[:, None] * h[src])
    return out / np.bincount(dst, a, len(h))[:, None] + net[f"{name}.bias"]


def main():
    """Print what the words of the command ask for; a sentence for names that are not there."""
    kind, words = about("script"), sys.argv[1:]
    if kind == "dgcolearn":
        words = [ALL, *words]
    if len(words) < {"dgcolearn": 2, "power": 2}.get(kind, 3):
        sys.exit(__doc__)
    client, first, *more = words
    try:
        if kind == "power":
            names = about("classes")
            for node, row in zip(words[1:], classes(client, words[1:]), strict=True):
                print(node, names[int(row.argmax())], row)
            return
        if kind == "dgcolearn" and "class_out" in arrays():
            print(*classes(client, [first]))
        found = scores(client, [first] * len(more), more) if more else []
        if kind == "fedlink_plus" and np.isnan(found).all():
            raise LookupError(f"No pair of the user {first} with these items was exported at "
                              f"{client}; load.py scores users of a client alone, fedvine predict "
                              "also users of others.")
        for item, score in zip(more, found, strict=True):
            print(item, score)
    except LookupError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
