"""Runs on a calendar whose stages are whole by the clock: night by night as all at once."""

import contextlib
import json
import sqlite3
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pandas as pd
import pytest
from wrong import fedvine, refused

from fedvine.experiments.experiment import Experiment
from fedvine.experiments.follow import follow
from fedvine.experiments.run import run as prepare
from fedvine.living.rows import StoredRows
from fedvine.results.report import report
from fedvine.results.view import RunView

BERLIN = ZoneInfo("Europe/Berlin")
METHODS = {"popularity": {}, "fedlink": {"rounds": 1, "capacity": 20, "width": 4},
           "fedlink_plus": {"rounds": 2}, "dgcolearn": {"rounds": 1, "hidden": 4}}
pytestmark = pytest.mark.usefixtures("here")


def sales(first, days, closed=6):
    """Return 12 sales a day from 9 to 21 o'clock in Berlin, none on Sundays: user, item, time."""
    found = []
    for day in range(days):
        morning = datetime.combine(first.date() + timedelta(days=day), datetime.min.time(), BERLIN)
        for i in range(12 if morning.weekday() != closed else 0):
            n = 12 * day + i
            found.append((f"u{n * n % 13}", f"i{n * 7 % 11}", morning.replace(hour=9 + i),
                          ("ada", "bo")[n % 2]))
    return found


def write(rows):
    Path("shop.csv").write_text("user,item,at,town\n" + "".join(
        f"{u},{i},{t.isoformat()},{c}\n" for u, i, t, c in rows))


def made(method="popularity", stages="1d", zone="Europe/Berlin", **more):
    return Experiment.model_validate({
        "data": {"source": "shop.csv", "src": "user", "dst": "item", "time": "at",
                 "client": "town", "timezone": zone}, "method": {"name": method, **METHODS[method]},
        "stages": stages, "open_end": True,
        "protocol": {"positives": 20, "negatives": 5}, **more})


def scores(run):
    return {(stage.t, s, name): (result["n"], result["scores"]) for stage in run.stages
            for s, by in stage.found.items() for name, result in by.items()}


@pytest.mark.slow
@pytest.mark.parametrize("first", ["2024-03-18", "2024-10-14"])
@pytest.mark.parametrize("method", ["popularity", *(
    pytest.param(name, marks=pytest.mark.slow) for name in list(METHODS)[1:])])
def test_nights_over_a_change_of_the_clock_give_the_scores_of_one_run(method, first):
    """At two in the morning yesterday is learned, though its last row came at 20 o'clock."""
    start = datetime.fromisoformat(first).replace(tzinfo=BERLIN)
    rows = sales(start, 16)
    for night in (9, 10, 12, 13, 14, 15):      # Sundays are 6 and 13; the night after 10 is missing
        two = start + timedelta(days=night, hours=2)    # on the clock
        write([row for row in rows if row[2] < two])
        found = made(method).run("run", as_of=two.timestamp()).finish()
        assert found.plan.bounds[-1] == (two - timedelta(hours=2)).timestamp()
        assert found.predict("all" if method == "dgcolearn" else "ada", "u1")
    assert {23, 25} & {round(hours) for hours in (
        (b - a) / 3600 for a, b in zip(found.plan.bounds, found.plan.bounds[1:], strict=False))}
    write(rows)
    stream = made(method).data.open().before(found.plan.bounds[-1])
    other = prepare(found.method, stream.split("town"), found.plan,
                    protocol=found.protocol).finish()
    assert scores(found) == scores(other)
    once = made(method).run("once", as_of=two.isoformat())      # by other periods, without live
    assert once.plan.bounds == found.plan.bounds


