"""POWER: the contract, Algorithm 1's parts against slow references, and what the server learns."""

import numpy as np
import pytest
import torch
from toys import changed, listening

from fedvine import testing
from fedvine.core import tree
from fedvine.core.errors import FedvineError
from fedvine.core.ledger import Ledger
from fedvine.core.message import Packed, pack, unpack
from fedvine.core.method import Server
from fedvine.core.replies import Replies
from fedvine.core.state import Client, World
from fedvine.data.spec import load
from fedvine.experiments.run import run
from fedvine.methods._power.equations import infer_labels, reconstruct
from fedvine.methods.fedavg import FedAvg, Joint
from fedvine.methods.power import Power, divergence
from fedvine.methods.power_plus import PowerPlus
from fedvine.tasks.task_plan import by_task

TINY = Power.tiny()


def prototypes_by_hand(part, plan, t):
    """Mean features of each class of task t over its training nodes."""
    stage = plan.stage(part, t)
    return {int(c): stage.x[stage.y == c].mean(0) for c in np.unique(stage.y[stage.y >= 0])}


@pytest.mark.slow
def test_the_server_reads_every_prototype_exactly():
    """The privacy claim of sending gradients does not hold: this is what the server sees."""
    sent = []

    def note(name, envelope, reply):
        if envelope.function == "execute":
            message = unpack(Packed(reply.skeleton, [b.copy() for b in reply.buffers]))
            if message["met"] is not None:
                sent.append((name, envelope.place[0], message["met"]))

    parts, plan = testing.tiny_graphs()
    made = testing.run_small(TINY, engine=listening(note)).finish()
    encoder = TINY.encoder(made.clients.world)
    assert len(sent) == 3 * 4
    for name, t, message in sent:
        truth = prototypes_by_hand(parts.parts[name], plan, t)
        found = reconstruct(encoder, message["gradients"]).prototypes
        for label, row in zip(infer_labels(message["gradients"]).tolist(), found, strict=True):
            np.testing.assert_allclose(row, truth[label], rtol=1e-4, atol=1e-5)
    server = made.server
    assert len(server.y) == sum(len(m["gradients"]["bias_0"]) for _, _, m in sent)


def test_protection_withholds_and_blurs():
    """With a minimum count small classes stay at home; with noise the mean is not what it was."""
    world = World(testing.NAMES, 0, 4, {"features": 6, "classes": 8})
    parts, plan = testing.tiny_graphs()
    client = Client("ada", world)
    client.stage = plan.stage(parts.parts["ada"], 0)
    counts = np.bincount(client.stage.y[client.stage.y >= 0], minlength=8)
    smallest = counts[counts > 0].min()
    plain, labels = TINY.prototypes(client, counts)
    kept, some = TINY.model_copy(update={"min_count": int(smallest) + 1}).prototypes(client, counts)
    assert len(labels) == 2 and len(some) == int((counts > smallest).sum()) < 2
    noisy, _ = TINY.model_copy(update={"clip": 100.0, "noise": 1.0}).prototypes(client, counts)
    assert (noisy - plain).norm() > 1.0 and kept.shape[1] == 6


def trajectory_by_hand(part, plan, t, phi):
    """Eq. (12) as it is written, after task t."""
    found = np.zeros(8)
    for i in range(t + 1):
        y = plan.stage(part, i).y
        p = np.bincount(y[y >= 0], minlength=8)
        found += phi ** (t - i) * p / p.sum()
    return found


@pytest.mark.slow
def test_the_trajectory_decays():
    parts, plan = testing.tiny_graphs()
    made = testing.run_small(TINY.model_copy(update={"phi": 0.5})).finish()
    for name, part in parts.parts.items():
        np.testing.assert_allclose(made.server.trajectories[name],
                                   trajectory_by_hand(part, plan, 3, 0.5))


def test_a_client_that_skips_a_task_goes_on_with_its_trajectory_and_sends_what_it_met():
    """One client takes part in each task; Eq. (12) is a sum over all its tasks all the same."""
    took: dict[str, list[int]] = {}

    def note(name, envelope, _):
        if envelope.function == "execute":
            took.setdefault(name, []).append(envelope.place[0])

    parts, plan = testing.tiny_graphs()
    method = TINY.model_copy(update={"rounds": 1, "fraction": 0.3, "phi": 0.5})
    made = testing.run_small(method, engine=listening(note)).finish()
    assert any(len(tasks) <= tasks[-1] for tasks in took.values())   # one before its last
    classes = []
    for name, tasks in took.items():
        part = parts.parts[name]
        np.testing.assert_allclose(made.server.trajectories[name],
                                   trajectory_by_hand(part, plan, tasks[-1], 0.5))
        for t in range(tasks[-1] + 1):
            classes += list(prototypes_by_hand(part, plan, t))
    assert sorted(made.server.y.tolist()) == sorted(classes)
    for name, part in parts.parts.items():   # of those who never took part, too
        np.testing.assert_allclose(made.clients.workers[name].client.trajectory,
                                   trajectory_by_hand(part, plan, 3, 0.5))


@pytest.mark.parametrize("min_count", [1, 4])
def test_secure_prototypes_are_means_over_all_clients(min_count):
    """The server has them exactly, and no upload that one client's could be read from."""
    parts, plan = testing.tiny_graphs()
    method = changed(TINY, aggregate={"secure": True}, min_count=min_count, transfer="none")
    made = run(method, parts, plan, seed=7)
    next(iter(made))
    stages = [plan.stage(part, 0) for part in parts.parts.values()]
    x, y = (np.concatenate([getattr(s, of) for s in stages]) for of in ("x", "y"))
    count = np.concatenate([np.bincount(s.y[s.y >= 0], minlength=8)[s.y] for s in stages])
    x, y = x[(y >= 0) & (count >= min_count)], y[(y >= 0) & (count >= min_count)]
    found = dict(zip(made.server.y.tolist(), made.server.x.numpy(), strict=True))
    assert sorted(found) == np.unique(y).tolist()
    for c, row in found.items():
        np.testing.assert_allclose(row, x[y == c].mean(0), atol=1e-5)
    assert all(len(w.client.means) == 0 for w in made.clients.workers.values())


