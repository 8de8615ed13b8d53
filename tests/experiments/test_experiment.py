"""Experiments: from TOML and back from a run folder, defaults, refusals; and the public names."""

import doctest
import subprocess
import sys

import pytest
import shop

import fedvine
from fedvine.core.errors import FedvineError
from fedvine.experiments import experiment as module
from fedvine.experiments.experiment import Experiment


@pytest.fixture
def table(tmp_path):
    return shop.write(tmp_path)


def made(table, method="edgebank", **more):
    return Experiment.model_validate(
        {"data": {"source": str(table), **shop.COLUMNS}, "method": method, **more})


def toml(path, text):
    path.write_text(text)
    return path


def test_a_table_without_clients_is_dealt_and_a_note_says_how(tmp_path):
    """Not where a person has said how, or the data set knows."""
    source = {"source": str(shop.write(tmp_path)), "src": "user", "dst": "item", "time": "at"}

    def notes(split=None, **columns):
        given = {"data": source | columns, "method": "edgebank", "split": split or {}}
        found = Experiment.model_validate(given).run().notes
        return [n for n in found if n.startswith("No column")]
    assert notes() == ["No column of clients was named, so the edges are split into 5 clients by "
                       "hash; name a column with --client, or say how with --split and --k."]
    assert notes(client="town") == notes({"k": 3}) == notes({"by": "hash"}) == []


def test_the_example_in_the_docstring_runs():
    assert doctest.testmod(module).failed == 0


def test_toml_is_read_and_a_table_is_found_beside_it(tmp_path, table, monkeypatch):
    monkeypatch.chdir("/")
    path = toml(tmp_path / "exp.toml", """
        seed = 3
        stages = 100
        [data]
        source = "shop.csv"
        src = "user"
        dst = "item"
        time = "at"
        client = "town"
        [split]
        clients = ["ada", "cyd"]
        [protocol]
        negatives = "all"
        [method]
        name = "popularity"
        decay = 0.25
        """)
    found = Experiment.read(path)
    assert found.method.model_dump() == {"rounds": 0, "decay": 0.25, "share": "none"}
    assert (found.seed, found.protocol.negatives, found.data.source) == (3, "all", str(table))
    method, split, plan = found.open()
    assert (method, list(split), len(plan)) == (found.method, ["ada", "cyd"], 5)


@pytest.mark.parametrize(("text", "message"), [
    ('data = "flights"\nmethod = "edgebank"\nsede = 1', r'exp.toml: There is no key "sede" \(did '
     'you mean "seed"'),
    ('data = "flights"\n[method]\nname = "edgebank"\nwindwo = 1',
     'exp.toml: There is no key "method.windwo" .did you mean "method.window"'),
    ('data = "flights"\n[method]\nwindow = 1', 'exp.toml: The key "method.name" is missing'),
    ('data = "flights"\nmethod = "edgebnak"', 'exp.toml: .*"edgebnak" .did you mean "edgebank"'),
    ('data = "flihgts"\nmethod = "edgebank"', 'exp.toml: .*"flihgts" .did you mean "flights"'),
    ('method = "edgebank"', 'exp.toml: The key "data" is missing'),
    ('data = "flights"\nmethod = "edgebank"\nthreads = 0', "exp.toml: threads is 0, but"),
    ('seed = 1\ndata = flights', "exp.toml is not TOML: .*line 2")])
def test_a_mistake_in_toml_is_named_with_file_and_key(tmp_path, text, message):
    with pytest.raises(FedvineError, match=message):
        Experiment.read(toml(tmp_path / "exp.toml", text))


def test_settings_replace_and_keep():
    base = Experiment.model_validate(
        {"data": "flights", "method": {"name": "popularity", "decay": 0.1}})
    found = base.with_settings(["seed=4", "protocol.k=3", "split.by=hash", "split.k=2"])
    assert (found.seed, found.protocol.k, found.split.by, found.split.k) == (4, 3, "hash", 2)
    assert found.method == base.method
    assert base.with_settings(["method=edgebank"]).method.model_dump()["window"] == "unlimited"
    with pytest.raises(FedvineError, match=r'no key "method\.decay"'):
        base.with_settings(["method.name=edgebank"])


