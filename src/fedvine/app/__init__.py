"""A local page about runs, finished or still learning, and the JSON that it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedvine.core.lazy import lazy

if TYPE_CHECKING:
    from fedvine.app.serving import serve

__all__ = ["serve"]
__getattr__, __dir__ = lazy(__name__, serve="serving")
