"""FedAvgDyn: each client on its own part of a dynamic graph, and averaging of models.

DG-CoLearn's Appendix E.5: the local model is EvolveGCN, the server averages as FedAvg does. The
paper does not state which version of EvolveGCN. Ours is o, which fedsage_dyn has too; h chooses
rows among a client's own nodes (``backbone``).
"""

from __future__ import annotations

from typing import ClassVar, Literal

from fedvine.aggregate.means import Mean
from fedvine.core.method import Field
from fedvine.methods.dgcolearn import DgCoLearn
from fedvine.nn.backbones import Backbone


class FedAvgDyn(DgCoLearn):
    """Clients that exchange models alone; no client sees the edges between clients."""

    name: ClassVar[str] = "fedavg_dyn"
    edge_columns: ClassVar[bool] = False    # means are over edges between clients, too
    edge_means: ClassVar[bool] = False

    aggregate: Mean = Mean()    # type: ignore[assignment]
    backbone: Backbone = Field(
        default="evolvegcn-o", description="the local model: EvolveGCN as in Appendix E.5, or one "
        "of dgcolearn's")
    exchange: Literal["none"] = Field(  # type: ignore[assignment]
        default="none", description="nothing is learned of neighbours elsewhere")
    schedule: Literal["before"] = Field(  # type: ignore[assignment]
        default="before", description="local epochs, and averaging")
