"""Features of nodes from what a table says of their edges."""

import csv
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvine.core.errors import FedvineError
from fedvine.core.rng import rng
from fedvine.data.edge_rows import DATE, SHARES, TIME, EdgeRows
from fedvine.data.graph import Graph
from fedvine.data.io.nodes import read_graph
from fedvine.data.node_features import scales, sums
from fedvine.data.spec import Data
from fedvine.data.stream import CATEGORY, NUMBER
from fedvine.living.graph_news import merged

NODES = 6
VALUES = st.tuples(st.integers(-1, NODES - 1), st.integers(-1, NODES - 1), st.integers(0, 200_000),
                   st.sampled_from([-2.5, 0.0, 3.0, 1e6]), st.sampled_from([-1.0, 3.0, 11.0]))


def rows_of(rows, time=DATE):
    table = np.array(rows, float).reshape(-1, 5)
    return EdgeRows(table[:, 0].astype(np.int32), table[:, 1].astype(np.int32), table[:, 2:],
                    {"at": time, "amount": NUMBER, "kind": CATEGORY})


def slow(rows, nodes):
    """The features, node by node."""
    def log(v):
        return np.sign(v) * np.log1p(abs(v))

    found = []
    for node in range(nodes):
        line = []
        for side in (0, 1):
            mine = sorted((r for r in rows if r[side] == node), key=lambda r: r[2])
            line.append(np.log1p(len(mine)))
            gaps = [np.log1p(b[2] - a[2]) for a, b in pairwise(mine)] or [0]
            turns = [2 * np.pi * r[2] / 86_400 for r in mine] or [0]
            line += [np.mean(gaps), np.std(gaps), np.mean(np.sin(turns)),
                     np.mean(np.cos(turns)) if mine else 0]
            amounts = [log(r[3]) for r in mine] or [0]
            line += [np.mean(amounts), np.std(amounts), log(sum(r[3] for r in mine))]
            line += [sum(r[4] >= 0 and r[4] % SHARES == g for r in mine) / max(len(mine), 1)
                     for g in range(SHARES)]
        found.append(line)
    return np.array(found)


@given(st.lists(VALUES, max_size=30), st.randoms(use_true_random=False))
def test_they_are_those_of_a_slow_reader_in_any_order_of_rows(rows, draw):
    found = rows_of(rows)
    x = found.features(NODES)
    np.testing.assert_allclose(x, slow(rows, NODES), rtol=1e-5, atol=1e-5)
    assert x.shape[1] == len(found.names) == len(set(found.names))
    draw.shuffle(rows)
    np.testing.assert_array_equal(rows_of(rows).features(NODES), x)


@given(st.lists(VALUES, max_size=30), st.sets(st.integers(0, NODES - 1)))
def test_a_part_has_of_its_own_nodes_what_the_whole_has(rows, mine):
    nodes = np.array(sorted(mine), int)
    number = np.full(NODES, -1)
    number[nodes] = np.arange(len(nodes))
    whole = rows_of(rows)
    np.testing.assert_array_equal(whole.of(number).features(len(nodes)),
                                  whole.features(NODES)[nodes])


def write(folder, nodes, edges, head=("src", "dst", "amount", "at", "kind")):
    for name, table in (("n.csv", [["id", "x", "label"], *nodes]), ("e.csv", [head, *edges])):
        with open(folder / name, "w", newline="") as file:
            csv.writer(file).writerows(table)
    return folder / "n.csv", folder / "e.csv"


THREE = [["a", 1, "p"], ["b", 2, "q"], ["c", 3, "p"]]
PAID = [["a", "b", 5, "2024-03-01 23:00", "card"], ["a", "b", 7, "2024-03-02", "cash"],
        ["b", "a", -1, "2024-03-02", "card"], ["c", "c", 0, "2024-03-03", ""]]
TOLD = {"weight": "amount", "time": "at", "edge_features": ["kind"]}


