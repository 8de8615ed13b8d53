"""NodeClassifier against runs of the library, and in scikit-learn's own tools."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import fedvine as fv
from fedvine.data.graph import Graph, Owner
from fedvine.data.ids import Ids
from fedvine.sklearn import NodeClassifier
from fedvine.sklearn.checks import NODE_CHECKS
from fedvine.tasks.class_incremental import ClassIncremental
from fedvine.tasks.task_plan import TaskSettings

CLOSED = fv.PowerPlus(rounds=0, width=32, expansion=4)


def classifier(**more):
    return NodeClassifier(CLOSED, **more)


@pytest.fixture(scope="module")
def graph():
    """90 nodes of 3 classes, whose features say little and whose edges join nodes of a class."""
    draw = np.random.default_rng(2)
    y = np.repeat([0, 1, 2], 30)
    X = draw.normal(size=(90, 6)) + 0.6 * np.eye(3, 6)[y]
    edges = np.array([(a, b) for a in range(90) for b in range(a) if y[a] == y[b]
                      and draw.random() < 0.3], int).T
    return X, np.array(list("abc"))[y], edges


@pytest.fixture(scope="module")
def frame(graph):
    X, y, edges = graph
    names = np.array([f"n{i}" for i in range(90)], object)
    table = pd.DataFrame(X, columns=list("uvwxyz")).assign(who=names, town=["ayr", "rye"] * 45)
    return table, y, names[edges]


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
def test_a_column_of_text_is_named(kind):
    columns = {"age": [1.0, 2.0, 3.0], "size": ["1", "2.5", "3"], "smoker": ["no", "yes", "no"]}
    with pytest.raises(ValueError, match='column "smoker" of X holds text, such as "no"; turn it'):
        classifier().fit(kind(columns), ["a", "b", "a"])
    del columns["smoker"]
    assert list(classifier().fit(kind(columns), ["a", "b", "a"]).classes_) == ["a", "b"]


def test_probabilities_are_those_of_a_run(graph):
    X, y, edges = graph
    made = classifier().fit(X, y, edges)
    whole = Graph.make(X, edges, np.unique(y, return_inverse=True)[1], classes=list("abc"),
                       owner=Owner(np.zeros(90, int), ("all",)), ids=Ids.of(np.arange(90)))
    split, plan = ClassIncremental.prepare_open(whole, {"by": "client"}, 3,
                                                TaskSettings(shares=(1.0, 0.0, 0.0)), 0)
    scores = np.asarray(fv.run(CLOSED, split, plan).finish().ask("all", {"nodes": np.arange(90)}))
    expected = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    assert np.allclose(made.predict_proba(X, edges), expected, atol=1e-6)
    assert (made.predict(X, edges) == np.array(list("abc"))[scores.argmax(1)]).all()
    assert made.score(X, y) < np.mean(made.predict(X, edges) == y)      # edges help


def test_new_classes_are_a_further_task(graph):
    X, y, edges = graph
    old, later = np.flatnonzero(y != "c"), np.flatnonzero(y == "c")
    inside = edges[:, (edges < 60).all(0)]
    made = classifier().fit(X[old], y[old], inside)
    assert made.classes_.tolist() == ["a", "b"]
    made.partial_fit(X[later], y[later], edges=edges[:, (edges >= 60).all(0)] - 60)
    assert made.classes_.tolist() == ["a", "b", "c"]
    assert [len(task) for task in made.learned_.run.plan.groups] == [2, 1]
    accuracy = np.mean(made.predict(X, edges) == y)
    assert accuracy > 0.9       # neither the first classes nor the last one are lost


def test_classes_that_are_announced_have_columns_from_the_start(graph):
    X, y, _ = graph
    made = classifier().partial_fit(X[:30], y[:30], classes=["c", "a", "b"])
    assert made.predict_proba(X).tolist() == [[1.0, 0.0, 0.0]] * 90
    made.partial_fit(X[60:], y[60:])
    assert (made.predict_proba(X)[:, 1] == 0).all() and made.classes_.tolist() == list("abc")
    before = made.predict_proba(X)
    with pytest.raises(ValueError, match=r"class .*d.* not in classes"):
        made.partial_fit(X[:2] + 1, ["d", "a"])
    assert np.array_equal(made.predict_proba(X), before)


def test_nodes_with_names_are_part_of_the_graph_that_was_learned(frame):
    table, y, edges = frame
    some, others = np.arange(0, 90, 2), np.arange(1, 90, 2)
    with pytest.warns(UserWarning, match=r"^\d+ of 403 edges have an end that is none of the 45"):
        made = classifier(node="who").fit(table.drop(columns="town").iloc[some], y[some], edges)
    new = table.drop(columns="town").iloc[others]
    with_edges = np.mean(made.predict(new) == y[others])
    alone = classifier(node="who").fit(table.drop(columns="town").iloc[some], y[some])
    assert with_edges > np.mean(alone.predict(new) == y[others]) + 0.1
    asked = made.predict_proba(new)
    order = np.argsort(others * 7 % 90)
    assert np.allclose(made.predict_proba(new.iloc[order]), asked[order], atol=1e-6)


def test_labels_of_nodes_that_were_there_come_later(frame):
    table, y, edges = frame
    table = table.drop(columns="town")
    known = np.where(np.arange(90) % 3 == 0, y, None)
    made = classifier(node="who").fit(table, known, edges)
    rest = np.flatnonzero(np.arange(90) % 3 == 1)
    made.partial_fit(table.iloc[rest], y[rest])
    graph = made.learned_.run.ready.stream
    assert len(graph) == 90 and (graph.y >= 0).sum() == 60
    before = made.predict_proba(table)
    with pytest.raises(ValueError, match='node "n0" has another class'):
        made.partial_fit(table.iloc[:1], ["b"])
    with pytest.raises(ValueError, match='node "n0" has other features'):
        made.partial_fit(table.iloc[:1].assign(u=9.0), ["a"])
    assert np.array_equal(made.predict_proba(table), before)


@pytest.mark.parametrize(("y", "unlabelled"), [
    (np.array([0, 1, -1] * 30), -1), (np.array(["a", "b", "?"] * 30), "?"),
    (np.array(["a", "b", None] * 30, object), None), (pd.Series(["a", "b", None] * 30), None),
    (np.array([0, 1, None] * 30, object), None), (np.array([0, 1, np.nan] * 30), np.nan),
    (pd.Series([0, 1, None] * 30, dtype="Int64"), np.nan)])
def test_nodes_without_a_class(graph, y, unlabelled):
    made = classifier(unlabelled=unlabelled).fit(graph[0], y, graph[2])
    assert made.classes_.tolist() in ([0, 1], ["a", "b"])
    assert (made.learned_.run.ready.stream.y < 0).sum() == 30
    with pytest.raises(ValueError, match="no known class"):
        classifier(unlabelled=unlabelled).fit(graph[0][2::3], y[2::3])


def test_clients_own_nodes(frame):
    table, y, edges = frame
    made = classifier(node="who", client="town").fit(table, y, edges)
    assert made.clients_.tolist() == ["ayr", "rye"]
    assert {name: len(part) for name, part in made.learned_.run.parts.items()} == {
        "ayr": 45, "rye": 45}
    assert np.mean(made.predict(table) == y) > 0.9
    with pytest.raises(ValueError, match='No client called "oban"'):
        made.predict(table.assign(town="oban"))


@pytest.mark.parametrize("kind", [
    lambda frame: {name: frame[name].to_numpy() for name in frame},
    lambda frame: frame.set_index("who")])
def test_any_frame_gives_the_same(frame, kind):
    table, y, edges = frame
    made = classifier(node="who", client="town").fit(table, y, edges)
    for form in (edges.T, pd.DataFrame(edges.T), pl.DataFrame({"a": edges[0], "b": edges[1]})):
        other = classifier(node="who", client="town").fit(kind(table), y, form)
        assert np.array_equal(other.predict_proba(kind(table)), made.predict_proba(table))


def test_dense_and_sparse_features_may_be_mixed_in_questions(graph):
    X, y, edges = np.maximum(graph[0], 0), *graph[1:]
    for first, second in ((X, csr_array(X)), (csr_array(X), X)):
        made = classifier().fit(first, y, edges)
        assert np.array_equal(made.predict_proba(first, edges), made.predict_proba(second, edges))
        made.partial_fit(second[:30], y[:30])


@pytest.mark.slow
def test_a_search_in_a_pipeline_with_edges(frame):
    table, y, edges = frame
    X = table.drop(columns="town").set_index("who")
    line = make_pipeline(StandardScaler().set_output(transform="pandas"), classifier(node="who"))
    search = GridSearchCV(line, {"nodeclassifier__method__hops": [0, 2]}, error_score="raise",
                          cv=StratifiedKFold(2, shuffle=True, random_state=0))
    with pytest.warns(UserWarning, match="of 403 edges have an end"):
        search.fit(X, y, nodeclassifier__edges=edges)
    found = search.cv_results_["mean_test_score"]
    assert search.best_params_["nodeclassifier__method__hops"] == 2 and found[1] > found[0]
    without = cross_val_score(line, X, y, cv=search.cv, error_score="raise")
    assert found[1] > without.mean() + 0.1


def test_parameters_clone_and_pickle(graph):
    X, y, edges = graph
    made = classifier().fit(X, y, edges)
    other = pickle.loads(pickle.dumps(made))
    assert np.array_equal(other.predict_proba(X, edges), made.predict_proba(X, edges))
    other.partial_fit(X[:5] + 9, ["d"] * 5)
    assert np.isin(other.predict(X + 9), ["d"]).any() and "d" not in made.classes_
    with pytest.raises(NotFittedError):
        clone(made).predict(X)
    assert clone(made).set_params(method__hops=1).method == fv.PowerPlus(
        rounds=0, width=32, expansion=4, hops=1)


@pytest.mark.parametrize(("params", "edges", "sentence"), [
    ({"method": "fedlink"}, None, "fedlink does not name classes"),
    ({"method": "dgcolearn"}, None, "dgcolearn does not name classes"),
    ({"node": "who"}, None, 'no column "who"'),
    ({"client": "town"}, None, 'no column "town"'),
    ({}, [[0, 1], [1, 90]], "joins the node 90, but X has rows 0 to 89; .* node="),
    ({}, [[0, 1.5], [1, 2]], 'joins "1.5", which is no row number'),
    ({}, [["a", "b"], ["b", "c"]], 'joins "a", which is no row number'),
    ({}, [0, 1, 2], r"shape \(3,\)")])
def test_what_cannot_be_learned_is_refused_in_one_sentence(graph, params, edges, sentence):
    with pytest.raises(ValueError, match=sentence):
        NodeClassifier(**params).fit(graph[0], graph[1], edges)


def test_nan_beside_text_in_a_list_is_no_class(graph):
    X, y, _ = graph
    made = classifier().fit(X, [np.nan, *y[1:].tolist()])
    assert made.classes_.tolist() == ["a", "b", "c"]


def test_nodes_that_have_changed_are_refused_without_words_of_the_command_line(frame):
    table, y, _ = frame
    table = table.drop(columns="town")
    made = classifier(node="who").fit(table[:60], y[:60])
    with pytest.raises(ValueError, match="has other features than before; give what was") as found:
        made.partial_fit(table[59:].assign(u=9.0), y[59:])
    assert "--" not in str(found.value)


def test_a_name_that_is_there_twice_or_empty_is_refused(frame):
    table, y, _ = frame
    table = table.drop(columns="town")
    with pytest.raises(ValueError, match='node "n1" twice'):
        classifier(node="who").fit(table.assign(who=["n1"] * 90), y)
    with pytest.raises(ValueError, match='column "who" is empty in row 1'):
        classifier(node="who").fit(table.assign(who=[None, *table.who[1:]]), y)


@pytest.mark.slow
def test_the_checks_of_scikit_learn():
    found = check_estimator(NodeClassifier(fv.PowerPlus(rounds=0)),
                            expected_failed_checks=NODE_CHECKS, on_skip=None)
    assert {one["check_name"] for one in found if one["status"] == "xfail"} == set(NODE_CHECKS)


@pytest.mark.slow
def test_the_checks_of_the_interface():
    found = check_estimator(classifier(), legacy=False, expected_failed_checks=NODE_CHECKS,
                            on_skip=None)
    assert {one["status"] for one in found} == {"passed"}
