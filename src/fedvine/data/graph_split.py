"""Parts of a labelled graph by client."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvine.data import graph_files
from fedvine.data.split import Split

if TYPE_CHECKING:
    from fedvine.data.graph import Graph


class GraphSplit(Split):
    """Parts of a graph by client name; ``stream`` is the whole graph."""

    def only(self, names: list[str]) -> GraphSplit:
        """Return the same split with these clients alone."""
        found = super().only(names)
        return GraphSplit(found.parts, found.stream, found.by)

    def mapped(self, change: Callable[[str, Graph], Graph]) -> GraphSplit:
        """Return the same split with every part changed by ``change(name, part)``."""
        parts: Mapping[str, Any] = self.parts
        changed: dict[str, Any] = {n: change(n, p) for n, p in parts.items()}
        return GraphSplit(changed, self.stream, self.by)

    def write(self, folder: str | os.PathLike[str]) -> GraphSplit:
        """Write every part under ``folder``, the whole graph not; return the split."""
        graph_files.write_split(self, Path(folder))
        return self

    @staticmethod
    def open(folder: str | os.PathLike[str], stream: Any) -> GraphSplit:
        """Return the split of the graph ``stream`` that :meth:`write` wrote."""
        parts, by = graph_files.read_split(stream, Path(folder))
        return GraphSplit(parts, stream, by)

    def report(self) -> dict[str, Any]:
        """Count nodes, edges and classes of each client; measure balance and cut.

        ``cov`` is the coefficient of variation of the nodes; ``cut`` the share of edges between
        clients, which are dropped; ``entropy`` the mean over clients of the Shannon entropy of
        their labels, in bits.
        """
        graphs: Mapping[str, Graph] = self.parts  # type: ignore[assignment]
        nodes = np.array([len(g) for g in graphs.values()], float)
        inside = sum(g.edges.shape[1] for g in graphs.values())
        whole = self.stream.edges.shape[1]  # type: ignore[attr-defined]
        return {"by": self.by, "clients": {n: {
                    "nodes": len(g), "edges": g.edges.shape[1],
                    "classes": len(np.unique(g.y[g.y >= 0]))} for n, g in graphs.items()},
                "cov": float(nodes.std() / nodes.mean()) if nodes.sum() else 0.0,
                "cut": 1 - inside / whole if whole else 0.0,
                "entropy": float(np.mean([_entropy(g.y[g.y >= 0]) for g in graphs.values()]))}


def _entropy(y: np.ndarray) -> float:
    share = np.bincount(y) / max(len(y), 1)
    share = share[share > 0]
    return float(-(share * np.log2(share)).sum())
