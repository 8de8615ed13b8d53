"""Persons who are erased at a site: rows and names there, and what was learned everywhere."""

import json

import numpy as np
import pytest
from federation.test_living import ROWS, World, scores, whole

from fedvine.aggregate.answered import Answered
from fedvine.core.clients import Clients
from fedvine.core.errors import FedvineError
from fedvine.core.replies import RoundAborted
from fedvine.experiments.receipts import check_receipt
from fedvine.federation import erasures, roster
from fedvine.federation.account import FOLDER, Account
from fedvine.federation.erasures import Erasures
from fedvine.federation.site_file import MEMORY
from fedvine.methods.fedlink import FedLink
from fedvine.methods.fedlink_plus import FedLinkPlus

WHO, OTHER = "Ada Lovelace", "Grace Hopper"
#: Of items that others have met before, so that without them the names come in the same order.
THEIRS = [(WHO, "ann-0", 40.5, "ann"), (WHO, "ann-7", 70.5, "ann"), (WHO, "bob-7", 71.5, "bob"),
          (WHO, "ann-3", 100.5, "ann"), (OTHER, "ann-0", 65.5, "ann")]
EVERY = [*ROWS, *THEIRS]


class Kits(World):
    """Sites whose memory is that of a kit, as the command has it."""

    def restart(self):
        super().restart()
        for name, site in self.sites.items():
            memory = self.folder / f"kit-{name}" / MEMORY
            memory.mkdir(parents=True, exist_ok=True)
            self.sites[name] = type(site)(name, site.open_part, memory, site.trusted)

    def erase(self, name, *users):
        """Erase users at a site that is not at work, and in its table."""
        typed = [f" {user}" for user in users]      # a name is not always typed as it is kept
        file = erasures.erase(self.folder / f"kit-{name}", {"user": typed})
        self.gone = {*getattr(self, "gone", ()), *((name, user) for user in users)}
        self.restart()
        return file

    def table(self, name):
        self.rows = [r for r in self.rows if (r[3], r[0]) not in getattr(self, "gone", ())]
        return super().table(name)

    def night(self, until=None):
        if until is not None:
            self.rows = [r for r in EVERY if r[2] < until]
        return super().night()


def without(*gone):
    return [r for r in EVERY if (r[3], r[0]) not in gone]


def names_in(folder, word):
    return [f for f in sorted(folder.rglob("*")) if f.is_file() and word.encode() in f.read_bytes()]


METHODS = [FedLink(rounds=1, capacity=20, width=4),
           FedLinkPlus(rounds=2, sampled=20, negatives=3, stages=2)]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=["fedlink", "fedlink_plus"])
@pytest.mark.parametrize("at", ["ann", "bob"])
def test_after_it_the_run_is_that_of_sites_which_never_had_the_rows(tmp_path, method, at):
    world, memory = Kits(tmp_path, method=method), tmp_path / f"kit-{at}" / MEMORY
    first, _ = world.night(141)
    world.restart()
    before = scores(first)
    receipt = world.erase(at, WHO)
    assert check_receipt(receipt)["rows"] == sum(
        r[0] == WHO and r[3] == at and r[2] < first.plan.bounds[-1] for r in EVERY)
    assert not any(memory.glob("a-run-*/[0-9]*"))
    run, _ = world.night()
    assert len(run.plan) == len(first.plan)
    other = whole(world, run, without((at, WHO)))
    assert scores(run) == scores(other) != before
    one = Erasures(memory).own[0]
    assert set(one["by"]) == {"hub", "ann", "bob", "cy"} - {at}
    for by in one["by"]:
        (file,) = (memory / "receipts").glob(f"*-{by}.json")
        said = check_receipt(file)
        assert said["by"] == by and said["saves"] > 0 and said["receipt"] == one["number"]
    world.restart()
    world.rows = without((at, WHO))      # the next nights go on
    more, _ = world.night()
    assert len(more.plan) > len(run.plan)