def test_what_a_data_set_says_holds_until_it_is_said_otherwise():
    base = Experiment.model_validate({"data": "wikipedia", "method": "edgebank"})
    found = base.resolved()
    assert (found.split.by, found.split.k, found.stages) == ("louvain", 5, "3d")
    assert base.with_settings(["split.k=3"]).resolved().split.by == "louvain"
    assert base.with_settings(["split.by=hash"]).resolved().split.k is None
    assert base.with_settings(["stages=500"]).resolved().stages == 500
    assert found.resolved() == found


def test_a_table_is_split_by_its_client_column_or_by_hash(table):
    _, split, plan = made(table).open()
    assert list(split) == ["ada", "bob", "cyd"]
    assert len(plan) == pytest.approx(10, abs=1)
    without = Experiment.model_validate(
        {"data": {"source": str(table), "src": "user", "dst": "item", "time": "at"},
         "method": "edgebank", "split": {"k": 2}})
    _, split, _ = without.open()
    assert (split.by, list(split)) == ("hash", ["client-1", "client-2"])
    assert sum(len(part) for part in split.parts.values()) == 480


@pytest.mark.parametrize(("data", "message"), [
    ({"source": "flights", "src": "tail"}, "knows its columns; leave out src"),
    ({"source": "shop.csv", "folder": "/"}, "folder belongs to a data set"),
    ({"source": "flights", "options": {"year": 1}}, r'data.options has "year"'),
    ({"source": "flights", "options": {"features": "x"}}, r"data.options has features = 'x': Inp"),
    ({"source": "nothing.csv"}, "nothing.csv does not exist")])
def test_data_that_do_not_fit_together_are_refused(data, message):
    with pytest.raises(FedvineError, match=message):
        Experiment.model_validate({"data": data, "method": "edgebank"}).open()


def test_a_run_folder_gives_its_experiment_back(tmp_path, table):
    first = made(table, {"name": "popularity", "decay": 0.3}, seed=5, stages="1000s")
    first.run(tmp_path / "run").finish()
    again = Experiment.of_run(tmp_path / "run")
    assert again == first.resolved()
    assert again.identity() == first.identity()
    assert again.run(tmp_path / "run").summary is not None      # the same run, already finished


def test_a_run_from_python_is_no_experiment(tmp_path, table):
    method, split, plan = made(table).open()
    fedvine.run(method, split, plan, out=tmp_path / "run")
    with pytest.raises(FedvineError, match="run from Python without an Experiment"):
        Experiment.of_run(tmp_path / "run")


def test_the_identity_follows_every_setting(table):
    base = made(table)
    others = [base.with_settings([s]) for s in (
        "seed=1", "method.window=2", "protocol.k=3", "split.by=hash", "stages=77", "threads=2")]
    assert len({e.identity() for e in [base, *others]}) == 7
    assert made(table).identity() == base.identity()
    assert base.with_settings(["split.by=town"]).identity() == base.identity()


# -- the public names ----------------------------------------------------------------------------
def test_every_public_name_is_there():
    for name in dir(fedvine):
        assert getattr(fedvine, name) is not None
    assert fedvine.FedLinkLocal.name == "fedlink_local"
    assert fedvine.EdgeBank.name == "edgebank"
    with pytest.raises(AttributeError, match="Nothing"):
        _ = fedvine.Nothing
    with pytest.raises(FedvineError, match=r'no dataset called "flihgts".*flights'):
        fedvine.load("flihgts")


@pytest.mark.slow
def test_run_and_read_are_functions_whatever_files_are_imported():
    code = ("import fedvine, fedvine.experiments.run, fedvine.data.io.read; "
            "from fedvine.experiments.run import Run, run; "
            "assert fedvine.run is run and callable(fedvine.read) and fedvine.Run is Run")
    subprocess.run([sys.executable, "-c", code], check=True)
