"""Four cities' check-ins: every number of the docstring, and files of that layout."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedvine.core.errors import FedvineError
from fedvine.datasets import foursquare
from fedvine.datasets.foursquare import FourCities

FILE = "foursquare_www2019_4cities.parquet"
ROWS = {"user_id": [7, 7, 9, 7], "venue_id": ["US1", "US1", "BR1", "BR2"],
        "timestamp": [3600, 3600, 3600, 7200], "country": ["US", "US", "BR", "BR"],
        "category_id": [1, 1, 2, 3], "hour_of_week": [1, 1, 1, 2],
        "approx_week": [False, False, False, True]}


def write(folder: Path, **columns: list) -> Path:
    pq.write_table(pa.table({**ROWS, **columns}), folder / FILE)
    return folder


def test_rows_become_edges(tmp_path):
    stream = FourCities.load(write(tmp_path))
    country = stream.categories["country"]
    assert [(stream.src_ids[s], stream.dst_ids[d], t, country[c]) for s, d, t, c in zip(
        stream.src, stream.dst, stream.t.tolist(), stream.codes["country"], strict=True)] == [
        ("7", "US1", 3600, "US"), ("7", "US1", 3600, "US"), ("9", "BR1", 3600, "BR"),
        ("7", "BR2", 7200, "BR")]
    parts = stream.split(**FourCities.SPLIT)
    assert {name: len(part) for name, part in parts.parts.items()} == {"BR": 2, "US": 2}
    assert parts.report()["shared_user_places"] == 2        # user 7 has travelled


@pytest.mark.slow
def test_the_real_file(tmp_path, data):
    source = data / "temporal" / "checkins" / FILE
    if not source.is_file():
        pytest.skip(f"FEDVINE_DATA has no temporal/checkins/{FILE}")
    shutil.copy(source, tmp_path)
    table = pq.read_table(tmp_path / FILE)
    user, venue, time, country = (table[c].to_numpy(zero_copy_only=False) for c in (
        "user_id", "venue_id", "timestamp", "country"))
    stream = FourCities.load(tmp_path)
    assert (len(stream), stream.num_src, stream.num_dst) == (1_260_764, 20_159, 29_557)
    users = np.array([int(stream.src_ids[i]) for i in range(stream.num_src)])
    venues = np.array([stream.dst_ids[i] for i in range(stream.num_dst)])
    assert np.array_equal(users[stream.src], user)
    assert np.array_equal(venues[stream.dst], venue.astype(str))
    assert np.array_equal(stream.t, time) and stream.t.dtype == np.int64
    names = np.array(stream.categories["country"])
    assert np.array_equal(names[stream.codes["country"]], country.astype(str))
    assert Counter(country.tolist()) == {"MY": 526_405, "ID": 378_559, "BR": 249_839,
                                         "US": 105_961}
    report = stream.split(**FourCities.SPLIT).report()["clients"]
    assert {name: facts["users"] for name, facts in report.items()} == {
        "MY": 6_378, "ID": 6_206, "BR": 3_842, "US": 3_785}
    codes = stream.codes["country"]
    assert (np.bincount(np.unique(np.stack([stream.src, codes]), axis=1)[0]) > 1).sum() == 51
    assert [datetime.fromtimestamp(t, UTC).isoformat(" ", "hours") for t in (
        int(stream.t[0]), int(stream.t[-1]))] == ["2012-04-03 18+00:00", "2014-01-22 16+00:00"]
    rows = np.stack([stream.src, stream.dst, stream.t // 3600])
    assert (stream.t % 3600 == 0).all()
    assert rows.shape[1] - len(np.unique(rows, axis=1).T) == 9_161
    assert sum(table["approx_week"].to_pylist()) == 10_260
    assert np.bincount(stream.dst).min() == 10
    plan = stream.by_time(FourCities.STAGES)
    assert len(plan) == 22 and min(len(plan.stage(stream, i)) for i in range(22)) > 8_000


def test_a_second_load_only_opens(tmp_path, monkeypatch):
    FourCities.load(write(tmp_path))
    monkeypatch.setattr(foursquare, "read", lambda *_, **__: pytest.fail("read again"))
    assert len(FourCities.load(tmp_path)) == 4


def test_another_file_is_read_again(tmp_path):
    FourCities.load(write(tmp_path))
    pq.write_table(pa.table({name: column[:3] for name, column in ROWS.items()}), tmp_path / FILE)
    assert len(FourCities.load(tmp_path)) == 3


def test_what_is_missing_or_broken(tmp_path, monkeypatch):
    monkeypatch.delenv("FEDVINE_DATA", raising=False)
    with pytest.raises(FedvineError, match=r"FEDVINE_DATA, which is unset; make it from"):
        FourCities.load()
    with pytest.raises(FedvineError, match=rf"{FILE} was not found in .*LBSN2Vec"):
        FourCities.load(tmp_path)
    (tmp_path / FILE).write_bytes(b"user_id,venue_id\n")
    with pytest.raises(FedvineError, match=f"{FILE} is not a readable Parquet file"):
        FourCities.load(tmp_path)
    pq.write_table(pa.table({k: v for k, v in ROWS.items() if k != "country"}), tmp_path / FILE)
    with pytest.raises(FedvineError, match=f'{FILE} has no column "country"'):
        FourCities.load(tmp_path)
    write(tmp_path, venue_id=["US1", None, "BR1", "BR2"])
    with pytest.raises(FedvineError, match=FILE):
        FourCities.load(tmp_path)
