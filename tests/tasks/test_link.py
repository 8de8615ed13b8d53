"""Queries and scores against slow references that read like the definitions."""

import numpy as np
import pytest

from fedvine.core.rng import rng
from fedvine.data.ids import Ids
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream
from fedvine.experiments.run import StageScores, run
from fedvine.methods.edgebank import EdgeBank
from fedvine.tasks import metrics
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.testing import tiny_case, tiny_stream


@pytest.fixture(scope="module")
def case():
    return tiny_case(tiny_stream(1200))


def scorer(case, name="ada", **options):
    parts, plan = case
    return LinkPrediction(**{"negatives": 7, "positives": 10_000, **options}).scorer(
        parts.parts[name], plan, name, 3)


def blocks(made, t):
    """The positives of stage ``t`` and their negatives, as lists of pairs by kind."""
    pairs, asked = made.queries(t), made._current[2]
    every = list(zip(pairs.src.tolist(), pairs.dst.tolist(), strict=True))

    def at(index):
        return [every[i] for i in index]
    whole, new = asked.groups[:2]
    return {"positive": at(whole.positive), "random": at(whole.random),
            "historical": at(asked.historical), "inductive": at(asked.inductive),
            "wide": [at(whole.wide[whole.own == i]) for i in range(len(whole.positive))],
            "new": at(new.positive), "random of new": at(new.random),
            "wide of new": [at(new.wide[new.own == i]) for i in range(len(new.positive))]}


def pairs_of(events):
    return set(zip(events.src.tolist(), events.dst.tolist(), strict=True))


@pytest.mark.parametrize("t", [1, 2, 3])
def test_negatives_are_what_they_are_called(case, t):
    made = scorer(case)
    found, now = blocks(made, t), pairs_of(made.plan.stage(made.part, t))
    before = made.plan.past(made.part, t - 1)
    past, items = pairs_of(before), set(before.dst.tolist())
    stage = made.plan.stage(made.part, t)
    assert found["positive"] == [
        p for p in zip(stage.src.tolist(), stage.dst.tolist(), strict=True)
        if p[1] in items and items - {i for u, i in now if u == p[0]}]
    for kind, positives in (("wide", found["positive"]), ("wide of new", found["new"])):
        for (user, _), single, wide in zip(positives, found[
                "random" if kind == "wide" else "random of new"], found[kind], strict=True):
            free = {i for i in items if (user, i) not in now}
            if kind == "wide of new":
                free -= {i for u, i in past if u == user}
            assert {u for u, _ in wide} == {user} and single in wide
            named = [i for _, i in wide]
            assert len(set(named)) == len(named) == min(7, len(free)) and set(named) <= free
    assert found["new"] == [p for p in found["positive"] if p not in past and (
        items - {i for u, i in past | now if u == p[0]})]
    random = set(found["random"])
    assert set(found["historical"]) <= (past - now) | random and past - now
    recent = set()
    for s in range(made.plan.val, t):
        known = pairs_of(made.plan.past(made.part, s - 1))
        recent |= pairs_of(made.plan.stage(made.part, s)) - known
    if recent - now:
        assert set(found["inductive"]) <= recent - now


@pytest.mark.parametrize("share", [0.4, 1.0])
def test_some_negatives_may_be_items_met_before(case, share):
    """TGB's rule, where the user has such; else random ones stay."""
    made = scorer(case, negatives=5, historical=share)
    found, now = blocks(made, 3), pairs_of(made.plan.stage(made.part, 3))
    old = pairs_of(made.plan.past(made.part, 2)) - now
    several = 0
    for (user, _), wide in zip(found["positive"], found["wide"], strict=True):
        mine = {i for u, i in old if u == user}
        named = [i for _, i in wide]
        assert len(set(named)) == len(named) and not {(user, i) for i in named} & now
        assert len(set(named) & mine) >= min(round(5 * share), len(mine))
        several += len(mine) > 1
    assert several


