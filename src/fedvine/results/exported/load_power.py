"""Classify nodes by an exported GAT. It needs NumPy, SciPy, pyarrow and safetensors alone.

python load.py CLIENT NODE [NODE ...]
"""

import json
import sys
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow.parquet as pq
from safetensors.numpy import load_file
from scipy.sparse import csr_matrix

HERE = Path(__file__).parent


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
    folder = HERE / "clients" / quote(client, safe="")
    part = load_file(folder / "arrays.safetensors")
    net = {name: value.astype(np.float64) for name, value in
           {**load_file(HERE / "model.safetensors"), **part}.items()}
    x = net["x"] if "x" in part else csr_matrix(
        (net["x.data"], part["x.indices"], part["x.indptr"]), shape=tuple(part["x.shape"]))
    a, b = part["edges"]
    names = pq.read_table(folder / "nodes.parquet")["name"].to_pylist()
    loops = np.arange(len(names))
    src, dst = np.concatenate([a, b, loops]), np.concatenate([b, a, loops])
    h = np.maximum(layer(net, "first", x, src, dst), 0)
    number = {name: i for i, name in enumerate(names)}
    return layer(net, "second", h, src, dst)[[number[str(node)] for node in nodes]]


if __name__ == "__main__":
    where, *which = sys.argv[1:]
    classes = json.loads((HERE / "about.json").read_text())["classes"]
    for node, row in zip(which, scores(where, which), strict=True):
        print(node, classes[int(row.argmax())], row)
