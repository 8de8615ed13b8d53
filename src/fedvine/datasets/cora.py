"""Cora: 2,708 papers on machine learning and their citations; 7 classes are their topics.

Source: P. Sen et al., "Collective Classification in Network Data", AI Magazine 29(3), 2008, in the
form of Z. Yang, W. Cohen, R. Salakhutdinov, ICML 2016, https://github.com/kimiyoung/planetoid
(MIT), as ``Planetoid`` of PyTorch Geometric reads it.

The 1,433 features are words that occur or not. The graph has 5,278 edges: the published 5,429
count the entries of the file, of which 151 are repeats. Split and shares are those of POWER's
Table 1, two classes (``STAGES``) a task; one class is left over.
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
    "ind.cora.allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
    "ind.cora.ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
    "ind.cora.graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
    "ind.cora.test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    "ind.cora.tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
    "ind.cora.ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
    "ind.cora.x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
    "ind.cora.y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
}


def load(folder: Path | None = None, normalise: bool = False) -> Graph:
    """Return the graph, with features 0 or 1; ``normalise`` divides each row by its sum.

    ``folder`` holds the eight files ``ind.cora.*`` (by default
    ``$FEDVINE_DATA/Planetoid/Cora/raw``); where they are not found they are downloaded into the
    cache. Raises :class:`FedvineError` if they cannot be downloaded or are not the published ones.
    """
    source = Pyg("Planetoid", sparse=True, name="Cora")
    graph = labelled("cora", "Planetoid/Cora/raw", _FILES,
                     "github.com/kimiyoung/planetoid, folder data", source.read, folder,
                     source.fetch)
    return normalised(graph, normalise)
