"""ROLAND (You, Du and Leskovec 2022): the same backbone on one machine that has the whole graph.

The ceiling for methods that share a graph: the first client computes everything. Edges between
clients are counted as for them. Of ROLAND it has the layers and the recurrent states, but neither
batch norm nor the meta-update: theirs starts each snapshot from a moving average of the models of
all before, ours goes on from the last one. With another ``backbone`` it is EvolveGCN or GCRN.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedvine.methods._dgcolearn.placement import Placement
from fedvine.methods.dgcolearn import DgCoLearn


class OneMachine(Placement):
    """A placement of all nodes at the first client; parts are those of the compared methods."""

    def clients_of(self, part: np.ndarray) -> np.ndarray:
        return np.where(part >= 0, 0, -1).astype(np.int32)


class Roland(DgCoLearn):
    """Centralised training: one client has all nodes."""

    name: ClassVar[str] = "roland"
    placement: ClassVar[type[Placement]] = OneMachine
