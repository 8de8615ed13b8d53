"""FedProtoDyn and D-FedGNN: clients with models of their own, and what they tell each other."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from two_classes import SMALL, f1, held, made

from fedvine.core.rng import rng
from fedvine.methods.fedavg_dyn import FedAvgDyn
from fedvine.rivals.d_fedgnn import DFedGnn, neighbours, weight
from fedvine.rivals.fedproto_dyn import FedProtoDyn


# -- FedProtoDyn ----------------------------------------------------------------------------------
def test_prototypes_are_the_means_over_all_clients_nodes():
    found = made(FedProtoDyn(**SMALL))
    next(iter(found))                                               # one stage
    method, server = found.method, found.server
    y = server.past.nodes.at(np.inf, server.stage.num_src)[1]
    active = np.unique(server.snapshot.edges)
    wanted = torch.zeros(2, 5, dtype=torch.float64)
    for k, client in enumerate(held(found)):
        rows = method.alone(client, False)
        for c in (0, 1):
            for node in active:
                if server.placement.owner[node] == k and y[node] == c:
                    wanted[c] += rows[server.placement.place[node]] / sum(
                        y[n] == c for n in active)
    torch.testing.assert_close(server.prototypes, wanted)


def test_the_loss_is_that_of_the_equation():
    found = made(FedProtoDyn(pull=0.7, **SMALL))
    next(iter(found))
    client, draw = held(found)[0], np.random.default_rng(5)
    rows = torch.from_numpy(draw.normal(size=(6, 5)))
    prototypes = torch.from_numpy(draw.normal(size=(3, 5)))
    prototypes[2] = np.nan                                               # met by nobody
    labels = np.array([0, 0, 1, 0, 1])
    client.cache["prototypes"] = prototypes
    given = found.method.loss(client, rows, [torch.arange(5)], labels)
    wanted = client.net.loss([rows[:5]], labels)
    apart = 0.0
    for j in (0, 1):
        mine = [rows[i].numpy() for i in range(5) if labels[i] == j]
        apart += float(((np.mean(mine, 0) - prototypes[j].numpy()) ** 2).sum())
    torch.testing.assert_close(given, wanted + 0.7 * apart / (2 * 5))


@pytest.mark.slow
def test_one_client_without_pull_is_fedavg():
    plain = made(FedAvgDyn(target="classes", **SMALL), 1).finish()
    same = made(FedProtoDyn(pull=0.0, **SMALL), 1).finish()
    assert [s.found for s in plain.stages] == [s.found for s in same.stages]
    assert f1(made(FedProtoDyn(**SMALL | {"rounds": 20})).finish()) > 0.8


# -- D-FedGNN -------------------------------------------------------------------------------------
@pytest.mark.parametrize("topology", ["ring", "random", "full"])
@pytest.mark.parametrize("clients", [1, 2, 3, 5])
def test_weights_are_symmetric_sum_to_one_and_join_all(topology, clients):
    names = [f"c{i}" for i in range(clients)]
    talks = neighbours(names, topology, rng("talks"))
    W = np.zeros((clients, clients))
    for i, one in enumerate(names):
        for j, other in enumerate(names):
            if other in talks[one]:
                W[i, j] = weight(talks, one, other)
        W[i, i] = 1 - W[i].sum()
    assert (W == W.T).all() and (W >= 0).all() and np.allclose(W.sum(0), 1)
    if topology == "full" or clients <= 3:
        np.testing.assert_allclose(W, 1 / clients)
    elif clients > 3:
        assert ((W > 0).sum(1) == 3).all()
    assert (np.linalg.matrix_power(W, clients) > 0).all()           # all hear of all in the end


@pytest.mark.parametrize("topology", ["ring", "random"])
def test_a_round_is_w_times_the_trained_models(topology):
    """Training and mixing number by number, from the models that clients sent."""
    sent: list[dict[str, torch.Tensor]] = []

    class Watched(DFedGnn):
        """Its clients' trained models are written down."""

        def mix(self, client, heard):
            sent.append({n: p.detach().clone() for n, p in client.net.named_parameters()})
            return DFedGnn.mix(self, client, heard)
        mix.__on_client__ = True

    method: Any = Watched(topology=topology, **SMALL | {"rounds": 1})
    found, lines = made(method, 5, on_round=lambda at, clients: lines.extend(clients.log)), []
    next(iter(found))
    talks = next(line["heard"] for line in lines if line["function"] == "mix")
    names = sorted(talks)
    assert len(sent) == 5 and all(len(others) == 2 for others in talks.values())
    for i, client in enumerate(held(found)):
        for name, value in client.net.named_parameters():
            wanted = sent[i][name] / 3
            for other in talks[names[i]]:
                wanted = wanted + sent[names.index(other)][name] / 3
            torch.testing.assert_close(value.detach(), wanted)


def test_who_talks_to_whom_is_in_the_log(tmp_path):
    made(DFedGnn(topology="random", **SMALL), 5, out=tmp_path / "run").finish()
    lines = [json.loads(x) for x in (tmp_path / "run" / "messages.jsonl").read_text().splitlines()]
    heard = [line["heard"] for line in lines if line["function"] == "mix"]
    assert len(heard) == 3 * 4 and len({json.dumps(h) for h in heard}) > 1
    assert all(one in h[other] for h in heard for one in h for other in h[one])
    assert not any("heard" in line for line in lines if line["function"] != "mix")
