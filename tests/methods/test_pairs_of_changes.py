"""The pairs of a stage do not depend on how the snapshot is kept."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvine.core.rng import rng
from fedvine.data.ids import Ids
from fedvine.data.snapshot import DynamicSnapshot, Snapshot
from fedvine.data.stream import EventStream
from fedvine.methods._dgcolearn.targets import pairs, pairs_of_changes


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 9), st.booleans(), st.booleans(),
       st.sampled_from([None, 2]))
def test_they_are_the_same(seed, nodes, bipartite, deletions, window):
    """Also of nodes with an edge to nearly all others, whose free ends are drawn one by one."""
    draw, slow, fast = rng("pairs", seed), Snapshot(window), DynamicSnapshot(window)
    ids = Ids.of([f"n{i}" for i in range(nodes)])
    for t in range(4):
        many = int(draw.integers(0, 3 * nodes))
        src, dst = draw.integers(0, nodes, (2, many)).astype(np.int32)
        stage = EventStream(src, dst, np.arange(many), ids, ids if bipartite else None,
                            deleted=draw.random(many) < 0.3 if deletions else None)
        fresh = np.sort(slow.advance(stage))
        fast.advance(stage)
        (a, p), (b, q) = (pairs(stage, slow.edges, slow.known, rng(seed, t), fresh),
                          pairs_of_changes(stage, fast, rng(seed, t)))
        fast.take_changes()
        assert a.tolist() == b.tolist() and p.tolist() == q.tolist()