@pytest.mark.parametrize("name", ["ada", "bob", "cyd"])
def test_subsets_and_scores_equal_a_slow_reference(case, name):
    made, (parts, plan) = scorer(case, name), case
    for t in (1, 3):
        found = blocks(made, t)
        draw = np.random.Generator(np.random.PCG64(t))
        scores = np.round(draw.normal(size=len(made.queries(t))), 1)
        result, (_, pairs, asked) = made.measure(t, scores), made._current
        past = plan.past(made.part, t - 1)
        here, start = set(past.src.tolist()), plan.bounds[t]

        def away(local, start=start):
            user = made.part.src_ids[local]
            return any(user in {p.src_ids[s] for s, time in zip(p.src.tolist(), p.t.tolist(),
                                                                strict=True) if time < start}
                       for n, p in parts.parts.items() if n != name)

        whole, new = asked.groups[:2]
        users = [u for u, _ in found["positive"]]
        masks = {"": (whole, [True] * len(users)), "_new": (new, [True] * len(found["new"])),
                 "_travelled": (whole, [away(u) for u in users]),
                 "_arrived": (whole, [away(u) and u not in here for u in users])}
        for end, (group, mask) in masks.items():
            m = np.array(mask, bool)
            assert result["n"][f"n{end}"] == m.sum()
            if not m.any():
                assert f"auc{end}" not in result["scores"]
                continue
            right, random = scores[group.positive][m], scores[group.random][m]
            assert result["scores"][f"auc{end}"] == metrics.auc(right, random)
            if end != "_new":
                assert result["scores"][f"auc_historical{end}"] == metrics.auc(
                    right, scores[asked.historical][m])
            wide = [scores[group.wide[group.own == i]] for i in np.flatnonzero(m)]
            above = [sum(n > p for n in row) + 0.5 * sum(n == p for n in row)
                     for p, row in zip(right, wide, strict=True)]
            rank = 1 + np.array(above)
            assert result["scores"][f"mrr{end}"] == pytest.approx(np.mean(1 / rank))
            assert result["scores"][f"hits_sampled{end}"] == pytest.approx(np.mean(rank <= 10))
            assert result["scores"][f"auc_within{end}"] == pytest.approx(np.mean(
                [1 - a / len(row) for a, row in zip(above, wide, strict=True)]))
        unknown = [i for i in plan.stage(made.part, t).dst.tolist() if i not in set(
            past.dst.tolist())]
        assert result["n"]["n_unknown"] == len(unknown)
        assert result["n"]["n_unasked"] == len(plan.stage(made.part, t)) - len(unknown) - len(users)
        assert result["n"]["n_few"] == sum(len(row) < 7 for row in found["wide"])
        assert len(pairs) == len(scores)


def test_all_items_as_candidates_are_those_that_the_user_does_not_meet(case):
    made = scorer(case, negatives="all")
    asked = made.queries(2)
    result = made.measure(2, asked.dst.astype(float))   # score = item number
    part = made.plan.stage(made.part, 2)
    known = set(made.plan.past(made.part, 1).dst.tolist())
    pairs = [p for p in zip(part.src.tolist(), part.dst.tolist(), strict=True) if p[1] in known]
    rank = [1 + sum(i > item for i in known - {i for u, i in pairs if u == user})
            for user, item in pairs]
    assert max(rank) > 1 and len(set(pairs)) > len({u for u, _ in pairs})
    assert result["scores"]["mrr"] == pytest.approx((1 / np.array(rank)).mean())


def test_a_row_less_changes_the_draws_of_no_other_row(case):
    plan, made = case[1], scorer(case)
    events = plan.stage(made.part, 3)
    gone = made.part._rank(plan.bounds[3]) + len(events) // 2
    left = made.part.take(np.delete(np.arange(len(made.part)), gone))
    other = LinkPrediction(negatives=7, positives=10_000).scorer(left, plan, "ada", 3)
    both = [blocks(one, 3) for one in (made, other)]
    user = int(made.part.src[gone])
    for kind, positives in (("wide", "positive"), ("wide of new", "new")):
        first, second = ({(p, i): wide for i, (p, wide) in enumerate(
            zip(one[positives], one[kind], strict=True)) if p[0] != user} for one in both)
        assert list(map(set, first.values())) == list(map(set, second.values())) and first
    few = [scorer(case, positives=20), LinkPrediction(negatives=7, positives=20).scorer(
        left, plan, "ada", 3)]
    asked = [set(blocks(one, 3)["positive"]) for one in few]
    assert len(asked[0] - asked[1]) <= 1 and asked[0] & asked[1]


def test_with_two_stages_between_candidates_are_those_known_at_the_time_of_the_forecast(case):
    made = scorer(case, lead=2)
    known = set(made.plan.past(made.part, 0).dst.tolist())
    found = blocks(made, 2)
    assert {i for kind in ("positive", "random", "new") for _, i in found[kind]} <= known
    assert {i for row in found["wide"] for _, i in row} <= known


