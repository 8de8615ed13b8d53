"""FedLink under the contract suite, and against slow references."""

from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch

from fedvine import testing
from fedvine.core import tree
from fedvine.core.method import on_client
from fedvine.core.rng import rng
from fedvine.data.ids import Ids
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream
from fedvine.experiments.run import run
from fedvine.methods._fedlink.rows import make_batch
from fedvine.methods.fedlink import FedLink
from fedvine.methods.fedlink_ablations import FedLinkLocal, FedLinkNoEmb
from fedvine.methods.stfl import STFL, Local
from fedvine.nn.sage import Bipartite, BipartiteSage


class Dense(FedLink):
    """The obvious way: a dense table of all users and items, plain SGD on all of it, float64."""

    def dense_round(self, server_model, users, items, places):
        """W + 1/K sum of differences after L full-table steps, as the algorithm box reads."""
        deltas = []
        for (user_rows, item_rows), (batches, draws) in zip(*places, strict=True):
            net = tree.load(BipartiteSage(self.width), server_model).double()
            now = {"users": users.clone(), "items": items.clone()}
            for batch, draw in zip(batches, draws, strict=True):
                rows = {s: now[s].clone().requires_grad_() for s in now}
                at = {"users": torch.from_numpy(user_rows[batch.users].astype(int)),
                      "items": torch.from_numpy(item_rows[batch.items].astype(int))}
                graph = batch.graph
                graph.weight = graph.weight.double()
                loss = self.loss(SimpleNamespace(model=net), rows["users"][at["users"]],
                                 rows["items"][at["items"]], graph, draw)
                net.zero_grad()
                loss.backward()
                with torch.no_grad():
                    for p in net.parameters():
                        if p.grad is not None:
                            p -= self.learning_rate * p.grad
                    for s in now:
                        now[s] = now[s] - self.learning_rate * rows[s].grad
            deltas.append((tree.subtract({n: p.detach() for n, p in net.named_parameters()},
                                         {n: v.double() for n, v in server_model.items()}),
                           now["users"] - users, now["items"] - items))
        K = len(deltas)
        return ({n: v.double() + sum(d[0][n] for d in deltas) / K for n, v in server_model.items()},
                users + sum(d[1] for d in deltas) / K, items + sum(d[2] for d in deltas) / K)


