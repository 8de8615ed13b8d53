"""A table is read once, whole or not at all, in bounded memory."""

import os
import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from fedvine.core.errors import FedvineError
from fedvine.core.files import cache_folder
from fedvine.data.io import store as stores
from fedvine.data.io.read import read
from fedvine.data.stream import EventStream

NAMED: dict[str, Any] = {"src": "user", "dst": "item", "time": "at"}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    path.write_text("user,item,at\na,b,2\nb,b,1\n")
    return path


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes()
            for file in folder.rglob("*") if file.is_file()}


def test_a_second_read_only_opens(table, cache, monkeypatch):
    first = read(table, **NAMED)
    monkeypatch.setattr(duckdb, "connect", lambda *_, **__: pytest.fail("the file was read again"))
    second = read(str(table), **NAMED)
    assert second.name == first.name == "t" and second.t.tolist() == first.t.tolist()
    assert not second.src.flags.writeable
    assert len(list(cache.iterdir())) == 1


def test_a_changed_file_or_other_columns_are_read_anew(table):
    read(table, **NAMED)
    assert read(table, src="item", dst="user", time="at").num_src == 1
    table.write_text("user,item,at\na,b,2\nb,b,1\nc,b,3\n")
    assert len(read(table, **NAMED)) == 3


def test_a_query_is_run_each_time(table, cache):
    query = f"SELECT * FROM '{table}'"
    assert len(read(query, **NAMED)) == len(read(query, **NAMED)) == 2
    assert len(list(cache.iterdir())) == 1
    table.write_text("user,item,at\na,b,2\n")
    assert len(read(query, **NAMED)) == 1


def test_equal_bits_of_another_type_are_another_table():
    """A date is kept as a number of days; the same number as a time is another time."""
    days = read("SELECT 'a' AS user, 'b' AS item, DATE '1970-01-02' AS at", **NAMED)
    number = read("SELECT 'a' AS user, 'b' AS item, 1::INTEGER AS at", **NAMED)
    assert days.t.tolist() == [86400] and number.t.tolist() == [1]


def test_a_store_of_ones_own(table, tmp_path):
    stream = read(table, **NAMED, store=tmp_path / "deep" / "mine")
    assert EventStream.open(tmp_path / "deep" / "mine").t.tolist() == stream.t.tolist() == [1, 2]
    before = files(tmp_path / "deep")
    read(table, **NAMED, store=tmp_path / "deep" / "mine")
    assert files(tmp_path / "deep") == before
    read(table, src="user", dst="user", time="at", store=tmp_path / "deep" / "mine")
    assert EventStream.open(tmp_path / "deep" / "mine").num_dst == 2


def test_a_folder_with_other_things_in_it_is_left_alone(table, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("dear")
    before = files(tmp_path)
    for store in (tmp_path / "home", table, table / "below"):
        with pytest.raises(FedvineError, match="choose another"):
            read(table, **NAMED, store=store)
    assert files(tmp_path) == before


def test_a_store_cut_short_is_made_again(table, cache):
    read(table, **NAMED)
    column, = cache.glob("*/dst.npy")
    column.write_bytes(column.read_bytes()[:-2])
    assert read(table, **NAMED).dst.tolist() == [0, 0]


def test_what_is_interrupted_leaves_nothing(table, tmp_path, monkeypatch):
    read(table, **NAMED, store=tmp_path / "mine")
    table.write_text("user,item,at\na,b,2\n")
    before = files(tmp_path)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(stores, "_write_ids", interrupted)
    with pytest.raises(KeyboardInterrupt):
        read(table, **NAMED, store=tmp_path / "mine")
    assert files(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_full_disk_is_one_sentence(cache):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        with pytest.raises(FedvineError) as caught:
            read("SELECT hash(i) AS user, i AS item, i AS at FROM range(500000) r(i)", **NAMED)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(caught.value)
    assert list(cache.iterdir()) == []


def test_many_at_once_get_the_same(table, cache):
    with ThreadPoolExecutor(4) as pool:
        streams = list(pool.map(lambda _: read(table, **NAMED), range(8)))
    assert all(stream.t.tolist() == [1, 2] for stream in streams)
    assert len(list(cache.iterdir())) == 1


def test_memory_limit_must_be_an_amount(table, cache):
    with pytest.raises(FedvineError, match='memory_limit "much" is no amount'):
        read(table, **NAMED, memory_limit="much")
    assert list(cache.iterdir()) == []


@pytest.mark.slow
def test_a_table_larger_than_memory(cache):
    rows = 2_000_000
    stream = read("SELECT 'person-number-' || (i * 7919) % 1999993 AS user, i % 1000 AS item, "
                  f"(i * 104729) % 1000003 AS at FROM range({rows}) r(i)", **NAMED,
                  memory_limit="100MB")
    assert sum(len(content) for content in files(cache).values()) > 80_000_000
    i = np.arange(rows)
    order = np.argsort((i * 104729) % 1000003, kind="stable")
    assert np.array_equal(stream.t, ((i * 104729) % 1000003)[order])
    person, first = np.unique(((i * 7919) % 1999993)[order], return_index=True)
    names = person[np.argsort(first)]
    assert stream.num_src == len(names)
    some = np.arange(0, len(names), 9973)
    assert [stream.src_ids[n] for n in some.tolist()] == [f"person-number-{n}" for n in names[some]]
    assert np.array_equal(names[stream.src], ((i * 7919) % 1999993)[order])
    assert np.array_equal(np.asarray(stream.dst_ids._numbers)[stream.dst], (i % 1000)[order])


def test_cache_folder(monkeypatch):
    monkeypatch.delenv("FEDVINE_CACHE")
    assert cache_folder().name == "fedvine"
    monkeypatch.setenv("FEDVINE_CACHE", os.sep + "elsewhere")
    assert cache_folder() == Path(os.sep + "elsewhere")
