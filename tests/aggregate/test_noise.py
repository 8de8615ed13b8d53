"""Noise: exact samples, kept before they leave, never the same for another upload, accounted."""

import json
import math

import numpy as np
import pytest
import torch
from engines.test_remote import Federation
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats
from toys import changed, listening

from fedvine import testing
from fedvine.aggregate.discrete_gaussian import Stream, _fill, discrete_gaussian
from fedvine.aggregate.noise import BITS, blurred, cost, from_fixed, noised, steps, to_fixed
from fedvine.core.errors import FedvineError
from fedvine.core.ledger import Ledger, Spent, epsilon, seeded
from fedvine.core.state import Client, World
from fedvine.engines.faults import MockClients
from fedvine.engines.local import LocalClients
from fedvine.experiments.run import run
from fedvine.methods.fedlink_private import FedLinkPrivate, PrivateSum
from fedvine.methods.power import Power
from fedvine.methods.power_plus import PowerPlus
from fedvine.rivals.fedsage_dyn import FedSageDyn

KEY = bytes(range(7, 39))
NOISY = changed(FedLinkPrivate.tiny(), aggregate={"clip": 0.5, "noise": 2.0})


def pmf(sigma, reach=40):
    """The discrete Gaussian by its definition: [-reach sigma, reach sigma] and probabilities."""
    x = np.arange(-math.ceil(reach * sigma), math.ceil(reach * sigma) + 1)
    p = np.exp(-(x / sigma) ** 2 / 2)
    return x, p / p.sum()


# -- samples ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("sigma", [1, 2, 3, 7])
def test_samples_have_the_probabilities_of_the_definition(sigma):
    drawn = discrete_gaussian(sigma, 200_000, KEY)
    x, p = pmf(sigma)
    often = p * len(drawn) > 10
    seen = np.array([(drawn == v).sum() for v in x[often]])
    expected = p[often] / p[often].sum() * seen.sum()
    assert stats.chisquare(seen, expected).pvalue > 1e-3
    assert np.isin(drawn, x).all()


@pytest.mark.slow
def test_no_random_word_is_skipped():
    """However many words are drawn at a time, samples are a function of the stream alone."""
    many, at_once = discrete_gaussian(50, 400_000, KEY), np.empty(400_000, np.int64)
    done, _ = _fill(at_once, 0, np.uint64(50), Stream(KEY).words(12_000_000))
    assert done == len(many) and (many == at_once).all()
    for count in (1, 2, 1000, 1400):
        np.testing.assert_array_equal(discrete_gaussian(50, count, KEY), many[:count])
    assert not (discrete_gaussian(50, 1000, KEY[::-1]) == many[:1000]).mean() > 0.1


def test_words_are_those_of_chacha20():
    """RFC 8439, A.1, test vector 1: the key of zeros."""
    assert Stream(bytes(32)).words(2).tobytes().hex() == "76b8e0ada0f13d90405d6ae55386bd28"


@pytest.mark.parametrize("sigma", [0, -1, (1 << 40) + 1])
def test_a_deviation_out_of_range_is_refused(sigma):
    with pytest.raises(FedvineError, match="cannot be drawn"):
        discrete_gaussian(sigma, 3, KEY)


# -- what it costs ---------------------------------------------------------------------------------
@pytest.mark.parametrize("clients", [1, 2, 3])
@pytest.mark.parametrize("sigma", [0.6, 1.0, 2.0])
def test_the_cost_bounds_the_divergence_of_true_sums(clients, sigma):
    """Sums of discrete Gaussians are convolved, moved by one step, and compared exactly."""
    total = p = pmf(sigma, 30)[1]
    for _ in range(clients - 1):
        total = np.convolve(total, p)
    a, b = total[:-1], total[1:]                         # the same sum, one client's value moved
    there = (a > 1e-280) & (b > 1e-280)
    rho = cost(0.0, sigma, 1, clients)                   # rounding alone moves by one step
    for alpha in (1.5, 2.0, 4.0, 16.0):
        renyi = special.logsumexp(alpha * np.log(a[there]) + (1 - alpha) * np.log(b[there])
                                  ) / (alpha - 1)
        assert renyi <= rho * alpha * (1 + 1e-9)
    if clients == 1:                                     # one is exactly a discrete Gaussian
        assert rho == pytest.approx(1 / (2 * sigma**2))


def exact_epsilon(mu, delta):
    """Epsilon of a continuous Gaussian mechanism (Balle and Wang 2018)."""
    low, high = 0.0, 200.0
    for _ in range(100):
        e = (low + high) / 2
        found = stats.norm.cdf(mu / 2 - e / mu) - math.exp(e) * stats.norm.cdf(-mu / 2 - e / mu)
        low, high = (e, high) if found > delta else (low, e)
    return high


@pytest.mark.slow
@given(st.floats(0.01, 4.0), st.sampled_from([1e-3, 1e-5, 1e-8]))
def test_epsilon_is_above_the_exact_one_and_near_it(mu, delta):
    found, exact = epsilon(mu**2 / 2, delta), exact_epsilon(mu, delta)
    assert exact <= found <= 1.3 * exact + 0.05
    assert epsilon(0.0, delta) == 0.0


