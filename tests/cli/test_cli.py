"""The command line from end to end on a small CSV: run, resume, refuse, predict, and its errors."""

import json
import subprocess
import sys

import pytest
import shop

from fedvine.cli import main as cli
from fedvine.core.errors import FedvineError
from fedvine.core.units import names_in
from fedvine.experiments import progress
from fedvine.experiments.experiment import Experiment

COLUMNS = ["--src", "user", "--dst", "item", "--time", "at", "--client", "town"]


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return shop.write(tmp_path)


def fedvine(capsys, *arguments):
    """Exit code, stdout and stderr."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        cli.main([str(a) for a in arguments])
    return (ended.value.code or 0, *capsys.readouterr())


def test_a_run_shows_its_scores_and_the_same_command_again_shows_them_at_once(
        capsys, table, tmp_path):
    command = ["run", "popularity", "--data", "shop.csv", *COLUMNS, "--json", "scores.json"]
    code, first, told = fedvine(capsys, *command)
    assert code == 0
    folder = tmp_path / "runs" / "popularity-shop-s0"
    assert (folder / "summary.json").exists()
    stages = len(Experiment.of_run(folder).open()[2])
    assert len(told.splitlines()) == stages             # not a terminal: a line a stage
    for word in ("ada", "bob", "cyd", "n new", "n all", "MRR", "Negatives",
                 "runs/popularity-shop-s0"):
        assert word in first
    written = (folder / "metrics.jsonl").read_bytes()
    code, second, told = fedvine(capsys, *command)
    assert (code, second, told) == (0, first, "")
    assert (folder / "metrics.jsonl").read_bytes() == written
    records = json.loads((tmp_path / "scores.json").read_text())
    assert [r["client"] for r in records] == [None, "ada", "bob", "cyd"]


@pytest.mark.slow
def test_a_stopped_run_goes_on_and_comes_to_the_same_scores(capsys, table, monkeypatch):
    command = ["run", "fedlink_local", "--data", "shop.csv", *COLUMNS, "--stages", "100",
               "--set", "method.rounds=2", "--set", "method.width=4", "--set", "method.capacity=30"]
    fedvine(capsys, *command, "--out", "whole")
    follow = progress.follow

    def stop(run, console):
        for stage in run:
            if stage.t == 2:
                raise KeyboardInterrupt

    monkeypatch.setattr(progress, "follow", stop)
    code, _, told = fedvine(capsys, *command, "--out", "stopped")
    assert code == 130
    assert "same command again goes on" in told
    monkeypatch.setattr(progress, "follow", follow)
    code, _, told = fedvine(capsys, *command, "--out", "stopped")
    assert code == 0
    assert told.startswith("stage 4/")                  # stages 1 to 3 are not learned again
    kept = [json.loads((table.parent / folder / "summary.json").read_text())["scores"]
            for folder in ("whole", "stopped")]
    assert kept[0] == kept[1]


def test_a_folder_of_another_experiment_is_refused_and_left_alone(capsys, table):
    command = ["run", "edgebank", "--data", "shop.csv", *COLUMNS, "--out", "mine"]
    fedvine(capsys, *command)
    before = {p: p.read_bytes() for p in (table.parent / "mine").rglob("*") if p.is_file()}
    code, out, told = fedvine(capsys, *command, "--seed", "1")
    assert (code, out) == (2, "")
    assert told.count("\n") == 1
    assert "another experiment" in told
    assert "--out" in told
    assert {p: p.read_bytes() for p in (table.parent / "mine").rglob("*") if p.is_file()} == before


def test_options_and_settings_reach_the_experiment(capsys, table):
    code, *_ = fedvine(
        capsys, "run", "edgebank", "--data", "shop.csv", "--src", "user", "--dst", "item", "--time",
        "at", "--split", "hash", "--k", "4", "--clients", "client-1,client-3", "--stages", "800s",
        "--seed", "6", "--threads", "1", "--set", "method.window=2", "--set", "protocol.k=3")
    assert code == 0
    made = Experiment.of_run("runs/edgebank-shop-s6")
    assert made.split.model_dump(exclude_none=True) == {
        "by": "hash", "k": 4, "clients": ["client-1", "client-3"]}
    assert (made.stages, made.seed, made.method.window, made.protocol.k) == ("800s", 6, 2, 3)


@pytest.mark.parametrize(("text", "found"), [
    ("ada,bob", ["ada", "bob"]), ("", [""]), ('ada, "b, c"', ["ada", "b, c"]),
    ('"Volksbank, e.G.",Sparkasse Köln', ["Volksbank, e.G.", "Sparkasse Köln"])])
def test_clients_are_a_row_of_csv(text, found):
    assert names_in(text) == found
    with pytest.raises(FedvineError, match="is no list of names"):
        names_in("a\nb")


def test_an_experiment_from_toml_with_options_put_in(capsys, table):
    (table.parent / "mine.toml").write_text(
        'data = {source = "shop.csv", src = "user", dst = "item", time = "at", client = "town"}\n'
        'method = {name = "popularity", decay = 0.25}\n')
    code, *_ = fedvine(capsys, "run", "mine.toml", "--seed", "2", "--set", "method.decay=0.75")
    assert code == 0
    made = Experiment.of_run("runs/mine-s2")
    assert (made.method.decay, made.split.by) == (0.75, "town")
    assert "decay = 0.75" in fedvine(capsys, "show", "runs/mine-s2")[1]
    assert "decay = 0.25" in fedvine(capsys, "show", "mine.toml")[1]


@pytest.mark.slow
def test_forecasts_for_one_for_all_and_for_pairs(capsys, table):
    fedvine(capsys, "run", "edgebank", "--data", "shop.csv", *COLUMNS, "--out", "mine")
    user, item, _, town = table.read_text().splitlines()[1].split(",")
    code, out, _ = fedvine(capsys, "predict", "mine", "--client", town, "--user", user,
                           "--top", "100")
    assert code == 0
    marks = {row.rsplit(None, 2)[0].strip(): row.split()[-1] for row in out.splitlines()[1:]
             if row.strip()}
    assert marks[item] == "known"
    assert "new" in marks.values()
    code, out, _ = fedvine(capsys, "predict", "mine", "--all", "--out", "all.parquet")
    assert (code, (table.parent / "all.parquet").exists()) == (0, True)
    (table.parent / "pairs.csv").write_text(
        f"client,user,item\n{town},{user},{item}\n{town},x,{item}\n")
    code, out, _ = fedvine(capsys, "predict", "mine", "--pairs", "pairs.csv", "--out", "s.csv")
    assert code == 0
    assert "1 have no score" in out
    rows = (table.parent / "s.csv").read_text().replace('"', "").splitlines()
    assert rows == ["client,user,item,score,known", f"{town},{user},{item},1,true",
                    f"{town},x,{item},,false"]


@pytest.mark.parametrize(("arguments", "message"), [
    (["run", "edgebnak", "--data", "shop.csv"], 'no method called "edgebnak" (did you mean'),
    (["run", "edgebank"], "Say with --data what to run on"),
    (["run", "edgebank", "--data", "sohp.csv", *COLUMNS], "sohp.csv does not exist"),
    (["run", "edgebank", "--data", "flihgts"], '(did you mean "flights"?)'),
    (["run", "edgebank", "--data", "shop.csv"], 'has no column "src"'),
    (["run", "edgebank", "--data", "shop.csv", "--src", "user", "--dst", "item"],
     "Links need times: a table of edges has a column of them. Name its columns with --src"),
    (["run", "edgebank", "--data", "shop.csv", *COLUMNS, "--stages", "3 moons"], "'3 moons'"),
    (["run", "edgebank", "--data", "shop.csv", *COLUMNS, "--split", "twon"], '"town"'),
    (["run", "edgebank", "--data", "shop.csv", *COLUMNS, "--clients", "ada,eve"], '"eve"'),
    (["run", "edgebank", "--data", "shop.csv", *COLUMNS, "--set", "method.window=0"],
     "method.window is 0"),
    (["run", "none.toml"], "none.toml cannot be read"), (["show", "edgebnak"], '"edgebank"'),
    (["predict", "nowhere", "--all", "--out", "x.csv"], "nowhere is not a run folder"),
    (["predict", "nowhere", "--all"], "Say with --out"), (["predict", "nowhere"], "Say one of")])
def test_a_mistake_is_one_sentence_and_leaves_nothing(capsys, table, arguments, message):
    code, out, told = fedvine(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in told
    assert told.startswith("Error: ")
    assert told.count("\n") == 1
    assert [p.name for p in table.parent.iterdir()] == ["shop.csv"]


def test_debug_shows_where_an_error_came_from(table):
    with pytest.raises(ValueError, match="edgebnak"):
        cli.main(["run", "edgebnak", "--data", "shop.csv", "--debug"])


def test_what_there_is_and_what_it_is(capsys):
    code, out, _ = fedvine(capsys, "list")
    assert code == 0
    for name in ("methods", "edgebank", "fedlink_local", "datasets", "flights", "partitions",
                 "louvain"):
        assert f" {name}" in out
    out = fedvine(capsys, "show", "edgebank")[1]
    assert "Poursafaei" in out
    assert "'unlimited' | int >= 1" in out
    assert "hash of its name" in fedvine(capsys, "show", "hash")[1]


def test_help_is_light():
    """What help needs does not include what a run needs."""
    code = ("import sys\nfrom fedvine.cli.main import main\n"
            "try: main(['run', '--help'])\nexcept SystemExit: pass\n"
            "print([m for m in ('torch', 'torch_geometric', 'pandas', 'duckdb', 'numpy') "
            "if m in sys.modules])")
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "--stages" in out.stdout
    assert out.stdout.endswith("[]\n")


def test_the_module_is_the_command():
    out = subprocess.run([sys.executable, "-m", "fedvine", "--version"], check=True,
                         capture_output=True, text=True)
    assert out.stdout.count(".") == 2
