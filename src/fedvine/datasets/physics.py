"""Physics: 34,493 physicists joined by common papers; 5 classes are their fields.

Source: O. Shchur et al., "Pitfalls of Graph Neural Network Evaluation", 2018,
https://github.com/shchur/gnn-benchmark (MIT), from the Microsoft Academic Graph, as ``Coauthor`` of
PyTorch Geometric reads it.

The 8,415 features are keywords of the papers that occur or not; there are 247,962 edges, as
published, and the graph is connected. It is made dense for a moment when it is first read: that
takes two gigabytes of memory. Split and shares are those of POWER's Table 1, two classes a task.
"""

from __future__ import annotations

from pathlib import Path

from fedvine.data.graph import Graph
from fedvine.datasets._labelled import labelled, normalised
from fedvine.datasets._pyg import Pyg

SPLIT: dict = {"by": "louvain", "k": 10}
STAGES: str | int = 2
SHARES = (0.2, 0.4, 0.4)


def load(folder: Path | None = None, normalise: bool = False) -> Graph:
    """Return the graph, with features 0 or 1; ``normalise`` divides each row by its sum.

    ``folder`` holds ``ms_academic_phy.npz`` (by default ``$FEDVINE_DATA/Coauthor/Physics/raw``);
    where it is not found it is downloaded into the cache. Raises :class:`FedvineError` if it cannot
    be downloaded or read.
    """
    source = Pyg("Coauthor", sparse=True, name="Physics")
    graph = labelled("physics", "Coauthor/Physics/raw", ["ms_academic_phy.npz"],
                     "github.com/shchur/gnn-benchmark, folder data/npz", source.read, folder,
                     source.fetch)
    return normalised(graph, normalise)