def test_the_noise_is_never_less_than_asked_for():
    for size in (1, 1000, 10**7):
        for clients in (1, 3, 10):
            sigma = steps(2.0 * 0.01, 0.01, size, clients)
            assert cost(0.01, sigma, size, clients) <= 1 / (2 * 2.0**2)
            assert sigma < 1.1 * 2.0 * 0.01 * 2**BITS / clients**0.5 + 1
    with pytest.raises(FedvineError, match="too small"):
        steps(1e-7, 1e-7, 10)


# -- the ledger ------------------------------------------------------------------------------------
def client(file=None, run_="a run", **options):
    made = Client("ada", World(("ada", "bob", "cyd"), 0, 3),
                  ledger=Ledger(file, "ada", run_, **options))
    made.place = (1, 2, 3)
    return made


X = np.linspace(-1, 1, 50)


def upload(who, x=X, participants=("ada", "bob", "cyd"), **more):
    return noised(who, x, 1.0, 0.5, participants=participants, clients=3, **more)


def test_noise_has_the_deviation_and_the_values_are_below_it():
    sent = from_fixed(noised(client(fresh=seeded(1)), np.full(100_000, 3.0), 2.0, None)) - 3.0
    assert stats.kstest(sent / 2.0, "norm").pvalue > 1e-4


def test_a_round_that_is_played_again_sends_the_same_bytes(tmp_path):
    """Also by a process that was killed after it wrote, and before it sent."""
    file = tmp_path / "noise.jsonl"
    first, spent = upload(client(file)), client(file).ledger.spent()
    assert file.stat().st_mode & 0o077 == 0
    for _ in range(3):
        np.testing.assert_array_equal(upload(client(file)), first)
    assert client(file).ledger.spent() == spent > 0


@pytest.mark.parametrize("change", [
    {"participants": ("ada", "bob")}, {"x": X + 0.1}, {"place": (1, 2, 4)}, {"run_": "another"},
    {"purpose": "more"}], ids=lambda c: next(iter(c)))
def test_any_other_release_has_fresh_noise_and_is_charged(tmp_path, change):
    file = tmp_path / "noise.jsonl"
    first, more = upload(client(file, fresh=seeded(1))), dict(change)
    spent, x = client(file).ledger.spent(), more.pop("x", X)
    who = client(file, more.pop("run_", "a run"), fresh=seeded(2))
    who.place = more.pop("place", who.place)
    again = upload(who, x, **more)
    apart = from_fixed(again - to_fixed(x)) - from_fixed(first - to_fixed(X))
    assert apart.std() == pytest.approx(math.sqrt(2 / 3), rel=0.4)
    assert client(file).ledger.spent() == pytest.approx(2 * spent)


def test_a_sum_that_was_opened_without_somebody_is_not_opened_with_them(tmp_path):
    """The same noise in both would show the upload of the one who was away."""
    file = tmp_path / "noise.jsonl"
    who = client(file)
    first = upload(who)
    who.ledger.opened(who.sums["released"], ["ada", "bob"])        # cyd vanished
    again = client(file)
    assert (upload(again) != first).all()
    again.ledger.opened(again.sums["released"], ["ada", "bob", "cyd"])
    same = client(file)
    second = upload(same)
    with pytest.raises(FedvineError, match="a second time, of other clients"):
        same.ledger.opened(same.sums["released"], ["ada", "bob"])
    assert (upload(client(file)) != second).all()


def test_a_line_that_a_kill_cut_off_is_dropped_and_any_other_damage_named(tmp_path):
    file = tmp_path / "noise.jsonl"
    first = upload(client(file))
    with file.open("a") as handle:
        handle.write('{"release": "half a li')
    np.testing.assert_array_equal(upload(client(file)), first)
    upload(client(file, "another"))
    assert len(file.read_text().splitlines()) == 2
    file.write_text("no json\n" + file.read_text())
    with pytest.raises(FedvineError, match="line 1 is no release"):
        client(file)


def test_a_spent_limit_stops_new_releases_of_any_run_and_repeats_old_ones(tmp_path):
    file = tmp_path / "noise.jsonl"
    first = upload(client(file))
    limit = 1.5 * epsilon(client(file).ledger.spent(), 1e-5)
    upload(client(file, "two", limit=limit))                        # two cost 1.46 x one here
    with pytest.raises(Spent, match="is spent: one more answer would make epsilon"):
        upload(client(file, "three", limit=limit))
    np.testing.assert_array_equal(upload(client(file, limit=limit)), first)
    assert len(file.read_text().splitlines()) == 2


# -- runs ------------------------------------------------------------------------------------------
def first_sum(seed, fresh):
    """What the server learns in the first round of a run with noise: the opened sum."""
    seen = []

    class Watched(PrivateSum):
        def sum(self, clients, function, *same, **options):
            found = super().sum(clients, function, *same, **options)
            if function.__name__ == "upload":
                seen.append(from_fixed(found[0]))
            return found

    class Method(FedLinkPrivate):
        aggregate: Watched = Watched()

    parts, plan = testing.tiny_case()
    method = Method(**{**NOISY.model_dump(), "rounds": 1})
    run(method, parts, plan.cut(1), seed=seed, fresh=fresh).finish()
    return seen[0]


