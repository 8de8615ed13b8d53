"""MLP: FedAvg without edges, the reference for what edges are worth, for tasks and snapshots."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from fedvine.core.method import Field
from fedvine.methods._dgcolearn.exchange import Border
from fedvine.methods._dgcolearn.placement import Placement
from fedvine.methods._power.training import Continual
from fedvine.methods.fedavg_dyn import FedAvgDyn
from fedvine.nn.gat import Inputs, inputs


class Mlp(Continual):
    """FedAvg without edges: each node is its only neighbour, so the GAT is a perceptron."""

    name: ClassVar[str] = "mlp"

    def inputs(self, graph: Any) -> Inputs:
        """Return the graph as the network takes it, with a loop at each node and no edges."""
        return inputs(graph, edges=False)


class NoEdges(Placement):
    """A placement of nodes at clients without any edges."""

    def subgraphs(self, edges: np.ndarray, border: Border, active: np.ndarray | None
                  ) -> dict[str, dict[str, np.ndarray]]:
        return super().subgraphs(edges[:, :0], border, active)


class MlpDyn(FedAvgDyn):
    """FedAvgDyn whose clients get no edges, not even those inside their part."""

    name: ClassVar[str] = "mlp_dyn"
    placement: ClassVar[type[Placement]] = NoEdges

    backbone: Literal["sage", "gcn"] = Field(  # type: ignore[assignment]
        default="sage", description="whether a layer keeps a row of its own beside the neighbours' "
        "part, which is empty here")
