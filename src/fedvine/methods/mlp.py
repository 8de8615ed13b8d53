"""MLP: FedAvg that sees no edges, to show what they are worth."""

from __future__ import annotations

from typing import Any, ClassVar

from fedvine.methods._continual import Continual
from fedvine.models.gat import Inputs, inputs


class Mlp(Continual):
    """The network of :class:`fedvine.models.gat.Gat` with each node as its only neighbour, which
    makes it a perceptron of two layers."""

    name: ClassVar[str] = "mlp"

    def inputs(self, graph: Any) -> Inputs:
        return inputs(graph, edges=False)
