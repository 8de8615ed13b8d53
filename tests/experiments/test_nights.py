"""Nights that are taken back, and nights that the gate does not let in."""

import json
import os
import shutil
import sys
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tomlkit
from wrong import fedvine

from fedvine.core.errors import FedvineError
from fedvine.experiments import nights
from fedvine.experiments.erase import erase
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.run_folder import RunFolder
from fedvine.living.gate import Closed, Gate, _of_counts

HEAD = "user,item,at,town\n"
pytestmark = pytest.mark.usefixtures("here")


def days(count, daily=30, seed=0):
    draw = np.random.default_rng(seed)
    return [(f"u{int(12 * draw.random() ** 2)}", f"i{int(15 * draw.random() ** 2)}", day + i / 100,
             ("ada", "bo")[i % 2]) for day in range(count) for i in range(daily)]


def write(rows):
    Path("shop.csv").write_text(HEAD + "".join(",".join(map(str, row)) + "\n" for row in rows))


def made(name="popularity", **more):
    return Experiment.model_validate({
        "data": {"source": "shop.csv", "src": "user", "dst": "item", "time": "at",
                 "client": "town"}, "method": {"name": name}, "stages": "1.0", "open_end": True,
        "protocol": {"positives": 30, "negatives": 5}, **more})


def state(folder):
    """Return all that the next night rests on."""
    save = RunFolder(folder, None).restore()
    return (json.loads(Path(folder, "data/rows.json").read_text()),
            {name: packed.skeleton for name, packed in save.clients.items()},
            {name: [b.tobytes() for b in packed.buffers] for name, packed in save.clients.items()},
            Path(folder, "metrics.jsonl").read_text(),
            {key: value for key, value in json.loads(Path(folder, "summary.json").read_text())
             .items() if "seconds" not in key and key not in ("by", "peak_memory_bytes")})


@pytest.mark.slow
@pytest.mark.parametrize(("method", "split"), [
    ("popularity", {}), ("fedlink_plus", {}), ("fedlink", {"by": "hash", "k": 2})])
def test_what_is_taken_back_has_not_been(method, split):
    data = {} if not split else {"data": {"source": "shop.csv", "src": "user", "dst": "item",
                                          "time": "at"}}
    rows, bad = days(6), [(f"x{i}", f"new{i}", 5 + i / 50, "cy") for i in range(50)]
    write(rows[:90])
    night = made(method, split=split, **data)
    night.run("run").finish()
    write(rows[:150])
    night.run("run").finish()
    before = state("run")
    shutil.copytree("run", "never")
    write([*rows[:150], *bad, ("u1", "i1", 7.5, "ada")])
    night.run("run").finish()
    assert state("run") != before
    assert nights.back("run") and state("run") == before
    write(rows)
    for folder in ("run", "never"):
        night.run(folder).finish()
    assert state("run") == state("never")
    assert nights.back("run", 2) and len(json.loads(Path("run/data/rows.json").read_text())[
        "plan"]["bounds"]) == 3
    assert [set(line) & {"back", "rows"} for line in nights.lines("run")] == [
        {"rows"}, {"rows"}, {"rows"}, {"back"}, {"rows"}, {"back"}]
    with pytest.raises(FedvineError, match=r"can go back by|has kept no night"):
        nights.back("run", 2)


@pytest.mark.parametrize("place", range(7))
def test_a_way_back_that_was_killed_is_finished(place, monkeypatch):
    rows, left = days(5), [place]
    for end in (90, 120):
        write(rows[:end])
        made().run("run").finish()
        shutil.copytree("run", f"run{end}")
    whole = os.replace

    def killed(*given):
        left[0] -= 1
        if left[0] == -1:
            raise KeyboardInterrupt
        return whole(*given)

    monkeypatch.setattr(os, "replace", killed)
    try:
        nights.back("run")
    except KeyboardInterrupt:
        if Path("run/.back").exists():
            with pytest.raises(FedvineError, match="give fedvine rollback"):
                made().run("run")
        nights.back("run")
    assert state("run") == state("run90")


@pytest.mark.slow
def test_few_nights_are_kept_and_share_what_did_not_change():
    rows = days(14)
    for day in range(3, 14):
        write(rows[:30 * day])
        made("fedlink_plus", keep_nights=3, method={"name": "fedlink_plus", "sampled": 5,
                                                    "rounds": 1}).run("run").finish()
    assert len(list(Path("run/nights").glob("0*.json"))) == 3
    kept = sum(file.stat().st_size for file in Path("run/nights/pieces").iterdir())
    saves = sum(file.stat().st_size for file in Path("run/saves").rglob("*.safetensors"))
    assert kept < saves


