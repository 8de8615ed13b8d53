"""Sums that show nothing of their terms: secure aggregation in exact fixed-point numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedvine.core.lazy import lazy

if TYPE_CHECKING:
    from fedvine.privacy.fixed_point import from_fixed, to_fixed
    from fedvine.privacy.secure_sums import SecureSums

__all__ = ["SecureSums", "from_fixed", "to_fixed"]
__getattr__, __dir__ = lazy(__name__, SecureSums="secure_sums", from_fixed="fixed_point",
                            to_fixed="fixed_point")
