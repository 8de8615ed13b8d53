"""Secure sums in a federation go by a roster that people confirmed, and not by the hub's word."""

import io
import stat
import sys

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from engines.small_kits import key, kit
from engines.test_remote import Federation, scores
from toys import changed

from fedvine import testing
from fedvine.aggregate.bonawitz import Party
from fedvine.aggregate.identities import der, fingerprint
from fedvine.cli import main as cli
from fedvine.core.errors import FedvineError
from fedvine.core.message import dumps, pack
from fedvine.core.replies import RoundAborted
from fedvine.data.plan import by_time
from fedvine.federation import roster
from fedvine.federation.order import Order
from fedvine.methods.fedlink_plus import FedLinkPlus
from fedvine.methods.fedlink_private import FedLinkPrivate

METHOD = FedLinkPrivate.tiny().model_copy(update={"rounds": 1, "share": ("model",)})


@pytest.fixture
def kits(tmp_path):
    return {name: kit(tmp_path / "kits", name) for name in ("ada", "bob", "cyd")}


@pytest.fixture
def file(kits, tmp_path):
    """A roster as people write it down: with remarks, empty lines and small letters."""
    lines = [roster.own_line(k) for k in kits.values()]
    (tmp_path / "roster").write_text(f"# as read out on Monday\n\n{lines[0]}\n{lines[1].lower()}\n"
                                     f"  {lines[2]}\n")
    return tmp_path / "roster"


# -- a roster -------------------------------------------------------------------------------------
def test_a_fingerprint_is_of_the_sites_own_key_and_of_no_certificate(kits):
    """FLARE's process has the key of the certificate, and could sign in the site's name."""
    file = kits["ada"] / roster.KEY
    line = roster.own_line(kits["ada"])
    own = serialization.load_pem_private_key(file.read_bytes(), None)
    assert line == f"ada  {fingerprint(der(own.public_key()))}" == roster.own_line(kits["ada"])
    assert len(line) == 5 + 95 and file.stat().st_mode & 0o777 == 0o600
    assert fingerprint(der(key("ada").public_key())) not in line
    file.write_text("")
    with pytest.raises(FedvineError, match=r"own\.key, the site's own key, cannot be used"):
        roster.own_line(kits["ada"])


def test_a_roster_is_read_and_kept(kits, file):
    found = roster.checked(kits["ada"], file)
    assert found == {n: roster.own_line(k).split()[1] for n, k in kits.items()}
    assert roster.kept(kits["ada"]) == {} and roster.identity(kits["ada"], "ada") is None
    roster.keep(kits["ada"], found)
    assert stat.S_IMODE((kits["ada"] / roster.FILE).stat().st_mode) == 0o600
    assert roster.identity(kits["ada"], "ada").roster == found


@pytest.mark.parametrize(("lines", "match"), [
    ("ada", "line 1, is not the name"), ("{ada}\nbob 12:34", "line 2, is not the name"),
    ("{ada}\n{ada}", "line 2, has a name or a fingerprint for the second"),
    ("{ada}\n{bob}\nbobby {of bob}", "line 3, has a name or a fingerprint for the second"),
    ("{ada}", "fewer than two sites"), ("", "fewer than two sites"),
    ("{bob}\n{cyd}", "has no line of this site, ada"),
    ("ada {of cyd}\n{bob}", "has another fingerprint for this site, ada")])
def test_what_is_no_roster_of_this_site_is_refused(kits, file, lines, match):
    known = {n: roster.own_line(k) for n, k in kits.items()}
    file.write_text(lines.format(**known, **{f"of {n}": k.split()[1] for n, k in known.items()}))
    with pytest.raises(FedvineError, match=match):
        roster.checked(kits["ada"], file)
    assert not (kits["ada"] / roster.FILE).exists()


