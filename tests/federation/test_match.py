"""Users in common: counted by two sites, as multiples of their grain, and nothing else leaves."""

import json
from typing import Any

import numpy as np
import pytest
from engines.test_remote import SERVER, Federation

from fedvine.core.replies import RoundAborted
from fedvine.engines.remote import Refusal, Unreachable
from fedvine.federation import match, server
from fedvine.federation.match import A_DAY, FILE, Matching, matched
from fedvine.federation.order import Order
from fedvine.federation.policy import Policy
from fedvine.federation.site import Site
from fedvine.methods.edgebank import EdgeBank

pytest.importorskip("private_set_intersection", reason="the extra names is not installed")
SECRET = b"of the sites"


def users(first, last):
    return [f"person {i}".encode() for i in range(first, last)]


def counted(tmp_path, first, second, grain=10, secret=SECRET):
    tmp_path.mkdir(parents=True, exist_ok=True)
    one = Matching(first, SECRET, grain, tmp_path / "one.json")
    two = Matching(second, secret, grain, tmp_path / "two.json")
    request, count = one.request("two")
    offer = two.offer("one", count)
    return one.count(offer, two.answer(request)), count


@pytest.mark.parametrize(("last", "grain", "common"), [
    (100, 10, 30), (89, 10, 10), (79, 10, 0), (100, 25, 25), (70, 10, 0), (100, 1, 30)])
def test_the_count_is_a_multiple_of_the_grain_rounded_down(tmp_path, last, grain, common):
    found, sent = counted(tmp_path, users(0, 100), users(70, 70 + max(last - 70, 0)), grain)
    assert found == common and sent % max(grain, 10) == 0 and sent >= 100


def test_with_another_key_nothing_is_in_common(tmp_path):
    assert counted(tmp_path, users(0, 50), users(0, 50), secret=b"the hub's guess")[0] == 0


def test_a_count_that_cannot_begin_does_not_spend_the_day(tmp_path, monkeypatch):
    one = Matching(users(0, 20), SECRET, 10, tmp_path / "one.json")
    with monkeypatch.context() as patch:
        patch.setattr(match, "_psi", lambda: (_ for _ in ()).throw(ValueError("not installed")))
        with pytest.raises(ValueError, match="not installed"):
            one.request("two")
    assert one.request("two")[1] == 20


def test_each_key_answers_once_and_each_site_once_a_day(tmp_path):
    one = Matching(users(0, 20), SECRET, 10, tmp_path / "one.json")
    two = Matching(users(0, 20), SECRET, 10, tmp_path / "two.json")
    request, count = one.request("two")
    offer = two.offer("one", count)
    answer = two.answer(request)
    with pytest.raises(Refusal):
        two.answer(request)
    assert one.count(offer, answer) == 20
    with pytest.raises(Refusal):
        one.count(offer, answer)
    with pytest.raises(Refusal):
        one.request("two")
    for i in range(A_DAY - 1):
        one.request(f"invented {i}")
    with pytest.raises(Refusal):
        one.request("one more")
    (tmp_path / "one.json").write_text(json.dumps({"day": "2026-01-01", "peers": ["two"]}))
    one.request("two")
    (tmp_path / "two.json").unlink()
    two.offer("one", 20)
    with pytest.raises(Refusal):
        two.answer(b"no message")


def test_the_same_user_is_sent_in_another_way_each_time(tmp_path):
    one = Matching(users(0, 20), SECRET, 10, tmp_path / "one.json")
    assert one.request("two")[0] != one.request("three")[0]


# -- in a federation ------------------------------------------------------------------------------
def together(tmp_path, **policies):
    federation = Federation(tmp_path, EdgeBank())
    for name, policy in policies.items():
        site = federation.sites[name]
        federation.sites[name] = Site(name, site.open_part, site.folder, site.trusted,
                                      policy=policy, identity=site.identity)
    return federation


def carried(federation, out) -> tuple[Any, Any]:
    """Let the hub count as its process does; return what it wrote and its state."""
    hub = federation.folder / "kits" / "hub"
    hub.mkdir(exist_ok=True)
    if not (hub.parent / "server").exists():
        (hub.parent / "server").symlink_to(federation.kits[SERVER])
    order = Order(out=str(out), method={"name": "local"}, travelled=False, match=True, quorum=0.01)
    (hub / "common.json").write_text(order.model_dump_json())
    server.carry(hub, "common", sorted(federation.sites), federation.deliver,
                 lambda name, seconds: federation.sites[name].trusted.session)
    state = json.loads((hub / "common.state.json").read_text())
    file = out / match.FILE
    return json.loads(file.read_text()) if file.exists() else None, state


def test_each_pair_of_sites_counts_and_the_account_says_so(tmp_path):
    federation = together(tmp_path)
    found, state = carried(federation, tmp_path / "out")
    ends = {n: {p.src_ids[i] for i in np.unique(p.src).tolist()}
            for n, p in federation.parts.items()}
    assert (state["state"], state["why"]) == ("finished", "") and found["lacking"] == {}
    assert found["common"] == [[a, b, len(ends[a] & ends[b]) // 10 * 10]
                               for a, b in (("ada", "bob"), ("ada", "cyd"), ("bob", "cyd"))]
    lines = [line for line in federation.sites["ada"].account.lines()
             if line["function"] == "match"]
    assert {line["kind"] for line in lines} == {"blinded users or a count"}
    found, state = carried(federation, tmp_path / "again")
    assert found is None and "it has counted users in common" in state["why"]


def test_a_site_allows_it_or_not(tmp_path):
    no, yes = (Policy(methods={"local": {}}, match=m) for m in (False, True))
    found, state = carried(together(tmp_path, ada=yes, bob=yes, cyd=no), tmp_path / "out")
    assert [pair[:2] for pair in found["common"]] == [["ada", "bob"]]
    assert "match to be false" in state["declined"]["cyd"]


def test_without_a_word_before_it_is_refused(tmp_path):
    federation = together(tmp_path)
    federation.agree()
    with pytest.raises(RoundAborted, match="the server has not said there what this run would do"):
        matched(["ada", "bob"], federation.send, 60.0)

    def away(name, block, seconds):
        raise Unreachable(name)

    with pytest.raises(RoundAborted):
        matched(["ada", "bob"], away, 60.0)
    assert not (tmp_path / "ada" / FILE).exists()
