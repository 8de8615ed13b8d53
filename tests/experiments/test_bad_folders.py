"""Run folders that were damaged, belong to another run, or lie on a full disk."""

import errno
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from wrong import GOOD, RUN, TABLE, TINY, fedvine, is_sentence, refused

from fedvine import testing
from fedvine.core.errors import FedvineError
from fedvine.experiments import run_files, run_folder
from fedvine.experiments.run import run as prepare
from fedvine.methods.popularity import Popularity

ASK = ["predict", "run", "--client", "a", "--user", "u1"]
LAST, BEFORE = "000009-000002", "000008-000002"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with the good table and a finished run; the tests get it as it is here."""
    place = tmp_path_factory.mktemp("made")
    (place / "good.csv").write_text(GOOD)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("FEDVINE_CACHE", str(tmp_path_factory.mktemp("cache")))
        assert fedvine(*RUN)[0] == 0
    shutil.copytree(place, kept := tmp_path_factory.mktemp("kept") / "copy")
    return place, kept


@pytest.fixture
def run(made, monkeypatch):
    """The finished run's folder, in the working directory (its table is known by its path)."""
    place, kept = made
    shutil.rmtree(place)
    shutil.copytree(kept, place)
    monkeypatch.chdir(place)
    return place / "run"


def cut(file, size=50):
    file.write_bytes(file.read_bytes()[:size])


def unfinished(run):
    (run / "summary.json").unlink()


def results(run):
    """What must not depend on what happened on the way."""
    return (json.loads((run / "summary.json").read_text())["scores"],
            (run / "metrics.jsonl").read_text())


def garbled(run, line):
    """Line 3 of the metrics becomes another one of the same length."""
    lines = (run / "metrics.jsonl").read_bytes().splitlines(True)
    lines[2] = line.ljust(len(lines[2]) - 1)[:len(lines[2]) - 1] + b"\n"
    (run / "metrics.jsonl").write_bytes(b"".join(lines))


DAMAGE = {
    "newest save cut": lambda run: [cut(f) for f in (run / "saves" / LAST).glob("*.safetensors")],
    "both saves cut": lambda run: [cut(f) for f in run.glob("saves/*/*.safetensors")],
    "saves deleted": lambda run: shutil.rmtree(run / "saves"),
    "last save deleted": lambda run: shutil.rmtree(run / "saves" / LAST),
    "positions emptied": lambda run: [f.write_text("") for f in run.glob("saves/*/position.json")],
    "positions null": lambda run: [f.write_text("null") for f in run.glob("saves/*/position.json")],
    "metrics deleted": lambda run: (run / "metrics.jsonl").unlink(),
    "metrics cut": lambda run: cut(run / "metrics.jsonl"),
    "metrics garbage": lambda run: garbled(run, b"garbage"),
    "metrics of another kind": lambda run: garbled(run, b"{}"),
    "metrics not a table": lambda run: garbled(run, b"[1]"),
    "metrics not UTF-8": lambda run: garbled(run, b"\xe9")}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_question_to_a_damaged_run(run, name):
    """Not answered from another moment, nor with a model that has learned nothing."""
    DAMAGE[name](run)
    refused(ASK, LAST, "summary.json")


def test_rows_that_are_cut_short_say_what_helps(run):
    cut(run / "data" / "stream" / "src.npy")
    refused(ASK, "put its files back, or begin a new run")


