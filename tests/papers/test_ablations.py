"""Pages on the parts of fedlink_plus and power_plus: lines that can be run, and a page of some."""

from dataclasses import replace

import pytest

from fedvine.core.rng import rng
from fedvine.methods.fedlink_plus import FedLinkPlus
from fedvine.methods.power_plus import PowerPlus
from fedvine.papers import forecasts, power
from fedvine.papers.study import Panel, carry_out, experiments


@pytest.mark.parametrize(("lines", "first"), [(forecasts.SHARING, "rows"),
                                              (forecasts.WITHOUT, "all of it")])
def test_every_line_changes_the_method(lines, first):
    whole = FedLinkPlus()
    made = {line: FedLinkPlus(**fields) for line, fields in lines.items()}
    assert [line for line, method in made.items() if method == whole] == [first]
    assert len({repr(method) for method in made.values()}) == len(made)


@pytest.mark.slow
@pytest.mark.parametrize(("study", "lines"), [
    (forecasts.sharing, {"none, noise 3": {
        "share": "none", "aggregate": {"noise": 3.0, "secure": False}}}),
    (forecasts.ablations, {"all of it": {}})])
def test_a_page_has_scores_and_costs(tmp_path, study, lines):
    draw = rng(0, "small")
    file = tmp_path / "small.csv"
    file.write_text("user,item,time,client\n" + "\n".join(
        f"u{draw.integers(30)},i{draw.integers(20)},{t},{'ab'[t % 2]}" for t in range(600)) + "\n")
    panel = Panel("small", lambda _: experiments({line: {
        "data": {"source": str(file), "src": "user", "dst": "item", "time": "time",
                 "client": "client"}, "stages": 60,
        "method": {**FedLinkPlus.tiny().model_dump(), "name": "fedlink_plus", **fields}}
        for line, fields in lines.items()}))
    sheet = carry_out(replace(study(), panels=[panel]), seeds=1, folder=tmp_path / "cells")
    rows = {row[0]: row[1:] for row in sheet.grids[0].rows}
    for line, row in rows.items():
        if line not in lines:
            assert set(row) == {"-"}
            continue
        assert all(0 <= float(value) <= 1 for value in row[:4])
    if study is forecasts.sharing:
        epsilon, moved, calls = rows["none, noise 3"][4:]
        assert 2 < float(epsilon) < 20 and moved.endswith("kB") and 0 < int(calls) < 10


def test_every_line_takes_away_a_part_of_the_method():
    whole = PowerPlus()
    for line, options in power.PARTS.items():
        assert (PowerPlus(**options) == whole) == (line == "all of it")


@pytest.mark.slow
def test_a_page_has_scores_of_both_periods_and_bytes(tmp_path):
    options = {"name": "power_plus", "rounds": 0, "width": 16}
    panel = Panel("digits", lambda folder: experiments({"all of it": {
        "data": "digits", "method": options}}))
    study = replace(power.parts(), panels=[panel])
    sheet = carry_out(study, only="digits", seeds=1, folder=tmp_path / "cells", tell=print)
    first, other = sheet.grids[0].rows[0], sheet.grids[0].rows[1]
    assert all(0 <= float(value) <= 100 for value in (first[1], first[3]))
    assert 0 < float(first[5]) < 0.1
    assert other[1:] == ["-"] * 5
