"""A site answers the server alone: another site with a valid kit gets nothing, ends nothing."""

import msgspec
import numpy as np
import pytest
from engines.small_kits import as_a_server, kit
from engines.test_remote import SERVER, Federation, reference, scores

from fedvine.core.errors import FedvineError
from fedvine.core.message import dumps, loads, pack, unpack
from fedvine.federation.signed import Seal, Signer, Trusted
from fedvine.methods.fedlink import FedLink


@pytest.fixture
def kits(tmp_path):
    return {name: kit(tmp_path / "kits", name) for name in (SERVER, "ada", "eve")}


def signer(kit, run="a run"):
    return Signer(kit, run, lambda *_: b"", lambda *_: b"")


def test_what_the_server_signed_is_accepted_once(kits):
    trusted, server = Trusted(kits["ada"], "ada"), signer(kits[SERVER])
    first, second = (server.seal("ada", trusted.session, b"body") for _ in range(2))
    assert trusted.check(b"body", first) == "a run"
    with pytest.raises(FedvineError, match="a second time"):
        trusted.check(b"body", first)
    assert trusted.check(b"body", second) == "a run"
    with pytest.raises(FedvineError, match="a second time"):       # an earlier number
        trusted.check(b"body", first)


OTHERS = {
    "for another site": lambda server, session: server.seal("bob", session, b"body"),
    "for another process": lambda server, session: server.seal("ada", bytes(32), b"body"),
    "of another body": lambda server, session: server.seal("ada", session, b"bodY"),
    "nothing": lambda server, session: b"",
    "text": lambda server, session: msgspec.msgpack.encode("sealed"),
    "of other kinds": lambda server, session: msgspec.msgpack.encode([None] * 4),
    "a negative number": lambda server, session: msgspec.msgpack.encode(["a run", -1, b"", b""])}


@pytest.mark.parametrize("other", OTHERS)
def test_a_seal_of_anything_else_is_refused(kits, other):
    trusted = Trusted(kits["ada"], "ada")
    with pytest.raises(FedvineError, match="alone; a request was refused, as its signature is"):
        trusted.check(b"body", OTHERS[other](signer(kits[SERVER]), trusted.session))


@pytest.mark.parametrize("change", [{"run": "b"}, {"number": 2}, {"signature": b"x"},
                                    {"certificate": b"x"}], ids=lambda c: next(iter(c)))
def test_a_seal_that_was_changed_is_refused(kits, change):
    trusted = Trusted(kits["ada"], "ada")
    seal = signer(kits[SERVER]).seal("ada", trusted.session, b"body")
    found = msgspec.msgpack.decode(seal, type=Seal)
    with pytest.raises(FedvineError, match="signature is not good"):
        trusted.check(b"body", msgspec.msgpack.encode(msgspec.structs.replace(found, **change)))
    assert trusted.check(b"body", msgspec.msgpack.encode(found)) == "a run"   # it was the change


def test_only_the_servers_certificate_of_this_federation_signs(kits, tmp_path):
    trusted = Trusted(kits["ada"], "ada")
    for who, match in (
            (as_a_server(kits["eve"]), r"signed by eve and not by hub\.example"),
            (kit(tmp_path / "foreign", SERVER, root="other"), "not of this federation"),
            (kit(tmp_path / "old", SERVER, days=-1), "not valid today")):
        with pytest.raises(FedvineError, match=match):
            trusted.check(b"body", signer(who).seal("ada", trusted.session, b"body"))
    assert trusted.check(b"body", signer(kits[SERVER]).seal("ada", trusted.session, b"body"))


def test_a_folder_that_is_no_kit_is_named(tmp_path):
    with pytest.raises(FedvineError, match=r"no site's kit .* fedvine kit pack"):
        Trusted(tmp_path, "ada")
    with pytest.raises(FedvineError, match="is not the server's kit"):
        signer(tmp_path)


def requests(clients):
    """What a site needs of the server to read another's graph and to delete its memory."""
    plan = clients.plan.facts()
    opened = {"do": "open", "number": "", "plan": plan, "seed": 0, "stages": len(clients.plan),
              "protocol": clients.protocol.model_dump(mode="json"), "elsewhere": None,
              "clients": ["ada", "bob", "cyd"], "method": {"name": "edgebank"}}
    pairs = {"src": np.repeat(np.arange(8), 8), "dst": np.tile(np.arange(8), 8),
             "t": np.full(64, plan["bounds"][-1])}
    body = pack([pairs])
    call = {"do": "call", "skeleton": body.skeleton, "buffers": list(body.buffers)}
    return [
        {**opened, "run": "a run"}, {**opened, "run": ""}, {"do": "facts"}, {"do": "arrivals"},
        {"do": "known", "bounds": plan["bounds"]}, {"do": "moments"},
        {**call, "place": [9, 0, 1], "function": "observe", "asks": None},
        {**call, "place": [9, 0, 2], "function": "predict", "asks": -1},
        {"do": "save", "moment": "000009-000009"}, {"do": "restore", "moment": None},
        {"do": "forecasts", "count": 5}]


@pytest.mark.slow
def test_a_malicious_site_gets_nothing_and_ends_nothing(tmp_path):
    """Eve has a valid kit, hears every request of the server, and can reach ada's site."""
    federation = Federation(tmp_path, FedLink.tiny())
    eve, ada = as_a_server(kit(tmp_path / "kits", "eve")), federation.sites["ada"]
    heard, tried = [], []
    original = federation.deliver

    def deliver(name, block, seal, seconds):
        heard.append((name, block, seal))
        return original(name, block, seal, seconds)

    def attack(at, clients):
        own, there = signer(eve), ada.moments()
        to_ada, to_bob = ([h for h in heard if h[0] == name][-1] for name in ("ada", "bob"))
        letters = [(to_ada[1], to_ada[2]), (to_bob[1], to_bob[2])]     # what was heard, again
        for wanted in (dumps(pack(r)) for r in requests(made)):
            letters += [(wanted, b""), (wanted, own.seal("ada", ada.trusted.session, wanted)),
                        (wanted, to_ada[2]), (wanted, to_bob[2])]
        for block, seal in letters:
            answer = unpack(loads(ada.handle(block, seal)))
            assert answer.keys() == {"error"}
            assert answer["error"] == ["seal"]
            tried.append(list(ada.account.lines())[-1]["why"])
        assert ada.moments() == there

    federation.deliver = deliver
    made = federation.run(on_round=attack, save_every=0.0)
    assert scores(made.finish()) == scores(reference(FedLink.tiny()))
    assert len(tried) > 400 and ada.moments()
    assert {t.split(";")[-1] for t in tried} == {
        " refused.", " a request was refused, as its signature is not good.",
        f" a request was refused, as it is signed by eve and not by {SERVER}."}
