"""GCRN and EvolveGCN: networks against their equations, and clients that share them."""

from typing import Any

import numpy as np
import pytest
import torch
from toys import with_constants

from fedvine.core.method import on_client
from fedvine.core.rng import rng, torch_rng
from fedvine.data.ids import Ids
from fedvine.data.node_data import NodeData
from fedvine.data.stream import EventStream
from fedvine.experiments.run import run
from fedvine.methods.dgcolearn import DgCoLearn
from fedvine.methods.fedavg_dyn import FedAvgDyn
from fedvine.nn.backbones import GCRN
from fedvine.nn.evolvegcn import HISTORY, EvolveGCN
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.tasks.snapshot_classification import SnapshotClassification

BACKBONES: Any = pytest.mark.parametrize("backbone", sorted(GCRN))


def sigmoid(v: Any) -> Any:
    return 1 / (1 + np.exp(-v))


def convolution(A: np.ndarray, x: np.ndarray, own: np.ndarray, near: np.ndarray) -> np.ndarray:
    """x Theta_0 + T_1(L - I) x Theta_1, the Laplacian written out."""
    degree = A.sum(1)
    root = np.diag([1 / np.sqrt(d) if d else 0.0 for d in degree])
    laplacian = np.diag((degree > 0).astype(float)) - root @ A @ root
    return x @ own + (laplacian - np.diag((degree > 0).astype(float))) @ x @ near


def lstm(gates: list, cell: np.ndarray, peep: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    wi, wf, wo = np.split(peep, 3)
    i, f = sigmoid(gates[0] + wi * cell), sigmoid(gates[1] + wf * cell)
    c = f * cell + i * np.tanh(gates[3])
    return sigmoid(gates[2] + wo * c) * np.tanh(c), c


def slow(backbone: str, P: dict[str, np.ndarray], A: np.ndarray, x: np.ndarray, past: list) -> list:
    """All layers' states [h] or [h, c] of the features and of the states before, gate by gate."""
    found, layers = [], len(past)
    for layer, state in enumerate(past):
        if backbone == "gcrn-baseline":
            x = np.maximum(convolution(A, x, P[f"self_{layer}"], P[f"near_{layer}"])
                           + P[f"bias_{layer}"], 0)
            if layer + 1 < layers:
                found.append(x)
                continue
            h, cell = np.split(state, 2, 1)
            gates = np.split(x @ P["given"] + h @ P["old"] + P["bias_lstm"], 4, 1)
            found.append(np.concatenate(lstm(gates, cell, P["peep_lstm"]), 1))
            continue
        count = {"gcrn-gru": 3, "gcrn-lstm": 4}[backbone]
        weights = {n: np.split(P[f"{n}_{layer}"], count, 1) for n in (
            "self_x", "near_x", "self_h", "near_h")}
        bias, h = np.split(P[f"bias_{layer}"], count), state[:, :P[f"self_h_{layer}"].shape[0]]
        of_x = [convolution(A, x, weights["self_x"][g], weights["near_x"][g]) + bias[g]
                for g in range(count)]
        of_h = [convolution(A, h, weights["self_h"][g], weights["near_h"][g]) for g in range(count)]
        if backbone == "gcrn-lstm":
            gates = [a + b for a, b in zip(of_x, of_h, strict=True)]
            found.append(np.concatenate(lstm(gates, state[:, h.shape[1]:], P[f"peep_{layer}"]), 1))
        else:
            r, u = sigmoid(of_x[0] + of_h[0]), sigmoid(of_x[1] + of_h[1])
            found.append(u * h + (1 - u) * np.tanh(of_x[2] + r * of_h[2]))
        x = found[-1][:, :h.shape[1]]
    return found


@BACKBONES
@pytest.mark.parametrize("features", [3, 5, 40])
def test_states_are_those_of_the_equations(backbone, features):
    """Over three snapshots; 40 features are projected before they are sent; a node is alone."""
    net, draw = GCRN[backbone](features, 4, 2, seed=1).double(), torch_rng(2)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=draw) / p.shape[0] ** 0.5)
    assert net.short(0) == (features == 40 or (backbone == "gcrn-baseline" and features == 5))
    P = {n: p.detach().numpy() for n, p in net.named_parameters()}
    states = [torch.zeros(8, w, dtype=torch.float64) for w in net.state_widths]
    by_hand = [s.numpy() for s in states]
    for t in range(3):
        A = np.triu(rng("gcrn", t).random((8, 8)) < 0.3, 1).astype(float)
        A[0] = A[:, 0] = 0
        A += A.T
        x = rng("gcrn", "x", t).normal(size=(8, features))
        rows, degree = torch.from_numpy(x), torch.from_numpy(A.sum(1))
        for layer in range(2):
            said = net.message(layer, rows, degree, states[layer])
            assert said.shape[1] == net.message_width(layer)
            z = net.combine(layer, rows, said, torch.from_numpy(A) @ said, degree)
            states[layer] = net.remember(layer, z, states[layer])
            rows = net.rows(layer, states[layer])
        by_hand = slow(backbone, P, A, x, by_hand)
        for state, right in zip(states, by_hand, strict=True):
            np.testing.assert_allclose(state.detach().numpy(), right, rtol=1e-10, atol=1e-12)


