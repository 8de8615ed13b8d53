"""GCRN: the three networks node by node against their equations, and clients that share them."""

from typing import Any

import numpy as np
import pytest
import torch

from fedvine import testing
from fedvine.core.rng import rng, torch_rng
from fedvine.data.ids import Ids
from fedvine.data.stream import EventStream
from fedvine.experiments.run import run
from fedvine.methods.dgcolearn import DgCoLearn
from fedvine.methods.fedavg_dyn import FedAvgDyn
from fedvine.methods.roland import Roland
from fedvine.nn.backbones import GCRN
from fedvine.rivals.fedsage_dyn import FedSageDyn
from fedvine.tasks.link_prediction import LinkPrediction

BACKBONES: Any = pytest.mark.parametrize("backbone", sorted(GCRN))


@pytest.mark.slow
@pytest.mark.parametrize(("backbone", "options"), [
    ("gcrn-lstm", {"scope": "changed"}), ("gcrn-gru", {"partition": "hash"}),
    ("gcrn-baseline", {"exchange_gradients": False}), ("gcrn-lstm", {"exchange_gradients": False}),
    *((backbone, {"scope": "changed", "target": "classes"}) for backbone in sorted(GCRN))])
def test_the_contract(backbone, options):
    """Kills and resumes, tables that grow, clients that come late, nodes that move, ..."""
    testing.check_method(DgCoLearn.tiny().model_copy(update={"backbone": backbone, **options}))


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


@BACKBONES
@pytest.mark.parametrize("kind", [DgCoLearn, Roland, FedAvgDyn, FedSageDyn])
def test_every_method_of_the_family_learns_each_parameter(backbone, kind):
    options: dict[str, Any] = {"rounds": 3, "features": 5, "hidden": 4, "partition": "hash"}
    done = finished(kind(**options, backbone=backbone))
    fresh = done.method.net(done.clients.world)
    for name, p in done.server.net.named_parameters():
        assert (p - fresh.get_parameter(name)).abs().max() > 0, name


def test_corrections_of_rows_need_rows_between_convolution_and_state():
    with pytest.raises(ValueError, match="choose another exchange or gcrn-baseline"):
        DgCoLearn(backbone="gcrn-gru", exchange="paper")
    finished(DgCoLearn(rounds=1, features=5, hidden=4, partition="hash", exchange="paper",
                       backbone="gcrn-baseline"))