def test_a_table_is_read_with_its_kinds(tmp_path):
    found = read_graph(*write(tmp_path, THREE, PAID), **TOLD)
    assert found.edges.tolist() == [[0], [1]]       # repeats and loops count here alone
    assert found.rows.kinds == {"at": DATE, "amount": NUMBER, "kind": CATEGORY}
    named = dict(zip(found.columns, found.x.T.tolist(), strict=True))
    assert named["x"] == [1, 2, 3]
    assert named["out: number"] == pytest.approx(np.log1p([2, 1, 1]))
    assert named["in amount: sum"] == pytest.approx([-np.log(2), np.log(13), 0], abs=1e-6)
    assert named["out at: mean gap"] == pytest.approx([np.log(3601), 0, 0])
    assert sum(named[f"out kind: group {g}"][2] for g in range(SHARES)) == 0    # an empty cell
    assert "20 more features" not in " ".join(found.notes)
    assert f"{len(found.rows.names)} more features" in " ".join(found.notes)
    frames = read_graph(pd.DataFrame(THREE, columns=["id", "x", "label"]), pd.DataFrame(
        PAID, columns=["src", "dst", "amount", "at", "kind"]).astype({"at": "datetime64[us]"}),
        **TOLD)
    np.testing.assert_array_equal(frames.x, found.x)


def test_times_that_are_numbers_have_no_time_of_day(tmp_path):
    tables = write(tmp_path, THREE, [["a", "b", 3], ["a", "c", 9]], ("src", "dst", "t"))
    found = read_graph(*tables, time="t")
    assert found.rows.kinds == {"t": TIME}
    assert found.columns[1:4] == ("out: number", "out t: mean gap", "out t: deviation of gaps")
    assert found.x[0, 2] == pytest.approx(np.log(7))


def test_an_end_may_be_somebody_elses_but_not_both_nor_most(tmp_path):
    far = [*PAID, ["far", "a", 100, "2024-03-04", "card"]]
    found = read_graph(*write(tmp_path, THREE, far), **TOLD)
    assert len(found.edges.T) == 1
    assert found.x[0, found.columns.index("in amount: sum")] == pytest.approx(np.log(100))
    assert "1 of 5 rows have an end that" in " ".join(found.notes)
    with pytest.raises(FedvineError, match='holds "far" in row 5, which is no node'):
        read_graph(*write(tmp_path, THREE, far))        # nothing is told of edges
    both = [*PAID, ["far", "away", 1, "2024-03-04", ""]]
    with pytest.raises(FedvineError, match='holds "far" in row 5, which is no node'):
        read_graph(*write(tmp_path, THREE, both), **TOLD)
    most = [["a", f"x{i}", 1, "2024-03-04", ""] for i in range(6)]
    tables = write(tmp_path, THREE, [*PAID, *most])
    with pytest.raises(FedvineError, match=r'"dst" holds "x0" in row 5.*nor are those of 5 more'):
        read_graph(*tables, **TOLD)
    assert len(read_graph(*tables, **TOLD, sure=True).rows) == 10
    bare = read_graph(*write(tmp_path, THREE, []), **TOLD)
    assert len(bare.rows) == 0 and bare.x.shape == (3, 1 + len(bare.rows.names))
    again = Graph.open(bare.begun().write(tmp_path / "bare") and tmp_path / "bare")
    assert again.as_of(0, 2, 0).induced(np.array([1])).rows.came.shape == (0,)


@pytest.mark.parametrize(("row", "sentence"), [
    (["a", "b", "", "2024-03-01", "x"], '"amount" is empty in row 5'),
    (["a", "b", 1, "soon", "x"], '"at" holds "soon" in row 5'),
])
def test_bad_cells_are_named(tmp_path, row, sentence):
    with pytest.raises(FedvineError, match=sentence):
        read_graph(*write(tmp_path, THREE, [*PAID, row]), **TOLD)


def test_options_name_the_columns(tmp_path):
    nodes, edges = map(str, write(tmp_path, THREE, PAID))
    found = Data(source=nodes, edges=edges, weight="amount", time="at", features=("kind",)).open()
    assert found.columns == read_graph(nodes, edges, **TOLD).columns
    with pytest.raises(FedvineError, match="timezone is of times"):
        Data(source=nodes, edges=edges, timezone="Europe/Berlin").open()
    berlin = Data(source=nodes, edges=edges, time="at", timezone="Europe/Berlin").open()
    assert berlin.rows.values[0, 0] == found.rows.values[0, 0] - 3600


