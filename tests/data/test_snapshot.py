"""Snapshots against replaying every event into a set."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedvine.data.ids import Ids
from fedvine.data.snapshot import Snapshot
from fedvine.data.stream import EventStream

STAGES = st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()),
                           max_size=8), max_size=6)


def stage(events, bipartite=False, deletions=True):
    src, dst, gone = (np.array(c) for c in zip(*events, strict=True)) if events else ([], [], [])
    ids = Ids.of([f"n{i}" for i in range(6)])
    return EventStream(np.array(src, np.int32), np.array(dst, np.int32), np.arange(len(events)),
                       ids, ids if bipartite else None,
                       deleted=np.array(gone, bool) if deletions else None)


@given(STAGES, st.booleans(), st.booleans(), st.sampled_from([None, 1, 2]))
def test_a_snapshot_is_what_replaying_the_events_leaves(stages, bipartite, deletions, window):
    now, alive, known = Snapshot(window), {}, []
    for t, events in enumerate(stages):
        met = now.advance(stage(events, bipartite, deletions))
        fresh = []
        for u, v, gone in events:
            b = v + 6 * bipartite
            fresh += [n for n in dict.fromkeys((u, b)) if n not in known and n not in fresh]
            edge = (min(u, b), max(u, b))
            if u != b:
                alive.pop(edge, None)
                if not (gone and deletions):
                    alive[edge] = t
        known += fresh
        alive = {e: s for e, s in alive.items() if window is None or s > t - window}
        assert set(map(tuple, now.edges.T.tolist())) == set(alive)
        assert met.tolist() == fresh
        assert now.nodes.tolist() == sorted(known)


@given(STAGES, st.sampled_from([None, 1, 2]), st.sets(st.integers(0, 5)))
def test_changes_since_they_were_last_taken(stages, window, taken):
    """Whatever lies between: edges that came and went again are none."""
    now, before, known = Snapshot(window), set(), set()
    for t, events in enumerate(stages):
        now.advance(stage(events))
        if t in taken:
            came, went, fresh = now.take_changes()
            edges, seen = set(map(tuple, now.edges.T.tolist())), set(np.flatnonzero(now.known))
            assert set(map(tuple, came.T.tolist())) == edges - before
            assert set(map(tuple, went.T.tolist())) == before - edges
            assert set(fresh) == seen - known
            before, known = edges, seen


@given(STAGES, st.sampled_from([None, 1, 2]), st.sets(st.integers(0, 5)))
def test_edges_that_came_are_in_the_order_of_their_events(stages, window, taken):
    """Of several events of a stage the first one counts, after a deletion the next one."""
    now, when = Snapshot(window), {}
    for t, events in enumerate(stages):
        before = set(map(tuple, now.edges.T.tolist()))
        now.advance(stage(events))
        after = set(map(tuple, now.edges.T.tolist()))
        first = {}
        for place, (u, v, gone) in enumerate(events):
            edge = (min(u, v), max(u, v))
            if gone:
                first.pop(edge, None)
            else:
                first.setdefault(edge, (t, place))
        when |= {edge: first[edge] for edge in after - before}
        if t in taken:
            came, *_ = now.take_changes(ordered=True)
            found = [when[edge] for edge in map(tuple, came.T.tolist())]
            assert found == sorted(found)
