"""Forecasts as of a time after the last learned stage."""

import numpy as np
import pandas as pd
import pytest
import shop
from wrong import fedvine as command
from wrong import is_sentence

import fedvine
from fedvine import testing
from fedvine.core.errors import FedvineError
from fedvine.data.dates import time_of
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.reopened import forecasts_of
from fedvine.experiments.run import run
from fedvine.methods.fedlink import FedLink


@pytest.fixture
def table(tmp_path):
    """The first rows of a table, and the rows that come later."""
    every = pd.read_csv(shop.write(tmp_path)).sort_values("at", kind="stable")
    early = every[every["at"] < 3000]
    early.to_csv(tmp_path / "shop.csv", index=False)
    return early, every, tmp_path / "shop.csv"


def learned(file, method, folder):
    return Experiment.model_validate({"data": {"source": str(file), **shop.COLUMNS},
                                      "method": method, "stages": 100}).run(folder).finish()


def counts(rows, town):
    """How often each item occurs at a client."""
    return rows[rows["town"] == town].groupby("item").size().to_dict()


@pytest.mark.slow
def test_the_events_before_the_time_count_and_no_others(table, tmp_path):
    early, every, file = table
    out = tmp_path / "run"
    learned(file, {"name": "popularity", "decay": 1.0}, out)
    user = str(early[early["town"] == "ada"]["user"].iloc[0])
    before = [(f.item, f.score) for f in forecasts_of(out).top("ada", user, 99)]
    every.to_csv(file, index=False)
    assert dict(before) == counts(early, "ada")
    for at in (3300, float(every["at"].iloc[-40]), 1e9):
        found = forecasts_of(out, at=at)
        seen = counts(every[every["at"] < at], "ada")
        assert {f.item: f.score for f in found.top("ada", user, 999) if f.score} == seen
        assert found.top("ada", user, 4) == fedvine.open_run(out).predict("ada", user, 4, at=at)
    opened = fedvine.open_run(out)
    for at in (3300, 1e9, 3300):
        assert opened.predict("ada", user, 4, at=at) == forecasts_of(out, at=at).top("ada", user, 4)
    known = {f.item for f in found.top("ada", user, 999) if f.known}
    mine = every[(every["town"] == "ada") & (every["user"].astype(str) == user)]
    assert known == set(mine["item"])
    assert [(f.item, f.score) for f in forecasts_of(out).top("ada", user, 99)] == before


@pytest.mark.slow
def test_a_user_who_came_later_is_answered(table, tmp_path):
    early, every, file = table
    learned(file, {"name": "fedlink", "rounds": 1, "capacity": 30, "buffers": 2, "width": 4},
            tmp_path / "run")
    late = every.tail(1).assign(user=777, at=3999, town="ada")
    pd.concat([every, late]).to_csv(file, index=False)
    with pytest.raises(FedvineError, match="777"):
        forecasts_of(tmp_path / "run").top("ada", "777")
    assert len(forecasts_of(tmp_path / "run", at=4000).top("ada", "777")) == 5
    opened = fedvine.open_run(tmp_path / "run")
    users, here = early["user"].astype(str), early["town"] == "ada"
    guest = min(set(users) - set(users[here]))
    before = opened.predict("ada", guest)
    assert opened.predict("ada", "777", at=4000) and opened.predict("ada", guest) == before


def test_fedlinks_buffers_have_the_new_events(tmp_path):
    split, plan = testing.tiny_case()
    whole = run(FedLink.tiny(), split, plan.cut(3), seed=7).finish()
    part = whole.parts["bob"]
    pairs = {"src": part.src.astype(int), "dst": part.dst.astype(int),
             "t": np.full(len(part), 3600.0)}
    plain = whole.ask("bob", pairs)
    fresh = whole.ask("bob", {**pairs, "refresh": True})
    again = whole.ask("bob", pairs)
    assert np.array_equal(plain, again)                     # the copy is gone
    kept = whole.clients.workers["bob"].client.kept
    new = part.between(3000, 3600)
    kept.push(np.asarray(new.src), np.asarray(new.dst))
    whole.clients.workers["bob"].client.cache.clear()
    np.testing.assert_allclose(whole.ask("bob", pairs), fresh, rtol=1e-4, atol=1e-6)
    assert not np.allclose(plain, fresh, rtol=1e-4, atol=1e-6)


def test_what_cannot_be_answered_is_said(table, tmp_path):
    _, every, file = table
    out = tmp_path / "run"
    learned(file, "recency", out)
    for at, why in (("10", "up to 2992; --at names a time after that, and 10 is not"),
                    ("soon", "is no time")):
        code, _, said = command("predict", out, "--client", "ada", "--user", "100", "--at", at)
        assert code
        is_sentence(said, why)
    every.iloc[::-1].assign(item="other").to_csv(file, index=False)
    with pytest.raises(FedvineError, match=r"has lost|other values"):
        forecasts_of(out, at=3900)
    file.unlink()
    with pytest.raises(FedvineError):
        forecasts_of(out, at=3900)


def test_a_time_too_early_is_said_as_a_date_where_the_table_has_dates(tmp_path):
    rows = pd.read_csv(shop.write(tmp_path)).sort_values("at", kind="stable")
    days = pd.Timestamp("2024-01-12") + pd.to_timedelta(np.arange(len(rows)), "h")
    rows.assign(at=days.astype(str)).to_csv(tmp_path / "shop.csv", index=False)
    learned(tmp_path / "shop.csv", "recency", tmp_path / "run")
    with pytest.raises(FedvineError, match=r"events up to 2024-01-31 23:00 UTC; --at names a time "
                                           r"after that, and 2024-01-20 UTC is not\."):
        forecasts_of(tmp_path / "run", at=time_of("2024-01-20"))
