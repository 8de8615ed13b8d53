"""Forgetting over snapshots: the measure, and stages that are asked about again."""

import numpy as np
import pytest
import torch
from two_classes import SMALL, held, made, stream

from fedvine.core import tree
from fedvine.methods.dgcolearn import DgCoLearn
from fedvine.methods.fedavg_dyn import FedAvgDyn
from fedvine.results.cells import logs_of
from fedvine.tasks.snapshot_classification import SnapshotClassification, forgotten


@pytest.mark.slow
@pytest.mark.parametrize("method", [
    FedAvgDyn(target="classes", **SMALL), DgCoLearn(target="classes", window=1, **SMALL)])
def test_every_stage_so_far_is_asked_about_and_training_is_as_ever(tmp_path, method):
    plain = made(method).finish()
    again = made(method, protocol=SnapshotClassification(forgetting=True),
                 out=tmp_path / "run").finish()
    assert torch.equal(*(tree.flattened(tree.weights(m.server.net)) for m in (plain, again)))
    for a, b in zip(plain.stages, again.stages, strict=True):
        assert {k: v for k, v in b.found.items() if k > b.t} == a.found
        assert sorted(k for k in b.found if k <= b.t) == list(range(b.t + 1))
    lines = again.summary["scores"]["test"]["mean"]
    matrix = {(s.t, j): r["all"]["scores"]["accuracy"] for s in again.stages
              for j, r in s.found.items() if j <= s.t}
    assert lines["forgetting"] == pytest.approx(forgotten(matrix)[max(s.t for s in again.stages)])
    assert logs_of(tmp_path / "run")["forgetting"] == pytest.approx(
        list(forgotten(matrix).values()))
    assert "forgetting" not in plain.summary["scores"]["test"]["mean"]


def test_a_stage_that_was_learned_is_named_on_its_own_edges_by_the_model_of_now():
    """The last stage's model on the first stage's edges, with dense matrices."""
    done = made(FedAvgDyn(target="classes", **SMALL), 2,
                protocol=SnapshotClassification(forgetting=True)).finish()
    data, net, server = stream(), done.server.net, done.server
    first = np.stack([data.src, data.dst])[:, :60].astype(int)
    right = asked = 0
    scorer = done.clients.server_scorer
    for k, client in enumerate(held(done)):
        own = server.placement.place[server.placement.owner == k]
        at, n = dict(zip(np.flatnonzero(server.placement.owner == k), own, strict=True)), len(own)
        A = torch.eye(n).double()
        for a, b in first.T:
            if a in at and b in at:
                A[at[a], at[b]] = A[at[b], at[a]] = 1
        degree = A.sum(1) - 1
        A = A / ((degree + 1)[:, None] * (degree + 1)).sqrt()
        x = torch.cat([client.part.x[:, :-1], degree.log1p()[:, None]], 1)
        with torch.no_grad():
            h = (A @ x @ net.weight(0, x)).relu()
            named = net.score(A @ h @ net.weight(1, h)).argmax(1)
        for node in set(first.ravel()) & set(at):
            if scorer.aside[node] == 2:
                asked, right = asked + 1, right + int(named[at[node]] == node % 2)
    assert done.stages[-1].found[0]["all"]["n"]["n"] == asked > 3
    assert done.stages[-1].found[0]["all"]["scores"]["accuracy"] == pytest.approx(right / asked)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"neighbours": 2}, {"aggregate": {"min_group": 2}}])
def test_an_earlier_snapshot_is_computed_anew_where_rows_that_changed_are_learned(options):
    """Nothing that is learned depends on it, also with bounds on what is read."""
    method = DgCoLearn(target="classes", scope="changed", window="all", **SMALL, **options)
    plain, again = (made(method, protocol=SnapshotClassification(forgetting=f)).finish()
                    for f in (False, True))
    assert torch.equal(*(tree.flattened(tree.weights(m.server.net)) for m in (plain, again)))
    assert sorted(again.stages[-1].found)[:2] == [0, 1]
