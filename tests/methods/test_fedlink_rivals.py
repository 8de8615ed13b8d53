"""FedLink's rivals under the contract suite, and each of their components against its formula."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedvine import testing
from fedvine.core import tree
from fedvine.core.method import on_client
from fedvine.core.rng import rng
from fedvine.nn.sage import Bipartite, BipartiteSage
from fedvine.rivals.fed4dgnn import Fed4DGnn, follow
from fedvine.rivals.feddgl import FedDGL, Lesson, moved_most
from fedvine.rivals.feddy import Feddy, Snapshots, TemporalSage


def _tiny(method, **fields):
    return method.tiny().model_copy(update=fields)


# -- 4D-FED-GNN+ -----------------------------------------------------------------------------------
def _pairs(draw, n=40, users=9, items=7):
    return np.stack([draw.integers(0, users, n), draw.integers(0, items, n)]).astype(np.int32)


def test_the_generator_asks_for_the_newest_from_messages_over_the_former_alone():
    draw = rng(0, "follow")
    former, newest = _pairs(draw) + 1, _pairs(draw) + 2
    batch = follow(former, newest, "cpu")
    asked = {(int(batch.users[u]), int(batch.items[i])): int(n) for u, i, n in
             zip(batch.graph.src, batch.graph.dst, batch.graph.count, strict=True) if n}
    pairs, times = np.unique(newest, axis=1, return_counts=True)
    assert asked == {(int(u), int(i)): int(n) for (u, i), n in zip(pairs.T, times, strict=True)}
    assert batch.graph.weight.tolist() == batch.graph.count.tolist()
    plain = Bipartite(np.searchsorted(batch.users, former[0]),
                      np.searchsorted(batch.items, former[1]), len(batch.users), len(batch.items))
    net = BipartiteSage(4, seed=1)
    torch.nn.init.ones_(net.weights_of(0)[0][2][0])        # of degrees
    rows = [torch.from_numpy(draw.normal(size=(len(n), 4))).float()
            for n in (batch.users, batch.items)]
    for weight in (batch.graph.weight, torch.zeros_like(batch.graph.weight)):
        for a, b in zip(net(*rows, batch.graph, weight), net(*rows, plain, plain.weight),
                        strict=True):
            torch.testing.assert_close(a, b)


def test_models_are_passed_on_in_a_ring_and_averaged_in_the_last_round():
    began, ended = {}, {}

    class Spy(Fed4DGnn):
        @on_client
        def train_own(self, client, sent):
            place = client.place[:2]
            began.setdefault(place, {})[client.name] = tree.clone(sent["model"])
            delta = super().train_own(client, sent)
            ended.setdefault(place, {})[client.name] = tree.add(sent["model"], delta["model"])
            return delta

    made = testing.run_small(Spy(**_tiny(Fed4DGnn, rounds=3, meeting=3).model_dump()))
    for stage in made:
        t = stage.t
        for r in (2, 3):
            ring = {name: next(by for by, end in ended[t, r - 1].items()
                               if all(torch.equal(end[n], v) for n, v in model.items()))
                    for name, model in began[t, r].items()}
            assert sorted(ring.values()) == sorted(ring)         # nobody's model is lost
            assert all(to != by for to, by in ring.items())
        for name, value in tree.mean(ended[t, 3].values()).items():
            torch.testing.assert_close(made.server.model[name], value)
        assert made.server.handed == {}
    assert t == 3


# -- FedDGL ----------------------------------------------------------------------------------------
def test_the_terms_have_the_gradients_of_the_written_formula():
    draw, d, levels = rng(0, "terms"), 3, 3
    z = [torch.from_numpy(draw.normal(size=(n, d))).requires_grad_() for n in (6, 5)]
    at = [torch.tensor([1, 4]), torch.tensor([0])]
    taught = [torch.from_numpy(draw.normal(size=(len(a), d))) for a in at]
    level = [torch.tensor([0, 0, 1, 0, 1, 1]), torch.tensor([2, 0, 0, 2, 1])]
    prototypes = torch.from_numpy(draw.normal(size=(2, levels, d)))
    prototypes[1, 1] = 0                                        # which nobody has met
    lesson = Lesson(at, taught, level, list(prototypes))
    value = lesson.terms(z, distil=0.7, pull=0.3)
    value.backward()
    classes = [(s, c) for s in (0, 1) for c in range(levels)
               if (level[s] == c).any() and (s, c) != (1, 1)]
    assert len(classes) == 4
    total = 0.0
    for s in (0, 1):
        want = torch.zeros_like(z[s])
        for n, target in zip(at[s].tolist(), taught[s], strict=True):
            off = z[s][n].detach() - target
            total += 0.7 * float(off @ off) / (3 * d)
            want[n] += 0.7 * 2 * off / (3 * d)
        for _, c in (k for k in classes if k[0] == s):
            members = [n for n in range(len(z[s])) if level[s][n] == c]
            off = sum(z[s][n].detach() for n in members) / len(members) - prototypes[s, c]
            total += 0.3 * float(off @ off) / (len(classes) * d)
            for n in members:
                want[n] += 0.3 * 2 * off / (len(members) * len(classes) * d)
        torch.testing.assert_close(z[s].grad, want)
    assert value.item() == pytest.approx(total)


def test_sensitive_nodes_are_those_whose_embedding_moved_most():
    draw = rng(0, "moved")
    then, today = (torch.from_numpy(draw.normal(size=(50, 4))).float() for _ in range(2))
    known = np.sort(draw.choice(50, 31, replace=False))
    far = {int(n): float((today[n] - then[n]).norm()) for n in known}
    slow = sorted(sorted(far, key=lambda n: -far[n])[:math.ceil(0.1 * 31)])
    assert moved_most(then, today, known, 0.1).tolist() == slow
    assert moved_most(then, today, known[:0], 0.1).tolist() == []


def test_prototypes_are_the_means_over_all_clients_by_activity():
    seen = {}

    class Spy(FedDGL):
        def loss(self, client, users, items, graph, draw):
            loss, model = super().loss(client, users, items, graph, draw), client.model
            degrees = [np.zeros(graph.users), np.zeros(graph.items)]
            for u, i, n in zip(graph.src, graph.dst, graph.count, strict=True):
                degrees[0][u] += n
                degrees[1][i] += n
            seen[id(model)] = [(z.detach().clone(), d) for z, d in
                               zip(model.made, degrees, strict=True)]
            return loss

    made = testing.run_small(Spy(**FedDGL.tiny().model_dump()))
    for stage in made:
        if stage.t == 2:
            break
    assert len(seen) == 3
    checked = 0
    for side in (0, 1):
        for level in range(made.method.levels):
            rows = [z[n] for by in seen.values() for z, degree in [by[side]]
                    for n in range(len(z)) if 2**level <= degree[n] < 2**(level + 1)]
            if rows:
                torch.testing.assert_close(made.server.prototypes[side, level],
                                           torch.stack(rows).mean(0), rtol=1e-4, atol=1e-5)
                checked += 1
    assert checked > 4


# -- Feddy -----------------------------------------------------------------------------------------
def test_temporal_aggregation_equals_a_node_by_node_reference():
    draw, users, items, d = rng(0, "feddy"), 8, 6, 4
    src, dst = _pairs(draw, 60, users, items)
    age = np.sort(draw.integers(0, 4, 60))[::-1].copy()
    src[age == 2] = 1                                   # a snapshot with a single user
    graph = Snapshots(src, dst, age, users, items)
    graph.past.weight, graph.seen = graph.past.weight.double(), tuple(
        s.double() for s in graph.seen)
    net = TemporalSage(d, seed=3).double()
    with torch.no_grad():
        for p in net.parameters():
            p.add_(torch.from_numpy(draw.normal(size=p.shape)) / 3)
    w = {n: p.detach().numpy() for n, p in net.named_parameters()}
    for n in range(2):
        for side, (own, near, rest) in zip(("user", "item"), net.weights_of(n), strict=True):
            w |= {f"{side}_{part}_{n}": x.detach().numpy() for part, x in zip(
                ("self", "near", "degree", "bias"), (own, near, *rest), strict=True)}
    x = {"user": draw.normal(size=(users, d)), "item": draw.normal(size=(items, d))}

    def near(side, node, s):
        return [int(b) for a, b, at in (zip(src, dst, age, strict=True) if side == "user" else
                                        zip(dst, src, age, strict=True)) if a == node and at == s]

    def layer(layer, h, side, node, s):
        other, at = ("item" if side == "user" else "user"), near(side, node, s)
        mean = np.mean([h(other, n, s) for n in at], axis=0) if at else np.zeros(d)
        return (h(side, node, s) @ w[f"{side}_self_{layer}"] + mean @ w[f"{side}_near_{layer}"]
                + w[f"{side}_degree_{layer}"] * np.log1p(len(at)) + w[f"{side}_bias_{layer}"])

    def hidden(side, node, s):
        return np.maximum(layer(0, lambda kind, n, _: x[kind][n], side, node, s), 0)

    made = net(*(torch.from_numpy(x[s]) for s in ("user", "item")), graph, graph.weight.double())
    for side, count, z in (("user", users, made[0]), ("item", items, made[1])):
        for node in range(count):
            then = [hidden(side, node, s) for s in (1, 2, 3) if near(side, node, s)]
            past = np.mean(then, axis=0) if then else np.zeros(d)
            slow = layer(1, hidden, side, node, 0) + past @ w[f"{side}_time"]
            np.testing.assert_allclose(z[node].detach().numpy(), slow, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("former", [None, 0, 1])
def test_snapshots_are_the_stages(former):
    made = testing.run_small(_tiny(Feddy, former=former))
    checked = 0
    for stage in made:
        for name, part in made.parts.items():
            src, dst, age = made.method.snapshots(made.clients.workers[name].client)
            for s in range(stage.t + 1):
                want = made.plan.stage(part, stage.t - s)
                kept = former is None or s <= former
                assert src[age == s].tolist() == (want.src.tolist() if kept else [])
                assert dst[age == s].tolist() == (want.dst.tolist() if kept else [])
                checked += 1
            assert (age <= stage.t).all()
    assert checked == 3 * (1 + 2 + 3 + 4)


def test_a_stage_without_edges_has_an_empty_newest_snapshot():
    """Whether or not the client kept the batch of the stage before."""
    past = testing.tiny_stream(30)
    client = SimpleNamespace(past=past, ends=np.array([0, 30]), cache={})
    assert len(_tiny(Feddy).batch(client, None).graph)
    client.ends = np.append(client.ends, 30)
    batch = _tiny(Feddy).batch(client, None)
    assert not len(batch.graph) and len(batch.graph.past)
