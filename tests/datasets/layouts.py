"""Where the labelled graphs lie, and small files in the layouts of those that are not here."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from fedvine.core import registry
from fedvine.data.graph import Graph

# Nodes, edges, features, classes, nodes without an edge; where it lies below FEDVINE_DATA.
REAL = {
    "cora": (2_708, 5_278, 1_433, 7, 0, "Planetoid/Cora/raw"),
    "citeseer": (3_327, 4_552, 3_703, 6, 48, "Planetoid/CiteSeer/raw"),
    "computers": (13_752, 245_861, 767, 10, 281, "Amazon/Computers/raw"),
    "physics": (34_493, 247_962, 8_415, 5, 0, "Coauthor/Physics/raw"),
    "squirrel": (5_201, 198_353, 2_089, 5, 0, "WikipediaNetwork/squirrel/geom_gcn/raw"),
    "squirrel_filtered": (2_223, 46_998, 2_089, 5, 0, "HeterophilousGraphs-filtered/raw"),
    "wordnet": (117_659, 183_789, 500, 45, 1_009, "WordNet/raw"),
    "ud_ewt": (22_072, 33_502, 300, 18, 0, "UD-EWT-words/raw"),
}


def raw(name: str, data: Path, copies: Path) -> Path:
    """A copy of the files of the data set."""
    place = REAL[name][-1]
    if not (data / place).is_dir():
        pytest.skip(f"FEDVINE_DATA has no {place}")
    if not (copies / place).is_dir():
        shutil.copytree(data / place, copies / place)
    return copies / place


def dataset(name: str) -> Any:
    return registry.find("datasets", name)


def listing(folder: Path) -> list[tuple]:
    return sorted((str(f), f.stat().st_mtime_ns, f.stat().st_size) for f in folder.rglob("*"))


def same(one: Graph, other: Graph) -> bool:
    def arrays(graph: Graph) -> list[np.ndarray]:
        x = graph.x
        parts = [x.data, x.indices, x.indptr] if isinstance(x, csr_matrix) else [x]
        return [*parts, graph.edges, graph.y, graph.nodes]

    return (one.x.shape, one.classes, one.name) == (other.x.shape, other.classes, other.name) and \
        all(np.array_equal(a, b) and a.dtype == b.dtype
            for a, b in zip(arrays(one), arrays(other), strict=True))


def write_squirrel(folder: Path, nodes: str, links: str) -> None:
    (folder / "out1_node_feature_label.txt").write_text(f"node\tfeature\tlabel\n{nodes}")
    (folder / "out1_graph_edges.txt").write_text(f"a\tb\n{links}")
    for i in range(10):
        np.savez(folder / f"squirrel_split_0.6_0.2_{i}.npz",
                 **{f"{of}_mask": np.ones(2, bool) for of in ("train", "val", "test")})


def write_empire(folder: Path, y: list[int]) -> dict[str, np.ndarray]:
    n = len(y)
    arrays = {"node_features": np.arange(n * 2, dtype=np.float32).reshape(n, 2) / 7,
              "node_labels": np.array(y), "edges": np.array([[0, 1], [2, 1]]),
              **{f"{of}_masks": np.ones((10, n), bool) for of in ("train", "val", "test")}}
    np.savez(folder / "roman_empire.npz", **arrays)
    return arrays


def write_flickr(folder: Path) -> None:
    both = csr_matrix(np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    np.savez(folder / "adj_full.npz", data=both.data, indices=both.indices, indptr=both.indptr,
             shape=both.shape)
    np.save(folder / "feats.npy", np.array([[0.5, -1], [2, 0], [0, 0]]))
    (folder / "class_map.json").write_text(json.dumps({"0": 6, "2": 1}))
    (folder / "role.json").write_text(json.dumps({"tr": [0], "va": [1], "te": [2]}))


TABLES = {"edge": "0,2\n2,0\n1,2\n", "node-feat": "0.5,-1e-3\n2,0\n0,0.25\n",
          "node-label": "4\n0\n39\n"}


def write_arxiv(folder: Path, **other: str) -> None:
    for name, text in {**TABLES, **other}.items():
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
