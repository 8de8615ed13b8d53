"""Parts from one pass over the edges: owners, balance, memory, and the cut beside multilevel."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvine.core.errors import FedvineError
from fedvine.core.rng import rng
from fedvine.data.graph import Graph
from fedvine.data.split import split
from fedvine.datasets.generated import Ends, weights
from fedvine.partitions import multilevel, stream
from fedvine.partitions._graph import adjacency, quality
from fedvine.partitions.stream import Sample
from fedvine.testing import tiny_stream


def communities(count, edges, k=4, seed=0, inside=0.8):
    """Edges int32 [2, E] of a degree-corrected block graph, in any order."""
    draw = rng("communities", seed)
    group = draw.integers(0, k, count)
    ends = Ends(weights(count, 2.5, edges ** 0.5, draw), group, k)
    low = ends.nodes(draw.random(edges))
    return np.stack([low, ends.partners(low, draw.random(edges) < inside, draw.random(edges))])


def cut_into(edges, sizes):
    """The edges in blocks of these sizes, and the rest."""
    bounds = [0, *np.cumsum(sizes), edges.shape[1]]
    return [edges[:, a:b] for a, b in pairwise(bounds)]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, 60), edges=st.integers(0, 200), k=st.integers(1, 9),
       keep=st.integers(1, 7), seed=st.integers(-2, 5), sizes=st.lists(st.integers(0, 60)))
def test_every_node_has_one_owner_however_blocks_are_cut(count, edges, k, keep, seed, sizes):
    ends = rng("edges", seed).integers(0, count, (2, edges))
    owner, known = stream.parts([ends], count, k, seed, keep=keep)
    assert owner.shape == (count,) and owner.dtype == np.int32
    assert owner.min(initial=0) >= 0 and owner.max(initial=0) < k
    assert len(np.unique(owner)) == k or count < k
    again, _ = stream.parts(cut_into(ends, sizes), count, k, seed, keep=keep)
    assert (owner == again).all()
    right = ends[:, ends[0] != ends[1]]
    degree = np.bincount(right.ravel(), minlength=count)
    assert (known == (degree > 0)).all()
    # As multilevel: over the limit only where no node of the part fits anywhere else.
    load = np.bincount(owner, degree, k)
    most = max(int(degree.sum() * (1 + min(0.03, 0.05 / max(k - 1, 1) ** 0.5)) / k),
               -(-int(degree.sum()) // k))
    for p in np.flatnonzero(load > most):
        mine = degree[(owner == p) & (degree > 0)]
        assert (load.min() + mine > most).all() or len(mine) == 1


@settings(max_examples=30, deadline=None)
@given(count=st.integers(2, 30), edges=st.integers(0, 90), keep=st.integers(1, 5),
       seed=st.integers(0, 9))
def test_a_sample_has_all_edges_of_nodes_of_few_and_none_that_are_not_there(count, edges, keep,
                                                                            seed):
    ends = rng("edges", seed).integers(0, count, (2, edges))
    sample = Sample(count, keep, seed)
    sample.add(*ends)
    right = ends[:, ends[0] != ends[1]]
    assert sample.degree.tolist() == np.bincount(right.ravel(), minlength=count).tolist()
    met: dict[int, list[int]] = {u: [] for u in range(count)}
    for a, b in right.T.tolist():
        met[a].append(b)
        met[b].append(a)
    for u, others in met.items():
        kept = sample.near[u, :min(len(others), keep)].tolist()
        if len(others) <= keep:
            assert sorted(kept) == sorted(others)
        else:
            assert not set(kept) - set(others)
    indptr, indices = sample.graph()
    listed = sorted((u, int(v)) for u in range(count) for v in indices[indptr[u]:indptr[u + 1]])
    assert listed == sorted((v, u) for u, v in listed)
    for u, others in met.items():
        if len(others) <= keep:
            assert [v for w, v in listed if w == u] == sorted(others)


@pytest.mark.parametrize("seed", range(3))
def test_the_cut_is_near_that_of_the_whole_graph(seed):
    """Within 1.15 of multilevel, and as even; the sample has two thirds of the edges."""
    ends = communities(6_000, 60_000, seed=seed)
    graph = adjacency(ends, 6_000)
    owner, _ = stream.parts(cut_into(ends, [7_000, 9_000]), 6_000, 4, seed)
    whole = quality(*graph, multilevel.parts(*graph, 4, seed), 4)
    found = quality(*graph, owner, 4)
    assert found["cut"] <= 1.15 * whole["cut"] and found["cov"] <= 0.05
    turned, _ = stream.parts([ends[:, ::-1]], 6_000, 4, seed)       # the order does not matter
    assert quality(*graph, turned, 4)["cut"] <= 1.15 * whole["cut"]


def test_streams_and_graphs(monkeypatch):
    monkeypatch.setattr(stream, "BLOCK", 7)
    for made in (tiny_stream(), tiny_stream().with_guests(["new"])):
        found = split(made, "stream", k=3)
        assert sum(len(p) for p in found.parts.values()) == len(made)
        assert (stream.partition(made, 3, 0) == stream.partition(made, 3, 0)).all()
    ends = communities(200, 900)
    graph = Graph.make(np.zeros((200, 1)), ends, np.zeros(200, int), classes=["one"])
    owner = stream.partition_nodes(graph, 3, 0)
    assert sorted(set(owner.tolist())) == [0, 1, 2]
    with pytest.raises(FedvineError, match="Parts are 1 or more"):
        stream.parts([ends], 200, 0, 0)