def test_rows_wait_come_late_and_the_folder_says_zone_and_time():
    start = datetime(2024, 5, 1, tzinfo=BERLIN)
    rows = sales(start, 12)
    late = rows.pop(6 * 12 - 1)     # of May 7; May 5 is a Sunday
    write(rows)     # the table is ahead of the clock
    made().run("run", as_of="2024-05-08 02:00").finish()
    facts = json.loads(Path("run/data/rows.json").read_text())
    assert facts["step"] == "1d from 00:00 Europe/Berlin"
    assert facts["waiting"] == [len([r for r in rows if r[2].day >= 8]), 0]
    again = made().run("run", as_of="2024-05-08 23:59")
    assert again.summary is not None        # nothing is whole that was not
    write(sorted([*rows, late], key=lambda row: row[2]))
    assert "1 of them came late" in " ".join(made().run("run", as_of="2024-05-08 23:59").news)
    found = made().run("run", as_of="2024-05-09T02:00").finish()
    stream = StoredRows.open(Path("run/data")).split.stream
    assert stream.arrived is not None and len(stream) == len(
        [r for r in [*rows, late] if r[2].day < 9])
    assert found.plan.period(len(found.plan) - 1) == "live"
    view = RunView.read("run")
    assert view.learned == ("Learned to 2024-05-09 CEST, as of 2024-05-09 02:00 CEST. Times are "
                            "given in Europe/Berlin.")
    assert view.dump()["notes"][0] == view.learned
    page = report(["run"], "report.html").read_text()
    assert "as of" in page and "2024-05-09 02:00 CEST" in page and "rows wait" in page
    assert all(row[1].endswith(" CEST") for row in view.by_stage().rows)
    kept = Path("run/data/rows.json")
    whole = kept.read_text()
    for wrong in ("[]", "{}", '{"stream": 1}', whole.replace("Europe/Berlin", "Nowhere")):
        kept.write_text(wrong)      # a folder may come from another person
        assert RunView.read("run").waiting == [
            "Learned to 2024-05-09 CEST. Times are given in Europe/Berlin."]
    kept.write_text(whole)
    code, _, said = fedvine("predict", "run", "--client", "ada", "--user", "u1")
    assert code == 0 and "As of 2024-05-09 CEST" in said


@pytest.mark.slow
def test_a_follower_learns_when_the_clock_passes_midnight_without_a_new_row():
    start = datetime(2024, 5, 1, tzinfo=BERLIN)
    write(sales(start, 5))
    clock = [(start + timedelta(days=day, hours=hour)).timestamp() for day, hour in (
        (4, 2), (4, 3), (5, 1), (6, 0))]
    said, now = [], list(clock)

    class Steps:
        stopping = False

        def wait(self, seconds):
            now.pop(0)
            self.stopping = not now
            return False
    follow(made(), "run", say=said.append, pauses=Steps(), as_of=lambda: now[0])
    assert [s for s in said if "learned, to" in s] == [
        "4 stages are learned, to 2024-05-05 CEST.", "5 stages are learned, to 2024-05-06 CEST.",
        "6 stages are learned, to 2024-05-07 CEST."]


def test_rows_of_a_file_that_was_read_are_learned_once_their_day_is_over():
    """Of a folder to which files are added no new file has to come."""
    start = datetime(2024, 5, 1, tzinfo=BERLIN)
    rows, data = sales(start, 6), {"source": "days", "src": "user", "dst": "item", "time": "at",
                                   "client": "town", "timezone": "Europe/Berlin",
                                   "append_only": True}
    Path("days").mkdir()
    for day in range(1, 7):
        write([row for row in rows if row[2].day == day])
        Path("shop.csv").rename(f"days/2024-05-0{day}.csv")
    for day in (4, 6, 7):       # May 5 is a Sunday
        found = made(data=data).run("run", as_of=f"2024-05-0{day}T02:00").finish()
        assert found.plan.bounds[-1] == start.replace(day=day).timestamp()
        kept = StoredRows.open(Path("run/data"))
        assert len(kept.split.stream) == len([r for r in rows if r[2].day < day])
    assert kept.facts["waiting"] == [0, 0] and kept.split.stream.arrived is None


def test_old_grids_go_on_as_they_are():
    """A duration alone begins with the first event, also on a night by the clock."""
    start = datetime(2024, 5, 1, tzinfo=BERLIN)
    rows = sales(start, 8)
    write(rows[:60])
    plain = {"zone": None}
    before = made(**plain).run("run").finish().plan
    write(rows)
    after = made(**plain).run("run", as_of="2024-05-08T08:00Z").finish().plan
    assert json.loads(Path("run/data/rows.json").read_text())["step"] == "1d"
    assert after.bounds[:len(before.bounds)] == before.bounds
    assert {(b - rows[0][2].timestamp()) % 86_400 for b in after.bounds} == {0}
    assert after.bounds[-1] == start.replace(day=8, hour=9).timestamp()


