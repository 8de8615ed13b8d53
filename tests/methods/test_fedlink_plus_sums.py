"""fedlink_plus: sums in fixed point are those of floats, and noise is bounded and accounted."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from hypothesis.extra.numpy import arrays

from fedvine.aggregate.noise import spent
from fedvine.core.ledger import Ledger, seeded
from fedvine.core.state import Client, World
from fedvine.methods._fedlink_plus import newton, samples
from fedvine.methods._fedlink_plus.features import PARTS, WIDTH
from fedvine.methods._fedlink_plus.newton import Newton, derivatives
from fedvine.methods.fedlink_plus import FedLinkPlus
from fedvine.testing import PROTOCOL, run, tiny_case, tiny_stream

SMALL = FedLinkPlus.tiny().model_dump()
NOISY = SMALL | {"share": "none", "aggregate": {"noise": 4.0, "secure": False}}
CLIENTS = 3


def made(on_round=None, **settings):
    """Return a finished run on a small stream; its noise, if any, is the same in every run."""
    found = run(FedLinkPlus(**settings), *tiny_case(tiny_stream(600, 3)), seed=5,
                protocol=PROTOCOL, on_round=on_round, fresh=seeded(5))
    return found.finish()


def test_a_client_whose_counts_did_not_come_takes_nothing_away(monkeypatch):
    entered = []
    monkeypatch.setattr(samples, "enter_totals", lambda client, others: entered.append(others))
    done = made(**SMALL | {"share": "sums", "aggregate": {"secure": False}})
    bob, others = done.clients.workers["bob"].client, np.arange(SMALL["buckets"], dtype=float)
    own = bob.met["counts"]
    del entered[:]
    done.method.total(bob, others + own)
    done.method.total(bob, others, ["bob"])
    assert own.any() and all((one == others).all() for one in entered)


def test_a_client_takes_away_what_it_sent_also_where_that_was_shortened(monkeypatch):
    entered = []
    monkeypatch.setattr(samples, "enter_totals", lambda client, others: entered.append(others))
    done = made(**NOISY | {"share": "sums", "buckets": 64, "clip_counts": 1.0})
    bob, others = done.clients.workers["bob"].client, np.arange(64, dtype=float)
    own = bob.met["counts"]
    del entered[:]
    done.method.total(bob, others + own / np.linalg.norm(own))
    assert np.linalg.norm(own) > 1 and entered[0] == pytest.approx(others)


# -- without noise ---------------------------------------------------------------------------------
@pytest.mark.parametrize("share", ["sums", "none"])
def test_fixed_point_finds_the_solution_of_floats_in_ten_steps(share):
    """Each stage's search is done again from the clients' edges, in floats."""
    plain, steps, places = Newton(1.0), Counter(), []

    def search(at, clients):
        steps.update((one["t"], one["function"]) for one in clients.log
                     if one["function"] in ("derive", "counted"))
        clients.log.clear()
        if at.r:
            return
        places.append(at.t)
        plain.begin()
        for _ in range(10):
            if plain.done:
                break
            plain.take(np.sum([derivatives(w.client.samples, plain.trial)
                               for w in clients.workers.values()], 0), 8)
        pairs[:] = [one["edges"].reshape(-1, WIDTH) for w in clients.workers.values()
                    for one in w.client.samples]

    pairs = []
    done = made(search, **SMALL | {"share": share, "rounds": 10, "sampled": 100, "negatives": 8,
                                   "stages": 10, "aggregate": {"secure": False}})
    assert places == list(range(len(places))) and len(places) > 3
    x = np.concatenate(pairs).astype(float)
    x = x[~np.isnan(x).any(1)]              # an edge may have fewer negatives
    scores, other = x @ plain.w, x @ done.server.newton.w
    assert scores.std() > 0.5
    assert np.sqrt(np.square(other - scores).mean()) <= 1e-6 * np.sqrt(np.square(scores).mean())
    for t in places:
        assert 1 <= steps[t, "derive"] <= 10
        assert steps[t, "counted"] == (share == "sums")


def test_a_sum_that_is_masked_takes_five_calls():
    functions = Counter()

    def count(at, clients):
        functions.update(one["function"] for one in clients.log if one["t"] == 1)
        clients.log.clear()

    made(count, **SMALL | {"share": "sums", "buckets": 64, "aggregate": {"secure": True}})
    sums = sum(functions[name] for name in ("measures", "counted", "derive", "compare"))
    assert functions["measures"] == functions["counted"] == 1 <= functions["derive"] <= 3
    assert {functions[f] for f in ("sum_keys", "sum_shares", "sum_agree", "sum_unmask")} == {sums}


def test_parts_that_are_left_out_have_no_weight():
    with pytest.raises(ValueError, match="there is no part pears"):
        FedLinkPlus(without=("pears",))
    done = made(**SMALL | {"without": ("pairs", "neighbours"), "check": False})
    w = done.server.newton.w
    for part, (begin, end) in PARTS.items():
        assert w[begin:end].any() == (part in ("items", "curves", "steps", "clocks")), part
    assert set(done.server.chosen) == {"all"}
    whole = made(**SMALL | {"check": False})
    assert whole.server.newton.w[slice(*PARTS["pairs"])].any()


def test_rows_have_no_noise():
    with pytest.raises(ValueError, match="rows that travel would show"):
        FedLinkPlus(aggregate={"noise": 1.0})
    assert FedLinkPlus(aggregate={"noise": 1.0}, share="none").hides


@pytest.mark.parametrize(("share", "sums"), [("none", 1), ("sums", 2)])
def test_the_summary_says_what_was_spent_and_nothing_else_is_summed(share, sums):
    functions = Counter()

    def count(at, clients):
        functions.update(one["function"] for one in clients.log)
        clients.log.clear()

    done = made(count, **NOISY | {"share": share, "buckets": 64})
    stages = done.summary["stages"]
    assert done.summary["privacy"] == spent(4.0, sums * stages, 1e-5)
    assert functions["derive_means"] == stages and functions["counted"] == (sums - 1) * stages
    assert not functions["measures"] + functions["derive"] + functions["lend"]


def edges(seed: int, scale: float = 1.0) -> dict[str, np.ndarray]:
    """Return differences of features [n, m, WIDTH], and weights, as clients keep them."""
    draw = np.random.default_rng(seed)
    D = scale * draw.normal(size=(60, 4, WIDTH)) * draw.uniform(0.2, 3, WIDTH)
    return {"edges": D.astype(np.float32),
            "weights": draw.choice([1.0, 2.0], 60).astype(np.float32)}


def test_means_are_those_of_a_loop_over_edges():
    newest = edges(0)
    D, weights = newest.values()
    w = np.zeros(WIDTH)
    w[newton.COLUMNS] = np.random.default_rng(1).normal(size=newton.MANY) / 8
    gradient, hessian = np.zeros(newton.MANY), np.zeros((newton.MANY, newton.MANY))
    for x, each in zip(D[:, :, newton.COLUMNS] / newton.SIZES, weights, strict=True):
        score = x @ (w[newton.COLUMNS] * newton.SIZES)
        p = np.exp(score) / (1 + np.exp(score).sum())
        gradient += each * p @ x
        hessian += each * ((x.T * p) @ x - np.outer(p @ x, p @ x))
    found = newton.means(newest, w)
    assert found[:newton.MANY] == pytest.approx(gradient / weights.sum(), rel=1e-3, abs=1e-4)
    assert found[newton.MANY:] == pytest.approx(
        hessian[np.triu_indices(newton.MANY)] / weights.sum(), rel=1e-3, abs=1e-4)
    assert not newton.means({k: x[:0] for k, x in newest.items()}, w).any()


def test_without_noise_steps_end_at_the_minimum_with_the_ridge_towards_the_prior():
    newest = edges(2, 0.3)
    search = newton.Noisy(WIDTH, 1.0, 0.2)
    for _ in range(60):
        search.begin()
        assert not search.done
        search.take(newton.means(newest, search.w), 0.0)
        assert search.done
    stages = 1 / (1 - 0.2)              # the sums of all stages, which are the same
    slope = stages * newton.means(newest, search.w)[:newton.MANY]
    assert slope == pytest.approx(newton.PRIOR - search.w[newton.COLUMNS] * newton.SIZES, abs=1e-3)


@given(arrays(np.float64, newton.LENGTH, elements=some.floats(-1e6, 1e6)), some.floats(0, 1e6))
def test_sums_of_noise_alone_move_the_weights_no_further_than_they_weigh(sums, deviation):
    search = newton.Noisy(WIDTH, 0.3, 0.9)
    search.take(sums, deviation)
    moved = search.w[newton.COLUMNS] * newton.SIZES - newton.PRIOR
    ridge = 0.3 + np.sqrt(newton.MANY) * deviation
    # |(H+ + r)^-1 (H p - g - H+ p)| <= (|g| + |H-| |p|) / r
    least = np.maximum(-np.linalg.eigvalsh(search.hessian), 0).max()
    bound = (np.linalg.norm(sums[:newton.MANY]) + least * np.linalg.norm(newton.PRIOR)) / ridge
    assert np.linalg.norm(moved) <= bound * (1 + 1e-6) + 1e-6


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_a_client_moves_a_sum_by_no_more_than_the_bound(scale):
    """With a multiplier that is next to nothing what is left is the bounded upload."""
    method = FedLinkPlus(**NOISY | {"aggregate": {"noise": 1e-5, "secure": False}})
    client = Client("ada", World(tuple("abc"), 0, 1), ledger=Ledger(fresh=seeded(0)))
    found = newton.means(edges(3, scale), np.zeros(WIDTH))
    sent = method.aggregate.protected(client, method.part(found, method.clip, 10), None)
    assert np.linalg.norm(sent) <= method.clip + 1e-4
    assert sent == pytest.approx(found * min(1, method.clip / np.linalg.norm(found)), abs=3e-5)


def test_counts_within_the_noise_are_taken_as_nothing():
    done = made(**NOISY | {"share": "sums", "buckets": 64,
                            "aggregate": {"noise": 20.0, "secure": False}})
    away = [w.client.counts.items.away for w in done.clients.workers.values()]
    assert sum(int((a[:, 2] > 0).sum()) for a in away) < 0.05 * sum(map(len, away))
    plain = made(**SMALL | {"share": "sums", "buckets": 64, "check": False,
                            "aggregate": {"secure": False}})
    found = made(**NOISY | {"share": "sums", "buckets": 64,
                             "aggregate": {"noise": 1e-5, "secure": False}})
    for name, worker in plain.clients.workers.items():
        other = found.clients.workers[name].client.counts.items.away
        # noise and what is cut off add up to .003 at most in twelve seeds, and counts are above 1
        assert other == pytest.approx(worker.client.counts.items.away, abs=0.05)
