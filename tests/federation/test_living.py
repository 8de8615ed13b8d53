"""A federation without an end: the sites' tables grow, sites come, stay away and leave."""

import json
from functools import partial

import numpy as np
import pytest
from engines.small_kits import kit
from pyarrow import parquet

from fedvine.core.errors import FedvineError
from fedvine.core.message import loads, unpack
from fedvine.core.replies import RoundAborted
from fedvine.data.ids import Ids
from fedvine.data.io.read import read
from fedvine.data.stream import EventStream
from fedvine.engines.remote import Gone
from fedvine.experiments.forecasts import Forecasts
from fedvine.experiments.run import run as prepare
from fedvine.federation.dashboard import waits
from fedvine.federation.order import Order
from fedvine.federation.pseudonyms import ASKED, FILE
from fedvine.federation.server import carry, forecast, open_order
from fedvine.federation.signed import Signer, Trusted
from fedvine.federation.site import Site
from fedvine.methods.fedlink import FedLink
from fedvine.methods.fedlink_plus import FedLinkPlus

SERVER = "hub.example"
ROWS = [(f"u{i * i % 13}", f"{n}-{i * 7 % 11}", 3 * i + k, n) for i in range(60)
        for k, n in enumerate(("ann", "bob", "cy"))]


def stream(rows, name="shop"):
    rows = sorted(rows, key=lambda row: row[2])
    users, items = (list(dict.fromkeys(r[k] for r in rows)) for k in (0, 1))
    clients = sorted({r[3] for r in rows})
    return EventStream(
        np.array([users.index(r[0]) for r in rows], np.int32),
        np.array([items.index(r[1]) for r in rows], np.int32),
        np.array([r[2] for r in rows]), Ids.of(users), Ids.of(items),
        codes={"client": np.array([clients.index(r[3]) for r in rows], np.int32)},
        categories={"client": clients}, name=name)


class World:
    """Sites in this process with tables that grow, and a server that is opened for each night."""

    def __init__(self, folder, here=("ann", "bob", "cy"), method=None, chances=0, **order):
        self.folder, self.names, self.rows, self.away = folder, list(here), [], set()
        self.stages = set()     # in which calls were made
        self.kits = {n: kit(folder / "kits", n) for n in (SERVER, "ann", "bob", "cy")}
        method = method or FedLink(rounds=1, capacity=20, width=4)
        self.order = Order.model_validate({
            "out": str(folder / "run"), "stages": "20", "live": True, "seed": 3, "forecasts": 0,
            **order,
            "method": {"name": method.name, **method.model_dump(mode="json", exclude_none=True)},
            # a site lists the items of its own table, one process those of one table for all
            "protocol": {"positives": 20, "negatives": 5, "ranking": False, "cold": False,
                         "chances": chances}})
        self.method = self.order.kind()
        self.restart()

    def restart(self):
        """Start all processes again: nothing but files survives."""
        self.sites = {}
        for n in ("ann", "bob", "cy"):
            self.sites[n] = Site(n, lambda n=n: self.table(n), self.folder / n,
                                 Trusted(self.kits[n], n))
        self.signer = Signer(self.kits[SERVER], "a run", self.deliver,
                             lambda name, seconds: self.sites[name].trusted.session)

    def table(self, name):
        rows = [r for r in self.rows if r[3] == name]
        found = stream(rows or ROWS, name)
        found = found if rows else found[:0]
        return EventStream(found.src, found.dst, found.t, found.src_ids, found.dst_ids, name=name)

    def deliver(self, name, block, seal, seconds):
        if name in self.away:
            raise Gone(name)
        request = unpack(loads(block))
        if request["do"] == "call":
            self.stages.add(request["place"][0])
        return bytes(self.sites[name].handle(bytes(block), seal))

    def night(self, until=None):
        """Learn what is whole of the rows before a time; return the run or None, and the state."""
        if until is not None:
            self.rows = [r for r in ROWS if r[2] < until]
        here = [n for n in self.names if n not in self.away]
        made, state = open_order(self.order, "a run", here, self.signer, self.folder)
        return made and made.finish(), state


def scores(run, skip=()):
    return {(s.t, q, name): (result["n"], result["scores"]) for s in run.stages
            for q, by in s.found.items() for name, result in by.items() if name not in skip}


def whole(world, run, rows=ROWS):
    """Return one run in one process on all rows, with the bounds of the federation's run."""
    split = stream([r for r in rows if r[2] < run.plan.bounds[-1]]).split("client")
    return prepare(world.method, split, run.plan, seed=3, protocol=world.order.protocol).finish()


@pytest.mark.slow
def test_nights_at_three_sites_give_the_scores_of_one_run(tmp_path):
    world = World(tmp_path)
    for until in (70, 75, 103, 104, 141, 200):
        run, state = world.night(until)
        if until in (75, 104):
            assert run is None and state["next"] == (80 if until == 75 else 120)
        world.restart()
    assert len(run.plan) == 8 and run.plan.live == 3 and run.plan.period(7) == "live"
    other = whole(world, run)
    assert scores(run) == scores(other)
    for cost in ("bytes_up", "bytes_down"):
        assert run.summary[cost] == other.summary[cost]


