"""Sites behind bytes give, byte for byte, what one process gives; and they refuse the rest."""

import json
from typing import ClassVar, Literal

import numpy as np
import pytest
from engines.small_kits import kit

from fedvine import testing
from fedvine.core import registry
from fedvine.core.errors import FedvineError, Refused
from fedvine.core.message import dumps, loads, pack, unpack
from fedvine.core.replies import RoundAborted
from fedvine.data.plan import by_time
from fedvine.engines.local import LocalClients
from fedvine.engines.remote import (
    RemoteClients,
    Unreachable,
    ask,
    open_run,
)
from fedvine.experiments.prepare import prepare
from fedvine.experiments.run import Run
from fedvine.experiments.run_folder import RunFolder, read_lines
from fedvine.federation import roster
from fedvine.federation.launch import read_order
from fedvine.federation.order import Order
from fedvine.federation.planning import agreed
from fedvine.federation.server import forecast
from fedvine.federation.signed import Signer, Trusted
from fedvine.federation.site import Site
from fedvine.living.sites import plan_together
from fedvine.methods.edgebank import EdgeBank
from fedvine.methods.fedlink import FedLink

SERVER = "hub.example"


class Federation:
    """Sites in this process, reached through bytes alone; each has read its own table."""

    engine = RemoteClients

    def __init__(self, folder, method, quorum=1.0):
        self.folder, self.method, self.quorum = folder, method, quorum
        self.split, _ = testing._case(method)
        self.down, self.sent, self.number = set(), 0, "1"
        self.sites = {}
        self.parts = dict(self.split.parts)
        self.kits = {name: kit(folder / "kits", name) for name in (SERVER, *self.split.parts)}
        roster.together(self.kits[name] for name in self.split.parts)
        for name in self.split.parts:
            self.start(name)
        self.serve()

    def serve(self):
        """Start the server's process (again)."""
        self.signer = Signer(self.kits[SERVER], "a run", lambda *letter: self.deliver(*letter),
                             lambda name, seconds: self.sites[name].trusted.session)

    def start(self, name):
        """Start a site's process (again): nothing but its own files survives."""
        part = self.parts[name]
        own = type(part)(part.src, part.dst, part.t, part.src_ids, part.dst_ids, name=name)
        self.sites[name] = Site(name, lambda: own, self.folder / name,
                                Trusted(self.kits[name], name),
                                identity=lambda: roster.identity(self.kits[name], name))

    def send(self, name, block, seconds):
        return self.signer(name, block, seconds)

    def deliver(self, name, block, seal, seconds):
        self.sent += 1
        if name in self.down:
            raise Unreachable(name)
        return bytes(self.sites[name].handle(bytes(block), seal))

    def agree(self):
        """Say at the sites what would be run."""
        agreed(Order(out="", method={"name": self.method.name, **self.method.model_dump(
            mode="json", exclude_none=True)}, protocol=testing.PROTOCOL, quorum=self.quorum),
            "a run", sorted(self.sites), self.send, 600.0)

    def run(self, **options):
        self.serve()
        names = sorted(self.sites)
        self.agree()
        plan = plan_together(names, self.send, 1000.0, 0.25, 0.25, quorum=self.quorum)
        ready = prepare(self.method, plan, testing.PROTOCOL, names, 7)
        clients = self.engine(self.method, names, ready.world, testing.PROTOCOL, self.send,
                              quorum=self.quorum)
        open_run(clients, "a run", self.number, plan, True)
        folder = RunFolder(self.folder / (f"server-{self.number}" if self.number != "1" else
                                           "server"), {"seed": 7})
        return Run(ready, clients, folder, **options)


def reference(method):
    split, _ = testing.tiny_case()
    plan = by_time(split.stream, 1000.0, val=0.25, test=0.25)
    return testing.run_small(method, (split, plan)).finish()


def scores(made):
    return json.dumps([[s.t, s.found] for s in made.stages], sort_keys=True)


