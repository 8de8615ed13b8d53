"""WordNet 3.0's 117,659 synsets and their pointers; 45 classes. A substitute, not a benchmark.

It replaces Flickr and ogbn-arxiv, large and with many classes. It is not a published benchmark:
never report its scores under the name of one.

Source: Princeton WordNet 3.0, https://wordnet.princeton.edu (WordNet 3.0 licence: free use with its
notice), files ``data.noun``, ``data.verb``, ``data.adj`` and ``data.adv``, in this order. A node is
a synset, an edge any pointer between two of them (183,789; 1,009 synsets have none), the class is
its lexicographer file (``lex_filenum``). The 500 features are the most frequent words of the
glosses, without stop words, that occur or not; 15,931 synsets have none. Split and shares are
ogbn-arxiv's in POWER's Table 1; ten classes a task leave five over.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from fedvine.data.graph import Graph
from fedvine.datasets._labelled import Arrays, labelled, normalised

SPLIT: dict = {"by": "louvain", "k": 5}
STAGES: str | int = 10
SHARES = (0.6, 0.2, 0.2)

_FILE = "wordnet30_synsets.npz"


def load(folder: Path | None = None, normalise: bool = False) -> Graph:
    """Return the graph, with features 0 or 1; ``normalise`` divides each row by its sum.

    ``folder`` holds ``wordnet30_synsets.npz`` (by default ``$FEDVINE_DATA/WordNet/raw``): features
    and neighbours as the parts of CSR matrices, ``attr_data``, ``attr_indices``, ``attr_indptr``,
    ``attr_shape`` and the same of ``adj``, with ``labels`` and ``class_names``. Raises
    :class:`FedvineError` if it is not there or cannot be read; it cannot be downloaded.
    """
    graph = labelled("wordnet", "WordNet/raw", [_FILE],
                     "Princeton WordNet 3.0 (fedvine show wordnet tells how)", _read, folder)
    return normalised(graph, normalise)


def _read(raw: Path) -> Arrays:
    with np.load(raw / _FILE, allow_pickle=False) as z:
        x, pointers = (csr_matrix((z[f"{of}_data"], z[f"{of}_indices"], z[f"{of}_indptr"]),
                                  z[f"{of}_shape"]) for of in ("attr", "adj"))
        return x, np.stack(pointers.nonzero()), z["labels"], z["class_names"].tolist()
