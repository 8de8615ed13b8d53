"""MLP: FedAvg without edges, the reference for what edges are worth, for tasks and snapshots."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from fedvine.core.method import Field, Server
from fedvine.methods._dgcolearn.placement import Placement
from fedvine.methods.fedavg import FedAvg
from fedvine.methods.fedavg_dyn import FedAvgDyn
from fedvine.nn.gat import Inputs, inputs


class Mlp(FedAvg):
    """FedAvg without edges: each node is its only neighbour, so the GAT is a perceptron."""

    name: ClassVar[str] = "mlp"

    def inputs(self, graph: Any) -> Inputs:
        """Return the graph as the network takes it, with a loop at each node and no edges."""
        return inputs(graph, edges=False)


class NoEdges(Placement):
    """A placement of nodes at clients without any edges."""

    def subgraph(self, server: Server, k: int, changes: Any = None) -> dict[str, Any]:
        found = super().subgraph(server, k, changes)
        found["degree"] = np.zeros_like(found["degree"])
        if found["whole"]:
            return found | {"sizes": found["degree"], "neighbours": found["neighbours"][:0]}
        return found | {name: found[name][:, :0] for name in ("added", "removed")}


class MlpDyn(FedAvgDyn):
    """FedAvgDyn whose clients get no edges, not even those inside their part."""

    name: ClassVar[str] = "mlp_dyn"
    placement: ClassVar[type[Placement]] = NoEdges

    backbone: Literal["sage", "gcn"] = Field(  # type: ignore[assignment]
        default="sage", description="whether a layer keeps a row of its own beside the neighbours' "
        "part, which is empty here")