# -- on the command line --------------------------------------------------------------------------
class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("typed", "kept"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_a_person_confirms_it(kits, file, monkeypatch, capsys, typed, kept):
    from fedvine.cli.site import confirm_roster
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    if kept:
        confirm_roster(kits["ada"], file, False)
    else:
        with pytest.raises(FedvineError, match="was not confirmed"):
            confirm_roster(kits["ada"], file, False)
    assert (kits["ada"] / roster.FILE).exists() == kept
    said = capsys.readouterr().out
    assert "(this site)" in said and "in another way than through the hub?" in said
    for name in kits:
        assert roster.own_line(kits[name]).split()[1] in said


def test_nobody_confirms_it_without_a_terminal(kits, file, monkeypatch, capsys):
    from fedvine.cli.site import confirm_roster
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(FedvineError, match="say so with --confirmed"):
        confirm_roster(kits["ada"], file, False)
    assert not (kits["ada"] / roster.FILE).exists()
    confirm_roster(kits["ada"], file, True)
    capsys.readouterr()
    confirm_roster(kits["ada"], file, False)               # the same again: no question
    assert capsys.readouterr().out == ""


def test_the_commands(kits, file, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["kit", "fingerprint", str(kits["ada"])])
    assert not ended.value.code
    assert capsys.readouterr().out.strip() == roster.own_line(kits["ada"])
    file.write_text("ada 12")
    with pytest.raises(SystemExit) as ended:
        cli.main(["join", str(kits["ada"]), "--roster", str(file)])
    assert ended.value.code
    assert "is not the name of a site and its" in " ".join(capsys.readouterr().err.split())


# -- a run ----------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_federation_with_kit_keys_has_the_sums_of_one_process(tmp_path):
    federation = Federation(tmp_path, METHOD)
    made = federation.run().finish()
    split = federation.split
    plan = by_time(split.stream, 1000.0, val=0.25, test=0.25)
    expected = testing.run_small(METHOD, (split, plan))
    assert dumps(pack(made.server.dump())) == dumps(pack(expected.finish().server.dump()))


def test_a_run_with_secure_sums_needs_rosters_before_anything_else(tmp_path):
    federation = Federation(tmp_path, METHOD)
    for folder in federation.kits.values():
        (folder / roster.FILE).unlink(missing_ok=True)
    with pytest.raises(FedvineError, match=r"has no roster of all sites' fingerprints .* fedvine "
                                           r"join KIT --roster FILE there"):
        federation.agree()
    federation.method = changed(METHOD, aggregate={"secure": False})
    federation.agree()


@pytest.mark.slow
@pytest.mark.parametrize(("change", "match"), [
    (lambda text: text.replace("cyd ", "zoe "), "the site's roster does not have cyd"),
    (lambda text: text + "".join(f"s{i} 0{i}{':00' * 31}\n" for i in range(4)),
     "roster has 8 sites, of which a secure sum needs 6, and 4 take part")])
def test_all_sites_of_a_run_are_on_the_roster(tmp_path, change, match):
    federation = Federation(tmp_path, METHOD)
    for name in ("ada", "bob", "dan"):
        file = federation.kits[name] / roster.FILE
        file.write_text(change(file.read_text()))
    with pytest.raises((RoundAborted, FedvineError), match=match):
        federation.run()


@pytest.mark.slow
def test_a_hub_that_mints_a_second_certificate_for_a_site_gets_no_sum(tmp_path):
    """It answers in bob's place, with a key of its own that its own CA certifies; none goes on."""
    federation = Federation(tmp_path, METHOD)
    own = federation.kits["bob"]
    minted = kit(tmp_path / "minted", "bob")
    lines = dict(line.split() for line in (own / roster.FILE).read_text().splitlines())
    lines["bob"] = roster.own_line(minted).split()[1]
    roster.keep(minted, lines)
    federation.kits["bob"] = minted
    federation.start("bob")
    with pytest.raises(FedvineError, match="bob and ada, cyd, dan have different rosters"):
        federation.run().finish()
    assert not (federation.folder / "server" / "summary.json").exists()


@pytest.mark.slow
def test_a_minted_key_with_the_others_roster_is_refused_by_its_fingerprint(tmp_path):
    federation = Federation(tmp_path, METHOD)
    real = federation.sites["bob"].identity

    def lying():
        found = real()
        found._private, found.public = key("mallory"), der(key("mallory").public_key())
        return found

    federation.sites["bob"].identity = lying
    with pytest.raises(FedvineError, match="without bob, who sent a false part"):
        federation.run().finish()
    account = "".join(p.read_text() for p in (tmp_path / "ada" / "account").rglob("*.jsonl"))
    assert "said to be bob's does not have the fingerprint that the roster has" in account


# -- serve ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("clients", "said"), [(2, "all 2 sites"), (3, "all 3 sites"),
                                               (4, "3 of the 4 sites"), (10, "7 of the 10 sites")])
