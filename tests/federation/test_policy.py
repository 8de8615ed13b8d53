"""A site's policy and its account of what left; errors travel as codes."""

import io
import json
import math
import subprocess
import sys
import tomllib
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from engines.small_kits import kit
from engines.test_remote import SERVER, Federation, reference, scores
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from toys import changed

from fedvine import testing
from fedvine.cli import main as cli
from fedvine.core import registry
from fedvine.core.errors import FedvineError, Refused
from fedvine.core.message import Packed, loads, pack, unpack
from fedvine.core.replies import RoundAborted
from fedvine.core.settings import build
from fedvine.data.spec import Data
from fedvine.engines.remote import Refusal, ask
from fedvine.federation import account, site_door
from fedvine.federation.account import Account
from fedvine.federation.dashboard import Dashboard
from fedvine.federation.order import Order, SiteFile
from fedvine.federation.policy import SAFE, Policy, coarse_scores
from fedvine.federation.server import learn, open_order
from fedvine.federation.signed import Signer, Trusted
from fedvine.federation.site import Last, Site
from fedvine.federation.site_file import checked_site
from fedvine.federation.site_table import SiteTable
from fedvine.federation.supervisor import Supervisor
from fedvine.living.gate import Gate
from fedvine.methods._fedlink_plus import samples
from fedvine.methods._fedlink_plus.newton import Own
from fedvine.methods.edgebank import EdgeBank
from fedvine.methods.fedlink import FedLink
from fedvine.methods.fedlink_plus import FedLinkPlus
from fedvine.methods.fedlink_private import FedLinkPrivate
from fedvine.tasks.link_prediction import LinkPrediction


def test_what_join_writes_are_the_defaults_and_they_are_safe():
    policy = build(SiteFile, tomllib.loads(SAFE)).policy
    assert policy == Policy()
    enough = {"grain": 10}
    policy.check(FedLinkPrivate(aggregate=enough), protocol=LinkPrediction())
    policy.check(FedLinkPlus(share="sums", aggregate=enough), bounds=(0.0, 3600.0, math.inf))
    for method, code in ((FedLink(), "policy-method"), (FedLinkPlus(), "policy-field"),
                         (FedLinkPlus(share="none"), "policy-field"),
                         (FedLinkPrivate(), "policy-field"),
                         (FedLinkPlus(share="sums", aggregate=enough, buckets=1 << 20),
                          "policy-field"),
                         (FedLinkPrivate(aggregate={"secure": False}), "policy-field")):
        with pytest.raises(Refusal) as refused:
            policy.check(method)
        assert refused.value.sent[0] == code
    with pytest.raises(Refusal, match="travelled = false"):
        policy.check(EdgeBank(), travelled=True)
    with pytest.raises(Refusal, match=r"protocol\.negatives .* at most 1000, and .* 1000000"):
        policy.check(EdgeBank(), protocol=LinkPrediction(negatives=1_000_000))
    with pytest.raises(Refusal, match=r"a stage to be at least 1h long, and .* 3000 seconds"):
        policy.check(EdgeBank(), bounds=(0.0, 3000.0, 6000.0))
    for bounds in ((math.nan, 0.0, 20.0, 7200.0), (0.0, 7200.0, 7201.0), (0.0, 7200.0, 0.0)):
        with pytest.raises(Refusal, match="a stage to be at least 1h long"):
            policy.check(EdgeBank(), bounds=bounds)
    daily = policy.model_copy(update={"stage": "1d"})
    daily.check(EdgeBank(), bounds=(0.0, 86_400.0, 169_200.0, 255_600.0))   # a day of 23 hours
    months = policy.model_copy(update={"stage": "1mo"})
    months.check(EdgeBank(), bounds=(0.0, 31 * 86_400.0, 59 * 86_400.0))
    with pytest.raises(Refusal, match="at least 1mo long"):
        months.check(EdgeBank(), bounds=(0.0, 31 * 86_400.0, 58 * 86_400.0))
    with pytest.raises(Refusal, match="at least 1d long"):
        daily.check(EdgeBank(), bounds=(0.0, 86_400.0, 169_100.0, 255_600.0))


@pytest.mark.parametrize(("wanted", "value", "said"), [
    ({"least": 1.0}, 0.5, "noise to be at least 1, and in this run it is 0.5"),
    ({"least": 1.0, "most": 2}, 3.0, "noise to be at least 1 and at most 2, and"),
    (2.0, 1.0, "noise to be 2.0, and"), ([1.5, 2.0], 1.0, r"noise to be one of 1.5, 2.0, and")])
def test_a_field_is_fixed_or_bounded(wanted, value, said):
    policy = Policy(methods={"fedlink_private": {"aggregate.noise": wanted}})
    policy.check(FedLinkPrivate(aggregate={"clip": 1.0, "noise": 2.0}))
    with pytest.raises(Refusal, match=said):
        policy.check(FedLinkPrivate(aggregate={"clip": 1.0, "noise": value}))


