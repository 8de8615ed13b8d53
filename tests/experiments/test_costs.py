"""What a run costs and shows of it: progress, seconds by client, memory."""

import io
import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from numba import njit
from rich.console import Console

from fedvine import testing
from fedvine.core.compiling import timed
from fedvine.core.message import pack, unpack
from fedvine.core.method import At
from fedvine.engines.local import LocalClients
from fedvine.experiments import summary as costs
from fedvine.experiments.progress import Progress, follow
from fedvine.experiments.summary import peak_memory
from fedvine.methods.fedlink import FedLink
from fedvine.methods.popularity import Popularity
from fedvine.results.entry import Entry
from fedvine.results.view import records


def shown(terminal, run):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100)
    follow(run, console)
    return console.file.getvalue()


def test_a_line_a_stage_where_there_is_no_terminal():
    run = testing.run_small(Popularity())
    lines = shown(False, run).splitlines()
    assert [line[:10] for line in lines] == ["stage 1/4 ", "stage 2/4 ", "stage 3/4 ", "stage 4/4 "]
    scores = [s["auc_new"] for s in run.stages[0].scores.values()]
    assert f"auc_new {sum(scores) / len(scores):.3f}" in lines[0]
    assert "auc_new" not in lines[3]                   # nothing comes after the last stage
    assert run.summary is not None


def test_a_table_of_clients_on_a_terminal():
    text = shown(True, testing.run_small(Popularity()))
    assert "stage 4/4" in text
    for client in testing.NAMES:
        assert client in text
    assert "mrr_new" in text


