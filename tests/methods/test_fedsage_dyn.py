"""FedSageDyn: generated neighbours are learned, stay off the wire as features, and can be none."""

from typing import Any, get_args

import numpy as np
import pytest
import torch
from two_classes import held, made

from fedvine.core.ledger import seeded
from fedvine.core.rng import rng
from fedvine.core.state import Client, World
from fedvine.methods._dgcolearn.part import Part
from fedvine.methods.fedavg_dyn import FedAvgDyn
from fedvine.nn.backbones import Exact
from fedvine.rivals._fedsage import NeighGen, generated, impair, nearest, rows_of
from fedvine.rivals.fedsage_dyn import FedSageDyn
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.tasks.snapshot_classification import SnapshotClassification

SMALL: dict[str, Any] = {"rounds": 2, "hidden": 5, "epochs": 2}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["edges", "classes"])
def test_scoring_leaves_no_trace_and_teaches_nothing(target):
    """What is learned is the same where the library scores nothing in between."""
    method = FedSageDyn(target=target, alone=2, jointly=2, **SMALL)

    class Unasked(FedSageDyn):
        """Never answers."""

        def score(self, server, clients, at):
            return {}

    one, other = finished(method), finished(Unasked(**method.model_dump()))
    for a, b in zip(held(one), held(other), strict=True):
        assert all(map(torch.equal, a.neighgen.parameters(), b.neighgen.parameters()))
        assert torch.equal(a.part.x, b.part.x) and np.array_equal(a.part.ends, b.part.ends)


def finished(method: FedAvgDyn) -> Any:
    asks = (SnapshotClassification() if method.target == "classes" else
            LinkPrediction(negatives=5, positives=40))
    return made(method, protocol=asks, fresh=seeded(3)).finish()


@pytest.mark.slow
@pytest.mark.parametrize("target", ["edges", "classes"])
@pytest.mark.parametrize("more", [{}, {"backbone": "gcn", "scope": "changed"}])
def test_with_nothing_hidden_it_is_fedavg(target, more):
    plain = finished(FedAvgDyn(target=target, **SMALL, **more))
    same = finished(FedSageDyn(target=target, hide=0.0, **SMALL, **more))
    assert [s.found for s in plain.stages] == [s.found for s in same.stages]
    assert all(map(torch.equal, plain.server.net.parameters(), same.server.net.parameters()))


def taught(**options: Any) -> tuple[FedSageDyn, Client]:
    """A client of a graph in which features tell the degree, and whom a node meets."""
    method = FedSageDyn(target="classes", hidden=16, **options)
    draw, n = rng("taught"), 120
    kind = np.arange(n) % 3
    ends = []
    for i in range(n):                     # kind 0 has few neighbours, kind 2 many, of its kind
        mates = np.flatnonzero(kind == kind[i])
        ends += [(i, j) for j in draw.choice(mates, 1 + 2 * kind[i], replace=False) if i != j]
    pairs = np.unique(np.sort(np.array(ends), 1), axis=0).T
    client = Client("ada", World(("ada",), 0, 1, {"features": 3, "classes": 3}))
    method.setup(client)
    x = np.eye(3)[kind] * 2 + 0.1 * draw.normal(size=(n, 3))
    method.meet(client, {"keys": np.arange(n, dtype=np.uint64), "x": x.astype(np.float32),
                         "places": np.empty(0, np.int64), "changed": np.empty((0, 3), np.float32)})
    none = np.empty(0, np.int32)
    method.join(client, {"whole": False, "nodes": none, "elsewhere": none, "degree": none,
                         "added": pairs, "removed": pairs[:, :0],
                         "active": np.arange(n, dtype=np.int32)})
    client.part.degree = client.part.graph.degree.copy()
    client.place = (0, 1, 1)
    return method, client


def test_gradients_of_few_codes_tell_the_nearest_rows():
    """What the documentation warns of: a server that solves linear equations."""
    method, client = taught(precision="float64", neighbours=1, alone=5, sample=10)
    _, other = taught(precision="float64")
    method.learn_alone(client)
    shown = method.show(client)
    slope = method.judge(other, {"ada": shown})["ada"]
    fgen, z = shown["fgen"], shown["z"]
    h = torch.cat([(z @ fgen["first"] + fgen["first_bias"]).relu(), torch.ones(10, 1)], 1)
    given = torch.cat([slope["last"], slope["last_bias"][None]])        # [17, 5] = h^T d
    d = torch.linalg.lstsq(h.T, given).solution
    solved = generated(fgen, z, 1)[:, 0] - d * 10 * 5 / 2
    apart = torch.cdist(solved, rows_of(other.part.x, other.part.ends)).min(1).values
    assert apart.max() < 1e-6


@pytest.mark.slow
def test_the_mended_graph_is_the_graph_with_its_generated_nodes():
    """Both layers, against one graph that has the generated nodes as its own."""
    for backbone in get_args(Exact):
        method, client = taught(alone=100, backbone=backbone, temporal="gru")
        method.learn_alone(client)
        node, made = method.mended(client)
        n, g = len(client.part.x), len(made)
        assert g > 50 and made.shape == (g, 5) and node.shape == (g,)
        assert np.bincount(node).max() <= method.neighbours
        A = torch.zeros(n + g, n + g)
        for a, b in (client.part.ends, np.stack([node.numpy(), n + np.arange(g)])):
            A[a, b] = A[b, a] = 1
        degree = A.sum(1)
        assert torch.equal(method.aggregated(client, np.arange(n)), degree[:n])
        with torch.no_grad():
            h = torch.cat([method.inputs(client), made])
            for layer in range(2):
                net, past = client.net, torch.zeros(n + g, client.net.state_width(layer))
                said = net.message(layer, h, degree, past)
                h = net.rows(layer, net.remember(
                    layer, net.combine(layer, h, said, A @ said, degree), past))
            x = method.by_layer(client)[-1]
        torch.testing.assert_close(x, h[:n], rtol=1e-4, atol=1e-5)


def test_a_graph_with_nothing_in_it():
    method, client = taught()
    client.part = Part(5, client.net.state_widths, torch.float32)
    method.learn_alone(client)
    assert method.show(client) is None and method.judge(client, {"bob": {}}) == {}
    assert len(method.mended(client)[0]) == 0


def test_hiding_and_the_nearest_row_by_hand():
    ends = np.array([[0, 1, 2, 0], [1, 2, 3, 3]])
    hidden, left, pairs = impair(ends, 4, 0.5, rng("hide"))
    assert hidden.sum() == 2
    assert left.T.tolist() == [[a, b] for a, b in ends.T if not hidden[a] and not hidden[b]]
    both = {(a, b) for a, b in ends.T} | {(b, a) for a, b in ends.T}
    assert {tuple(p) for p in pairs.T} == {(a, b) for a, b in both if not hidden[a] and hidden[b]}
    made, x = torch.tensor([[[0.0], [3.0]]]), torch.tensor([[1.0], [5.0]])
    assert nearest(made, x).tolist() == [[1.0, 4.0]]
    assert nearest(made, x, torch.tensor([0]), torch.tensor([1])).tolist() == [[25.0, 4.0]]
    assert generated(NeighGen(3, 4, 2, seed=0).fgen(), torch.ones(6, 4), 2).shape == (6, 2, 3)
