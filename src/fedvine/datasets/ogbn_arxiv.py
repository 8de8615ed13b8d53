"""ogbn-arxiv: 169,343 papers on computer science and their citations; 40 classes are arXiv's areas.

Source: W. Hu et al., "Open Graph Benchmark", NeurIPS 2020, https://ogb.stanford.edu (ODC-BY), from
the Microsoft Academic Graph. OGB's own tables are read: its package is not needed.

The 128 features are the mean of the vectors of the words in title and abstract. OGB counts
1,166,243 citations, which have a direction; edges here have none, and where two papers cite each
other there is one. POWER's Table 1, whose split and shares these are (ten classes a task), gives
231,559 edges, which is neither. The counts are published ones, not counted here.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np

from fedvine.data.graph import Graph
from fedvine.datasets._labelled import Arrays, labelled

SPLIT: dict = {"by": "louvain", "k": 5}
STAGES: str | int = 10
SHARES = (0.6, 0.2, 0.2)

URL = "https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"

_FILES = ["edge.csv.gz", "node-feat.csv.gz", "node-label.csv.gz"]


def load(folder: Path | None = None) -> Graph:
    """Return the graph, with dense features.

    ``folder`` holds ``edge.csv.gz``, ``node-feat.csv.gz`` and ``node-label.csv.gz`` (by default
    ``$FEDVINE_DATA/ogbn_arxiv/raw``, which is where OGB's package puts them below its root); where
    they are not found they are downloaded into the cache. Raises :class:`FedvineError` if they
    cannot be downloaded or read.
    """
    return labelled("ogbn_arxiv", "ogbn_arxiv/raw", _FILES, URL, _read, folder, _fetch)


def _read(raw: Path) -> Arrays:
    """Read the tables, which are without a header: a row a node, or a row an edge."""
    edges, x, y = (np.loadtxt(raw / file, kind, delimiter=",", ndmin=2) for file, kind
                   in zip(_FILES, (np.int64, np.float32, np.int64), strict=True))
    return x, edges.T, y[:, 0], None


def _fetch(raw: Path) -> None:
    import pooch
    members = [f"arxiv/raw/{file}" for file in _FILES]
    with tempfile.TemporaryDirectory() as folder:
        pooch.retrieve(URL, None, "arxiv.zip", folder, processor=pooch.Unzip(members, "unzipped"))
        for member in members:
            shutil.move(Path(folder, "unzipped", member), raw)