def test_what_has_no_bound_is_not_within_one():
    policy = Policy(methods={"fedlink_private": {"aggregate.clip": {"most": 1.0}}})
    policy.check(FedLinkPrivate(aggregate={"clip": 1.0}))
    with pytest.raises(Refusal, match="clip to be at most 1, and in this run it is not set"):
        policy.check(FedLinkPrivate())
    policy = Policy(methods={"fedlink_private": {"aggregate.secure": 1}})
    with pytest.raises(Refusal, match="secure to be 1, and in this run it is true"):
        policy.check(FedLinkPrivate())


def test_epsilon_is_at_the_sites_own_delta():
    policy = Policy(epsilon=8.0)
    method, other = (FedLinkPrivate(rounds=20, aggregate={
        "clip": 1.0, "noise": 2.0, "delta": d, "grain": 10})
                     for d in (0.99, 1e-5))
    assert method.privacy(20)["epsilon"] < 8 < other.privacy(20)["epsilon"]
    with pytest.raises(Refusal, match="an epsilon of 8 at most"):
        policy.check(method)
    policy.model_copy(update={"delta": 0.5}).check(method)


def test_the_largest_epsilon_counts_the_rounds_of_all_stages(monkeypatch):
    monkeypatch.setattr(FedLinkPrivate, "privacy", lambda self, rounds: {
        "epsilon": rounds / self.aggregate.noise} if self.aggregate.noise else {})
    policy, method = Policy(epsilon=8.0), FedLinkPrivate(
        rounds=2, aggregate={"clip": 1.0, "noise": 1.0, "grain": 10})
    policy.check(method, stages=4)
    with pytest.raises(Refusal, match="an epsilon of 8 at most, and in this run it is 10"):
        policy.check(method, stages=5)
    for silent in (FedLinkPrivate(aggregate={"grain": 10}), EdgeBank()):
        with pytest.raises(Refusal, match="and in this run it is without a bound"):
            policy.check(silent)


@pytest.mark.parametrize(("values", "match"), [
    ({"methods": {"fedlnk": {}}}, "no method called .*did you mean"),
    ({"methods": {"fedlink": {"capacty": 3}}}, 'no field "capacty" .did you mean "capacity"'),
    ({"methods": {"fedlink": {"capacity": {"max": 3}}}}, "a bound is written"),
    ({"methods": {"fedlink": {"capacity": {"most": "3"}}}}, "a bound is written"),
    ({"grian": 3}, "did you mean"), ({"grain": 0}, "grain is 0"),
    ({"epsilon": float("nan")}, "epsilon")])
def test_a_policy_that_says_nothing_is_refused_before_a_site_joins(values, match):
    with pytest.raises(FedvineError, match=match):
        checked_site({"policy": values})


def test_a_sites_processes_load_torch_for_methods_alone_that_need_it(tmp_path):
    """Whatever else its policy lets in."""
    (tmp_path / "site.toml").write_text(SAFE)
    code = ("import sys\nfrom pathlib import Path\nfrom fedvine.federation import launch, vault\n"
            "from fedvine.methods.edgebank import EdgeBank\n"
            "found = launch.read_site(Path(sys.argv[1]))\nlaunch.known(found)\n"
            "found.policy.check(EdgeBank())\nprint('torch' in sys.modules)")
    out = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True,
                         capture_output=True, text=True)
    assert out.stdout == "False\n"


def test_scores_over_few_edges_stay():
    found = {"n": {"n": 12, "n_new": 4, "n_travelled": 10},
             "scores": {"auc": 0.5, "auc_new": 0.1, "mrr_new": 0.2, "auc_travelled": 0.3},
             "curve": [], "drift": {"edges": 41, "new": {}, "rivals": {}}}
    assert coarse_scores(found, 10) == {
        "n": {"n": 20, "n_new": 0, "n_travelled": 10},
        "scores": {"auc": 6 / 11, "auc_travelled": 0.3}, "curve": [],
        "drift": {"edges": 50, "new": {}, "rivals": {}}}
    assert coarse_scores({**found, "n": {"n": 9}}, 10) == {"n": {"n": 0}, "scores": {}}
    testing.PROTOCOL.measured.check(coarse_scores(found, 10), "it", {})


@given(n=st.integers(10, 60), data=st.data())
def test_no_count_follows_from_a_mean(n, data):
    """Whatever number of queries the count stands for, the mean could be of so many."""
    mean = data.draw(st.integers(0, n)) / n
    shown = coarse_scores({"n": {"n": n}, "scores": {"auc": mean}}, 10)
    size, value = shown["n"]["n"], shown["scores"]["auc"]
    least = max(size - 9, 10)
    for other in range(least, size + 1):
        near = min(abs(k / other - value) for k in range(other + 1))
        assert near <= 0.5 / least + 1e-9
    assert abs(value - mean) <= 0.5 / least + 1e-9


