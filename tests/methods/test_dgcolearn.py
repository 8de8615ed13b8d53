"""DG-CoLearn: any number of clients computes what one machine does, forward and backward."""

from typing import Any, ClassVar, get_args

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toys import changed, with_constants

from fedvine import testing
from fedvine.core.errors import FedvineError
from fedvine.core.message import dumps, pack
from fedvine.core.method import on_client
from fedvine.core.rng import rng
from fedvine.core.state import Client, World
from fedvine.data.ids import Ids
from fedvine.data.node_data import NodeData
from fedvine.data.plan import Plan
from fedvine.data.snapshot import Snapshot
from fedvine.data.spec import load
from fedvine.data.stream import EventStream
from fedvine.experiments import growth_check
from fedvine.experiments.run import run
from fedvine.methods._dgcolearn import exchange
from fedvine.methods._dgcolearn.placement import Placement
from fedvine.methods.dgcolearn import DgCoLearn
from fedvine.methods.roland import Roland as RolandMethod
from fedvine.nn.backbones import Backbone, Exact
from fedvine.tasks.link_prediction import LinkPrediction

PROTOCOL = LinkPrediction(negatives=5, positives=50)


def stream(seed: int, nodes: int = 24, edges: int = 90, deletions: bool = False) -> EventStream:
    draw = rng("dgcolearn", seed)
    src, dst = draw.integers(0, nodes, (2, edges)).astype(np.int32)
    return EventStream(src, dst, np.arange(edges), Ids.of([f"n{i}" for i in range(nodes)]),
                       deleted=draw.random(edges) < 0.2 if deletions else None)


def finished(method: DgCoLearn, data: EventStream, clients: int, seed: int = 0) -> Any:
    return run(method, data.split("hash", k=clients), data.by_count(30), seed=seed,
               protocol=PROTOCOL).finish()


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**6), st.integers(2, 10), st.integers(1, 3),
       st.sampled_from(get_args(Exact)), st.sampled_from(["gru", "mlp", "none"]),
       st.sampled_from(["snapshot", "changed"]), st.booleans())
def test_clients_learn_what_one_machine_learns(seed, clients, layers, backbone, temporal, scope,
                                               deletions):
    """After two stages of three steps each: the same parameters and rows."""
    data = stream(seed, deletions=deletions)
    for precision, close in (("float64", 1e-10), ("float32", 1e-4)):
        method = with_constants(DgCoLearn, features=6)(
            rounds=3, layers=layers, backbone=backbone, hidden=5, partition="hash", scope=scope,
            precision=precision, **({"temporal": temporal} if backbone in ("sage", "gcn") else {}))
        one, many = finished(method, data, 1), finished(method, data, clients)
        for a, b in zip(one.server.net.parameters(), many.server.net.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=close, atol=close)
        if precision == "float64":
            known = np.flatnonzero(one.server.placement.owner >= 0)
            rows, others = (m.method.rows_of(m.server, m.clients, known)[0] for m in (one, many))
            torch.testing.assert_close(rows, others, rtol=close, atol=close)


def test_a_client_gets_rows_of_its_own_nodes_and_edges_inside_its_part():
    received: list[tuple[str, dict]] = []

    class Watched(DgCoLearn):
        """The subgraphs that clients receive are written down."""

        @on_client
        def join(self, client, now):
            received.append((client.name, now))
            super().join(client, now)

    data = stream(2)
    done = finished(with_constants(Watched, features=6)(rounds=2, hidden=5), data, 3)
    names, at = done.clients.names, done.server.placement
    assert len(received) == 9       # three clients, after each of three stages
    edges = {tuple(e) for e in done.server.snapshot.edges.T}
    for name, now in received:
        mine = {int(at.place[n]): n for n in np.flatnonzero(at.owner == names.index(name))}
        for a, b in now["added"].T:
            assert tuple(sorted((mine[a], mine[b]))) in edges
        assert set(now) == {"whole", "active", "nodes", "elsewhere", "degree", "added", "removed"}
        assert set(now["nodes"]) <= set(mine) and not now["whole"]