@pytest.mark.slow
@pytest.mark.parametrize("method", [FedLink.tiny(), EdgeBank.tiny()], ids=lambda m: m.name)
def test_sites_give_what_one_process_gives(tmp_path, method):
    made = Federation(tmp_path, method).run().finish()
    expected = reference(method)
    assert scores(made) == scores(expected)
    assert dumps(pack(made.server.dump())) == dumps(pack(expected.server.dump()))
    assert made.summary["bytes_up"] == expected.summary["bytes_up"]


def test_sites_measure_the_same_drift(tmp_path, monkeypatch):
    protocol = testing.PROTOCOL.model_copy(update={"drift": True})
    monkeypatch.setattr(testing, "PROTOCOL", protocol)
    monkeypatch.setattr(type(protocol), "tiny", classmethod(lambda cls: protocol))
    made, expected = Federation(tmp_path, EdgeBank()).run().finish(), reference(EdgeBank())
    assert scores(made) == scores(expected)
    assert all(result["drift"]["rivals"] for stage in made.stages for by in stage.found.values()
               for result in by.values())
    assert made.summary["drift"] == expected.summary["drift"]


def test_an_engine_that_loses_a_letter_is_found_out():
    class Loses(LocalClients):
        def exchange(self, outgoing):
            yield from list(super().exchange(outgoing))[1:]

    with pytest.raises(ValueError, match="shorter"):
        testing.run_small(EdgeBank.tiny(), engine=Loses, quorum=0.5).finish()


class Killed(Exception):
    pass


def stopped(federation, place=(2, 0)):
    """A run that was stopped in the middle; it can be resumed."""
    def stop(at, clients):
        if (at.t, at.r) == place:
            raise Killed

    with pytest.raises(Killed):
        federation.run(on_round=stop, save_every=0.0).finish()


@pytest.mark.slow
@pytest.mark.parametrize("place", [(2, 0), (3, 2)])
def test_everything_dies_and_goes_on_from_the_last_common_save(tmp_path, place):
    method = FedLink.tiny()
    federation = Federation(tmp_path, method)
    stopped(federation, place)
    for name in list(federation.sites):
        federation.start(name)                              # every process is new
    assert scores(federation.run().finish()) == scores(reference(method))


@pytest.mark.slow
def test_client_memory_is_saved_at_the_site_and_never_at_the_server(tmp_path):
    federation = Federation(tmp_path, FedLink.tiny())
    made = federation.run(save_every=0.0).finish()
    for site in federation.sites.values():
        assert site.moments() and made.folder.path.name not in str(site.saves)
        assert len(site.moments()) <= 3
    saved = made.folder.restore(made.clients.checkpoints())
    assert saved.clients == {}


@pytest.mark.slow
def test_two_runs_of_one_name_share_no_memory(tmp_path):
    """One stops, another one of the same name goes on to its end, the first one is resumed."""
    method = FedLink.tiny()
    federation = Federation(tmp_path, method)
    stopped(federation)
    for name in list(federation.sites):
        federation.start(name)
    federation.number, federation.method = "2", method.model_copy(update={"rounds": 3})
    assert scores(federation.run().finish()) == scores(reference(federation.method))
    for name in list(federation.sites):
        federation.start(name)
    federation.number, federation.method = "1", method
    made = federation.run()
    assert made._restore() > (0, 0)                          # from its save, not from the start
    assert scores(made.finish()) == scores(reference(method))


@pytest.mark.slow
def test_a_table_that_changed_since_is_refused_in_a_sentence(tmp_path):
    federation = Federation(tmp_path, FedLink.tiny())
    stopped(federation)
    part = federation.parts["bob"]
    dst = part.dst.copy()
    dst[-1] = 0 if dst[-1] else 1
    was, federation.parts["bob"] = part, type(part)(
        part.src, dst, part.t, part.src_ids, part.dst_ids, name="bob")
    federation.start("bob")
    with pytest.raises(RoundAborted, match=r"bob's answer to open was refused.* table .* has "
                                           r"changed since this run began; "
                                           r"put back .* another --out"):
        federation.run()
    federation.parts["bob"] = was
    federation.start("bob")
    assert scores(federation.run().finish()) == scores(reference(FedLink.tiny()))


