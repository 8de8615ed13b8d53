"""Conversion of streams and graphs to and from PyTorch Geometric, TGM and NetworkX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.sparse import issparse

from fedvine.core.errors import FedvineError
from fedvine.data.graph import Graph
from fedvine.data.ids import Ids
from fedvine.data.names import name_of
from fedvine.data.split import relabel
from fedvine.data.stream import CATEGORY, WEIGHT, EventStream

if TYPE_CHECKING:
    import networkx as nx
    from torch_geometric.data import TemporalData

# -- PyTorch Geometric's ``TemporalData`` ----------------------------------------------------------
def from_pyg(data: TemporalData, *, bipartite: bool | None = None,
             name: str = "pyg") -> EventStream:
    """Return the stream of a ``TemporalData``, in memory.

    Nodes are numbered by first appearance and keep their old number as their id.

    Args:
        data: ``src``, ``dst`` and ``t`` [E] are required; ``msg`` [E, F] becomes the features and
            ``y`` [E] the label; ``weight`` and ``deleted`` [E] are kept.
        bipartite: whether sources and destinations are of two kinds; None: they are where no node
            is both a source and a destination.
        name: of the stream, also for errors.

    Returns:
        The stream, sorted by time.

    Raises:
        FedvineError: for a column that is missing, of another length, or not finite.
    """
    columns = {}
    for column in ("src", "dst", "t", "msg", "y", "weight", "deleted"):
        if column in data and data[column] is not None:
            columns[column] = data[column].detach().cpu().numpy()
    for column in ("src", "dst", "t"):
        if column not in columns:
            raise FedvineError(f'{name}: the TemporalData has no "{column}".')
    return stream_of(columns, bipartite, name)


_WHOLE = {"y": (-2**31, 2**31 - 1), "deleted": (0, 1)}      # columns, and their range


def stream_of(columns: dict[str, np.ndarray], bipartite: bool | None, name: str) -> EventStream:
    """Return the stream of ``columns``, which are those of :func:`from_pyg`, as arrays [E, ...]."""
    edges = len(columns["t"])
    if not edges:
        raise FedvineError(f"{name} has no rows.")
    for column, values in columns.items():
        if len(values) != edges:
            raise FedvineError(f'{name}: "{column}" has {len(values)} rows and "t" has {edges}.')
        if column != "msg" and values.size != edges:
            raise FedvineError(f'{name}: "{column}" has the shape {values.shape}, and needs one '
                               "value for each edge.")
        if column in _WHOLE and ((values % 1 != 0) | (values < _WHOLE[column][0])
                                 | (values > _WHOLE[column][1])).any():
            raise FedvineError(f'{name}: "{column}" holds a value that is not a whole number from '
                               "{} to {}.".format(*_WHOLE[column]))
        if not np.isfinite(values).all():
            raise FedvineError(f'{name}: "{column}" holds a value that is not finite.')
    columns = {column: values if column == "msg" else values.reshape(-1)
               for column, values in columns.items()}
    order = np.argsort(columns["t"], kind="stable")
    columns = {column: values[order] for column, values in columns.items()}
    src, dst = columns["src"], columns["dst"]
    if bipartite is None:
        bipartite = not np.intersect1d(src, dst).size
    if bipartite:
        (src, src_ids), (dst, dst_ids) = _numbered(src), _numbered(dst)
    else:
        both, src_ids = _numbered(np.stack([src, dst], axis=1).reshape(-1))
        src, dst, dst_ids = both[0::2].copy(), both[1::2].copy(), None
    features = columns["msg"].reshape(edges, -1) if "msg" in columns else None

    def typed(column: str, dtype: type) -> np.ndarray | None:
        return columns[column].astype(dtype) if column in columns else None

    return EventStream(
        src, dst, columns["t"].astype(np.float64 if columns["t"].dtype.kind == "f" else np.int64),
        src_ids, dst_ids, weight=typed("weight", np.float32), label=typed("y", np.int32),
        features=features.astype(np.float32) if features is not None and features.size else None,
        deleted=typed("deleted", np.bool_), name=name)


def to_pyg(stream: EventStream) -> TemporalData:
    """Return the stream as a ``TemporalData``, copied.

    Nodes share one range of numbers, as is usual there: destinations of a bipartite stream come
    after its sources, at ``stream.num_src + dst``. ``msg`` float32 [E, F] holds the features (F = 0
    if there are none); ``y`` int64 the label, ``weight`` and ``deleted`` if there are any, and each
    categorical column its codes under its own name.
    """
    import torch
    from torch_geometric.data import TemporalData

    def tensor(values: np.ndarray, dtype: Any = None) -> torch.Tensor:
        return torch.from_numpy(np.array(values, dtype))

    features = stream.features if stream.features is not None else np.zeros((len(stream), 0))
    more = {column: tensor(values) for column, values in stream.codes.items()}
    if stream.label is not None:
        more["y"] = tensor(stream.label, np.int64)
    if stream.weight is not None:
        more["weight"] = tensor(stream.weight)
    if stream.deleted is not None:
        more["deleted"] = tensor(stream.deleted)
    offset = stream.num_src if stream.bipartite else 0
    return TemporalData(src=tensor(stream.src, np.int64), dst=tensor(stream.dst, np.int64) + offset,
                        t=tensor(stream.t), msg=tensor(features, np.float32), **more)


def _numbered(nodes: np.ndarray) -> tuple[np.ndarray, Ids]:
    """Return dense numbers int32 by first appearance, and their dictionary."""
    if nodes.dtype.kind not in "iu":
        raise FedvineError(f"Nodes are numbers of type {nodes.dtype}, and have to be whole.")
    old, at = np.unique(nodes, return_inverse=True)
    number, first = relabel(at.reshape(-1))
    return number, Ids.of(old[first])


# -- TGM's ``DGData`` (package ``tgm-lib``) --------------------------------------------------------
_NEEDED = ("time", "edge_mask", "edge_index")


def from_dgdata(data: Any, *, bipartite: bool | None = None, name: str = "tgm") -> EventStream:
    """Return the stream of a ``DGData``'s edges, in memory; TGM itself is not needed.

    Nodes are numbered by first appearance and keep their old number as their id. Times keep their
    unit. Events of nodes and features of nodes are not kept.

    Args:
        data: its fields ``time`` int [events], ``edge_mask`` int [E] (the numbers of the events
            that are edges) and ``edge_index`` int [E, 2] are required; ``edge_x`` [E, F] becomes
            the features.
        bipartite: as in :func:`from_pyg`.
        name: of the stream, also for errors.

    Returns:
        The stream, sorted by time.

    Raises:
        FedvineError: for a field that is missing, of another length, or not finite.
    """
    for field in _NEEDED:
        if getattr(data, field, None) is None:
            raise FedvineError(f'{name}: the DGData has no "{field}".')
    time, mask, ends = (np.asarray(getattr(data, field)) for field in _NEEDED)
    mask = np.flatnonzero(mask) if mask.dtype == bool else mask
    if ends.ndim != 2 or ends.shape[1] != 2 or len(mask) != len(ends) or (
            len(mask) and not 0 <= mask.min() <= mask.max() < len(time)):
        raise FedvineError(f"{name}: edge_index has the shape {ends.shape} and edge_mask names "
                           f"{len(mask)} of {len(time)} events; give two nodes and an event for "
                           "each edge.")
    columns = {"src": ends[:, 0], "dst": ends[:, 1], "t": time[mask]}
    if getattr(data, "edge_x", None) is not None:
        columns["msg"] = np.asarray(data.edge_x)
    return stream_of(columns, bipartite, name)


def to_dgdata(stream: EventStream, time_delta: str | None = None) -> Any:
    """Return the stream as a ``tgm.data.DGData``, copied.

    Nodes share one range of numbers: destinations of a bipartite stream come after its sources, at
    ``stream.num_src + dst``. ``edge_x`` float32 [E, F] holds the features, if there are any;
    weights, labels, deletions and categorical columns are left out.

    Args:
        stream: of whole times from 0.
        time_delta: the unit of the times in TGM's letters; None: "s" (seconds) where they are
            dates, else "r" (times that only order events).

    Returns:
        The data.

    Raises:
        FedvineError: where TGM is not installed, or a time is negative or not whole.
    """
    try:
        from tgm.data import DGData  # type: ignore[import-not-found]
    except ImportError as error:
        raise FedvineError("TGM is not installed; pip install tgm-lib.") from error
    import torch
    t = np.asarray(stream.t)
    if len(t) and (t.min() < 0 or (t != np.floor(t)).any()):
        raise FedvineError(f"{stream.name} has times that are negative or not whole, which a "
                           "DGData cannot hold.")
    offset = stream.num_src if stream.bipartite else 0
    ends = np.stack([stream.src, stream.dst.astype(np.int64) + offset], 1).astype(np.int32)
    features = None if stream.features is None else torch.from_numpy(
        np.array(stream.features, np.float32))
    return DGData.from_raw(torch.from_numpy(t.astype(np.int64)), torch.from_numpy(ends), features,
                           time_delta=time_delta or ("s" if stream.dates else "r"))


# -- NetworkX --------------------------------------------------------------------------------------
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
    side = dict(graph.nodes(data="bipartite"))
    bipartite = set(side.values()) == {0, 1}
    called = _called(graph, side if bipartite else {})
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
        scales: as of :func:`fedvine.data.io.nodes.read_graph`.
        name: of the graph.
        sure: likewise.

    Returns:
        The graph.

    Raises:
        FedvineError: as :func:`fedvine.data.io.nodes.read_graph`.
    """
    from fedvine.data.io.nodes import read_graph
    called = _called(graph, {})
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


def _called(graph: nx.Graph, side: dict[Any, Any]) -> dict[Any, Any]:
    """Return the name of each node: whole numbers where all are, else text.

    ``side`` has the sides of nodes of two kinds. Raises :class:`FedvineError` where there is no
    node, and where two of a kind have one name.
    """
    found = {node: values.get("name", node) for node, values in graph.nodes(data=True)}
    whole = all(isinstance(name, int | np.integer) for name in found.values())
    if not whole:
        found = {node: name_of(name) or str(name) for node, name in found.items()}
    if not found:
        raise FedvineError("The graph has no nodes.")
    first: dict[Any, Any] = {}
    for node, name in found.items():
        if first.setdefault((side.get(node), name), node) != node:
            raise FedvineError(f"The nodes {first[side.get(node), name]!r} and {node!r} are both "
                               f"called {name}; name one of them otherwise.")
    return found
