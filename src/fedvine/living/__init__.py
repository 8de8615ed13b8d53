"""Runs that go on when their data grow: the rows that they keep, and what is new in their data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedvine.core.lazy import lazy

if TYPE_CHECKING:
    from fedvine.living.rows import StoredRows
    from fedvine.living.run import LivingRun

__all__ = ["LivingRun", "StoredRows"]
__getattr__, __dir__ = lazy(__name__, LivingRun="run", StoredRows="rows")
