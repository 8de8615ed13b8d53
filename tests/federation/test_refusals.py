"""What broken or hostile clients and servers may send: refused in a sentence, nothing disturbed."""

import json

import numpy as np
import pytest
import torch
from engines.test_remote import Federation

from fedvine import testing
from fedvine.aggregate.aggregate import Part
from fedvine.aggregate.union import LEVELS
from fedvine.core.errors import Failed, FedvineError
from fedvine.core.message import Packed, Refused, accept, dumps, loads, pack, unpack
from fedvine.core.method import At
from fedvine.core.replies import RoundAborted
from fedvine.core.rng import rng
from fedvine.engines.remote import SENTENCES, Unreachable, ask
from fedvine.experiments import run_folder
from fedvine.living.sites import plan_together
from fedvine.methods._fedlink_plus import level, newton
from fedvine.methods.edgebank import EdgeBank
from fedvine.methods.fedlink import FedLink
from fedvine.methods.fedlink_plus import FedLinkPlus
from fedvine.methods.fedlink_private import FedLinkPrivate

METHOD = FedLink.tiny()


class Hostile(Federation):
    """Bob's answers to ``train`` are spoilt on their way."""

    def __init__(self, folder, spoil, quorum):
        super().__init__(folder, METHOD, quorum)
        self.spoil, self.spoilt = spoil, 0

    def deliver(self, name, block, seal, seconds):
        answer = super().deliver(name, block, seal, seconds)
        request = unpack(loads(block))
        if name == "bob" and request.get("function") == "train":
            self.spoilt += 1
            return self.spoil(answer)
        return answer


def reply_of(answer):
    """The message inside an answer to a call."""
    skeleton, buffers, seconds = unpack(loads(answer))["reply"]
    return unpack(Packed(skeleton, [np.array(b) for b in buffers])), seconds


def answer_of(message, seconds=0.0):
    packed = pack(message)
    return dumps(pack({"reply": [packed.skeleton, list(packed.buffers), seconds]}))


def changed(f):
    def spoil(answer):
        message, seconds = reply_of(answer)
        return answer_of(f(message), seconds)
    return spoil


def with_nan(delta):
    delta["users"] = delta["users"].clone()
    delta["users"].view(-1)[:1] = float("nan")
    return delta


SPOILS = {
    "NaN": (changed(with_nan), "not finite"),
    "wrong shape": (changed(lambda d: {**d, "users": d["users"].t().contiguous()}), "shape"),
    "ten times the size": (changed(lambda d: {**d, "users": d["users"].repeat(10, 1)}), "shape"),
    "no model": (changed(lambda d: {"users": d["users"], "items": d["items"]}), "parts"),
    "nothing": (lambda answer: b"", "cannot be read"),
    "no answer": (lambda answer: dumps(pack({"reply": 3})), "no answer to a call"),
    "neither": (lambda answer: dumps(pack({"hello": 3})), "neither")}


@pytest.fixture(scope="module")
def without_bob(tmp_path_factory):
    """Scores of the run in which nothing comes of bob's updates."""
    def silent(answer):
        raise Unreachable("bob")
    folder = tmp_path_factory.mktemp("silent")
    return json.dumps(Hostile(folder, silent, quorum=0.6).run().finish().scores)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPOILS)
def test_a_bad_update_counts_as_missing_and_the_run_goes_on(tmp_path, without_bob, name):
    spoil, words = SPOILS[name]
    hostile = Hostile(tmp_path / "hostile", spoil, quorum=0.6)
    found = hostile.run().finish()
    assert hostile.spoilt > 3
    lines = run_folder.read_lines(tmp_path / "hostile" / "server", "messages.jsonl")
    told = [line["refused"]["bob"] for line in lines if line["function"] == "train"]
    assert len(told) == hostile.spoilt and all(words in t for t in told)
    assert json.dumps(found.scores) == without_bob


def test_with_a_full_quorum_the_run_stops_in_one_sentence(tmp_path):
    run, again = Hostile(tmp_path, SPOILS["NaN"][0], quorum=1.0).run(), []
    run.on_abort = again.append         # into the hub's log: a round that is lost leaves no line
    with pytest.raises(FedvineError, match=r"bob's answer to train was refused, as it\['users'\] "
                                           "holds a number that is not finite"):
        run.finish()
    assert len(again) == 3 and all("bob's answer to train was refused" in why for why in again)


