"""A method's secure sums in a run: what a server may ask of a client, and what ends in a refusal.

The server here is a script that calls one client function after the other at the clients of a run.
"""

import copy

import numpy as np
import pytest
import torch
from parties import NAMES, identities, key
from toys import changed

from fedvine import testing
from fedvine.aggregate.aggregate import Sum, digest_of
from fedvine.aggregate.identities import der, identity_of
from fedvine.aggregate.means import Either
from fedvine.core import registry
from fedvine.core.errors import Failed, FedvineError
from fedvine.core.message import pack, unpack
from fedvine.core.method import At, Field, Method, Server, on_client
from fedvine.core.state import World
from fedvine.core.worker import ClientWorker, Envelope
from fedvine.engines.faults import MockClients
from fedvine.engines.local import LocalClients
from fedvine.methods.fedlink_plus import FedLinkPlus
from fedvine.methods.fedlink_private import FedLinkPrivate
from fedvine.methods.power import Power
from fedvine.methods.power_plus import PowerPlus
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.tasks.tiny import FOUR, tiny_case, tiny_stream

WHAT = digest_of("number", [])


class Adding(Method):
    """Adds one number of each client each round."""

    name = ""
    aggregate: Sum = Sum(secure=True)
    rounds: int = Field(default=2, description="rounds")

    def start(self, world):
        return Server(totals=[], stayed=[])

    def setup(self, client):
        client.own = 1 << sorted(FOUR).index(client.name)

    def round(self, server, clients, at: At):
        total, came = clients.sum(self.number, length=2)
        server.totals = [*server.totals, int(total[0])]
        server.stayed = [*server.stayed, len(came)]

    @on_client(combined="sum")
    def number(self, client):
        """Return this client's number."""
        return np.full(2, client.own, np.uint64)

    @on_client
    def predict(self, client, queries):
        return np.zeros(len(queries.src))

    def answer(self, server, clients, at):
        return clients.call(self.predict)


def carry_out(engine=LocalClients, **options):
    method = Adding(**options.pop("fields", {}))
    return testing.run(method, *tiny_case(tiny_stream(names=FOUR)), seed=7, engine=engine,
                       protocol=LinkPrediction.tiny(), **options).finish()


class Site:
    """One client in a process of its own, with a kit's key and a roster."""

    def __init__(self, name, count=4, method=None):
        world = World(tuple(NAMES[:count]), 0, 4)
        self.worker = ClientWorker(method or Adding(), name, None, tiny_case()[1],
                                   LinkPrediction.tiny(), world, identity=identities(count)[name])
        self.calls = 0

    def call(self, function, *message, place=(0, 1)):
        self.calls += 1
        return unpack(self.worker.handle(Envelope((*place, self.calls, 0), function, None,
                                                  pack(list(message)))))


def sites(count=4):
    return {n: Site(n, count) for n in NAMES[:count]}


def masked(made, number=1):
    """Carry a sum up to the masked vectors."""
    keys = {n: site.call("sum_keys", number, False, WHAT) for n, site in made.items()}
    sent = {n: site.call("sum_shares", keys) for n, site in made.items()}
    return keys, sent, {n: site.call("number", {s: sent[s][n] for s in sent})
                        for n, site in made.items()}


# -- runs -----------------------------------------------------------------------------------------
def test_sums_are_those_without_masks():
    plain, hidden = (carry_out(fields={"aggregate": {"secure": s}}) for s in (False, True))
    assert plain.server.totals == hidden.server.totals == [15] * 8
    assert plain.scores == hidden.scores


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_one_of_four_may_vanish_in_any_exchange(step):
    made = carry_out(MockClients, quorum=0.5, lose={(2, 1, 1, step): {"bob"}})
    assert made.server.totals == [15] * 4 + [13 if step < 4 else 15] + [15] * 3
    assert made.server.stayed == [4] * 4 + [3 if step < 4 else 4] + [4] * 3


def test_two_of_four_may_not():
    made = carry_out(MockClients, quorum=0.5, lose={(2, 1, 1, 3): {"bob", "cyd"}})
    assert made.server.totals == [15] * 8               # the round was played again
    with pytest.raises(FedvineError, match="in 3 attempts"):
        carry_out(MockClients, quorum=0.5,
                  away={(t, r): {"bob", "cyd"} for t in range(4) for r in range(3)})


