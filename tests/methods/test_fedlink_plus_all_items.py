"""fedlink_plus asked for every item of a user: the same scores as pair by pair, in every case."""

import numpy as np
import pandas
import pytest

import fedvine
from fedvine.experiments.forecasts import Forecasts
from fedvine.methods._fedlink_plus import scoring
from fedvine.methods.fedlink_plus import FedLinkPlus
from fedvine.testing import run

USERS, ITEMS = 60, 48
CASES = {
    "two clients": {},
    "no rows travel": {"share": "none"},
    "few pairs kept": {"capacity": 40},
    "without neighbours": {"without": ("neighbours",)},
    "weights": {"columns": {"weight": "amount"}},
    "features of edges": {"columns": {"weight": "amount", "features": ["price", "how"]}},
    "tables": {"tables": True},
    "weights and tables": {"columns": {"weight": "amount"}, "tables": True}}


def frame(draw):
    """Users of two shops with tastes, some of them in both; later ones arrive, items too."""
    n = 900
    when = np.sort(draw.uniform(0, 100, n))
    user = (draw.random(n) * (0.3 + 0.7 * when / 100) * USERS).astype(int)
    item = ((user * 7 + (draw.normal(0, 4, n)).astype(int)) % ITEMS * (0.4 + 0.6 * when / 100)
            ).astype(int)
    shop = np.where(draw.random(n) < 0.2, 1 - user % 2, user % 2)
    return pandas.DataFrame({
        "src": [f"u{u}" for u in user], "dst": [f"i{i}" for i in item], "time": when * 3600.0,
        "shop": [f"shop {s}" for s in shop], "amount": draw.lognormal(0, 1, n),
        "price": item % 5 + draw.normal(0, 0.1, n), "how": draw.choice(["web", "store"], n)})


@pytest.mark.parametrize("case", CASES)
def test_every_item_of_a_user_has_the_score_of_its_pair(case, monkeypatch):
    settings = dict(CASES[case])
    columns, tables = settings.pop("columns", {}), {}
    if settings.pop("tables", False):
        tables = {"users": pandas.DataFrame({"src": [f"u{u}" for u in range(USERS + 3)],
                                             "age": np.arange(USERS + 3) % 9 * 1.5,
                                             "town": [f"t{u % 4}" for u in range(USERS + 3)]}),
                  "items": pandas.DataFrame({"dst": [f"i{i}" for i in range(ITEMS)],
                                             "kind": [f"k{i % 6}" for i in range(ITEMS)]})}
    stream = fedvine.from_frame(frame(np.random.default_rng(0)), src="src", dst="dst",
                                time="time", client="shop", sure=True, **columns, **tables)
    method = FedLinkPlus(**{**FedLinkPlus.tiny().model_dump(), "capacity": 10**5, **settings})
    made = run(method, stream.split("shop"), stream.by_time(6 * 3600.0), seed=3)
    made.finish()
    asked = Forecasts(made)
    for name, part in asked.parts.items():
        # users with an edge here, users known elsewhere alone, and nobody
        others = [user for other in asked.parts.values() for user in (
            other.src_ids[u] for u in range(other.num_src)) if part.src_ids.numbers([user])[0] < 0]
        guests = [*others[:5], "nobody"]
        users = np.arange(part.num_src + len(guests))
        query = asked.task.ask(part, asked.plan, users, guests)
        monkeypatch.setattr(scoring, "LEAST", 10**9)
        slow = asked._ask(name, query)
        monkeypatch.setattr(scoring, "LEAST", 1)
        quick = asked._ask(name, query)
        np.testing.assert_allclose(quick, slow, rtol=2e-6, atol=2e-6)
        alone = asked._ask(name, asked.task.ask(part, asked.plan, users[3:4], guests))
        np.testing.assert_allclose(alone, quick[3 * part.num_dst:4 * part.num_dst], rtol=1e-12)
        client = made.clients.workers[name].client
        assert client.cache["unmet"][0][0] == part.num_dst       # the quick way was taken


def test_what_is_kept_for_all_items_follows_what_is_counted():
    data = frame(np.random.default_rng(5))
    stream = fedvine.from_frame(data, src="src", dst="dst", time="time", client="shop", sure=True)
    made = run(FedLinkPlus.tiny(), stream.split("shop"), stream.by_time(6 * 3600.0), seed=3)
    made.finish()
    asked = Forecasts(made)
    part = asked.parts["shop 0"]
    query = asked.task.ask(part, asked.plan, np.arange(4), [])
    before = asked._ask("shop 0", query)
    client = made.clients.workers["shop 0"].client
    made.method.refresh(client, part[:40])
    after = asked._ask("shop 0", query)
    client.cache.clear()
    assert (after == asked._ask("shop 0", query)).all() and (after != before).any()
