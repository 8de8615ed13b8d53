"""Nodes dealt to clients: each to one, nobody without, balanced, repeatable."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvine import shelf
from fedvine.data import load
from fedvine.graph import Graph
from fedvine.rng import rng

NAMES = ("louvain", "metis", "label_skew", "hash")


def graph(count=60, edges=150, classes=4, seed=0):
    draw = rng(seed, "graph")
    y = draw.integers(-1, classes, count)
    return Graph.make(draw.normal(size=(count, 3)), draw.integers(0, count, (2, edges)), y,
                      classes=range(classes))


def owners(name, made, k, seed=0):
    return shelf.find("partitions", name).partition_nodes(made, k, seed)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20)
@given(count=st.integers(1, 80), density=st.integers(0, 4), k=st.integers(1, 6),
       seed=st.integers(0, 5))
def test_every_node_has_one_owner(name, count, density, k, seed):
    k = min(k, count)
    made = graph(count, density * count, seed=seed)
    owner = owners(name, made, k, seed)
    assert owner.shape == (count,) and owner.dtype == np.int32
    assert owner.min() >= 0 and owner.max() < k
    if name != "hash":
        assert len(np.unique(owner)) == k                       # nobody has nothing
    assert (owner == owners(name, made, k, seed)).all()
    if name in ("louvain", "metis"):
        assert np.bincount(owner, minlength=k).max() <= 2 * -(-count // k) + 1


@pytest.mark.parametrize("name", NAMES)
def test_parts_are_graphs_of_their_own(name):
    made = graph()
    split = made.split(name, 3)
    assert sorted(np.concatenate([p.nodes for p in split.parts.values()])) == list(range(60))
    for part in split.parts.values():
        old = part.nodes[part.edges]
        wanted = {tuple(e) for e in made.edges.T if np.isin(e, part.nodes).all()}
        assert {tuple(e) for e in old.T} == wanted
        assert (part.y == made.y[part.nodes]).all() and (part.x == made.x[part.nodes]).all()
    report = split.report()
    inside = sum(c["edges"] for c in report["clients"].values())
    assert report["cut"] == pytest.approx(1 - inside / made.edges.shape[1])


def test_an_unknown_partition_and_too_many_clients():
    with pytest.raises(ValueError, match=r'no partition called "luvain".*louvain'):
        graph().split("luvain")
    with pytest.raises(ValueError, match="60 nodes; it cannot be split among 99"):
        graph().split("louvain", 99)


def test_cora(data):
    """Communities cut few edges; hashes cut most; label skew makes labels uneven."""
    cora = load("cora", data / "Planetoid")
    found = {name: cora.split(name, 3).report() for name in NAMES}
    assert found["louvain"]["cut"] < 0.15 and found["metis"]["cut"] < 0.1
    assert found["hash"]["cut"] > 0.6
    assert found["louvain"]["cov"] < 0.1 and found["metis"]["cov"] < 0.05
    assert found["label_skew"]["entropy"] < found["hash"]["entropy"] - 0.2
