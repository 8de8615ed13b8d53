"""Answers that know a client's newest events: against slow references; what they must not see."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvine import testing
from fedvine.core.errors import FedvineError
from fedvine.core.refresh import batches
from fedvine.core.settings import build
from fedvine.data.ids import Ids
from fedvine.data.plan import Plan
from fedvine.data.split import split
from fedvine.data.stream import EventStream
from fedvine.engines.bad_replies import answers, leaks
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.run import run
from fedvine.experiments.run_folder import read_experiment
from fedvine.methods.edgebank import EdgeBank
from fedvine.methods.fedlink import FedLink
from fedvine.methods.popularity import Popularity, Recency
from fedvine.methods.stfl import STFL
from fedvine.results.kept import Identity
from fedvine.tasks.link_prediction import LinkPrediction

PLAN = Plan((0.0, 10.0, 20.0, 30.0), val=1, test=2)
STEPS = st.sampled_from(["event", 1, 2, 7, 200])


@st.composite
def streams(draw, kinds=("bipartite", "directed", "undirected")):
    """Few nodes, two clients, three stages, and most events at a time of others."""
    kind, n = draw(st.sampled_from(kinds)), draw(st.integers(6, 60))
    rows = [draw(st.lists(st.integers(0, most), min_size=n, max_size=n))
            for most in (4, 4, 29, 1, 4)]
    t = np.sort(np.array(rows[2]) // draw(st.sampled_from([1, 3, 5])))
    t = t * (29 // max(t.max(), 1))
    ids, one = Ids.of([f"n{i}" for i in range(5)]), kind != "bipartite"
    return EventStream(
        np.array(rows[0], np.int32), np.array(rows[1], np.int32), t, ids, None if one else ids,
        codes={"client": np.array(rows[3], np.int32)}, categories={"client": ["ada", "bob"]},
        deleted=np.array(rows[4]) == 0 if draw(st.booleans()) else None,
        directed=kind != "undirected", name="small")


def made(method, stream, refresh, stage=1):
    """A run on the stream that has learned the stage."""
    found = run(method, split(stream, "client"), PLAN, seed=3, protocol=LinkPrediction(
        negatives=3, positives=1000, refresh=refresh))
    next(s for s in found if s.t == stage)
    return found


@given(came=st.lists(st.integers(0, 5), max_size=30), step=st.integers(1, 4),
       asked=st.lists(st.integers(-1, 6), max_size=9))
def test_a_query_sees_whole_steps_of_the_events_strictly_before_it(came, asked, step):
    came, found = sorted(came), {}
    for count, index in batches(np.array(came, float), np.array(asked, float), step):
        assert (np.diff(index) > 0).all()
        found |= {int(i): count for i in index}
    before = [sum(c < q for c in came) for q in asked]
    assert found == {i: n - n % step for i, n in enumerate(before)}


def seen_by(part, t, step):
    """Every learned event, and those of the scored stage that a query at ``t`` may see."""
    step = step if step != "event" else 1
    step *= 2 if part.mirrored else 1
    learned = [e for e in range(len(part)) if part.t[e] < 20]
    new = [e for e in range(len(part)) if 20 <= part.t[e] < t]
    keep = [*learned, *new[:len(new) - len(new) % step]]
    return [e for e in keep if part.deleted is None or not part.deleted[e]]


def direct(method, part, user, item, seen):
    """The score from all of these events, one by one."""
    pairs = {(part.src[e], part.dst[e]): float(part.t[e]) for e in seen}
    counts = np.zeros(part.num_dst)
    for e in seen:
        age = 1 - min(int(part.t[e] // 10), 1)              # stages; new events are not older
        counts[part.dst[e]] += method.decay ** age if isinstance(method, Popularity) else 1
    if isinstance(method, EdgeBank):
        recent = {(part.src[e], part.dst[e]) for e in seen
                  if method.window == "unlimited" or part.t[e] >= 10}
        return float((user, item) in recent)
    if not isinstance(method, Recency):
        return counts[item]
    if (user, item) not in pairs:
        return counts[item] / (1 + counts.max(initial=0))
    first, last = min(pairs.values()), max(pairs.values())
    return 1 + (pairs[user, item] - first) / max(last - first, 1e-300)


@pytest.mark.slow
@settings(max_examples=60)
@given(stream=streams(), refresh=STEPS, method=st.sampled_from(
    [EdgeBank(), EdgeBank(window=1), Popularity(), Popularity(decay=0), Recency()]))
def test_simple_methods_are_the_direct_computation(stream, refresh, method):
    live = made(method, stream, refresh)
    workers = live.clients.workers
    queries = {n: w.scorer.queries(2) for n, w in workers.items()}
    parts = {n: w.part for n, w in workers.items()}
    scores = answers(live, 1, queries, parts)
    for name, found in scores.items():     # of clients that have data by then
        asked = queries[name]
        for u, i, t, score in zip(asked.src, asked.dst, asked.t, found, strict=True):
            assert score == pytest.approx(
                direct(method, parts[name], u, i, seen_by(parts[name], t, refresh)), abs=1e-12)


@pytest.mark.slow
@settings(max_examples=8)
@given(stream=streams(["bipartite"]), refresh=STEPS)
def test_fedlink_sees_no_event_at_a_querys_time_or_later(stream, refresh):
    assert not list(leaks(made(FedLink.tiny(), stream, refresh), 1))


@pytest.mark.slow
def test_fedlink_answers_as_if_the_events_were_in_its_buffers():
    """The last queries' answers are those of a buffer that was given the new events."""
    stream = testing.tiny_stream()
    parts, plan = testing.tiny_case(stream)
    found = run(FedLink.tiny(), parts, plan, seed=7, protocol=LinkPrediction(
        negatives=3, positives=1000, refresh="event"))
    next(s for s in found if s.t == 1)
    workers = found.clients.workers
    queries = {n: w.scorer.queries(2) for n, w in workers.items()}
    fresh = answers(found, 1, queries, {n: w.part for n, w in workers.items()})
    for name, worker in workers.items():
        asked = queries[name]
        last = asked.t == asked.t.max()
        new = worker.part.between(2000, asked.t.max())
        worker.client.kept.push(np.asarray(new.src), np.asarray(new.dst))
        worker.protocol = LinkPrediction(negatives=3, positives=1000)
        by_hand = answers(found, 1, queries, {n: w.part for n, w in workers.items()})[name]
        np.testing.assert_allclose(fresh[name][last], by_hand[last], rtol=1e-4, atol=1e-6)
        assert not np.allclose(fresh[name][~last], by_hand[~last], rtol=1e-4, atol=1e-6)
        worker.protocol = found.protocol


