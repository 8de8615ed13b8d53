"""To TGM and NetworkX, and back."""

import sys
from dataclasses import dataclass, field, fields
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedvine as fv
from fedvine.core.errors import FedvineError
from fedvine.data.graph import Graph, Owner
from fedvine.data.ids import Ids
from fedvine.data.stream import EventStream


@dataclass
class Container:
    """The fields of a DGData that are read; events 1 and 3 of 5 are of nodes."""

    time: Any = field(default_factory=lambda: torch.tensor([4, 5, 6, 7, 9]))
    edge_mask: Any = field(default_factory=lambda: torch.tensor([0, 2, 4]))
    edge_index: Any = field(default_factory=lambda: torch.tensor([[7, 9], [3, 7], [3, 9]]))
    edge_x: Any = field(default_factory=lambda: torch.arange(6).view(3, 2) / 2)


def test_edges_of_a_dgdata_are_told_from_events_of_nodes():
    stream = fv.from_dgdata(Container())
    assert [stream.src_ids[n] for n in stream.src] == ["7", "3", "3"]
    assert [stream.dst_ids[n] for n in stream.dst] == ["9", "7", "9"]
    assert stream.t.tolist() == [4, 6, 9] and not stream.bipartite
    assert np.array_equal(stream.features, Container().edge_x)
    apart = Container(edge_index=torch.tensor([[1, 9], [3, 8], [3, 9]]), edge_x=None)
    assert fv.from_dgdata(apart).bipartite and fv.from_dgdata(apart).features is None


@pytest.mark.parametrize("name", ["time", "edge_mask", "edge_index"])
def test_a_dgdata_that_lacks_something_is_refused(name):
    with pytest.raises(FedvineError, match=f'has no "{name}"'):
        fv.from_dgdata(Container(**{name: None}))
    with pytest.raises(FedvineError, match="edge_mask names 2 of 5 events"):
        fv.from_dgdata(Container(edge_mask=torch.tensor([0, 2])))


def test_a_dgdata_with_a_mask_and_nodes_that_are_not_whole():
    mask = torch.tensor([True, False, True, False, True])
    assert fv.from_dgdata(Container(edge_mask=mask)).t.tolist() == [4, 6, 9]
    with pytest.raises(FedvineError, match="have to be whole"):
        fv.from_dgdata(Container(edge_index=torch.tensor([[0.5, 9], [3, 7], [3, 9]])))


@pytest.mark.parametrize("bipartite", [True, False])
def test_a_dgdata_of_tgm_comes_back(bipartite):
    tgm = pytest.importorskip("tgm.data")
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"src": draw.integers(0, 9, 60), "dst": draw.integers(0, 9, 60),
                          "time": draw.integers(0, 30, 60), "a": draw.random(60)})
    stream = fv.from_frame(frame, src="src", dst="dst", time="time", features=["a"],
                           bipartite=bipartite)
    data = fv.to_dgdata(stream)
    assert isinstance(data, tgm.DGData) and {f.name for f in fields(Container)} <= {
        f.name for f in fields(data)}
    again = fv.from_dgdata(data, bipartite=bipartite)
    for column in ("src", "dst", "t", "features"):
        assert np.array_equal(getattr(again, column), getattr(stream, column)), column


def test_times_that_tgm_cannot_hold_are_refused(monkeypatch):
    stream = EventStream(np.zeros(1, np.int32), np.zeros(1, np.int32), np.array([0.5]),
                         Ids.of(["a"]), Ids.of(["x"]))
    monkeypatch.setitem(sys.modules, "tgm", None)
    monkeypatch.setitem(sys.modules, "tgm.data", None)
    with pytest.raises(FedvineError, match="pip install tgm-lib"):
        fv.to_dgdata(stream)
    made = SimpleNamespace(DGData=None)
    monkeypatch.setitem(sys.modules, "tgm", SimpleNamespace(data=made))
    monkeypatch.setitem(sys.modules, "tgm.data", made)
    with pytest.raises(FedvineError, match="negative or not whole"):
        fv.to_dgdata(stream)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(data=st.data(), bipartite=st.booleans(), directed=st.booleans(), text=st.booleans())