def test_the_quorum_may_ask_for_more_than_the_masks_do():
    with pytest.raises(FedvineError, match="bob did not answer the call sum_keys"):
        carry_out(MockClients, quorum=1.0, away={(t, 1): {"bob"} for t in range(4)})


def test_a_false_share_starts_the_round_over_and_the_run_goes_on():
    class Lying(MockClients):
        lies = 0

        def _deliver(self, name, envelope):
            reply = super()._deliver(name, envelope)
            if name == "bob" and envelope.function == "sum_unmask" and self.lies < 1:
                type(self).lies += 1
                found = unpack(reply)
                found["own"]["cyd"] = bytes(16)
                return pack(found)
            return reply

    assert carry_out(Lying).server.totals == [15] * 8 and Lying.lies == 1


@pytest.mark.parametrize("lie", ["a key off the roster", "shares that nobody can open"])
def test_a_client_whom_most_others_doubt_ends_no_run(lie, monkeypatch):
    class Refusing(MockClients):
        def _deliver(self, name, envelope):
            try:
                reply = super()._deliver(name, envelope)
            except FedvineError as error:       # as a site's refusal comes to the server
                return Failed(str(error))
            if name == "bob" and envelope.function == "sum_shares" and "open" in lie:
                return pack(dict.fromkeys(unpack(reply), bytes(64)))
            return reply

    def minted(client):
        member = identity_of(client)
        if client.name == "bob" and "roster" in lie:
            member = copy.copy(member)
            member._private, member.public = key("mallory"), der(key("mallory").public_key())
        return member

    monkeypatch.setattr("fedvine.aggregate.identities.identity_of", minted)
    made = carry_out(Refusing, quorum=0.5)
    assert made.server.totals == [13] * 8 and made.clients.barred == {"bob"}


@pytest.mark.slow
@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("method", [Power.tiny(), PowerPlus.tiny(), FedLinkPlus.tiny()],
                         ids=lambda m: m.name)
def test_the_contract_with_masks(method, check):
    """Of :class:`FedLinkPrivate`, which is secure by default, with its own tests."""
    sums = {"share": "sums"} if "share" in type(method).model_fields else {}
    check(changed(method, aggregate={"secure": True}, **sums))


def masked_means():
    """Methods whose mean may be masked; POWER's prototypes are then others, of all clients."""
    fields = {k: k.model_fields for k in map(registry.method, registry.names("methods"))}
    return [k for k, found in fields.items() if k is not Power
            and "aggregate" in found and found["aggregate"].annotation is Either]


@pytest.mark.slow
@pytest.mark.parametrize("kind", masked_means(), ids=lambda k: k.name)
def test_a_mean_under_masks_is_that_without_them(kind):
    case = testing.tiny_graphs(FOUR)
    plain, hidden = (testing.run_small(changed(kind.tiny(), aggregate={"secure": s}), case).finish()
                     for s in (False, True))
    for name, value in plain.server.model.items():
        torch.testing.assert_close(hidden.server.model[name], value, rtol=0, atol=2**-18)


# -- what a server may ask ------------------------------------------------------------------------
def test_nothing_is_answered_in_the_clear():
    ada = Site("ada")
    with pytest.raises(FedvineError, match="without masks"):
        ada.call("number")
    ada.call("sum_keys", 1, False, WHAT)
    with pytest.raises(FedvineError, match="without masks"):
        ada.call("number", None)
    alone = ClientWorker(Adding(), "ada", None, tiny_case()[1], LinkPrediction.tiny(),
                         World(("ada",), 0, 4), identity=identities(4)["ada"])
    with pytest.raises(FedvineError, match="without masks"):      # a run of one, says the server
        alone.handle(Envelope((0, 1, 1, 0), "number", None, pack([])))
    method = Adding()
    single = ClientWorker(method, "ada", None, tiny_case()[1], LinkPrediction.tiny(),
                          World(("ada",), 0, 4))
    assert unpack(single.handle(Envelope((0, 1, 1, 0), "number", None, pack([])))).tolist() == [
        1, 1]                                                     # it is alone in one process


def test_one_party_of_a_run_of_few_opens_nothing():
    """needed = 1, as it was: how many must stay is not for the server to say."""
    ada = Site("ada")
    keys = {"ada": ada.call("sum_keys", 1, False, WHAT)}
    with pytest.raises(FedvineError, match="needs 3 of them; 1 are left"):
        ada.call("sum_shares", keys)