class Masked(Kits):
    """Sites that confirmed one roster, for secure sums; what the server opens is noted."""

    def restart(self):
        known = dict(roster.own_line(self.kits[n]).split() for n in self.names)
        for name in self.names:
            roster.keep(self.kits[name], known)
        super().restart()
        for name, site in self.sites.items():
            site.identity = lambda name=name: roster.identity(self.kits[name], name)


@pytest.mark.slow
def test_masked_sums_before_and_after_show_nothing_and_new_nights_are_learned(
        tmp_path, monkeypatch):
    opened, real = [], Clients.sum

    def noted(self, function, *same, **options):
        found = real(self, function, *same, **options)
        opened.append((self._place[0], function.__name__, found[0]))
        return found

    monkeypatch.setattr(Clients, "sum", noted)
    method = FedLinkPlus(rounds=2, sampled=20, negatives=3, stages=2, share="none",
                         aggregate={"secure": True, "grain": 4})
    world = Masked(tmp_path, method=method)
    world.night(101)
    before, opened[:] = list(opened), []
    assert any(name == "derive" and found.any() for _, name, found in before)
    world.restart()
    world.erase("ann", WHO)
    world.night()
    after, opened[:] = list(opened), []
    assert {t for t, *_ in after} == {t for t, *_ in before}
    for t, name, found in after:        # 0, or what was opened before
        assert not found.any() or any((t, name) == one[:2] and np.array_equal(found, one[2])
                                      for one in before)
    world.restart()
    world.night(200)
    learned = {t for t, name, found in opened if name == "derive" and found.any()}
    assert learned == {4, 5, 6, 7}


def test_the_name_is_in_no_file_of_the_site_and_no_number_says_whose_it_was(tmp_path):
    world = Kits(tmp_path)
    world.night(141)
    memory = tmp_path / "kit-bob" / MEMORY
    Account(memory / FOLDER).add(**{"run": "a run", "function": "grow", "kind": "refused", "in": 1,
                                    "out": 1, "code": "rows", "why": f"the row of {WHO} is gone"})
    assert len(names_in(memory, WHO)) >= 3
    world.restart()
    erasures.erase(tmp_path / "kit-bob", {"user": [WHO]})
    assert names_in(memory, WHO) == []
    assert "row of ... is gone" in next(iter(Account(memory / FOLDER).refused().values()))["why"]
    said = json.loads((memory / erasures.FILE).read_text())
    assert said["own"][0]["rows"] > 0 and WHO not in json.dumps(said)


def test_a_site_that_was_away_drops_before_anything_else(tmp_path):
    world = Kits(tmp_path, quorum=0.6)
    world.night(141)
    world.restart()
    world.erase("ann", WHO)
    world.away = {"cy"}
    world.night()
    assert set(Erasures(tmp_path / "kit-ann" / MEMORY).own[0]["by"]) == {"hub", "bob"}
    assert list((tmp_path / "kit-cy" / MEMORY).glob("a-run-*/[0-9]*"))
    world.away = set()
    world.restart()
    asked = []
    real = world.deliver

    def deliver(name, block, seal, seconds):
        answer = real(name, block, seal, seconds)
        if name == "cy":
            asked.append((world.sites["cy"].account.last["function"], len(list(
                (tmp_path / "kit-cy" / MEMORY).glob("a-run-*/[0-9]*")))))
        return answer

    world.signer.deliver = deliver
    world.night()
    assert [do for do, _ in asked[:2]] == ["agree", "erased"] and asked[1][1] == 0
    world.restart()
    world.night()
    assert set(Erasures(tmp_path / "kit-ann" / MEMORY).own[0]["by"]) == {"hub", "bob", "cy"}


