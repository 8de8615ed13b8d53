"""CiteSeer: 3,327 papers on computer science and their citations; 6 classes are their fields.

Source: P. Sen et al., "Collective Classification in Network Data", AI Magazine 29(3), 2008, in the
form of Z. Yang, W. Cohen, R. Salakhutdinov, ICML 2016, https://github.com/kimiyoung/planetoid
(MIT), as ``Planetoid`` of PyTorch Geometric reads it.

The 3,703 features are words that occur or not. The graph has 4,552 edges: the published 4,732
count the entries of the file, of which 124 join a paper to itself and 56 are repeats. 48 papers
have no edge. 15 others have neither features nor a class in the files; PyTorch Geometric, and so
every score that was published with it, takes them for class 0, and so does this.
Split and shares are those of POWER's Table 1, two classes (``STAGES``) a task.
"""

from __future__ import annotations

from pathlib import Path

from fedvine.data.graph import Graph
from fedvine.datasets._labelled import labelled, normalised
from fedvine.datasets._pyg import Pyg

SPLIT: dict = {"by": "louvain", "k": 3}
STAGES: str | int = 2
SHARES = (0.2, 0.4, 0.4)

# The files are pickles, so only files with exactly these bytes are opened.
_FILES = {
    "ind.citeseer.allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
    "ind.citeseer.ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
    "ind.citeseer.graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
    "ind.citeseer.test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    "ind.citeseer.tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
    "ind.citeseer.ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
    "ind.citeseer.x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
    "ind.citeseer.y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
}


def load(folder: Path | None = None, normalise: bool = False) -> Graph:
    """Return the graph, with features 0 or 1; ``normalise`` divides each row by its sum.

    ``folder`` holds the eight files ``ind.citeseer.*`` (by default
    ``$FEDVINE_DATA/Planetoid/CiteSeer/raw``); where they are not found they are downloaded into the
    cache. Raises :class:`FedvineError` if they cannot be downloaded or are not the published ones.
    """
    source = Pyg("Planetoid", sparse=True, name="CiteSeer")
    graph = labelled("citeseer", "Planetoid/CiteSeer/raw", _FILES,
                     "github.com/kimiyoung/planetoid, folder data", source.read, folder,
                     source.fetch)
    return normalised(graph, normalise)