@pytest.mark.slow
def test_one_two_and_five_clients_score_the_same_on_uci(data, monkeypatch):
    """The first stages of UCI messages, with all gradients exchanged."""
    monkeypatch.setenv("FEDVINE_DATA", str(data))
    uci: Any = load("uci")
    plan, found = uci.by_time("5d").cut(5), []
    for clients in (1, 2, 5):
        done = run(DgCoLearn(rounds=3, precision="float64"), uci.split("hash", k=clients), plan,
                   protocol=LinkPrediction(negatives=100, positives=200)).finish()
        found.append([s.found[s.t + 1]["all"]["scores"] for s in done.stages if s.found])
    for many in found[1:]:
        for a, b in zip(found[0], many, strict=True):
            assert {k: b[k] for k in a} == pytest.approx(a, abs=1e-3)
        assert many[-1]["auc_across"] > 0.5                # of which one machine has none
    assert "auc_across" not in found[0][-1]
    assert found[0][-1]["auc"] > 0.6


def test_the_report_tells_the_partition_and_who_is_alone():
    done = finished(DgCoLearn(rounds=1, hidden=4, partition="hash"), stream(8), 3)
    report, owner = done.summary["report"], done.server.placement.owner
    a, b = done.server.graph.edges
    assert report["cut"] == pytest.approx((owner[a] != owner[b]).mean())
    across = np.bincount(np.concatenate([a, b])[np.tile(owner[a] != owner[b], 2)])
    assert report["border_nodes"] == {"one": int((across == 1).sum()), "two": int(
        (across == 2).sum()), "three or more": int((across > 2).sum())}
    assert sum(report["nodes"]) == (owner >= 0).sum()


def test_bytes_of_an_exchange_follow_the_border_and_the_hidden_width():
    """Each layer moves a row of the narrower width for each border node, both ways."""
    data = stream(4, nodes=60, edges=300)
    calls: list[dict[str, Any]] = []
    method = with_constants(DgCoLearn, features=40)(rounds=1, hidden=8, partition="hash")
    made: Any = run(method, data.split("hash", k=3), data.by_count(150), protocol=PROTOCOL,
                    on_round=lambda at, clients: calls.extend(
                        clients.log if at == (1, 1, 1) else []))
    made.finish()
    said = [c for c in calls if c["function"] == "send_messages" and c["r"] == 1][-2:]  # states
    first, owner = Snapshot(3), made.server.placement.owner
    first.advance(data.by_count(150).stage(data, 0))
    a, b = first.edges
    rows = len(np.unique(np.concatenate([a, b])[np.tile(owner[a] != owner[b], 2)]))
    for call in said:
        assert rows * 8 * 4 <= call["up"] <= rows * 8 * 4 + 3 * 200      # 8 numbers, not 40


def test_equation_5_and_6_are_what_a_client_adds():
    """Two clients with one node and one edge between them, by hand."""
    method = with_constants(DgCoLearn, features=4)(hidden=4, exchange="paper", temporal="none")
    client = Client("a", World(("a", "b"), 0, 1))
    method.setup(client)
    method.meet(client, {"keys": np.array([5], np.uint64)})
    x, h, other = (torch.randn(1, 4, generator=torch.Generator().manual_seed(i)) for i in range(3))
    rows = torch.cat([x, h], 1).numpy()         # what the neighbour offers: X_j, H_j
    again = other.numpy()                       # the sum of X over its own neighbours elsewhere
    method.take(client, (np.array([0]), np.array([1]), rows, again))
    first, second = client.part.corrections
    own = method.inputs(client)
    torch.testing.assert_close(first, x)                          # (5)
    torch.testing.assert_close(second, h + x + own + other)       # (6)


