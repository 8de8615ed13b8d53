"""fedlink_plus: the contract."""

import numpy as np
import pandas
import pytest
from toys import changed

import fedvine
from fedvine.data.dates import moment
from fedvine.experiments.forecasts import Forecasts
from fedvine.methods._fedlink_plus.newton import Newton, length
from fedvine.methods._fedlink_plus.travel import receive_rows, whole_rows
from fedvine.methods.fedlink_plus import FedLinkPlus
from fedvine.testing import CHECKS, PROTOCOL, run, tiny_case, tiny_stream


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("share", ["rows", "sums"])
def test_contract(check, share):
    check(FedLinkPlus(**FedLinkPlus.tiny().model_dump() | {"share": share, "buckets": 64}))


def scored(**settings):
    """Mean scores of the test stage on the small stream."""
    made = run(FedLinkPlus(**FedLinkPlus.tiny().model_dump() | settings), *tiny_case(), seed=7,
               protocol=PROTOCOL)
    return made.finish().summary


@pytest.mark.slow
def test_masks_change_no_sum():
    for share in ("sums", "none"):
        plain, masked = (scored(share=share, aggregate={"secure": s}) for s in (False, True))
        assert plain["scores"] == masked["scores"]


def test_sums_of_counts_by_hash_are_those_of_all_other_clients():
    method = changed(FedLinkPlus.tiny(), share="sums", aggregate={"secure": False})
    made = run(method, *tiny_case(tiny_stream(600, 3)), seed=1, protocol=PROTOCOL)
    made.finish()
    workers = made.clients.workers
    met = {}
    for name, worker in workers.items():
        for key, n in zip(worker.client.keys["items"],
                          worker.client.counts.items.count[:, 2], strict=False):
            met.setdefault(int(key), {})[name] = n
    for name, worker in workers.items():
        away = worker.client.counts.items.away[:len(worker.client.keys["items"]), 2]
        for key, n in zip(worker.client.keys["items"], away, strict=True):
            assert n == sum(v for other, v in met[int(key)].items() if other != name)


def test_forecasts_say_why(tmp_path):
    parts, plan = tiny_case()
    made = run(FedLinkPlus.tiny(), parts, plan, seed=7, protocol=PROTOCOL)
    made.finish()
    asked = Forecasts(made)
    part = parts.parts["bob"]
    user = part.src_ids[int(part.src[-1])]
    best = asked.top("bob", user, 4)
    said = asked.why("bob", user, [one.item for one in best])
    met = [part.dst_ids[int(i)] for i in part.dst[part.src == part.src[-1]]]
    for one, why in zip(best, said, strict=True):
        assert one.known == why.startswith("met "), (one, why)
        if one.known:
            assert f"met {met.count(one.item):,} time" in why
    assert asked.why("bob", "nobody", []) == []


def test_forecasts_for_users_who_arrived_say_why():
    rows = [(f"u{i % 5 + (i % 2) * 3}", f"i{i * i % 7}", i, "ab"[i % 2]) for i in range(120)]
    stream = fedvine.from_frame(pandas.DataFrame(rows, columns=["src", "dst", "time", "shop"]),
                                src="src", dst="dst", time="time", client="shop")
    made = run(FedLinkPlus.tiny(), stream.split("shop"), stream.by_time(30), seed=7,
               protocol=PROTOCOL)
    made.finish()
    asked, here = Forecasts(made), made.parts["b"]
    guests = [user for user in ("u0", "u1", "u2") if asked.homes(user) == ["a"]]
    assert len(guests) == 3
    items = [here.dst_ids[i] for i in range(here.num_dst)]
    told = 0
    for user in guests:         # the reasons are those of this user, whoever was asked before
        for item, why in zip(items, asked.why("b", user, items), strict=True):
            last = [float(t) for u, i, t, shop in rows if (u, i, shop) == (user, item, "a")]
            assert why.startswith("met elsewhere, last at ") == bool(last), (user, item, why)
            assert not last or f"last at {moment(max(last), False)}" in why
            told += bool(last)
    assert told


def test_rows_that_fit_no_user_are_left_out():
    made = run(FedLinkPlus.tiny(), *tiny_case(), seed=7, protocol=PROTOCOL)
    made.finish()
    counts = made.clients.workers["bob"].client.counts
    before = counts.state_dict()["pairs"]["keys"].copy()
    for local, kinds in ((10 ** 6, 1), (-3, 1), (0, 2), (0, 4)):
        receive_rows(counts, {"local": np.array([local], np.int32), "key": np.array([7], np.uint64),
                         "count": np.ones((1, kinds, 3), np.float32),
                         "last": np.zeros((1, kinds))})
    assert np.array_equal(counts.state_dict()["pairs"]["keys"], before)
    assert not len(whole_rows(counts, np.array([10 ** 6, -1]))["local"])


@pytest.mark.parametrize("settings", [{"ridge": 0.0}, {"fresh": "event"}, {"capacity": 16}])
def test_settings_at_their_bounds_are_carried_out(settings):
    found = scored(**settings)["scores"]["test"]["mean"]
    assert 0 <= found["auc"] <= 1


def test_sums_that_no_edges_have_end_no_search():
    search = Newton(1.0)
    for sums in (np.full(length(), -1e9), np.full(length(), 1e11), np.zeros(length())):
        search.begin()
        for _ in range(5):
            search.take(sums, 8)
            assert all(np.isfinite(w).all() for w in search.variants(milder=True).values())
