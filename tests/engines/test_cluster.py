"""Clients on the workers of a Ray cluster do what clients in one process do."""

import json
import os
import signal
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wrong import GOOD, TABLE, fedvine

import fedvine as fv
from fedvine import testing
from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.core.method import on_client
from fedvine.core.replies import ClientError
from fedvine.engines.cluster import dealt
from fedvine.experiments.experiment import Experiment
from fedvine.methods.edgebank import EdgeBank
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.tasks.tiny import tiny_case, tiny_stream

needs_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason='Ray is not installed: pip install -e ".[ray]"')


class Stumbling(EdgeBank):
    """Its second client fails."""

    name = "stumbling"

    def arrive(self, server, clients, at):
        clients.call(self.stumble)

    @on_client
    def stumble(self, client):
        if client.name == "bob":
            raise KeyError("left foot")


@pytest.fixture(scope="module", autouse=True)
def one_cluster():
    """All engines of this file use the same one."""
    yield
    if "ray" in sys.modules:
        sys.modules["ray"].shutdown()


def started(method, engine, **options):
    split, plan = tiny_case(tiny_stream())
    return fv.run(method, split, plan, seed=7, protocol=LinkPrediction.tiny(), engine=engine,
                  **options)


@needs_ray
@pytest.mark.parametrize("name", ["edgebank", "fedlink"])
def test_scores_and_memory_are_those_of_one_process(name):
    method = registry.method(name).tiny()
    made = started(method, "ray", workers=2)
    try:
        assert testing._outcome(made) == testing._outcome(started(method, "local"))
        assert len(set(made.clients.processes())) == 2      # processes
        assert os.getpid() not in made.clients.processes()
    finally:
        made.clients.close()


def test_on_threads_clients_compute_at_the_same_time():
    """Each waits for the others, so that one after the other they would never end."""
    together = threading.Barrier(3)

    class Meeting(EdgeBank):
        name = "meeting"

        def arrive(self, server, clients, at):
            clients.call(self.meet, expect=None)

        @on_client
        def meet(self, client):
            together.wait(timeout=600)

    started(Meeting(), "local", workers="auto" if os.cpu_count() == 3 else 3).finish()
    made = started(Meeting(), "local")
    assert made.clients.threads == 1
    assert started(Meeting(), "local", workers=64).clients.threads == len(made.clients.names)


def test_auto_takes_one_thread_where_threads_gain_nothing(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    for name, threads in (("edgebank", 2), ("dgcolearn", 1)):
        method = registry.method(name).tiny()
        assert started(method, "local", workers="auto").clients.threads == threads
        assert started(method, "local", workers=2).clients.threads == 2


@needs_ray
@pytest.mark.parametrize("kept", [True, False])
def test_a_worker_that_is_killed_is_replaced_and_scores_stay(tmp_path, kept):
    method, killed, told = registry.method("fedlink").tiny(), [], []

    def kill(at, clients):
        if (at.t, at.r) == (1, 1) and not killed:
            killed.append(clients.processes()[0])
            os.kill(killed[0], signal.SIGKILL)

    made = started(method, "ray", workers=2, on_round=kill, out=tmp_path / "run" if kept else None)
    made.on_abort = told.append
    try:
        assert testing._outcome(made) == testing._outcome(started(method, "local"))
        assert killed and killed[0] not in made.clients.processes()
        assert len(told) == 1 and told[0].startswith("A worker died that held")
    finally:
        made.clients.close()


@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=needs_ray)])
def test_a_clients_error_is_the_same_sentence(engine):
    said = []
    for one, options in (("local", {}), (engine, {"workers": 2})):
        with pytest.raises(ClientError) as error:
            started(Stumbling(), one, **options).finish()
        said.append(str(error.value))
    assert said[0] == said[1] and 'client "bob" failed in stumble' in said[0]


@needs_ray
def test_a_method_of_ones_own_file_is_run_by_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDVINE_CACHE", str(tmp_path / "cache"))
    Path("good.csv").write_text(GOOD)
    Path("edgebank.py").write_text(Path(sys.modules[EdgeBank.__module__].__file__).read_text())
    words = ["run", "edgebank.py", *TABLE]
    found = []
    for out, more in (("one", []), ("many", ["--engine", "ray", "--workers", "2"])):
        code, _, said = fedvine(*words, *more, "--out", out)
        assert code == 0, said
        found.append(json.loads((Path(out) / "summary.json").read_text())["scores"])
    assert found[0] == found[1]
    # The folder says nothing of the engine: in this process the same command finds it finished.
    code, _, said = fedvine(*words, "--out", "many")
    assert code == 0, said


def test_without_ray_one_sentence_says_so_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(FedvineError, match=r'^The engine "ray" needs Ray: pip install "fedvine\['):
        started(EdgeBank(), "ray", out=tmp_path / "run")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("settings", "sentence"), [
    (["workers=2", "threads=2"], "leave out threads"),
    (["address=10.0.0.1:6379"], 'belongs to engine = "ray"'),
    (["engine=ray", "threads=2"], "one thread of torch each"),
    (["engine=rays"], "engine"),
    (["engine=ray", "workers=0"], "workers is 0"),
])
def test_settings_that_do_not_fit_are_refused(settings, sentence):
    made = Experiment.model_validate({"data": "flights", "method": "edgebank"})
    with pytest.raises(FedvineError, match=sentence):
        made.with_settings(settings)


def test_an_engine_of_another_name_is_refused():
    with pytest.raises(FedvineError, match=r'no engine "rai" \(did you mean "ray"\?\)'):
        started(EdgeBank(), "rai")


def test_where_a_run_is_computed_is_no_part_of_its_identity():
    made = Experiment.model_validate({"data": "flights", "method": "edgebank"})
    there = made.with_settings(["engine=ray", "workers=3", "address=auto"])
    assert there.engine == "ray" and there.identity() == made.identity()
    assert there.plain() == made.plain()


@given(st.dictionaries(st.text(min_size=1, max_size=3), st.integers(0, 50), max_size=30),
       st.integers(1, 6))
def test_each_client_is_at_one_worker_and_edges_are_spread(sizes, workers):
    held = dealt({name: range(size) if size else None for name, size in sizes.items()}, workers)
    assert sorted(n for names in held for n in names) == sorted(sizes)
    assert len(held) == min(workers, max(len(sizes), 1))
    assert all(names == sorted(names) for names in held)
    loads = [sum(sizes[n] + 1 for n in names) for names in held]
    assert max(loads) - min(loads) <= max(sizes.values(), default=0) + 1