def test_a_cap_draws_positives_evenly_and_always_the_same(case):
    made = scorer(case, positives=20)
    assert made.measure(3, np.zeros(len(made.queries(3))))["n"]["n"] == 20
    assert (made.queries(3).src == scorer(case, positives=20).queries(3).src).all()
    whole, counts = blocks(scorer(case), 3)["positive"], {}
    for seed in range(300):
        drawn = LinkPrediction(negatives=1, positives=20).scorer(
            made.part, made.plan, "ada", seed)
        for pair in blocks(drawn, 3)["positive"]:
            counts[pair] = counts.get(pair, 0) + 1
    share = 300 * 20 / len(whole)
    for pair in set(whole):
        assert abs(counts.get(pair, 0) - whole.count(pair) * share) < 5 * (
            whole.count(pair) * share) ** 0.5


def test_wrong_answers_are_refused(case):
    made = scorer(case)
    size = len(made.queries(2))
    with pytest.raises(ValueError, match='client "ada" answered 3 scores'):
        made.measure(2, np.zeros(3))
    with pytest.raises(ValueError, match="not finite"):
        made.measure(2, np.full(size, np.nan))


def test_a_summary_weighs_stages_by_positives_and_clients_two_ways():
    plan = Plan((0, 1, 2, 3, 4), val=1, test=2)
    def result(auc, n, new, n_new):
        return {"n": {"n": n, "n_new": n_new}, "scores": {"auc": auc, "auc_new": new}}
    stages = [StageScores(0, {1: {"a": result(0.1, 5, 0.1, 5)}}),
              StageScores(1, {2: {"a": result(0.8, 10, 0.5, 1), "b": result(0.6, 10, 0.3, 2)}}),
              StageScores(2, {3: {"a": result(0.6, 30, 0.9, 3), "b": {"n": {"n": 0},
                                                                     "scores": {}}}})]
    test = LinkPrediction().means(stages, plan)
    assert test["client"]["a"]["auc"] == pytest.approx(0.65)
    assert test["client"]["a"]["auc_new"] == pytest.approx(0.8)
    whole = (0.8*10 + 0.6*30 + 0.6*10) / 50
    assert test["mean_edges"]["auc"] == pytest.approx(whole)
    # b has 10 queries: too few to count as much as a; of new pairs none has 30
    assert test["mean"]["auc"] == pytest.approx(0.65) and test["of"] == {"auc": 1, "auc_new": 0}
    assert test["mean"]["auc_new"] == pytest.approx((0.5 * 1 + 0.9 * 3 + 0.3 * 2) / 6)
    assert test["mean"]["auc_new"] == test["mean_edges"]["auc_new"]
    assert LinkPrediction().means(stages, plan, "val")["client"]["a"]["auc"] == 0.1


def test_two_stages_ahead_are_scored_without_the_one_between(case):
    """EdgeBank answers for stage t + 2 from what it met up to t."""
    parts, plan = case
    done = run(EdgeBank(), parts, plan,
               protocol=LinkPrediction(negatives=5, positives=30, lead=2, ranking=False)).finish()
    assert [sorted(s.found) for s in done.stages] == [
        [s.t + 2] if s.t + 2 < len(plan) else [] for s in done.stages]
    part = parts.parts["ada"]
    made = LinkPrediction(negatives=5, positives=30, lead=2).scorer(part, plan, "ada", 0)
    pairs, past = made.queries(2), plan.past(part, 0)
    met = set(zip(past.src.tolist(), past.dst.tolist(), strict=True))
    known = [(u, v) in met for u, v in zip(pairs.src.tolist(), pairs.dst.tolist(), strict=True)]
    expected = made.measure(2, np.array(known, float))
    assert done.stages[0].found[2]["ada"]["scores"] == pytest.approx(expected["scores"])


def test_scores_of_a_subset_are_weighted_by_its_own_positives():
    """Half of one stage's pairs are new and a tenth of the other's; the clients differ too."""
    plan = Plan((0, 1, 2, 3), val=0, test=1)

    def result(auc, n, n_new):
        return {"n": {"n": n, "n_new": n_new}, "scores": {"auc": 0.5, "auc_new": auc}}
    test = LinkPrediction().means([
        StageScores(0, {1: {"a": result(0.2, 90, 50), "b": result(0.4, 90, 30)}}),
        StageScores(1, {2: {"a": result(0.8, 300, 100)}})], plan)
    assert test["client"]["a"]["auc_new"] == pytest.approx((0.2 * 50 + 0.8 * 100) / 150)
    assert test["mean"]["auc_new"] == pytest.approx((0.6 + 0.4) / 2) and test["of"]["auc_new"] == 2
    assert test["mean_edges"]["auc_new"] == pytest.approx((0.2 * 50 + 0.8 * 100 + 0.4 * 30) / 180)


