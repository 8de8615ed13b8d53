"""Times far from all others are doubted before they end stages."""

import numpy as np
import pytest

from fedvine.core.errors import FedvineError
from fedvine.data.plan import ask_about_far, believed_times, doubted

DAYS = np.arange(60.0)


@pytest.mark.parametrize(("order", "stages", "since", "found"), [
    (DAYS, "1", -np.inf, None),
    ([*DAYS, 1e6], "1", -np.inf, 60),
    ([*DAYS, 1e6, 9e9], "1", -np.inf, 60),
    ([-1e6, *DAYS], "1", -np.inf, 1),
    ([*DAYS, 79], "1", -np.inf, None),                      # 20 stages
    ([*DAYS, 79.5], "1", -np.inf, 60),
    ([*DAYS, 1e6], "100000", -np.inf, None),                   # 10 stages
    ([0, 100, *DAYS + 200, 1000], "1", -np.inf, None),      # a time as long was seen before
    ([*DAYS, 1e6], "1", 60, 60),
    ([*DAYS, 1e6, 1e6 + 1], "1", 1e6 + 1, None),            # accepted before
    ([*DAYS, 1e6], 5, -np.inf, 60),
    ([*DAYS, 150], 5, -np.inf, None),                       # a stage is about 5 long
    ([0, 0, 0, 1e6], "1", -np.inf, None),                   # nothing to compare with
    ([0, 1e6], "1", -np.inf, None), ([], "1", -np.inf, None)])
def test_an_empty_time_is_doubted_by_its_stages_and_its_neighbours(order, stages, since, found):
    assert doubted(np.asarray(order, float), stages, since) == found


def test_the_sentence_names_the_time_of_the_row_and_what_to_do():
    day = 86_400.0
    order = 1.7e9 // day * day + day * DAYS
    with pytest.raises(FedvineError, match=r"^shop: is 2100-01-01 UTC the time of a row\? The "
                                           r"previous one is at 2024-01-12.* say --sure"):
        ask_about_far("shop", np.append(order, 4_102_444_800), "1d", True)
    with pytest.raises(FedvineError, match=r"is 1970-01-01 UTC the time of a.*next one is at 2023"):
        ask_about_far("shop", np.append(0, order), "1d", True)


@pytest.mark.parametrize(("order", "first"), [([*DAYS, 1e6, 9e9], 1e6), ([-1e6, *DAYS], -1e6),
                                              (DAYS, None)])
def test_a_site_leaves_out_what_it_does_not_believe(order, first):
    order = np.asarray(order)
    left, found = believed_times(order, "1")
    assert left.tolist() == DAYS.tolist() and found == first