@pytest.mark.parametrize("exchange", ["paper", "two-hop-exact"])
@pytest.mark.parametrize("temporal", ["gru", "average", "none"])
def test_corrections_go_into_the_state_as_a_part_of_the_layer(exchange, temporal):
    """Eqs. (2), (5), (6), (3) with dense matrices, in this order, after two stages; and rows of a
    recurrent unit are bounded as such, however large the sums are."""
    data = stream(13, 30, 120)
    method = with_constants(DgCoLearn, features=6)(
        rounds=1, hidden=6, exchange=exchange, partition="hash", schedule="before",
        precision="float64", temporal=temporal)
    done: Any = finished(method, data, 4)
    server, net, at = done.server, done.server.net, done.server.placement
    held = [done.clients.workers[n].client for n in done.clients.names]
    known = np.flatnonzero(at.owner >= 0)
    number = np.full(len(at.owner), -1)
    number[known] = np.arange(len(known))
    whole = torch.zeros(len(known), len(known), dtype=torch.float64)
    a, b = number[server.graph.edges]
    whole[a, b] = whole[b, a] = 1
    owner = torch.from_numpy(at.owner[known])
    inside = whole * (owner[:, None] == owner)
    C = whole - inside
    degree, across = inside.sum(1), C.sum(1)
    x = torch.stack([method.inputs(held[at.owner[n]])[at.place[n]] for n in known])
    states = [torch.stack([held[at.owner[n]].part.states[layer][at.place[n]] for n in known])
              for layer in range(2)]
    said = net.message(0, x, degree, states[0])
    h1 = net.combine(0, x, said, inside @ said, degree)                             # (2)
    row1 = net.remember(0, h1 + C @ x, states[0])                                   # (5), (3)
    said = net.message(1, row1, degree, states[1])
    h2 = net.combine(1, row1, said, inside @ said, degree)
    A_s = inside + torch.eye(len(known), dtype=torch.float64)
    h2 = h2 + (C @ (h1 + x) + across[:, None] * x + C @ (C @ x) if exchange == "paper" else
               A_s @ C @ x + C @ A_s @ x + C @ C @ x)                               # (6)
    row2 = net.remember(1, h2, states[1])
    rows, found = method.rows_of(server, done.clients, known)
    torch.testing.assert_close(rows[found], row2.detach(), rtol=1e-12,
                               atol=1e-12)
    if temporal == "gru":
        assert all(0 < float(s.abs().max()) <= 1 for s in (*states, rows))


def test_two_hops_of_raw_features_are_exact_with_the_term_that_is_left_out():
    """What clients add to A_s^2 X comes to A^2 X; Eq. (6) as printed does not."""
    data = stream(12, 30, 80)
    for how, exact in (("two-hop-exact", True), ("paper", False)):
        method = with_constants(DgCoLearn, features=6)(
            rounds=1, hidden=6, exchange=how, partition="hash", schedule="before",
            precision="float64")
        done: Any = run(method, data.split("hash", k=4), data.by_count(80),
                        protocol=PROTOCOL).finish()
        server, names, at = done.server, done.clients.names, done.server.placement
        held = [done.clients.workers[n].client for n in names]
        method.exchange_once(server, done.clients, None)
        known = np.flatnonzero(at.owner >= 0)
        number = np.full(len(at.owner), -1)
        number[known] = np.arange(len(known))
        a, b = number[server.graph.edges]
        A = torch.eye(len(known), dtype=torch.float64)
        A[a, b] = A[b, a] = 1
        owner = torch.from_numpy(at.owner[known])
        inside = A * (owner[:, None] == owner)
        x = torch.stack([method.inputs(held[at.owner[n]])[at.place[n]] for n in known])
        added = torch.zeros_like(x)
        for k, client in enumerate(held):
            own = np.flatnonzero(at.owner[known] == k)
            added[own] += client.part.corrections[1][at.place[known[own]]]
        assert torch.allclose(inside @ inside @ x + added, A @ A @ x, atol=1e-12) == exact


def test_one_machine_has_all_nodes_and_counts_the_same_edges_across():
    data = stream(10)
    central = run(RolandMethod(rounds=2, hidden=4), data.split("hash", k=3),
                  data.by_count(30), protocol=PROTOCOL).finish()
    shared = finished(DgCoLearn(rounds=2, hidden=4), data, 3)
    held = [len(r.client.part.x) for r in central.clients.workers.values()]
    assert held[1:] == [0, 0] and held[0] > 0
    assert (central.server.placement.part == shared.server.placement.owner).all()
    a, b = (d.scores["test"] for d in (central, shared))
    assert a["n"]["all"]["n_across"] == b["n"]["all"]["n_across"] > 0


# -- what changed, schedules, nodes that move, partitions ------------------------------------------
def labelled(seed: int, nodes: int = 24, edges: int = 120) -> EventStream:
    data, draw = stream(seed, nodes, edges), rng("classes", seed)
    y = draw.integers(0, 3, nodes)
    return data.with_nodes(NodeData.make(np.arange(nodes), np.zeros(nodes), y, "abc",
                                         draw.normal(size=(nodes, 4)) + 2 * np.eye(3, 4)[y]))


@pytest.mark.parametrize(("schedule", "held"), [
    ("before", [1, 2, 3, 4]), ("first-epoch", [1, 2, 3, 4]), ("last-epoch", [1, 2, 3, 4]),
    ("first-round", [1]), ("middle-round", [2])])
