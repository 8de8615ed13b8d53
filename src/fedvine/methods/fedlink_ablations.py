"""FedLink's ablations (Section 4.1 of its paper): each leaves out one thing."""

from __future__ import annotations

from typing import ClassVar, Literal

from fedvine.aggregate.means import Means
from fedvine.core.method import Field
from fedvine.methods.fedlink import FedLink


class FedLinkLocal(FedLink):
    """Constant edge buffers, each client on its own."""

    name: ClassVar[str] = "fedlink_local"
    aggregate: Means = Means()  # type: ignore[assignment]

    share: tuple[()] = Field(  # type: ignore[assignment]
        default=(), description="nothing is shared")
    divide: Literal["touching"] = Field(  # type: ignore[assignment]
        default="touching", description="no row travels")


class FedLinkNoEmb(FedLink):
    """FedLink whose clients share the model and item rows, but no user's embedding."""

    name: ClassVar[str] = "fedlink_noemb"

    share: tuple[Literal["model", "users", "items"], ...] = Field(
        default=("model", "items"), description="what clients share; users' rows stay local")


class FedLinkMiniBatch(FedLink):
    """FedLink with random mini-batches of buffer size in place of consecutive buffers."""

    name: ClassVar[str] = "fedlink_minibatch"

    draw: Literal["buffer", "newest", "uniform", "cyclic"] | None = Field(
        default="uniform", description="C edges drawn evenly")
