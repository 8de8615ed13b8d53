"""fedlink_plus: what compiled loops count is what a slow count in dictionaries finds."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from fedvine.methods._fedlink_plus.counts import DECAYS, POWERS, Counts, code
from fedvine.methods._fedlink_plus.lists import Facts, Scratch, Table, walk

USERS, ITEMS, STAGES, EACH = 12, 9, 5, 60
MANY = 10**6


def events(seed: int, one_kind: bool) -> list[tuple[int, int, int, float]]:
    """Return events (stage, user, item, time); stage 3 is left out."""
    draw = np.random.default_rng(seed)
    items = USERS if one_kind else ITEMS
    return [(s, int(USERS * draw.random() ** 2), int(items * draw.random() ** 2),
             1000.0 * s + draw.integers(0, 1000)) for s in range(STAGES) if s != 3
            for _ in range(EACH)]


def counted(found: list[tuple[int, int, int, float]], one_kind: bool) -> Counts:
    """Return the counts of events, which come in two parts a stage."""
    counts, keys = Counts(), 10**6 + np.arange(USERS + ITEMS)
    for s in range(STAGES + 1):
        counts.begin(s, one_kind)
        mine = sorted((e for e in found if e[0] == s), key=lambda e: e[3])
        for part in (mine[:20], mine[20:]):
            if not part:
                continue
            _, src, dst, t = map(np.array, zip(*part, strict=True))
            users, items = (max([int(x.max()) + 1, len(have)]) for x, have in (
                (src, counts.users), (dst, counts.items)))
            if one_kind:
                users = items = max(users, items)
            counts.met(users, items, keys[len(counts.items):items])
            counts.push(src, dst, t)
    return counts


def chain(counts: Counts, user: int) -> list[int]:
    """Return the items of a user's chain, by local number."""
    found, row = [], counts.users.head[user]
    column = counts.items.column[:len(counts.items)].tolist()
    while row >= 0:
        key = int(counts.pairs.keys[row])
        assert key >> 32 == user
        found.append(column.index(key & 0x7FFFFFFF))
        row = counts.pairs.links[row, 1]
    return found


def table(counter: Table) -> dict[tuple[int, int], float]:
    keys = counter.keys[:len(counter)].tolist()
    return {(k >> 32, k & 0xFFFFFFFF): n for k, n in zip(keys, counter.n.tolist(), strict=False)}


@pytest.mark.parametrize("one_kind", [False, True], ids=["two kinds", "one kind"])
@pytest.mark.parametrize("seed", range(3))
def test_counts_are_those_of_a_slow_count(seed, one_kind):
    found = sorted(events(seed, one_kind), key=lambda e: (e[0], e[3]))
    counts = counted(found, one_kind)

    item, user, pair, back = (defaultdict(lambda: np.zeros(3)) for _ in range(4))
    last, last_back, last_item, fresh = {}, {}, {}, defaultdict(float)
    repeats, steps, window, before = Counter(), Counter(), Counter(), defaultdict(list)
    order = defaultdict(list)
    for s, u, z, t in found:
        n = np.array(DECAYS) ** (STAGES - s)
        repeats[u] += bool(pair[u, z].any())
        fresh[z] += n[1] * (not pair[u, z].any())
        item[z], user[u], pair[u, z] = item[z] + n, user[u] + n, pair[u, z] + n
        last[u, z], last_item[z] = t, t
        turned = [(u, z)]
        if one_kind and u != z:
            back[z, u] = back[z, u] + n
            last_back[z, u] = t
            turned.append((z, u))
        for a, b in turned:
            if b in order[a]:
                order[a].remove(b)
            order[a].insert(0, b)
        for k, v in enumerate(before[u][:3]):
            window[v, z] += 1
            steps[v, z] += k == 0
        before[u].insert(0, z)

    def now(count, stamp, row):
        return count[row] * np.array(DECAYS) ** (STAGES - stamp[row])

    for z in range(len(counts.items)):
        assert now(counts.items.count, counts.items.stamp, z) == pytest.approx(item[z], rel=1e-5)
        assert counts.items.last[z, 0] == last_item.get(z, -np.inf)
        assert counts.items.others[z, 3] * 0.9 ** (
            STAGES - counts.items.stamp[z]) == pytest.approx(fresh[z])
        assert counts.items.others[z, :3].tolist() == [
            sum((u, z) in last for u in range(USERS)),
            sum(n for (v, _), n in steps.items() if v == z),
            sum(n for (v, _), n in window.items() if v == z)]
    for u in range(len(counts.users)):
        assert now(counts.users.count, counts.users.stamp, u) == pytest.approx(user[u], rel=1e-5)
        assert counts.users.others[u].tolist() == [
            sum(v == u for v, _ in last), repeats[u], *(before[u] + 3 * [-1])[:3]]
        assert chain(counts, u) == order[u]
    assert counts.totals == pytest.approx(sum(user.values()))
    assert table(counts.window) == window
    assert table(counts.steps) == +steps
    assert len(counts.pairs) == len(last.keys() | last_back.keys())
    for u, z in last.keys() | last_back.keys():
        row = int(counts.pairs.find(np.array([code(u, counts.items.column[z])]))[0])
        sums = now(counts.pairs.count, counts.pairs.stamp, row)
        assert sums[0] == pytest.approx(pair[u, z], rel=1e-5)
        assert counts.pairs.last[row, 0] == last.get((u, z), -np.inf)
        if one_kind:
            assert sums[2] == pytest.approx(back[u, z], rel=1e-5)
            assert counts.pairs.last[row, 2] == last_back.get((u, z), -np.inf)


