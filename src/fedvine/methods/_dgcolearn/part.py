"""A client's part of the graph in DG-CoLearn.

n counts its nodes, b its border nodes (with neighbours elsewhere: at other clients).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from fedvine.core.device import moved
from fedvine.nn.neighbour_sum import Ends, add_neighbours


class Part:
    """The nodes of a client, as places 0..n-1; arrays are replaced, never written to.

    Tensors are on the device where the client computes.

    - ``x``: [n, F] features; the last column is 0, as the degree is put there
    - ``states``: states of the last snapshot by layer [n, .], H_(t-1) of Eq. (3)
    - ``active``: bool [n], nodes of the k-hop subgraph of Eq. (1); others keep their states
    - ``ends``: int64 [2, E], edges between own nodes
    - ``border``, ``elsewhere``: int64 [b], own nodes with neighbours elsewhere, and how many
    - ``sums``: sums [b, .] by layer of an exchange, kept for local epochs
    - ``corrections``: what Eqs. (5), (6) or FedGCN add after an exchange of raw features
    - ``seen``: summaries of earlier snapshots, for version h of EvolveGCN
    - ``heard`` [n, .], ``ages`` [n, .]: for TGN, what the newest events say to memories, and times
      of live edges (:mod:`fedvine.methods._dgcolearn.recent`)
    - ``exchange``: the method's exchange; not saved
    - ``sorted_ends``: ``ends``, sorted for sums over neighbours; not saved
    """

    saved: ClassVar[tuple[str, ...]] = ("corrections", "x", "states", "active", "ends", "border",
                                        "elsewhere", "sums", "seen")

    def __init__(self, features: int, widths: Sequence[int], dtype: torch.dtype,
                 exchange: Any, device: torch.device | None = None) -> None:
        self.exchange = exchange
        self.x = torch.empty(0, features, dtype=dtype, device=device)
        self.states = [self.x.new_zeros(0, width) for width in widths]
        self.active = np.empty(0, bool)
        self.ends = np.empty((2, 0), np.int64)
        self.border, self.elsewhere = np.empty(0, np.int64), np.empty(0, np.int64)
        self.sums, self.corrections = list[torch.Tensor](), list[torch.Tensor]()
        self.seen = list[list[torch.Tensor]]()
        self.heard: torch.Tensor | None = None
        self.ages: torch.Tensor | None = None
        self.sorted_ends: Ends | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps."""
        timed = () if self.heard is None else ("heard", "ages")
        return {name: getattr(self, name) for name in (*self.saved, *timed)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        vars(self).update(moved(state, self.x.device))

    def take_heard(self, places: np.ndarray, rows: torch.Tensor) -> None:
        """Take what the newest events say to the nodes at these places, [m, .]; others: 0."""
        self.heard = spread(len(self.x), places, rows)

    def take_ages(self, places: np.ndarray, rows: torch.Tensor) -> None:
        """Take the times of live edges of the nodes at these places, [m, .]; others: 0."""
        self.ages = spread(len(self.x), places, rows)

    def append(self, x: torch.Tensor, states: list[torch.Tensor]) -> None:
        """Add nodes with features ``x`` [m, F] and states [m, .] by layer; they are active."""
        self.x, *self.states = (torch.cat([own, new.to(own)]) for own, new in
                                zip((self.x, *self.states), (x, *states), strict=True))
        self.active = np.concatenate([self.active, np.ones(len(x), bool)])

    def remove(self, places: np.ndarray) -> list[torch.Tensor]:
        """Remove nodes; return their features [m, F] and states [m, .], one array a layer."""
        at = torch.from_numpy(places)
        stay = torch.ones(len(self.x), dtype=torch.bool).index_fill(0, at, False)
        given = [r[at] for r in (self.x, *self.states)]
        self.x, *self.states = (r[stay] for r in (self.x, *self.states))
        self.active = self.active[stay.numpy()]
        return given

    def renew(self, places: np.ndarray, x: np.ndarray, start: int = 0) -> None:
        """Replace columns of the features of nodes, from ``start`` on, by ``x`` [m, .]."""
        self.x = self.x.clone()
        self.x[torch.from_numpy(places), start:start + x.shape[1]] = torch.from_numpy(x).to(self.x)

    def renew_means(self, places: np.ndarray, x: np.ndarray) -> None:
        """Replace the means of columns of edges, which are before the last two columns."""
        self.renew(places, x, self.x.shape[1] - 2 - x.shape[1])

    def ahead(self, alone: bool) -> Part:
        """Return a copy to go on with; ``alone``: that may be written to."""
        return copy.copy(self)

    def add_neighbours(self, onto: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Add to ``onto`` [n, .] the sums of ``rows`` [n, .] over neighbours in this part."""
        known = self.sorted_ends
        if known is None or known.edges is not self.ends or known.n != len(rows):
            known = self.sorted_ends = Ends(self.ends, len(rows))
        return add_neighbours(onto, rows, known)


def spread(count: int, places: np.ndarray, rows: torch.Tensor) -> torch.Tensor:
    """Return ``rows`` [m, .] at ``places`` int64 [m] of ``count`` ones, which are else 0."""
    found = rows.new_zeros(count, rows.shape[1])
    found[torch.from_numpy(places)] = rows
    return found
