"""FedLink's ablations (Section 4.1 of its paper): each leaves out one thing."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import model_validator

from fedvine.core.method import Field
from fedvine.methods.fedlink import FedLink
from fedvine.methods.stfl import alone


class FedLinkLocal(FedLink):
    """Constant edge buffers, each client on its own."""

    name: ClassVar[str] = "fedlink_local"
    averages: ClassVar[bool] = False

    share: tuple[Literal["model", "users", "items"], ...] = Field(
        default=(), description="nothing is shared")

    _no_row_travels = model_validator(mode="after")(alone)


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
