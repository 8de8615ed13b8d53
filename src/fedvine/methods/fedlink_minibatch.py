"""FedLink-MiniBatch (FedLink, Section 4.1): C edges drawn evenly from the retained S x C."""

from __future__ import annotations

from typing import ClassVar, Literal

from fedvine.core.method import Field
from fedvine.methods.fedlink import FedLink


class FedLinkMiniBatch(FedLink):
    """FedLink with random mini-batches of buffer size in place of consecutive buffers."""

    name: ClassVar[str] = "fedlink_minibatch"

    draw: Literal["buffer", "newest", "uniform", "cyclic"] | None = Field(
        default="uniform", description="C edges drawn evenly")