@pytest.mark.slow
def test_a_site_that_comes_back_within_a_round_changes_nothing(tmp_path):
    """It is away for one attempt; the round starts over from the last save."""
    method = FedLink.tiny()
    federation = Federation(tmp_path, method)
    seen = []

    def drop(at, clients):
        federation.down.clear()
        if (at.t, at.r) == (1, 1) and not seen:
            seen.append(at)
            federation.down.add("bob")

    original = federation.send

    def send(name, block, seconds):
        try:
            return original(name, block, seconds)
        except Unreachable:
            federation.start("bob")
            federation.down.clear()
            open_again()
            raise

    federation.send = send
    made = federation.run(on_round=drop, save_every=0.0)

    def open_again():
        federation.agree()
        open_run(made.clients, "a run", federation.number, made.plan, True)

    assert scores(made.finish()) == scores(reference(method)) and seen


@pytest.mark.parametrize(("request_", "match"), [
    ({"do": "shell", "command": "id"}, "does not do"), ({}, "does not do"),
    ({"do": "call", "place": [0, 1, 1], "function": "observe", "asks": None, "skeleton": b"\x90",
      "buffers": []}, "no run is open there"),
    ({"do": "agree", "run": "a run", "method": {"name": "os.system"}, "protocol": {},
      "travelled": False}, "method, its constants or the protocol are not valid"),
    ({"do": "agree", "run": "a run", "method": {"name": "fedlink", "capacity": -5},
      "protocol": {}, "travelled": False}, "method, its constants"),
    ({"do": "open", "run": "a run", "number": "", "method": {"name": "fedlink"}, "plan": {},
      "protocol": {}, "clients": [], "seed": 0, "stages": 1, "elsewhere": None}, "has not said")])
def test_what_a_site_does_not_do_is_refused(tmp_path, request_, match):
    federation = Federation(tmp_path, FedLink.tiny())
    with pytest.raises(Refused, match=f"it is an error: .*{match}"):
        ask(federation.send, "ada", 1.0, **request_)


@pytest.mark.parametrize("function", ["setup", "model_dump", "__init__", "loss", "no_such"])
def test_a_message_naming_another_function_is_refused(tmp_path, function):
    federation = Federation(tmp_path, FedLink.tiny())
    federation.run()
    with pytest.raises(Refused, match="not one that the method takes"):
        ask(federation.send, "ada", 1.0, do="call", place=[0, 1, 1], function=function, asks=None,
            skeleton=b"\x90", buffers=[])
    assert f"{function} is not a client function" in list(
        federation.sites["ada"].account.lines())[-1]["why"]


def replaced(federation, do, answer):
    """Bob answers ``do`` with ``answer``, a message or an error's text."""
    deliver = federation.deliver

    def lies(name, block, seal, seconds):
        if name != "bob" or unpack(loads(block))["do"] != do:
            return deliver(name, block, seal, seconds)
        return dumps(pack(answer if isinstance(answer, dict) and "error" in answer else
                          {"reply": answer}))
    federation.deliver = lies


def times(edges, first, last):
    return {"edges": edges, "first": first, "last": last, "dates": False}


BAD = [None, "text", {}, -1, 1e30, [[]], [None], ["x" * 100], float("nan"), np.zeros(3),
       times(3, None, None), times(0, 1.0, 2.0),
       times(3, float("nan"), 2.0), times(3, 2.0, 1e30),
       times(3, 0.0, 1e17), times(-3, 0.0, 1.0),
       (np.zeros(3, np.uint64), np.zeros(2)), (np.zeros(3, np.uint64), np.full(3, np.nan)),
       np.full(5, 10**6), np.arange(5)[::-1].copy(), 10**9, {"error": 3}, {"error": "[/red]\n\x1b"},
       {"error": "No space left on device"}, {"error": ["policy-field", "{0.x}"]},
       {"error": ["policy-method", "[/red]\n\x1b[2J"]}]