@pytest.mark.slow
def test_a_site_says_how_probable_its_forecasts_are_as_one_process_does(tmp_path):
    """By its own lists, exactly, also where what it sends is coarse; and by those of all."""
    world = World(tmp_path, forecasts=4, chances=13, method=FedLinkPlus(
        rounds=2, sampled=20, negatives=3, stages=2))
    for until in (104, 200):
        run, _ = world.night(until)
        assert forecast(run, 4) == ""
        world.restart()
    one = Forecasts(whole(world, run))
    for name in world.names:
        found = parquet.read_table(max((tmp_path / name).glob("*.parquet"))).to_pylist()
        assert {r["user"] for r in found} and all(0 < r["probability"] < 1 for r in found)
        for row in found:
            wanted = one.top(name, row["user"], 4)[row["rank"] - 1]
            assert row["probability"] == pytest.approx(wanted.probability, abs=1e-9)
    assert len(json.loads(max((tmp_path / "ann").glob("*/lists.json")).read_text())) > 3


@pytest.mark.slow
def test_new_names_of_a_night_are_evaluated_before_they_are_needed(tmp_path):
    """Also where a site is away: names need no other site."""
    pytest.importorskip("voprf", reason="the extra names is not installed")
    method = FedLinkPlus(rounds=2, sampled=20, negatives=3, stages=2, capacity=400)
    world = World(tmp_path, method=method, names="oprf", quorum=0.6)
    asked = []
    for until in (70, 104, 200):
        world.away = {"bob"} if until == 104 else set()
        run, _ = world.night(until)
        asked.append({n: sum(days.values()) for n, days in json.loads(
            (tmp_path / ASKED).read_text()).items()})
        world.restart()
    assert len(run.plan) == 8 and asked[1]["bob"] == asked[0]["bob"]
    names = {n: len({name for r in ROWS if r[3] == n and r[2] < 200 for name in r[:2]})
             for n in world.names}
    assert asked[-1] == names       # each name once
    assert (tmp_path / "ann" / FILE).exists()


@pytest.mark.slow
def test_a_server_or_a_site_that_dies_anywhere_in_a_night(tmp_path):
    expected = None
    for dies in (0, 3, 6, 9, 14, 21):
        world = World(tmp_path / str(dies), save_every=0.0)
        world.night(70)
        sent, real = 0, world.deliver

        def deliver(name, block, seal, seconds, dies=dies, real=real):
            nonlocal sent
            sent += 1
            if sent == dies:
                raise KeyboardInterrupt
            return real(name, block, seal, seconds)

        world.deliver = deliver
        world.restart()
        try:
            run, _ = world.night(120)
        except KeyboardInterrupt:
            world.deliver = real
            world.restart()
            run, _ = world.night()
        expected = expected or scores(run)
        assert scores(run) == expected


@pytest.mark.slow
def test_a_site_that_is_away_for_three_stages_catches_up(tmp_path):
    world = World(tmp_path, quorum=0.6)
    world.night(70)
    world.away = {"cy"}
    for until in (90, 110, 130):
        run, state = world.night(until)
        assert state["clients"].keys() == {"ann", "bob"}
    assert not any(name == "cy" and q > 3 for _, q, name in scores(run))
    world.away = set()
    run, _ = world.night(160)
    assert {name for t, q, name in scores(run) if q == len(run.plan) - 1} == {"ann", "bob", "cy"}
    part = world.sites["cy"].part
    assert len(part) == sum(r[3] == "cy" and r[2] < run.plan.bounds[-1] for r in ROWS)


@pytest.mark.slow
@pytest.mark.parametrize("names", [["ann", "bob", "cy"], ["bob"]])
def test_a_site_whose_clock_is_wrong_makes_no_stages_whole(tmp_path, names):
    world = World(tmp_path, here=names, quorum=0.3)
    world.night(70)
    real, far = world.table, []

    def table(name):
        world.rows = [*(r for r in world.rows if r[2] < 700), *far]
        return real(name)

    world.table = table
    far.append(("u1", "bob-1", 700, "bob"))
    run, state = world.night(105)
    assert len(run.plan) == 5 and state["next"] == run.plan.bounds[-1] + 20
    assert state["clients"]["bob"]["far"] == 700
    assert "bob has a row at 700, far from its others" in waits(state)
    assert [c["far"] for n, c in state["clients"].items() if n != "bob"] == [None] * (
        len(names) - 1)
    world.sites["bob"].sure = True
    run, state = world.night()
    assert run is not None and run.plan.bounds[-1] > 680