def test_a_round_equals_the_algorithm_box_on_dense_tables():
    """Touched rows, compact tables and streaming sums change nothing but rounding."""
    method = FedLink.tiny().model_copy(update={"optimizer": "sgd", "divide": "clients",
                                               "learning_rate": 0.5, "rounds": 1})
    parts, plan = testing.tiny_case()
    seen = {}

    class Spy(FedLink):
        @on_client
        def train(self, client, model, sent):
            batches, _ = client.cache["round"]
            seen[client.name] = (client, batches, [client.rng(f"step {i}")
                                                   for i in range(self.steps)])
            return super().train(client, model, sent)

        def round(self, server, clients, at):
            if at.t == 0:
                seen["model"] = dict(server.model)
            super().round(server, clients, at)
            if at.t == 0:
                seen["after"] = (dict(server.model), server.users.values.clone(),
                                 server.items.values.clone())

    run(Spy(**method.model_dump()), parts, plan, seed=7, protocol=testing.PROTOCOL).finish()
    names = sorted(parts.parts)
    # rebuild the moment of round 1 of stage 0: tables at their first values
    made = run(Spy(**method.model_dump()), parts, plan, seed=7, protocol=testing.PROTOCOL)
    next(iter(made))
    clients = [seen[n][0] for n in names]
    books = [(c.users.number, c.items.number) for c in clients]
    users = made.server.users.peek(made.server.users.keys).double()
    table = type(made.server.users)
    fresh = {s: table(7, method.width, method.init_scale).peek(getattr(made.server, s).keys)
             .double() for s in ("users", "items")}
    assert users.shape == fresh["users"].shape
    dense = Dense(**method.model_dump()).dense_round(
        seen["model"], fresh["users"], fresh["items"],
        (books, [(seen[n][1], seen[n][2]) for n in names]))
    model, user_rows, item_rows = seen["after"]
    for name, value in dense[0].items():
        torch.testing.assert_close(model[name].double(), value, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(user_rows.double(), dense[1], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(item_rows.double(), dense[2], rtol=1e-4, atol=1e-6)
    assert (dense[1] != fresh["users"]).any()       # something did move


def test_clients_keep_the_last_edges_alone():
    made = testing.run_small(FedLink.tiny().model_copy(update={"capacity": 20, "buffers": 3}))
    made.finish()
    for name, part in made.parts.items():
        src, dst = made.clients.workers[name].client.kept.last(0, 60)
        assert src.tolist() == part.src[-60:].tolist() and dst.tolist() == part.dst[-60:].tolist()


@pytest.mark.parametrize(("method", "model", "users", "items"), [
    (FedLink, True, True, True), (FedLinkNoEmb, True, False, True),
    (FedLinkLocal, False, False, False), (STFL, True, True, True), (Local, False, False, False)])
def test_what_is_not_shared_never_travels(method, model, users, items):
    made = testing.run_small(method.tiny())
    before = made.method.start(made.clients.world).model
    made.finish()
    assert (len(made.server.users) > 0) == users and (len(made.server.items) > 0) == items
    moved = any((made.server.model[n] != v).any() for n, v in before.items())
    assert moved == model


def test_a_supervised_edge_carries_no_message_of_its_own():
    """Each occurrence of a pair is either asked for or a message, never both."""
    method = FedLink.tiny()
    batch = make_batch(np.array([3, 3, 3, 5, 7]), np.array([1, 1, 2, 1, 9]), "cpu")
    seen = []

    class Watch(BipartiteSage):
        def forward(self, users, items, graph, weight):
            seen.append(weight.clone())
            return super().forward(users, items, graph, weight)

    total = torch.zeros(len(batch.graph))
    for i in range(200):
        method.loss(SimpleNamespace(model=Watch(4)), torch.ones(3, 4), torch.ones(3, 4),
                    batch.graph, rng(i))
        assert ((seen[-1] >= 0) & (seen[-1] <= batch.graph.weight)).all()
        total += seen[-1]
    torch.testing.assert_close(total / 200 / batch.graph.weight, torch.full((4,), 0.5), atol=0.12,
                               rtol=0)


@pytest.mark.slow
def test_embeddings_follow_a_travelled_user():
    """A third of the users roam, which ties the clients' items together; then the others move.

    With shared rows they are known on arrival, though they have no edge at the new client.
    """
    draw = rng(0, "travel")
    users, taste = 120, np.arange(120) % 4
    rows = []
    for t in range(3000):
        user = int(draw.integers(users))
        home = user % 2 if t < 2400 else 1 - user % 2
        if user % 3 == 0:
            home = int(draw.integers(2))
        item = int(taste[user] * 5 + draw.integers(5)) * 2 + home
        rows.append((user, item, home))
    user, item, home = (np.array(c, np.int32) for c in zip(*rows, strict=True))
    stream = EventStream(user, item, np.arange(3000), Ids.of(np.arange(users)),
                         Ids.of(np.arange(40)), codes={"c": home}, categories={"c": ["a", "b"]})
    plan = Plan((0.0, 800.0, 1600.0, 2400.0, 3000.0), val=2, test=3)
    score = {}
    for kind in (FedLink, FedLinkNoEmb):
        made = run(kind(capacity=600, buffers=2, width=16, rounds=15), stream.split("c"), plan)
        score[kind.name] = made.finish().scores["test"]["mean"]["auc_arrived"]
    assert score["fedlink"] > 0.75 > 0.65 > score["fedlink_noemb"]


class Mine(FedLink):
    """FedLink with another encoder, in one line."""

    name: ClassVar[str] = "mine"

    def encoder(self, seed):
        return BipartiteSage(self.width, layers=1, seed=seed)


def test_another_encoder_is_one_line():
    done = run(Mine.tiny(), *testing.tiny_case()).finish()
    two = run(FedLink.tiny(), *testing.tiny_case()).finish()
    assert done.server.model["weights"].numel() - 1 == (two.server.model["weights"].numel() - 1) / 2


def test_a_client_joins_the_rounds_once_its_buffer_has_filled():
    """Edges are counted from the last stage it took part in."""
    method = FedLink.tiny().model_copy(update={"join": "full", "capacity": 40})
    joined = {}

    class Spy(FedLink):
        @on_client
        def choose(self, client):
            joined.setdefault(client.name, set()).add(client.place[0])
            return super().choose(client)

    parts, plan = testing.tiny_case()
    run(Spy(**method.model_dump()), parts, plan, seed=7, protocol=testing.PROTOCOL).finish()
    some = False
    for name, part in parts.parts.items():
        waiting, expected = 0, set()
        for t in range(len(plan)):
            waiting += len(plan.stage(part, t))
            if waiting >= 40:
                expected.add(t)
                waiting = 0
        assert joined.get(name, set()) == expected
        some |= 0 < len(expected) < len(plan)
    assert some


@pytest.mark.parametrize("masked", [0.0, 0.5])
@pytest.mark.parametrize("negatives", [1, 3, 20])
def test_negatives_weigh_as_much_as_the_positive_however_many_there_are(negatives, masked):
    class Blind:
        """All scores are 0."""

        def __call__(self, users, items, graph, weight):
            return users, items

        def logits(self, users, items, a, b, cosine):
            return torch.zeros(len(a))

    graph = Bipartite(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]), 2, 2)
    loss = FedLink(negatives=negatives, masked=masked).loss(
        SimpleNamespace(model=Blind()), torch.zeros(2, 4), torch.zeros(2, 4), graph,
        rng("negatives", 0))
    assert float(loss) == pytest.approx(2 * np.log(2))
