"""Local: GraphSAGE (Hamilton et al. 2017) at each client alone, STFL without the federation."""

from __future__ import annotations

from typing import ClassVar, Literal

from fedvine.core.method import Field
from fedvine.methods.stfl import STFL


class Local(STFL):
    """Training on the full history, each client by itself; nothing is sent."""

    name: ClassVar[str] = "local"
    averages: ClassVar[bool] = False

    share: tuple[Literal["model", "users", "items"], ...] = Field(
        default=(), description="nothing travels")
