"""The exchange: clients that get sums know what one machine knows, and what each sum gives away."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, identity

from fedvine.core.rng import rng
from fedvine.core.state import World
from fedvine.data.ids import Ids
from fedvine.data.snapshot import Snapshot
from fedvine.data.stream import EventStream
from fedvine.experiments.run import run
from fedvine.methods import dgcolearn
from fedvine.methods._dgcolearn.exchange import Pass, withhold
from fedvine.methods._dgcolearn.graph import ChangedGraph, Step, allowed
from fedvine.methods._dgcolearn.placement import Placement
from fedvine.nn.neighbour_sum import gather, scatter
from fedvine.tasks.link_prediction import LinkPrediction


def graph(seed: int, nodes: int = 30, clients: int = 3):
    """Edges, owners, A_s with loops, C, and features."""
    draw = rng("exchange", seed)
    ends = np.unique(np.sort(draw.integers(0, nodes, (2, 3 * nodes)), axis=0), axis=1)
    ends = ends[:, ends[0] < ends[1]]
    owner = draw.integers(0, clients, nodes)
    both = np.concatenate([ends, ends[::-1]], 1)
    same = owner[both[0]] == owner[both[1]]

    def matrix(mask):
        return csr_matrix((np.ones(mask.sum()), both[:, mask]), (nodes, nodes))
    return (ends, owner, csr_matrix(matrix(same) + identity(nodes)), matrix(~same),
            draw.normal(size=(nodes, 5)))


def between(ends: np.ndarray, owner: np.ndarray, group: int = 1) -> tuple[ChangedGraph, Step]:
    """The graph of these edges, and a pass over all nodes, in the order of clients."""
    n, K = len(owner), int(owner.max()) + 1
    place = Placement(World(tuple("abcdefghij"[:K]), 0, 1), "hash")
    place.owner, place.sizes = owner.astype(np.int32), np.bincount(owner, minlength=K)
    place.place = np.empty(n, np.int64)
    for k in range(K):
        place.place[owner == k] = np.arange((owner == k).sum())
    snapshot, found = Snapshot(), ChangedGraph(1, group=group)
    snapshot.advance(EventStream(*ends.astype(np.int32), np.arange(ends.shape[1]), Ids.of(
        [f"n{i}" for i in range(n)])))
    found.grow(n)
    found.meet(np.arange(n))
    found.advance(snapshot, place.owner, 1)
    net: Any = SimpleNamespace(reads_all=False, layers=1, short=lambda layer: True)
    return found, found.plan(np.arange(n), place, net)[0]


def sums(step: Step, x: np.ndarray, back: bool = False) -> np.ndarray:
    """What border nodes get of the rows ``x`` [sent, d]; or the way back."""
    found = np.zeros((len(step.sent if back else step.border), x.shape[1]))
    (scatter if back else gather)(*step.cross, x, found)
    return found


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 10))
def test_sums_are_those_of_all_neighbours_elsewhere(seed, clients):
    ends, owner, _, cross, x = graph(seed, clients=clients)
    found, step = between(ends, owner)
    np.testing.assert_allclose(sums(step, x[step.sent]), (cross @ x)[step.border], atol=1e-12)
    assert found.elsewhere.tolist() == np.diff(cross.indptr).tolist()
    assert sorted(step.border) == np.flatnonzero(np.diff(cross.indptr)).tolist()
    # the way back is the transpose: <C x, g> = <x, C^T g>
    g = rng(seed).normal(size=(len(step.border), x.shape[1]))
    assert (sums(step, x[step.sent]) * g).sum() == pytest.approx(
        (x[step.sent] * sums(step, g, back=True)).sum())


def test_a_lone_neighbours_row_is_given_away_and_a_minimum_group_keeps_it():
    ends, owner = np.array([[0, 1, 1], [2, 2, 3]]), np.array([0, 0, 1, 1])
    x = rng("lone").normal(size=(4, 3))
    _, step = between(ends, owner)
    np.testing.assert_allclose(sums(step, x[step.sent])[0], x[2])   # node 0 sees node 2's row
    kept, step = between(ends, owner, 2)
    assert step.border.tolist() == [1, 2] and step.sent.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(sums(step, x[step.sent])[0], x[2] + x[3])
    assert kept.elsewhere.tolist() == [0, 2, 2, 0]
    # node 1 alone gets rows of 2 and 3: their gradients would be node 1's
    assert kept.hearers.tolist() == [1, 1, 1, 1]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(2, 4), st.data())
def test_a_minimum_group_holds_where_clients_are_away(seed, clients, group, data):
    """A sum is that of all its neighbours elsewhere or nothing, and so are gradients of sums."""
    ends, owner, _, _, x = graph(seed, clients=clients)
    away = np.array(data.draw(st.lists(st.booleans(), min_size=clients, max_size=clients)))
    _, step = between(ends, owner, group)
    for of, back in ((step.sent, False), (step.border, True)):
        gone = away[owner[of]]
        found = sums(step, np.where(gone[:, None], 0, x[of]), back)
        withhold(found, step.cross, gone, back)
        whole = sums(step, x[of], back)
        assert ((found == whole) | (found == 0)).all()


@pytest.mark.slow
@pytest.mark.parametrize("layers", [1, 2])
def test_gradients_from_few_nodes_are_withheld_in_a_run(layers):
    """Of what a server sends back, rows of messages that fewer than three nodes heard are 0."""
    seen = []

    class Watched(Pass):
        def add_back(self, layer, sent):
            super().add_back(layer, sent)
            step = self.steps[layer]
            few = self.graph.hearers[step.sent[step.back]] < 3
            rows = np.concatenate([g.numpy() for g in self.given])
            assert not rows[few].any()
            seen.append((few.sum(), rows[~few].any()))

    data = rng("few").integers(0, 20, (2, 120)).astype(np.int32)
    events = EventStream(*data, np.arange(120), Ids.of([f"n{i}" for i in range(20)]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dgcolearn, "Pass", Watched)
        run(dgcolearn.DgCoLearn(rounds=1, hidden=4, layers=layers, aggregate={"min_group": 3},
                                partition="hash"), events.split("hash", k=3), events.by_count(60),
            protocol=LinkPrediction(negatives=5, positives=50)).finish()
    assert any(few for few, _ in seen) and any(some for _, some in seen)


def test_a_difference_to_the_last_sum_gives_nothing_away():
    """A neighbour that comes or goes could be had by subtraction; so could a colluder's rest."""
    owner = np.array([0, 1, 1, 1, 1, 2, 2])
    star = np.array([[0, 0, 0], [1, 2, 3]])
    nothing = np.empty(0, np.int64)
    good, served = allowed(star, owner, 2, nothing)
    assert good[0] and (served >> 32).tolist() == [0, 0, 0]    # 1, 2, 3 hear of one node: withheld
    for grown, fine in ((4, False), (3, True)):                # one more; as before
        good, _ = allowed(np.array([[0] * grown, range(1, grown + 1)]), owner, 2, served)
        assert good[0] == fine
    good, after = allowed(star[:, :2], owner, 2, served)       # one fewer
    assert not good[0] and (after >> 32).tolist() == [0, 0, 0]
    good, _ = allowed(star[:, :2], owner, 2, nothing)          # never served: nothing to compare
    assert good[0]
    mixed = np.array([[0, 0, 0], [1, 2, 5]])                   # two at client 1, one at client 2
    assert not allowed(mixed, owner, 2, nothing)[0][0]         # client 1 takes its own two out
    assert allowed(mixed, owner, 2, nothing, colluding=False)[0][0]


@given(st.integers(0, 10**6), st.integers(2, 4))
def test_whatever_is_served_no_difference_is_of_few(seed, group):
    """Over five random snapshots, against sets written out."""
    draw = rng("differences", seed)
    owner, served = draw.integers(0, 3, 14), np.empty(0, np.int64)
    last: dict[int, set[int]] = {}
    for _ in range(5):
        edges = np.unique(np.sort(draw.integers(0, 14, (2, 30)), axis=0), axis=1)
        edges = edges[:, edges[0] != edges[1]]
        good, served = allowed(edges, owner, group, served)
        near: dict[int, set[int]] = {n: set() for n in range(14)}
        for a, b in edges.T.tolist():
            if owner[a] != owner[b]:
                near[a].add(b)
                near[b].add(a)
        for n, found in near.items():
            few = 0 < len(found) < group or 0 < len(found ^ last.get(n, found)) < group or any(
                0 < len([v for v in found if owner[v] != c]) < group
                for c in {owner[v] for v in found})
            assert good[n] == (not few)
            if good[n] and found:
                last[n] = found
    assert sorted({int(c) for c in served}) == sorted(
        n << 32 | v for n, found in last.items() for v in found)
