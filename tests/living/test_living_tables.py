"""Tables of users and items of a run that grows: new nodes get a row, known ones keep theirs."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from fedvine.core.errors import FedvineError
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.reopened import forecasts_of
from fedvine.experiments.run import run as prepare
from fedvine.living.rows import StoredRows

pytestmark = pytest.mark.usefixtures("here")
ROWS = [(f"u{i * i % 13 + i // 40}", f"i{i * 7 % 11 + i // 60}", i, "ab"[i % 2], i % 5 - 2,
         "xyz"[i % 3]) for i in range(120)]
TINY = {"name": "fedlink", "rounds": 1, "capacity": 20, "width": 4}


def write(rows, users=None, items=None):
    Path("shop.csv").write_text("src,dst,time,town,stars,kind\n" + "".join(
        ",".join(map(str, row)) + "\n" for row in rows))
    for file, names, more in (("users.csv", [r[0] for r in rows], users),
                              ("items.csv", [r[1] for r in rows], items)):
        lines = more or {n: f"{int(n[1:]) ** 2},{'xyz'[int(n[1:]) % 3]}"
                         for n in sorted(set(names)) if n != "u3"}
        Path(file).write_text("name,size,kind\n" + "".join(
            f"{name},{line}\n" for name, line in lines.items()))


def made(**more):
    return Experiment.model_validate({
        "data": {"source": "shop.csv", "client": "town", "users": "users.csv",
                 "items": "items.csv"}, "open_end": True,
        "method": TINY, "stages": "10",
        "protocol": {"positives": 20, "negatives": 5}, **more})


def scores(run):
    return {(stage.t, s, name): result["scores"] for stage in run.stages
            for s, by in stage.found.items() for name, result in by.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("method", "bipartite"), [
    ("fedlink", True), ("fedlink", False), ("fedlink_plus", True), ("dgcolearn", True)])
def test_nights_give_the_scores_of_one_run(method, bipartite):
    """With tables of nodes, and columns of edges."""
    method = TINY if method == "fedlink" else {"name": method, "rounds": 2}
    data = {"source": "shop.csv", "client": "town", "users": "users.csv", "weight": "stars",
            "features": "kind",
            **({"items": "items.csv"} if bipartite else {"bipartite": False})}
    listed = {n: f"{int(n[1:]) ** 2},{'xyz'[int(n[1:]) % 3]}"       # from the first night on
              for n in sorted({row[1] for row in ROWS})}
    for end in (47, 47, 58, 90, 120):
        write(ROWS[:end], items=listed)
        found = made(data=data, method=method).run("run").finish()
    assert len(found.plan) > 9 and len(scores(found)) >= 10
    stream = made(data=data).data.open().before(found.plan.bounds[-1])
    other = prepare(found.method, stream.split("town"), found.plan,
                    protocol=found.protocol).finish()
    assert scores(found) == scores(other)
    assert found.ready.world.facts["tables"] == other.ready.world.facts["tables"]
    if method["name"] == "fedlink":
        assert found.server.model["features"].abs().sum() > 0


@pytest.mark.slow
def test_known_rows_stay_and_new_columns_are_left_out():
    write(ROWS[:60])
    first = made().run("run").finish()
    held = StoredRows.open(Path("run/data")).split.stream
    write(ROWS, users={n: f"{7 + i},x" for i, n in enumerate(sorted({r[0] for r in ROWS}))})
    text = Path("users.csv").read_text().splitlines()
    Path("users.csv").write_text("".join(
        f"{line},{'more' if i == 0 else i}\n" for i, line in enumerate(text)))
    found = made().run("run").finish()
    now = StoredRows.open(Path("run/data")).split.stream
    assert now.num_src > held.num_src and now.src_table.named == held.src_table.named == ("size",)
    assert np.array_equal(now.src_table.numbers[:held.num_src], held.src_table.numbers,
                          equal_nan=True)
    assert (now.src_table.numbers[held.num_src:] >= 7).all()
    assert found.ready.world.facts["tables"] == first.ready.world.facts["tables"]
    for part in StoredRows.open(Path("run/data")).split.parts.values():
        at = now.src_ids.numbers(part.src_ids)
        assert np.array_equal(part.src_table.numbers, now.src_table.numbers[at], equal_nan=True)


@pytest.mark.slow
def test_a_column_that_becomes_text_is_refused_and_nothing_is_changed():
    write(ROWS[:60])
    made().run("run").finish()
    before = Path("run/data/rows.json").read_bytes()
    write(ROWS, users=dict.fromkeys(sorted({r[0] for r in ROWS}), "large,x"))
    with pytest.raises(FedvineError, match='"size" holds "large" in row 1, and the column held n'):
        made().run("run")
    assert Path("run/data/rows.json").read_bytes() == before


@pytest.mark.slow
def test_a_user_without_any_edge_is_answered_from_the_table_of_users():
    write(ROWS)
    made().run("run").finish()
    found = {}
    for line in ("1,x", "400,z"):
        with open("users.csv", "a", encoding="utf-8") as file:
            file.write(f"new{line[0]},{line}\n")
        asked = forecasts_of("run")
        found[line] = [f.score for f in sorted(asked.top("a", f"new{line[0]}", 20))]
    assert found["1,x"] != found["400,z"]
    pairs = pa.table({"client": ["a", "a", "b"], "user": ["new1", "nobody", "new4"],
                      "item": ["i0", "i0", "i1"]})
    assert [s is not None for s in asked.scored(pairs)["score"].to_pylist()] == [True, False, True]
    with pytest.raises(FedvineError, match='No client has ever seen a user called "nobody"'):
        asked.top("a", "nobody")
    Path("users.csv").unlink()
    with pytest.raises(FedvineError, match='No client has ever seen a user called "new1"'):
        forecasts_of("run").top("a", "new1")


@pytest.mark.slow
def test_a_user_of_another_client_brings_its_row():
    write([(*row[:3], "b" if row[0] in ("u1", "u4") else row[3], *row[4:]) for row in ROWS])
    done = made().run("run").finish()
    part = done.parts["a"]
    assert part.src_ids.numbers(["u1"])[0] < 0
    there = forecasts_of("run").top("a", "u1", 20)
    other = done.parts["b"]
    row = other.src_table.take(other.src_ids.numbers(["u1"]))
    query = {"src": np.full(part.num_dst, part.num_src), "dst": np.arange(part.num_dst),
             "t": np.full(part.num_dst, done.plan.bounds[-1]), "guests": ["u1"]}
    said = {"known": row.known, "numbers": row.numbers, "codes": row.codes}
    bare, known = (dict(zip((part.dst_ids[i] for i in range(part.num_dst)),
                            np.asarray(done.ask("a", q), float).tolist(), strict=True))
                   for q in (query, {**query, "said": said}))
    # products of other numbers of rows may be rounded otherwise, by the processor's library
    assert {f.item: f.score for f in there} == pytest.approx(known, abs=1e-6) and known != bare
    assert max(abs(known[item] - bare[item]) for item in known) > 1e-3
