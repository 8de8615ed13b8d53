"""FedLink-Local (FedLink, Section 4.1): the buffers without the federation; nothing travels."""

from __future__ import annotations

from typing import ClassVar, Literal

from fedvine.core.method import Field
from fedvine.methods.fedlink import FedLink


class FedLinkLocal(FedLink):
    """Constant edge buffers, each client on its own."""

    name: ClassVar[str] = "fedlink_local"
    averages: ClassVar[bool] = False

    share: tuple[Literal["model", "users", "items"], ...] = Field(
        default=(), description="nothing is shared")
