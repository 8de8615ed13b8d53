"""FedAvgDyn: each client by itself on its part of a dynamic graph, and averaging of models."""

from __future__ import annotations

from typing import ClassVar, Literal

from fedvine.method import Field
from fedvine.methods.dgcolearn import DgCoLearn


class FedAvgDyn(DgCoLearn):
    """DG-CoLearn without any exchange: edges between clients are seen by nobody."""

    name: ClassVar[str] = "fedavg_dyn"

    exchange: Literal["none"] = Field(  # type: ignore[assignment]
        default="none", description="nothing is learned of neighbours elsewhere")
    exchange_gradients: Literal[False] = Field(  # type: ignore[assignment]
        default=False, description="local epochs, and averaging")
