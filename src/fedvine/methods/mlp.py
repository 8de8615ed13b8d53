"""MLP: FedAvg without edges, the reference for what edges are worth."""

from __future__ import annotations

from typing import Any, ClassVar

from fedvine.methods._power.training import Continual
from fedvine.nn.gat import Inputs, inputs


class Mlp(Continual):
    """FedAvg without edges: each node is its only neighbour, so the GAT is a perceptron."""

    name: ClassVar[str] = "mlp"

    def inputs(self, graph: Any) -> Inputs:
        """Return the graph as the network takes it, with a loop at each node and no edges."""
        return inputs(graph, edges=False)
