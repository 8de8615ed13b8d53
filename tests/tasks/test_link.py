"""Queries and scores against slow references that read like the definitions."""

import numpy as np
import pytest

from fedvine.core.rng import rng
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream
from fedvine.experiments.run import StageScores, run
from fedvine.methods.edgebank import EdgeBank
from fedvine.tasks import metrics
from fedvine.tasks.link_means import summarise
from fedvine.tasks.link_prediction import EdgeQueries, LinkPrediction
from fedvine.testing import tiny_case, tiny_stream


@pytest.fixture(scope="module")
def case():
    return tiny_case(tiny_stream(1200))


def scorer(case, name="ada", **options):
    parts, plan = case
    return LinkPrediction(**{"negatives": 7, "positives": 10_000, **options}).scorer(
        parts.parts[name], plan, name, 3)


def blocks(made, t):
    pairs = made.queries(t)
    part = made.plan.stage(made.part, t)
    Q, N = len(part), made.protocol.negatives
    src, dst = pairs.src, pairs.dst
    return part, {"positive": (src[:Q], dst[:Q]), "random": (src[Q:2*Q], dst[Q:2*Q]),
                  "historical": (src[2*Q:3*Q], dst[2*Q:3*Q]),
                  "inductive": (src[3*Q:4*Q], dst[3*Q:4*Q]),
                  "wide": (src[4*Q:].reshape(Q, N), dst[4*Q:].reshape(Q, N))}


@pytest.mark.parametrize("t", [1, 2, 3])
def test_negatives_are_what_they_are_called(case, t):
    made = scorer(case)
    part, found = blocks(made, t)
    now = set(zip(part.src.tolist(), part.dst.tolist(), strict=True))
    past_part = made.plan.past(made.part, t - 1)
    past = set(zip(past_part.src.tolist(), past_part.dst.tolist(), strict=True))
    items = set(made.plan.past(made.part, t).dst.tolist())
    assert (found["positive"][0] == part.src).all() and (found["positive"][1] == part.dst).all()
    assert (found["random"][0] == part.src).all()               # same user, another item
    assert (found["wide"][0] == np.asarray(part.src)[:, None]).all()
    drawn = list(zip(found["random"][0].tolist(), found["random"][1].tolist(), strict=True))
    assert set(found["wide"][1].ravel().tolist()) <= items      # the client's own, known by now
    free = {u for u in part.src.tolist() if any((u, i) not in now for i in items)}
    assert not any(p in now for p in drawn if p[0] in free)     # no hidden positives
    assert set(zip(*(x.tolist() for x in found["historical"]), strict=True)) <= past - now
    recent = set()
    for s in range(made.plan.val, t):
        stage, before = made.plan.stage(made.part, s), made.plan.past(made.part, s - 1)
        known = set(zip(before.src.tolist(), before.dst.tolist(), strict=True))
        recent |= set(zip(stage.src.tolist(), stage.dst.tolist(), strict=True)) - known
    if recent - now:
        assert set(zip(*(x.tolist() for x in found["inductive"]), strict=True)) <= recent - now


@pytest.mark.parametrize("share", [0.4, 1.0])
def test_some_negatives_may_be_items_met_before(case, share):
    """TGB's rule, where the user has such; else random ones stay."""
    made = scorer(case, negatives=10, historical=share)
    made.queries(3)
    part, plan = made.part, made.plan
    pairs = [set(zip(e.src.tolist(), e.dst.tolist(), strict=True))
             for e in (part.before(plan.bounds[3]), plan.stage(part, 3))]
    old = pairs[0] - pairs[1]
    asked, (_, _, extra) = made.queries(3), made._current
    count = len(extra["masks"]["all"])
    src, dst = (x[4 * count:].reshape(count, 10) for x in (asked.src, asked.dst))
    for users, items in zip(src.tolist(), dst.tolist(), strict=True):
        mine = {i for u, i in old if u == users[0]}
        many = round(10 * share)
        assert not mine or set(items[:many]) <= mine
        assert all((users[0], i) not in pairs[1] for i in items)
    assert any(u in {a for a, _ in old} for u in src[:, 0].tolist())


