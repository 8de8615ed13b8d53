"""A secure sum is exact, survives dropouts, and its terms look like noise to the server."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from parties import NAMES, Sum, identities

from fedvine.aggregate.bonawitz import Party, fewest, open_sum
from fedvine.aggregate.noise import BITS, from_fixed, to_fixed
from fedvine.core.rng import rng
from fedvine.methods.fedavg import FedAvg
from fedvine.testing import run_small


def inputs(count=5, length=50, seed=0):
    draw = rng(seed, "secure")
    return {n: draw.normal(size=length) * 10 for n in NAMES[:count]}


def secure_sum(vectors, identities, number=1, vanish=None, least=1):
    """What clients sent, and the sum of their vectors uint64 [n], by the whole protocol.

    ``vanish`` has clients, and the first exchange in which they send nothing.
    """
    def here(step):
        return [n for n in sorted(vectors) if (vanish or {}).get(n, 9) > step]

    parties = {n: Party(identities[n], number, least) for n in vectors}
    keys = {n: parties[n].keys() for n in here(0)}
    sent = {n: parties[n].shares(keys) for n in here(1)}
    masked = {n: parties[n].masked(vectors[n], {s: sent[s][n] for s in sent}) for n in here(2)}
    signed = {n: parties[n].agree(masked) for n in here(3)}
    opened = {n: parties[n].unmask(signed) for n in here(4)}
    needed = max(p.threshold for p in parties.values())
    return {"sum": open_sum(masked, keys, sent, opened, needed), "masked": masked,
            "opened": opened, "came": sorted(masked)}


@given(st.lists(st.floats(-2.0**30, 2.0**30), min_size=1, max_size=40))
def test_fixed_point_is_exact_to_its_last_place(values):
    x = np.array(values)
    assert (np.abs(from_fixed(to_fixed(x)) - x) <= 2.0**-(BITS + 1)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2.0**40])
def test_what_does_not_fit_is_refused(bad):
    with pytest.raises(ValueError, match="scale columns"):
        to_fixed(np.array([1.0, bad]))


@pytest.mark.parametrize(("clients", "stay"), [(1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (6, 5),
                                               (7, 5), (10, 7), (100, 67)])
def test_how_many_must_stay(clients, stay):
    """By hand; two lists of so many of n have more than n - t clients in common."""
    assert fewest(clients) == stay
    assert clients < 4 or 2 * stay - clients > clients - stay


@pytest.mark.parametrize(("clients", "lost"), [(2, 1), (3, 1), (4, 2), (10, 4)])
@pytest.mark.parametrize("step", [0, 1, 2, 3, 4])
def test_with_one_more_dropout_nothing_is_opened(clients, lost, step):
    fixed = {n: to_fixed(v) for n, v in inputs(clients).items()}
    with pytest.raises(ValueError, match=r"needs|left"):
        secure_sum(fixed, identities(clients), vanish=dict.fromkeys(NAMES[:lost], step))


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_the_sum_is_exact_whoever_vanishes_and_when(data):
    """Any vectors modulo 2^64, any clients that may vanish, each in another exchange."""
    clients = data.draw(st.sampled_from([4, 5, 7, 10]))
    words = st.lists(st.integers(0, 2**64 - 1), min_size=3, max_size=3)
    x = {n: np.array(data.draw(words), np.uint64) for n in NAMES[:clients]}
    vanish = data.draw(st.dictionaries(st.sampled_from(NAMES[:clients]), st.integers(0, 4),
                                       max_size=clients - fewest(clients)))
    found = secure_sum(x, identities(clients), vanish=vanish)
    assert found["came"] == [n for n in x if vanish.get(n, 9) > 2]
    assert (found["sum"] == np.sum([x[n] for n in found["came"]], axis=0, dtype=np.uint64)).all()


def test_a_single_upload_looks_random():
    """Zeros, masked: bits are even, bytes are flat, and nothing correlates with the input."""
    length = 20_000
    x = {n: np.zeros(length) for n in NAMES[:5]}
    x["ada"] = np.where(np.arange(length) % 2, 1000.0, -1000.0)
    masked = secure_sum({n: to_fixed(v) for n, v in x.items()},
                        identities(5, b"all bytes of this are known"))["masked"]["ada"]
    raw = masked.view(np.uint8)
    bits = np.unpackbits(raw).reshape(-1, 64).mean(0)
    assert (np.abs(bits - 0.5) < 5 * 0.5 / np.sqrt(length)).all()
    counts = np.bincount(raw, minlength=256)
    chi = ((counts - len(raw) / 256) ** 2 / (len(raw) / 256)).sum()
    assert abs(chi - 255) < 6 * np.sqrt(2 * 255)
    signed = masked.view(np.int64).astype(float)
    assert abs(np.corrcoef(signed, x["ada"])[0, 1]) < 5 / np.sqrt(length)


def test_secrets_are_new_in_each_sum_and_repeat_in_a_simulation_alone():
    fixed = {n: to_fixed(v) for n, v in inputs(4).items()}
    a, b = (secure_sum(fixed, identities(4))["masked"]["ada"] for _ in range(2))
    assert not (a == b).any()
    a, b, other = (secure_sum(fixed, identities(4, b"x" * 32), number)["masked"]["ada"]
                   for number in (1, 1, 2))
    assert (a == b).all() and not (a == other).any()


def test_no_client_gives_both_shares_of_anybody():
    found = secure_sum({n: to_fixed(v) for n, v in inputs(5).items()}, identities(5),
                       vanish={"eve": 2})
    assert len(found["opened"]) == 4
    for opened in found["opened"].values():
        assert not set(opened["own"]) & set(opened["mask"])
        assert set(opened["mask"]) == {"eve"}


@pytest.mark.parametrize(("kind", "of", "came"), [
    ("own", "bob", NAMES[:4]), ("mask", "eve", NAMES[:4]), ("mask", "dan", NAMES[:3])])
def test_a_false_share_does_no_harm_where_there_are_more_than_needed_and_is_noticed(kind, of, came):
    """A client that lies in the last exchange spoils no sum unseen."""
    adding = Sum(5 if of == "eve" else 4)
    signed = adding.agreed(came)
    opened = {n: adding.parties[n].unmask(signed) for n in came}
    opened["ada"][kind][of] = bytes(len(opened["ada"][kind][of]))

    def found(needed):
        return open_sum({n: adding.came[n] for n in came}, adding.sent_keys, adding.sent, opened,
                        needed)
    needed = adding.parties["ada"].threshold
    if len(came) > needed:
        assert found(needed).tolist() == [sum(adding.vectors[n][0] for n in came)] * 3
        opened = dict(list(opened.items())[:needed])
    with pytest.raises(ValueError, match=f"shares that clients gave of {of}'s"):
        found(needed)


@pytest.mark.parametrize("lie", [{"seal": bytes(32)}, {"mask": bytes(32)}, {"own": bytes(32)},
                                 {"listed": {"nobody": ""}}], ids=lambda lie: next(iter(lie)))
def test_a_client_with_false_keys_is_missing_and_the_others_learn(lie, monkeypatch):
    keys = Party.keys

    def false(self):
        sent = keys(self)
        if self.name == "bob":
            told = {k: v for k, v in sent.items() if k not in ("public", "signature")} | lie
            sent = self._keys["bob"] = {**sent, **told, "signature": self.identity.sign(
                "fedvine sum keys", self.number, "bob", told)}
        return sent
    monkeypatch.setattr(Party, "keys", false)
    method, told = FedAvg.tiny(), list[int]()
    made = run_small(
        method.model_copy(update={"aggregate": type(method.aggregate)(secure=True)}), quorum=0.5,
        on_round=lambda _, clients: told.extend(
            line["clients"] for line in clients.log if line["function"] == "train")).finish()
    first = method.start(made.clients.world).model
    assert not any(torch.equal(p, made.server.model[n]) for n, p in first.items() if "weight" in n)
    assert told[-1] == 3
