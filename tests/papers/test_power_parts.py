"""What the parts of power_plus are worth: lines that can be run, and a page of what is finished."""

from dataclasses import replace

import pytest

from fedvine.methods.power_plus import PowerPlus
from fedvine.papers import power
from fedvine.papers.study import Panel, carry_out, experiments


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
