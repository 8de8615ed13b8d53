"""Averages under false updates: each rule against a slow reference, and against an attack."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import changed

from fedvine import testing
from fedvine.aggregate.means import Mean, Means
from fedvine.aggregate.rules import least, merged, merged_rows
from fedvine.core import registry, tree
from fedvine.core.errors import FedvineError
from fedvine.core.message import pack, unpack
from fedvine.engines.local import LocalClients
from fedvine.experiments.run import run
from fedvine.methods.dgcolearn import DgCoLearn
from fedvine.methods.fedavg import FedAvg
from fedvine.methods.fedlink import FedLink
from fedvine.methods.fedlink_private import FedLinkPrivate
from fedvine.rivals.mlp import Mlp

RULES = ("clip", "median", "trimmed", "krum")
cases = st.tuples(st.integers(1, 2), st.integers(0, 3), st.integers(1, 6), st.integers(0, 2**32))


# -- references: one number, one client at a time --------------------------------------------------
def slow(rows, rule, f, weights):
    rows, K = [list(map(float, r)) for r in rows], len(rows)
    if rule == "median":
        return [float(np.median(column)) for column in zip(*rows, strict=True)]
    if rule == "trimmed":
        return [sum(sorted(c)[f:K - f]) / (K - 2 * f) for c in zip(*rows, strict=True)]
    if rule == "krum":
        def score(i):
            return sum(sorted(sum((a - b) ** 2 for a, b in zip(rows[i], rows[j], strict=True))
                              for j in range(K) if j != i)[:K - f - 2])
        return rows[min(range(K), key=score)]
    norms = [sum(x * x for x in r) ** 0.5 for r in rows]
    bound, most = float(np.median(norms)), float(np.median(weights))
    used = [min(w, most) for w in weights]
    return [sum(w * x * min(1.0, bound / n) for w, n, x in zip(used, norms, c, strict=True))
            / sum(used) for c in zip(*rows, strict=True)]


@given(cases, st.sampled_from(RULES))
def test_rules_are_those_of_the_reference(case, rule):
    f, more, width, seed = case
    draw = np.random.default_rng(seed)
    rows = draw.normal(size=(max(least(rule, f), 2) + more, width)) * draw.choice([1, 50])
    weights = draw.uniform(0.1, 9.0, len(rows))
    found = merged(torch.from_numpy(rows), rule, f, weights)
    np.testing.assert_allclose(found.numpy(), slow(rows, rule, f, weights), rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@given(st.integers(0, 2**32), st.sampled_from(RULES), st.integers(1, 2))
def test_rows_are_merged_among_the_clients_that_touched_them(seed, rule, f):
    draw = np.random.default_rng(seed)
    names = [f"client-{i}" for i in range(7)]
    parts = {}
    for name in names:
        some = np.sort(draw.choice(12, draw.integers(0, 13), replace=False)).astype(np.int32)
        parts[name] = some, torch.from_numpy(draw.normal(size=(len(some), 3)) * draw.choice([1, 9]))
    scores = dict(zip(names, draw.permutation(7).astype(float), strict=True))
    usual = [np.median(norms) for _, x in parts.values() if len(norms := x.norm(dim=1).numpy())]
    numbers, found, touching = merged_rows(parts, rule, f, scores)
    assert sorted({int(n) for some, _ in parts.values() for n in some}) == numbers.tolist()
    for number, got, count in zip(numbers, found.numpy(), touching, strict=True):
        who = [n for n in names if number in parts[n][0]]
        rows = [parts[n][1][list(parts[n][0]).index(number)].numpy() for n in who]
        assert len(who) == count
        if count <= 2 * f:
            bound = np.median(usual)
            expected = np.mean([r * min(1, bound / np.linalg.norm(r)) for r in rows], axis=0)
        elif rule == "krum":
            expected = rows[who.index(min(who, key=scores.__getitem__))]
        else:
            expected = slow(rows, rule, f, [1.0] * len(rows))
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)


@given(cases, st.sampled_from(RULES))
def test_what_attackers_send_moves_an_average_no_further_than_honest_updates_reach(case, rule):
    """However large f false updates are."""
    f, more, width, seed = case
    draw = np.random.default_rng(seed)
    honest = draw.normal(size=(least(rule, f) - f + more + 2, width))
    false = np.full((f, width), draw.choice([-1e20, 1e20, 1e4]))
    both = torch.from_numpy(np.concatenate([honest, false]))
    if rule == "clip" and f >= len(honest):
        return
    found = merged(both, rule, f).numpy()
    assert np.linalg.norm(found) <= np.linalg.norm(honest, axis=1).max() * np.sqrt(width) + 1e-9
    plain = both.numpy().mean(0)
    assert np.linalg.norm(plain) > 10                                # without a rule


# -- attacks on runs -------------------------------------------------------------------------------
class Attacked(LocalClients):
    """Clients of which the first ones scale what they send by -1000, whatever the method sends."""

    false, times = ("client-0",), -1000.0

    def _deliver(self, name, envelope):
        reply = super()._deliver(name, envelope)
        if name in self.false and reply is not None and (
                envelope.function in ("train", "learn", "train_own")):
            sent = unpack(reply)
            if "size" in sent:
                began = unpack(envelope.body)[0]
                sent["model"] = tree.add(began, tree.subtract(sent["model"], began), self.times)
                sent["size"] = 10**9
            else:
                sent = tree.map_tree(lambda x: x * self.times, sent)
            return pack(sent)
        return reply


def graphs(clients=5):
    """A graph whose features tell the classes, dealt to ``clients``."""
    from federation.labelled import whole

    from fedvine.tasks.task_plan import by_task
    graph = whole(600, 4, 1)
    parts = graph.split("hash", k=clients, seed=0)
    return parts, by_task(graph, 4, shares=(0.4, 0.1, 0.5), seed=0)


def accuracy(robust, engine, **more):
    parts, plan = graphs()
    names = sorted(parts.parts)
    kind = type("Attack", (engine,), {"false": names[:1]}) if engine is Attacked else engine
    method = Mlp(rounds=10, epochs=10, hidden=8, answers="global",
                 aggregate={"rule": robust}, **more)
    return run(method, parts, plan, seed=0, engine=kind).finish()


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_an_attack_that_ruins_an_average_does_not_ruin_a_rule(rule):
    """One of five clients sends its change times -1000, and says that it has most of the nodes."""
    def am(made):
        return made.scores["test"]["mean"]["am"]

    fair, ruined, kept = (am(accuracy(r, e)) for r, e in (
        ("mean", LocalClients), ("mean", Attacked), (rule, Attacked)))
    assert fair > 60 and ruined < fair - 20
    assert kept > fair - 20 and kept > ruined + 15


@pytest.mark.slow
def test_the_status_names_who_is_far_above_the_others():
    made = accuracy("median", Attacked)
    traffic = made.clients.traffic
    outliers = [n for n, its in traffic.items() if its["outlier"]]
    assert outliers == sorted(traffic)[:1] and all(its["norm"] > 0 for its in traffic.values())


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_rows_of_an_attacker_stay_short(rule):
    """FedLink: one of seven clients scales model and rows by -1000; no row runs away."""
    def made(engine, robust):
        stream = testing.tiny_stream(2000)
        split = stream.split("hash", k=7)
        method = FedLink(rounds=2, capacity=60, buffers=2, steps=2, width=4,
                         aggregate={"rule": robust})
        kind = type("Attack", (engine,), {"false": sorted(split.parts)[:1]})
        return run(method, split, stream.by_count(500), seed=0, engine=kind,
                   protocol=testing.PROTOCOL).finish()

    longest = {name: float(made(e, r).server.users.values.norm(dim=1).max()) for name, e, r in (
        ("fair", LocalClients, "mean"), ("ruined", Attacked, "mean"), ("kept", Attacked, rule))}
    assert longest["ruined"] > 20 * longest["fair"]
    assert longest["kept"] < 3 * longest["fair"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["feddgl", "fed4dgnn"])
def test_what_travels_beside_the_average_stays_short(name):
    """FedDGL's prototypes of all clients; models that 4D-FED-GNN+ passes from client to client."""
    def longest(engine, robust):
        stream, handed = testing.tiny_stream(2000), [0.0]

        class Watched(engine):
            times = -1000.0 if name == "fed4dgnn" else -30.0    # above 1e6 they would be refused

            def _deliver(self, client, envelope):
                if envelope.function == "train_own":
                    model = unpack(envelope.body)[0]["model"]
                    handed.append(float(tree.flattened(model).norm()))
                return super()._deliver(client, envelope)

        split = stream.split("hash", k=5)
        Watched.false = sorted(split.parts)[:1]
        fields = {"rounds": 2, "steps": 2, "width": 4, "aggregate": {"rule": robust}}
        made = run(registry.method(name)(**fields), split, stream.by_count(500), seed=0,
                   engine=Watched, protocol=testing.PROTOCOL).finish()
        return (float(made.server.prototypes.norm(dim=-1).max()) if name == "feddgl" else
                max(handed))

    fair = longest(LocalClients, "mean")
    assert longest(Attacked, "mean") > 5 * fair
    assert longest(Attacked, "clip") < 3 * fair


