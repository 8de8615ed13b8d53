"""Runs on sources whose rows are only added: a look reads new rows, and the result is the same."""

import contextlib
import os
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedvine.core.errors import FedvineError
from fedvine.core.settings import build
from fedvine.data.io import source as sources
from fedvine.experiments.experiment import Experiment
from fedvine.living.rows import StoredRows

pytestmark = pytest.mark.usefixtures("here")
NAMES = ("user", "item", "at", "town", "price")


def row(i, t, late=0):
    return (f"u{i * i % 13}", f"i{i * 7 % 11}", t - late, ("ada", "bo", "cy")[i % (2 + (t > 60))],
            i % 4)


def add(night, rows, folder="shop", kind="parquet"):
    """Add a file with the rows of a night, or the rows to a database."""
    if kind == "database":
        with contextlib.closing(sqlite3.connect("shop.db")) as base, base:
            base.execute(f"CREATE TABLE IF NOT EXISTS sales ({', '.join(NAMES)})")
            base.executemany("INSERT INTO sales VALUES (?, ?, ?, ?, ?)", rows)
        return
    Path(folder).mkdir(exist_ok=True)
    path = Path(folder) / f"night-{night:03}.{kind}"
    if kind == "csv":
        path.write_text(",".join(NAMES) + "\n" + "".join(",".join(map(str, r)) + "\n"
                                                         for r in rows))
        return
    columns = list(zip(*rows, strict=True)) or [()] * len(NAMES)
    types = (pa.string(), pa.string(), pa.int64(), pa.string(), pa.int64())
    pq.write_table(pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)],
                            names=list(NAMES)), path)


def made(source="shop", method="popularity", stages="10", **more):
    data = {"source": source, "src": "user", "dst": "item", "time": "at", "client": "town",
            "weight": "price", **more}
    return build(Experiment, {
        "data": data, "method": {"name": method}, "stages": stages, "open_end": True,
        "protocol": {"positives": 20, "negatives": 5}})


def kept(folder):
    """Return all files of the kept rows by name; of ``rows.json`` what a run is made of."""
    folder = Path(folder) / "data"
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.npy")}
    rows = StoredRows.open(folder)
    facts = {key: value for key, value in rows.facts.items() if key not in ("read", "files")}
    return found, facts


def look(out, now=False, **more):
    found = made(**more).grown(out, now)
    assert found is not None
    return found[0].rows


nights = st.lists(st.lists(st.tuples(st.integers(0, 200), st.integers(-9, 25), st.integers(0, 3)),
                           max_size=6), min_size=1, max_size=4)


@pytest.mark.slow
@given(nights, st.lists(st.booleans(), min_size=6, max_size=6),
       st.sampled_from(["parquet", "csv", "database"]))