def redone(run, **values):
    """Each position says something else."""
    for file in run.glob("saves/*/position.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | values))


FOREIGN = {
    "stage": lambda run, other: redone(run, t=10 ** 9),
    "round": lambda run, other: redone(run, r=7),
    "seconds": lambda run, other: redone(run, seconds=1e9),
    "logs": lambda run, other: redone(run, logs={}),
    "metrics": lambda run, other: (run / "metrics.jsonl").write_text(
        (run / "metrics.jsonl").read_text().replace('"auc": 0', '"auc": 1')),
    "position of another run": lambda run, other: [
        shutil.copy(f, run / "saves" / f.parent.name) for f in other.glob("saves/*/position.json")],
    "saves of another run": lambda run, other: [shutil.rmtree(run / "saves"), shutil.copytree(
        other / "saves", run / "saves")],
    "clients of another moment": lambda run, other: [f.write_bytes(held) for f, held in [
        (run / "saves" / a / "clients.safetensors",
         (run / "saves" / b / "clients.safetensors").read_bytes())
        for a, b in ((BEFORE, LAST), (LAST, BEFORE))]],
    "a byte of the server": lambda run, other: [f.write_bytes(
        f.read_bytes()[:-1] + bytes([f.read_bytes()[-1] ^ 1]))
        for f in run.glob("saves/*/server.safetensors")]}


@pytest.mark.slow
@pytest.mark.parametrize("name", FOREIGN)
def test_a_save_that_was_changed_or_is_another_runs_is_refused(run, name):
    """Neither asked nor gone on with; the other run has the same settings and another seed."""
    assert fedvine(*RUN[:-1], "other", "--seed", "1")[0] == 0
    FOREIGN[name](run, run.with_name("other"))
    refused(ASK, LAST, "summary.json")
    unfinished(run)
    refused(RUN, "no save that can be read", LAST, BEFORE)


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl", "messages.jsonl", "experiment.toml",
                                  "summary.json", "saves", f"saves/{LAST}",
                                  f"saves/{LAST}/position.json", "new"])
def test_links_are_not_followed(run, tmp_path, name):
    """A link in a folder of somebody else, to what is not theirs: neither read nor emptied."""
    target, place = tmp_path / "target", run / name
    if place.exists():
        shutil.move(place, target)
    else:
        target.write_text("mine")
    place.symlink_to(target)
    for arguments in (RUN, ASK, ["report", "run"], ["show", "run"]):
        refused(arguments, name, "is a link")
    held = target.stat()
    if name != "summary.json":
        (run / "summary.json").unlink()
        refused(RUN, name, "is a link")
    assert place.is_symlink() and target.stat().st_size == held.st_size


def test_a_file_that_another_process_takes_away_meanwhile_is_nothing_bad(run, monkeypatch):
    walk = os.walk
    monkeypatch.setattr(os, "walk", lambda path: [*walk(path), (str(path), [], ["was here"])])
    run_files.refuse_links(Path("run"))


@pytest.mark.parametrize("source", [
    "COPY (SELECT 1) TO 'stolen.csv'", "ATTACH 'stolen.db' AS x; SELECT * FROM x.y",
    "SELECT who, what, at, \"where\" FROM 'good.csv'; COPY (SELECT 1) TO 'stolen.csv'",
    "SELECT content AS who, 1 AS what, 2 AS at, 3 AS \"where\" FROM read_text('good.csv')"])
def test_the_sql_of_a_folder_only_selects(run, source):
    text = (run / "experiment.toml").read_text()
    assert f'source = "{run.parent / "good.csv"}"' in text
    (run / "experiment.toml").write_text(text.replace(
        f'source = "{run.parent / "good.csv"}"', f"source = {json.dumps(source)}"))
    refused(RUN, "data.source")
    refused(ASK, "another run's")
    shutil.rmtree(run / "data")     # as a release before this one wrote it
    refused(ASK, "the query")


@pytest.mark.parametrize("line", ["", "format = 2\n"])
def test_a_folder_of_another_version_is_refused(run, line):
    text = (run / "experiment.toml").read_text()
    assert text.startswith("format = 1\n")
    (run / "experiment.toml").write_text(line + text.removeprefix("format = 1\n"))
    refused(RUN, "another version")
    refused(ASK, "another version")


@pytest.mark.slow
def test_what_was_logged_after_the_last_save_stands_there_once(run, monkeypatch):
    """A process that is killed between the lines of a stage and its save."""
    kept = [(run / log).read_text() for log in ("metrics.jsonl", "messages.jsonl")]
    save, count = run_folder.RunFolder.save, []

    def stopped(self, what):
        count.append(what)
        if len(count) in (3, 7, 8):
            raise KeyboardInterrupt
        save(self, what)

    monkeypatch.setattr(run_folder.RunFolder, "save", stopped)
    for _ in range(3):
        assert fedvine(*RUN[:-1], "killed")[0] == 130
        assert len(Path("killed/metrics.jsonl").read_text().splitlines()) > 0
    assert fedvine(*RUN[:-1], "killed")[0] == 0
    metrics, messages = (Path("killed", log).read_text() for log in (
        "metrics.jsonl", "messages.jsonl"))
    assert metrics == kept[0]
    calls = [[(c["t"], c["r"], c["call"]) for c in map(json.loads, text.splitlines())]
             for text in (messages, kept[1])]
    assert calls[0] == calls[1] and len(set(calls[0])) == len(calls[0])