@pytest.mark.slow
def test_a_site_is_admitted_and_leaves_at_a_stage(tmp_path):
    world = World(tmp_path, here=["ann", "bob"])
    world.night(90)
    world.names.append("cy")
    world.stages.clear()
    run, _ = world.night(110)
    assert world.stages == {3, 4}       # 3: the scores of stage 4; nothing is learned again
    assert run.plan.bounds[-1] == 100 and run.clients.whole.since == {"cy": 4}
    part = world.sites["cy"].part       # older rows are learned in the site's first stage
    assert run.plan.since(part) == 4 and part.t[0] < 20
    assert {n for t, q, n in scores(run) if q == 4} == {"ann", "bob"}   # asked before it came
    world.order = world.order.model_copy(update={"clients": ["ann", "cy"]})
    world.stages.clear()
    run, _ = world.night(150)
    assert world.stages == {4, 5, 6}
    assert run.clients.whole.until == {"bob": 5}
    assert {n for t, q, n in scores(run) if q == 5} == {"ann", "bob", "cy"}
    assert {n for t, q, n in scores(run) if q == 6} == {"ann", "cy"}
    world.restart()
    assert world.night()[0] is None


@pytest.mark.slow
def test_rows_that_a_site_lost_stay_its_own_affair(tmp_path):
    world = World(tmp_path, quorum=1.0)
    world.night(70)
    real = world.table
    world.table = lambda name: real(name)[1:] if name == "bob" else real(name)
    world.restart()
    with pytest.raises((RoundAborted, FedvineError)) as caught:
        world.night(100)
    assert "bob" in str(caught.value) and "lost or changed rows" in str(caught.value)
    whys = [line["why"] for line in world.sites["bob"].account.lines() if "why" in line]
    assert "u0" not in str(caught.value) and any("has lost the row" in why for why in whys)
    world.table = real
    world.restart()
    run, _ = world.night()
    assert scores(run) == scores(whole(world, run))


@pytest.mark.slow
def test_a_site_holds_the_kinds_that_its_columns_had_when_the_run_began(tmp_path):
    rows = [(f"{i * i % 13}.0", i * 7 % 11, 3 * i, i % 4) for i in range(60)]
    names = {}

    def part(name, look=None):
        more = [("u7", 3, 181, cell)] if late else []
        file = tmp_path / f"{name}.csv"
        file.write_text("user,item,t,kind\n" + "".join(
            ",".join(map(str, row)) + "\n" for row in [*(rows if late else rows[:40]), *more]))
        found = read(file, src="user", dst="item", time="t", features=["kind"], look=look)
        names[name] = {found.src_ids[i] for i in range(found.num_src)}
        return found

    late, cell = False, "red"
    world = World(tmp_path, quorum=1.0)
    world.table = part
    for name, site in world.sites.items():
        site.open_part = partial(part, name)
    run, _ = world.night()
    assert len(run.plan) == 5
    late = True
    with pytest.raises(FedvineError):
        world.night()
    whys = [line["why"] for line in world.sites["bob"].account.lines() if "why" in line]
    assert any('"kind" holds "red" in row 61' in why for why in whys)
    cell = 5
    run, _ = world.night()
    assert len(run.plan) == 9
    assert all({"u7", "0"} <= named for named in names.values())    # 0.0 is 0, as it was


def unread(table, names):
    def read(name):
        if name in names:
            raise FedvineError(f"{name}'s table cannot be read at this moment.")
        return table(name)
    return read


@pytest.mark.slow
def test_a_table_that_cannot_be_read_for_a_while_ends_nothing(tmp_path):
    world = World(tmp_path, quorum=1.0)
    world.night(70)
    real = world.table
    for names in ({"bob"}, {"ann", "bob", "cy"}):
        world.table = unread(real, names)
        world.restart()
        run, state = world.night(100)
        assert run is None and state["stages"] == 3 and state["next"] == 80
        assert {n for n, c in state["clients"].items() if c["answers"]} == set(world.names) - names
    world.table = real
    world.restart()
    run, _ = world.night()
    assert scores(run) == scores(whole(world, run))


def carried(world):
    """Carry the order out as the server's process does; return what it left as its state."""
    hub = world.folder / "kits" / "hub"
    hub.mkdir(exist_ok=True)
    (hub / "a run.json").write_text(world.order.model_dump_json())
    (world.folder / "kits" / "server").exists() or (
        world.folder / "kits" / "server").symlink_to(world.kits[SERVER])
    carry(hub, "a run", world.names, world.deliver,
          lambda name, seconds: world.sites[name].trusted.session)
    return json.loads((hub / "a run.state.json").read_text())


@pytest.mark.slow
def test_a_run_that_began_is_tried_again_whatever_a_site_answers(tmp_path, monkeypatch):
    world = World(tmp_path, quorum=1.0, look=0.01)

    def looks(seconds):
        raise KeyboardInterrupt
    monkeypatch.setattr("fedvine.federation.server.time.sleep", looks)
    world.rows = [r for r in ROWS if r[2] < 70]
    with pytest.raises(KeyboardInterrupt):      # it waits for the next stage
        carried(world)
    real = world.table
    world.table = lambda name: real(name)[1:] if name == "bob" else real(name)
    world.restart()
    world.rows = [r for r in ROWS if r[2] < 100]
    state = carried(world)
    assert state["state"] == "lost" and "lost or changed rows" in state["why"]