def finished(method: DgCoLearn, clients: int = 3) -> Any:
    draw = rng("gcrn", "run")
    src, dst = draw.integers(0, 24, (2, 90)).astype(np.int32)
    data = EventStream(src, dst, np.arange(90), Ids.of([f"n{i}" for i in range(24)]))
    return run(method, data.split("hash", k=clients), data.by_count(30),
               protocol=LinkPrediction(negatives=5, positives=50)).finish()


def test_corrections_of_rows_need_rows_between_convolution_and_state():
    with pytest.raises(ValueError, match="choose another exchange or gcrn-baseline"):
        DgCoLearn(backbone="gcrn-gru", exchange="paper")
    finished(DgCoLearn(rounds=1, hidden=4, partition="hash", exchange="paper",
                       backbone="gcrn-baseline"))


VERSIONS: Any = pytest.mark.parametrize("version", ["o", "h"])


def evolved(method: DgCoLearn, clients: int, every: int = 30) -> Any:
    draw = rng("evolvegcn")
    src, dst = draw.integers(0, 24, (2, 90)).astype(np.int32)
    data = EventStream(src, dst, np.arange(90), Ids.of([f"n{i}" for i in range(24)]))
    return run(method, data.split("hash", k=clients), data.by_count(every),
               protocol=LinkPrediction(negatives=5, positives=50)).finish()


def network(version: Any, features: int = 5, hidden: int = 3, layers: int = 2) -> EvolveGCN:
    net, draw = EvolveGCN(features, hidden, layers, seed=1, version=version), torch_rng(2)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=draw))
    return net.double()


def step(P: dict[str, np.ndarray], X: np.ndarray, old: np.ndarray) -> np.ndarray:
    """The recurrent unit of layer 0, column by column."""
    def sigmoid(v: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-v))
    found = np.empty_like(old)
    for c in range(old.shape[1]):
        def gate(name: str, state: np.ndarray, c: int = c) -> np.ndarray:
            return (P[f"in_{name}_0"] @ X[:, c] + P[f"old_{name}_0"] @ state
                    + P[f"bias_{name}_0"][:, c])
        update, reset = sigmoid(gate("update", old[:, c])), sigmoid(gate("reset", old[:, c]))
        new = np.tanh(gate("new", reset * old[:, c]))
        found[:, c] = (1 - update) * old[:, c] + update * new
    return found


