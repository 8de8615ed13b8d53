"""What a client measures of drift: simple rivals on the model's queries, and how new a stage is."""


import numpy as np
import pytest

from fedvine import testing
from fedvine.core import registry
from fedvine.core.rng import rng
from fedvine.data.stream import EventStream
from fedvine.experiments.run import run
from fedvine.tasks.class_incremental import ClassIncremental
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.tasks.snapshot_classification import SnapshotClassification

PLAN = testing.tiny_case()[1]


def streams():
    plain = testing.tiny_stream(700)
    gone = rng("gone").random(len(plain)) < 0.2
    one = EventStream(plain.src, plain.dst, plain.t, plain.src_ids, name="one",
                      codes=plain.codes, categories=plain.categories)
    return {"users and items": plain, "one kind": one, "undirected": one.with_direction(False),
            "deletions": EventStream(plain.src, plain.dst, plain.t, plain.src_ids, plain.dst_ids,
                                     deleted=gone, codes=plain.codes,
                                     categories=plain.categories)}


def finished(name, stream, protocol):
    split = stream.split("client") if protocol.data != "graph" else stream
    plan = PLAN if protocol.data != "graph" else testing.tiny_graphs()[1]
    return run(registry.method(name)(), split, plan, seed=3, protocol=protocol).finish()


@pytest.mark.parametrize("lead", [1, 2])
@pytest.mark.parametrize("kind", streams())
def test_rivals_of_links_score_as_the_methods_of_these_names(kind, lead):
    protocol = LinkPrediction(negatives=5, positives=60, drift=True, lead=lead)
    runs = {name: finished(name, streams()[kind], protocol) for name in protocol.shown.simple}
    compared = 0
    for stage in range(len(PLAN)):
        for t, by in runs["edgebank"].stages[stage].found.items():
            for client, result in by.items():
                rivals = result["drift"]["rivals"]
                assert set(rivals) == set(runs)
                for name, made in runs.items():
                    own = made.stages[stage].found[t][client]["scores"]
                    assert rivals[name] == {k: own[k] for k in rivals[name]}
                    assert ("auc" in own) == ("auc" in rivals[name])
                    compared += len(rivals[name])
    assert compared > 30


def test_rivals_that_would_know_less_than_the_model_are_left_out():
    protocol = LinkPrediction(negatives=5, positives=60, drift=True, refresh="event")
    made = finished("recency", next(iter(streams().values())), protocol)
    assert all(result["drift"]["rivals"] == {} for stage in made.stages
               for by in stage.found.values() for result in by.values())


def test_rivals_of_classes_score_as_the_methods_of_these_names():
    stream = testing.tiny_labelled()
    protocol = SnapshotClassification(drift=True, known=True, test=0.5)
    runs = {name: run(registry.method(name)(), stream.split("hash", k=2), PLAN,
                      protocol=protocol).finish() for name in protocol.shown.simple}
    compared = 0
    for i, stage in enumerate(runs["last_label"].stages):
        for t, by in stage.found.items():
            drift = by["all"]["drift"]
            for name, made in runs.items():
                assert drift["rivals"][name] == made.stages[i].found[t]["all"]["scores"]
                compared += len(drift["rivals"][name])
            assert 0 <= drift["new"]["nodes"] <= 1
    assert compared > 8
    protocol = ClassIncremental(drift=True)
    made = finished("common", testing.tiny_graphs()[0], protocol)
    for stage in made.stages:
        for result in stage.found[stage.t].values():
            rival = result["drift"]["rivals"]["common"]
            assert rival == {key: result["scores"][key] for key in rival}
            assert result["drift"]["new"] == {"classes": 1.0}


def test_shares_are_those_counted_by_hand():
    stream = testing.tiny_stream(700)
    made = finished("edgebank", stream, LinkPrediction(negatives=5, positives=60, drift=True))
    part = stream.split("client").parts["ada"]
    for t in (1, 2, 3):
        past, now = PLAN.past(part, t - 1), PLAN.stage(part, t)
        users, items = set(past.src.tolist()), set(past.dst.tolist())
        pairs = set(zip(past.src.tolist(), past.dst.tolist(), strict=True))
        found = made.stages[t - 1].found[t]["ada"]["drift"]
        assert found["edges"] == len(now)
        assert found["new"]["users"] == pytest.approx(np.mean([u not in users for u in now.src]))
        assert found["new"]["items"] == pytest.approx(np.mean([i not in items for i in now.dst]))
        assert found["new"]["pairs"] == pytest.approx(np.mean(
            [p not in pairs for p in zip(now.src.tolist(), now.dst.tolist(), strict=True)]))
