"""Runs whose table grows: the same command again goes on, and gives what one run gives."""

import contextlib
import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from wrong import fedvine, refused

from fedvine.core.errors import FedvineError
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.run import run as prepare
from fedvine.living.rows import StoredRows

HEAD = "user,item,at,town,price\n"
ROWS = [(f"u{i * i % 13}", f"i{i * 7 % 11}", i, ("ada", "bo")[i % 2] if i < 60 else
         ("ada", "bo", "cy")[i % 3], i % 4) for i in range(120)]
METHODS = {"popularity": {}, "fedlink": {"rounds": 1, "capacity": 20, "width": 4},
           "dgcolearn": {"rounds": 1, "hidden": 4}}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDVINE_CACHE", str(tmp_path / "cache"))


def write(rows):
    Path("shop.csv").write_text(HEAD + "".join(",".join(map(str, row)) + "\n" for row in rows))


def made(method="popularity", stages="10", **more):
    return Experiment.model_validate({
        "data": {"source": "shop.csv", "src": "user", "dst": "item", "time": "at",
                 "client": "town", "weight": "price"},
        "method": {"name": method, **METHODS[method]}, "stages": stages,
        "protocol": {"positives": 20, "negatives": 5}, **more})


def night(rows, out="run", **options):
    write(rows)
    now = options.pop("now", False)
    return made(**options).run(out, now=now).finish()


def scores(run):
    """Return all scores by (learned stage, scored stage, client)."""
    return {(stage.t, s, name): (result["n"], result["scores"]) for stage in run.stages
            for s, by in stage.found.items() for name, result in by.items()}


def whole(rows, like):
    """Return one run on the table that is given the bounds of another run."""
    write(rows)
    experiment = made(like.method.name)
    plan, options = like.plan, {"k": 2} if like.method.server_holds_graph else {}
    stream = experiment.data.open().before(plan.bounds[-1])
    return prepare(experiment.method, stream.split("town", **options), plan,
                   protocol=experiment.protocol).finish()


@pytest.mark.slow
@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("open_end", [True, False], ids=["open", "closed"])
def test_nights_give_the_scores_of_one_run(method, open_end):
    rows = ROWS if method != "dgcolearn" else [(*r[:3], ("ada", "bo")[r[2] % 2], r[4]) for r in
                                               ROWS]
    for end in (47, 47, 58, 61, 90, 91, 120):
        found = night(rows[:end], method=method, open_end=open_end)
    assert len(found.plan) > 9 and found.plan.period(len(found.plan) - 1) == "live"
    other = whole(rows, found)
    assert scores(found) == scores(other)
    assert found.summary["scores"] == other.summary["scores"] and (
        "live" in found.summary["scores"])
    for cost in ("bytes_down", "bytes_up", "calls"):
        assert found.summary[cost] == other.summary[cost] or not open_end   # without drift


@pytest.mark.slow
def test_the_same_order_of_arrival_gives_the_same_bytes():
    late = ("late", "i1", 3, "ada", 0)
    for out in ("one", "two"):
        for end in (47, 61, 90):
            night(ROWS[:end], out, open_end=True)
        night([*ROWS[:90], late], out, open_end=True)
        night([*ROWS, late], out, open_end=True)
    one, two = ({path.relative_to(out): path.read_bytes() for path in Path(out, "data").rglob("*")
                 if path.is_file()} for out in ("one", "two"))
    assert one == two


def test_a_client_that_comes_late_takes_no_part_before():
    found = night(ROWS)
    first = found.clients.whole.since["cy"]
    assert first == 6
    assert {name for (_, s, name) in scores(found) if s < first} == {"ada", "bo"}
    calls = [json.loads(line) for line in Path("run/messages.jsonl").read_text().splitlines()]
    assert {c["clients"] for c in calls if c["t"] < first} == {2}
    assert {c["clients"] for c in calls if c["t"] >= first} == {3}


@pytest.mark.slow
def test_a_run_that_is_killed_in_any_call_of_a_night_goes_on(monkeypatch):
    night(ROWS[:50], open_end=True)
    shutil.copytree("run", "before")
    wanted = scores(night(ROWS, open_end=True))
    log = Path("run/metrics.jsonl").read_text()
    from fedvine.engines.local import LocalClients
    real = LocalClients.exchange
    for left in range(1, 30, 2):
        shutil.rmtree("run")
        shutil.copytree("before", "run")
        count = 0

        def dying(self, outgoing, stop=left):
            nonlocal count
            count += 1
            if count == stop:
                raise KeyboardInterrupt
            return real(self, outgoing)

        with monkeypatch.context() as patch:
            patch.setattr(LocalClients, "exchange", dying)
            with contextlib.suppress(KeyboardInterrupt):
                night(ROWS, open_end=True)
        assert scores(night(ROWS, open_end=True)) == wanted
        assert Path("run/metrics.jsonl").read_text() == log
        if count < left:
            return
    raise AssertionError("never finished")


def everything():
    return {path: path.read_bytes() for path in sorted(Path("run").rglob("*")) if path.is_file()}


@pytest.mark.parametrize(("change", "words"), [
    (lambda rows: rows[:7] + rows[8:], "has lost the row"),
    (lambda rows: [(*rows[0][:4], 9), *rows[1:]], "has other values for the row")],
    ids=["vanished", "changed"])
def test_learned_rows_stay(change, words):
    night(ROWS[:60], open_end=True)
    before = everything()
    with pytest.raises(FedvineError, match=words):
        night(change(ROWS), open_end=True)
    assert everything() == before


