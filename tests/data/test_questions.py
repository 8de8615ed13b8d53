"""Doubts of a table: what is asked before a long run, and what is noted."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fedvine as fv
from fedvine.core.errors import FedvineError
from fedvine.core.rng import rng
from fedvine.data.io.nodes import read_graph
from fedvine.experiments.experiment import Experiment
from fedvine.tasks.class_incremental import ClassIncremental
from fedvine.tasks.task_plan import TaskSettings


def edges(times):
    draw = rng("doubts")
    count = len(times)
    return pd.DataFrame({"src": draw.integers(0, 9, count), "dst": draw.integers(0, 9, count),
                         "time": times})


def read(table, **options):
    return fv.from_frame(table, src="src", dst="dst", time="time", **options)


def days(count=300):
    return pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(count) % 90, unit="D")


@pytest.mark.parametrize("unit", ["ms", "a row of 1970"])
def test_stages_of_which_nearly_all_are_empty_are_questioned(unit):
    seconds = ((days() - pd.Timestamp(0)) // pd.Timedelta("1s")).to_numpy()
    times = 1000 * seconds if unit == "ms" else np.append(seconds, 0)
    stream = read(edges(times), sure=True)
    with pytest.raises(FedvineError, match=r"nearly all of them have no edge.*--time-format"):
        stream.by_time("7d")
    assert len(read(edges(seconds), sure=True).by_time("7d")) == 13


def test_a_thousand_stages_with_edges_are_none_to_question():
    assert len(read(edges(np.arange(3000)), sure=True).by_time(3)) == 1000


@pytest.mark.parametrize(("form", "said"), [("%Y%m%d", "%Y%m%d"), ("%Y%m%d%H%M%S", "%H%M%S")])
@pytest.mark.parametrize("text", [True, False])
def test_digits_of_a_date_are_no_seconds(form, said, text):
    written = days().strftime(form)
    table = edges(written if text else written.astype("int64"))
    with pytest.raises(FedvineError, match=f"holds dates such as 2024.*{said}"):
        read(table)
    found = read(table, time_format=form)
    assert found.dates and len(found.by_time("7d")) == 13


@pytest.mark.parametrize(("by", "said"), [(10 ** 3, "milliseconds"), (10 ** 6, "microseconds"),
                                          (10 ** 9, "nanoseconds")])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.usefixtures("here")
def test_times_far_after_today_are_of_another_unit(by, said, kind):
    seconds = ((days(60) - pd.Timestamp(0)) // pd.Timedelta("1s")).to_numpy()
    table = edges(by * seconds).rename(columns={"time": "at"})
    table.to_csv("t.csv", index=False) if kind == "csv" else table.to_parquet("t.parquet")
    named = {"src": "src", "dst": "dst", "time": "at"}
    with pytest.raises(FedvineError, match=f'"at" hold {said}.*divide them by {by:,}.*--sure') as e:
        fv.read(f"t.{kind}", **named)
    assert str(fv.read(f"t.{kind}", **named, sure=True).t[0]) in str(e.value)
    query, = re.findall("--data '(.*)', or", str(e.value))      # the remedy is one
    found = fv.read(query, **named)
    assert found.t.tolist() == sorted(seconds.tolist()) and len(found.by_time("7d")) == 8
    with pytest.raises(FedvineError, match=r"divide them by [0-9,]+, or say"):
        fv.from_frame(table, **named)


def test_numbers_beside_dates_are_both_named():
    times = [str(t) for t in days(40)]
    times[7] = "1706000000"
    with pytest.raises(FedvineError, match="numbers, as in row 8, and dates, as in row 1"):
        read(edges(times))


def nodes(classes, count=60, **columns):
    return pd.DataFrame({"id": np.arange(count), "label": np.arange(count) % classes, **columns})


NEAR = pd.DataFrame({"src": [0, 1, 2], "dst": [1, 2, 3]})


def test_a_label_that_names_each_node_is_questioned():
    age = np.arange(400) % 7
    with pytest.raises(FedvineError, match=r'is "label" the class of a node.* 400 values'):
        read_graph(nodes(400, 400, age=age), NEAR)
    assert len(read_graph(nodes(400, 400, age=age), NEAR, sure=True).classes) == 400


def test_columns_of_very_different_size_are_questioned(tmp_path):
    draw = rng("sizes")
    plain = {"age": draw.uniform(20, 80, 60), "share": draw.random(60)}
    assert not read_graph(nodes(3, **plain), NEAR).notes
    table = nodes(3, **{**plain, "my money": draw.lognormal(12, 1, 60)})
    with pytest.raises(FedvineError, match=r'"my money" goes up to .* and "share" to') as error:
        read_graph(table, NEAR)
    assert read_graph(table, NEAR, sure=True).features == 3
    words = {f"w{i}": np.r_[10.0 ** -(i % 5 * (i < 40)), np.zeros(59)] for i in range(99)}
    assert not read_graph(nodes(3, **words), NEAR).notes    # of many, some are rare
    with pytest.raises(FedvineError, match=r'"my money" goes up to'):
        read_graph(nodes(3, **words, **{"my money": table["my money"]}), NEAR)
    said = re.search(r"--set '(.*?)'", str(error.value))
    assert said is not None
    table.to_csv(tmp_path / "nodes.csv", index=False)
    NEAR.to_csv(tmp_path / "edges.csv", index=False)
    made = Experiment.model_validate({"method": "power", "data": {
        "source": str(tmp_path / "nodes.csv"), "edges": str(tmp_path / "edges.csv")}})
    _, split, _ = made.with_settings([said[1]]).open()      # what it proposes can be said so
    x = split.stream.x[:, list(split.stream.columns).index("my money")]
    assert abs(x.mean()) < 0.01 and abs(x.std() - 1) < 0.01


@pytest.mark.parametrize(("scales", "said"), [
    ({"agee": [0, 1]}, 'no feature "agee" .did you mean "age"'), ({"age": [0, 0]}, "above 0"),
    ({"age": 3}, "a mean and a deviation"), ({"age": [1, "x"]}, "such as")], ids=str)
def test_wrong_scales_are_refused(scales, said):
    with pytest.raises(FedvineError, match=said):
        read_graph(nodes(3, age=np.arange(60)), NEAR, scales=scales)


def test_a_table_without_features_says_what_is_learned_from():
    assert "logarithm of their number of neighbours" in read_graph(nodes(3), NEAR).notes[-1]


@pytest.mark.parametrize(("classes", "stages", "said"), [
    (3, None, "so class 2 (20 nodes) is left out; --stages 1 or 3 takes all"),
    (5, 3, "so classes 3, 4 (24 nodes) are left out; --stages 1 or 5"), (4, None, None)])
def test_classes_of_no_task_are_noted(classes, stages, said):
    table = read_graph(nodes(classes, age=np.arange(60) % 5), NEAR)
    for graph, note in ((table, None), (replace(table, ids=None), said)):    # own tables leave none
        split, _ = ClassIncremental.prepare(graph, {"by": "hash", "k": 2}, stages,
                                            TaskSettings(), 0)
        assert any(note in x for x in split.stream.notes) if note else not split.stream.notes
