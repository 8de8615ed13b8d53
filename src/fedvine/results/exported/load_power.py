"""Classify nodes by an exported GAT. It needs NumPy, SciPy, pyarrow and safetensors alone.

python load.py CLIENT NODE [NODE ...]
"""

import json
import sys
from pathlib import Path
from urllib.parse import quote, unquote

import numpy as np
import pyarrow.parquet as pq
from safetensors.numpy import load_file
from scipy.sparse import csr_matrix

HERE = Path(__file__).parent


def folder_of(client):
    """Return a client's folder; raise LookupError, a sentence, where it is not exported."""
    folder = HERE / "clients" / quote(client, safe="")
    if not folder.is_dir():
        there = ", ".join(sorted(unquote(f.name) for f in (HERE / "clients").iterdir()))
        raise LookupError(f"No client {client} was exported; there are {there}.")
    return folder


def places(names, wanted, what):
    """Return the places of names; raise LookupError, a sentence, for one that is not there."""
    number = {name: i for i, name in enumerate(names)}
    for name in wanted:
        if str(name) not in number:
            raise LookupError(f"The model knows no {what} {name} at this client.")
    return [number[str(name)] for name in wanted]


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
    folder = folder_of(client)
    part = load_file(folder / "arrays.safetensors")
    net = {name: value.astype(np.float64) for name, value in
           {**load_file(HERE / "model.safetensors"), **part}.items()}
    x = net["x"] if "x" in part else csr_matrix(
        (net["x.data"], part["x.indices"], part["x.indptr"]), shape=tuple(part["x.shape"]))
    a, b = part["edges"]
    names = pq.read_table(folder / "nodes.parquet")["name"].to_pylist()
    wanted = places(names, nodes, "node")
    loops = np.arange(len(names))
    src, dst = np.concatenate([a, b, loops]), np.concatenate([b, a, loops])
    h = np.maximum(layer(net, "first", x, src, dst), 0)
    return layer(net, "second", h, src, dst)[wanted]


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    try:
        where, *which = sys.argv[1:]
        classes = json.loads((HERE / "about.json").read_text())["classes"]
        for node, row in zip(which, scores(where, which), strict=True):
            print(node, classes[int(row.argmax())], row)
    except LookupError as error:
        sys.exit(str(error))
