"""Users who meet every item, and fewer items than negatives: ranks that a person would count."""

import numpy as np
import pytest

from fedvine.data.ids import Ids
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream
from fedvine.experiments.run import run
from fedvine.methods.edgebank import EdgeBank
from fedvine.methods.popularity import Popularity
from fedvine.tasks.link_prediction import LinkPrediction


def finished(method, rows, negatives=100):
    """Run on rows (user, item), the same in each of six stages."""
    users, items = (sorted({row[i] for row in rows}) for i in (0, 1))
    every = [(users.index(u), items.index(i), t + n / 1000) for t in range(6)
             for n, (u, i) in enumerate(rows)]
    src, dst, t = zip(*every, strict=True)
    stream = EventStream(np.array(src, np.int32), np.array(dst, np.int32), np.array(t),
                         Ids.of(users), Ids.of(items))
    plan = Plan(tuple(map(float, range(7))), val=4, test=5)
    return run(method, stream.split("hash", k=1), plan,
               protocol=LinkPrediction(negatives=negatives)).finish().scores["test"]


@pytest.mark.parametrize("negatives", [100, "all"])
def test_a_user_who_meets_every_item_is_not_asked(negatives):
    rows = [(f"heavy{u}", f"p{i}") for u in range(5) for i in range(3)]
    rows += [(f"light{u}", "p0") for u in range(5)]
    found = finished(EdgeBank(), rows, negatives)
    n = found["n"]["client-1"]
    assert (n["n"], n["n_unasked"], n["n_unknown"]) == (5, 15, 0)
    assert {k: found["mean"][k] for k in ("auc", "auc_within", "mrr")} == {
        "auc": 1.0, "auc_within": 1.0, "mrr": 1.0}      # perfect forecasts


@pytest.mark.parametrize("negatives", [100, "all"])
def test_of_three_items_the_one_that_is_second_has_rank_two(negatives):
    rows = [(f"u{u}", f"p{1 if u % 2 else 2}") for u in range(8)]
    rows += [("star", "p1"), ("star", "p2"), ("star", "p0")] * 4    # it alone moves popularity
    rows = [row for row in rows if row[0] == "star" or row[1] == "p1"] + [("star", "p2")] * 30
    found = finished(Popularity(), rows, negatives)
    n = found["n"]["client-1"]
    asked = [row for row in rows if row[0] != "star"]               # star meets everything
    assert n["n"] == len(asked) and n["n_unasked"] == len(rows) - len(asked)
    assert n["n_few"] == (0 if negatives == "all" else n["n"])
    assert found["mean"]["mrr"] == 0.5 and found["mean"]["hits_sampled"] == 1.0
