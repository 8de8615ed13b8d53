"""Aggregation of clients' uploads: secure sums, noise, and rules against false uploads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedvine.core.lazy import lazy

if TYPE_CHECKING:
    from fedvine.aggregate.aggregate import Aggregate, NoisySum, Part, Sum
    from fedvine.aggregate.means import Either, Mean, Means
    from fedvine.aggregate.noise import from_fixed, to_fixed

__all__ = ["Aggregate", "Either", "Mean", "Means", "NoisySum", "Part", "Sum", "from_fixed",
           "to_fixed"]
__getattr__, __dir__ = lazy(
    __name__, Aggregate="aggregate", NoisySum="aggregate", Part="aggregate", Sum="aggregate",
    Either="means", Mean="means", Means="means", from_fixed="noise", to_fixed="noise")