@settings(max_examples=9, deadline=None, suppress_health_check=[
    HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_new_rows_alone_give_the_rows_that_reading_all_gives(nights, now, kind):
    for name in ("shop", "one", "other"):
        shutil.rmtree(name, ignore_errors=True)
    Path("shop.db").unlink(missing_ok=True)
    base = kind == "database"
    where = {"source": "SELECT * FROM sales", "database": "sqlite:shop.db"} if base else {}
    add(0, [row(i, i) for i in range(35)], kind=kind)
    made(**where).run("one")
    shutil.copytree("one", "other")
    t = 30
    for number, night in enumerate(nights):
        add(number + 1, [row(i, t + dt, late=20 * (many == 3)) for i, dt, many in night
                         for _ in range(1 + (many == 2))], kind=kind)
        t += 7
        look("one", now[number], sure=True, **where)
        look("other", now[number], append_only="99" if base else True, sure=True, **where)
        assert kept("one") == kept("other")


def scores(run):
    return {(stage.t, s, name): result for stage in run.stages for s, by in stage.found.items()
            for name, result in by.items()}


@pytest.mark.slow
def test_a_run_over_files_has_the_scores_of_a_run_that_reads_all(monkeypatch):
    read, real = [], sources.from_files

    def noted(connection, paths, *more):
        read.append([path.name for path in paths])
        return real(connection, paths, *more)

    monkeypatch.setattr(sources, "from_files", noted)
    for night in range(8):
        add(night, [row(i, i, late=30 * (i % 17 == 16 and i > 40))
                    for i in range(15 * night, 15 * night + 15)])
        if night:
            one = made().run("one").finish()
            read.clear()
            other = made(append_only="yes").run("other").finish()
            assert scores(one) == scores(other) and one.summary["scores"] == other.summary["scores"]
            # The last file before it waits in part; earlier ones are learned.
            assert night < 3 or all(len(names) <= 2 for names in read)
    assert len(one.plan) > 9
    files = StoredRows.open(Path("other/data")).facts["files"]
    assert [Path(name).name for name in files] == [f"night-{n:03}.parquet" for n in range(8)]
    read.clear()
    assert look("other", append_only=True).facts["files"] == files and not read


@pytest.mark.slow
def test_a_file_that_has_changed_or_is_gone_is_refused_and_nothing_is_lost():
    for night in range(3):
        add(night, [row(i, i) for i in range(20 * night, 20 * night + 20)])
        made(append_only=True).run("run").finish()
    first = Path("shop/night-000.parquet").absolute()
    content, stat = first.read_bytes(), first.stat()
    before = kept("run")
    first.unlink()
    says(lambda: look("run", append_only=True), str(first), "is gone", "append_only")
    add(0, [row(i, i) for i in range(21)])
    says(lambda: look("run", append_only=True), str(first), "has changed", "append_only")
    assert kept("run") == before
    first.write_bytes(content)
    os.utime(first, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert look("run", append_only=True).plan == look("run").plan
    # Reading all forgets which files were read, as it learns of any.
    add(3, [row(i, i) for i in range(60, 85)])
    assert look("run").facts["files"] is None
    assert len(look("run", append_only=True).split.stream) == 80
    assert len(look("run", append_only=True).facts["files"]) == 4


@pytest.mark.slow
def test_a_killed_look_loses_nothing(monkeypatch):
    for night in range(2):
        add(night, [row(i, i) for i in range(20 * night, 20 * night + 20)])
    made(append_only=True).run("run").finish()
    add(2, [row(i, i) for i in range(40, 65)])
    look("run", append_only=True)
    add(3, [row(i, i, late=30 * (i % 5 == 0)) for i in range(65, 95)])
    shutil.copytree("run", "whole")
    look("whole")
    from fedvine.living import rows as module
    real = module._commit

    def dying(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_commit", dying)
    with pytest.raises(KeyboardInterrupt):
        look("run", append_only=True)
    monkeypatch.setattr(module, "_commit", real)
    look("run", append_only=True)
    assert kept("run") == kept("whole")


def test_a_name_that_looks_like_a_number_stays_text():
    add(0, [("1.0", "07", 0, "ada", 1), ("ann", "x", 20, "bo", 1)], kind="csv")
    made(append_only=True).run("run")
    for night in (1, 2):
        add(night, [("1.0", "07", 20 * night + t, "ada", 1) for t in (1, 2)] + [
            ("1.0", "07", 20 * night + 20, "ada", 2)], kind="csv")
        look("run", append_only=True)
    stream = StoredRows.open(Path("run/data")).split.stream
    assert [stream.src_ids[i] for i in range(stream.num_src)] == ["1.0", "ann"]
    assert [stream.dst_ids[i] for i in range(stream.num_dst)] == ["07", "x"]


def test_it_is_no_other_experiment_and_late_rows_of_a_query_are_seen_up_to_the_stated_time():
    add(0, [row(i, i) for i in range(40)])
    plain, append = made(), made(append_only=True)
    assert plain.identity() == append.identity() and plain.plain() == append.plain()
    assert made(append_only="no").data.append_only is None
    assert append.updated({"seed": 0}).data.append_only is True
    query = {"source": "SELECT * FROM 'shop/*.parquet'"}
    made(append_only="5", **query).run("run")
    add(1, [("ann", "x", 10, "ada", 1), ("bob", "x", 27, "ada", 1)])
    add(2, [row(i, i) for i in range(40, 60)])
    found = look("run", append_only="5", **query)
    assert found.facts["late"] == 1 and "bob" in names(found) and "ann" not in names(found)
    shutil.rmtree("shop")
    add(0, [row(i, i) for i in range(40)])
    add(2, [row(i, i) for i in range(40, 60) if i != 48])
    says(lambda: look("run", append_only="5", **query), "has lost the row", "time 48")
    assert look("run", append_only=True, **query) is not None


def says(call, *words):
    with pytest.raises(FedvineError) as error:
        call()
    assert all(word in str(error.value) for word in words), error.value


def names(found):
    ids = found.split.stream.src_ids
    return {ids[i] for i in range(len(ids))}


@pytest.mark.slow
def test_dates_are_bounded_as_numbers_are():
    def day(i):
        return f"2024-01-{1 + i // 24:02}T{i % 24:02}:30:00"

    add(0, [(*row(i, i)[:2], day(i), "ada", 1) for i in range(100)], kind="csv")
    types = {"text": '"at"', "stamp": 'CAST("at" AS TIMESTAMP) AS "at"',
             "zone": 'CAST("at" AS TIMESTAMPTZ) AS "at"',
             "form": """strftime(CAST("at" AS TIMESTAMP), '%d.%m.%Y %H:%M') AS "at" """}
    found = {}
    for name, at in types.items():
        query = {"source": f"SELECT user, item, town, price, {at} FROM 'shop/*.csv'",
                 **({"time_format": "%d.%m.%Y %H:%M"} if name == "form" else {})}
        made(append_only="1d", stages="1d", **query).run(name)
    add(1, [(*row(i, i)[:2], day(i), "ada", 1) for i in (90, 3, *range(100, 160))], kind="csv")
    for name, at in types.items():
        query = {"source": f"SELECT user, item, town, price, {at} FROM 'shop/*.csv'",
                 **({"time_format": "%d.%m.%Y %H:%M"} if name == "form" else {})}
        got = look(name, append_only="1d", stages="1d", **query)
        assert got.facts["late"] == 1
        found[name] = np.asarray(got.split.stream.t).tolist()
    assert len({tuple(t) for t in found.values()}) == 1


def test_what_does_not_fit_is_refused():
    add(0, [row(i, i) for i in range(40)])
    says(lambda: made("flights", append_only=True), "append_only")
    says(lambda: made(append_only="3d"), "append_only", "queries")
    says(lambda: made(append_only="soon"), "soon")
    says(lambda: made(append_only=True, share=0.5), "append_only", "share")
    says(lambda: made("shop/night-000.parquet", append_only=True).run("run"), "one file")
    assert not Path("run").exists()
    with pytest.raises(FedvineError, match="no query"):
        made(database="sqlite:shop.db")