REQUESTS = ["facts", "known", "arrivals", "open", "save", "restore", "moments", "forecasts"]


@pytest.mark.slow
@pytest.mark.parametrize("do", REQUESTS)
def test_whatever_a_site_answers_counts_as_missing(tmp_path, do):
    """Bob answers one kind of request with anything but what was asked for; the others go on."""
    federation = Federation(tmp_path, EdgeBank.tiny(), quorum=0.6)
    original = federation.deliver
    for number, answer in enumerate(BAD[REQUESTS.index(do) % 4::4]):     # a quarter of them each
        federation.number, federation.deliver = f"{number + 2}", original
        replaced(federation, do, answer)
        made = federation.run().finish()
        assert made.scores["test"]["mean"]["auc"] > 0
        assert forecast(made, 2) == ""


@pytest.mark.parametrize(("do", "answer", "why"), [
    ("facts", times(3, 2.0, 1e17), "refused, as Stages of 1000.0 cut it into"),
    ("known", np.full(5, 10**6), r"refused, as it holds 1e\+06, which is not between 0 and"),
    ("arrivals", {"error": "disk [/red]\n\x1b[2J is full"},
     "an error: an error without a code that is known here$"),
    ("open", 3, "refused, as it should be nothing")])
def test_with_a_full_quorum_the_sentence_says_why(tmp_path, do, answer, why):
    federation = Federation(tmp_path, EdgeBank.tiny())
    replaced(federation, do, answer)
    with pytest.raises(RoundAborted, match=f"^bob's answer to {do} was .*{why}"):
        federation.run().finish()


def test_what_all_sites_refuse_is_not_tried_again(tmp_path):
    federation = Federation(tmp_path, EdgeBank.tiny())
    federation.agree()
    said = r"^ada's answer to facts was refused, as Stages of .* cut it into over a million"
    with pytest.raises(FedvineError, match=said):
        plan_together(federation.sites, federation.send, 0.001, 0.25, 0.25)


def test_a_plan_of_a_calendar_is_made_of_the_sites_times_where_these_are_dates(tmp_path):
    federation = Federation(tmp_path, EdgeBank.tiny())
    federation.agree()
    ask = federation.sites, federation.send, "30min from 00:10 Europe/Berlin", 0.25, 0.25
    with pytest.raises(FedvineError, match="The federation has times that are plain numbers"):
        plan_together(*ask)
    for site in federation.sites.values():
        site.read().dates = True
    plan, (first, last) = plan_together(*ask), (
        f([float(f(site.read().t)) for site in federation.sites.values()]) for f in (min, max))
    inner = np.array(plan.bounds[:-1])
    assert inner[0] <= first < inner[0] + 1800 and plan.bounds[-1] > last
    assert (inner % 1800 == 600).all() and len(inner) > 2
    assert len(plan_together(*ask, slack=0.0)) >= len(plan) - 1


def test_seconds_that_a_site_claims_are_no_more_than_those_that_passed(tmp_path):
    federation = Federation(tmp_path, EdgeBank.tiny())
    deliver = federation.deliver

    def slow(name, block, seal, seconds):
        answer = unpack(loads(deliver(name, block, seal, seconds)))
        if isinstance(answer["reply"], list) and len(answer["reply"]) == 3:
            answer["reply"][2] = 1e9
        return dumps(pack(answer))

    federation.deliver = slow
    made = federation.run().finish()
    assert made.clients.traffic["ada"]["seconds"] < 1e6


class UnheardTask(type(testing.PROTOCOL)):
    """Links, under a name that is not known elsewhere."""

    task: Literal["unheard"] = "unheard"
    federated: ClassVar[bool] = False


class Unheard(EdgeBank):
    """Answers for a task that no federation carries."""

    task = "unheard"


