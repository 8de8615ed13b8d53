"""Seconds of rounds with their share of arrivals, without scores, and kept over a stop."""

import json
import time
from types import SimpleNamespace

import pytest

from fedvine import testing
from fedvine.core.message import pack, unpack
from fedvine.core.method import At
from fedvine.engines.local import LocalClients
from fedvine.experiments import summary as costs
from fedvine.methods.fedlink import FedLink
from fedvine.methods.popularity import Popularity
from fedvine.results.entry import Entry
from fedvine.results.view import records

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


def test_only_rounds_count():
    summary = testing._run(FedLink.tiny(), engine=Timed).finish().summary
    assert summary is not None
    assert summary["seconds_by_client"] == {n: CALLS * s for n, s in SLOW.items()}


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
        testing._run(FedLink.tiny(), engine=Timed, out=tmp_path / "run", save_every=0,
                    on_round=on_round).finish()
    resumed = testing._run(FedLink.tiny(), engine=Timed, out=tmp_path / "run").finish()
    whole = testing._run(FedLink.tiny(), engine=Timed).finish()
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


def test_runs_without_them_have_none(tmp_path):
    """Of methods without rounds, and runs that are older than the record."""
    testing._run(Popularity(), out=tmp_path / "bank").finish()
    testing._run(FedLink.tiny(), out=tmp_path / "old").finish()
    file = tmp_path / "old" / "summary.json"
    summary = json.loads(file.read_text())
    del summary["seconds_by_client"]
    file.write_text(json.dumps(summary))
    for name in ("bank", "old"):
        found = records(tmp_path / name)
        assert [r["seconds_own"] for r in found] == [None] * 4
        entry = Entry(name, name, {0: found})
        assert entry.cost("seconds_own") is None and entry.cost("seconds_own", "ada") is None
        assert entry.cost("seconds_total") == found[0]["seconds_total"]


def test_costs_are_means_over_seeds_by_client():
    made = Entry("a", "a", {s: [{"client": c, "seconds_own": v + s, "peak_memory_bytes": v + s}
                                for c, v in ((None, 5.0), ("ada", 3.0))] for s in (0, 1)})
    assert [made.cost("seconds_own"), made.cost("seconds_own", "ada")] == [5.5, 3.5]
    for record in made.records[min(made.records)]:      # of a run that waited for a processor
        record |= {"seconds_own": 99.0, "seconds_cpu": 1.0, "seconds_total": 8.0}
    assert made.cost("seconds_own") != 99.0 and made.cost("seconds_own", "ada") == 4.0
    assert made.cost("peak_memory_bytes") == 6.0 and made.cost("seconds_own", "eve") is None
