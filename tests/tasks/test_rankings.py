"""Lists of users against a slow, obvious computation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvine.core.rng import rng
from fedvine.data.plan import Plan
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.testing import tiny_case, tiny_stream


def slowly(made, plan, t, scores, k, new):
    """The means over users with an edge in stage ``t``, one user after the other."""
    part, (_, pairs, asked) = made.part, made._current
    before, now = plan.past(part, t - 1), plan.stage(part, t)
    items = sorted(set(before.dst.tolist()))
    met = set(zip(before.src.tolist(), before.dst.tolist(), strict=True))
    answer = {(int(u), int(i)): float(scores[p]) for p, u, i in zip(
        asked.lists.at, pairs.src[asked.lists.at], pairs.dst[asked.lists.at], strict=True)}
    values, listed, lost = [], [], 0
    for user in sorted(set(now.src.tolist())):
        wanted = {i for u, i in zip(now.src.tolist(), now.dst.tolist(), strict=True)
                  if u == user and i in items and not (new and (u, i) in met)}
        if not wanted:
            continue
        away = part.first_seen_elsewhere[user] < plan.bounds[t]
        if user not in before.src and not away:
            values.append((0, 0, 0, 0))
            lost += 1
            continue
        own = {i: answer[user, i] for i in items if not (new and (user, i) in met)}
        ties = {i: int(asked.lists.ties[[int(u) for u in pairs.src[asked.lists.at][
            ::len(items)]].index(user), items.index(i)]) for i in own}
        best = sorted(own, key=lambda i: (-own[i], ties[i]))[:k]
        listed += best
        places = [n for n, i in enumerate(best, 1) if i in wanted]
        ideal = sum(1 / math.log2(1 + n) for n in range(1, min(k, len(wanted)) + 1))
        values.append((
            float(bool(places)), len(places) / len(wanted),
            sum(1 / math.log2(1 + n) for n in places) / ideal,
            sum(sum(q <= n for q in places) / n for n in places) / min(k, len(wanted))))
    count = [before.dst.tolist().count(i) for i in items]
    return (dict(zip(("hit", "recall", "ndcg", "map"), np.mean(values, 0), strict=True)),
            len(values), lost / len(values), len(set(listed)) / len(items),
            np.mean([-math.log2((count[items.index(i)] + 1) / (sum(count) + len(items)))
                     for i in listed]))


@pytest.mark.parametrize("name", ["ada", "cyd"])
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 99), k=st.integers(1, 30))
def test_they_equal_a_slow_computation(name, seed, k):
    parts, plan = tiny_case(tiny_stream(500, seed))
    made = LinkPrediction(negatives=3, ranking=True, k=k).scorer(parts.parts[name], plan, name, 1)
    for t in (2, 3):
        scores = np.round(rng("lists", seed, t).normal(size=len(made.queries(t))), 1)  # with ties
        found = made.measure(t, scores)
        for end in ("", "_new"):
            if not found["n"][f"n_users{end}"]:
                continue
            means, users, lost, coverage, novelty = slowly(made, plan, t, scores, k, bool(end))
            assert found["n"][f"n_users{end}"] == users
            assert {key: found["scores"][f"{key}{end}"] for key in means} == pytest.approx(means)
            if not end:
                assert found["scores"]["no_list"] == pytest.approx(lost)
                assert found["scores"]["coverage"] == pytest.approx(coverage)
                assert found["scores"]["novelty"] == pytest.approx(novelty)


def test_the_best_answer_gets_one_and_a_constant_what_chance_gets():
    parts, plan = tiny_case(tiny_stream(3000))
    part, found = parts.parts["ada"], []
    for seed in range(60):
        made = LinkPrediction(negatives=3, ranking=True, k=5).scorer(part, plan, "ada", seed)
        asked, now = made.queries(3), plan.stage(part, 3)
        codes = set((now.src.astype(np.int64) * part.num_dst + now.dst).tolist())
        best = np.array([c in codes for c in (asked.src * part.num_dst + asked.dst).tolist()])
        right = made.measure(3, best.astype(float))["scores"]
        share = 1 - right["no_list"]
        assert right["ndcg"] == pytest.approx(share) and right["hit"] == pytest.approx(share)
        found.append(made.measure(3, np.zeros(len(asked)))["scores"]["recall"])
    lists = made._current[2].lists
    chance = np.minimum(5 / lists.wanted.shape[1], 1) * (1 - right["no_list"])
    error = np.std(found) / len(found) ** 0.5
    assert abs(np.mean(found) - chance) < 4 * error and error < 0.02


def test_a_travelled_user_has_a_list_and_an_unknown_one_is_a_miss():
    parts, plan = tiny_case(tiny_stream(300))
    part = parts.parts["bob"]
    made = LinkPrediction(ranking=True).scorer(part, plan, "bob", 0)
    made.queries(2)
    lists, users = made._current[2].lists, made._current[1].src
    before, now = plan.past(part, 1), plan.stage(part, 2)
    asked = set(users[lists.at].tolist())
    new = {u for u, i in zip(now.src.tolist(), now.dst.tolist(), strict=True)
           if u not in before.src and i in before.dst}
    away = {u for u in new if part.first_seen_elsewhere[u] < plan.bounds[2]}
    assert away and away <= asked and not (new - away) & asked
    assert set(lists.lost.tolist()) == new - away


def test_whether_lists_are_measured_follows_from_the_first_reported_stage():
    parts, plan = tiny_case(tiny_stream(1200))
    small = LinkPrediction().settled(parts.parts, plan)
    assert small.ranking is True and LinkPrediction(ranking=False).settled(
        parts.parts, plan).ranking is False
    assert LinkPrediction(positives=1).settled(parts.parts, plan).ranking is False
    assert LinkPrediction().settled({}, plan).ranking is False          # in a federation
    longer = Plan((*plan.bounds, 5000.0), plan.val, plan.test, live=4)
    assert LinkPrediction().settled(parts.parts, longer).ranking is True