def test_the_time_left_is_what_the_rest_takes_at_the_same_pace(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    run = testing.run_small(Popularity())               # four stages: arrival and scoring in each
    progress = Progress(run)
    assert progress.left() is None
    for step, at in enumerate([At(0, 0, 0), At(0, 1, 0), At(1, 0, 0)]):
        now[0] = 10.0 * step
        progress._advance(at)
    assert progress.left() == pytest.approx(5 * 10.0)   # three of eight are done
    assert "0:20 gone, about 0:50 left" in progress.position()


def test_a_loop_that_is_compiled_for_the_first_time_is_said():
    made = testing.run_small(Popularity())
    shown, seen = Progress(made), []

    @njit
    def doubled(x):
        return 2 * x

    with shown.compiling.watch():
        original = doubled._compiler.compile

        def compiled(*args):
            seen.append("compiling loops" in shown.position())
            return original(*args)

        doubled._compiler.compile = compiled
        assert doubled(2) == doubled(2) == 4
    assert seen == [True] and "compiling" not in shown.position()


def test_seconds_of_a_block_are_without_those_of_compiling(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    @njit
    def tripled(x):
        return 3 * x

    original, seconds = tripled._compiler.compile, {}

    def slowly(*args):
        now[0] += 500
        return original(*args)

    tripled._compiler.compile = slowly
    with timed(seconds, "block"):
        now[0] += 100
        assert tripled(2) == 6
    assert seconds["block"] == 100


SLOW = {"ada": 0.25, "bob": 2.0, "cyd": 0.5}       # seconds of any call
CALLS = 2.5     # of a round of FedLink: choose, train, and half of the call of a stage's arrival


class Timed(LocalClients):
    """Clients that each take as long as they take."""

    def exchange(self, letters):
        for name, reply, _ in super().exchange(letters):
            yield name, reply, SLOW[name]


def test_the_rounds_of_a_stage_share_its_arrival(monkeypatch):
    """By a clock that the test sets: server 1 s, clients 6 s in the arrival, then 2 s and 4 s."""
    clock = iter(range(1000))
    now = [0.0]
    monkeypatch.setattr(costs.time, "perf_counter", lambda: now[0])
    clients = SimpleNamespace(log=[], traffic={n: dict.fromkeys(
        ("down", "up", "seconds"), 0.0) for n in ("ada", "bob")})

    def call(t, r, ada, bob):
        clients.log.append({"t": t, "r": r, "call": next(clock), "clients": 2,
                            "seconds": ada + bob})
        for name, seconds in (("ada", ada), ("bob", bob)):
            clients.traffic[name]["seconds"] += seconds
        now[0] += ada + bob

    made = costs.Costs()
    for t in range(2):
        made.begin(clients)
        call(t, 0, 4.0, 2.0)
        now[0] += 1.0
        made.round_done(At(t, 0, 2), clients)
        saved = costs.Costs()                       # a stop between arrival and rounds
        saved.load(unpack(pack(made.dump())), 0.0)
        made = saved
        for r in (1, 2):
            made.begin(clients)
            call(t, r, 1.0, 3.0)
            now[0] += 2.0
            made.round_done(At(t, r, 2), clients)
        call(t, 3, 50.0, 50.0)                      # scores, in no round
    found = made.summary()
    assert found["seconds_round"] == 4 + 2 + (6 + 1) / 2
    assert found["seconds_server"] == 2 + 1 / 2 and found["seconds_client"] == (4 + 6 / 2) / 2
    assert found["seconds_by_client"] == {"ada": 1 + 4 / 2, "bob": 3 + 2 / 2}


@pytest.mark.slow
@pytest.mark.parametrize("stop", [(0, 1), (1, 0), (1, 2), (2, 1)])
def test_a_stopped_run_goes_on_counting_where_it_was_saved(stop, tmp_path):
    class Stop(Exception):
        pass

    def on_round(at, clients):
        if (at.t, at.r) == (0, 0):
            time.sleep(0.2)
        if (at.t, at.r) == stop:
            raise Stop

    with pytest.raises(Stop):
        testing.run_small(FedLink.tiny(), engine=Timed, out=tmp_path / "run", save_every=0,
                    on_round=on_round).finish()
    resumed = testing.run_small(FedLink.tiny(), engine=Timed, out=tmp_path / "run").finish()
    whole = testing.run_small(FedLink.tiny(), engine=Timed).finish()
    assert resumed.costs.seconds > resumed.costs.earlier > 0.2
    moved = json.loads((tmp_path / "run" / "clients.json").read_text())
    assert moved == resumed.costs.by_client(resumed.clients)
    for client, its in whole.costs.by_client(whole.clients).items():
        assert moved[client] == pytest.approx(its)
    for way in ("down", "up"):
        assert sum(its[way] for its in moved.values()) == whole.summary[f"bytes_{way}"] > 0
    ours, theirs = ({f: {k: v for k, v in by.items() if k != "seconds"}
                     for f, by in made.summary["by"].items()} for made in (resumed, whole))
    assert ours == theirs
    for key in ("bytes_up", "bytes_down", "calls"):
        assert resumed.summary[key] == whole.summary[key]
    found = {r["client"]: r for r in records(tmp_path / "run")}
    assert {n: r["seconds_own"] for n, r in found.items()} == {
        None: CALLS * 2.0, **{n: CALLS * s for n, s in SLOW.items()}}


def test_costs_are_means_over_seeds_by_client():
    made = Entry("a", "a", {s: [{"client": c, "seconds_own": v + s, "peak_memory_bytes": v + s}
                                for c, v in ((None, 5.0), ("ada", 3.0))] for s in (0, 1)})
    assert [made.cost("seconds_own"), made.cost("seconds_own", "ada")] == [5.5, 3.5]
    for record in made.records[min(made.records)]:      # of a run that waited for a processor
        record |= {"seconds_own": 99.0, "seconds_cpu": 1.0, "seconds_total": 8.0}
    assert made.cost("seconds_own") != 99.0 and made.cost("seconds_own", "ada") == 4.0
    assert made.cost("peak_memory_bytes") == 6.0 and made.cost("seconds_own", "eve") is None


FAULTS = """
import resource, torch
from fedvine.experiments.summary import keep_large_blocks
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        torch.empty(16_000_000).fill_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
first = faults()
able = keep_large_blocks()
for _ in range(4):      # until the heap is large enough
    faults()
print(able, first, faults())
"""


@pytest.mark.slow
def test_blocks_that_were_freed_cost_no_more_page_faults():
    found = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True,
                           check=True).stdout.split()
    if found[0] != "True":
        pytest.skip("this system's C library has no mallopt")
    assert int(found[2]) < int(found[1]) / 10 + 100


CHILD = "from fedvine.experiments.summary import peak_memory; print(peak_memory())"
PARENT = f"""
import subprocess, sys
held = bytearray(400_000_000)
held[::4096] = bytes(len(held[::4096]))
print(subprocess.run([sys.executable, "-c", {CHILD!r}], capture_output=True, text=True,
                     check=True).stdout)
"""


@pytest.mark.slow
def test_a_process_is_not_as_large_as_the_one_that_started_it():
    if not Path("/proc/self/status").exists():
        pytest.skip("this system tells no peak of a program alone")
    alone = int(subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True,
                               check=True).stdout)
    found = int(subprocess.run([sys.executable, "-c", PARENT], capture_output=True, text=True,
                               check=True).stdout)
    assert abs(found - alone) < 100e6 and found > 5e6
    held = bytearray(300_000_000)
    held[::4096] = bytes(len(held[::4096]))
    assert peak_memory() > 300e6