@pytest.mark.parametrize("name", ["ada", "bob", "cyd"])
def test_subsets_and_scores_equal_a_slow_reference(case, name):
    made = scorer(case, name, cold=True)
    parts, plan = case
    for t in (1, 3):
        part, _ = blocks(made, t)
        draw = np.random.Generator(np.random.PCG64(t))
        scores = np.round(draw.normal(size=len(made.queries(t))), 1)
        result = made.measure(t, scores)
        Q = len(part)
        past = plan.past(made.part, t - 1)
        known = set(zip(past.src.tolist(), past.dst.tolist(), strict=True))
        here, items = set(past.src.tolist()), set(past.dst.tolist())
        start = plan.bounds[t]

        def away(local, start=start):
            user = made.part.src_ids[local]
            return any(user in {p.src_ids[s] for s, time in zip(p.src.tolist(), p.t.tolist(),
                                                                strict=True) if time < start}
                       for n, p in parts.parts.items() if n != name)

        masks = {"": [True] * Q,
                 "_new": [(u, i) not in known for u, i in
                          zip(part.src.tolist(), part.dst.tolist(), strict=True)],
                 "_travelled": [away(u) for u in part.src.tolist()],
                 "_arrived": [away(u) and u not in here for u in part.src.tolist()],
                 "_cold": [i not in items or not (away(u) or u in here) for u, i in
                           zip(part.src.tolist(), part.dst.tolist(), strict=True)]}
        assert "n_cold" not in scorer(case, name).measure(t, scores)["n"]
        wide = scores[4 * Q:].reshape(Q, -1)
        for end, mask in masks.items():
            m = np.array(mask)
            assert result["n"][f"n{end}"] == m.sum()
            if not m.any():
                assert f"auc{end}" not in result["scores"]
                continue
            assert result["scores"][f"auc{end}"] == metrics.auc(scores[:Q][m], scores[Q:2*Q][m])
            assert result["scores"][f"auc_historical{end}"] == metrics.auc(
                scores[:Q][m], scores[2*Q:3*Q][m])
            rank = [1 + sum(n > p for n in row) + 0.5 * sum(n == p for n in row)
                    for p, row in zip(scores[:Q][m], wide[m], strict=True)]
            assert result["scores"][f"mrr{end}"] == pytest.approx(np.mean(1 / np.array(rank)))
            assert result["scores"][f"hits{end}"] == pytest.approx(np.mean(np.array(rank) <= 10))


def test_all_items_as_candidates_are_those_that_the_user_does_not_meet(case):
    made = scorer(case, negatives="all")
    pairs = made.queries(2)
    result = made.measure(2, pairs.dst.astype(float))   # score = item number
    part = made.plan.stage(made.part, 2)
    pairs = list(zip(part.src.tolist(), part.dst.tolist(), strict=True))
    known = set(made.plan.past(made.part, 2).dst.tolist())
    rank = [1 + sum(i > item for i in known - {i for u, i in pairs if u == user})
            for user, item in pairs]
    assert max(rank) > 1 and len(set(pairs)) > len({u for u, _ in pairs})
    assert result["scores"]["mrr"] == pytest.approx((1 / np.array(rank)).mean())


def test_queries_do_not_depend_on_what_was_asked_before(case):
    fresh, used = scorer(case), scorer(case)
    for t in (1, 3, 2):
        used.queries(t)
    for t in (2, 3):
        a, b = fresh.queries(t), used.queries(t)
        assert (a.src == b.src).all() and (a.dst == b.dst).all()


def test_a_cap_draws_positives_evenly_and_always_the_same(case):
    made = scorer(case, positives=20)
    assert made.measure(3, np.zeros(len(made.queries(3))))["n"]["n"] == 20
    assert (made.queries(3).src == scorer(case, positives=20).queries(3).src).all()


def test_wrong_answers_are_refused(case):
    made = scorer(case)
    size = len(made.queries(2))
    with pytest.raises(ValueError, match='client "ada" answered 3 scores'):
        made.measure(2, np.zeros(3))
    with pytest.raises(ValueError, match="not finite"):
        made.measure(2, np.full(size, np.nan))


