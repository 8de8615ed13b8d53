"""Conversion of streams and labelled graphs to and from NetworkX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.sparse import issparse

from fedvine.core.errors import FedvineError
from fedvine.data.graph import Graph
from fedvine.data.names import name_of
from fedvine.data.stream import CATEGORY, WEIGHT, EventStream

if TYPE_CHECKING:
    import networkx as nx


def from_networkx(graph: nx.Graph, *, time: str = "time", client: str | None = None,
                  weight: str | None = None, features: Sequence[str] = (),
                  name: str = "networkx") -> EventStream:
    """Read a graph whose edges have times into a stream.

    Where all nodes have the attribute ``bipartite``, 0 and 1 as NetworkX has it, sources are those
    with 0. Else nodes are of one kind, and edges of an undirected graph have no direction.

    Args:
        graph: any graph of NetworkX; a node is called as its attribute ``name``, or else as its key
            is.
        time: attribute of the edges: numbers, dates or timestamps.
        client: attribute of the edges: the client that has it.
        weight: attribute of the edges: finite numbers.
        features: attributes of the edges: numbers, and text as categories.
        name: of the stream.

    Returns:
        The stream, sorted by time.

    Raises:
        FedvineError: for an edge without one of the attributes, and as
            :func:`fedvine.from_frame`.
    """
    from fedvine.data.io.read import from_frame
    wanted = [c for c in (time, client, weight, *features) if c is not None]
    called, side = _called(graph), dict(graph.nodes(data="bipartite"))
    bipartite = bool(side) and set(side.values()) == {0, 1}
    rows: dict[str, list[Any]] = {key: [] for key in ("src", "dst", *wanted)}
    for a, b, values in graph.edges(data=True):
        for attribute in wanted:
            if attribute not in values:
                raise FedvineError(f'{name}: the edge from {a!r} to {b!r} has no "{attribute}".')
            rows[attribute].append(values[attribute])
        if bipartite and side[a] == side[b]:
            raise FedvineError(f"{name}: the edge from {a!r} to {b!r} joins two nodes of bipartite "
                               f"= {side[a]}.")
        a, b = (b, a) if bipartite and side[a] else (a, b)
        rows["src"].append(called[a])
        rows["dst"].append(called[b])
    found = from_frame(pd.DataFrame(rows), src="src", dst="dst", time=time, client=client,
                       weight=weight, features=features, bipartite=bipartite, name=name)
    return found if bipartite or graph.is_directed() else found.with_direction(False)


def graph_from_networkx(graph: nx.Graph, *, label: str = "label", client: str | None = None,
                        features: Sequence[str] | None = None,
                        scales: Mapping[str, Sequence[float]] | None = None,
                        name: str = "networkx", sure: bool = False) -> Graph:
    """Read a labelled graph; direction, repeats and loops of edges do not count.

    Args:
        graph: any graph of NetworkX, with nodes called as in :func:`from_networkx`.
        label: attribute of the nodes: the class; nodes without it have none.
        client: attribute of the nodes: the client that owns them.
        features: attributes of the nodes: numbers; None: all others that are numbers.
        scales: as of :func:`fedvine.data.io.read_graph.read_graph`.
        name: of the graph.
        sure: likewise.

    Returns:
        The graph.

    Raises:
        FedvineError: as :func:`fedvine.data.io.read_graph.read_graph`.
    """
    from fedvine.data.io.read_graph import read_graph
    called = _called(graph)
    rows = [{"node": called[node], **{str(k): v for k, v in values.items() if k != "name"}}
            for node, values in graph.nodes(data=True)]
    nodes = pd.DataFrame(rows)
    edges = pd.DataFrame([(called[a], called[b]) for a, b in graph.edges()],
                         columns=["src", "dst"]).astype(nodes["node"].dtype)
    return read_graph(nodes, edges, node="node", label=label, client=client, features=features,
                      scales=scales, name=name, sure=sure)


def to_networkx(data: EventStream | Graph) -> Any:
    """Return a stream or a labelled graph as a graph of NetworkX, copied.

    A stream becomes a ``MultiDiGraph``, or a ``MultiGraph`` where edges have no direction. An edge
    has ``time``, and ``weight``, ``label``, ``deleted``, features and categorical columns by their
    names where there are any; columns of categories have the hashes that methods learn from. Keys
    are names of nodes; of users and items they are (0, name) and (1, name), with the attributes
    ``bipartite`` and ``name``. A labelled graph becomes a ``Graph`` with ``label``, ``client`` and
    the features as attributes of nodes.

    Raises :class:`FedvineError` where NetworkX is not installed.
    """
    try:
        import networkx as nx
    except ImportError as error:
        raise FedvineError("NetworkX is not installed; pip install networkx.") from error
    if isinstance(data, Graph):
        return _labelled(data, nx.Graph())
    made = nx.MultiDiGraph() if data.directed else nx.MultiGraph()
    src, dst = (np.array([ids[i] for i in range(len(ids))], object)
                for ids in (data.src_ids, data.dst_ids))
    if data.bipartite:
        for kind, names in enumerate((src, dst)):
            made.add_nodes_from(((kind, name), {"bipartite": kind, "name": name}) for name in names)
    else:
        made.add_nodes_from(src)
    columns: dict[str, Any] = {"time": np.asarray(data.t).tolist()}
    for column in ("weight", "label", "deleted"):
        if getattr(data, column) is not None:
            columns[column] = np.asarray(getattr(data, column)).tolist()
    if data.features is not None:
        named = [key for key, kind in data.edge_columns.items() if kind != WEIGHT]
        for i in range(data.features.shape[1]):
            column = named[i] if i < len(named) else f"feature-{i}"
            kind = int if data.edge_columns.get(column) == CATEGORY else float
            columns[column] = [kind(value) for value in data.features[:, i]]
    for column, codes in data.codes.items():
        names = list(data.categories[column])
        columns[column] = [names[code] for code in codes]
    ends = zip(src[data.src], dst[data.dst], strict=True)
    for (a, b), *values in zip(ends, *columns.values(), strict=True):
        a, b = ((0, a), (1, b)) if data.bipartite else (a, b)
        made.add_edge(a, b, **dict(zip(columns, values, strict=True)))
    return made


def _labelled(graph: Graph, made: Any) -> Any:
    names = graph.names()
    x: Any = graph.x.toarray() if issparse(graph.x) else graph.x  # type: ignore[union-attr]
    columns = graph.columns or [f"feature-{i}" for i in range(graph.features)]
    for i in range(len(graph)):
        values: dict[str, Any] = dict(zip(columns, x[i].tolist(), strict=True))
        if graph.y[i] >= 0:
            values["label"] = graph.classes[graph.y[i]]
        if graph.owner is not None:
            values["client"] = graph.owner.names[graph.owner.of[i]]
        made.add_node(names[i], **values)
    made.add_edges_from((names[int(a)], names[int(b)]) for a, b in graph.edges.T)
    return made


def _called(graph: nx.Graph) -> dict[Any, Any]:
    """Return the name of each node: whole numbers where all are, else text."""
    found = {node: values.get("name", node) for node, values in graph.nodes(data=True)}
    whole = all(isinstance(name, int | np.integer) for name in found.values())
    return found if whole else {node: name_of(name) or str(name) for node, name in found.items()}