@pytest.mark.slow
def test_the_difference_of_two_runs_is_noise_and_nothing_else():
    """Of the same seed and data: 200 numbers of it, against theory: all three must stay."""
    one, two = first_sum(0, seeded("one")), first_sum(0, seeded("two"))
    theory = 2.0 * 0.5 * math.sqrt(2)
    apart = (one - two)[:200] / theory
    assert len(apart) == 200 and stats.kstest(apart, "norm").pvalue > 0.01
    assert apart.std() == pytest.approx(1.0, abs=0.15)
    assert np.abs(one - first_sum(0, seeded("one"))).max() == 0     # the rest is a function of both
    system = first_sum(0, None) - first_sum(0, None)
    assert np.abs(system).min() > 0 and 0.8 < (system / theory).std() < 1.2


@pytest.mark.slow
@pytest.mark.parametrize("method", [
    NOISY, Power.tiny().model_copy(update={"clip": 1.0, "noise": 1.0}),
    PowerPlus.tiny().model_copy(update={"clip": 1.0, "noise": 1.0, "width": 0, "hops": 0}),
    FedSageDyn.tiny()], ids=lambda m: m.name)
def test_no_method_draws_its_noise_from_the_runs_seed(method):
    """Two runs differ; with injected keys they are equal, whatever the engine does to them."""
    def left(**options):
        return testing._outcome(testing.run_small(method, **options))

    assert left(fresh=None) != left(fresh=None)
    assert left() == left(engine=MockClients, twice=True, forget=True)
    testing.check_killed_in_a_round(method)


def test_a_run_that_was_killed_goes_on_with_the_noise_it_had(tmp_path):
    """By the operating system's keys: the run's folder has them."""
    class Killed(Exception):
        pass

    def stop(at, clients):
        if (at.t, at.r) == (2, 1) and "twice" not in seen:
            seen.append("twice")
            raise Killed

    seen, sent = [], []

    def note(name, envelope, reply):
        if envelope.function == "upload":
            sent.append((name, envelope.place, b"".join(map(bytes, reply.buffers))))

    engine = listening(note, LocalClients)
    method = changed(NOISY, aggregate={"secure": False})
    with pytest.raises(Killed):
        testing.run_small(method, engine=engine, out=tmp_path / "r", fresh=None,
                          on_round=stop).finish()
    before = {(n, p): b for n, p, b in sent}
    done = testing.run_small(method, engine=engine, out=tmp_path / "r", fresh=None).finish()
    again = [(n, p) for n, p, _ in sent].count(("ada", (2, 1, 1, 0)))
    assert again == 2 and all(before.get((n, p), b) == b for n, p, b in sent)
    for worker in done.clients.workers.values():
        assert worker.ledger.summary()["releases"] == 8             # none was charged twice


@pytest.mark.slow
def test_a_site_whose_limit_is_spent_is_silent_and_the_run_goes_on(tmp_path):
    """In this run, in the next one on its table, and after a restart."""
    method = changed(NOISY, aggregate={"threshold": 0.5, "secure": False})
    made = Federation(tmp_path, method, quorum=0.6)
    one = epsilon(3.5 / (2 * 2.0**2), 1e-5)                          # three releases, not four
    made.sites["bob"].ledger.keywords["limit"] = one
    done = made.run().finish()
    uploads = [line for line in lines(made) if line["function"] == "upload"]
    assert [line["missing"] for line in uploads] == 3 * [[]] + (len(uploads) - 3) * [["bob"]]
    assert "its limit of privacy is spent" in uploads[3]["refused"]["bob"]
    assert done.summary["scores"]["test"]["mean"]["auc"] > 0
    made.start("bob")
    made.sites["bob"].ledger.keywords["limit"] = one
    made.number = "2"
    made.run().finish()
    assert all(line["missing"] == ["bob"] for line in lines(made) if line["function"] == "upload")


def lines(made):
    folder = made.folder / (f"server-{made.number}" if made.number != "1" else "server")
    return [json.loads(row) for row in (folder / "messages.jsonl").read_text().splitlines()]


def test_noise_without_a_bound_is_equal_for_equal_values_alone():
    x = torch.linspace(-5, 5, 400).numpy()
    one, two = blurred(x, 0.5, b"k" * 32), blurred(x + 1e-3, 0.5, b"k" * 32)
    np.testing.assert_array_equal(one, blurred(x, 0.5, b"k" * 32))
    assert one.dtype == x.dtype and (one - x).std() == pytest.approx(0.5, rel=0.15)
    assert (two - one).std() == pytest.approx(0.5 * math.sqrt(2), rel=0.15)
    assert np.isfinite(blurred(np.array([1e30, -1e30, 0.0]), 1e-12, b"k" * 32)).all()