def labels(ids):
    Path("nodes.csv").write_text("node,label,town,a,b\n" + "".join(
        f"n{i},{'xyz'[i % 3]},{'ada' if i % 2 else 'bo'},{i % 3},{i % 5}\n" for i in ids))
    Path("edges.csv").write_text("src,dst\n" + "".join(
        f"n{i},n{(7 * i + 3) % 60}\n" for i in ids))


@pytest.mark.parametrize("final", [False, True])
def test_a_labelled_graph_goes_back(final):
    night = Experiment.model_validate({
        "data": {"source": "nodes.csv", "edges": "edges.csv", "node": "node", "label": "label",
                 "client": "town"}, "method": {"name": "hop_ral", "width": 4, "expansion": 4},
        "open_end": True, "final": final})
    labels(range(60))
    night.run("run").finish()
    shutil.copytree("run", "never")
    labels(range(120))
    night.run("run").finish()
    nights.back("run")
    one, other = (json.loads(Path(f, "data/rows.json").read_text()) for f in ("run", "never"))
    assert one["plan"] == other["plan"]
    assert not Path("run/final").exists()
    for folder in ("run", "never"):
        night.run(folder).finish()
    one, other = (Path(f, "metrics.jsonl").read_text() for f in ("run", "never"))
    assert one == other


BAD = {"a tenth of the rows": lambda rows: rows[::10],
       "a doubled load": lambda rows: [*rows, *[(u, i, t + .004, c) for u, i, t, c in rows]],
       "a silent client": lambda rows: [row for row in rows if row[3] == "ada"],
       "all items renamed": lambda rows: [(u, f"p{i}", t, c) for u, i, t, c in rows]}


@pytest.mark.parametrize("kind", BAD)
def test_the_gate_stops(kind):
    rows = days(16, 80)
    write(rows[:80 * 14])
    night = made("fedlink_plus", gate={}, method={"name": "fedlink_plus", "rounds": 2})
    night.run("run").finish()
    before = state("run")
    write([*rows[:80 * 14], *BAD[kind](rows[80 * 14:80 * 15]), ("u0", "i0", 15.0, "ada"),
           ("u0", "i0", 15.0, "bo")])
    with pytest.raises(Closed):
        night.run("run").finish()
    assert state("run") == before
    assert len(night.run("run", anyway=True).finish().plan) == 15


def test_an_ordinary_night_is_learned():
    rows = days(30)
    write(rows[:30 * 12])
    made(gate={}).run("run").finish()
    for day in range(13, 30):
        write(rows[:30 * day])
        made(gate={}).run("run").finish()


def test_a_fall_of_scores_alone_takes_the_night_back():
    rows = days(16)
    write(rows[:30 * 14])
    night = made("frequency", gate={"stop_on": ["scores"], "fall": 0.1, "spread": 1.0})
    night.run("run").finish()
    before = state("run")
    write([*rows[:30 * 14], *[(u, f"i{14 - int(i[1:])}", t, c) for u, i, t, c in rows[30 * 14:]]])
    with pytest.raises(Closed, match="of stage"):
        night.run("run").finish()
    assert state("run") == before


def test_names_and_forecasts_of_a_night_that_was_taken_back_can_be_erased():
    rows = days(16)
    write(rows[:30 * 13])
    made(gate={"nights": 99}).run("run").finish()
    assert fedvine("predict", "run", "--all", "--out", "all.csv")[0] == 0
    write([*rows, ("Zelma", "i1", 15.9, "ada"), ("Zelma", "i1", 15.9, "bo"),
           ("u1", "i1", 17, "bo")])
    made(gate={"nights": 99}).run("run").finish()
    assert any(b"Zelma" in file.read_bytes() for file in Path("run/data").rglob("*.npy"))
    nights.back("run")
    assert not [file for file in Path("run").rglob("*.npy") if b"Zelma" in file.read_bytes()]
    erase("run", {"user": ["u3"]})
    assert not Path("all.csv").exists() or "u3" not in Path("all.csv").read_text()
    made(gate={"nights": 99}).run("run").finish()


def test_the_gate_on_scores_holds_after_a_kill():
    rows = days(17)
    bad = [(u, f"i{14 - int(i[1:])}", t, c) for u, i, t, c in rows[30 * 15:]]
    night = made("frequency", gate={"stop_on": ["scores"], "fall": 0.1, "spread": 1.0})
    write(rows[:30 * 13])
    night.run("run").finish()
    write([*rows[:30 * 15], *bad])
    next(iter(night.run("run")))            # one stage of this night is learned and saved
    with pytest.raises(Closed, match="of stage"):
        night.run("run").finish()


