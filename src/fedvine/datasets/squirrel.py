"""Squirrel: 5,201 Wikipedia pages about squirrels and their links; 5 classes are their traffic.

Source: B. Rozemberczki, C. Allen, R. Sarkar, "Multi-Scale Attributed Node Embedding", 2021, in the
form of H. Pei et al., "Geom-GCN", ICLR 2020, https://github.com/graphdml-uiuc-jlu/geom-gcn (no
licence stated), as ``WikipediaNetwork(geom_gcn_preprocess=True)`` of PyTorch Geometric reads it.

The 2,089 features are nouns that occur or not; 165 pages have none. The file has 217,073 links,
216,933 without the 140 of pages to themselves (POWER's Table 1), which makes 198,353 edges without
direction. Many pages are copies of others, some in training and some in test: see
``squirrel_filtered``. Split and shares are those of POWER's Table 1, two classes a task.
"""

from __future__ import annotations

from pathlib import Path

from fedvine.data.graph import Graph
from fedvine.datasets._labelled import labelled, normalised
from fedvine.datasets._pyg import Pyg

SPLIT: dict = {"by": "louvain", "k": 10}
STAGES: str | int = 2
SHARES = (0.48, 0.32, 0.2)

_FILES = ["out1_node_feature_label.txt", "out1_graph_edges.txt",
          *(f"squirrel_split_0.6_0.2_{i}.npz" for i in range(10))]


def load(folder: Path | None = None, normalise: bool = False) -> Graph:
    """Return the graph, with features 0 or 1; ``normalise`` divides each row by its sum.

    ``folder`` holds Geom-GCN's two text files and ten splits, all of which PyTorch Geometric
    requires (by default ``$FEDVINE_DATA/WikipediaNetwork/squirrel/geom_gcn/raw``); where they are
    not found they are downloaded into the cache. Raises :class:`FedvineError` if they cannot be
    downloaded or read.
    """
    source = Pyg("WikipediaNetwork", sparse=True, name="squirrel", geom_gcn_preprocess=True)
    graph = labelled("squirrel", "WikipediaNetwork/squirrel/geom_gcn/raw", _FILES,
                     "github.com/graphdml-uiuc-jlu/geom-gcn, folders new_data/squirrel and splits",
                     source.read, folder, source.fetch)
    return normalised(graph, normalise)
