"""Classify nodes by an exported GAT. It needs NumPy, SciPy, pyarrow and safetensors alone.

python load.py CLIENT NODE [NODE ...]
"""

import json

import pyarrow.parquet as pq

from fedvine.results.exported.load_common import HERE, folder_of, load_file, main, np, places, wide


def layer(net, name, h, src, dst):
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


def scores(client, nodes):
    """Return the scores float64 [n, classes] of nodes by name; their softmax are probabilities."""
    from scipy.sparse import csr_matrix
    folder = folder_of(client)
    part = load_file(folder / "arrays.safetensors")
    net = wide(HERE / "model.safetensors", folder / "arrays.safetensors")
    x = net["x"] if "x" in part else csr_matrix(
        (net["x.data"], part["x.indices"], part["x.indptr"]), shape=tuple(part["x.shape"]))
    a, b = part["edges"]
    names = pq.read_table(folder / "nodes.parquet")["name"].to_pylist()
    wanted = places(names, nodes, lambda name: f"The model knows no node {name} at this client.")
    loops = np.arange(len(names))
    src, dst = np.concatenate([a, b, loops]), np.concatenate([b, a, loops])
    h = np.maximum(layer(net, "first", x, src, dst), 0)
    return layer(net, "second", h, src, dst)[wanted]


def tell(client, *nodes):
    """Print the likeliest class and the scores of each node."""
    classes = json.loads((HERE / "about.json").read_text())["classes"]
    for node, row in zip(nodes, scores(client, nodes), strict=True):
        print(node, classes[int(row.argmax())], row)


if __name__ == "__main__":
    main(2, tell)
