"""Items of a table of items that have no edge: candidates where the catalogue is asked."""

import numpy as np
import pandas as pd
import pytest

import fedvine as fv
from fedvine.core.errors import FedvineError
from fedvine.data.plan import Plan, open_plan
from fedvine.experiments.forecasts import Forecasts
from fedvine.experiments.run import run
from fedvine.methods.popularity import Popularity
from fedvine.tasks.link_prediction import LinkPrediction

ROWS = ["user,item,time,shop,price"]
LISTED = ["item,price,since", "late,9,2024-02-20", "never,3,", "a,1,2024-01-01"]


def tables(tmp_path, days=60, listed=LISTED, **more):
    (tmp_path / "sales.csv").write_text("\n".join(ROWS + [
        f"u{i % 7},{'abcdef'[i % 6] if i % 31 or i < 40 else 'late'},2024-{1 + i // 30:02}-"
        f"{1 + i % 28:02},{'xy'[i % 2]},1" for i in range(days)]))
    (tmp_path / "items.csv").write_text("\n".join(listed))
    (tmp_path / "users.csv").write_text("user,age\nu0,30\nu1,40\n")
    return fv.read(str(tmp_path / "sales.csv"), src="user", dst="item", time="time",
                   client="shop", items=str(tmp_path / "items.csv"),
                   users=str(tmp_path / "users.csv"), **more)


def test_a_day_without_a_zone_begins_in_that_of_the_table(tmp_path):
    here, there = tables(tmp_path), tables(tmp_path, timezone="Europe/Berlin")
    assert (np.asarray(here.t) - np.asarray(there.t) == 3600).all()
    since = [one.dst_table.since[named(one).index("late")] for one in (here, there)]
    assert since == [1708387200.0, 1708383600.0]


def named(part):
    return [part.dst_ids[i] for i in range(part.num_dst)]


def test_they_come_after_all_others_in_the_dictionary_and_in_every_part(tmp_path):
    stream = tables(tmp_path)
    assert named(stream)[-1] == "never" and stream.num_dst == 8
    assert "without an edge" in " ".join(stream.notes)
    table = stream.dst_table
    assert table.named == ("price", "since") and table.known.sum() == 3
    assert table.since[named(stream).index("late")] == 1708387200.0
    assert table.since[named(stream).index("never")] == -np.inf
    for part in stream.split("shop").parts.values():
        assert {"never", "late", "a"} <= set(named(part)) and len(set(named(part))) == part.num_dst
        assert len(part.dst_table) == part.num_dst
    dealt = [n for p in stream.split("hash", k=3).parts.values() for n in named(p)]
    assert sorted(dealt) == sorted(named(stream))       # one owner each


def test_a_column_since_that_holds_text_is_refused(tmp_path):
    with pytest.raises(FedvineError, match="since"):
        tables(tmp_path, listed=["item,since", "a,soon", "b,2024-01-01"])
    (tmp_path / "items.csv").write_text("item,since\na,2024-01-01\nb,2024-01-02\n")
    (tmp_path / "plain.csv").write_text("user,item,time\nu,a,1\nu,b,2\n")
    with pytest.raises(FedvineError, match="holds dates, and the times of the edges are plain"):
        fv.read(str(tmp_path / "plain.csv"), src="user", dst="item", time="time",
                items=str(tmp_path / "items.csv"))


def test_a_year_beside_edges_with_dates_is_refused(tmp_path):
    with pytest.raises(FedvineError, match=r"holds plain numbers, and the times .* are dates"):
        tables(tmp_path, listed=["item,since", "a,2030", "b,2031"])


def test_candidates_are_the_known_or_the_listed_ones_at_the_time(tmp_path):
    part = tables(tmp_path).split("shop").parts["x"]
    plan = fv.read(str(tmp_path / "sales.csv"), src="user", dst="item", time="time").by_time("7d")
    for t in range(1, len(plan)):
        before = {part.dst_ids[i] for i in part.before(plan.bounds[t]).dst}
        listed = {"never", "a"} | ({"late"} if plan.bounds[t] >= 1708387200.0 else set())
        for rule, wanted in (("known", before), ("catalogue", before | listed),
                             ("dataset", set(named(part)))):
            made = LinkPrediction(candidates=rule).scorer(part, plan, "x", 0)
            items, table = made.history.candidates(t)
            assert {part.dst_ids[i] for i in items} == wanted
            assert {part.dst_ids[i] for i in table} == listed


def test_a_listed_item_without_an_edge_is_cold_and_any_other_is_counted():
    events = fv.from_frame(
        pd.DataFrame({"src": ["u", "v", "u", "v", "u", "u"], "t": [0, 1, 2, 3, 11, 12],
                      "dst": ["a", "b", "b", "a", "new", "other"]}), src="src", dst="dst", time="t",
        items=pd.DataFrame({"dst": ["new", "a", "z", "y"], "x": [1, 2, 3, 4]}), sure=True)
    plan = Plan((0.0, 10.0, 20.0), val=1, test=1)
    made = LinkPrediction().scorer(events, plan, "all", 0)
    found = made.measure(1, np.zeros(len(made.queries(1))))
    assert found["n"] | {"n_few": 0} == {"n": 0, "n_new": 0, "n_travelled": 0, "n_arrived": 0,
                                         "n_cold": 1, "n_unknown": 1, "n_unasked": 0,
                                         "n_unasked_new": 0, "n_few": 0}
    group = made._current[2].groups[-1]
    asked = made.queries(1)
    assert {events.dst_ids[i] for i in asked.dst[group.wide]} == {"a", "z", "y"}
    assert found["scores"]["mrr_cold"] == pytest.approx(1 / 2.5)
    off = LinkPrediction(cold=False).scorer(events, plan, "all", 0)
    assert "n_cold" not in off.measure(1, np.zeros(len(off.queries(1))))["n"]


@pytest.mark.parametrize("rule", ["known", "catalogue"])
def test_forecasts_name_what_the_protocol_may_ask(tmp_path, rule):
    stream = tables(tmp_path)
    done = run(Popularity(), stream.split("shop"), stream.by_time("7d"),
               protocol=LinkPrediction(candidates=rule)).finish()
    found = {f.item for f in Forecasts(done).top("x", "u0", 50)}
    assert ("never" in found) == (rule == "catalogue") and {"a", "c"} <= found


def test_a_living_run_takes_up_items_that_are_listed_later(tmp_path):
    from fedvine.living.news import news, taken
    from fedvine.living.rows import StoredRows
    before = tables(tmp_path, 40)
    plan = open_plan(before, "7d")
    cut = before.before(plan.bounds[-1])
    cut.notes = before.notes
    StoredRows.create(tmp_path / "kept", cut.split("shop"), plan)
    kept = StoredRows.open(tmp_path / "kept")
    after = tables(tmp_path, 60, [*LISTED, "b,1,", "newly listed,5,2024-02-25"])
    found = news(kept.split.stream, after, plan.bounds[-1], "shop")
    grown = kept.take(taken(kept.split.stream, found, plan.bounds[-1], np.inf), plan)
    assert "newly listed" in named(grown.split.stream)
    for part in grown.split.parts.values():
        assert "newly listed" in named(part) and len(set(named(part))) == part.num_dst
        assert len(part.dst_table) == part.num_dst
        at = named(part).index("newly listed")
        assert part.dst_table.known[at] and part.dst_table.since[at] == 1708819200.0
