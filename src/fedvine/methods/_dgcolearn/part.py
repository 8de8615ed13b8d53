"""A client's part of the graph in DG-CoLearn, its memory. n counts its nodes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fedvine.core.device import moved
from fedvine.core.lookup import find
from fedvine.data.adjacency import Adjacency
from fedvine.methods._dgcolearn.graph import longer
from fedvine.nn.neighbour_sum import neighbour_sum


class RowTable:
    """Rows [n, width] that are written in place, with room for more.

    Args:
        rows: the first rows.
    """

    def __init__(self, rows: torch.Tensor) -> None:
        self.count, self.held = len(rows), rows

    @property
    def rows(self) -> torch.Tensor:
        """All rows, a view."""
        return self.held[:self.count]

    def append(self, rows: torch.Tensor) -> None:
        """Add rows behind the others."""
        count = self.count + len(rows)
        if count > len(self.held):
            more = self.held.new_zeros(count + count // 8 - len(self.held), self.held.shape[1])
            self.held = torch.cat([self.held, more])
        self.held[self.count:count] = rows
        self.count = count


class Part:
    """The nodes of a client as places 0..n-1; arrays are written in place.

    Tensors are on the device where the client computes.

    - ``x``: [n, F] features; the last column is 0, as the degree is put there
    - ``states``: states of the last snapshot by layer [n, .], H_(t-1) of Eq. (3); both are views of
      tables with room for nodes to come
    - ``graph``: the edges between own nodes
    - ``elsewhere``: int32 [n], numbers of neighbours elsewhere whose sum this client gets
    - ``degree``: int32 [n], numbers of all neighbours
    - ``active``: bool [n], and ``changed`` int64, its places: nodes of the k-hop subgraph, Eq. (1);
      others keep their states
    - ``held``: by layer the sums [n, m] over neighbours elsewhere that were given last
    - ``sums``: sums [b, .] by layer of an exchange for local epochs, of nodes that are active and
      have neighbours elsewhere
    - ``corrections``: tables [n, .] of what Eqs. (5), (6) add to the first two layers; or one of
      FedGCN's inputs
    - ``seen``: summaries of earlier snapshots, for version h of EvolveGCN
    - ``told``: of TGN "heard" and "ages", what the newest events say to memories, and times of live
      edges (:mod:`fedvine.methods._dgcolearn.events`): places int64, ascending, and rows [m, .] of
      these; others are 0
    """

    def __init__(self, features: int, widths: Sequence[int], dtype: torch.dtype,
                 device: torch.device | None = None) -> None:
        x = torch.empty(0, features, dtype=dtype, device=device)
        self.tables = [RowTable(x), *(RowTable(x.new_zeros(0, width)) for width in widths)]
        self.graph, self.active = Adjacency(), np.empty(0, bool)
        self.changed = np.empty(0, np.int64)
        self.elsewhere = self.degree = np.empty(0, np.int32)
        self.held: dict[int, RowTable] = {}
        self.sums, self.corrections = list[torch.Tensor](), list[torch.Tensor]()
        self.seen = list[list[torch.Tensor]]()
        self.told: dict[str, tuple[np.ndarray, torch.Tensor]] = {}
        self._ends: np.ndarray | None = None
        self._view()

    def _view(self) -> None:
        self.x, *self.states = (table.rows for table in self.tables)

    # -- nodes and features ----------------------------------------------------------------------
    def append(self, x: torch.Tensor) -> None:
        """Add nodes with features ``x`` [m, F] and states of 0; they are active."""
        before = self.tables[0].count
        self.tables[0].append(x)
        for table in (*self.tables[1:], *self.held.values()):
            table.append(table.held.new_zeros(len(x), table.held.shape[1]))
        self._view()
        new = np.arange(before, len(self.x))
        self.graph.grow(len(self.x))
        self.changed, self._ends = np.concatenate([self.changed, new]), None
        self.active, self.elsewhere, self.degree = (longer(a, len(self.x)) for a in (
            self.active, self.elsewhere, self.degree))
        self.active[new] = True

    def renew(self, places: np.ndarray, x: np.ndarray, start: int = 0) -> None:
        """Replace columns of the features of nodes, from ``start`` on, by ``x`` [m, .]."""
        self.x[torch.from_numpy(places), start:start + x.shape[1]] = torch.from_numpy(x).to(self.x)

    def renew_means(self, places: np.ndarray, x: np.ndarray) -> None:
        """Replace the means of columns of edges, which are before the last two columns."""
        self.renew(places, x, self.x.shape[1] - 2 - x.shape[1])

    def own_features(self) -> None:
        """Copy the features, as a copy of this that scores may be about to write to them."""
        self.tables = [RowTable(self.x.clone()), *self.tables[1:]]
        self._view()

    def beside(self, name: str, x: torch.Tensor, places: np.ndarray) -> torch.Tensor:
        """Return ``x`` [m, .] of nodes at these places, with their rows of ``told`` behind.

        ``name`` is "heard" or "ages"; ``x`` stays where there is none of these.
        """
        if name not in self.told:
            return x
        named, rows = self.told[name]
        at = find(named, places)
        mine = np.flatnonzero(at >= 0)
        found = rows.new_zeros(len(x), rows.shape[1])
        found[torch.from_numpy(mine)] = rows[torch.from_numpy(at[mine])]
        return torch.cat([x, found], 1)

    # -- the subgraph ----------------------------------------------------------------------------
    def join(self, now: dict[str, np.ndarray]) -> None:
        """Take in what changed in the subgraph; see :meth:`ClientFunctions.join`."""
        nodes, n = now["nodes"].astype(np.int64), len(self.x)
        if now["whole"]:
            self.graph = Adjacency.of_rows(now["sizes"], now["neighbours"])
            self.active, self.changed = np.zeros(n, bool), np.empty(0, np.int64)
            self.elsewhere, self.degree = np.zeros(n, np.int32), np.zeros(n, np.int32)
        elif "sizes" in now:
            self.graph.replace(nodes, now["sizes"], now["neighbours"])
        else:
            self.graph.remove(now["removed"])
            self.graph.add(now["added"])
        self.elsewhere[nodes], self.degree[nodes] = now["elsewhere"], now["degree"]
        if "means" in now:
            if now["whole"]:
                self.own_features()
            self.renew_means(now["told"].astype(np.int64), now["means"])
        self.active[self.changed] = False
        self.changed = now["active"].astype(np.int64)
        self.active[self.changed] = True
        self.sums, self.corrections, self._ends = [], [], None

    @property
    def ends(self) -> np.ndarray:
        """Return the edges between own nodes int64 [2, E], sorted."""
        if self._ends is None:
            self._ends = self.graph.edges()
        return self._ends

    @ends.setter
    def ends(self, ends: np.ndarray) -> None:
        """Let nodes have these edges int64 [2, E], and no others."""
        self.graph, self._ends = Adjacency.of(ends, len(self.x)), ends
        self.degree, self.elsewhere = self.graph.degree.copy(), np.zeros(len(self.x), np.int32)

    def add_neighbours(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the sums of ``rows`` [n, .] over each node's neighbours in this part."""
        degree, neighbours = self.graph.rows()
        pointers = np.concatenate([[0], np.cumsum(degree, dtype=np.int64)])
        return neighbour_sum(rows, pointers, neighbours)

    # -- rows ------------------------------------------------------------------------------------
    def held_sums(self, layer: int, like: torch.Tensor) -> torch.Tensor:
        """Return a view of the sums held of a layer, [n, m], as wide as ``like`` [., m]."""
        if layer not in self.held:
            self.held[layer] = RowTable(like.new_zeros(len(self.x), like.shape[1]))
        return self.held[layer].rows

    def ahead(self, alone: bool) -> Part:
        """Return a copy to go on with; ``alone``: that may be written to."""
        found = copy.deepcopy(self) if alone else copy.copy(self)
        found._view()
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps."""
        return {"rows": [table.rows for table in self.tables], "graph": self.graph.state_dict(),
                "elsewhere": self.elsewhere[:len(self.x)], "degree": self.degree[:len(self.x)],
                "changed": self.changed, "sums": self.sums, "corrections": self.corrections,
                "seen": self.seen,
                "held": {str(layer): table.rows for layer, table in self.held.items()},
                "told": {name: list(said) for name, said in self.told.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state of :meth:`state_dict`."""
        state = moved(state, self.x.device)
        self.tables = [RowTable(rows) for rows in state["rows"]]
        self._view()
        self.graph.load_state_dict(state["graph"])
        self.elsewhere, self.degree = state["elsewhere"], state["degree"]
        self.active, self.changed = np.zeros(len(self.x), bool), state["changed"]
        self.active[self.changed] = True
        self.sums, self.corrections, self.seen = (
            state[name] for name in ("sums", "corrections", "seen"))
        self.held = {int(layer): RowTable(rows) for layer, rows in state["held"].items()}
        self.told = {name: (said[0], said[1]) for name, said in state["told"].items()}
        self._ends = None