@pytest.mark.parametrize("method", ['method = "fedlink_private"', '[method]\nname = '
                                    '"fedlink_private"'])
def test_the_table_aggregate_of_an_experiment_is_the_methods_as_in_one_process(tmp_path, method):
    file = tmp_path / "e.toml"
    file.write_text(f"{method}\n[aggregate]\ngrain = 7\n")
    order = read_order(file, tmp_path / "out", ["aggregate.clip=0.5"])
    assert order.kind().aggregate.grain == 7 and order.kind().aggregate.clip == 0.5


def test_what_a_federation_cannot_carry_is_refused_before_anything_starts(
        tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "method", lambda name: Unheard)
    file = tmp_path / "e.toml"
    file.write_text("method = 'unheard'")
    with pytest.raises(FedvineError, match="does not carry unheards, of which edgebank is"):
        read_order(file, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    federation = Federation(tmp_path, EdgeBank.tiny())
    with pytest.raises(Refused, match="does not carry the method's task"):
        ask(federation.send, "ada", 1.0, do="agree", run="a run", method={"name": "unheard"},
            protocol={}, travelled=False)


made_up = {"bounds": [0.0, 1.0], "val": 0, "test": 0}


def test_a_save_cannot_leave_its_folder(tmp_path):
    federation = Federation(tmp_path, FedLink.tiny())
    federation.run()
    with pytest.raises(Refused, match="the request failed there"):
        ask(federation.send, "ada", 1.0, do="save", moment="../../evil")
    assert "not the name of a checkpoint" in list(
        federation.sites["ada"].account.lines())[-1]["why"]


def test_garbage_is_answered_with_one_sentence(tmp_path):
    site = Federation(tmp_path, FedLink.tiny()).sites["ada"]
    for block in (b"", b"\x00" * 40, np.random.Generator(np.random.PCG64(0)).bytes(200)):
        assert b"error" in site.handle(block, block) and b"error" in site.answer("a run", block)


@pytest.mark.parametrize(("quorum", "common"), [(1.0, {"b"}), (0.6, {"a", "b"}), (0.34, {"a", "b"}),
                                                (0.3, {"a", "b", "c"})])
def test_a_moment_is_common_when_enough_sites_can_go_back_to_it(tmp_path, monkeypatch, quorum,
                                                                common):
    clients = Federation(tmp_path, FedLink.tiny(), quorum=quorum).run().clients
    name = {"a": "000000-000001", "b": "000000-000002", "c": "000001-000000"}
    kept = {site: [name[x] for x in have] for site, have in
            {"ada": "ab", "bob": "ab", "cyd": "bc"}.items()}
    kept["cyd"].append("999999-000001")     # of a stage that this run does not have
    monkeypatch.setattr(clients, "all", lambda *expected, **request: kept)
    assert clients.checkpoints() == {name[x] for x in common}


def test_an_arrival_that_failed_at_a_site_is_sent_again(tmp_path):
    """A full disk, say: the site lacks the stage until it has heard of it, and then does not."""
    class FullOnce(Federation):
        full = True

        def deliver(self, name, block, seal, seconds):
            request = unpack(loads(block))
            if self.full and name == "bob" and request.get("function") == "observe" and (
                    request["place"][0] == 1):
                self.full = False
                return dumps(pack({"error": ["failed"]}))
            return super().deliver(name, block, seal, seconds)

    method = EdgeBank()
    federation = FullOnce(tmp_path, method, quorum=0.6)
    found = federation.run().finish()
    line = next(line for line in read_lines(tmp_path / "server", "messages.jsonl")
                if line["refused"])
    assert "the request failed there" in line["refused"]["bob"] and line["t"] == 1
    expected = reference(method)
    assert scores(found).count("auc") == scores(expected).count("auc")
    at_bob = federation.sites["bob"].worker.client
    assert (at_bob.pairs == expected.clients.workers["bob"].client.pairs).all()
