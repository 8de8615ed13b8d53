"""LinkForecaster against runs of the library, and in scikit-learn's own tools."""

import os
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, TimeSeriesSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

import fedvine as fv
from fedvine.sklearn import LinkForecaster
from fedvine.sklearn.checks import LINK_CHECKS
from fedvine.sklearn.shared import _delete


@pytest.fixture(scope="module")
def rows():
    """400 rows of 20 users in two towns; each user stays with three items of 30."""
    draw = np.random.default_rng(1)
    user = draw.integers(0, 20, 400)
    item = (user * 3 + draw.integers(0, 3, 400)) % 30
    return pd.DataFrame({"src": [f"u{n}" for n in user], "dst": [f"i{n}" for n in item],
                         "time": np.sort(draw.integers(0, 10_000, 400)),
                         "town": np.where(user < 10, "ayr", "rye")})


@pytest.fixture
def fitted(rows):
    return LinkForecaster("recency", client="town").fit(rows[:300])


def of_whole_run(estimator, rows):
    """The same stages, learned by one run on all rows in memory."""
    stream = fv.from_frame(rows, src="src", dst="dst", time="time", client="town")
    plan = replace(estimator.learned_.run.plan, live=None)
    return fv.run(fv.Recency(), stream.split(by="town"), plan).finish()


def test_rows_of_a_client_that_was_not_there_have_no_answer_and_spoil_no_other(rows, fitted):
    some = pd.concat([rows[300:303], rows[300:301].assign(town="new")])
    with pytest.warns(UserWarning, match="1 of 4 rows have no"):
        best, scores = fitted.predict(some), fitted.decision_function(some)
    assert best[3] is None and None not in best[:3] and np.isnan(scores[3])
    np.testing.assert_array_equal(scores[:3], fitted.decision_function(rows[300:303]))
    with pytest.raises(fv.FedvineError, match="ask for 1 or more"):
        fitted.top(some, n=0)


def test_answers_are_those_of_a_run(rows, fitted):
    forecasts = fv.Forecasts(of_whole_run(fitted, rows[:300]))
    assert fitted.predict(rows[:9]).tolist() == [
        forecasts.top(town, user, 1)[0].item for town, user in zip(
            rows.town[:9], rows.src[:9], strict=True)]
    top = fitted.top(rows[:9], 3)
    for (row, found), user, town in zip(top.groupby("row"), rows.src[:9], rows.town[:9],
                                        strict=True):
        assert found.src.tolist() == [user] * 3 and found["rank"].tolist() == [1, 2, 3]
        expected = forecasts.top(town, user, 3)
        assert list(zip(found.dst, found.score, found.known, strict=True)) == [
            one[:3] for one in expected], row
    pairs = pa.table({"client": rows.town[:9], "user": rows.src[:9], "item": rows.dst[:9]})
    assert fitted.decision_function(rows[:9]).tolist() == forecasts.scored(
        pairs)["score"].to_pylist()


@pytest.mark.slow
def test_new_rows_make_the_model_of_one_run_on_all(rows, fitted):
    for batch in (rows[300:350], rows[350:]):
        assert fitted.partial_fit(batch) is fitted
    whole = fv.Forecasts(of_whole_run(fitted, rows))
    pairs = pa.table({"client": rows.town, "user": rows.src, "item": rows.dst})
    assert fitted.decision_function(rows).tolist() == whole.scored(pairs)["score"].to_pylist()


@pytest.mark.slow
def test_the_first_partial_fit_is_a_fit_and_late_rows_are_taken(rows, fitted):
    again = LinkForecaster("recency", client="town").partial_fit(rows[:300])
    assert np.array_equal(again.decision_function(rows), fitted.decision_function(rows), True)
    late = pd.DataFrame({"src": ["new"], "dst": ["i1"], "time": [5], "town": ["ayr"]})
    with pytest.warns(UserWarning, match='the first is "new"'):
        assert again.predict(late).tolist() == [None]
    assert again.partial_fit(late).predict(late).tolist() == ["i1"]


def test_whoever_nobody_knows_has_no_forecast(fitted):
    asked = pd.DataFrame({"src": ["u1", "stranger"], "dst": ["i4", "i4"], "town": ["ayr", "ayr"]})
    with pytest.warns(UserWarning, match='1 of 2 rows have no .* the first is "stranger"'):
        found = fitted.predict(asked)
    assert found[0] is not None and found[1] is None
    with pytest.warns(UserWarning, match="1 of 2 rows have no score"):
        assert np.isnan(fitted.decision_function(asked)).tolist() == [False, True]
    with pytest.warns(UserWarning, match="1 of 2 rows"):
        assert set(fitted.top(asked).row) == {0}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [
    pl.DataFrame, lambda frame: {name: frame[name].tolist() for name in frame}])
def test_any_frame_gives_the_same(rows, fitted, kind):
    other = LinkForecaster("recency", client="town").fit(kind(rows[:300]))
    assert np.array_equal(other.decision_function(kind(rows)), fitted.decision_function(rows), True)
    assert other.score(kind(rows[300:])) == fitted.score(rows[300:])


@pytest.mark.slow
def test_a_score_is_the_runs_own_of_the_next_stage(rows, fitted):
    before = fitted.decision_function(rows)
    plan = fitted.learned_.run.plan
    stream = fv.from_frame(rows, src="src", dst="dst", time="time", client="town")
    end = float(np.nextafter(float(rows.time.max()), np.inf))
    *_, stage, _ = fv.run(fv.Recency(), stream.split(by="town"),
                          replace(plan, bounds=(*plan.bounds, end)))
    expected = np.mean([scores["mrr"] for scores in stage.scores.values()])
    assert fitted.set_params(metric="mrr").score(rows[300:]) == expected
    assert np.array_equal(fitted.decision_function(rows), before, True)     # nothing was learned
    with pytest.raises(ValueError, match=r'no measure "aucc".*mean "auc"'):
        fitted.set_params(metric="aucc").score(rows[300:])


