"""Aggregation of clients' uploads: secure sums, noise, and rules against false uploads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedvine.core.lazy import lazy

if TYPE_CHECKING:
    from fedvine.aggregate.noise import from_fixed, to_fixed
    from fedvine.aggregate.secure import SecureSums

__all__ = ["SecureSums", "from_fixed", "to_fixed"]
__getattr__, __dir__ = lazy(__name__, SecureSums="secure", from_fixed="noise",
                            to_fixed="noise")
