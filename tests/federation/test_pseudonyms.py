"""Names by a key in two halves: who can compute what, what is counted, and what is refused."""

import datetime
import json
from functools import partial

import numpy as np
import pytest
from engines.test_remote import Federation, reference, scores
from toys import changed

from fedvine.core.errors import FedvineError
from fedvine.data.ids import Ids
from fedvine.engines.remote import Refusal
from fedvine.federation.order import Order
from fedvine.federation.policy import Policy
from fedvine.federation.pseudonyms import ASKED, BATCH, FILE, HALF, HubHalf, Pseudonyms, TwoHalves
from fedvine.federation.pseudonyms import evaluate_names as evaluate
from fedvine.methods.fedlink import FedLink
from fedvine.methods.fedlink_plus import FedLinkPlus

pytest.importorskip("voprf", reason="the extra names is not installed")
NAMES = Ids.of([f"person {i}" for i in range(25)])


class Log(list):
    """Warnings of the hub."""

    def warning(self, text, *values):
        self.append(text % values)


def asked(site, half, ids=NAMES, grain=1, name="ada"):
    """Let the hub evaluate all names of a site; return how many were sent."""
    sent = 0
    while len(blinded := site.blind(site.missing([ids]), grain)):
        sent += len(blinded)
        site.take(half.evaluate(name, blinded), half.public)
    return sent


def keys(site, secret=b"of the sites"):
    ids = NAMES.take(np.arange(len(NAMES)))
    ids.secret = TwoHalves.of(secret, site)
    return ids.keys(np.arange(len(ids)))


def test_sites_give_a_name_one_key_which_follows_from_both_halves(tmp_path):
    half, other = (HubHalf(tmp_path / n, 100, 10) for n in ("hub", "another hub"))
    ada, bob, eve = (Pseudonyms(tmp_path / f"{n}.npz") for n in ("ada", "bob", "eve"))
    assert asked(ada, half) == asked(bob, half) == asked(eve, other) == 25
    one = keys(ada)
    assert (one == keys(bob)).all() and len(set(one.tolist())) == 25
    assert not (one == keys(bob, b"another secret")).any()      # without the sites' half
    assert not (one == keys(eve)).any()                         # without the hub's
    plain = NAMES.take(np.arange(25))
    plain.secret = b"of the sites"
    assert not (one == plain.keys(np.arange(25))).any()
    assert asked(Pseudonyms(tmp_path / "ada.npz"), half) == 0   # they are kept
    assert (tmp_path / "hub" / HALF).stat().st_mode & 0o777 == 0o600


def test_what_is_sent_says_nothing_of_the_name(tmp_path):
    """The same name is blinded in another way each time; made-up ones hide how many are new."""
    site = Pseudonyms(tmp_path / "names.npz")
    first, again = site.blind([b"Ada"], 10), site.blind([b"Ada"], 10)
    assert first.shape == (10, 32) and not (first[:, None] == again).all(2).any()
    assert len(site.blind([b"%d" % i for i in range(11)], 10)) == 20
    assert len(site.blind([], 10)) == 0
    assert len(site.blind([b"%d" % i for i in range(2 * BATCH)], 7)) <= BATCH


def test_a_hub_with_another_key_or_a_false_answer_is_refused(tmp_path):
    half, other = (HubHalf(tmp_path / n, 100, 10) for n in ("hub", "other"))
    site = Pseudonyms(tmp_path / "names.npz")
    good = half.evaluate("ada", site.blind([b"Ada"], 1))
    for evaluated, public in ((good[:-1] + bytes([good[-1] ^ 1]), half.public), (b"", half.public),
                              (good, other.public)):
        with pytest.raises(Refusal, match="proof does not hold"):
            site.take(evaluated, public)
    site.take(good, half.public)
    with pytest.raises(Refusal, match="another key than before"):
        site.take(other.evaluate("ada", site.blind([b"Bob"], 1)), other.public)
    with pytest.raises(FedvineError, match="has not been evaluated by the hub"):
        site.value(b"Bob")