def test_curves_and_drift_over_few_edges_stay_too():
    """Nor do shares tell an exact count."""
    rivals = {"popularity": {"auc": 0.5, "auc_new": 2 / 3, "mrr_new": 0.4}}
    found = {"n": {"n": 100, "n_new": 3}, "scores": {"auc": 0.5, "auc_new": 0.6},
             "curve": [{"moment": "epoch 1", "accuracy": 0.4, "accuracy_new": 1 / 3}],
             "drift": {"edges": 97, "rivals": rivals,
                       "new": {"pairs": 3 / 97, "users": 21 / 97, "items": 1.0}}}
    shown = coarse_scores(found, 10)
    assert shown["curve"] == [{"moment": "epoch 1", "accuracy": 36 / 91}]
    assert shown["drift"] == {"edges": 100, "rivals": {"popularity": {"auc": 46 / 91}},
                              "new": {"pairs": 0.0, "users": 0.3, "items": 1.0}}
    testing.PROTOCOL.measured.check(shown, "it", {})


class Nights:
    """Three sites in this process and a server's order."""

    def __init__(self, folder, policies, method, **order):
        split, _ = testing.tiny_case()
        kits = {n: kit(folder / "kits", n) for n in (SERVER, *split.parts)}
        self.asked = []
        self.sites = {n: Site(n, lambda n=n, p=p: self.open(n, p), folder / n, Trusted(kits[n], n),
                              policy=policies.get(n)) for n, p in split.parts.items()}
        self.opened = []
        self.signer = Signer(kits[SERVER], "run", self.deliver,
                             lambda name, _: self.sites[name].trusted.session)
        self.order = Order(**{
            "out": str(folder / "run"), "stages": "1000", "val": 0.25, "test": 0.25, "seed": 7,
            "protocol": testing.PROTOCOL, "forecasts": 0,
            "method": {"name": method.name, **method.model_dump(mode="json", exclude_none=True)},
            **order})

    def open(self, name, part):
        self.opened.append(name)
        return type(part)(part.src, part.dst, part.t, part.src_ids, part.dst_ids, name=name)

    def deliver(self, name, block, seal, seconds):
        self.asked.append((name, unpack(loads(block))["do"]))
        return bytes(self.sites[name].handle(bytes(block), seal))

    def go(self):
        return open_order(self.order, "run", sorted(self.sites), self.signer)[0].finish()


ALL = Policy(methods={"fedlink": {}, "edgebank": {}}, times=True, grain=1)


@pytest.mark.slow
def test_a_policy_that_allows_a_run_changes_nothing(tmp_path):
    method = FedLink.tiny()
    made = Nights(tmp_path, dict.fromkeys(testing.NAMES, ALL), method).go()
    assert scores(made) == scores(reference(method))


def test_what_is_of_few_stays_at_a_site_as_in_one_process_and_the_account_says_so(tmp_path):
    method = changed(FedLinkPlus.tiny(), share="sums", buckets=8, rounds=1,
                     aggregate={"secure": False, "grain": 6})
    policy = Policy(methods={"fedlink_plus": {}}, times=True, grain=1)
    nights = Nights(tmp_path, dict.fromkeys(testing.NAMES, policy), method)
    assert scores(nights.go()) == scores(reference(method))
    stays = [line for line in nights.sites["bob"].account.lines() if "stays" in line]
    assert {line["function"] for line in stays} >= {"counted"}


def test_an_arrival_that_fails_at_a_site_is_carried_out_once_when_it_comes_again(
        tmp_path, monkeypatch):
    method = changed(FedLinkPlus.tiny(), share="none", rounds=1)
    whole = Nights(tmp_path / "whole", {}, method)
    whole.go()
    nights, kept_on = Nights(tmp_path / "full", {}, method, quorum=0.6), samples.kept_on
    failed = []

    def full(before, *more):
        bob = nights.sites["bob"].worker.client
        if before is bob.samples and bob.place[0] == 1 and not failed:
            failed.append(1)
            raise OSError(28, "No space left on device")
        return kept_on(before, *more)
    monkeypatch.setattr(samples, "kept_on", full)
    nights.go()
    lines = [line for line in nights.sites["bob"].account.lines() if line["kind"] == "refused"]
    assert [line["function"] for line in lines] == ["observe"]

    def counted(run):
        packed = pack(run.sites["bob"].worker.client.dump()["counts"])
        return packed.skeleton, [bytes(buffer) for buffer in packed.buffers]
    assert counted(nights) == counted(whole)


