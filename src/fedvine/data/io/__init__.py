"""Reading of tables into streams and graphs, and conversion to and from PyG, TGM and NetworkX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedvine.core.lazy import lazy

if TYPE_CHECKING:
    from fedvine.data.io.convert import (
        from_dgdata,
        from_networkx,
        from_pyg,
        graph_from_networkx,
        to_dgdata,
        to_networkx,
        to_pyg,
    )
    from fedvine.data.io.read import from_frame

__all__ = ["from_dgdata", "from_frame", "from_networkx", "from_pyg", "graph_from_networkx",
           "to_dgdata", "to_networkx", "to_pyg"]
__getattr__, __dir__ = lazy(__name__, from_frame="read",
                            **{name: "convert" for name in __all__ if name != "from_frame"})
