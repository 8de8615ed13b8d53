"""The examples on small streams whose answer is known: what a person who copies them relies on."""

import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedvine as fv

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name):
    """What a script defines; its main() is not carried out."""
    return runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name=name)


def visits(rows=600, users=12, items=6, seed=0):
    """Rows (client, user, item, time): user u nearly always takes item u % items; two clients."""
    draw = np.random.default_rng(seed)
    user = draw.integers(0, users, rows)
    item = np.where(draw.random(rows) < 0.95, user % items, draw.integers(0, items, rows))
    client = np.where(user % 2, "ada", "bob")
    return pd.DataFrame({"client": client, "user": [f"u{u}" for u in user],
                         "item": [f"{c}-{i}" for c, i in zip(client, item, strict=True)],
                         "time": np.arange(rows)})


def stream_of(table, client="client"):
    return fv.from_frame(table, src="user", dst="item", time="time", client=client)


METHOD = fv.FedLink(rounds=10, capacity=100, buffers=2, width=8, learning_rate=0.05)


# -- missing entries ---------------------------------------------------------------------------
def test_only_late_entries_are_lost_and_nothing_else_changes():
    table = visits()
    gapped = example("missing_entries")["lose"](table, since=450, share=0.2)
    gone = gapped["item"].isna()
    assert gone.sum() == 30 and gapped["time"][gone].min() >= 450
    assert gapped[~gone].equals(table[~gone])
    assert gapped.drop(columns="item").equals(table.drop(columns="item"))


@pytest.mark.slow
def test_gaps_are_filled_by_items_of_their_client_and_by_the_habit_that_was_planted():
    use, table = example("missing_entries"), visits()
    gapped = use["lose"](table, since=450, share=0.2)
    gone = gapped["item"].isna()
    filled = use["fill"](gapped, stages=100, method=METHOD)
    for client, best in zip(table["client"][gone], filled, strict=True):
        known = set(gapped["item"][~gone & (gapped["client"] == client)])
        assert set(best) <= known and len(best) == len(set(best)) == min(use["TOP"], len(known))
    first = [best[0] for best in filled]
    assert np.mean(np.array(first) == table["item"][gone].to_numpy()) > 0.7


@pytest.mark.slow
def test_a_guest_gets_items_of_the_client_and_a_stranger_none():
    use, table = example("missing_entries"), visits()
    more = pd.DataFrame({"client": ["ada", "ada"], "user": ["u0", "nobody"], "item": [None, None],
                         "time": [600, 601]})       # u0 is known to bob alone
    filled = use["fill"](pd.concat([table, more], ignore_index=True), stages=150, method=METHOD)
    assert len(filled[0]) == use["TOP"] and all(item.startswith("ada-") for item in filled[0])
    assert filled[1] == []


def test_hit_rates_are_those_of_counting_by_hand():
    use, table = example("pages_to_cache"), visits(rows=900)
    stream = use["regions"](stream_of(table), 2)
    found = use["hit_rates"](stream, every=150, days=2, size=2, rounds=1)
    assert len(found) == 2
    for day, hit in zip((4, 5), found, strict=True):
        start, hits, best = 150 * day, 0, 0
        for region in (0, 1):
            mine = np.asarray(stream.codes["region"]) == region
            before = pd.Series(stream.dst[:start][mine[:start]])
            coming = pd.Series(stream.dst[start:start + 150][mine[start:start + 150]])
            hits += coming.isin(before.value_counts().index[:2]).sum()
            best += coming.value_counts()[:2].sum()
        assert hit["most visited so far"] == pytest.approx(hits / 150)
        assert hit["the best, known afterwards"] == pytest.approx(best / 150)
        assert max(hit.values()) == hit["the best, known afterwards"]


# -- unlikely edges ----------------------------------------------------------------------------
def test_a_swap_gives_another_user_of_the_client_and_says_so():
    rows = visits(rows=200)[["client", "user", "item"]]
    swapped = example("unlikely_edges")["swap"](rows)
    changed = swapped["user"] != rows["user"]
    assert (changed == swapped["swapped"]).all()
    assert swapped[["client", "item"]].equals(rows[["client", "item"]])
    for client in ("ada", "bob"):
        mine = rows["client"] == client
        assert changed[mine].sum() == round(mine.sum() / 2)
        assert set(swapped["user"][mine]) <= set(rows["user"][mine])


@pytest.mark.slow
def test_a_planted_stranger_is_told_from_the_owner():
    use, stream = example("unlikely_edges"), stream_of(visits(rows=900))
    split, plan = stream.split(by="client"), stream.by_count(150)
    rows = use["suspects"](split, plan, METHOD)
    assert len(rows) == 150 and np.isfinite(rows["score"]).all()
    past = visits(rows=900)[:750]
    for row in rows.itertuples():
        same = past[["client", "user", "item"]] == [row.client, row.user, row.item]
        assert row.seen == same.all(axis=1).sum()
    area, caught = use["told_apart"](rows["swapped"].to_numpy(), rows["score"].to_numpy())
    assert area > 0.8 and caught > 0.4


def test_without_wikipedia_the_script_says_why_it_stops(monkeypatch, capsys):
    monkeypatch.delenv("FEDVINE_DATA", raising=False)
    runpy.run_path(str(EXAMPLES / "pages_to_cache.py"), run_name="__main__")
    assert capsys.readouterr().out.startswith("Skipped: FEDVINE_DATA names no folder")