def test_they_are_in_one_unit_at_all_clients(tmp_path):
    graph = read_graph(*write(tmp_path, THREE, PAID), **TOLD)
    parts = [graph.induced(np.array(nodes)) for nodes in ([0, 2], [1])]
    known = scales(map(sums, parts))
    x = np.concatenate([part.scaled(known).x[:, 1:] for part in parts])
    np.testing.assert_allclose(x.mean(0), 0, atol=1e-6)
    spread = x.std(0)
    assert np.all(np.isclose(spread, 1, atol=1e-5) | (spread == 0)) and (spread > 0).any()
    assert not any("amount" in name for name in known["edges"]["numbers"])  # no name leaves


def test_a_graph_is_kept_with_its_rows(tmp_path):
    graph = read_graph(*write(tmp_path, THREE, PAID), **TOLD).begun()
    again = Graph.open(graph.write(tmp_path / "kept").name and tmp_path / "kept")
    for name, array in graph.arrays().items():
        np.testing.assert_array_equal(again.arrays()[name], array)
    assert again.rows.kinds == graph.rows.kinds
    np.testing.assert_array_equal(again.with_rows(again.rows).x, graph.x)


def test_a_graph_that_grows_has_the_features_of_each_block(tmp_path):
    draw = rng("rows that grow")
    names = [f"n{i}" for i in range(30)]
    every = [[names[a], names[b], int(v), int(t), f"k{t % 3}"] for a, b, v, t in zip(
        *draw.integers(0, 30, (2, 150)), draw.integers(0, 99, 150), draw.integers(0, 9999, 150),
        strict=True)]
    nodes = [[name, i, "pq"[i % 2]] for i, name in enumerate(names)]
    nights = [(12, 40), (12, 90), (30, 150)]

    def night(many, rows):
        here = {node[0] for node in nodes[:many]}
        some = [row for row in every[:rows] if here & {row[0], row[1]}]
        return read_graph(*write(tmp_path, nodes[:many], some), **TOLD, sure=True)

    kept = night(*nights[0]).begun()
    for block, size in enumerate(nights[1:], 1):
        kept, news = merged(kept, night(*size), block)
    assert news.nodes == 18
    for block, (many, rows) in enumerate(nights):
        now = kept.as_of(block, 2, 0)
        alone = night(many, rows)
        np.testing.assert_array_equal(now.x, alone.x)
        assert sorted(now.ids[i] for i in range(many)) == sorted(
            alone.ids[i] for i in range(many))
    last = night(*nights[2])
    gone = replace(last.rows, values=last.rows.values + np.eye(3)[1])
    with pytest.raises(FedvineError, match="has vanished or changed"):
        merged(kept, last.with_rows(gone), 3)
    others = {**last.rows.kinds, "kind": NUMBER}
    with pytest.raises(FedvineError, match=r'"kind" of the edges of .* was a category .* a number'):
        merged(kept, last.with_rows(replace(last.rows, kinds=others)), 3)
    with pytest.raises(FedvineError, match=r'"at" of the edges of n was a time .* not read now'):
        merged(kept, last.with_rows(None), 3)


def test_times_that_look_like_amounts_are_asked_about(tmp_path):
    rows = [["a", "b", 5 + 37 * i % 101 / 4, f"2024-03-{1 + i % 28:02}"] for i in range(30)]
    tables = write(tmp_path, THREE, rows, ("src", "dst", "amount", "at"))
    with pytest.raises(FedvineError, match=r'is "amount" a time\?.*"at" holds dates.*--sure'):
        read_graph(*tables, time="amount")
    assert read_graph(*tables, time="amount", sure=True).rows.kinds == {"amount": TIME}
    assert read_graph(*tables, time="at", weight="amount").rows.kinds["at"] == DATE
