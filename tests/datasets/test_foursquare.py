"""Check-ins in both of their forms, and those of four cities."""

import gzip
import os
import shutil
from collections import Counter
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedvine.core.errors import FedvineError
from fedvine.data.stream import EventStream
from fedvine.datasets.foursquare import COUNTRIES, FourCities, Foursquare


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A copy of the check-ins."""
    data = Path(os.environ.get("FEDVINE_DATA", ""), "temporal", "checkins")
    if not (data / "foursquare_tist2015_subset.parquet").is_file():
        pytest.skip("FEDVINE_DATA has no temporal/checkins")
    shutil.copytree(data / "foursquare_tist2015_by_country", tmp_path / "text")
    (tmp_path / "parquet").mkdir()
    shutil.copy(data / "foursquare_tist2015_subset.parquet", tmp_path / "parquet")
    return tmp_path


def rows(stream: EventStream) -> list[tuple]:
    return [(stream.src_ids[s], stream.dst_ids[d], t, stream.categories["country"][c])
            for s, d, t, c in zip(stream.src.tolist(), stream.dst.tolist(), stream.t.tolist(),
                                  stream.codes["country"].tolist(), strict=True)]


@pytest.mark.slow
def test_against_the_lines_of_the_files(real):
    expected = []
    for country in COUNTRIES:
        with gzip.open(real / "text" / f"data_{country}.txt.gz", "rt") as file:
            for line in file:
                user, venue, moment, _ = line.rstrip("\n").split("\t")
                at = datetime.strptime(moment, "%a %b %d %H:%M:%S %z %Y").timestamp()
                expected.append((int(at), country, int(user), venue))
    stream = Foursquare.load(real / "text")
    assert rows(stream) == [(str(u), v, t, c) for t, c, u, v in sorted(expected)]
    assert (len(stream), stream.num_src) == (40_670, 11_597)
    countries = {user: set() for user in range(stream.num_src)}
    for user, code in zip(stream.src.tolist(), stream.codes["country"].tolist(), strict=True):
        countries[user].add(code)
    assert sum(len(seen) > 1 for seen in countries.values()) == 138


def test_other_countries(real):
    stream = Foursquare.load(real / "parquet", countries=("MY", "gb"))
    assert Counter(row[3] for row in rows(stream)) == {"MY": 3_540, "GB": 1_680}
    assert stream.name == "foursquare-tist2015-part-MY-GB"
    for _ in range(2):
        with pytest.raises(FedvineError, match="has no check-ins in XX"):
            Foursquare.load(real / "parquet", countries=("US", "XX"))
    with pytest.raises(FedvineError, match='"Brazil" is no country code'):
        Foursquare.load(real / "parquet", countries=("Brazil",))


def test_what_is_missing_or_broken(tmp_path, monkeypatch):
    monkeypatch.delenv("FEDVINE_DATA", raising=False)
    with pytest.raises(FedvineError, match=r"FEDVINE_DATA, which is unset.*github.com/FedGraph"):
        Foursquare.load()
    (tmp_path / "data_US.txt").write_text("7\tv\tTue Apr 03 18:00:06 +0000 2012\t0\n")
    with pytest.raises(FedvineError, match=r"data_BR.txt, data_ID.txt"):
        Foursquare.load(tmp_path)
    (tmp_path / "data_US.txt").write_text("7\tv\tthird of April\t0\n")
    with pytest.raises(FedvineError, match=r'could not be read: .*"third of April"'):
        Foursquare.load(tmp_path, countries=["US"])
    (tmp_path / "data_US.txt").write_text("7\tv\n")
    with pytest.raises(FedvineError, match=r"line 1 of .* has 2 cells"):
        Foursquare.load(tmp_path, countries=["US"])


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


def test_what_of_four_cities_is_broken(tmp_path):
    (tmp_path / FILE).write_bytes(b"user_id,venue_id\n")
    with pytest.raises(FedvineError, match=f"{FILE} is not a readable Parquet file"):
        FourCities.load(tmp_path)
    pq.write_table(pa.table({k: v for k, v in ROWS.items() if k != "country"}), tmp_path / FILE)
    with pytest.raises(FedvineError, match=f'{FILE} has no column "country"'):
        FourCities.load(tmp_path)
    write(tmp_path, venue_id=["US1", None, "BR1", "BR2"])
    with pytest.raises(FedvineError, match=FILE):
        FourCities.load(tmp_path)