def fuzz(draw, block):
    """A block with bytes changed, cut out, doubled, or cut off."""
    block = bytearray(block)
    for _ in range(int(draw.integers(1, 8))):
        at = int(draw.integers(0, max(len(block), 1)))
        kind = draw.integers(0, 5)
        if kind == 0 and block:
            block[at] = int(draw.integers(0, 256))
        elif kind == 1:
            del block[at:at + int(draw.integers(1, 40))]
        elif kind == 2:
            block[at:at] = draw.bytes(int(draw.integers(1, 40)))
        elif kind == 3:
            block = block[:at]
        else:
            block[at:at] = block[at:at + 60]
    return bytes(block)


@pytest.mark.slow
def test_a_thousand_fuzzed_messages_harm_neither_side(tmp_path):
    """Requests to a site, and replies to the server: a sentence, or something well-formed."""
    federation = Federation(tmp_path, METHOD)
    kept = {}
    original = federation.send

    def send(name, block, seconds):
        answer = original(name, block, seconds)
        if name == "bob":
            kept[str(unpack(loads(block)).get("function", ""))] = (bytes(block), answer)
        return answer

    federation.send = send
    expected = federation.run(save_every=0.0).finish()
    draw, site, refused = rng(0, "fuzz"), federation.sites["ada"], 0
    blocks = [kept["train"], kept["choose"], kept["predict"], kept[""]]
    for number in range(1000):
        request, answer = blocks[number % len(blocks)]
        said = unpack(loads(site.answer("a run", fuzz(draw, request))))
        assert said.keys() in ({"error"}, {"reply"})
        if "error" in said:
            assert said["error"][0] in SENTENCES and len(said["error"]) == 1
            refused += 1
        try:
            message, _ = reply_of(fuzz(draw, answer))
            accept(pack(message), {"users": torch.empty(0)})
        except (Refused, FedvineError, ValueError, TypeError, KeyError, AttributeError):
            refused += 1
    assert refused > 1500                      # nearly all of them are no messages any more
    # The site still does its work: a new run on the same sites gives the same scores.
    assert site.moments() is not None
    again = Federation(tmp_path / "again", METHOD)
    again.sites["ada"], site.trusted = site, again.sites["ada"].trusted
    site.folder, site.saves = tmp_path / "again" / "ada", tmp_path / "again" / "ada" / "saves"
    assert json.dumps(again.run().finish().scores) == json.dumps(expected.scores)


@pytest.mark.slow
@pytest.mark.parametrize("fuzzed", range(2))
def test_a_run_among_fuzzed_answers_goes_on_without_them(tmp_path, fuzzed):
    draw = rng(fuzzed, "answers")
    hostile = Hostile(tmp_path, lambda answer: fuzz(draw, answer), quorum=0.6)
    made = hostile.run().finish()
    assert made.scores["test"]["mean"]["auc"] > 0 and hostile.spoilt > 3
    assert len(made.stages) == len(testing.tiny_case()[1])


# -- what a hub may try with secure sums -----------------------------------------------------------
def masked(method, folder, quorum=1.0):
    """A federation whose run begins: its clients, and the server's memory after the first stage."""
    made = Federation(folder, method, quorum)
    for site in made.sites.values():
        site.grain = 10
    clients = made.run().clients
    server = method.start(clients.whole)
    clients.begin(At(0, 0, 1))
    method.arrive(server, clients, At(0, 0, 1))
    return made, clients, server


def without_dan(made, clients, function, *same, length):
    """The clients in a sum that dan has no part in; those of an empty sum: none."""
    deliver, clients.quorum = made.deliver, 0.75
    made.deliver = lambda name, *more: (_ for _ in ()).throw(
        Unreachable(name)) if name == "dan" else deliver(name, *more)
    try:
        return clients.sum(function, *same, length=length)[1]
    finally:
        made.deliver, clients.quorum = deliver, 1.0


SUMS = FedLinkPlus(share="sums", rounds=1, buckets=2, sampled=50,
                   aggregate={"secure": True, "grain": 10})
PRIVATE = FedLinkPrivate.tiny().model_copy(update={"aggregate": FedLinkPrivate.model_fields[
    "aggregate"].default.model_copy(update={"secure": True, "grain": 2, "clip": 0.03})})