@pytest.mark.slow
@pytest.mark.parametrize(("name", "rule"), [
    ("fedlink", "median"), ("fedavg", "clip"), ("dgcolearn", "median"), ("scaffold", "clip"),
    ("power", "median"), ("feddgl", "clip"), ("fed4dgnn", "median"), ("target", "clip")])
def test_the_contract_holds_with_a_rule(name, rule):
    more = {"schedule": "before"} if name == "dgcolearn" else {}
    method = changed(registry.method(name).tiny(), aggregate={"rule": rule}, **more)
    testing.check_engines_agree(method)
    testing.check_missing_replies(method)


# -- refusals --------------------------------------------------------------------------------------
def test_krum_of_too_few_is_refused_in_one_sentence():
    with pytest.raises(FedvineError, match='rule = "krum" with attackers = 1 needs 5 '
                       "clients, and this run has 3"):
        testing.run_small(changed(FedLink.tiny(), aggregate={"rule": "krum"})).finish()
    of_two = changed(FedAvg.tiny(), aggregate={"rule": "median", "attackers": 2})
    with pytest.raises(FedvineError, match="needs 5 clients"):
        testing.run_small(of_two).finish()
    few = SimpleNamespace(everyone=tuple("abc"))
    assert [Mean(rule="median").rule_for(few, n) for n in (3, 2)] == ["median", "clip"]