def test_a_stream_comes_back_from_networkx(data, bipartite, directed, text, tmp_path_factory):
    edges = data.draw(st.integers(1, 12))
    column = st.lists(st.integers(0, 4), min_size=edges, max_size=edges)
    frame = pd.DataFrame({"src": data.draw(column), "dst": data.draw(column),
                          "time": np.sort(data.draw(column)), "w": np.arange(edges) / 4,
                          "x": data.draw(column), "at": ["n", "s"] * 6 if edges == 12 else "n"})
    if text:
        frame[["src", "dst"]] = "v" + frame[["src", "dst"]].astype(str)
    how = {"src": "src", "dst": "dst", "time": "time", "client": "at", "weight": "w",
           "features": ["x"], "bipartite": bipartite}
    stream = fv.from_frame(frame, **how, sure=True)
    if not bipartite:
        stream = stream.with_direction(directed)
    made = fv.to_networkx(stream)
    assert made.number_of_edges() == edges and made.is_directed() == stream.directed
    again = fv.from_networkx(made, client="at", weight="weight", features=["x"])
    assert (again.bipartite, again.directed) == (stream.bipartite, stream.directed)
    assert _rows(again) == _rows(stream)


def _rows(stream):
    """The rows of a stream by name, in any order; ends without direction are sorted."""
    pairs = [(stream.src_ids[int(a)], stream.dst_ids[int(b)])
             for a, b in zip(stream.src, stream.dst, strict=True)]
    pairs = pairs if stream.directed else [tuple(sorted(pair)) for pair in pairs]
    return sorted(zip(pairs, stream.t.tolist(), stream.weight.tolist(),
                      stream.features[:, -1].tolist(),
                      [stream.categories["at"][n] for n in stream.codes["at"]], strict=True))


@pytest.mark.parametrize("read", [fv.from_networkx, fv.graph_from_networkx])
def test_nodes_of_networkx_that_have_one_name_are_not_merged(read):
    with pytest.raises(FedvineError, match="nodes 1 and '1' are both called 1"):
        read(nx.Graph([(1, 2, {"time": 1}), ("1", 2, {"time": 2})]))
    with pytest.raises(FedvineError, match="no nodes"):
        read(nx.Graph())


def test_a_labelled_graph_comes_back_from_networkx():
    draw = np.random.default_rng(3)
    graph = Graph.make(draw.random((6, 2)), [[0, 1, 4], [1, 2, 5]], [0, 1, -1, 1, 0, 1],
                       classes=["no", "yes"], ids=Ids.of([f"n{i}" for i in range(6)]),
                       owner=Owner(np.array([0, 0, 0, 1, 1, 1]), ("ayr", "rye")))
    made = fv.to_networkx(graph)
    assert made.nodes["n2"].keys() == {"feature-0", "feature-1", "client"}
    again = fv.graph_from_networkx(made, client="client")
    assert np.array_equal(again.x, graph.x) and np.array_equal(again.edges, graph.edges)
    assert np.array_equal(again.y, graph.y) and again.classes == graph.classes
    assert again.owner.names == graph.owner.names
    assert np.array_equal(again.owner.of, graph.owner.of)


def test_the_karate_club_and_what_is_refused():
    club = nx.karate_club_graph()
    graph = fv.graph_from_networkx(club, label="club")
    assert len(graph) == 34 and graph.edges.shape[1] == 78
    assert graph.classes == ("Mr. Hi", "Officer")
    with pytest.raises(FedvineError, match='the edge from 0 to 1 has no "time"'):
        fv.from_networkx(club)
    pair = nx.Graph([("a", "b", {"time": 1})])
    nx.set_node_attributes(pair, {"a": 1, "b": 0}, "bipartite")
    assert fv.from_networkx(pair).src_ids[0] == "b"
    pair.add_edge("a", "c", time=2)
    pair.nodes["c"]["bipartite"] = 1
    with pytest.raises(FedvineError, match="joins two nodes of bipartite = 1"):
        fv.from_networkx(pair)
