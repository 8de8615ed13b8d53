"""Erased persons: a run is then what it would have been without them."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tomlkit
from wrong import fedvine, refused

from fedvine.core.errors import FedvineError
from fedvine.core.files import work_folder
from fedvine.core.ledger import Ledger as ledger_of
from fedvine.core.message import unpack
from fedvine.data import handed
from fedvine.experiments import erase as erasing
from fedvine.experiments import nights
from fedvine.experiments.answers import read_tables
from fedvine.experiments.erase import erase, prepared
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.receipts import check_receipt
from fedvine.experiments.reopened import forecasts_of, open_run
from fedvine.experiments.run import run as prepare
from fedvine.experiments.run_folder import RunFolder

HEAD = "user,item,at,town,price\n"
ROWS = [(f"u{i * i % 13}", f"i{i * 7 % 11}", i, ("ada", "bo")[i % 2], i % 4) for i in range(120)]
METHODS = {"popularity": {}, "edgebank": {}, "fedlink": {"rounds": 1, "capacity": 20, "width": 4},
           "fedlink_plus": {"rounds": 3, "sampled": 20, "negatives": 3, "stages": 2}, "stfl": {
               "rounds": 1, "width": 4}}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDVINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def write(rows):
    Path("shop.csv").write_text(HEAD + "".join(",".join(map(str, row)) + "\n" for row in rows))


def made(method="popularity", **more):
    return Experiment.model_validate({
        "data": {"source": "shop.csv", "src": "user", "dst": "item", "time": "at",
                 "client": "town", "weight": "price"},
        "method": {"name": method, **METHODS.get(method, {})}, "stages": "10",
        "protocol": {"positives": 20, "negatives": 5}, **more})


def scores(found):
    return {(stage.t, s, name): (result["n"], result["scores"]) for stage in found.stages
            for s, by in stage.found.items() for name, result in by.items()}


def without(method, plan, **names):
    """Return a run on the table without the rows of some names, with the bounds of another run."""
    gone = {(side, name) for side, found in names.items() for name in found}
    write([row for row in ROWS if not {("user", row[0]), ("item", row[1]), ("client", row[3])}
           & gone])
    experiment = made(method)
    split = experiment.data.open().before(plan.bounds[-1]).split("town")
    return prepare(experiment.method, split, plan, protocol=experiment.protocol).finish()


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("names", [{"user": ["u4", "u9"]}, {"item": ["i3"]}, {"client": ["bo"]}],
                         ids=["users", "item", "client"])
def test_the_scores_are_those_of_a_run_that_never_had_the_rows(method, names):
    write(ROWS)
    plan = made(method).run("run").finish().plan
    erase("run", names, exact=True)
    again = made(method).run("run").finish()
    assert scores(again) == scores(without(method, plan, **names))


def bytes_of(*folders):
    return b"".join(file.read_bytes() for folder in folders for file in Path(folder).rglob("*")
                    if file.is_file())


def test_no_file_has_the_name_afterwards():
    write([*ROWS, ("Ada Lovelace", "i1", 31, "ada", 1), ("Ada Lovelace", "rare item", 77, "bo", 1)])
    found = made(open_end=True).run("run").finish()
    assert found.summary and b"Ada Lovelace" in bytes_of("run") and b"rare" in bytes_of("cache")
    Path("run/mine.csv").write_text("ada,Ada Lovelace,i1\n")
    code, out, said = fedvine("erase", "run", "--user", "Ada Lovelace", "--yes")
    assert code == 0 and "2 rows at 2 clients" in out and "mine.csv still has a name" in said
    Path("run/mine.csv").unlink()
    assert b"Lovelace" not in bytes_of("run", "cache") and b"rare" not in bytes_of("run", "cache")


@pytest.mark.parametrize("out", ["all.csv", "all.jsonl", "all.parquet", "sqlite:all.db/lists"])
def test_forecasts_of_all_are_deleted_and_other_files_are_not(out):
    write(ROWS)
    made().run("run").finish()
    forecasts_of("run").every(4, out)
    assert read_tables(out).num_rows > 20
    Path("own.csv").write_text("user,item\nu4,i1\n")
    said = json.loads(Path("run/forecasts.json").read_text())
    erase("run", {"user": ["u4"]}, exact=True)
    assert not Path("run/forecasts.json").exists()
    if out.startswith("sqlite:"):
        with pytest.raises(FedvineError, match="no such table"):
            read_tables(out)
        assert b"u9" not in Path("all.db").read_bytes()
    else:
        assert not Path(out).exists()
    # a folder from somebody else may name any file
    Path("run/forecasts.json").write_text(json.dumps({**said, "file": str(Path("own.csv"))}))
    made().run("run").finish()
    with pytest.warns(UserWarning, match=r"own\.csv, which .* names, stays \(no run of yours"):
        erase("run", {"user": ["u9"]}, exact=True)
    assert Path("own.csv").exists()


def test_what_came_before_the_person_is_not_carried_out_again():
    write([*ROWS, ("late", "i1", 95, "ada", 1)])
    run = made(open_end=True).run("run")
    for stage in run:
        if stage.t == 6:
            break               # killed here, so that a save of this stage's end is kept
    shutil.copytree("run", "stopped")
    made(open_end=True).run("run").finish()
    for save in Path("stopped/saves").iterdir():
        if not (Path("run/saves") / save.name).exists():
            shutil.copytree(save, Path("run/saves") / save.name)
    assert 1 < prepared("run", {"user": ["late"]}, exact=True).stage <= 9
    assert json.loads(erase("run", {"user": ["late"]}, exact=True).read_text())["again_from"] > 1
    write(ROWS)
    plan = made(open_end=True).run("run").finish().plan
    assert scores(made(open_end=True).run("run").finish()) == scores(without("popularity", plan))


@pytest.mark.parametrize("place", range(6))
def test_a_killed_erasure_is_finished_by_the_same_command(place, monkeypatch):
    write(ROWS)
    plan, left = made().run("run").finish().plan, [place]

    def killed(function):
        def call(*given, **more):
            if left[0] == 0:
                left[0] = -1
                raise KeyboardInterrupt
            left[0] -= 1
            return function(*given, **more)
        return call

    for module, name in ((shutil, "rmtree"), (__import__("os"), "replace")):
        monkeypatch.setattr(module, name, killed(getattr(module, name)))
    try:
        erase("run", {"user": ["u4"]}, exact=True)
    except KeyboardInterrupt:
        if Path("run/.erased").exists():
            if Path("run/.erased/data").exists():
                with pytest.raises(FedvineError, match="was stopped on its way"):
                    made().run("run")
            erase("run")
        else:
            assert made().run("run").summary        # as before
            erase("run", {"user": ["u4"]}, exact=True)
    assert scores(made().run("run").finish()) == scores(without("popularity", plan, user=["u4"]))


def test_a_stopped_erasure_at_once_keeps_the_run_closed(monkeypatch):
    write(ROWS)
    made().run("run").finish()
    with monkeypatch.context() as patch:
        patch.setattr(erasing, "_count_again", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            erase("run", {"user": [" u4 "]})
    with pytest.raises(FedvineError, match="was stopped on its way"):
        made().run("run")
    assert check_receipt(erase("run"))["kind"] == "at once" and made().run("run").summary


def test_reads_that_are_under_way_are_left_alone(tmp_path):
    (tmp_path / "cache" / ".read-killed.tmp").mkdir(parents=True)
    with work_folder(tmp_path / "cache") as used:
        erasing.forget_copies({"user": ["u4"]})
        assert list((tmp_path / "cache").iterdir()) == [used]


def test_a_receipt_is_signed_and_names_nobody():
    write(ROWS)
    made().run("run").finish()
    file = erase("run", {"user": ["u4"], "item": ["i3"]})
    found = check_receipt(file)
    assert found["erased"] == {"user": 1, "item": 1} and found["rows"] > 0
    assert "u4" not in file.read_text() and found["memory"]["before"] != found["memory"]["after"]
    file.write_text(json.dumps({**found, "rows": 1}))
    with pytest.raises(FedvineError, match="changed since it was signed"):
        check_receipt(file)


def test_names_that_are_not_known_change_nothing():
    write(ROWS)
    made().run("run").finish()
    before = bytes_of("run")
    for words, sentence in (({"user": ["u44"]}, "no user"), ({"client": ["b"]}, "no client"),
                            ({"node": ["u4"]}, "say --user or --item"),
                            ({"user": [f"u{i}" for i in {i * i % 13 for i in range(13)}]},
                             "delete its folder")):
        with pytest.raises(FedvineError, match=sentence):
            erase("run", words)
    refused(["erase", "run", "--user", "u4"], "give the command again with --yes")
    refused(["erase", "run"], "No erasure in run was stopped")
    assert bytes_of("run") == before


def test_the_next_night_goes_on_without_the_person():
    write(ROWS[:70])
    made(open_end=True).run("run").finish()
    write(ROWS[:80])
    made(open_end=True).run("run").finish()
    assert list(Path("run/nights").glob("0*.json"))
    erase("run", {"user": ["u4"]}, exact=True)
    assert {file.name for file in Path("run/nights").iterdir()} == {"log.jsonl", "how.json"}
    write([row for row in ROWS if row[0] != "u4"])
    found = made(open_end=True).run("run").finish()
    assert scores(found) == scores(without("popularity", found.plan, user=["u4"]))


def nodes(gone=()):
    draw = np.random.default_rng(0)
    rows = [(f"node{i}", ("x", "y", "z")[i % 3], ("ada", "bo")[i % 2],
             *draw.normal(i % 3, 1, 4).round(3)) for i in range(60)]
    ends = draw.integers(0, 60, (120, 2))
    Path("nodes.csv").write_text("node,label,town,a,b,c,d\n" + "".join(
        ",".join(map(str, row)) + "\n" for row in rows if row[0] not in gone))
    Path("edges.csv").write_text("src,dst,paid\n" + "".join(
        f"node{a},node{b},{a * b}\n" for a, b in ends if not {f"node{a}", f"node{b}"} & set(gone)))


@pytest.mark.slow
@pytest.mark.parametrize("by", [{}, {"client": "town"}, {"client": "town", "weight": "paid"}],
                         ids=["dealt", "column", "amounts"])
def test_a_node_of_a_labelled_graph(by):
    def labels(out=None):
        return Experiment.model_validate({
            "data": {"source": "nodes.csv", "edges": "edges.csv", "node": "node", "label": "label",
                     **by}, "split": {} if "client" in by else {"by": "hash", "k": 2}, "stages": 1,
            "method": {"name": "hop_ral"}}).run(out).finish()

    nodes()
    first, gone = labels("run"), [f"node{i}" for i in range(7, 40)]
    erase("run", {"node": gone}, exact=True)
    assert not any(name.encode() in bytes_of("run/data") for name in gone)
    if by:
        again = labels("run")
        nodes(gone)
        assert scores(again) == scores(labels())
    else:       # a partition deals others otherwise, and others are for the test
        assert open_run("run").run.plan != first.plan
        assert open_run("run").labels().num_rows == 27


@pytest.mark.slow
@pytest.mark.parametrize("method", ["popularity", "fedlink_plus"])
def test_a_row_that_has_changed_is_learned_again_or_comes_late(method):
    write(ROWS[:90])
    made(method, open_end=True).run("run").finish()
    shutil.copytree("run", "late")
    fixed = [(*row[:4], 9) if row[2] == 33 else row for row in ROWS if row[2] != 52]
    write(fixed)
    Path("shop.toml").write_text(tomlkit.dumps(made(method, open_end=True).plain()))
    for words in (["--changed", "no"], []):
        code, _, said = fedvine("run", "shop.toml", "--out", "run", *words)
        assert code == (2 if words else 4) and "relearn" in said, said
    again = made(method, open_end=True).run("run", changed="relearn").finish()
    split = made(method).data.open().before(again.plan.bounds[-1]).split("town")
    other = prepare(made(method).method, split, again.plan, protocol=made(method).protocol).finish()
    assert scores(again) == scores(other)
    late = made(method, open_end=True).run("late", changed="append").finish()
    assert len(late.ready.stream) == len(again.ready.stream)
    came = late.ready.stream
    assert came.arrived is not None and sum(came.arrived != came.t) == 1    # the row at 33


def memory(folder):
    """Return the memory of both sides at the end of a run, but for what was learned."""
    folder = RunFolder(folder, None)
    save = folder.restore()
    learned = {"newton", "level", "gains", "chosen", "levels", "alone", "own", "measured", "ranked"}
    sides = {"server": unpack(save.server)["server"],
             **{name: unpack(packed)["memory"] for name, packed in save.clients.items()}}
    return {name: {key: value for key, value in held.items() if key not in learned}
            for name, held in sides.items()}, {
        name: {key: value for key, value in held.items() if key in learned}
        for name, held in sides.items()}


def sides(folder):
    """Return the whole memory of the server and of each client."""
    save = RunFolder(Path(folder), None).restore()
    return {"server": unpack(save.server)["server"],
            **{name: unpack(packed)["memory"] for name, packed in save.clients.items()}}


def equal(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    one, other = np.asarray(one), np.asarray(other)
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["popularity", "edgebank", "fedlink_plus"])
@pytest.mark.parametrize("names", [{"user": ["u4", "u9"]}, {"item": ["i3"]}], ids=["users", "item"])
def test_at_once_counts_are_those_of_a_run_that_never_had_the_rows(method, names):
    write(ROWS)
    first = made(method).run("run").finish()
    assert prepared("run", names).at_once
    _, learned = memory("run")
    receipt = check_receipt(erase("run", names))
    assert receipt["kind"] == "at once" and receipt["sampled_at_most"] == receipt["rows"]
    shutil.copytree("run", "again")
    counted, still = memory("run")
    assert equal(still, learned) and scores(made(method).run("run").finish()) == scores(first)
    erase("again", {"user": ["u1"]}, exact=True)
    shutil.rmtree("run")
    gone = {name for found in names.values() for name in found}
    write([row for row in ROWS if not gone & set(row)])
    experiment = made(method)
    split = experiment.data.open().before(first.plan.bounds[-1]).split("town")
    prepare(experiment.method, split, first.plan, protocol=experiment.protocol, out="run").finish()
    assert equal(counted, memory("run")[0])


SETTLED = {"right", "held", "tried", "unseen", "chosen", "levels", "level", "held back", "model",
           "optimizer", "alone", "correction", "against"}


def counted(held):
    """What is summed over nodes, in a memory."""
    if not isinstance(held, dict):
        return held
    return {key: counted(value) for key, value in held.items()
            if key not in SETTLED | {"weight", "rows", "means", "closed" if "own" in held else ""}}


@pytest.mark.slow
@pytest.mark.parametrize("method", [{"name": "hop_ral"}, {"name": "power_plus", "rounds": 0},
                                    {"name": "power_plus", "rounds": 2, "width": 64},
                                    {"name": "power_plus", "rounds": 1, "width": 0}])
def test_at_once_sums_over_nodes_are_those_of_a_run_that_never_had_them(method):
    def labels(out):
        return Experiment.model_validate({
            "data": {"source": "nodes.csv", "edges": "edges.csv", "client": "town",
                     "weight": "paid"}, "stages": 1, "method": method}).run(out).finish()

    nodes()
    labels("run")
    before = sides("run"), sides("run/final")
    assert prepared("run", {"node": ["node7", "node8"]}).at_once
    receipt = check_receipt(erase("run", {"node": ["node7", "node8"]}))
    assert receipt["kind"] == "at once" and receipt["sampled_at_most"] == 2
    assert b"node7" not in bytes_of("run") and b"node8" not in bytes_of("run")
    named = open_run("run").labels()["node"].to_pylist()
    assert "node9" in named and not {"node7", "node8"} & set(named)
    nodes(["node7", "node8"])
    labels("other")
    for place, old in zip((".", "final"), before, strict=True):
        now, other = sides(f"run/{place}"), sides(f"other/{place}")
        for side in now:
            assert equal(counted(now[side]), counted(other[side])), (place, side)
        assert not equal(counted(now["server"]), counted(old["server"]))
        if "closed" in now["server"] and now["server"]["closed"]:
            for key in ("chosen", "right", "level"):
                assert equal(now["server"]["closed"][key], old["server"]["closed"][key])


@pytest.mark.slow
def test_flights_of_a_tail_number():
    found = Experiment.model_validate({
        "data": "flights", "protocol": {"positives": 50, "negatives": 5, "ranking": False},
        "method": {"name": "fedlink_plus", "rounds": 1, "sampled": 20, "stages": 2}})
    run = found.run("run").finish()
    stream = run.ready.stream
    user = int(np.bincount(stream.src).argsort()[-2])
    name = stream.src_ids[user]
    assert name.encode() in bytes_of("run")
    shutil.copytree("run", "exact")
    for folder in ("run", "exact"):
        erase(folder, {"user": [name]}, exact=folder == "exact")
        assert name.encode() not in bytes_of(folder)
    left = stream.take(np.flatnonzero(stream.src != user))
    used = np.setdiff1d(np.arange(stream.num_src), [user])
    left.src, left.src_ids = np.searchsorted(used, left.src).astype(np.int32), (
        left.src_ids.take(used))
    other = prepare(run.method, left.split(run.ready.world.facts["split"]), run.plan, out="other",
                    protocol=run.protocol).finish()
    assert equal(memory("run")[0], memory("other")[0])
    assert scores(found.run("exact").finish()) == scores(other)


def test_what_other_files_and_killed_reads_leave_of_a_person():
    names = ("José", "Ada")
    write([*ROWS, *((name, "i1", 100 + n, "ada", 1) for n, name in enumerate(names))])
    made(open_end=True).run("run").finish()
    write([*ROWS, *((name, "i1", 100 + n, "ada", 1) for n, name in enumerate(names)),
           *((f"u{n}", "i2", 121 + n, "Bank Cydonia", 1) for n in range(30))])
    made(open_end=True).run("run").finish()
    assert b"Cydonia" in Path("run/data/rows.json").read_bytes()
    shutil.copytree("run/data", "run/.data.0f.tmp")         # of a run that was killed
    (Path("cache") / ".read-1.tmp").mkdir(parents=True)
    Path("cache/.read-1.tmp/work.duckdb").write_text("Ada")
    forecasts_of("run").every(4, "all.parquet")
    Path("all.parquet").write_text("x")
    nights.log("run", {"refused": ["Bank Cydonia is silent", "few rows"]})
    with pytest.warns(UserWarning, match=r"all\.parquet, which .*, stays \(it cannot be read"):
        erase("run", {"user": ["Jose\u0301"], "client": ["Bank Cydonia"]}, exact=True)  # in NFD
    assert ["... is silent", "few rows"] in [line.get("refused") for line in nights.lines("run")]
    assert not Path("cache/.read-1.tmp").exists() and not Path("run/.data.0f.tmp").exists()
    assert not {"José", "Cydonia"} & set(re.findall(r"\w+", bytes_of("run/data").decode(
        errors="ignore")))


def test_what_has_left_with_noise_stays_spent():
    """Also after a night that is taken back, and after an erasure."""
    def night(rows):
        write(rows)
        return Experiment.model_validate({**made(open_end=True).plain(), "method": {
            **METHODS["fedlink"], "name": "fedlink_private", "buffers": 2, "steps": 1,
            "aggregate": {"clip": 1.0, "noise": 2.0}}}).run("run").finish().summary["privacy"]

    def largest():
        return max(ledger_of(file).summary()["epsilon"] for file in Path("run/noise").iterdir())

    assert night(ROWS[:101])["uploads"] == 10
    night(ROWS[:111])
    nights.back("run")
    spent = night([*ROWS[:101], *ROWS[111:]])
    assert spent["uploads"] == 12 and spent["epsilon"] == pytest.approx(largest())
    erase("run", {"user": ["u4"]}, exact=True)
    again = json.loads(Path("run/summary.json").read_text())["privacy"]
    assert again["uploads"] > 12 and again["epsilon"] == pytest.approx(largest())
    erase("run", {"client": ["bo"]}, exact=True)
    assert [file.stem for file in Path("run/noise").iterdir()] == ["ada"]


def test_a_note_of_somebody_elses_run_opens_and_deletes_nothing(tmp_path):
    write(ROWS)
    made().run("run").finish()
    forecasts_of("run").every(4, "all.csv")
    assert handed.is_own(Path("run"), str(Path("all.csv").absolute()))
    shutil.copytree("run", "copy")
    with pytest.warns(UserWarning, match="no run of yours"):
        erase("copy", {"user": ["u4"]}, exact=True)
    assert Path("all.csv").exists()


def test_a_night_with_a_correction_goes_through_the_gate_of_scores():
    rows = [(f"u{n % 6}", f"i{n % 6}", n, "ada", 1) for n in range(160)]
    gate = {"stop_on": ["scores"]}

    def night():
        made("recency", open_end=True, gate=gate).run("run", changed="relearn").finish()

    write(rows[:130])
    night()
    write(rows[:140])
    night()
    write([("u1", "i5", 3, "ada", 1) if row[2] == 3 else row for row in rows[:140]] + [
        (f"u{n % 6}", f"i{(n + 2 + n % 3) % 6}", n, "ada", 1) for n in range(140, 160)])
    with pytest.raises(FedvineError, match="the gate is closed: mrr of the model of stage 15"):
        night()
