"""ROLAND (You, Du and Leskovec 2022): the backbone on one machine that has the whole graph.

The ceiling for methods that share a graph: the first client computes everything. Edges between
clients are counted as for them. As it stands it has ROLAND's layers and recurrent states alone, so
that it computes what ``dgcolearn`` does; with another ``backbone`` it is EvolveGCN or GCRN.
Two fields add what makes ROLAND a method of its own (KDD 2022, Sections 3.1 and 3.3):

- ``meta``, alpha of its Algorithm 3. Each snapshot is learned from a moving average of the models
  of the snapshots before, the meta-model, and scored with the model that was learned::

      GNN_t <- GNN^(meta), then R rounds;    GNN^(meta) <- (1 - alpha) GNN^(meta) + alpha GNN_t

  The first snapshot's model is the first meta-model. As in the authors' code the optimiser begins
  anew with each snapshot, where alpha is below 1; with alpha = 1 we go on from the last model, with
  its optimiser. Their code stops early on a part of the snapshot's edges that it sets aside; here
  every snapshot has R rounds
- ``norm``: batch norm of a layer's rows before they are activated, which the layers of the paper
  have (:class:`fedvine.nn.roland.Roland`). Mean and variance are those of the snapshot's nodes, in
  scoring too, where the code takes running means. It needs all rows of a layer at one place

Left out of the layers: skip connections, PReLU, and dense layers before and after.
"""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from pydantic import model_validator

from fedvine.aggregate.means import Means
from fedvine.core import tree
from fedvine.core.method import At, Field, Server, World
from fedvine.methods._dgcolearn.placement import Placement
from fedvine.methods.dgcolearn import DgCoLearn
from fedvine.nn.roland import Network
from fedvine.nn.roland import Roland as Layers


class OneMachine(Placement):
    """A placement of all nodes at the first client; parts are those of the compared methods."""

    def clients_of(self, part: np.ndarray) -> np.ndarray:
        return np.where(part >= 0, 0, -1).astype(np.int32)


class Roland(DgCoLearn):
    """Centralised training: one client has all nodes."""

    name: ClassVar[str] = "roland"
    placement: ClassVar[type[Placement]] = OneMachine

    aggregate: Means = Means()  # type: ignore[assignment]
    meta: float = Field(default=1.0, gt=0, le=1, description="weight of the newest model in the "
                        "model that a snapshot begins with, alpha; 1: the newest one itself")
    norm: bool = Field(default=False, description="batch norm in every layer; with the backbones "
                       "sage and gcn")

    @model_validator(mode="after")
    def _norm_needs_layers_with_rows(self) -> Self:
        if self.norm and self.backbone not in ("sage", "gcn"):
            raise ValueError("norm is for the backbones sage and gcn; leave it out with "
                             f"{self.backbone}")
        if self.norm and self.scope == "changed":
            raise ValueError("norm takes the mean over all nodes, and scope=changed computes those "
                             "that changed; leave one of them out")
        return self

    def start(self, world: World) -> Server:
        server = super().start(world)
        if self.meta < 1:
            server.meta = tree.weights(server.net)      # the meta-model, by name of weight
        return server

    def net(self, world: World) -> Network:
        """Return the model, with batch norm where it is wanted."""
        net = super().net(world)
        if self.norm:
            assert isinstance(net, Layers)
            net.add_norm()
        return net

    def round(self, server, clients, at: At) -> None:
        if self.meta < 1 and at.first and at.t:
            tree.load(server.net, server.meta)                      # GNN_t <- GNN^(meta)
            server.optimizer = self.adam(server.net)
        super().round(server, clients, at)
        if self.meta < 1 and at.last:
            alpha, now = self.meta if at.t else 1.0, tree.weights(server.net)
            server.meta = tree.map_tree(lambda old, new: (1 - alpha) * old + alpha * new,
                                        server.meta, now)           # GNN^(meta)
