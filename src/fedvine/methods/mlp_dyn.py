"""MlpDyn: features and states alone, without edges; the score that needs no graph."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from fedvine.core.method import Field
from fedvine.methods._dgcolearn.exchange import Border
from fedvine.methods._dgcolearn.placement import Placement
from fedvine.methods.fedavg_dyn import FedAvgDyn


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