def test_given_pairs_are_what_a_person_asks(case):
    pairs = scorer(case).given({"src": [1, 2], "dst": [0, 3], "t": [5, 5]})
    assert isinstance(pairs, EdgeQueries) and pairs.src.tolist() == [1, 2] and len(pairs) == 2


def test_a_summary_weighs_stages_by_positives_and_clients_two_ways():
    plan = Plan((0, 1, 2, 3, 4), val=1, test=2)
    def result(auc, n, new, n_new):
        return {"n": {"n": n, "n_new": n_new}, "scores": {"auc": auc, "auc_new": new}}
    stages = [StageScores(0, {1: {"a": result(0.1, 5, 0.1, 5)}}),
              StageScores(1, {2: {"a": result(0.8, 10, 0.5, 1), "b": result(0.6, 10, 0.3, 2)}}),
              StageScores(2, {3: {"a": result(0.6, 30, 0.9, 3), "b": {"n": {"n": 0},
                                                                     "scores": {}}}})]
    test = summarise(stages, plan)
    assert test["client"]["a"]["auc"] == pytest.approx(0.65)
    assert test["client"]["a"]["auc_new"] == pytest.approx(0.8)
    assert test["mean"]["auc"] == pytest.approx((0.65 + 0.6) / 2)
    assert test["mean_edges"]["auc"] == pytest.approx((0.8*10 + 0.6*30 + 0.6*10) / 50)
    assert summarise(stages, plan, "val")["client"]["a"]["auc"] == 0.1


def test_two_stages_ahead_are_scored_without_the_one_between(case):
    """EdgeBank answers for stage t + 2 from what it met up to t."""
    parts, plan = case
    done = run(EdgeBank(), parts, plan,
               protocol=LinkPrediction(negatives=5, positives=30, lead=2)).finish()
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
    test = summarise([StageScores(0, {1: {"a": result(0.2, 10, 5), "b": result(0.4, 100, 1)}}),
                      StageScores(1, {2: {"a": result(0.8, 100, 10)}})], plan)
    assert test["client"]["a"]["auc_new"] == pytest.approx((0.2 * 5 + 0.8 * 10) / 15)
    assert test["mean"]["auc_new"] == pytest.approx((0.6 + 0.4) / 2)
    assert test["mean_edges"]["auc_new"] == pytest.approx((0.2 * 5 + 0.8 * 10 + 0.4 * 1) / 16)


def test_items_that_nobody_has_met_yet_are_no_negatives():
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
            known = plan.past(part, t)
            nodes = set(known.dst.tolist()) | (set() if bipartite else set(known.src.tolist()))
            users = set(known.src.tolist()) | (set() if bipartite else nodes)
            asked = made.queries(t)
            assert set(asked.dst.tolist()) <= nodes and set(asked.src.tolist()) <= users
    assert len(nodes) > len(set(known.dst.tolist()))            # any node, where there is one kind


def test_events_that_remove_an_edge_are_not_asked():
    made, (_, plan) = tiny_stream(), tiny_case()
    gone = rng("removed", 0).random(len(made)) < 0.3
    stream = EventStream(made.src, made.dst, made.t, made.src_ids, made.dst_ids, deleted=gone)
    scorer = LinkPrediction(positives=10**6, negatives=3).scorer(stream, plan, "all", 0)
    pairs = scorer.queries(2)
    left = np.flatnonzero((made.t >= plan.bounds[2]) & (made.t < plan.bounds[3]) & ~gone)
    assert scorer.measure(2, np.zeros(len(pairs)))["n"]["n"] == len(left) > 0
    assert (pairs.src[:len(left)] == made.src[left]).all()
    assert (pairs.dst[:len(left)] == made.dst[left]).all()


def test_a_client_without_a_score_does_not_count_in_its_mean():
    found = {"ada": {"n": {"n": 3, "n_new": 0}, "scores": {"auc": 0.5}},
             "bob": {"n": {"n": 1, "n_new": 1}, "scores": {"auc": 0.7, "auc_new": 0.9}}}
    told = summarise([StageScores(0, {1: found})], Plan((0.0, 1.0, 2.0), val=0, test=1))
    assert told["mean"] == pytest.approx({"auc": 0.6, "auc_new": 0.9})
    assert told["mean_edges"] == pytest.approx({"auc": 0.55, "auc_new": 0.9})