def test_a_schedule_says_when_sums_are_exchanged(schedule, held):
    log: dict[tuple, dict] = {}
    data = stream(3)
    run(DgCoLearn(rounds=4, epochs=2, hidden=4,
                  schedule=schedule), data.split("hash", k=3), data.by_count(30),
        protocol=PROTOCOL, on_round=lambda at, clients: log.update(
            {(c["t"], c["r"], c["call"]): c for c in clients.log})).finish()
    lines = list(log.values())
    last = max(line["t"] for line in lines)
    found = sorted({line["r"] for line in lines if line["t"] == last
                    and line["function"] == "hold"})
    assert found == held
    calls = [line["function"] for line in lines if (line["t"], line["r"]) == (last, held[0])]
    hold = calls.index("hold")
    before = calls[:hold].count("train"), calls[hold:].count("train")
    assert before == {"before": (0, 1), "first-epoch": (1, 1)}.get(schedule, (1, 0))


@pytest.mark.slow
@pytest.mark.parametrize("partition", ["multilevel", "colearn", "metis", "louvain", "label_skew",
                                       "hash"])
def test_every_partition_assigns_all_nodes_and_reports_itself(partition):
    data = labelled(6, 60, 200)
    done: Any = run(DgCoLearn(rounds=1, hidden=4, partition=partition,
                              target="classes"), data.split("hash", k=3), data.by_count(50)
                    ).finish()
    report = done.summary["report"]
    assert sum(report["nodes"]) == len(np.unique(np.stack([data.src, data.dst])))
    assert len(report["snapshots"]) == 4 and min(report["nodes"]) > 0
    assert 0 < report["cut"] < 1 and 0 < report["entropy"] <= np.log2(3) and report["cov"] < 1
    assert report["seconds_partition"] > 0 and report["edges"] > 0


def test_nodes_can_belong_to_the_client_of_their_first_edge():
    data: Any = testing.tiny_stream()
    done: Any = run(DgCoLearn(rounds=1, hidden=4, partition="split"),
                    data.split("client"), data.by_count(120), protocol=PROTOCOL).finish()
    both = np.stack([data.src, data.dst + data.num_src], 1).reshape(-1)
    owner = done.server.placement.owner
    for node in np.flatnonzero(owner >= 0):
        first = int(np.flatnonzero(both == node)[0]) // 2
        # who came with the same stage's earlier edge is the one that counts
        assert owner[node] == sorted(testing.NAMES).index(
            data.categories["client"][data.codes["client"][first]])
    with pytest.raises(FedvineError, match="needs clients that are a column"):
        run(DgCoLearn(partition="split"), data.split("hash", k=2), data.by_count(120)).finish()


def test_label_skew_needs_classes():
    data = stream(1)
    with pytest.raises(FedvineError, match="label_skew needs classes of nodes"):
        finished(DgCoLearn(partition="label_skew"), data, 2)


def test_noise_blurs_what_a_lone_neighbour_says(monkeypatch):
    """A node with one neighbour elsewhere hears it exactly, or only roughly."""
    sent: dict[float, Any] = {}

    def watched(method, server, said, sums):
        found = noisy(method, server, said, sums)
        sent[method.aggregate.blur] = said, torch.cat(found).numpy()
        return found
    noisy = exchange.noisy
    monkeypatch.setattr(exchange, "noisy", watched)
    data = EventStream(np.array([0, 0], np.int32), np.array([1, 1], np.int32), np.arange(2),
                       Ids.of(["a", "b"]))
    for noise in (0.0, 1.0):
        run(with_constants(DgCoLearn, features=12)(
            rounds=1, hidden=12, aggregate={"blur": noise}, partition="hash", schedule="before"),
            data.split("hash", k=2), data.by_count(1),
            protocol=PROTOCOL).finish()
    said, sums = sent[0.0]
    np.testing.assert_array_equal(sums, said[::-1])
    said, sums = sent[1.0]
    off = np.sqrt(((sums - said[::-1]) ** 2).mean() / (said ** 2).mean())
    assert 0.5 < off < 2


def test_scoring_leaves_nothing_behind():
    """Two snapshots are gone through ahead; memory of both sides is as it was."""
    before: list[bytes] = []

    class Watched(DgCoLearn):
        """Memory before and after an answer."""

        def answer(self, server, clients, at):
            def memory():
                return dumps(pack({"server": server.dump(), "clients": {
                    n: r.client.dump() for n, r in clients.workers.items()}}))
            was = memory()
            found = super().answer(server, clients, at)
            before.append(was)
            assert memory() == was
            return found

    data = labelled(8)
    for target in ("edges", "classes"):
        run(Watched(rounds=1, hidden=4, target=target), data.split("hash", k=3),
            data.by_count(30)).finish()
    assert len(before) > 3