def test_items_that_nobody_has_met_before_the_stage_are_not_asked():
    """Also where numbers do not follow first appearance, as in a server's whole graph."""
    stream = tiny_stream(600)
    turn = np.arange(stream.num_dst)[::-1].astype(np.int32)     # late items have low numbers now
    stream = EventStream(stream.src, turn[stream.dst], stream.t, stream.src_ids,
                         stream.dst_ids.take(turn), name="turned")
    _, plan = tiny_case()
    for bipartite in (True, False):
        part = stream if bipartite else EventStream(stream.src, stream.dst, stream.t,
                                                    stream.src_ids, name="one kind")
        made = LinkPrediction(negatives=20).scorer(part, plan, "all", 0)
        made.whole = True
        for t in (1, 3):
            known, now = plan.past(part, t - 1), plan.stage(part, t)
            nodes = set(known.dst.tolist()) | (set() if bipartite else set(known.src.tolist()))
            users = set(known.src.tolist()) | set(now.src.tolist()) | (
                set() if bipartite else nodes)
            asked = made.queries(t)
            assert set(asked.dst.tolist()) <= nodes and set(asked.src.tolist()) <= users
            roland = LinkPrediction(negatives=20, candidates="roland").scorer(part, plan, "a", 0)
            assert {*now.dst.tolist()} <= {*roland.queries(t).dst.tolist()}
            assert len({*roland.queries(t).dst.tolist()} - nodes) == len(
                {*now.dst.tolist(), *([] if bipartite else now.src.tolist())} - nodes)
    assert len(nodes) > len(set(known.dst.tolist()))            # any node, where there is one kind


def test_events_that_remove_an_edge_are_not_asked():
    made, (_, plan) = tiny_stream(), tiny_case()
    gone = rng("removed", 0).random(len(made)) < 0.3
    stream = EventStream(made.src, made.dst, made.t, made.src_ids, made.dst_ids, deleted=gone)
    scorer = LinkPrediction(positives=10**6, negatives=3).scorer(stream, plan, "all", 0)
    pairs = scorer.queries(2)
    known = np.isin(made.dst, made.dst[made.t < plan.bounds[2]])
    left = np.flatnonzero((made.t >= plan.bounds[2]) & (made.t < plan.bounds[3]) & ~gone & known)
    assert scorer.measure(2, np.zeros(len(pairs)))["n"]["n"] == len(left) > 0
    assert (pairs.src[:len(left)] == made.src[left]).all()
    assert (pairs.dst[:len(left)] == made.dst[left]).all()


def test_a_client_without_a_score_does_not_count_in_its_mean():
    found = {"ada": {"n": {"n": 90, "n_new": 0}, "scores": {"auc": 0.5}},
             "bob": {"n": {"n": 30, "n_new": 30}, "scores": {"auc": 0.7, "auc_new": 0.9}}}
    told = LinkPrediction().means([StageScores(0, {1: found})],
                                  Plan((0.0, 1.0, 2.0), val=0, test=1))
    assert told["mean"] == pytest.approx({"auc": 0.6, "auc_new": 0.9})
    assert told["mean_edges"] == pytest.approx({"auc": 0.55, "auc_new": 0.9})


def test_replicates_with_one_of_each_user_are_the_scores(case, monkeypatch):
    made = scorer(case, ranking=True, replicates=3)
    monkeypatch.setattr("fedvine.tasks.metrics.replicate_weights",
                        lambda users, count: np.ones((count, len(users)), np.uint8))
    scores = np.round(rng("replicates").normal(size=len(made.queries(3))), 1)
    found, kept = made.measure(3, scores), made.resampled[3]
    for key, values in kept["scores"].items():
        assert values == pytest.approx([found["scores"][key]] * 3), key
    for key, values in kept["n"].items():
        assert values.tolist() == [found["n"][key]] * 3, key
    assert {"auc", "auc_new", "mrr", "ndcg", "ndcg_new", "no_list"} <= set(kept["scores"])
    assert 2 not in made.resampled      # of the test period alone


def test_an_edge_without_direction_is_drawn_alike_at_both_ends():
    src, dst = np.random.default_rng(0).integers(0, 9, (2, 200)) + np.array([[0], [9]])
    plan, found = Plan((-1.0, 99.0, 149.0, 199.0), val=1, test=2), []
    for ends in ((src, dst), (dst, src)):
        part = EventStream(*ends, np.arange(200.0), Ids.of([f"n{i}" for i in range(18)]),
                           directed=False)
        made = LinkPrediction(negatives=3, replicates=20).scorer(part, plan, "all", 0)
        made.measure(2, np.zeros(len(made.queries(2))))
        found.append(made.resampled[2]["n"]["n"])
    assert (found[0] == found[1]).all() and len(set(found[0])) > 5
