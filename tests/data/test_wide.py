"""Columns of numbers in pieces: as pandas reads them at once, whatever the pieces."""

from pathlib import Path

import numpy as np
import pandas
import pytest

from fedvine.core.errors import FedvineError
from fedvine.core.rng import rng
from fedvine.data.io import nodes
from fedvine.data.io.nodes import read_graph

pytestmark = pytest.mark.usefixtures("here")


def frame(rows=5000, columns=23):
    draw = rng("wide")
    x = pandas.DataFrame(draw.normal(size=(rows, columns)).round(3),
                         columns=[f"x {j}" for j in range(columns)])
    x.insert(3, "name", [f"n{i}" for i in range(rows)])
    x.insert(0, "node", np.arange(rows)[::-1])
    x.insert(9, "label", draw.integers(0, 3, rows))
    x["whole"] = draw.integers(-5, 5, rows)
    x["note"] = "words"
    return x


@pytest.mark.slow
@pytest.mark.parametrize(("block", "kind"), [
    (1, "frame"), (4, "csv"), (5, "many"), (24, "query"), (256, "parquet"), (256, "csv")])
def test_the_pieces_make_the_table(monkeypatch, block, kind):
    monkeypatch.setattr(nodes, "BLOCK", block)
    monkeypatch.setattr(nodes, "BATCH", 100)
    whole = frame()
    whole.to_csv("t.csv", index=False)
    whole.to_parquet("t.parquet")
    Path("many").mkdir()
    whole[:1234].to_parquet("many/a.parquet"), whole[1234:].to_parquet("many/b.parquet")
    source = {"csv": "t.csv", "parquet": "t.parquet", "many": "many", "frame": whole,
              "query": "SELECT * FROM 't.parquet' ORDER BY hash(node)"}[kind]
    Path("e.csv").write_text("src,dst\n1,2\n")
    graph = read_graph(source, "e.csv")
    expected = whole.drop(columns=["node", "label", "name", "note"]).to_numpy(np.float32)
    if kind == "query":         # drawn once, and all columns of a row stay together
        order = [tuple(row) for row in np.asarray(graph.x).tolist()]
        assert sorted(order) == sorted(map(tuple, expected.tolist()))
        place = dict(zip(map(tuple, expected.tolist()), whole["label"], strict=True))
        assert [place[row] for row in order] == graph.y.tolist()
    else:
        np.testing.assert_array_equal(np.asarray(graph.x), expected)
        assert graph.y.tolist() == whole["label"].tolist()
    assert graph.x.flags.c_contiguous


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(("column", "value", "words"), [
    ("x 7", np.nan, '"x 7" is empty in row 4322'), ("whole", np.inf, '"whole" holds "inf" in row')])
def test_a_bad_number_is_named_wherever_it_is(monkeypatch, kind, column, value, words):
    monkeypatch.setattr(nodes, "BLOCK", 4)
    whole = frame()
    whole[column] = whole[column].astype(float)
    whole.loc[4321, column] = value
    whole.to_csv("t.csv", index=False) if kind == "csv" else whole.to_parquet("t.parquet")
    Path("e.csv").write_text("src,dst\n1,2\n")
    with pytest.raises(FedvineError, match=words):
        read_graph(f"t.{kind}", "e.csv")
