"""Experiment files and run folders from somebody else open nothing outside of their folder."""

import shutil
import socket
import sqlite3
import threading
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest
import shop

import fedvine
from fedvine.cli import main as cli
from fedvine.core.errors import FedvineError
from fedvine.federation.launch import read_order

COLUMNS = ["--src", "user", "--dst", "item", "--time", "at", "--client", "town"]
DATA = '[data]\nsrc = "user"\ndst = "item"\ntime = "at"\nclient = "town"\n'
METHOD = '[method]\nname = "popularity"\n'


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A folder with a table of the user's own; ``theirs`` beside it came from somebody else."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "theirs").mkdir()
    monkeypatch.chdir(tmp_path)
    return shop.write(tmp_path / "mine")


@pytest.fixture
def listening():
    """A host that a file chooses; ``came`` holds a connection to it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        came = []
        server.settimeout(30)

        def accept():
            try:
                came.append(server.accept()[0])
            except OSError:
                return
            came[0].close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1], came


def fedvine_(capsys, *words):
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        cli.main([str(word) for word in words])
    return ended.value.code or 0, *capsys.readouterr()


def written(data, place="theirs/e.toml"):
    Path(place).write_text(f"{METHOD}{DATA}{data}\n")
    return place


def stranger(monkeypatch, tmp_path):
    """Another user, or another machine: nothing was opened there."""
    monkeypatch.setenv("FEDVINE_CACHE", str(tmp_path / "cache-of-another"))


@pytest.mark.parametrize("value", [
    'source = "../mine/shop.csv"', 'source = "{}/mine/shop.csv"', 'source = "link.csv"',
    'source = "{}/theirs/*.csv"', 'source = "SELECT * FROM \'{}/mine/shop.csv\'"',
    'source = "SELECT * FROM read_csv(\'theirs/link.csv\')"',
    'source = "own.csv"\nusers = "{}/mine/shop.csv"',
    'source = "SELECT * FROM sales"\ndatabase = "sqlite:{}/mine/shop.db"',
    'source = "digits"\nfolder = "{}/mine"'])
def test_an_experiment_file_opens_no_file_outside_of_its_folder(capsys, mine, tmp_path, value):
    shutil.copy(mine, "theirs/own.csv")
    Path("theirs/link.csv").symlink_to(mine)
    code, _, said = fedvine_(capsys, "run", written(value.replace("{}", str(tmp_path))))
    assert code == 2 and "theirs/e.toml names data outside of its folder: " in said
    assert "--open-data" in said and not Path("runs").exists()


def test_a_host_of_a_files_choice_gets_no_connection_and_is_named(
        capsys, mine, listening, monkeypatch):
    port, came = listening
    monkeypatch.setenv("PGPASSWORD", "a secret")
    address = f"postgres://u@127.0.0.1:{port}/shop"
    file = written(f'source = "SELECT * FROM sales"\ndatabase = "{address}"')
    for command in (["run", file], ["audit", file], ["run", file, "--data", "SELECT 1"]):
        code, _, said = fedvine_(capsys, *command)
        assert code == 2 and address in said
    Path("theirs/auto.toml").write_text(Path(file).read_text().replace("popularity", "auto"))
    assert address in fedvine_(capsys, "run", "theirs/auto.toml")[2]
    assert not came
    code, _, said = fedvine_(capsys, "run", file, "--database", address)    # a word
    assert code == 2 and "names data outside" not in said
    assert bool(came) == (find_spec("psycopg") is not None)


def test_what_lies_beside_an_experiment_file_is_opened(capsys, mine):
    shutil.copy(mine, "theirs/own.csv")
    for value in ('source = "own.csv"', 'source = "SELECT * FROM \'theirs/own.csv\'"'):
        assert fedvine_(capsys, "run", written(value), "--out", f"runs/{len(value)}")[0] == 0


def test_a_word_is_needed_once_and_the_command_line_may_name_the_table(capsys, mine):
    file = written('source = "../mine/shop.csv"')
    assert fedvine_(capsys, "run", file)[0] == 2
    assert fedvine_(capsys, "run", file, "--data", mine, "--out", "runs/named")[0] == 0
    other = written('source = "../mine/shop.csv"\nmissing = ["x"]', "theirs/other.toml")
    assert fedvine_(capsys, "run", other, "--out", "runs/known")[0] == 0     # the same table


def test_open_data_is_a_word(capsys, mine):
    file = written('source = "../mine/shop.csv"')
    assert fedvine_(capsys, "run", file, "--open-data")[0] == 0
    assert fedvine_(capsys, "run", file)[0] == 0


@pytest.mark.parametrize(("answer", "code"), [(True, 0), (False, 2)])
def test_a_person_at_a_terminal_is_asked(capsys, mine, monkeypatch, answer, code):
    asked = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda text, err: asked.append(text) or answer)
    file = written('source = "../mine/shop.csv"')
    assert fedvine_(capsys, "run", file)[0] == code
    assert len(asked) == 1 and "mine/shop.csv" in asked[0]


def test_a_run_folder_from_elsewhere_is_asked_by_what_it_keeps_alone(
        capsys, mine, tmp_path, monkeypatch):
    assert fedvine_(capsys, "run", "popularity", "--data", mine, *COLUMNS, "--out", "run")[0] == 0
    top = ["predict", "run", "--all", "--out", "out.csv"]
    assert fedvine_(capsys, *top)[0] == 0
    (tmp_path / "run" / "data").rename(tmp_path / "data")
    assert fedvine_(capsys, *top)[0] == 0               # its user's own: the table is read again
    stranger(monkeypatch, tmp_path)
    for command in (top, ["export", "run", "--out", "exported"]):
        code, _, said = fedvine_(capsys, *command)
        assert code == 2 and f"run names data outside of its folder: {mine}" in said
    with pytest.raises(FedvineError, match="names data outside"):
        fedvine.open_run("run")
    (tmp_path / "data").rename(tmp_path / "run" / "data")
    assert fedvine_(capsys, *top)[0] == 0
    assert "ada" in fedvine.open_run("run").clients
    code, _, said = fedvine_(capsys, *top, "--at", "2030-01-01")
    assert code == 2 and "names data outside" in said
    shutil.rmtree("run/data")
    assert fedvine.open_run("run", open_data=True).clients
    assert fedvine_(capsys, *top)[0] == 0


def test_a_database_in_the_folder_is_a_file_in_it(mine, tmp_path, capsys):
    with closing(sqlite3.connect("theirs/shop.db")) as made:
        made.execute("CREATE TABLE sales (user, item, at, town)")
    file = written('source = "SELECT * FROM sales"\ndatabase = "sqlite:shop.db"')
    assert "no rows" in fedvine_(capsys, "run", file)[2]


def test_a_dry_run_opens_no_data_of_the_experiment(mine, tmp_path):
    """Not even by looking whether its columns are there."""
    file = Path("theirs/hub.toml")
    file.write_text('method = "dgcolearn"\nstages = "7d"\n[data]\nsource = "/etc/passwd"\n'
                    'edges = "/etc/passwd"\n')
    assert read_order(file, tmp_path / "out", opened=False).data is None
    with pytest.raises(FedvineError, match="names data outside of its folder"):
        read_order(file, tmp_path / "out")
