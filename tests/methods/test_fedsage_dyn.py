"""FedSageDyn: generated neighbours are learned, stay off the wire as features, and can be none."""

from typing import Any, get_args

import numpy as np
import pytest
import torch

from fedvine import testing
from fedvine.core.ledger import seeded
from fedvine.core.rng import rng
from fedvine.core.state import Client, World
from fedvine.data.ids import Ids
from fedvine.data.node_data import NodeData
from fedvine.data.stream import EventStream
from fedvine.engines.faults import MockClients
from fedvine.experiments.run import run
from fedvine.methods._dgcolearn.part import Part
from fedvine.methods.fedavg_dyn import FedAvgDyn
from fedvine.nn.backbones import Exact
from fedvine.rivals._fedsage import NeighGen, generated, impair, nearest, rows_of
from fedvine.rivals.fedsage_dyn import FedSageDyn
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.tasks.snapshot_classification import SnapshotClassification

SMALL: dict[str, Any] = {"rounds": 2, "features": 4, "hidden": 5, "epochs": 2}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["edges", "classes"])
@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda c: c.__name__)
def test_the_contract(check, target):
    check(FedSageDyn.tiny().model_copy(update={"target": target}))


@pytest.mark.slow
def test_a_bad_reply_counts_as_missing():
    testing.check_bad_replies(FedSageDyn.tiny())


def stream(seed: int, nodes: int = 40, edges: int = 240) -> EventStream:
    """Two classes that keep to themselves, with features that tell them apart."""
    draw = rng("fedsage", seed)
    y = np.arange(nodes) % 2
    src = draw.integers(0, nodes, edges)
    dst = 2 * draw.integers(0, nodes // 2, edges) + y[src]
    x = draw.normal(size=(nodes, 3)) + 2 * y[:, None]
    known = NodeData.make(np.arange(nodes), np.zeros(nodes), y, ["a", "b"], x)
    return EventStream(src.astype(np.int32), dst.astype(np.int32), np.arange(edges),
                       Ids.of([f"n{i}" for i in range(nodes)]), nodes=known, name="two")


def finished(method: FedAvgDyn, seed: int = 0, **options: Any) -> Any:
    data = stream(seed)
    asks = (SnapshotClassification() if method.target == "classes" else
            LinkPrediction(negatives=5, positives=40))
    return run(method, data.split("hash", k=3), data.by_count(60), seed=3, protocol=asks,
               fresh=seeded(3), **options).finish()


def held(made: Any) -> list[Client]:
    return [made.clients.workers[n].client for n in made.clients.names]


@pytest.mark.slow
@pytest.mark.parametrize("target", ["edges", "classes"])
@pytest.mark.parametrize("more", [{}, {"backbone": "gcn", "scope": "changed"}])
def test_with_nothing_hidden_it_is_fedavg(target, more):
    plain = finished(FedAvgDyn(target=target, **SMALL, **more))
    same = finished(FedSageDyn(target=target, hide=0.0, **SMALL, **more))
    assert [s.found for s in plain.stages] == [s.found for s in same.stages]
    assert all(map(torch.equal, plain.server.net.parameters(), same.server.net.parameters()))


@pytest.mark.slow
@pytest.mark.parametrize("target", ["edges", "classes"])
def test_a_client_killed_while_generators_learn_changes_nothing(target):
    method = FedSageDyn(target=target, alone=2, jointly=2, **SMALL)
    plain = finished(method)
    kills = [(t, r, c) for t, r in ((1, 1), (2, 2)) for c in range(1, 9)]
    killed = finished(method, engine=MockClients, kill=kills)
    assert [s.found for s in plain.stages] == [s.found for s in killed.stages]
    assert sum(len(method.mended(c)[0]) for c in held(plain)) > 0   # else it would be FedAvgDyn


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


@pytest.mark.slow
def test_no_row_of_features_is_in_what_generators_say():
    crossed: list[tuple[str, list[torch.Tensor]]] = []

    def arrays(value: Any) -> list[torch.Tensor]:
        if isinstance(value, dict):
            return [a for v in value.values() for a in arrays(v)]
        if isinstance(value, (list, tuple)):
            return [a for v in value for a in arrays(v)]
        return [torch.as_tensor(value)] if isinstance(value, (np.ndarray, torch.Tensor)) else []

    class Watched(FedSageDyn):
        """What crosses while generators learn is written down."""

        def learn_jointly(self, clients):
            call = clients.call

            def watched(function, *same, **options):
                sent = call(function, *same, **options)
                crossed.append((function.__name__, arrays(options.get("per_client", {}))))
                crossed.append((function.__name__, arrays(dict(sent.items()))))
                return sent

            clients.call = watched
            super().learn_jointly(clients)
            clients.call = call

    made = finished(Watched(target="classes", jointly=2, **SMALL))
    assert {name for name, _ in crossed} == {"show", "judge", "learn"}
    x = torch.cat([c.part.x for c in held(made)])[:, :3]
    seen = 0
    for _, tensors in crossed:
        for sent in tensors:
            flat = sent.to(x).flatten()
            for start in range(len(flat) - 2):          # wherever a row might lie
                assert not torch.isclose(x, flat[start:start + 3], rtol=1e-5).all(1).any()
                seen += 1
    assert seen > 1000


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


def test_the_generators_learn_numbers_and_features_of_hidden_neighbours():
    method, client = taught(alone=200)
    assert len(method.mended(client)[0]) == 0                   # who never learned
    method.learn_alone(client)
    client.place = (1, 1, 1)                                    # others are hidden now
    with torch.no_grad():
        z, many, (hidden, _, pairs) = method.codes(client)
        found = client.neighgen.missing(z)
    seen = ~hidden
    assert np.corrcoef(found[seen], many[seen])[0, 1] > 0.5
    assert float((found - many)[seen].abs().mean()) < float(
        (many[seen] - many[seen].mean()).abs().mean())
    x = rows_of(client.part.x, client.part.ends)
    node, other = torch.from_numpy(pairs)
    with torch.no_grad():
        made = generated(client.neighgen.fgen(), z, method.neighbours)[:, 0]
    ours, mean = (((row - x[other]) ** 2).mean(1).mean() for row in (made[node], x.mean(0)))
    assert ours < 0.5 * mean


@pytest.mark.slow
def test_what_others_say_draws_generated_rows_towards_their_nodes():
    far = torch.full((30, 5), 4.0)                              # another client's nodes

    def distance(alpha: float) -> float:
        method, client = taught(alone=20, alpha=alpha, hide=0.3)
        _, other = taught(hide=0.3)
        other.part = Part(5, other.net.state_widths, torch.float32)
        other.part.append(far)
        method.learn_alone(client)
        for call in range(2, 60):
            client.place = other.place = (0, 1, call)
            slopes = method.judge(other, {"ada": method.show(client)})
            assert {n: s.shape for n, s in slopes["ada"].items()} == {
                n: p.shape for n, p in client.neighgen.fgen().items()}
            method.learn(client, slopes["ada"])
        _, rows = method.mended(client)
        return float((rows[:, :3] - far[0, :3]).square().mean())

    assert distance(3.0) < 0.8 * distance(0.0)


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
