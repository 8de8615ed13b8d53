"""Reading of tables into streams and graphs, and conversion to and from PyTorch Geometric."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedvine.core.lazy import lazy

if TYPE_CHECKING:
    from fedvine.data.io.read import from_frame, from_pyg, to_pyg

__all__ = ["from_frame", "from_pyg", "to_pyg"]
__getattr__, __dir__ = lazy(__name__, from_frame="read", from_pyg="read", to_pyg="read")
