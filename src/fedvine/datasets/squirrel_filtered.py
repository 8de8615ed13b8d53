"""Squirrel without its copied pages: 2,223 Wikipedia pages and their links; 5 classes of traffic.

Source: O. Platonov et al., "A Critical Look at the Evaluation of GNNs under Heterophily", ICLR
2023, https://github.com/yandex-research/heterophilous-graphs (MIT). They found that many pages of
``squirrel`` are copies of others, so that the copy of a test page is often in training.

The 2,089 features are nouns that occur or not; there are 46,998 edges, as published. Split and
shares are as for ``squirrel``, but its scores are not those of Squirrel: report which one it was.
"""

from __future__ import annotations

from pathlib import Path

from scipy.sparse import csr_matrix

from fedvine.data.graph import Graph
from fedvine.datasets._labelled import Arrays, labelled, normalised, platonov

SPLIT: dict = {"by": "louvain", "k": 10}
STAGES: str | int = 2
SHARES = (0.48, 0.32, 0.2)

_SITE = "https://github.com/yandex-research/heterophilous-graphs"
_SHA256 = "f06370ffb3116c5de8b7a600005400b2293c025e0ce2f6916d8201a825505ac7"
_FILE = "squirrel_filtered.npz"


def load(folder: Path | None = None, normalise: bool = False) -> Graph:
    """Return the graph, with features 0 or 1; ``normalise`` divides each row by its sum.

    ``folder`` holds ``squirrel_filtered.npz`` (by default
    ``$FEDVINE_DATA/HeterophilousGraphs-filtered/raw``); where it is not found it is downloaded into
    the cache. Raises :class:`FedvineError` if it cannot be downloaded or read.
    """
    graph = labelled("squirrel_filtered", "HeterophilousGraphs-filtered/raw", [_FILE],
                     f"{_SITE}, folder data", _read, folder, _fetch)
    return normalised(graph, normalise)


def _read(raw: Path) -> Arrays:
    x, edges, y, names = platonov(raw / _FILE)
    return csr_matrix(x), edges, y, names


def _fetch(raw: Path) -> None:
    import pooch
    pooch.retrieve(f"{_SITE}/raw/main/data/{_FILE}", _SHA256, _FILE, raw)