@pytest.mark.parametrize("target", ["edges", "classes"])
def test_empty_snapshots_and_nodes_that_vanish(target):
    """A gap longer than the window empties the graph; all edges of two nodes are removed."""
    src, dst = np.array([[0, 1, 2, 3, 0, 1, 0], [1, 2, 3, 0, 2, 3, 1]], np.int32)
    gone = np.array([0, 0, 0, 0, 0, 0, 1], bool)
    data = EventStream(src, dst, np.array([0, 0, 0, 0, 40, 41, 42]),
                       Ids.of([f"n{i}" for i in range(4)]), deleted=gone)
    if target == "classes":
        data = data.with_nodes(NodeData.make(np.arange(4), np.zeros(4), [0, 1, 0, 1], "ab"))
    plan = Plan(tuple(float(10 * i) for i in range(6)), 1, 2)
    done: Any = run(DgCoLearn(rounds=2, hidden=4, window=1, target=target),
                    data.split("hash", k=3), plan).finish()
    assert [s["edges"] for s in done.summary["report"]["snapshots"]] == [4, 0, 0, 0, 2]
    assert done.server.snapshot.edges.tolist() == [[0, 1], [2, 3]]
    assert len(done.stages) == 5


@pytest.mark.parametrize("epochs", [1, 2])
def test_local_models_are_averaged_by_the_pairs_they_learned_from(epochs):
    """Clients of unequal size, one of which has no pair of its own."""
    sizes: dict[str, int] = {}
    models: dict[str, Any] = {}

    class Unequal(Placement):
        """Most nodes at the first client, a single one at the last."""

        def clients_of(self, part):
            parts = np.searchsorted([19, 27], np.arange(len(part)), side="right")
            return np.where(part < 0, -1, parts).astype(part.dtype)

    class Watched(DgCoLearn):
        """What each client learned from, and what came of it, is written down."""

        @on_client
        def train(self, client, model, epochs, own):
            sizes[client.name] = len(own[1])
            super().train(client, model, epochs, own)

        @on_client
        def trained(self, client):
            models[client.name] = super().trained(client)
            return models[client.name]

        placement: ClassVar[type[Placement]] = Unequal

    data = stream(6, nodes=28, edges=150)
    data = data.take(np.flatnonzero(data.src != data.dst))
    made = run(Watched(rounds=2, epochs=epochs, hidden=4, partition="hash",
                       exchange="none", schedule="before"),
               data.split("hash", k=3), data.by_count(len(data)), protocol=PROTOCOL).finish()
    ours = [sizes[n] for n in made.clients.names]
    assert ours[0] > ours[1] > 0 == ours[2]
    for name, value in made.server.net.named_parameters():
        expected = sum(models[n][name].double() * s for n, s in sizes.items()) / sum(ours)
        torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize(("options", "one_kind"), [
    ({"aggregate": {"min_group": 2}}, False), ({"partition": "hash"}, True),
    ({"partition": "hash", "scope": "changed"}, False),
    ({"window": 1, "scope": "changed", "schedule": "before"}, True)])
def test_nodes_keep_their_clients_and_states_when_there_are_new_users(options, one_kind):
    """Items are numbered after users: each new user moves the numbers of all items."""
    stream = testing.tiny_stream()
    if one_kind:
        ids = Ids.of([*(f"u{i}" for i in range(stream.num_src)), *stream.dst_ids])
        stream = EventStream(stream.src, stream.dst + np.int32(stream.num_src), stream.t, ids,
                             codes=stream.codes, categories=stream.categories)
    assert stream.bipartite != one_kind
    method = changed(DgCoLearn.tiny(), **options)
    assert growth_check.check(method, stream) is None


@pytest.mark.parametrize("backbone", get_args(Backbone))
def test_every_parameter_is_learned(backbone):
    done = finished(DgCoLearn(rounds=2, hidden=4, partition="hash", backbone=backbone),
                    stream(3), 3)
    fresh = done.method.net(done.clients.world)
    for name, p in done.server.net.named_parameters():
        assert (p - fresh.get_parameter(name)).abs().max() > 0, name
