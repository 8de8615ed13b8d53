"""Data sets that PyTorch Geometric can download and read.

Its classes write ``processed`` beside ``raw``, with pickles in it. Here only their two steps are
called, ``download`` into a given folder and ``process`` from one, and nothing is written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scipy.sparse import csr_matrix

from fedvine.datasets._labelled import Arrays


class Pyg:
    """A data set of PyTorch Geometric with one graph.

    Args:
        kind: name of a class in ``torch_geometric.datasets``.
        sparse: return features that are 0 or 1 as a SciPy CSR matrix.
        **arguments: of the class.
    """

    def __init__(self, kind: str, *, sparse: bool = False, **arguments: Any) -> None:
        self.kind, self.sparse, self.arguments = kind, sparse, arguments

    def fetch(self, raw: Path) -> None:
        """Download the raw files into ``raw``; raises the library's own errors."""
        self._dataset(raw, []).download()

    def read(self, raw: Path) -> Arrays:
        """Return features, edges, classes and no names; raises the library's own errors."""
        found: list[Any] = []
        self._dataset(raw, found).process()
        data = found[0]
        x = data.x.numpy()
        return csr_matrix(x) if self.sparse else x, data.edge_index.numpy(), data.y.numpy(), None

    def _dataset(self, raw: Path, found: list[Any]) -> Any:
        """Make the data set without its constructor's work; saving appends graphs to ``found``."""
        import torch_geometric.datasets as datasets
        kind = getattr(datasets, self.kind)
        return type(self.kind, (kind,), {
            "raw_dir": str(raw), "has_download": False, "has_process": False,
            "save": lambda _, graphs, path: found.extend(graphs), "load": lambda _, path: None,
        })(root=str(raw), **self.arguments)