def test_late_rows_are_learned_in_the_next_stage_and_never_asked():
    found = night(ROWS[:60], open_end=True)
    stages = len(found.plan)
    late = [("u1", "i1", 3, "ada", 0), ("new", "i1", 4, "ada", 0)]
    again = night([*ROWS[:60], *late], open_end=True)
    assert len(again.plan) == stages and any("2 of them came late" in s for s in again.news)
    again = night([*ROWS[:75], *late], open_end=True)
    kept = StoredRows.open(Path("run/data"))
    assert kept.facts["late"] == 2
    part = kept.split.parts["ada"]
    new = kept.plan.stage(part, stages)
    assert new.t[:2].tolist() == [3, 4] and (new.t[2:] >= kept.plan.bounds[stages]).all()
    scored = scores(again)[stages - 1, stages, "ada"][0]["n"]
    assert scored == len(new) - 2


@pytest.mark.slow
def test_now_learns_the_rest_and_the_next_stage_ends_at_the_grid():
    night(ROWS[:64], open_end=True)
    found = night(ROWS[:64], open_end=True, now=True)
    assert found.plan.bounds[-2] == 60 and found.plan.bounds[-1] == pytest.approx(63)
    found = night(ROWS, open_end=True)
    assert found.plan.bounds[-6:-3] == pytest.approx((63, 70, 80))
    assert scores(night(ROWS, open_end=True)) == scores(found)


def test_the_first_run_says_what_waits_and_may_learn_it():
    assert night(ROWS[:64], "one", open_end=True).news[0].startswith("4 rows wait")
    assert len(night(ROWS[:64], "two", open_end=True, now=True).plan) == 7


FAR = ("u1", "i1", 1_000, "ada", 0)


@pytest.mark.slow
@pytest.mark.parametrize("stages", ["10s", "10"])
@pytest.mark.parametrize("now", [[], ["--now"]], ids=["", "now"])
def test_a_row_with_a_far_date_ends_no_stages_unless_a_person_is_sure(stages, now):
    command = ["run", "popularity", "--data", "shop.csv", "--src", "user", "--dst", "item",
               "--time", "at", "--client", "town", "--stages", stages, "--open", "--out", "run"]
    Path("cache").mkdir()
    write([*ROWS[:64], FAR])
    refused([*command, *now], "shop", "1000", "--sure")
    assert not Path("run").exists()
    write(ROWS[:64])
    assert fedvine(*command)[0] == 0
    write([*ROWS, FAR])
    refused([*command, *now], "shop", "is 1000 the time of a row", "--sure")
    write(ROWS)
    assert fedvine(*command, "--sure")[0] == 0
    whole = StoredRows.open(Path("run/data")).plan
    assert fedvine(*command)[0] == 0 and StoredRows.open(Path("run/data")).plan == whole
    write([*ROWS, FAR])
    assert fedvine(*command, "--now", "--sure")[0] == 0
    assert StoredRows.open(Path("run/data")).plan.bounds[-1] > 1_000
    assert fedvine(*command)[0] == 0        # it was accepted


@pytest.mark.slow
def test_many_clients_need_few_open_files():
    """A process may have 1,024 files open on many systems, and a mapped column takes one."""
    rows = [(f"u{i % 90}", f"i{i % 7}", i // 20, f"town {i % 30}", 0) for i in range(600)]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    now = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (now + 60, limits[1]))
    try:
        night(rows[:450], open_end=True)
        assert len(night(rows, open_end=True).clients.names) == 30
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_closed_run_that_grows_asks_about_a_far_date_too():
    night(ROWS[:64])
    before = everything()
    with pytest.raises(FedvineError, match="is 1000 the time of a row"):
        night([*ROWS, FAR])
    assert everything() == before


def test_a_night_without_rows_and_equal_times_at_a_bound():
    rows = [("u1", f"i{i % 5}", t, "ada", 0) for i, t in enumerate([0, 1, 5, 10, 10, 10, 11, 20])]
    found = night(rows[:5], open_end=True)
    assert found.plan.bounds == (0, 10)
    log = Path("run/metrics.jsonl").read_text()
    assert night(rows[:5], open_end=True).plan == found.plan
    assert Path("run/metrics.jsonl").read_text() == log
    found = night(rows, open_end=True)      # all three rows at 10 are of the second stage
    assert [len(found.plan.stage(p, t)) for p in found.parts.values() for t in (0, 1)] == [3, 4]


def test_two_processes_at_once_are_told(monkeypatch):
    night(ROWS[:60], open_end=True)
    from fedvine.experiments.run_folder import alone
    before = everything()
    with alone("run"), pytest.raises(FedvineError, match="Another process"):
        night(ROWS, open_end=True)
    assert {p: b for p, b in everything().items() if p.name != ".lock"} == {
        p: b for p, b in before.items() if p.name != ".lock"}


@pytest.mark.slow
def test_the_command_line_says_what_waits():
    write(ROWS[:64])
    command = ["run", "popularity", "--data", "shop.csv", "--src", "user", "--dst", "item",
               "--time", "at", "--client", "town", "--stages", "10", "--open", "--out", "run"]
    command[command.index("10")] = "10s"
    assert fedvine(*command)[0] == 0
    code, _, said = fedvine(*command)
    assert code == 0 and "4 rows wait for the end of their stage (70)" in said
    assert fedvine(*command, "--now")[0] == 0
    assert StoredRows.open(Path("run/data")).plan.bounds[-2:] == pytest.approx((60, 63))
    refused([*command, "--set", "protocol.lead=2", "--out", "other"], "lead")


@pytest.mark.slow
def test_a_method_without_tensors_answers_without_torch():
    """Importing torch takes most of the time of a cold answer."""
    night(ROWS, method="popularity")
    code = ("import sys; from fedvine.cli.main import main\n"
            "try: main(['predict', 'run', '--client', 'ada', '--user', 'u1'])\n"
            "except SystemExit as end: assert not end.code\n"
            "assert 'torch' not in sys.modules")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