@pytest.mark.parametrize(("kind", "fields", "words"), [
    (FedLinkPrivate, {}, "Extra inputs are not permitted"),
    (registry.method("power_plus"), {"aggregate": {"rule": "median", "secure": True}},
     "secure sums hide single updates"),
    (DgCoLearn, {}, "set schedule = \"before\""),
    (registry.method("local"), {}, "Extra inputs are not permitted"),
    (registry.method("fedgta"), {}, "Extra inputs are not permitted"),
    (FedLink, {"aggregate": {"rule": "krum"}, "share": ("users",)}, "krum measures distances of")])
def test_what_a_rule_cannot_protect_is_refused(kind, fields, words):
    with pytest.raises(ValueError, match=words):
        kind(**{"aggregate": {"rule": "median"}, **fields})


def test_without_a_rule_nothing_is_kept_and_the_mean_is_the_weighted_one():
    draw = np.random.default_rng(0)
    models = {n: {"w": torch.from_numpy(draw.normal(size=4))} for n in "abc"}
    clients = SimpleNamespace(names=tuple("abc"), measured=lambda norms: seen.update(norms))
    seen = {}
    found = Means().average(clients, models, {"w": torch.zeros(4)}, [1, 2, 3])
    assert torch.equal(found["w"], tree.mean(models.values(), [1, 2, 3])["w"])
    assert json.dumps(seen) and set(seen) == set("abc")
