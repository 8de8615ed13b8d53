"""What methods on one shared graph learn from: pairs that are edges, and pairs that are none."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedvine.core.rng import rng, torch_rng
from fedvine.core.state import World
from fedvine.data.ids import Ids
from fedvine.data.stream import EventStream
from fedvine.experiments.run import run
from fedvine.methods import dgcolearn
from fedvine.methods._dgcolearn.targets import targets
from fedvine.methods.dgcolearn import DgCoLearn
from fedvine.tasks.link_prediction import LinkPrediction


def learned(src: np.ndarray, dst: np.ndarray, users: int, items: int | None,
            deleted: np.ndarray | None = None, k: int = 2, schedule: str = "together"
            ) -> list[tuple[Any, ...]]:
    """Of each stage: events, snapshot's edges, who was seen, clients, pairs and what they are."""
    found: list[tuple[Any, ...]] = []

    def watched(target, server, draw, local):
        pairs, snapshot = targets(target, server, draw, local), server.snapshot
        found.append((server.stage, snapshot.edges, snapshot.known.copy(),
                      server.placement.owner.copy(), *pairs))
        return pairs

    data = EventStream(src.astype(np.int32), dst.astype(np.int32), np.arange(len(src)),
                       Ids.of([f"u{i}" for i in range(users)]),
                       None if items is None else Ids.of([f"i{i}" for i in range(items)]),
                       deleted=deleted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dgcolearn, "targets", watched)
        run(DgCoLearn(rounds=1, hidden=4, window="all", partition="hash", schedule=schedule),
            data.split("hash", k=k), data.by_count(max(len(src) // 3, 1)),
            protocol=LinkPrediction(negatives=2, positives=5)).finish()
    return found


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**6), st.integers(2, 9), st.booleans(), st.booleans())
def test_no_pair_with_itself_and_no_edge_among_the_others(seed, nodes, bipartite, deletions):
    draw = rng("pairs", seed)
    src, dst = draw.integers(0, nodes, (2, 30))
    gone = draw.random(30) < 0.2 if deletions else None
    before = np.zeros(0, bool)      # who was seen before the stage; the first one has all
    for stage, edges, known, _, pairs, truth in learned(
            src, dst, nodes, nodes if bipartite else None, gone):
        asked = known if not before.any() else before
        before = known
        shift = nodes if bipartite else 0
        ends = [(int(a), int(b) + shift) for a, b in zip(stage.src, stage.dst, strict=True)]
        kept = [True] * len(ends) if stage.deleted is None else ~stage.deleted
        right = {e for e, k in zip(ends, kept, strict=True) if k and e[0] != e[1]}
        edges_now, right = right, {e for e in right if asked[e[1]]}
        told = [tuple(p) for p in pairs[:, truth == 1].T.tolist()]
        assert set(told) == right and len(told) == len(right)
        taken = {frozenset(e) for e in edges.T.tolist()} | {frozenset(e) for e in edges_now}
        wrong = pairs[:, truth == 0].T.tolist()
        for a, b in wrong:
            assert a != b and frozenset((a, b)) not in taken and b >= shift and asked[b]
        full = {a for a, _ in right if not any(
            asked[b] and a != b and frozenset((a, b)) not in taken
            for b in range(shift, len(asked)))}
        assert sorted(a for a, _ in wrong) == sorted(a for a, _ in right if a not in full)


@pytest.mark.parametrize("items", [None, 30])
def test_with_local_epochs_each_client_has_as_many_others_as_edges(items):
    draw = rng("pairs at clients")
    src, dst = draw.integers(0, 30, (2, 300))
    for _, edges, _, owner, pairs, truth in learned(src, dst, 30, items, k=3, schedule="before"):
        assert (owner[pairs[0]] == owner[pairs[1]]).all()
        at = [np.bincount(owner[pairs[0, truth == y]], minlength=3) for y in (0, 1)]
        assert (at[0] == at[1]).all() and at[0].min() > 0
        taken = {frozenset(e) for e in edges.T.tolist()}
        assert not any(frozenset(p) in taken or p[0] == p[1]
                       for p in pairs[:, truth == 0].T.tolist())
        assert items is None or (pairs[1] >= 30).all()


def test_where_everybody_knows_everybody_there_are_no_others():
    a, b = np.triu_indices(5, 1)
    *_, last = learned(np.concatenate([a, [0]]), np.concatenate([b, [0]]), 5, None)
    assert (last[-1] == 1).all() and len(last[-1])


@pytest.mark.parametrize("backbone", ["sage", "evolvegcn-o"])
def test_scores_depend_on_the_order_of_ends_only_where_edges_have_a_direction(backbone):
    a, b = torch.randn(2, 6, 4, generator=torch_rng(0))
    for directed in (True, False):
        method = DgCoLearn(hidden=4, backbone=backbone)
        net = method.net(World(("a",), 0, 1, {} if directed else {"directed": False}))
        there, back = net.score(a, b), net.score(b, a)
        assert torch.equal(there, back) != directed
        assert not torch.allclose(there, net.score(a, a))