def test_what_has_no_calendar_is_refused_in_a_sentence():
    Path("plain.csv").write_text("src,dst,time\n" + "".join(f"a{i % 3},b{i % 7},{i}\n"
                                                            for i in range(60)))
    run = ("run", "popularity", "--data", "plain.csv", "--out", "run")
    for more, why in ((("--stages", "1d", "--origin", "00:00"), "plain numbers"),
                      (("--stages", "10", "--timezone", "UTC"), "plain numbers"),
                      (("--stages", "1mo"), "plain numbers"),
                      (("--stages", "10.0", "--open", "--as-of", "now"), "plain numbers"),
                      (("--stages", "10.0", "--as-of", "20"), "--open"),
                      (("--stages", "1d", "--timezone", "Europe/Berlni"), "no time zone"),
                      (("--stages", "1d", "--origin", "noon"), "no time of day"),
                      (("--open", "--follow", "--as-of", "2024-01-01"), "--follow"),
                      (("--open", "--now", "--as-of", "now"), "leave out one")):
        refused([*run, *more], why)
        assert not Path("run").exists()
    assert fedvine(*run, "--stages", "10.0", "--open", "--as-of", "35")[0] == 0
    with pytest.raises(ValueError, match="no times"):
        Experiment.model_validate({"data": "cora", "method": "power", "origin": "00:00"})


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize("kind", ["csv", "parquet", "form", "sqlite"])
def test_times_that_name_no_zone_are_those_of_the_time_zone(kind, zone):
    """A shop's own clock; the nights, and a look at new rows alone, give what aware times give."""
    start = datetime(2024, 3, 25, tzinfo=ZoneInfo(zone))
    rows = [(u, i, t.replace(tzinfo=ZoneInfo(zone)), c) for u, i, t, c in sales(start, 10, None)]
    data = {"csv": {"source": "shop.csv"}, "parquet": {"source": "shop.parquet"},
            "form": {"source": "shop.csv", "time_format": "%d.%m.%Y %H:%M"},
            "sqlite": {"source": "SELECT * FROM shop", "database": "sqlite:shop.db",
                       "append_only": True}}[kind]
    for day in (8, 9):
        two = (start + timedelta(days=day, hours=2)).timestamp()
        known = [row for row in rows if row[2].timestamp() < two]
        write(known)
        aware = made(zone=zone).run("aware", as_of=two).finish()
        frame = pd.read_csv("shop.csv").assign(at=[t.replace(tzinfo=None) for _, _, t, _ in known])
        frame.to_parquet("shop.parquet")
        with contextlib.closing(sqlite3.connect("shop.db")) as base:
            frame.assign(at=frame["at"].astype(str)).to_sql("shop", base, if_exists="replace",
                                                            index=False)
        form = "%d.%m.%Y %H:%M" if kind == "form" else "%Y-%m-%d %H:%M:%S"
        frame.assign(at=frame["at"].dt.strftime(form)).to_csv("shop.csv", index=False)
        own = made(zone=zone, data={"src": "user", "dst": "item", "time": "at", "client": "town",
                                    "timezone": zone, **data})
        naive = own.run("naive", as_of=two).finish()
    assert naive.plan == aware.plan and scores(naive) == scores(aware)
    kept = [StoredRows.open(Path(run) / "data").split.stream for run in ("naive", "aware")]
    assert kept[0].t.tolist() == kept[1].t.tolist() and len(kept[0]) == 12 * 9
    assert kept[0].dates == zone


def test_a_run_has_the_name_that_it_is_given():
    """A query has none of its own."""
    write(sales(datetime(2024, 5, 1, tzinfo=BERLIN), 4))
    run = ("run", "popularity", "--data", "SELECT * FROM 'shop.csv'", "--src", "user", "--dst",
           "item", "--time", "at", "--client", "town", "--stages", "10")
    assert fedvine(*run, "--name", "Shop, north")[0] == 0
    assert fedvine(*run)[0] == 0
    ours, other = (RunView.read(Path("runs") / f"popularity-{name}-s0") for name in (
        "Shop_north", "query"))
    assert ours.title == "popularity on Shop, north, seed 0" and other.names[1] == "query"
    assert "Shop, north" in report([ours.folder, other.folder], "page.html").read_text()
    assert fedvine(*run, "--name", "Shop, south", "--out", ours.folder)[0] == 2
    assert fedvine(*run, "--name", "\x1b[1m")[0] == 2
