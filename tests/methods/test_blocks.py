"""The rows that a pass needs, against sets and dense matrices."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvine.core.rng import rng
from fedvine.data.adjacency import Adjacency
from fedvine.methods._dgcolearn import blocks
from fedvine.methods._dgcolearn.placement import affected

STAMPS = blocks.Stamps()        # one for all examples: stamps of earlier calls mean nothing
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
    return ends, graph, near, draw.integers(0, 3, nodes).astype(np.int32), some


@settings(max_examples=60, deadline=None)
@given(*CASE)
def test_the_set_within_hops(seed, nodes, hops, limit):
    ends, graph, near, _, seeds = case(seed, nodes, limit)
    found, edge = set(seeds), set(seeds)
    for _ in range(hops):
        edge = {v for u in edge for v in near[u]} - found
        found |= edge
    assert blocks.within(graph, seeds, hops, limit, STAMPS).tolist() == sorted(found)
    if not limit:           # the slow computation of Eq. (1), from new nodes alone
        new = np.isin(np.arange(nodes), seeds)
        assert np.flatnonzero(affected(ends, ends, ~new, hops)).tolist() == sorted(found)


@settings(max_examples=60, deadline=None)
@given(*CASE)
def test_what_a_layer_reads(seed, nodes, hops, limit):
    _, graph, near, owner, rows = case(seed, nodes, limit)
    more = np.flatnonzero(owner == 1)[:hops]
    found = blocks.inputs(graph, rows, more, limit, STAMPS)
    assert len(found) == len(set(found))
    assert set(found) == {*rows, *more, *(v for u in rows for v in near[u])}
    there = np.sort(found)
    matrix = blocks.matrix(graph, rows, there, limit, STAMPS)
    dense = np.zeros((len(rows), len(there)))
    np.add.at(dense, (np.repeat(np.arange(len(rows)), np.diff(matrix.pointers)), matrix.columns), 1)
    assert dense.tolist() == [[int(v in near[u]) for v in there] for u in rows]
    far = blocks.elsewhere(graph, rows, owner, limit, blocks.Stamps())
    assert sorted(far) == sorted({v for u in rows for v in near[u] if owner[v] != owner[u]})
    cross = blocks.matrix(graph, rows, far, limit, STAMPS, owner)
    assert [{far[c] for c in cross.columns[a:b]} for a, b in zip(
        cross.pointers[:-1], cross.pointers[1:], strict=True)] == [
        {v for v in near[u] if owner[v] != owner[u]} for u in rows]
    count = blocks.counted(graph, rows, owner, limit)
    assert count.tolist() == np.diff(cross.pointers).tolist()
    place = (np.arange(nodes) * 7 % 1000).astype(np.int64)
    sizes, own = blocks.own_rows(graph, rows, owner, place, limit)
    assert [r.tolist() for r in np.split(own, np.cumsum(sizes)[:-1])] == [
        [place[v] for v in near[u] if owner[v] == owner[u]] for u in rows] or not len(rows)