def test_rows_that_were_not_taken_in_are_in_no_sum(tmp_path):
    """A sum of the stage before, said to be of the next one, would be without dan what dan has."""
    made, clients, server = masked(SUMS, tmp_path)
    assert without_dan(made, clients, SUMS.counted, length=2) == ()     # was one of four
    clients.begin(At(1, 0, 1))
    for asked in ((SUMS.counted,), (SUMS.derive, server.newton.trial, server.newton.units)):
        with pytest.raises((FedvineError, RoundAborted)):
            clients.sum(*asked, length=2 if len(asked) == 1 else newton.length(1))
    clients.begin(At(0, 0, 1))
    with pytest.raises((FedvineError, RoundAborted)):   # nor is one taken in twice
        SUMS.arrive(server, clients, At(0, 0, 1))


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_the_union_gets_no_noise_and_is_remembered(tmp_path, noise):
    method = PRIVATE.model_copy(update={"aggregate": PRIVATE.aggregate.model_copy(
        update={"noise": noise})})
    made, clients, _ = masked(method, tmp_path)
    found = [np.zeros(1, np.uint64) for _ in method.shared_sides()]
    bits = LEVELS[0]
    assert without_dan(made, clients, method.mark, found, 0, bits,
                       length=sum(len(x) << bits for x in found)) == ()


def test_with_noise_nothing_leaves_without(tmp_path):
    method = FedLinkPlus(share="none", rounds=1, sampled=50, aggregate={
        "secure": True, "noise": 50.0, "grain": 10})
    _, clients, server = masked(method, tmp_path)
    clients.begin(At(0, 1, 1))
    with pytest.raises((FedvineError, RoundAborted)):
        clients.sum(method.compare, server.newton.w, level.START, length=level.LENGTH)
    with pytest.raises(FedvineError, match="without a bound"):
        method.aggregate.protected(None, Part(np.ones(2)), None)


def test_noise_is_not_shared_among_clients_that_are_named_twice(tmp_path):
    made = Federation(tmp_path, SUMS)
    send = made.send

    def lies(name, block, seconds):
        request = unpack(loads(block))
        if request["do"] == "open":
            request["clients"] = request["clients"] * 2500
        return send(name, dumps(pack(request)), seconds)

    made.send = lies
    with pytest.raises(FedvineError):
        made.run()


@pytest.mark.slow
@pytest.mark.parametrize("lie", [{"of": b"x" * 32}, {"signature": bytes(64)}])
def test_one_site_of_four_that_says_another_sum_is_missing(tmp_path, lie):
    made = Federation(tmp_path, FedLinkPlus(share="none", rounds=1, calibrate=False, sampled=20,
                                            aggregate={"secure": True}), quorum=0.75)
    site = made.sites["dan"]
    call = site.call

    def lying(function, **more):
        skeleton, buffers, seconds = call(function=function, **more)
        if function == "sum_keys":
            found = pack({**unpack(Packed(skeleton, buffers)), **lie})
            return [found.skeleton, list(found.buffers), seconds]
        return [skeleton, buffers, seconds]

    run = made.run()
    site.call = lying
    assert run.finish().scores


def test_times_of_one_site_that_no_others_have_end_no_run():
    def send(name, block, seconds):
        far = {"first": 1e17, "last": 1e17} if name == "eve" else {"first": 0.0, "last": 2.6e6}
        asked = unpack(loads(block))
        return dumps(pack({"reply": np.full(len(asked["bounds"]), 10) if asked["do"] == "known" else
                           {"edges": 10, "dates": True, **far}}))

    names = ["ada", "bob", "eve"]
    assert len(plan_together(names, send, "1d", 0.15, 0.15, quorum=0.5)) == 30
    with pytest.raises(FedvineError, match="over a million"):
        plan_together(names, send, "1d", 0.15, 0.15)


def test_there_are_no_rounds_beyond_those_of_the_method(tmp_path):
    made = Federation(tmp_path, EdgeBank())
    made.run()
    sent = pack([0])
    for place in ([0, 200, 1], [99, 0, 1], [-1, 0, 1]):
        with pytest.raises(Failed, match="not one that the method takes"):
            ask(made.send, "ada", 5.0, do="call", place=place, function="observe", asks=None,
                skeleton=sent.skeleton, buffers=[])
