"""FedLink-NoEmb (FedLink, Section 4.1): without embedding transfer; users' rows stay local."""

from __future__ import annotations

from typing import ClassVar, Literal

from fedvine.core.method import Field
from fedvine.methods.fedlink import FedLink


class FedLinkNoEmb(FedLink):
    """FedLink whose clients share the model and item rows, but no user's embedding."""

    name: ClassVar[str] = "fedlink_noemb"

    share: tuple[Literal["model", "users", "items"], ...] = Field(
        default=("model", "items"), description="what clients share; users' rows stay local")
