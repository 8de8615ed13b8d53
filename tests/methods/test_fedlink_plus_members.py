"""fedlink_plus: who knows what, and sums over the other clients, against loops over all of them."""

import numpy as np
import pytest

from fedvine.methods._fedlink_plus.travel import Members, deliver, split, totals

CLIENTS, KEYS = 6, 20


def reported(draw: np.random.Generator) -> tuple[Members, dict[str, int]]:
    """Return members after a stage, and how many each client knew before it."""
    members, before, rest = Members(), {}, {}
    for k in range(CLIENTS):
        keys = draw.permutation(KEYS)[:draw.integers(0, KEYS)].astype(np.uint64) + np.uint64(7)
        before[f"c{k}"] = int(draw.integers(0, len(keys) + 1))
        rest[f"c{k}"] = keys[before[f"c{k}"]:]
        if before[f"c{k}"]:
            members.add(f"c{k}", keys[:before[f"c{k}"]])
    for name, keys in rest.items():
        if len(keys):
            members.add(name, keys)
    return members, before


@pytest.mark.parametrize("seed", range(8))
def test_newly_shared_are_those_of_pairs_of_clients(seed):
    members, before = reported(np.random.default_rng(seed))
    found = members.newly_shared(before, [n for n in before if members.reported(n)])
    for a in members.names:
        expected = {"shared": set(), "whole": set()}
        for b in members.names:
            if a == b:
                continue
            for i, key in enumerate(members.keys[a].tolist()):
                for j in np.flatnonzero(members.keys[b] == key):
                    if i >= before[a] or j >= before[b]:
                        expected["shared"].add(i)
                    if j >= before[b]:
                        expected["whole"].add(i)
        for kind, nodes in expected.items():
            assert found.get(a, {}).get(kind, np.empty(0)).tolist() == sorted(nodes)


@pytest.mark.parametrize("seed", range(8))
def test_totals_are_sums_of_the_rows_of_the_others(seed):
    draw = np.random.default_rng(100 + seed)
    members, before = reported(draw)
    sent = {}
    for name in members.names:
        if draw.random() < 0.8:
            sent[name] = {}
            for part in ("step", "whole"):
                local = np.flatnonzero(draw.random(members.reported(name)) < 0.6).astype(np.int32)
                sent[name][part] = {"local": local, "count": draw.integers(
                    1, 9, (len(local), 3)).astype(np.float32)}
    slow, fast = (give(members, before, sent) for give in (deliver, totals))
    assert slow.keys() == fast.keys()
    for name, rows in slow.items():
        sums = np.zeros((members.reported(name), 3))
        np.add.at(sums, rows["local"], rows["count"])
        assert sorted(fast[name]["local"].tolist()) == np.unique(rows["local"]).tolist()
        assert np.array_equal(fast[name]["count"], sums[fast[name]["local"]])


def test_split_has_each_place_once():
    owner = np.array([3, 1, 3, 0, 1])
    assert [(k, at.tolist()) for k, at in split(owner)] == [(0, [3]), (1, [1, 4]), (3, [0, 2])]
    assert not list(split(owner[:0]))