def test_account_and_status_say_who_answers_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Own, "better", lambda self, w, *edges: (w, bool(self.former.any())))
    method = changed(FedLinkPlus.tiny(), share="none", rounds=1)
    nights = Nights(tmp_path, {}, method)
    made, _ = open_order(nights.order, "run", sorted(nights.sites), nights.signer)
    (tmp_path / "hub").mkdir()
    learn(made, nights.order, tmp_path / "hub", "run")
    lines = [line for line in nights.sites["bob"].account.lines() if "alone" in line]
    assert {(line["function"], line["alone"]) for line in lines} == {("observe", True)}
    cli.federation_cli.status(tmp_path)
    assert "times by weights of its own)" in capsys.readouterr().out


def test_a_method_that_is_not_allowed_is_refused_before_the_table_is_opened(tmp_path):
    nights = Nights(tmp_path, {"bob": Policy()}, FedLink.tiny())
    with pytest.raises(RoundAborted, match="bob's answer to agree was refused, as it is an error: "
                                           "the site's policy does not allow the method fedlink"):
        nights.go()
    assert nights.opened == [] and {do for _, do in nights.asked} == {"agree"}
    line, = nights.sites["bob"].account.lines()
    assert line["kind"] == "refused" and line["code"] == "policy-method"
    assert "does not allow the method fedlink" in line["why"]


def test_with_a_quorum_the_run_goes_on_without_it_and_the_status_says_why(
        tmp_path, monkeypatch, capsys):
    nights = Nights(tmp_path, {"bob": Policy()}, FedLink.tiny(), quorum=0.6)
    made, _ = open_order(nights.order, "run", sorted(nights.sites), nights.signer)
    (tmp_path / "hub").mkdir()
    learn(made, nights.order, tmp_path / "hub", "run")
    assert made.scores["test"]["mean"]["auc"] > 0
    assert [do for name, do in nights.asked if name == "bob"] == ["agree"]
    assert "bob" not in nights.opened
    cli.federation_cli.status(tmp_path)
    said = "bob's answer to agree was refused, as it is an error: the site's policy does not allow"
    assert f"  bob: {said} the method fedlink" in capsys.readouterr().out
    state = json.loads((tmp_path / "hub" / "run.state.json").read_text())
    board = Dashboard(Console(file=io.StringIO()))
    for _ in range(3):
        board.show(state)
    assert sum(said in sentence for sentence in board.sentences) == 1


def test_a_site_that_declined_stays_out_until_its_process_is_a_new_one(tmp_path, monkeypatch):
    """Else a run that lives would start over for it at each stage."""
    supervisor = Supervisor(tmp_path, lambda text: None)
    (tmp_path / "hub").mkdir()
    file, again = tmp_path / "hub" / "run.state.json", tmp_path / "hub" / "run.again"
    supervisor.server = type("Server", (), {"runs": True, "tidy": lambda self: None})()
    seen = []

    class Console:
        def status(self, job):
            return "RUNNING"

        def clients(self):
            seen.append(again.exists())
            if len(seen) == 12:
                file.write_text(json.dumps({"state": "finished", "why": ""}))
            return {"ada"} if 5 <= len(seen) < 8 else {"ada", "bob"}    # bob is restarted

    supervisor.console = Console()
    client = {"gone": False}
    file.write_text(json.dumps({"state": "running", "t": 0, "clients": {"ada": client},
                                "declined": {"bob": "why"}}))
    monkeypatch.setattr("fedvine.federation.supervisor.time.sleep", lambda seconds: None)
    order = Order(out=str(tmp_path / "out"), method={"name": "fedlink"}, live=True)
    supervisor._watch("run", order)
    assert seen == [False] * 8 + [True] * 4


def test_the_site_does_not_believe_that_a_run_is_what_was_agreed(tmp_path):
    """The server agrees on one method and opens another; it asks for times it did not name."""
    method = FedLink.tiny()
    nights = Nights(tmp_path, {"bob": Policy(methods={"edgebank": {}}, times=True)}, EdgeBank(),
                    travelled=False)
    send, order = nights.signer, nights.order
    opened = {"run": "run", "number": "1", "plan": {"bounds": [0, 1], "val": 0, "test": 0},
              "protocol": {}, "seed": 0}
    for do, more in (("facts", {}), ("known", {"bounds": [0.0]}), ("arrivals", {}),
                     ("tables", {"stop": 1.0})):
        with pytest.raises(Refused, match="has not said there what this run would do"):
            ask(send, "bob", 1.0, do=do, **more)
    terms = {"run": "run", "method": order.method, "travelled": False, "protocol": {}}
    ask(send, "bob", 1.0, do="agree", **terms)
    ask(send, "bob", 1.0, do="facts")
    with pytest.raises(Refused, match="has not said"):
        ask(send, "bob", 1.0, do="arrivals")
    other = {"name": "fedlink", **method.model_dump(mode="json", exclude_none=True)}
    with pytest.raises(Refused, match="has not said there what this run would do"):
        ask(send, "bob", 1.0, do="open", method=other, clients=["bob"], stages=1, elsewhere=None,
            **opened)
    with pytest.raises(Refused, match="has not said there what this run would do"):
        ask(send, "bob", 1.0, do="grow", method=other, since=0, **opened)
    with pytest.raises(Refused, match="another run is open there"):
        ask(send, "bob", 1.0, do="agree", **{**terms, "run": "other"})