def test_a_score_of_unknown_clients_alone_is_refused(rows, fitted):
    with pytest.raises(ValueError, match=r"None of these rows can be scored.* which clients_ name"):
        fitted.score(rows[300:].assign(town="nowhere"))


@pytest.mark.slow
def test_a_search_in_the_order_of_time_and_a_pipeline(rows):
    line = make_pipeline(FunctionTransformer(lambda frame: frame.rename(columns={"who": "src"})),
                         LinkForecaster("popularity", client="town"))
    search = GridSearchCV(line, {"linkforecaster__method": ["popularity", "recency"]},
                          cv=TimeSeriesSplit(2), error_score="raise")
    search.fit(rows.rename(columns={"src": "who"}))
    found = search.cv_results_["mean_test_score"]
    assert search.best_params_ == {"linkforecaster__method": "recency"} and found[1] > found[0]
    by_hand = [LinkForecaster("recency", client="town").fit(rows.iloc[a]).score(rows.iloc[b])
               for a, b in TimeSeriesSplit(2).split(rows)]
    assert found[1] == np.mean(by_hand)


def test_a_splitter_that_shuffles_is_refused(rows):
    with pytest.raises(ValueError, match=r"scored on later rows alone; .* with TimeSeriesSplit"):
        cross_val_score(LinkForecaster("recency"), rows, cv=KFold(3), error_score="raise")


def test_a_fork_leaves_the_model_where_it_is(tmp_path):
    _delete(tmp_path, os.getpid() + 1)
    assert tmp_path.exists()
    _delete(tmp_path, os.getpid())
    assert not tmp_path.exists()


@pytest.mark.slow
def test_parameters_clone_and_pickle(rows, fitted):
    fitted.partial_fit(rows[300:350])
    other = pickle.loads(pickle.dumps(fitted))
    for one in (fitted, other):
        one.partial_fit(rows[350:])
    assert np.array_equal(other.decision_function(rows), fitted.decision_function(rows), True)
    with pytest.raises(ValueError, match=f"and the last learned one {rows.time.max()}: a forecast"):
        other.score(rows[-1:])
    fresh = clone(fitted.set_params(method="fedlink", method__rounds=3))
    assert not hasattr(fresh, "learned_") and fresh.method == fv.FedLink(rounds=3)
    assert fresh.get_params()["method__rounds"] == 3
    with pytest.raises(ValueError, match=r'"method\.round".*mean "method.rounds"'):
        fresh.set_params(method__round=3)


@pytest.mark.parametrize(("params", "frame", "sentence"), [
    ({"method": "power"}, None, "power answers for nodes; choose a method for links"),
    ({"method": "fedlinc"}, None, 'no method called "fedlinc"'),
    ({"method": 3}, None, "method is 3, but must be"),
    ({"random_state": -1}, None, "random_state is -1"),
    ({"client": "city"}, None, 'no column "city"'),
    ({}, np.zeros((3, 3)), "X is an array, which is not supported; give a frame"),
    ({}, pd.DataFrame({"src": [1.5], "dst": [1], "time": [1]}), "src")])
def test_what_cannot_be_learned_is_refused_in_one_sentence(rows, params, frame, sentence):
    with pytest.raises(ValueError, match=sentence):
        LinkForecaster(**params).fit(rows if frame is None else frame)


def test_rows_that_are_refused_change_nothing(rows, fitted):
    before = fitted.decision_function(rows)
    bad = rows[300:].assign(time=rows.time[300:] + 0.5)
    with pytest.raises(ValueError, match="a time with a fraction"):
        fitted.partial_fit(bad)
    assert np.array_equal(fitted.decision_function(rows), before, True)
    with pytest.raises(ValueError, match='no column "town"'):
        fitted.predict(rows.drop(columns="town"))


def test_the_checks_of_scikit_learn():
    found = check_estimator(LinkForecaster("recency"), expected_failed_checks=LINK_CHECKS,
                            on_skip=None)
    assert {one["check_name"] for one in found if one["status"] == "xfail"} == set(LINK_CHECKS)


def test_stages_of_numpy_and_a_server_that_holds_the_graph(rows):
    made = LinkForecaster(fv.DgCoLearn.tiny(), client="town", stages=np.int64(100)).fit(rows)
    assert len(made.learned_.run.plan) == 4
    assert None not in made.predict(rows).tolist()


def test_text_after_whole_numbers(rows):
    first = pd.DataFrame({"src": [1, 2] * 20, "dst": [7, 8] * 20, "time": range(40)})
    more = pd.DataFrame({"src": ["2", "b"], "dst": ["7", "c"], "time": [50, 51]})
    made = LinkForecaster("recency").fit(first).partial_fit(more)
    assert [str(item) for item in made.predict(more)] == ["7", "c"]


def test_numbers_stay_numbers():
    rows = pd.DataFrame({"src": [1, 2] * 20, "dst": [7, 8] * 20, "time": range(40)})
    made = LinkForecaster("recency").fit(rows)
    assert made.predict(rows).tolist() == rows["dst"].tolist()
    assert made.top(rows[:1])[["src", "dst"]].to_numpy().tolist() == [[1, 7], [1, 8]]
