"""fedlink_plus: the contract."""

import pytest

from fedvine.experiments.forecasts import Forecasts
from fedvine.methods.fedlink_plus import FedLinkPlus
from fedvine.testing import CHECKS, PROTOCOL, run, tiny_case, tiny_stream


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("share", ["rows", "sums"])
def test_contract(check, share):
    check(FedLinkPlus(**FedLinkPlus.tiny().model_dump() | {"share": share, "buckets": 64}))


def scored(**settings):
    """Mean scores of the test stage on the small stream."""
    made = run(FedLinkPlus(**FedLinkPlus.tiny().model_dump() | settings), *tiny_case(), seed=7,
               protocol=PROTOCOL)
    return made.finish().summary


def test_masks_change_no_sum():
    plain, masked = scored(share="sums", secure=False), scored(share="sums", secure=True)
    assert plain["scores"] == masked["scores"]
    assert scored(share="none", secure=True)["scores"] == scored(share="none")["scores"]


def test_sums_of_counts_by_hash_are_those_of_all_other_clients():
    made = run(FedLinkPlus(**FedLinkPlus.tiny().model_dump() | {"share": "sums", "secure": False}),
               *tiny_case(tiny_stream(600, 3)), seed=1, protocol=PROTOCOL)
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
