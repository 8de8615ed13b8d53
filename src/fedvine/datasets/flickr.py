"""Flickr: 89,250 pictures, joined where they have something in common; 7 classes are subjects.

Source: H. Zeng et al., "GraphSAINT", ICLR 2020, https://github.com/GraphSAINT/GraphSAINT (its code
is MIT; no licence is stated for the data), from J. McAuley, J. Leskovec, ECCV 2012, as ``Flickr``
of PyTorch Geometric reads it.

The 500 features are a bag of words, made dense by its authors; two pictures are joined if they
share a place, a gallery or a person who commented on both. The counts are published ones, not
counted here: 899,756 edges, or half of that if each counts once, as it does in a graph here. Split
and shares are those of POWER's Table 1, two classes a task.
"""

from __future__ import annotations

from pathlib import Path

from fedvine.data.graph import Graph
from fedvine.datasets._labelled import labelled
from fedvine.datasets._pyg import Pyg

SPLIT: dict = {"by": "louvain", "k": 10}
STAGES: str | int = 2
SHARES = (0.6, 0.2, 0.2)

_FILES = ["adj_full.npz", "feats.npy", "class_map.json", "role.json"]


def load(folder: Path | None = None) -> Graph:
    """Return the graph, with dense features.

    ``folder`` holds GraphSAINT's four files ``adj_full.npz``, ``feats.npy``, ``class_map.json`` and
    ``role.json`` (by default ``$FEDVINE_DATA/Flickr/raw``); where they are not found they are
    downloaded into the cache. Raises :class:`FedvineError` if they cannot be downloaded or read.
    """
    source = Pyg("Flickr")
    return labelled("flickr", "Flickr/raw", _FILES,
                    "the folder that github.com/GraphSAINT/GraphSAINT links to", source.read,
                    folder, source.fetch)
