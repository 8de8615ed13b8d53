"""Reading of tables into streams and graphs, and conversion to and from PyG, TGM and NetworkX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedvine.core.lazy import lazy

if TYPE_CHECKING:
    from fedvine.data.io.dgdata import from_dgdata, to_dgdata
    from fedvine.data.io.nx import from_networkx, graph_from_networkx, to_networkx
    from fedvine.data.io.read import from_frame, from_pyg, to_pyg

__all__ = ["from_dgdata", "from_frame", "from_networkx", "from_pyg", "graph_from_networkx",
           "to_dgdata", "to_networkx", "to_pyg"]
__getattr__, __dir__ = lazy(__name__, from_dgdata="dgdata", from_frame="read", from_networkx="nx",
                            from_pyg="read", graph_from_networkx="nx", to_dgdata="dgdata",
                            to_networkx="nx", to_pyg="read")
