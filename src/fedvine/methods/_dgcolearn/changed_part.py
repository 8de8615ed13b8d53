"""The memory of a client of DG-CoLearn that computes the rows of the changed set alone."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

from fedvine.core.device import moved
from fedvine.core.lookup import find
from fedvine.data.adjacency import Adjacency
from fedvine.methods._dgcolearn.held import longer
from fedvine.methods._dgcolearn.part import Part, spread


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


class ChangedPart(Part):
    """The nodes of a client as places 0..n-1; arrays are written in place.

    - ``x``, ``states``: as in :class:`Part`, in tables with room for nodes to come
    - ``graph``: the edges between own nodes
    - ``elsewhere``: int32 [n], numbers of neighbours elsewhere, of those that are aggregated
    - ``degree``: int32 [n], numbers of all neighbours
    - ``held``: by layer the sums [n, m] over neighbours elsewhere that were given last
    - ``told``: of networks with times "heard" and "ages" of :class:`Part`: places int64,
      ascending, and rows [m, .] of these; others are 0
    - ``active``: bool [n], and ``changed`` int64, its places: nodes of the k-hop subgraph, Eq. (1)
    """

    def __init__(self, *shape: Any) -> None:
        super().__init__(*shape)
        self.graph, self.changed = Adjacency(), np.empty(0, np.int64)
        self.tables = [RowTable(rows) for rows in (self.x, *self.states)]
        self.elsewhere = self.degree = np.empty(0, np.int32)
        self.held: dict[int, RowTable] = {}
        self.told: dict[str, tuple[np.ndarray, torch.Tensor]] = {}
        self._view()

    def take_heard(self, places: np.ndarray, rows: torch.Tensor) -> None:
        self.told = {**self.told, "heard": (places, rows)}

    def take_ages(self, places: np.ndarray, rows: torch.Tensor) -> None:
        self.told = {**self.told, "ages": (places, rows)}

    def beside(self, name: str, x: torch.Tensor, places: np.ndarray) -> torch.Tensor:
        """Return ``x`` [m, .] of nodes at these places, with their rows of ``told`` behind.

        ``name`` is "heard" or "ages"; ``x`` stays where there is none of these.
        """
        if name not in self.told:
            return x
        named, rows = self.told[name]
        at = find(named, places)
        mine = np.flatnonzero(at >= 0)
        return torch.cat([x, spread(len(x), mine, rows[torch.from_numpy(at[mine])])], 1)

    def _view(self) -> None:
        self.x, *self.states = (table.rows for table in self.tables)

    def append(self, x: torch.Tensor, states: list[torch.Tensor]) -> None:
        """Add nodes, which are active."""
        before = self.tables[0].count
        for table, rows in zip(self.tables, (x, *states), strict=True):
            table.append(rows)
        for table in self.held.values():
            table.append(table.held.new_zeros(len(x), table.held.shape[1]))
        self._view()
        new = np.arange(before, len(self.x))
        self.graph.grow(len(self.x))
        self.changed = np.concatenate([self.changed, new])
        self.active = longer(self.active, len(self.x))
        self.elsewhere, self.degree = (longer(a, len(self.x)) for a in (
            self.elsewhere, self.degree))
        self.active[new] = True

    def remove(self, places: np.ndarray) -> list[torch.Tensor]:
        """Remove nodes; a whole subgraph must follow. Return their features and states."""
        at = torch.from_numpy(places)
        stay = torch.ones(len(self.x), dtype=torch.bool).index_fill(0, at, False)
        given = [table.rows[at] for table in self.tables]
        self.tables = [RowTable(table.rows[stay]) for table in self.tables]
        self._view()
        n, self.held, self.told = len(self.x), {}, {}
        self.graph, self.changed = Adjacency(n), np.empty(0, np.int64)
        self.active = np.zeros(n, bool)
        self.elsewhere, self.degree = np.zeros(n, np.int32), np.zeros(n, np.int32)
        return given

    def renew(self, places: np.ndarray, x: np.ndarray, start: int = 0) -> None:
        """Replace columns of the features of nodes, from ``start`` on, by ``x`` [m, .]."""
        self.x[torch.from_numpy(places), start:start + x.shape[1]] = torch.from_numpy(x).to(self.x)

    def own_features(self) -> None:
        """Copy the features, as a copy of this that scores may be about to write to them."""
        self.tables = [RowTable(self.x.clone()), *self.tables[1:]]
        self._view()

    def held_sums(self, layer: int, like: torch.Tensor) -> torch.Tensor:
        """Return a view of the sums held of a layer, [n, m], as wide as ``like`` [., m]."""
        if layer not in self.held:
            self.held[layer] = RowTable(like.new_zeros(len(self.x), like.shape[1]))
        return self.held[layer].rows

    def choose(self, changed: np.ndarray) -> None:
        """Let the nodes at these places, and no others, be active."""
        self.active[self.changed] = False
        self.changed = np.asarray(changed, np.int64)
        self.active[self.changed] = True

    def ahead(self, alone: bool) -> ChangedPart:
        """Return a copy to go on with; ``alone``: that may be written to."""
        found = (copy.deepcopy(self, {id(self.exchange): self.exchange}) if alone else
                 copy.copy(self))
        found._view()
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps."""
        return {"rows": [table.rows for table in self.tables], "graph": self.graph.state_dict(),
                "elsewhere": self.elsewhere[:len(self.x)], "degree": self.degree[:len(self.x)],
                "changed": self.changed, "held": {
                    str(layer): table.rows for layer, table in self.held.items()},
                "told": {name: list(said) for name, said in self.told.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        state = moved(state, self.x.device)
        self.tables = [RowTable(rows) for rows in state["rows"]]
        self._view()
        self.graph.load_state_dict(state["graph"])
        self.elsewhere, self.degree = state["elsewhere"], state["degree"]
        self.active, self.changed = np.zeros(len(self.x), bool), state["changed"]
        self.active[self.changed] = True
        self.held = {int(layer): RowTable(rows) for layer, rows in state.get("held", {}).items()}
        self.told = {name: (said[0], said[1]) for name, said in state.get("told", {}).items()}