def test_a_line_of_the_log_that_was_torn_hides_no_other(tmp_path):
    write(days(3))
    made().run("run").finish()
    before = len(nights.lines("run"))
    with open("run/nights/log.jsonl", "a") as file:
        file.write('{"at": "20')
    nights.log("run", {"back": 1})
    assert len(nights.lines("run")) == before + 1 and nights.lines("run")[-1]["back"] == 1


def became():
    return json.loads(Path("run/summary.json").read_text())["night"]


def test_the_command_says_so():
    rows = days(14)
    write(rows[:30 * 13])
    Path("shop.toml").write_text(tomlkit.dumps({**made().plain(), "gate": {"nights": 5}}))
    tell = f"{sys.executable} -c \"import sys; open('told.json','w').write(sys.stdin.read())\""
    assert fedvine("run", "shop.toml", "--out", "run", "--notify", tell)[0] == 0
    assert json.loads(Path("told.json").read_text())["state"] == "ok" == became()["state"]
    assert fedvine("run", "shop.toml", "--out", "run")[0] == 0
    assert became()["state"] == "waiting" and "30 rows wait" in " ".join(became()["why"])
    write([*rows[:30 * 13], *rows[30 * 13::10], ("u0", "i0", 14.0, "ada")])
    code, _, said = fedvine("run", "shop.toml", "--out", "run", "--notify", tell)
    assert code == 3 and "rows, usually 30" in said
    assert json.loads(Path("told.json").read_text())["state"] == "refused" == became()["state"]
    assert "rows, usually 30" in became()["why"][0]
    code, _, said = fedvine("run", "shop.toml", "--out", "run", "--log", "json")
    lines = [json.loads(line) for line in said.splitlines()]
    assert code == 3 and lines[-1]["level"] == "error" and "usually 30" in lines[-1]["text"]
    _, _, said = fedvine("run", "shop.toml", "--out", "run", "--learn-anyway", "--log", "json")
    lines = [json.loads(line) for line in said.splitlines()]
    one = [line for line in lines if "stage" in line][-1]
    assert one["level"] == "info" and one["stage"] == one["stages"] and "scores" in one
    assert fedvine("rollback", "run")[0] == 0
    code, out, _ = fedvine("nights", "run")
    assert code == 0 and "refused" in out and "1 taken back" in out
    assert "fedvine_rows" in fedvine("metrics", "run")[1]
    Path("shop.toml").write_text(Path("shop.toml").read_text() + '\nnotify = "touch x"\n')
    assert fedvine("run", "shop.toml", "--out", "run")[0] == 2


def test_counts_of_weekdays_are_compared_with_their_own():
    gate = Gate(stop_on=("rows",))
    counts = np.array([100, 100, 100, 100, 100, 10, 10] * 6)
    plan = type("Plan", (), {"bounds": np.arange(len(counts) + 1) * 86_400.0})
    assert gate._usual(counts, plan, 40) is gate._usual(counts, plan, 39) is None
    counts[40] = 100
    assert gate._usual(counts, plan, 40) == 10


def test_stages_without_rows_are_one_reason():
    plan = type("Plan", (), {"bounds": np.arange(9) * 86_400.0})
    odd = [(2, 0, 8.0), (3, 0, 8.0), (4, 0, 7.5), (5, 90, 8.0), (7, 0, 8.0)]
    assert _of_counts(odd, plan, False) == [
        "stages 3 to 5 have no rows, usually 8", "stage 6 has 90 rows, usually 8",
        "stage 8 has 0 rows, usually 8"]
    assert _of_counts(odd[-1:], plan, True)[0].endswith("usually 8 (from 1970-01-08 UTC on)")


@pytest.mark.parametrize(("error", "state"), [
    (MemoryError, "failed"), (KeyboardInterrupt, "stopped")])
def test_a_night_that_breaks_off_is_not_ok(monkeypatch, error, state):
    def broken(*_, **__):
        raise error
    write(days(3))
    Path("shop.toml").write_text(tomlkit.dumps(made().plain()))
    monkeypatch.setattr(Experiment, "run", broken)
    tell = f"{sys.executable} -c \"import sys; open('told.json','w').write(sys.stdin.read())\""
    assert fedvine("run", "shop.toml", "--out", "run", "--notify", tell)[0] != 0
    assert json.loads(Path("told.json").read_text())["state"] == state
    assert fedvine("run", "auto", "--data", "gone.csv", "--notify", tell)[0] == 2
    assert "gone.csv does not exist" in Path("told.json").read_text()


