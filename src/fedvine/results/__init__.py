"""Tables, plots and pages of finished runs: kept cells, comparisons, searches of settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedvine.core.lazy import lazy

if TYPE_CHECKING:
    from fedvine.results.cells import Job
    from fedvine.results.comparison import Comparison

__all__ = ["Comparison", "Job"]
__getattr__, __dir__ = lazy(__name__, Comparison="comparison", Job="cells")