def test_the_hub_counts_what_a_site_asks(tmp_path):
    half = HubHalf(tmp_path, 30, 5)
    site = Pseudonyms(tmp_path / "names.npz")
    assert asked(site, half) == 25
    with pytest.raises(FedvineError, match="ada asked for 31 names today, and 30 are allowed"):
        half.evaluate("ada", site.blind([b"%d" % i for i in range(6)], 1))
    file = tmp_path / ASKED
    file.write_text(json.dumps({"ada": {"2026-01-01": 25}}))    # a later day
    half.evaluate("ada", site.blind([b"%d" % i for i in range(5)], 1))
    with pytest.raises(FedvineError, match="6 names today, and 5 are allowed"):
        half.evaluate("ada", site.blind([b"x"], 1))
    with pytest.raises(FedvineError, match="bob sent an invalid blinded name"):
        half.evaluate("bob", np.full((1, 32), 255, np.uint8))


def test_a_site_that_asks_on_and_on_is_not_waited_for(tmp_path):
    class One:
        everyone, declined, turns = ("ada",), {}, 0

        def all(self, expect, each=None, do="", public=b""):
            One.turns += do == "blind"
            return {"ada": site.blind([str(One.turns).encode()], 1)} if do == "blind" else {}

    site = Pseudonyms(tmp_path / "names.npz")
    evaluate(One(), HubHalf(tmp_path, 30, 5), None)
    assert One.turns == 1


# -- a run ----------------------------------------------------------------------------------------
class Halves(Federation):
    """A federation whose names travel by two halves of a key."""

    first, more = 1000, 1000

    def agree(self):
        super().agree()
        for site in self.sites.values():
            site.naming = "oprf"

    def evaluated(self):
        self.log = Log()
        return partial(evaluate, half=HubHalf(self.folder, self.first, self.more), log=self.log)


@pytest.fixture
def through(monkeypatch):
    """Let ``Federation.run`` open runs with names that the hub evaluates."""
    from engines import test_remote
    opened = test_remote.open_run

    def begin(federation):
        monkeypatch.setattr(test_remote, "open_run", partial(
            opened, evaluate=federation.evaluated()))
        return federation.run()
    return begin


@pytest.mark.slow
def test_counts_are_those_with_the_key_and_rows_like_them(tmp_path, through):
    method = changed(FedLinkPlus.tiny(), rounds=2)
    assert scores(through(Halves(tmp_path, method)).finish()) == scores(reference(method))
    made = through(Halves(tmp_path / "rows", FedLink.tiny())).finish()
    assert made.scores["test"]["mean"].keys() == reference(
        FedLink.tiny()).scores["test"]["mean"].keys()


@pytest.mark.slow
def test_a_site_that_asks_too_many_is_left_out(tmp_path, through):
    federation = Halves(tmp_path, changed(FedLinkPlus.tiny(), rounds=1), quorum=0.5)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    (tmp_path / ASKED).write_text(json.dumps({"bob": {today: 999}}))
    made = through(federation).finish()
    assert made.scores["test"]["mean"]["auc"] > 0
    assert all("bob" in line and "1,000 are allowed" in line for line in federation.log)
    assert made.clients.declined == {"bob": federation.log[0]}
    assert not (tmp_path / "bob" / FILE).exists() and (tmp_path / "ada" / FILE).exists()


def test_a_site_decides_how_names_travel():
    policy = Policy(names="oprf", methods={"fedlink_plus": {}})
    policy.check(FedLinkPlus(), names="oprf")
    with pytest.raises(Refusal, match='names to be "oprf", and in this run it is "key"'):
        policy.check(FedLinkPlus(), names="key")
    with pytest.raises(FedvineError, match="leave out names"):
        Order(out="", method={"name": "power_plus"}, names="oprf").kind()
