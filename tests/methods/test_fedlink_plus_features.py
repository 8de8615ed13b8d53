"""fedlink_plus: features of pairs that met before, against lists of who met whom since."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fedvine.methods._fedlink_plus import newton
from fedvine.methods._fedlink_plus.counts import Counts
from fedvine.methods._fedlink_plus.features import AT, PARTS, TABLE, WIDTH, Profiles
from fedvine.methods._fedlink_plus.samples import features
from fedvine.methods._fedlink_plus.travel import lent

USERS, ITEMS, EVENTS = 60, 7, 300
DOCS = Path(__file__).parents[2] / "docs" / "reference-fedlink-plus.md"


def test_all_that_names_features_follows_the_table():
    assert len({f.name for f in TABLE}) == WIDTH and AT._fields == tuple(f.name for f in TABLE)
    assert all(TABLE[k].part == part for part, span in PARTS.items() for k in range(*span))
    assert [TABLE[k].name for k in newton.COLUMNS] == [f.name for f in newton.LEARNED]
    assert {f.part for f in TABLE if f.reason} == {"steps", "clocks", "neighbours", "tables"}
    text = DOCS.read_text()
    parts = text.split("| part | features |")[1].split("\n\n")[0]
    assert re.findall(r"^\| (\w+) \|", parts, re.MULTILINE) == [*PARTS, "edges"]
    assert f"F = {WIDTH} features" in text and f"of {newton.MANY} features" in text


@pytest.mark.parametrize("seed", range(3))
def test_a_pair_knows_who_met_since(seed):
    draw = np.random.default_rng(seed)
    src, dst = draw.integers(0, USERS, EVENTS), (ITEMS * draw.random(EVENTS) ** 2).astype(int)
    t = np.arange(EVENTS, dtype=float)
    counts = Counts()
    counts.begin(0, False)
    counts.met(USERS, ITEMS, np.arange(ITEMS) + 100)
    counts.push(src, dst, t)
    counts.span = 50.0
    client = SimpleNamespace(counts=counts, cache={}, profiles=Profiles(),
                             world=SimpleNamespace(facts={}))
    user, item = (x.ravel() for x in np.meshgrid(np.arange(USERS), np.arange(ITEMS)))
    found = features(client, user, item, np.full(len(user), 310.0), lent(counts, None), (64, 64, 8))
    first = PARTS["pairs"][0]
    for u, z, f in zip(user, item, found[:, first:PARTS["pairs"][1]], strict=True):
        met = np.flatnonzero((src == u) & (dst == z))
        assert f[0] == bool(len(met))
        if not len(met):
            assert not f[13:16].any() and not f[17:].any()
            continue
        items = len(set(dst[met[-1] + 1:][src[met[-1] + 1:] == u]) - {z})
        users = min(len(set(src[met[-1] + 1:][dst[met[-1] + 1:] == z]) - {u}), 32)
        assert f[13] == pytest.approx(1 / (1 + items)) and f[14] == pytest.approx(np.log1p(items))
        assert f[15] == (items == 0)
        assert f[17] == pytest.approx(1 / (1 + users)) and f[18] == pytest.approx(np.log1p(users))
        assert f[19] == (users == 0)
        assert f[20] == pytest.approx(-np.log((310 - t[dst == z][-1]) / 50 + 0.003), rel=1e-5)