def test_secure_prototypes_have_no_noise():
    with pytest.raises(ValueError, match="for prototypes of one client"):
        Power(aggregate={"secure": True}, clip=1.0, noise=1.0)


@pytest.mark.slow
def test_a_prototype_without_bounds_does_not_reach_the_model():
    """Gradients that pass every bound and still mean an infinite row: a client's lie."""
    made = testing.run_small(TINY).finish()
    server, encoder = made.server, TINY.encoder(made.clients.world)
    gradients = {name: torch.full((1, *part.shape), 1e11 if name == "weight_0" else 1e-38)
                 for i, pair in enumerate(zip(encoder.weights, encoder.biases, strict=True))
                 for name, part in zip((f"weight_{i}", f"bias_{i}"), pair, strict=True)}
    before, lie = len(server.y), {"trajectory": np.ones(8), "gradients": gradients}
    TINY.fill_buffer(server, {"ada": {"met": lie}}, made.clients.world)
    assert len(server.y) == before == len(server.x)


def test_the_transfer_loss_is_equation_14():
    draw = torch.Generator().manual_seed(0)
    ours, theirs = torch.randn(5, 3, generator=draw), torch.randn(2, 5, 3, generator=draw)
    share = torch.rand(2, 5, generator=draw)
    expected = sum(float(share[k, i]) * torch.nn.functional.kl_div(
        theirs[k, i].log_softmax(0), ours[i].softmax(0), reduction="sum")
        for k in range(2) for i in range(5))
    assert float(divergence(ours, theirs, share, "kl")) == pytest.approx(float(expected), rel=1e-5)


def test_transfer_does_not_amplify_rounding():
    """The transferred model moves no more than what rounding moved before: 1e-4 in float32."""
    world = World(("ada", "bob"), 0, 1, {"features": 20, "classes": 3})
    method, found = Power(hidden=8, server_epochs=10), []
    draw = torch.Generator().manual_seed(3)
    x, y = torch.rand(6, 20, generator=draw), torch.arange(6) % 3
    models = [tree.map_tree(lambda p: p + 0.1 * torch.randn(p.shape, generator=draw),
                            method.start(world).model) for _ in world.clients]
    for noise in (0.0, 1e-7):
        average = tree.map_tree(lambda p, q, e=noise: (p + q) / 2 * (1 + e), *models)
        server = Server(model=average, x=x, y=y,
                        trajectories={n: np.ones(3) for n in world.clients})
        sent = Replies({n: pack({"model": m}) for n, m in zip(world.clients, models, strict=True)},
                       [])
        method.transfer_knowledge(server, sent, world)
        found.append(server.model)
    assert all(p.dtype == torch.float32 for p in found[0].values())
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, rtol=0, atol=1e-6)
        assert not torch.equal(value, average[name])


def test_noise_needs_a_clip_and_changes_what_the_server_has():
    parts, plan = testing.tiny_graphs()
    with pytest.raises(FedvineError, match="noise is measured in clip"):
        run(PowerPlus(rounds=1, noise=1.0, width=0, hops=0), parts, plan).finish()
    sums = []
    for noise in (0.0, 1.0):
        done = run(PowerPlus(rounds=1, noise=noise, clip=1.0, width=0, hops=0), parts,
                   plan).finish()
        sums.append(done.server.sums)
    assert (sums[0] - sums[1]).std() == pytest.approx(3 ** 0.5, rel=0.5)   # three clients


def test_noise_cannot_be_drawn_again_from_the_seed_of_the_run():
    """The server sets the seed, and two runs of it would show the sums; it is the ledger's."""
    world = World(testing.NAMES, 0, 4, {"features": 6, "classes": 8})
    parts, plan = testing.tiny_graphs()
    found = {"power": [], "power_plus": []}
    ledger = Ledger()
    for kept in (ledger, ledger, Ledger()):
        client = Client("ada", world, ledger=kept)
        client.stage, client.place = plan.stage(parts.parts["ada"], 2), (0, 0, 1)
        plus = PowerPlus(noise=1.0, clip=1.0)
        plus.setup(client)
        found["power_plus"].append(plus.classes(client)["sums"])
        counts = np.bincount(client.stage.y[client.stage.y >= 0], minlength=8)
        noisy = TINY.model_copy(update={"clip": 1.0, "noise": 1.0})
        found["power"].append(noisy.prototypes(client, counts)[0].numpy())
    for one, again, other in found.values():
        np.testing.assert_array_equal(one, again)
        assert (one != other).mean() > 0.2
    assert ledger.summary()["releases"] == 0        # counts leave, too: no epsilon bounds a run


@pytest.mark.slow
def test_power_plus_forgets_less_at_equal_memory(data):
    """On Cora, one partition: above POWER and near joint training."""
    cora = load("cora", data / "Planetoid")
    split, plan = cora.split("louvain", 3), by_task(cora, 2)
    found = {m.name: run(m, split, plan).finish().scores["val"]["mean"]
             for m in (FedAvg(), Power(), PowerPlus(), Joint())}
    assert found["power_plus"]["am"] > max(found["power"]["am"], found["fedavg"]["am"])
    assert found["power_plus"]["am"] > found["joint"]["am"] - 4
    assert found["power_plus"]["fm"] < found["power"]["fm"] < found["fedavg"]["fm"]