def test_a_correction_of_a_night_that_is_refused_changes_nothing():
    rows = days(14)
    write(rows[:30 * 13])
    night = made(gate={"nights": 5, "stop_on": ["rows"]})
    night.run("run").finish()
    before = state("run")
    wrong = [("u11", *rows[0][1:]), *rows[1:30 * 13], *rows[30 * 13::10], ("u0", "i0", 14.0, "ada")]
    write(wrong)
    for changed in ("relearn", "append"):
        with pytest.raises(Closed):
            night.run("run", changed=changed)
        assert state("run") == before and not Path("run/.trial").exists()
    night.run("run", changed="relearn", anyway=True).finish()
    assert state("run") != before


def test_a_way_back_that_was_killed_at_its_end_is_finished(monkeypatch):
    write(days(6))
    made().run("run").finish()
    write(days(8))
    made().run("run").finish()
    unlink = Path.unlink

    def killed(file, **how):
        if file.name == nights.BACK:
            raise KeyboardInterrupt
        unlink(file, **how)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            nights.back("run")
    assert nights.back("run") and not Path("run", nights.BACK).exists()
    assert made().run("run").finish().plan.bounds[-1] > 6


@pytest.mark.parametrize(("more", "when", "words"), [
    ({}, "20240109", "counts seconds"), ({}, "nan", "is no time"), ({}, "2999-01-01", "later than"),
    ({"share": 0.5}, "2024-01-09", "draws other rows")])
def test_times_and_shares_that_a_night_cannot_have(more, when, words):
    Path("shop.csv").write_text(HEAD + "".join(
        f"u{i},i{i % 3},2024-01-0{1 + i % 9},ada\n" for i in range(30)))
    table = {**made().plain()["data"], **more}
    with pytest.raises(FedvineError, match=words):
        made(data=table, stages="1d").run("run", as_of=when)


def test_a_unit_and_a_monitor():
    write(days(6))
    made().run("run").finish()
    nights.unit("run", "units", "03:30", "all.csv", 'mail "50% of $HOME"')
    service = Path("units/fedvine-run.service").read_text()
    assert "OnCalendar=*-*-* 03:30:00" in Path("units/fedvine-run.timer").read_text()
    assert '50%% of $$HOME' in service and "ExecStartPost=" in service
    made(gate={"rows": 3.0}, keep_nights=9).run("run")
    nights.unit("run", "others", "03:30", "postgres://ann@host/shop/lists")
    told = tomlkit.parse(Path("others/fedvine-run.toml").read_text())
    assert told["keep_nights"] == 9 and told["gate"]["rows"] == 3
    service = Path("others/fedvine-run.service").read_text()
    assert service.count("postgres://ann@host/shop/lists") == 1     # no path to be written to
    assert f"WorkingDirectory={Path.cwd()}\n" in service and "Environment=" in service
    assert "--stop-on" not in service
    write(days(8))
    assert fedvine("run", "units/fedvine-run.toml", "--out", "run", "--stop-on", "all")[0] == 0
    code, out, _ = fedvine("metrics", "run")
    assert code == 0 and 'fedvine_nights_total{run="run"} 2' in out and "fedvine_rows" in out
    assert 'period="live",score="auc"' in out and "u1" not in out
    numbers = [float(line.rsplit(" ", 1)[1]) for line in out.splitlines() if line[0] != "#"]
    assert min(numbers) >= 0
    with pytest.raises(FedvineError, match="no time of day"):
        nights.unit("run", "units", "25:00")


@pytest.mark.parametrize("compress", [
    zlib.compress, lambda content: pa.compress(content, "zstd", asbytes=True)],
    ids=["zlib", "zstd"])
def test_a_piece_of_an_earlier_version_can_be_read_and_a_changed_one_is_named(tmp_path, compress):
    content = bytes(range(256)) * 300
    name = nights._piece(content, tmp_path)
    (tmp_path / name).write_bytes(compress(content))
    assert nights._content(name, tmp_path) == content
    for spoilt in (compress(content)[:-9], compress(b"other"), b"", b"x"):
        (tmp_path / name).write_bytes(spoilt)
        with pytest.raises(FedvineError, match="of a kept night"):
            nights._content(name, tmp_path)