@pytest.mark.parametrize("one_kind", [False, True], ids=["two kinds", "one kind"])
def test_trim_keeps_the_pairs_with_most_and_their_order(one_kind):
    counts = counted(events(0, one_kind), one_kind)
    pairs = counts.pairs
    n = pairs.count[:len(pairs), :, 1].sum(1) * 0.9 ** (
        counts.now - pairs.stamp[:len(pairs)])
    capacity = len(pairs) // 2
    keys = pairs.keys[np.argsort(n, kind="stable")[-int(0.8 * capacity):]]
    kept = {(k >> 32, counts.items.column.tolist().index(k & 0x7FFFFFFF)) for k in keys.tolist()}
    before = {u: chain(counts, u) for u in range(len(counts.users))}
    counts.trim(capacity)
    assert len(counts.pairs) == len(kept)
    for u, items in before.items():
        assert chain(counts, u) == [z for z in items if (u, z) in kept]
    counts.trim(capacity)
    assert len(counts.pairs) == len(kept)


def zeros(users, columns):
    return Scratch(*(np.zeros(size, kind) for size, kind in (
        *3 * [(users, "f4")], (columns, "i4"), ((columns, 5), "f4"), (3, "f4"),
        (users + 1, "i8"), (columns + 1, "i8"), (256, "i8"))))


@pytest.mark.parametrize("one_kind", [False, True], ids=["two kinds", "one kind"])
def test_a_walk_sums_what_dense_cosines_and_a_random_walk_do(one_kind):
    found = events(4, one_kind)
    counts = counted(found, one_kind)
    users, columns = len(counts.users), len(counts.columns)
    n, x = np.zeros((users, columns)), np.zeros((users, columns))
    for s, u, z, _ in found:
        n[u, counts.items.column[z]] += 0.9 ** (STAGES - s)
        if one_kind and u != z:
            n[z, counts.items.column[u]] += 0.9 ** (STAGES - s)
    x = np.log1p(n)
    length = np.linalg.norm(x, axis=1)
    facts = Facts(counts.now, 1.0, len(counts.items), users, 1.0, 0.5, one_kind, MANY, MANY,
                  MANY)
    pairs = counts.loops()[2]
    for u in range(users):
        scratch = zeros(users, columns)
        cols = np.flatnonzero(x[u])
        walk(cols, x[u, cols].astype(np.float32), len(cols), u, pairs, facts, POWERS, scratch)
        dot = x @ x[u]
        dot[u] = 0
        alike = dot / np.maximum(length * length[u], 1e-12)
        whole = np.maximum(n.sum(1, keepdims=True), 1e-12)      # of each user, and of each item
        back = ((n[u] / whole[u]) @ (n / np.maximum(n.sum(0), 1e-12)).T) * (np.arange(users) != u)
        dense = np.stack([alike @ n, alike ** 4 @ n, alike ** 16 @ n, dot @ x,
                          back @ (n / whole)], 1)
        assert scratch.sums == pytest.approx(dense, rel=1e-3, abs=1e-5)
        assert scratch.total == pytest.approx(dense[:, :3].sum(0), rel=1e-3, abs=1e-5)


@given(some.lists(some.tuples(some.sampled_from(["add", "keep", "save"]),
                              some.lists(some.integers(-2**63, 2**63 - 1) | some.integers(0, 20),
                                         max_size=30)), max_size=12))
def test_a_table_is_a_dict(steps):
    made, plain = Table(n=("float32", (), 0)), {}       # plain: number by key, in order of rows
    for step, keys in steps:
        wanted = np.array(keys, np.int64)
        if step == "add":
            rows = made.add(wanted)
            np.add.at(made.n, rows, 1)
            for k in keys:
                plain[k] = plain.get(k, 0) + 1
        elif step == "keep":
            plain = {k: n for k, n in plain.items() if k not in keys}
            there = made.find(wanted)
            made.keep(np.setdiff1d(np.arange(len(made)), there[there >= 0]))
        else:
            other = Table(n=("float32", (), 0))
            other.load_state_dict({k: v.copy() for k, v in made.state_dict().items()})
            made = other
        assert made.keys[:len(made)].tolist() == list(plain)
        assert made.n[:len(made)].tolist() == list(plain.values())
        order = list(plain)
        assert made.find(wanted).tolist() == [
            order.index(k) if k in plain else -1 for k in keys]
