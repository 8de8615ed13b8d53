"""Streams of edges, labelled graphs, and how time and nodes are divided."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedvine.core.lazy import lazy

if TYPE_CHECKING:
    from fedvine.data.graph import Graph
    from fedvine.data.ids import Ids
    from fedvine.data.node_data import NodeData
    from fedvine.data.plan import Plan, by_count, by_time
    from fedvine.data.snapshot import Snapshot
    from fedvine.data.spec import load
    from fedvine.data.split import Split
    from fedvine.data.stream import EventStream

__all__ = ["EventStream", "Graph", "Ids", "NodeData", "Plan", "Snapshot", "Split", "by_count",
           "by_time", "load"]
__getattr__, __dir__ = lazy(__name__, EventStream="stream", Graph="graph", Ids="ids",
                            NodeData="node_data", Plan="plan", Snapshot="snapshot",
                            Split="split", by_count="plan", by_time="plan", load="spec")
