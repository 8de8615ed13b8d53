"""Check-ins in both of their forms."""

from __future__ import annotations

import gzip
import os
import shutil
from collections import Counter
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from fedvine.core.errors import FedvineError
from fedvine.data.stream import EventStream
from fedvine.datasets.foursquare import COUNTRIES, Foursquare


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDVINE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


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
def test_both_forms_are_equal(real):
    text, parquet = Foursquare.load(real / "text"), Foursquare.load(real / "parquet")
    assert text.name == parquet.name == "foursquare-tist2015-part"
    for column in ("src", "dst", "t"):
        assert np.array_equal(getattr(text, column), getattr(parquet, column))
    assert np.array_equal(text.codes["country"], parquet.codes["country"])
    assert text.categories == parquet.categories and rows(text) == rows(parquet)


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


def test_stages_have_something_to_validate_on(real):
    plan = Foursquare.load(real / "parquet").by_time(Foursquare.STAGES)
    assert (len(plan), plan.val, plan.test) == (11, 9, 10)


def test_the_whole_data_has_its_own_name(tmp_path):
    """FedGraph's files know the offset to local time."""
    for country in COUNTRIES:
        (tmp_path / f"data_{country}.txt").write_text(
            f"7\t4b\"{country}\tTue Apr 03 18:00:06 +0000 2012\t-240\n")
    stream = Foursquare.load(tmp_path)
    assert stream.name == "foursquare-tist2015"
    assert rows(stream)[0] == ("7", '4b"BR', 1333476006, "BR")


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