def test_a_question_is_answered_as_of_its_own_time():
    stream = testing.tiny_stream()
    parts, plan = testing.tiny_case(stream)
    short = plan.cut(3)                                      # the last stage is not learned
    found = run(Recency(), parts, short, seed=7).finish()
    part = parts.parts["bob"]
    pairs = {"src": part.src.astype(int), "dst": part.dst.astype(int)}
    then = found.ask("bob", {**pairs, "t": np.full(len(part), 3000.0), "refresh": True})
    late = found.ask("bob", {**pairs, "t": np.full(len(part), 3600.0), "refresh": True})
    assert np.array_equal(then, run(Recency(), parts, short, seed=7).finish().ask(
        "bob", {**pairs, "t": np.full(len(part), 3600.0)}))   # it was not requested
    first = set(zip(part.before(3000).src, part.before(3000).dst, strict=True))
    new = [n for n, e in enumerate(zip(part.src, part.dst, strict=True))
           if 3000 <= part.t[n] < 3600 and e not in first]
    after = [n for n, e in enumerate(zip(part.src, part.dst, strict=True)) if part.t[n] >= 3600
             and e not in set(zip(part.before(3600).src, part.before(3600).dst, strict=True))]
    assert len(new) and (then[new] < 1).all() and (late[new] >= 1).all()
    assert len(after) and (late[after] < 1).all()


def test_what_a_method_cannot_afford_is_refused_in_a_sentence():
    with pytest.raises(FedvineError, match=r"stfl affords protocol\.refresh = 200"):
        build(Experiment, {"data": "flights", "method": "stfl", "protocol": {"refresh": "event"}})
    with pytest.raises(FedvineError, match=r'leave protocol\.refresh at "stage"'):
        build(Experiment, {"data": "flights", "method": "feddy", "protocol": {"refresh": 5000}})
    parts, plan = testing.tiny_case()
    with pytest.raises(FedvineError, match="stfl affords"):
        run(STFL.tiny(), parts, plan, protocol=LinkPrediction(refresh=7))


def test_the_refresh_is_part_of_what_a_run_is_known_by(tmp_path):
    plain = Experiment.model_validate({"data": "flights", "method": "edgebank"})
    said = plain.with_settings(["protocol.refresh=stage"])
    fresh = plain.with_settings(["protocol.refresh=event"])
    assert plain.identity() == said.identity() != fresh.identity()
    line = {"method": "edgebank", "seed": 0, "content": "x", "settings": Identity(plain).settings,
            "revision": Identity(plain).revision}
    assert Identity(said).stands(line) and not Identity(fresh).stands(line)
    other = {**line, "settings": Identity(fresh).settings}
    assert Identity(fresh).stands(other) and not Identity(plain).stands(other)
    parts, plan = testing.tiny_case()
    run(EdgeBank(), parts, plan, out=tmp_path / "run", protocol=LinkPrediction(refresh=7)).finish()
    assert read_experiment(tmp_path / "run")["protocol"]["refresh"] == 7
    with pytest.raises(FedvineError, match="refresh"):
        run(EdgeBank(), parts, plan, out=tmp_path / "run")