MENDED = ["newest save cut", "last save deleted", "saves deleted"]


@pytest.mark.parametrize("name", [n for n in DAMAGE if n not in MENDED])
def test_a_damaged_run_does_not_go_on(run, name):
    """It would end with other scores."""
    unfinished(run)
    DAMAGE[name](run)
    refused(RUN, "no save that can be read", LAST, BEFORE,
            *(["metrics.jsonl, line 3"] if "line" in name or "garbage" in name else []))


@pytest.mark.parametrize("name", MENDED)
def test_one_that_can_goes_on_to_the_same_scores(run, name):
    """From the save before, or from the start."""
    kept = results(run)
    unfinished(run)
    DAMAGE[name](run)
    assert fedvine(*RUN)[0] == 0
    assert results(run) == kept


@pytest.mark.parametrize("text", ['{"scores": {"te', "null", "{}"])
@pytest.mark.parametrize("arguments", [RUN, ASK], ids=["run", "ask"])
def test_a_summary_that_cannot_be_read(run, text, arguments):
    (run / "summary.json").write_text(text)
    refused(arguments, "run/summary.json", "delete it")


OTHERS = {
    "seed": (["--seed", "3"], "seed is 0 there and 3 here"),
    "method": (["--set", "method.rounds=2"], "method.rounds is 1 there and 2 here"),
    "protocol": (["--set", "protocol.k=7"], "protocol.k is 10 there and 7 here"),
    "clients": (["--clients", "a"], "split.clients is not set there and ['a'] here"),
    "eight": (["--seed", "3", "--threads", "2", "--stages", "9", "--set", "quorum=0.5", "--set",
               "protocol.k=3", "--set", "method.rounds=2", "--set", "method.learning_rate=0.5",
               "--set", "method.steps=1"], "seed", "threads", "stages", "quorum", "protocol.k",
              "method.rounds", "method.learning_rate", "method.steps")}


@pytest.mark.parametrize("name", OTHERS)
def test_a_folder_of_another_experiment_names_each_key(run, name):
    more, *words = OTHERS[name]
    refused([*RUN, *more], "run holds a run of another experiment", *words)


def test_long_values_are_cut_to_where_they_differ():
    ours, theirs = ({"data": {"source": f"{'a' * 90}{end}{'b' * 90}"}} for end in "xy")
    said = run_folder.difference(ours, theirs)
    assert re.fullmatch(r"data.source is \.{3}a+yb+\.{3} there and \.{3}a+xb+\.{3} here", said)


@pytest.mark.parametrize(("text", "words"), [
    (GOOD.replace("1030", "1031"), ["has lost the row", "1030"]),
    (GOOD.replace("i4", "i9"), ["has lost the row", '"i4"']),
    (GOOD.replace(",b\n", ",c\n"), ["has lost the row", 'client "b"'])],
    ids=["time", "item", "client"])
def test_a_table_that_was_edited_under_a_run(run, text, words):
    Path("good.csv").write_text(text)
    refused(RUN, *words, ends=4)


def test_a_table_that_is_gone_is_not_needed_for_an_answer(run):
    shown = fedvine(*ASK)
    Path("good.csv").unlink()
    assert fedvine(*ASK) == shown and shown[0] == 0


@pytest.mark.parametrize("ends", [2, 1])
def test_an_unfinished_run_is_answered_as_of_its_newest_whole_stage_and_says_so(run, ends):
    code, shown, said = fedvine(*ASK)
    assert (code, said) == (0, "")
    unfinished(run)
    if ends == 1:       # killed before the last stage was learned
        shutil.rmtree(run / "saves" / LAST)
    code, found, said = fedvine(*ASK)
    assert code == 0 and f"not finished; this is as of stage {8 + ends} of 10" in said
    assert (found == shown) == (ends == 2)


def test_an_unfinished_run_without_a_whole_stage_is_not_answered(run):
    unfinished(run)
    shutil.rmtree(run / "saves")
    refused(ASK, "has not learned a whole stage", "give its command again")