def test_serve_says_how_many_must_stay_before_it_starts(tmp_path, clients, said):
    pytest.importorskip("nvflare", reason="the extra flare is not installed")
    from fedvine.federation.supervisor import Supervisor
    heard = []
    supervisor = Supervisor(tmp_path, heard.append)
    order = Order(out=str(tmp_path / "run"), method={"name": "fedlink_private"}, quorum=0.5)
    supervisor._say_who_must_stay(order, clients)
    assert said in heard[0] and "pauses until they are back" in heard[0]
    supervisor._say_who_must_stay(order.model_copy(update={"method": {"name": "fedlink"}}), clients)
    supervisor._say_who_must_stay(order.model_copy(update={
        "method": {"name": "fedlink_private", "aggregate": {"secure": False}}}), clients)
    assert len(heard) == 1


# -- runs on one table, one after the other --------------------------------------------------------
SUMS = changed(FedLinkPlus.tiny(), share="sums", buckets=8, aggregate={"grain": 3})


class Watched(Federation):
    """A federation that is watched: its vectors by site and stage, before they are masked."""

    def __init__(self, folder, monkeypatch, quorum=1.0):
        super().__init__(folder, SUMS, quorum)
        self.vectors, masked = {}, Party.masked

        def watched(party, vector, sealed):
            t = self.sites[party.name].worker.client.place[0]
            self.vectors.setdefault((party.name, t), []).append(vector.copy())
            return masked(party, vector, sealed)
        monkeypatch.setattr(Party, "masked", watched)

    def again(self, number):
        """Begin another run on the tables as they are now, in new processes of the sites."""
        self.number, self.vectors = number, {}
        for name in self.sites:
            self.start(name)
        return self.run().finish()


@pytest.mark.slow
def test_after_a_changed_cell_no_site_gives_again_what_it_gave_beside_it(tmp_path, monkeypatch):
    federation = Watched(tmp_path, monkeypatch)
    first, plain = federation.run().finish(), federation.vectors
    assert scores(federation.again("2")) == scores(first)
    assert all((a == b).all() for one in plain for a, b in zip(
        plain[one], federation.vectors[one], strict=True))      # the same bits
    part = federation.parts["bob"]
    here = int(np.flatnonzero(np.asarray(part.t) < 1000)[0])
    part.dst[here] = part.dst[here + 1] if part.dst[here + 1] != part.dst[here] else (
        part.dst[here] + 1) % part.num_dst
    made = federation.again("3")
    assert any(v.any() for v in plain["bob", 0])
    assert not any(v.any() for found in federation.vectors.values() for v in found)
    assert 0 < made.scores["test"]["mean"]["auc"] < 1


@pytest.mark.slow
def test_a_run_without_one_of_the_sites_has_no_sums_of_the_same_rows(tmp_path, monkeypatch):
    federation = Watched(tmp_path, monkeypatch, quorum=0.5)
    federation.run().finish()
    federation.down = {"cyd"}
    made = federation.again("2")
    assert not any(v.any() for found in federation.vectors.values() for v in found)
    assert 0 < made.scores["test"]["mean"]["auc"] < 1
    account = "".join(p.read_text() for p in (tmp_path / "bob" / "account").rglob("*.jsonl"))
    assert '"kind": "refused"' not in account
