"""A ledger is one: for two jobs at once, where it was cut, for a kit from a backup."""

import shutil
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvine.core.errors import FedvineError
from fedvine.core.ledger import Counter, Ledger, Spent, _rho, epsilon

LIMIT = 5.0


class Kit:
    """A ledger's file, and its counter outside of the folder."""

    def __init__(self, folder):
        self.folder, self.file = folder / "memory", folder / "memory" / "noise.jsonl"
        self.counter = folder / ".kit.spent"

    def open(self, run="a run", **more):
        return Ledger(self.file, "ada", run, limit=LIMIT, counter=self.counter, **more)


@pytest.fixture
def kit(tmp_path):
    return Kit(tmp_path)


def release(ledger, number, rho=0.02):
    return ledger.key((0, number, 0), "noise", b"x", rho)


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0.01, 0.1)), max_size=20))
def test_the_limit_holds_for_several_jobs_that_are_open_at_once(tmp_path_factory, releases):
    kit = Kit(tmp_path_factory.mktemp("kit"))
    jobs = [kit.open(f"run {number}") for number in range(3)]
    spent, refused = 0.0, False
    for number, (job, rho) in enumerate(releases):
        try:
            release(jobs[job], number, rho)
            spent += rho
            assert epsilon(spent, 1e-5) <= LIMIT
        except Spent:
            refused = True
            assert epsilon(spent + rho, 1e-5) > LIMIT
    assert kit.open().spent() == pytest.approx(spent)
    assert refused or epsilon(spent, 1e-5) <= LIMIT


@pytest.mark.slow
def test_two_processes_at_once_spend_no_more_than_the_limit(kit):
    work = ("import sys\nfrom pathlib import Path\nfrom fedvine.core.ledger import Ledger, Spent\n"
            "l = Ledger(Path(sys.argv[1]), 'ada', sys.argv[3], limit=5.0, counter=Path("
            "sys.argv[2]))\nn = 0\ntry:\n    while True:\n        l.key((0, n, 0), 'noise', b'x', "
            "0.004)\n        n += 1\nexcept Spent:\n    print(n)\n")
    both = [subprocess.Popen([sys.executable, "-c", work, str(kit.file), str(kit.counter), name],
                             stdout=subprocess.PIPE, text=True) for name in ("one", "two")]
    made = [int(process.communicate()[0]) for process in both]
    assert all(process.returncode == 0 for process in both)
    assert sum(made) == int(_rho(LIMIT, 1e-5) / 0.004)
    assert epsilon(kit.open().spent(), 1e-5) <= LIMIT


def lines(kit):
    return kit.file.read_text().splitlines(keepends=True)


DAMAGES = {
    "cut": lambda found: found[:-1], "empty": lambda found: [],
    "without one in the middle": lambda found: [*found[:1], *found[2:]],
    "another cost": lambda found: [found[0].replace("0.02", "0.01"), *found[1:]],
    "two exchanged": lambda found: [found[1], found[0], *found[2:]],
    "one twice": lambda found: [found[0], *found]}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_ledger_that_was_changed_is_refused_with_a_sentence(kit, damage):
    ledger = kit.open()
    for number in range(3):
        release(ledger, number)
    kit.file.write_text("".join(DAMAGES[damage](lines(kit))))
    with pytest.raises(FedvineError, match=r"it had 3|does not follow from the lines before"):
        kit.open()


def test_a_ledger_that_is_cut_while_a_job_is_at_work_is_refused_at_the_next_release(kit):
    ledger = kit.open()
    for number in range(3):
        release(ledger, number)
    kit.file.write_text("".join(lines(kit)[:1]))
    with pytest.raises(FedvineError, match=r"has 1 lines, and by .* it had 3"):
        release(ledger, 3)


def test_without_its_counter_a_ledger_is_refused(kit):
    release(kit.open(), 0)
    kit.counter.unlink()
    with pytest.raises(FedvineError, match="if the kit was moved, move that file, too"):
        kit.open()


def test_a_kill_between_the_line_and_the_counter_changes_nothing(kit, monkeypatch):
    release(kit.open(), 0)
    before = kit.counter.read_bytes()
    release(kit.open(), 1)
    kit.counter.write_bytes(before)         # as if it was killed before it wrote
    assert kit.open().spent() == pytest.approx(0.04)
    assert release(kit.open(), 1) == release(kit.open(), 1)


def test_a_kit_from_a_backup_goes_on_by_its_owners_word_and_all_counts(kit, tmp_path):
    release(kit.open(), 0)
    shutil.copytree(kit.folder, tmp_path / "backup")
    for number in range(1, 4):
        release(kit.open(), number)
    shutil.rmtree(kit.folder)
    (tmp_path / "backup").rename(kit.folder)
    with pytest.raises(FedvineError, match="fedvine join KIT --restored"):
        kit.open()
    assert kit.open(restored=True).spent() == pytest.approx(0.08)
    assert kit.open().spent() == pytest.approx(0.08)        # the word is needed once
    release(kit.open(), 9)
    assert kit.open().spent() == pytest.approx(0.1)


def test_without_a_counter_all_that_the_limit_allows_counts_as_spent(kit):
    release(kit.open(), 0)
    kit.counter.unlink()
    assert epsilon(kit.open(restored=True).spent(), 1e-5) == pytest.approx(LIMIT)
    with pytest.raises(Spent):
        release(kit.open(), 1)


def test_a_second_branch_of_a_ledger_is_charged_with_the_first(kit, tmp_path):
    """A copy of the kit was used elsewhere, and came back with as many lines."""
    release(kit.open(), 0)
    other = Kit(tmp_path / "other")
    (tmp_path / "other").mkdir()
    shutil.copytree(kit.folder, other.folder)
    shutil.copy(kit.counter, other.counter)
    release(kit.open(), 1)
    release(other.open(), 1)
    shutil.copy(other.file, kit.file)
    with pytest.raises(FedvineError, match="it is older, shorter or another one"):
        kit.open()
    assert kit.open(restored=True).spent() == pytest.approx(0.08)


def test_a_new_kit_begins_at_nothing(kit):
    assert kit.open().spent() == 0.0 and Counter(kit.counter).read() == (0, "", 0.0)
    assert kit.counter.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("torn", [0, 1])
def test_a_counter_is_whole_whenever_it_was_killed(tmp_path, torn):
    counter = Counter(tmp_path / "c")
    counter.write(1, "a", 0.5)
    counter.write(2, "b", 1.0)
    text = counter.file.read_bytes()
    at = torn * Counter.SIZE
    counter.file.write_bytes(text[:at] + b"x" * 100 + text[at + 100:])
    assert counter.read() in ((1, "a", 0.5), (2, "b", 1.0))
    counter.write(3, "c", 2.0)
    assert counter.read() == (3, "c", 2.0)
    counter.file.write_bytes(b"y" * 512)
    with pytest.raises(FedvineError, match="is damaged"):
        counter.read()