@pytest.mark.parametrize("name", ["both saves cut", "positions null", "metrics deleted"])
def test_an_unfinished_run_whose_saves_are_damaged_is_not_answered(run, name):
    unfinished(run)
    DAMAGE[name](run)
    refused(ASK, LAST, "no save that can be read", "give the run's command again")


def test_a_folder_that_is_no_run(run):
    Path("mine").mkdir()
    Path("mine", "letter.txt").write_text("dear")
    refused([*RUN[:-1], "mine"], "mine", "--out")


QUESTIONS = {
    "client": (["run", "--client", "aa", "--user", "u1"], '"aa"', 'did you mean "a"?'),
    "user": (["run", "--client", "a", "--user", "u11"], '"u11"', 'did you mean "u1"?'),
    "nothing": (["run"], "--client"), "half": (["run", "--client", "a"], "--user"),
    "two": (["run", "--all", "--client", "a", "--out", "x.csv"], "--all"),
    "top": (["run", "--client", "a", "--user", "u1", "--top", "0"], "--top"),
    "no out": (["run", "--all"], "--out"), "out of one": ([*ASK[1:], "--out", "x.csv"], "--out"),
    "other kind": (["run", "--all", "--out", "x.txt"], "x.txt", ".csv"),
    "out is a folder": (["run", "--all", "--out", "f.csv"], "f.csv is a folder"),
    "out below a file": (["run", "--all", "--out", "good.csv/x.csv"], "good.csv/x.csv"),
    "pairs nowhere": (["run", "--pairs", "none.csv", "--out", "x.csv"], "none.csv does not exist"),
    "columns": (["run", "--pairs", "good.csv", "--out", "x.csv"], '"client"', "who, what, at")}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_bad_question(run, name):
    arguments, *words = QUESTIONS[name]
    Path("f.csv").mkdir()
    refused(["predict", *arguments], *words)


PAIRS = {"empty": ("", "empty"), "client": ("a,u1,i1\nzz,u1,i1\n", '"zz"'),
         "hole": ("a,u1,i1\na,,i1\n", '"user"', "row 2"), "short": ("a,u1\n", "p.csv", "line 2"),
         "quote": ('a,"u1,i1\n', "p.csv", "quote")}


@pytest.mark.parametrize("name", PAIRS)
def test_a_bad_table_of_pairs(run, name):
    text, *words = PAIRS[name]
    Path("p.csv").write_text(text and "client,user,item\n" + text)
    refused(["predict", "run", "--pairs", "p.csv", "--out", "x.csv"], *words)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["stream", "experiment.toml", "/saves/", "summary.json"])
def test_a_full_disk(run, monkeypatch, what):
    """Files of one kind cannot be made safe: no half ones stay, and with space again it goes on."""
    sync = os.fsync

    def full(handle):
        if what in str(Path(f"/proc/self/fd/{handle}").readlink()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(handle)

    command = [*RUN[:-1], "other"]
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        code, _, said = fedvine(*command)
    assert code == 2
    is_sentence(said.splitlines(True)[-1], "No space left", "free space")
    written = [*Path("other").rglob("*"), *Path(os.environ["FEDVINE_CACHE"]).rglob("*")]
    assert not [p for p in written if p.name.endswith(".tmp") or (p.is_file() and what in str(p))]
    assert fedvine(*command)[0] == 0
    assert results(run.with_name("other")) == results(run)


@pytest.mark.slow
def test_a_disk_that_really_takes_no_more(run, tmp_path):
    """The system refuses to let any file grow beyond 13 kB, whichever code writes it."""
    (tmp_path / "good.csv").write_text(GOOD)
    ended = subprocess.run(
        [sys.executable, "-m", "fedvine", "run", "fedlink", *TABLE, *TINY, "--out", "other",
         "--set", "method.width=16"],
        cwd=tmp_path, text=True, capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (13_000, 13_000)))
    assert ended.returncode == 2
    is_sentence(ended.stderr, "saves")
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_run_that_is_under_way_is_not_carried_out_twice(tmp_path):
    def made():
        return prepare(Popularity(), *testing.tiny_case(), protocol=testing.PROTOCOL,
                       out=tmp_path / "run")
    first = iter(made())
    next(first)
    with pytest.raises(FedvineError, match="Another process is carrying out the run in"):
        made().finish()
    rest = list(first)
    assert len(rest) == 3
    assert made().finish().scores
