"""Roman-empire: 22,662 words of an article and how they are related; 18 classes are their roles.

Source: O. Platonov et al., "A Critical Look at the Evaluation of GNNs under Heterophily", ICLR
2023, https://github.com/yandex-research/heterophilous-graphs (MIT), as PyTorch Geometric's
``HeterophilousGraphDataset`` reads it. The text is Wikipedia's article on the Roman Empire.

A node is a word, an edge joins it to the next word or to the one it depends on in the sentence
(32,927 edges); the 300 features are its fastText vector and the class is its syntactic role. The
counts are published ones, not counted here. Split and shares are those of POWER's Table 1, six
classes a task.
"""

from __future__ import annotations

from pathlib import Path

from fedvine.data.graph import Graph
from fedvine.datasets._labelled import labelled
from fedvine.datasets._pyg import Pyg

SPLIT: dict = {"by": "louvain", "k": 5}
STAGES: str | int = 6
SHARES = (0.5, 0.25, 0.25)


def load(folder: Path | None = None) -> Graph:
    """Return the graph, with dense features.

    ``folder`` holds ``roman_empire.npz`` (by default
    ``$FEDVINE_DATA/HeterophilousGraphDataset/roman_empire/raw``); where it is not found it is
    downloaded into the cache. Raises :class:`FedvineError` if it cannot be downloaded or read.
    """
    source = Pyg("HeterophilousGraphDataset", name="Roman-empire")
    return labelled("roman_empire", "HeterophilousGraphDataset/roman_empire/raw",
                    ["roman_empire.npz"],
                    "github.com/yandex-research/heterophilous-graphs, folder data", source.read,
                    folder, source.fetch)