@pytest.mark.parametrize("number", [1, 0, -1, True, "2", None])
def test_a_sums_number_is_used_once(number):
    made = sites()
    masked(made)
    with pytest.raises(FedvineError, match="used before"):
        made["ada"].call("sum_keys", number, False, WHAT)


def test_a_number_replayed_after_a_restore_gives_other_secrets():
    """A server may restore a client to an old save; what it was sent before stays closed."""
    made = sites()
    keys, *_ = masked(made)
    ada = made["ada"]
    ada.worker.restore(ada.worker.save())
    again = ada.call("sum_keys", 1, False, WHAT)
    assert not {again[k] for k in ("seal", "mask", "own")} & {
        keys["ada"][k] for k in ("seal", "mask", "own")}
    with pytest.raises(FedvineError, match="those that ada sent"):
        ada.call("sum_shares", keys)


def test_both_lists_of_a_client_that_vanished_are_refused_after_a_restore():
    made = sites()
    *_, vectors = masked(made)
    ada = made["ada"]
    ada.call("sum_agree", sorted(vectors))
    ada.worker.restore(ada.worker.save())
    with pytest.raises(FedvineError, match="has not begun here"):
        ada.call("sum_agree", ["ada", "bob", "cyd"])
    with pytest.raises(FedvineError, match="has not begun here"):
        ada.call("sum_unmask", {})


def test_a_second_upload_under_one_sum_is_refused():
    made = sites()
    _, sent, _ = masked(made)
    with pytest.raises(FedvineError, match="second time"):
        made["ada"].call("number", {s: sent[s]["ada"] for s in sent})


def test_all_sites_of_a_sum_are_asked_for_the_same():
    """Another stage, function or argument at one site would open that site's part alone."""
    for what, place in ((digest_of("number", [2.0]), (0, 1)), (WHAT, (1, 1))):
        made = sites()
        keys = {n: s.call("sum_keys", 1, False, WHAT if n != "bob" else what,
                          place=(0, 1) if n != "bob" else place) for n, s in made.items()}
        with pytest.raises(FedvineError, match="bob was asked for another sum than ada"):
            made["ada"].call("sum_shares", keys)
    made = sites()
    keys = {n: site.call("sum_keys", 1, False, digest_of("other", [])) for n, site in made.items()}
    sent = {n: site.call("sum_shares", keys) for n, site in made.items()}
    with pytest.raises(FedvineError, match="began another sum than that of number"):
        made["ada"].call("number", {s: sent[s]["ada"] for s in sent})
    made = sites()
    *_, vectors = masked(made)
    with pytest.raises(FedvineError, match="in another stage"):
        made["ada"].call("sum_agree", sorted(vectors), place=(1, 0))


@pytest.mark.parametrize(("method", "function"), [
    *((FedLinkPrivate.tiny(), f) for f in ("choose", "train", "look")),
    *((FedLinkPlus(share="sums"), f) for f in ("lend", "give", "look", "receive")),
    (FedLinkPlus(share="none", aggregate={"secure": True}), "give")])
def test_functions_that_would_tell_more_are_closed(method, function):
    """What a base class answers in the clear is not answered where sums alone are meant."""
    site = ClientWorker(method, "ada", tiny_case()[0].parts["ada"], tiny_case()[1],
                        LinkPrediction.tiny(), World(tuple(NAMES[:3]), 0, 4))
    with pytest.raises(FedvineError, match="is not answered with these constants"):
        site.handle(Envelope((0, 1, 1, 0), function, None, pack([None])))


def test_without_a_roster_a_site_of_a_federation_takes_part_in_no_sum():
    from fedvine.aggregate.identities import RosterMember
    ada = Site("ada")
    ada.worker.identity = RosterMember("ada", None, {})
    ada.worker.renew()
    with pytest.raises(FedvineError, match="has no roster"):
        ada.call("sum_keys", 1, False, WHAT)


@pytest.mark.parametrize("method", [PowerPlus(aggregate={"secure": True}), FedLinkPrivate(),
                                    FedLinkPlus(share="sums")])
def test_how_many_must_stay_follows_from_the_paper(method):
    assert [method.needed(n) for n in (1, 2, 3, 4, 10)] == [1, 2, 3, 3, 7]
    assert changed(method, aggregate={"threshold": 0.95}).needed(10) == 10
    plain = changed(method, aggregate={"secure": False})
    assert [plain.needed(n) for n in (1, 2, 3, 4, 10)] == [1, 2, 2, 3, 6]