def test_stages_that_are_opened_are_held_against_the_policy(tmp_path):
    """What was agreed to says nothing of stages; the plan comes when the run is opened."""
    method = FedLinkPlus(share="none", aggregate={"noise": 4.0, "secure": False})
    most = 1.1 * method.privacy(method.rounds_at(0))["epsilon"]       # of one stage
    nights = Nights(tmp_path, {"bob": Policy(methods={"fedlink_plus": {}}, epsilon=most)}, method,
                    travelled=False)
    ask(nights.signer, "bob", 1.0, do="agree", run="run", method=nights.order.method,
        travelled=False, protocol={})
    for stages, refused in ((3, True), (1, False)):
        with pytest.raises(Refused, match="epsilon") if refused else nullcontext():
            ask(nights.signer, "bob", 1.0, do="open", method=nights.order.method, run="run",
                number="1", protocol={}, seed=0, clients=["bob"], elsewhere=None, stages=stages,
                plan={"bounds": [0, 1000, 2000, 4000][:stages + 1], "val": 0, "test": 0})


def test_counts_leave_in_multiples(tmp_path):
    policy = ALL.model_copy(update={"grain": 50})
    nights = Nights(tmp_path, dict.fromkeys(testing.NAMES, policy), EdgeBank())
    made = nights.go()
    ask(nights.signer, "ada", 1.0, do="agree", run="run", method=nights.order.method,
        travelled=False, protocol={})
    facts = ask(nights.signer, "ada", 1.0, do="facts")
    counts = ask(nights.signer, "ada", 1.0, do="known", bounds=list(made.plan.bounds))
    edges = len(testing.tiny_case()[0].parts["ada"])
    assert facts["edges"] == counts[-1] == -(-edges // 50) * 50 and (counts % 50 == 0).all()
    counted = [r["n"] for s in made.stages for by in s.found.values() for r in by.values()]
    assert all(c % 50 == 0 for n in counted for c in n.values())


def test_sums_of_columns_over_few_nodes_stay(tmp_path):
    (tmp_path / "edges.csv").write_text("src,dst,time\n" + "".join(
        f"u{i},v,{i}\n" for i in range(6)))
    (tmp_path / "users.csv").write_text("user,age,income\n" + "".join(
        f"u{i},{30 + i},{'' if i else 99}\n" for i in range(6)))
    data = Data(source=str(tmp_path / "edges.csv"), users=str(tmp_path / "users.csv"))
    sent = {grain: SiteTable(data.open, grain=grain).tables(1e9)["users"]["numbers"]
            for grain in (1, 5)}
    assert sent[1]["income"] == [1.0, 99.0, 99.0 ** 2] and sent[5]["income"] == [0.0, 0.0, 0.0]
    assert sent[1]["age"][0] == 6 and sent[5]["age"][0] == 10       # and their mean stays
    np.testing.assert_allclose(sent[5]["age"], np.array(sent[1]["age"]) * 10 / 6)


@pytest.mark.slow
def test_two_sums_of_columns_do_not_differ_in_a_few_rows(tmp_path):
    """The server asks again with another end, and takes one from the other; also another day."""
    (tmp_path / "edges.csv").write_text("src,dst,time\n" + "".join(
        f"u{i},v,{i}\n" for i in range(20)))
    (tmp_path / "users.csv").write_text("user,age\n" + "".join(f"u{i},{i}\n" for i in range(20)))
    data = Data(source=str(tmp_path / "edges.csv"), users=str(tmp_path / "users.csv"))
    given = tmp_path / "memory" / "sums.json"

    def ages(stop, grain=5):
        table = SiteTable(data.open, grain=grain, given=given)
        return table.tables(stop)["users"]["numbers"]["age"]

    eleven = ages(10.5)
    assert eleven[0] == 15
    for stop in (9.5, 11.5, 14.5, 7.5):     # of eight to fifteen rows: those of eleven again
        assert ages(stop) == eleven
    assert ages(15.5)[0] == 20 and ages(4.5)[0] == 5 and ages(3.5)[0] == 0    # too few
    assert ages(18.5) == ages(15.5)
    (tmp_path / "users.csv").write_text("user,age\n" + "".join(
        f"u{i},{i if i else 99}\n" for i in range(20)))
    assert ages(10.5) == eleven             # and nobody learns the changed cell
    assert ages(18.5, grain=1)[0] == 19         # a site without a policy


@pytest.mark.slow
def test_no_more_bytes_leave_in_a_round_than_the_policy_allows(tmp_path):
    free = Nights(tmp_path / "free", {}, FedLink.tiny())
    free.go()
    most = max(line["out"] for line in free.sites["bob"].account.lines()
               if line["function"] == "train") + 1      # alone, without the call before it
    policy = ALL.model_copy(update={"most_bytes": most})
    nights = Nights(tmp_path, {"bob": policy}, FedLink.tiny(), quorum=0.6)
    nights.go()
    lines = list(nights.sites["bob"].account.lines())
    refused = [line for line in lines if line["kind"] == "refused"]
    assert refused and {line["code"] for line in refused} == {"policy-bytes"}
    assert {line["function"] for line in refused} == {"train"}


@pytest.mark.parametrize("policy", [None, ALL])
def test_raw_answers_to_the_servers_own_queries_do_not_leave(tmp_path, policy):
    """Not to pairs that the server names, not without queries, not by another function's name."""
    method = EdgeBank()
    nights = Nights(tmp_path, {"ada": policy} if policy else {}, method)
    made = nights.go()
    pairs = {"src": np.zeros(4, np.int64), "dst": np.arange(4), "t": np.zeros(4)}
    body = pack([0, pairs])
    call = {"do": "call", "function": "predict", "skeleton": body.skeleton,
            "buffers": list(body.buffers)}
    with pytest.raises(Refused, match="raw answers to queries do not leave a site"):
        ask(nights.signer, "ada", 1.0, place=[9, 0, 1], asks=-1, **call)
    with pytest.raises(Refused, match="not one that the method takes"):
        ask(nights.signer, "ada", 1.0, place=[3, 0, 2], asks=None, **call)
    body = pack([0])
    skeleton, buffers, _ = ask(nights.signer, "ada", 1.0, do="call", place=[3, 0, 3],
                               function="predict", asks=3, skeleton=body.skeleton, buffers=[])
    assert unpack(type(body)(skeleton, buffers)).keys() <= {"n", "scores", "drift"}
    assert made.scores


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local", "fedlink_local"])
def test_a_method_that_shares_nothing_cannot_be_made_to(tmp_path, name):
    """Not by constants; not by a model in place of none."""
    allowed = Policy(methods={name: {}})
    nights = Nights(tmp_path, dict.fromkeys(testing.NAMES, allowed), registry.method(name).tiny(),
                    travelled=False)
    made = nights.go()
    terms = {"run": "run", "travelled": False, "protocol": {},
             "method": {**nights.order.method, "share": ["model", "users", "items"]}}
    with pytest.raises(Refused, match="the method, its constants or the protocol are not valid"):
        ask(nights.signer, "ada", 1.0, do="agree", **terms)
    assert "share" in nights.sites["ada"].account.last["why"]

    def called(number, function, *given):
        body = pack(list(given))
        skeleton, buffers, _ = ask(nights.signer, "ada", 1.0, do="call", place=[3, 4, number],
                                   function=function, asks=None, skeleton=body.skeleton,
                                   buffers=list(body.buffers))
        return unpack(Packed(skeleton, buffers))

    assert all(not len(side["keys"]) for side in called(2, "choose").values())
    none = torch.zeros(0, nights.order.kind().width)
    sent = called(3, "train", made.server.model, {side: {
        "rows": np.zeros(0, np.int32), "values": none} for side in ("users", "items")})
    assert sum(side.numel() for side in sent.values()) == 0 and "model" not in sent


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", "000001-0001/../../x", ""])
def test_the_name_of_a_save_is_no_path_also_where_nothing_was_saved(tmp_path, name):
    federation = Federation(tmp_path, EdgeBank())
    federation.run()
    for do in ("save", "restore"):
        with pytest.raises(Refused, match="the request failed there"):
            ask(federation.send, "ada", 1.0, do=do, moment=name)
        assert "is not the name of a checkpoint" in federation.sites["ada"].account.last["why"]


def test_an_error_travels_as_a_code_and_its_cell_stays_at_home(tmp_path):
    federation = Federation(tmp_path, EdgeBank())
    federation.run()
    ada, kept = federation.sites["ada"], []
    deliver = federation.deliver

    def hear(name, block, seal, seconds):
        kept.append(deliver(name, block, seal, seconds))
        return kept[-1]

    federation.deliver = hear
    for error in (FedvineError('row 7 of people.csv: "Eve, HIV" is no date'),
                  KeyError("Eve, HIV")):
        def fails(error=error, **_):
            raise error
        ada.worker.save = fails
        with pytest.raises(Refused, match="the request failed there; the site's account says why"):
            ask(federation.send, "ada", 1.0, do="save", moment="000001-000001")
        assert "HIV" in list(ada.account.lines())[-1]["why"]
    ada.table, ada.part, ada.open_part = None, None, fails
    with pytest.raises(Refused):
        ask(federation.send, "ada", 1.0, do="facts", again=True)
    assert kept and not any(b"HIV" in answer for answer in kept)


@pytest.mark.slow
def test_the_account_has_a_line_a_request_and_its_sums(tmp_path):
    method = FedLink.tiny()
    nights = Nights(tmp_path, {}, method)
    nights.go()
    site = nights.sites["ada"]
    lines = list(site.account.lines())
    assert len(lines) == sum(name == "ada" for name, _ in nights.asked)
    kinds = {(line["function"], line["kind"]) for line in lines}
    assert {("agree", "nothing"), ("facts", "counts and times"), ("train", "for training"),
            ("arrivals", "keys and times of users"), ("predict", "scores")} <= kinds
    sums = site.account.sums()
    assert sum(one["out"] for one in sums) == sum(line["out"] for line in lines)
    assert sum(one["requests"] for one in sums) == len(lines)
    for file in [site.account.folder, *site.account.folder.iterdir()]:
        assert file.stat().st_mode & 0o077 == 0


def test_many_requests_push_no_refusal_out_and_no_sum_grows_without_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(account, "LARGEST", 1000)
    monkeypatch.setattr(account, "MANY", 20)
    kept = Account(tmp_path / "account")
    kept.add(run="a", function="open", kind="refused", code="policy-method", why="not this one",
             **{"in": 1, "out": 1})
    for number in range(400):
        kept.add(run=f"run {number}", function="known", kind="refused", code="unknown",
                 why=f"no {number}", **{"in": 1, "out": 1})
    assert not any(line["why"] == "not this one" for line in kept.lines())
    assert {one["why"]: one["count"] for one in kept.refused().values()} == {
        "not this one": 1, "no 0": 400}
    sums = kept.sums()
    assert sum(one["requests"] for one in sums) == 401 and len(sums) < 400
    assert any(one["run"] == "earlier runs" for one in sums)


def test_what_a_hub_asks_outside_of_rounds_is_bounded(tmp_path, monkeypatch):
    nights = Nights(tmp_path, {"bob": ALL.model_copy(update={"hourly_bytes": 300, "runs": 1})},
                    EdgeBank.tiny(), quorum=0.6)
    nights.go()
    codes = [line["code"] for line in nights.sites["bob"].account.lines() if "why" in line]
    assert codes[0] == "policy-hour"
    bob = nights.sites["bob"]
    (bob.folder / "old-1").mkdir()
    with pytest.raises(Refusal, match="keeps 1 runs"):
        bob._place("new", "1", {}, SimpleNamespace(began=SimpleNamespace(facts=dict)), {}, 0)
    with pytest.raises(Refusal, match="100,000 times at most"):
        bob.known([0.0] * 100_001)


def test_what_left_in_a_round_that_begins_again_counts_in_the_hour(tmp_path):
    nights = Nights(tmp_path, {"bob": ALL.model_copy(update={"hourly_bytes": 10**6})},
                    EdgeBank.tiny())
    nights.go()
    bob = nights.sites["bob"]
    bob.last = Last((1, 0, 1, 0), b"", "", 400_000)
    bob.restore(None)
    assert bob.last is None and bob.hourly[1] >= 400_000
    bob.last = Last((1, 0, 1, 0), b"", "", 700_000)
    with pytest.raises(Refusal, match="hour"):
        bob.restore(None)
    assert bob.last is not None             # and the round's count goes on
    again = Site("bob", bob.open_part, bob.folder, bob.trusted, policy=bob.policy)  # the next job
    assert again.hourly == bob.hourly
    with pytest.raises(Refusal, match="not one that the method takes"):
        bob._call({"place": [0, 1.01, 1, 0]})


def test_the_account_is_bounded_and_its_sums_are_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(account, "LARGEST", 2000)
    monkeypatch.setattr(account, "KEPT", 3)
    kept = Account(tmp_path / "account")
    for number in range(300):
        kept.add(run="a", function=f"f{number % 3}", kind="scores", **{"in": 1, "out": number})
        if number == 200:       # killed between the sums and the deletion of what they have
            old = sorted(kept.folder.glob("*.jsonl"))[0]
            text = old.read_text()
            kept._count(old)
            old.write_text(text)
    files = sorted(kept.folder.glob("*.jsonl"))
    assert len(files) == 3 and all(f.stat().st_size <= 2000 for f in files)
    assert sum(one["requests"] for one in kept.sums()) == 300
    assert sum(one["out"] for one in kept.sums()) == sum(range(300))
    with open(files[-1], "a") as file:
        file.write('{"at": "cut sho')
    kept.add(run="a", function="f0", kind="scores", **{"in": 1, "out": 7})
    assert 300 <= sum(one["requests"] for one in kept.sums()) <= 301
    assert json.loads((kept.folder / "sums.json").read_text())["counted"] > 0


def test_lines_of_now_are_found_for_the_sites_people(tmp_path):
    kept = Account(tmp_path / "account")
    assert kept.since(-1) == ([], 0)
    kept.add(run="a", function="f", kind="refused", why="old", **{"in": 1, "out": 1})
    _, at = kept.since(-1)
    kept.add(run="a", function="f", kind="scores", **{"in": 1, "out": 1})
    kept.add(run="a", function="f", kind="refused", why="new\nline", **{"in": 1, "out": 1})
    (first, second), at = kept.since(at)
    assert first["kind"] == "scores" and second["why"] == "new line"
    file, = kept.folder.glob("*.jsonl")
    with open(file, "a") as handle:         # a line that is being written
        handle.write('{"run": ')
    assert kept.since(at) == ([], at)


def test_lines_at_the_end_of_a_file_that_is_full_are_found_too(tmp_path, monkeypatch):
    monkeypatch.setattr(account, "LARGEST", 400)
    kept, at, found = Account(tmp_path / "account"), -1, []
    for n in range(12):
        kept.add(run="a", function=f"f{n}", kind="refused", why="no", **{"in": 1, "out": 1})
        if n in (0, 7, 11):
            lines, at = kept.since(at)
            found += [line["function"] for line in lines]
    assert len([*kept.folder.glob("*.jsonl")]) > 2 and found == [f"f{n}" for n in range(1, 12)]


def test_a_site_is_told_when_a_run_begins_ends_and_leaves_forecasts(tmp_path, monkeypatch):
    said, works, clock = [], [], SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(site_door, "time", clock)
    (tmp_path / "memory").mkdir()
    news = site_door.SiteNews(tmp_path, said.append, lambda: bool(works))

    def after(*functions, **more):
        for function in functions:
            news.account.add(run="shops", function=function, kind="nothing", **more,
                             **{"in": 1, "out": 1})
        said.clear()
        clock.now += 9
        news.look()
        return list(said)
    begins, ends = ["the run shops begins here"], ["the run shops has ended here"]
    assert after("agree") == [] and after("open") == begins
    works.append(1)
    assert after("open", "train", "forecasts") == []        # of the next night
    assert after("train", why="no\x1b") == ["refused: no?"] and after("train", why="no\x1b") == []
    (tmp_path / "memory" / "shops-0123456789ab.parquet").touch()
    assert after("forecasts") == [f"what shops forecasts is kept here: fedvine predict {tmp_path}"]
    works.clear()
    assert after() == ends and after() == [] and after("open") == begins


class Growing(Nights):
    """Tables up to a time; Bob has four times the rows from stage 16 on, until it is put right."""

    def __init__(self, folder, gate):
        self.end, self.wrong, self.heard = 3001, True, []
        super().__init__(folder, {}, EdgeBank(), live=True, stages="200", quorum=0.6, val=0, test=0)
        split, _ = testing.tiny_case(testing.tiny_stream(edges=6000))
        self.parts = split.parts
        self.sites["bob"].gate = gate

    def open(self, name, part):
        part = self.parts[name]
        rows = np.flatnonzero(part.t < self.end)
        if name == "bob" and self.wrong:
            rows = np.sort(np.concatenate([rows, *[rows[part.t[rows] >= 3000]] * 3]))
        return type(part)(part.src[rows], part.dst[rows], part.t[rows], part.src_ids, part.dst_ids,
                          name=name)

    def deliver(self, name, block, seal, seconds):
        answer = super().deliver(name, block, seal, seconds)
        self.heard.append(answer)
        return answer

    def learned(self):
        made, _ = open_order(self.order, "run", sorted(self.sites), self.signer)
        return made.finish()


def test_a_site_has_a_gate_of_its_own_and_the_hub_hears_only_that(tmp_path):
    nights = Growing(tmp_path, Gate())
    assert len(nights.learned().plan) == 14
    nights.end = 3401       # stages 15 and 16 are whole
    made = nights.learned()
    assert len(made.plan) == 16
    refused = [line for line in nights.sites["bob"].account.lines() if line.get("code")]
    assert [(one["function"], one["code"]) for one in refused] == [("grow", "gate")]
    assert refused[0]["why"].startswith("stage 16 has 356 rows, usually 9")
    heard = b"".join(nights.heard)
    assert b"gate" in heard and b"usually" not in heard
    nights.wrong, nights.end = False, 3601
    made = nights.learned()     # the rows of before come late
    assert len(made.plan) == 17
    known = nights.parts["bob"].t < made.plan.bounds[-1]
    assert len(nights.sites["bob"].part) == known.sum()
    assert len([x for x in nights.sites["bob"].account.lines() if x.get("code")]) == 1


def test_without_a_gate_the_same_rows_are_learned(tmp_path):
    nights = Growing(tmp_path, None)
    nights.learned()
    nights.end = 3401
    nights.learned()
    assert not [line for line in nights.sites["bob"].account.lines() if line.get("code")]
