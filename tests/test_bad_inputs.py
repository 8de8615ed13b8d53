"""Wrong input: one sentence that names the culprit, an exit code, and nothing changed on disk."""

import contextlib
import errno
import gzip
import io
import os
from pathlib import Path

import pytest

from fedvine import cli

GOOD = "who,what,at,where\n" + "".join(
    f"u{i % 7},i{(i * i) % 5},{1000 + 10 * i},{'ab'[i % 2]}\n" for i in range(60))
COLUMNS = ["--src", "who", "--dst", "what", "--time", "at", "--client", "where"]
TINY = ["--set", "method.rounds=1", "--set", "method.width=4", "--set", "method.capacity=20"]


def run(*arguments):
    """(exit code, stderr) of the command line."""
    err = io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
        try:
            cli.main([str(a) for a in arguments])
            code = 0
        except SystemExit as stopped:
            code = stopped.code or 0
    return code, err.getvalue()


def snapshot(folder):
    return {p.relative_to(folder): p.read_bytes() if p.is_file() else None
            for p in sorted(folder.rglob("*")) if ".cache" not in p.parts}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a good table in it, as working directory."""
    (tmp_path / "good.csv").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(here, arguments, *words):
    before = snapshot(here)
    code, said = run(*arguments)
    text = " ".join(said.split())
    assert code not in (0, None), text
    assert "Traceback" not in said and "pydantic" not in said, said
    assert len(text) < 600, text
    assert any(w.lower() in text.lower() for w in words), text
    assert snapshot(here) == before


TABLES = {
    "empty file": ("", "empty"), "header only": ("who,what,at,where\n", "no "),
    "column missing": (GOOD.replace("who", "hwo"), '"who"'),
    "time missing": (GOOD.replace(",at,", ",ta,"), '"at"'),
    "client missing": (GOOD.replace("where", "were"), '"where"'),
    "impossible time": (GOOD + "u1,i1,yesterday,a\n", "yesterday"),
    "impossible date": (GOOD.replace("1000", "2013-02-30"), "2013-02-30"),
    "empty time": (GOOD + "u1,i1,,a\n", "at"), "NaN time": (GOOD + "u1,i1,nan,a\n", "nan"),
    "infinite time": (GOOD + "u1,i1,inf,a\n", "inf"),
    "empty user": (GOOD + ",i1,1000,a\n", "who"), "empty item": (GOOD + "u1,,1000,a\n", "what"),
    "empty client": (GOOD + "u1,i1,1000,\n", "where"),
    "too many fields": (GOOD + "u1,i1,1000,a,b,c\n", "csv"),
    "half a number as id": (GOOD.replace("u", "1.5"), "1.5")}


@pytest.mark.parametrize("name", TABLES)
def test_a_bad_table(here, name):
    text, *words = TABLES[name]
    (here / "bad.csv").write_text(text)
    refused(here, ["run", "fedlink", "--data", "bad.csv", *COLUMNS, *TINY], *words)


FILES = {
    "garbage.csv": bytes(range(256)) * 40, "garbage.parquet": b"PAR1 nothing of the kind PAR1",
    "cut.parquet": b"PAR1", "empty.parquet": b"", "cut.csv.gz": gzip.compress(GOOD.encode())[:60],
    "no.csv.gz": b"not gzip"}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_none(here, name):
    (here / name).write_bytes(FILES[name])
    refused(here, ["run", "edgebank", "--data", name, *COLUMNS], name)


RUNS = {
    "no such file": (["--data", "nothing.csv", *COLUMNS], "nothing.csv"),
    "a folder": (["--data", ".", *COLUMNS], "."),
    "unknown data set": (["--data", "flihgts"], "flights"),
    "bad SQL": (["--data", "SELECT FROM WHERE", *COLUMNS], "syntax"),
    "SQL without the file": (["--data", "SELECT * FROM 'none.csv'", *COLUMNS], "none.csv"),
    "columns of a data set": (["--data", "flights", "--src", "tailnum"], "src"),
    "no columns": (["--data", "good.csv"], "--src"),
    "one column twice": (["--data", "good.csv", "--src", "who", "--dst", "who", "--time", "at"],
                         "who"),
    "unknown key": (["--data", "good.csv", *COLUMNS, "--set", "method.capcity=3"], "capacity"),
    "unknown table": (["--data", "good.csv", *COLUMNS, "--set", "metod.rounds=3"], "metod"),
    "text for a number": (["--data", "good.csv", *COLUMNS, "--set", "method.rounds=many"],
                          "rounds"),
    "negative": (["--data", "good.csv", *COLUMNS, "--set", "method.capacity=-1"], "capacity"),
    "zero": (["--data", "good.csv", *COLUMNS, "--set", "method.steps=0"], "steps"),
    "half a round": (["--data", "good.csv", *COLUMNS, "--set", "method.rounds=1.5"], "rounds"),
    "no such choice": (["--data", "good.csv", *COLUMNS, "--set", "method.optimizer=adm"], "optim"),
    "no equals sign": (["--data", "good.csv", *COLUMNS, "--set", "method.rounds"], "rounds"),
    "no duration": (["--data", "good.csv", *COLUMNS, "--stages", "ten days"], "ten days"),
    "stages of nothing": (["--data", "good.csv", *COLUMNS, "--stages", "0d"], "0d"),
    "a million stages": (["--data", "good.csv", *COLUMNS, "--stages", "0.0001s"], "million"),
    "stage too large": (["--data", "good.csv", *COLUMNS, "--stages", "9999"], "9999"),
    "unknown split": (["--data", "good.csv", *COLUMNS, "--split", "wheer"], "where"),
    "too many clients": (["--data", "good.csv", *COLUMNS, "--split", "hash", "--k", "99"], "99"),
    "no clients": (["--data", "good.csv", *COLUMNS, "--split", "hash", "--k", "0"], "k"),
    "unknown client": (["--data", "good.csv", *COLUMNS, "--clients", "a,c"], "c"),
    "negative seed": (["--data", "good.csv", *COLUMNS, "--seed", "-1"], "seed"),
    "no threads": (["--data", "good.csv", *COLUMNS, "--threads", "0"], "threads"),
    "negatives": (["--data", "good.csv", *COLUMNS, "--set", "protocol.negatives=few"],
                  "negatives"),
    "out is a file": (["--data", "good.csv", *COLUMNS, "--out", "good.csv"], "good.csv"),
    "out below a file": (["--data", "good.csv", *COLUMNS, "--out", "good.csv/x"], "good.csv")}


@pytest.mark.parametrize("name", RUNS)
def test_a_bad_command(here, name):
    arguments, *words = RUNS[name]
    refused(here, ["run", "fedlink", *arguments], *words)


def test_an_unknown_method(here):
    refused(here, ["run", "fedlnk", "--data", "good.csv", *COLUMNS], "fedlink")
    refused(here, ["show", "fedlnk"], "fedlink")


EXPERIMENTS = {
    "not TOML": ("method = ", "e.toml"), "no method": ("data = 'good.csv'", "method"),
    "no data": ("method = 'fedlink'", "data"),
    "unknown key": ("metod = 1\nmethod = 'fedlink'\ndata = 'flights'", "metod"),
    "key misspelt": ("metod = 'fedlink'\ndata = 'flights'", "method"),
    "unknown data key": ("method='fedlink'\n[data]\nsource='good.csv'\nsrcs='who'", "srcs"),
    "unknown split key": ("method='fedlink'\ndata='good.csv'\n[split]\nbye='x'", "bye"),
    "unknown protocol key": ("method='fedlink'\ndata='good.csv'\n[protocol]\nnegs=1", "negs"),
    "unknown method key": ("data='good.csv'\n[method]\nname='fedlink'\nroundz=1", "rounds"),
    "a key twice": ("seed=1\nseed=2\nmethod='fedlink'\ndata='good.csv'", "e.toml"),
    "wrong type": ("seed='x'\nmethod='fedlink'\ndata='good.csv'", "seed")}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_bad_experiment_file(here, name):
    text, *words = EXPERIMENTS[name]
    (here / "e.toml").write_text(text)
    refused(here, ["run", "e.toml"], *words)


def test_an_experiment_file_that_is_not_there(here):
    refused(here, ["run", "nothing.toml"], "nothing.toml")


@pytest.fixture
def finished(here):
    """A finished run in ``run``."""
    code, said = run("run", "fedlink", "--data", "good.csv", *COLUMNS, *TINY, "--out", "run")
    assert code == 0, said
    return here


AGAIN = ["run", "fedlink", "--data", "good.csv", *COLUMNS, *TINY, "--out", "run"]
PREDICT = {
    "no run": (["nowhere", "--client", "a", "--user", "u1"], "nowhere"),
    "unknown client": (["run", "--client", "c", "--user", "u1"], '"c"'),
    "unknown user": (["run", "--client", "a", "--user", "u99"], "u99"),
    "nothing said": (["run"], "--client"), "top of none": (["run", "--client", "a", "--user",
                                                           "u1", "--top", "0"], "top"),
    "no file": (["run", "--all"], "--out"),
    "pairs without columns": (["run", "--pairs", "good.csv", "--out", "x.csv"], "client")}


@pytest.mark.parametrize("name", PREDICT)
def test_a_bad_question(finished, name):
    arguments, *words = PREDICT[name]
    refused(finished, ["predict", *arguments], *words)


@pytest.mark.parametrize("setting", ["seed=3", "method.rounds=2", "protocol.negatives=7"])
def test_a_folder_of_another_experiment(finished, setting):
    refused(finished, [*AGAIN, "--set", setting], setting.split("=")[0].split(".")[-1])


def test_a_table_that_was_edited_under_a_run(finished):
    (finished / "good.csv").write_text(GOOD + "u1,i1,9999,a\n")
    refused(finished, AGAIN, "good", "data")


def test_a_folder_that_is_no_run(here):
    (here / "mine").mkdir()
    (here / "mine" / "letter.txt").write_text("dear")
    refused(here, [*AGAIN[:-1], "mine"], "mine")


def test_an_unfinished_run_with_both_saves_cut_short(finished):
    (finished / "run" / "summary.json").unlink()
    for save in (finished / "run" / "saves").rglob("*.safetensors"):
        save.write_bytes(save.read_bytes()[:50])
    refused(finished, AGAIN, "no save that can be read")


def test_one_save_cut_short_goes_on_from_the_one_before(finished):
    summary = (finished / "run" / "summary.json").read_text()
    (finished / "run" / "summary.json").unlink()
    newest = sorted((finished / "run" / "saves").glob("[0-9]*"))[-1]
    for save in newest.glob("*.safetensors"):
        save.write_bytes(save.read_bytes()[:50])
    import json
    assert run(*AGAIN)[0] == 0
    now = (finished / "run" / "summary.json").read_text()
    assert json.loads(now)["scores"] == json.loads(summary)["scores"]


def test_a_summary_cut_short(finished):
    summary = finished / "run" / "summary.json"
    summary.write_text(summary.read_text()[:30])
    refused(finished, AGAIN, "summary.json")


@pytest.mark.parametrize("at", ["table", "run"])
def test_a_full_disk(here, monkeypatch, at):
    """Every byte that is to be made safe fails; what was there stays, half files vanish."""
    if at == "run":
        assert run("run", "edgebank", "--data", "good.csv", *COLUMNS, "--out", "other")[0] == 0
    before = snapshot(here)

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    code, said = run(*AGAIN)
    assert code not in (0, None) and "Traceback" not in said
    assert "space" in said.lower(), said
    left = {p: c for p, c in snapshot(here).items() if p not in before and c is not None}
    assert not left, left                             # no file, whole or half
    assert all(snapshot(here)[p] == c for p, c in before.items())


def test_every_message_is_one_sentence(here):
    """No line breaks of ours: the terminal may wrap, but it is one sentence on one line."""
    for arguments in (["--data", "nothing.csv", *COLUMNS], ["--data", "flihgts"],
                      ["--data", "good.csv", *COLUMNS, "--set", "method.capacity=-1"]):
        _, said = run("run", "fedlink", *arguments)
        assert said.startswith("Error: ") and said.strip().count("\n") == 0, said


def test_there_are_at_least_fifty():
    assert len(TABLES) + len(FILES) + len(RUNS) + len(EXPERIMENTS) + len(PREDICT) + 14 >= 50
    assert Path(cli.__file__).exists()
