"""Sizes, times and durations as people read and write them."""

from fedvine.core.units import clock, duration, seconds, size


def test_sizes_and_times():
    assert [size(n) for n in (0, 999, 1000, 1500, 12_300, 999_600, 1.3e9, 5e12)] == [
        "0 B", "999 B", "1.0 kB", "1.5 kB", "12 kB", "1.0 MB", "1.3 GB", "5.0 TB"]
    assert [seconds(n) for n in (0.07, 4.2, 95, 720, 40_000)] == [
        "0.07 s", "4.2 s", "95 s", "12 min", "11 h"]
    assert [clock(s) for s in (0, 59.6, 61, 3661)] == ["0:00", "1:00", "1:01", "1:01:01"]


def test_durations():
    assert [duration(t) for t in ("90s", "60m", "1.5h", "12", "2 min", ".5h", "0")] == [
        90, 3600, 5400, 12, 120, 1800, 0]
    assert duration("30d", ("h", "d")) == 30 * 86_400 and duration(" 2 w ", ("w",)) == 14 * 86_400
    for wrong in ("soon", "", "-3s", "1e3", "nan", "3 parsecs", "1.2.3", "²"):
        assert duration(wrong) is None
    assert duration("30d") is None and duration("30m", ("min",)) is None