def test_receipts_of_strangers_end_nothing(tmp_path):
    """A site that answers nonsense, or in the hub's name, does not count as one that dropped."""
    world = Kits(tmp_path)
    world.night(104)
    world.restart()
    world.erase("ann", WHO)
    number = Erasures(tmp_path / "kit-ann" / MEMORY).own[0]["number"]
    false = ["no JSON", json.dumps({"receipt": number, "by": "cy", "done": "now"})]
    world.sites["bob"].erasures.carry_out = lambda *_: false[:1]
    world.sites["cy"].erasures.carry_out = lambda *_: [false[1].replace("cy", "bob")]
    run, _ = world.night()
    assert set(Erasures(tmp_path / "kit-ann" / MEMORY).own[0]["by"]) == {"hub"}
    assert scores(run) == scores(whole(world, run, without(("ann", WHO))))
    world.sites["ann"].erasures.carry_out("a-run", [], ["[1]", "null", *false])
    assert set(Erasures(tmp_path / "kit-ann" / MEMORY).own[0]["by"]) == {"hub", "cy"}


def test_a_server_that_does_not_drop_gets_nothing_more_of_the_site(tmp_path, monkeypatch):
    world = Kits(tmp_path)
    world.night(104)
    world.restart()
    world.erase("ann", WHO)
    monkeypatch.setattr("fedvine.federation.server.apply_erasures", lambda *_: {})
    with pytest.raises(RoundAborted, match=r"ann.*has erased somebody"):
        world.night(141)


@pytest.mark.slow
def test_a_site_makes_a_run_begin_anew_once_a_day(tmp_path, monkeypatch):
    world = Kits(tmp_path, quorum=0.6)
    world.night(104)
    world.restart()
    world.erase("ann", WHO)
    world.night()
    world.restart()
    saves = sorted((tmp_path / "run" / "saves").glob("*"))
    world.erase("ann", OTHER)
    run, _ = world.night(141)
    assert saves and {name for _, q, name in scores(run) if q == len(run.plan) - 1} == {"bob", "cy"}
    world.restart()
    monkeypatch.setattr(erasures, "A_DAY", 0.0)
    run, _ = world.night()
    assert {name for _, q, name in scores(run)} == {"ann", "bob", "cy"}
    assert scores(run) == scores(whole(world, run, without(("ann", WHO), ("ann", OTHER))))


def test_a_stopped_erasure_is_finished_by_the_same_command(tmp_path, monkeypatch):
    world = Kits(tmp_path)
    world.night(104)
    world.restart()
    real = erasures.StoredRows.create

    def killed(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(erasures.StoredRows, "create", killed)
    with pytest.raises(KeyboardInterrupt):
        world.erase("ann", WHO)
    monkeypatch.setattr(erasures.StoredRows, "create", real)
    world.erase("ann", WHO)
    run, _ = world.night()
    assert scores(run) == scores(whole(world, run, without(("ann", WHO))))


@pytest.mark.parametrize(("names", "why"), [
    ({"user": ["nobody"]}, "No run at .* has learned \"nobody\""),
    ({"client": ["ann"]}, "A site is one client"),
    ({"node": ["u1"]}, "No run at .* has learned \"u1\"")])
def test_what_is_refused_changes_nothing(tmp_path, names, why):
    world = Kits(tmp_path)
    world.night(70)
    before = {f: f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()}
    with pytest.raises(FedvineError, match=why):
        erasures.erase(tmp_path / "kit-ann", names)
    assert {f: f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()
            and f.name != ".lock"} == {f: b for f, b in before.items() if f.name != ".lock"}


def test_of_a_stage_with_an_erased_row_no_other_sum_is_given(tmp_path):
    rows, kept = np.arange(1, 41, dtype=np.uint64) * 7919, Answered(tmp_path / "rows.npz")
    kept._keep(rows, {"ann": "a", "bob": "b"}, False)
    assert kept.given(rows, 10).kind == "in"
    kept.forget(rows[3:5])
    left = np.delete(rows, [3, 4])
    assert Answered(tmp_path / "rows.npz").rows.size == 0       # read when it is needed
    again = Answered(tmp_path / "rows.npz")
    with again._alone():
        assert again.given(left, 10).kind == "out"
        assert not np.isin(rows[3:5], again.rows).any() and len(again.rows) == 40