@VERSIONS
@pytest.mark.parametrize("nodes", [7, 2, 0])
def test_weights_go_on_as_the_equations_say(version, nodes):
    """Number by number; with fewer nodes than columns too; through the snapshots before."""
    net = network(version)
    draw = np.random.default_rng(3)
    x, before = draw.normal(size=(nodes, 5)), draw.normal(size=(2, 5, 3))
    P = {n: p.detach().numpy() for n, p in net.named_parameters()}
    w = P["weight_0"]
    if version == "o":
        for _ in range(HISTORY):
            w = step(P, w, w)
    else:
        net.past = [[torch.from_numpy(b)] for b in before]
        y = (x @ P["choose_0"])[:, 0] / np.linalg.norm(P["choose_0"])
        best = sorted(range(nodes), key=lambda i: -y[i])[:3]
        best += best[-1:] * (3 - len(best))
        now = np.stack([x[i] * np.tanh(y[i]) for i in best], 1) if nodes else np.zeros((5, 3))
        for X in (*before, now):
            w = step(P, X, w)
    np.testing.assert_allclose(net.weight(0, torch.from_numpy(x)).detach().numpy(), w)


@VERSIONS
@pytest.mark.parametrize(("features", "hidden"), [(5, 3), (3, 5)])
def test_rows_are_those_of_a_gcn_with_these_weights(version, features, hidden):
    net = network(version, features, hidden)
    A = torch.tensor(rng("gcn").random((8, 8)) < 0.3).double().triu(1)
    A = A + A.T
    degree = A.sum(1)
    hat = (A + torch.eye(8)) / ((degree + 1)[:, None] * (degree + 1)).sqrt()
    x = torch.randn(8, features, generator=torch_rng(4), dtype=torch.float64)
    h = x
    for layer in range(2):
        said = net.message(layer, h, degree, h[:, :0])
        h = net.remember(layer, net.combine(layer, h, said, A @ said, degree), said)
    first = (hat @ x @ net.weight(0, x)).relu()
    torch.testing.assert_close(h, hat @ first @ net.weight(1, first))


def test_version_h_goes_through_the_last_snapshots_of_its_client():
    seen: list[list[int]] = []

    class Watched(DgCoLearn):
        """How many snapshots clients go through is written down."""

        @on_client
        def save_states(self, client, given):
            super().save_states(client, given)
            if client.asked is None:
                seen.append([len(client.net.past), len(client.part.seen)])

    method: Any = with_constants(Watched, features=5)(
        rounds=1, hidden=4, backbone="evolvegcn-h", partition="hash", precision="float64")
    done = evolved(method, 2, every=11)
    assert seen[::2] == seen[1::2] == [[min(t, HISTORY - 1), min(t + 1, HISTORY - 1)]
                                       for t in range(len(seen) // 2)] and len(seen) > 12
    ada, bob = (r.client for r in done.clients.workers.values())
    for one, other in zip(ada.part.seen[-1], bob.part.seen[-1], strict=True):
        assert one.shape in ((5, 4), (4, 4)) and not torch.allclose(one, other)


@pytest.mark.slow
def test_scoring_ahead_leaves_what_version_h_has_seen():
    """The same parameters and summaries whether stages are scored or not."""
    method: Any = FedAvgDyn(rounds=1, hidden=4, backbone="evolvegcn-h",
                            target="classes", partition="hash")

    class Unasked(FedAvgDyn):
        """Goes nowhere to score."""

        def answer(self, server, clients, at):
            return {"scores": np.zeros((len(server.queries.nodes), 2)), "client": np.repeat(
                clients.names[0], len(server.queries.nodes))}
    plain, unasked = (labelled(m, 2) for m in (method, Unasked(**method.model_dump())))
    for a, b in zip(plain.clients.workers.values(), unasked.clients.workers.values(),
                    strict=True):
        assert len(a.client.part.seen) == HISTORY - 1
        for one, other in zip(a.client.part.seen, b.client.part.seen, strict=True):
            assert all(map(torch.equal, one, other))
    assert all(map(torch.equal, plain.server.net.parameters(), unasked.server.net.parameters()))


def labelled(method: Any, clients: int, every: int = 15) -> Any:
    draw = rng("evolvegcn", "classes")
    src, dst = draw.integers(0, 24, (2, 120)).astype(np.int32)
    known = NodeData.make(np.arange(24), np.zeros(24), np.arange(24) % 2, ["a", "b"])
    data = EventStream(src, dst, np.arange(120), Ids.of([f"n{i}" for i in range(24)]), nodes=known)
    return run(method, data.split("hash", k=clients), data.by_count(every),
               protocol=SnapshotClassification()).finish()
