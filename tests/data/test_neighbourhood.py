"""Nodes near others, against sets and dense matrices."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvine.core.rng import rng
from fedvine.data import neighbourhood
from fedvine.data.adjacency import Adjacency

STAMPS = neighbourhood.Stamps()        # one for all examples: stamps of earlier calls mean nothing
CASE = st.integers(0, 10**6), st.integers(2, 40), st.integers(1, 4), st.sampled_from([0, 1, 3])


def case(seed: int, nodes: int, limit: int):
    """A graph, its rows cut to the newest, owners, and some nodes."""
    draw = rng("blocks", seed)
    ends = np.unique(np.sort(draw.integers(0, nodes, (2, 2 * nodes)), axis=0), axis=1)
    ends = ends[:, ends[0] != ends[1]]
    graph = Adjacency.of(ends, nodes)
    near = {n: graph.row(n)[-limit:].tolist() if limit else graph.row(n).tolist()
            for n in range(nodes)}
    some = np.flatnonzero(draw.random(nodes) < 0.2)
    return graph, near, draw.integers(0, 3, nodes).astype(np.int32), some


@settings(max_examples=60, deadline=None)
@given(*CASE)
def test_the_set_within_hops(seed, nodes, hops, limit):
    graph, near, _, seeds = case(seed, nodes, limit)
    found, edge = set(seeds), set(seeds)
    for _ in range(hops):
        edge = {v for u in edge for v in near[u]} - found
        found |= edge
    assert neighbourhood.within(graph, seeds, hops, limit, STAMPS).tolist() == sorted(found)


@settings(max_examples=60, deadline=None)
@given(*CASE)
def test_what_a_layer_reads(seed, nodes, hops, limit):
    graph, near, owner, rows = case(seed, nodes, limit)
    more = np.flatnonzero(owner == 1)[:hops]
    found = neighbourhood.inputs(graph, rows, more, limit, STAMPS)
    assert len(found) == len(set(found))
    assert set(found) == {*rows, *more, *(v for u in rows for v in near[u])}
    inside = neighbourhood.inputs(graph, rows, more, limit, STAMPS, owner)
    assert len(inside) == len(set(inside))
    own = {v for u in rows for v in near[u] if owner[v] == owner[u]}
    assert set(inside) == {*rows, *more} | own
    there = np.sort(found)
    matrix = neighbourhood.matrix(graph, rows, there, limit, STAMPS)
    dense = np.zeros((len(rows), len(there)))
    np.add.at(dense, (np.repeat(np.arange(len(rows)), np.diff(matrix.pointers)), matrix.columns), 1)
    assert dense.tolist() == [[int(v in near[u]) for v in there] for u in rows]
    far = neighbourhood.elsewhere(graph, rows, owner, limit, neighbourhood.Stamps())
    assert sorted(far) == sorted({v for u in rows for v in near[u] if owner[v] != owner[u]})
    cross = neighbourhood.matrix(graph, rows, far, limit, STAMPS, owner)
    assert [{far[c] for c in cross.columns[a:b]} for a, b in zip(
        cross.pointers[:-1], cross.pointers[1:], strict=True)] == [
        {v for v in near[u] if owner[v] != owner[u]} for u in rows]
    count = neighbourhood.counted(graph, rows, owner, limit)
    assert count.tolist() == np.diff(cross.pointers).tolist()
    place = (np.arange(nodes) * 7 % 1000).astype(np.int64)
    sizes, own = neighbourhood.own_rows(graph, rows, owner, place, limit)
    assert [r.tolist() for r in np.split(own, np.cumsum(sizes)[:-1])] == [
        [place[v] for v in near[u] if owner[v] == owner[u]] for u in rows] or not len(rows)
