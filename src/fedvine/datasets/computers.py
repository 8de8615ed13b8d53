"""Computers: 13,752 goods of Amazon and which are bought together; 10 classes are their categories.

Source: O. Shchur et al., "Pitfalls of Graph Neural Network Evaluation", 2018,
https://github.com/shchur/gnn-benchmark (MIT), from J. McAuley et al., SIGIR 2015, as ``Amazon`` of
PyTorch Geometric reads it.

The 767 features are words of the reviews that occur or not; there are 245,861 edges, and 281
goods have none. POWER's Table 1, whose split and shares these are (two classes a task), gives
13,381 nodes and 245,778 edges: those of the largest connected component.
"""

from __future__ import annotations

from pathlib import Path

from fedvine.data.graph import Graph
from fedvine.datasets._labelled import labelled, normalised
from fedvine.datasets._pyg import Pyg

SPLIT: dict = {"by": "louvain", "k": 3}
STAGES: str | int = 2
SHARES = (0.2, 0.4, 0.4)


def load(folder: Path | None = None, normalise: bool = False) -> Graph:
    """Return the whole graph, with features 0 or 1; ``normalise`` divides each row by its sum.

    ``folder`` holds ``amazon_electronics_computers.npz`` (by default
    ``$FEDVINE_DATA/Amazon/Computers/raw``); where it is not found it is downloaded into the cache.
    Raises :class:`FedvineError` if it cannot be downloaded or read.
    """
    source = Pyg("Amazon", sparse=True, name="Computers")
    graph = labelled("computers", "Amazon/Computers/raw", ["amazon_electronics_computers.npz"],
                     "github.com/shchur/gnn-benchmark, folder data/npz", source.read, folder,
                     source.fetch)
    return normalised(graph, normalise)
