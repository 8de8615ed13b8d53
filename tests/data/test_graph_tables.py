"""A person's own tables of nodes and edges: what is read, what is refused, what is learned."""

import csv
from dataclasses import replace

import numpy as np
import pandas as pd
import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pages.test_readme import code
from wrong import fedvine

from fedvine.core.errors import FedvineError
from fedvine.core.rng import rng
from fedvine.data.graph import Graph, Owner
from fedvine.data.identity import digest, names
from fedvine.data.ids import Ids
from fedvine.data.io.nodes import read_graph
from fedvine.experiments.experiment import Experiment
from fedvine.results.cells import cells
from fedvine.results.compare import gathered

TINY = {"rounds": 2, "epochs": 2, "hidden": 4}


def write(folder, nodes, edges):
    """``nodes.csv`` and ``edges.csv`` of rows that begin with a header."""
    for name, rows in (("nodes.csv", nodes), ("edges.csv", edges)):
        with open(folder / name, "w", newline="") as file:
            csv.writer(file).writerows(rows)
    return str(folder / "nodes.csv"), str(folder / "edges.csv")


def banks(count=90, classes="abcd", owners=("north", "south", "west"), links=200):
    """Nodes whose first features tell their class; edges within a class, mostly."""
    draw = rng("banks", count, len(classes))
    y, owner = draw.integers(0, len(classes), count), draw.integers(0, len(owners), count)
    x = np.eye(len(classes))[y] * 3 + draw.normal(size=(count, len(classes)))
    nodes = [["id", *(f"x{i}" for i in range(len(classes))), "bank", "label"]]
    nodes += [[f"n{i}", *x[i].round(4), owners[owner[i]], classes[y[i]]] for i in range(count)]
    a = draw.integers(0, count, links)
    b = [draw.choice(np.flatnonzero(y == y[i])) for i in a]
    return nodes, [["src", "dst"], *([f"n{i}", f"n{j}"] for i, j in zip(a, b, strict=True))]


# -- what is read --------------------------------------------------------------------------------
def slow(nodes, edges):
    """The graph of two lists of dictionaries, by the letter of the documentation."""
    number = {str(row["node"]): i for i, row in enumerate(nodes)}
    classes = sorted({row["label"] for row in nodes if row["label"] is not None},
                     key=lambda c: (0, int(c), "") if c.isdigit() else (1, 0, c))
    ends = {(min(a, b), max(a, b)) for row in edges
            for a, b in [(number[str(row["src"])], number[str(row["dst"])])] if a != b}
    return (np.array([[row["u"], row["v"]] for row in nodes], np.float32), sorted(ends),
            [-1 if row["label"] is None else classes.index(row["label"]) for row in nodes], classes,
            [row["town"] for row in nodes])


LABELS = st.sampled_from([("9", "10", "2"), ("shop", "Person", "ä b")])
NUMBERS = st.floats(-1e6, 1e6, width=32)


@pytest.mark.slow
@settings(max_examples=12)
@given(st.data())
def test_tables_of_all_kinds_are_the_graph_of_a_slow_reader(tmp_path_factory, data):
    ids = data.draw(st.one_of(
        st.lists(st.integers(-5, 99), min_size=1, max_size=9, unique=True),
        st.lists(st.text("ab7 ,\"é", max_size=3).map(lambda s: f"k{s}".rstrip()), min_size=1,
                 max_size=9, unique=True)))
    labels = data.draw(LABELS)
    nodes = [{"node": i, "u": data.draw(NUMBERS), "about": f"it is {i}", "v": data.draw(NUMBERS),
              "town": data.draw(st.sampled_from(["x", "y", "z"])),
              "label": labels[0] if k == 0 else data.draw(st.sampled_from([*labels, None]))}
             for k, i in enumerate(ids)]
    edges = [{"src": data.draw(st.sampled_from(ids)), "w": 1.5, "dst": data.draw(
        st.sampled_from(ids))} for _ in range(data.draw(st.integers(0, 12)))]
    x, ends, y, classes, owners = slow(nodes, edges)
    folder = tmp_path_factory.mktemp("tables")
    frames = (pd.DataFrame(nodes), pd.DataFrame(edges, columns=["src", "w", "dst"]).astype(
        {c: pd.DataFrame(nodes)["node"].dtype for c in ("src", "dst")}))
    for frame, name in zip(frames, ("n", "e"), strict=True):
        frame.to_csv(folder / f"{name}.csv", index=False)
        frame.to_parquet(folder / f"{name}.parquet")
    found = [read_graph(n, e, client="town", sure=True) for n, e in [
        (folder / "n.csv", folder / "e.csv"), (folder / "n.parquet", folder / "e.parquet"),
        (f"SELECT * FROM '{folder}/n.parquet'", f"SELECT dst, src FROM '{folder}/e.parquet'"),
        frames, tuple(map(polars.from_pandas, frames)), (folder / "n.csv", folder / "e.parquet")]]
    for graph in found:
        np.testing.assert_array_equal(graph.x, x)
        assert list(map(tuple, graph.edges.T)) == ends
        assert (graph.y.tolist(), list(graph.classes)) == (y, classes)
        assert graph.owner is not None and graph.owner.column == "town"
        assert [graph.owner.names[i] for i in graph.owner.of] == owners
        assert (digest(graph), names(graph)) == (digest(found[0]), names(found[0]))


@pytest.mark.parametrize(("labels", "classes", "y"), [
    (["1.0", "", "10.0", "2.0"], ("1", "2", "10"), [0, -1, 2, 1]),      # as pandas writes gaps
    (["NaN", "-1", "1", " "], ("-1", "1"), [-1, 0, 1, -1]),
    (["0.5", "b", "", "10"], ("0.5", "10", "b"), [0, 2, -1, 1]),
    (["007", "7", "07", "7"], ("007", "07", "7"), [0, 2, 1, 2]),
])
def test_classes_are_numbered_in_order_and_may_be_unknown(tmp_path, labels, classes, y):
    found = read_graph(*write(tmp_path, [["id", "x", "label"], *(
        [i, 0, label] for i, label in enumerate(labels))], [["src", "dst"]]))
    assert (found.classes, found.y.tolist()) == (classes, y)


def test_a_float_column_with_gaps_holds_classes(tmp_path):
    nodes = pd.DataFrame({"id": [1, 2, 3], "x": [0.0, 1.0, 2.0], "label": [2.0, np.nan, 10.0]})
    found = read_graph(nodes, pd.DataFrame({"src": [1.0, 2.0], "dst": [3.0, 3.0]}))
    assert (found.classes, found.y.tolist()) == (("2", "10"), [0, -1, 1])
    assert found.edges.tolist() == [[0, 1], [2, 2]]


def test_columns_are_chosen_by_name(tmp_path):
    tables = write(tmp_path, [["id", "account", "a", "kind", "b", "note"],
                              [5, "p", 1, "x", 2, "m"], [6, "q", 3, "y", 4, ""]],
                   [["from", "to", "src"], ["p", "q", 7]])
    columns = {"node": "account", "label": "kind", "src": "from", "dst": "to"}
    found = read_graph(*tables, **columns)
    assert np.asarray(found.x).tolist() == [[5, 1, 2], [6, 3, 4]]
    assert found.edges.tolist() == [[0], [1]]
    chosen = read_graph(*tables, **columns, features=["b", "a"])
    assert np.asarray(chosen.x).tolist() == [[2, 1], [4, 3]]
    assert read_graph(*tables, **columns, name="mine").name == "mine"
    assert found.owner is None


def test_true_and_false_are_numbers(tmp_path):
    rows = [["id", "active", "kind", "maybe", "label"], [1, "True", "x", "true", "a"],
            [2, "false", "y", "", "b"], [3, "TRUE", "true", "false", "a"]]
    nodes, edges = write(tmp_path, rows, [["src", "dst"], [1, 2]])
    found = read_graph(nodes, edges)
    assert np.asarray(found.x).tolist() == [[1], [0], [1]] and found.columns == ("active",)
    assert np.asarray(read_graph(nodes, edges, features="active").x).tolist() == [[1], [0], [1]]
    with pytest.raises(FedvineError, match=r'"kind" holds "x" in row 1'):
        read_graph(nodes, edges, features=["active", "kind"])
    frame = pd.DataFrame({"id": [1, 2], "active": [True, False], "label": ["a", "b"]})
    whole = read_graph(frame, pd.DataFrame({"src": [1], "dst": [2]}))
    assert np.asarray(whole.x).tolist() == [[1], [0]]


def test_names_that_are_nearly_the_same_get_a_note(tmp_path):
    rows = [["id", "x", "bank", "label"], [1, 0, "North", "a"], [2, 1, "north ", "b"],
            [3, 2, "south", "A"]]
    tables = write(tmp_path, rows, [["src", "dst"], [1, 2]])
    bank, label = [note for note in read_graph(*tables, client="bank").notes if "differ" in note]
    assert '2 names of "bank"' in bank and 'such as "North" and "north"; they count as' in bank
    assert '2 names of "label"' in label and 'such as "A" and "a"; they count as' in label
    sure = read_graph(*tables, client="bank", sure=True).notes
    assert not any("differ" in note for note in sure)


def test_without_any_other_column_a_node_is_described_by_its_neighbours(tmp_path):
    tables = write(tmp_path, [["id", "town", "label"], *([i, "t", "a"] for i in range(4))],
                   [["src", "dst"], [0, 1], [1, 0], [2, 1], [3, 3]])
    found = read_graph(*tables, client="town")
    np.testing.assert_allclose(np.asarray(found.x), np.log([[2], [3], [2], [1]]), rtol=1e-6)


# -- what is refused -----------------------------------------------------------------------------
NODES = [["id", "x", "bank", "label"], ["a", "1", "n", "u"], ["b", "2", "n", ""],
         ["c", "3", "s", "v"]]
EDGES = [["src", "dst"], ["a", "b"], ["b", "c"]]


def changed(rows, row, column, value):
    return [[value if (i, j) == (row, column) else cell for j, cell in enumerate(line)]
            for i, line in enumerate(rows)]


REFUSED = [
    (changed(NODES, 3, 0, "a"), EDGES, {}, 'column "id" holds "a" in row 1 and in row 3'),
    (changed(NODES, 2, 0, ""), EDGES, {}, 'nodes.csv: column "id" is empty in row 2'),
    (NODES, changed(EDGES, 2, 1, "zz"), {}, 'edges.csv: column "dst" holds "zz" in row 2, which is '
                                            "no node of .*nodes.csv"),
    ([NODES[0], [7, *NODES[1][1:]]], [["src", "dst"], [7, "zz"]], {}, '"dst" holds "zz" in row 1'),
    (NODES, changed(EDGES, 1, 0, ""), {}, 'edges.csv: column "src" is empty in row 1'),
    (changed(NODES, 2, 1, ""), EDGES, {}, 'nodes.csv: column "x" is empty in row 2'),
    (changed(NODES, 2, 1, "NaN"), EDGES, {}, 'column "x" holds "NaN" in row 2, .* finite number'),
    (changed(NODES, 3, 1, "-inf"), EDGES, {}, 'column "x" holds "-inf" in row 3'),
    (changed(NODES, 3, 1, "1e99"), EDGES, {}, 'column "x" holds "1e99" in row 3'),
    (changed(NODES, 1, 1, "tall"), EDGES, {}, 'column "x" holds "tall" in row 1'),
    (NODES, EDGES, {"features": ["a"]}, 'no column "a"'),
    ([[r[0], f"t{r[0]}", *r[2:]] for r in NODES], EDGES, {}, "no column of numbers to learn from "
                                                             "beside id and label"),
    ([[r[0], r[3]] for r in NODES], EDGES[:1], {}, "no column of numbers"),
    ([[*r[:3], "" if i else "label"] for i, r in enumerate(NODES)], EDGES, {},
     'column "label" is empty in all rows'),
    (changed(NODES, 2, 2, " "), EDGES, {"client": "bank"}, 'column "bank" is empty in row 2'),
    (changed(NODES, 2, 2, ""), EDGES, {"client": "bank"}, 'column "bank" is empty in row 2'),
    (NODES[:1], EDGES[:1], {}, "nodes.csv has no rows"),
    (NODES, EDGES, {"label": "lable"}, 'no column "lable" .did you mean "label"'),
    (NODES, EDGES, {"dst": "to"}, 'edges.csv has no column "to"'),
    (NODES, EDGES, {"label": "bank", "client": "bank"}, "label and client are the same column"),
    (NODES, EDGES, {"features": ["x", "label"]}, "label and features are the same column"),
    (NODES, EDGES, {"dst": "src"}, "src and dst are the same column"),
    (NODES, EDGES, {"features": []}, "must be names of columns"),
    (NODES, EDGES, {"features": ["bank"]}, 'column "bank" holds "n" in row 1'),
    (NODES, EDGES, {"node": 3}, "node is 3, but must be the name of a column"),
]


@pytest.mark.parametrize(("nodes", "edges", "options", "said"), REFUSED,
                         ids=lambda v: v[:30] if isinstance(v, str) else "")
def test_what_is_wrong_is_said_in_one_sentence(tmp_path, nodes, edges, options, said):
    with pytest.raises(FedvineError, match=said) as error:
        read_graph(*write(tmp_path, nodes, edges), **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("nodes", "said"), [
    ("nowhere.csv", "nowhere.csv does not exist"), ("empty.csv", "empty.csv is empty"),
    ("SELECT * FROM nowhere", "the query of nodes could not be read"),
    ("SELECT 1 AS id, 'a' AS label, 'NaN'::FLOAT AS x", 'the query of nodes: column "x" is empty'),
    ([1, 2], "A list is no table"),
])
def test_a_source_that_is_no_table_of_nodes(here, nodes, said):
    (here / "empty.csv").touch()
    with pytest.raises(FedvineError, match=said):
        read_graph(nodes, pd.DataFrame({"src": [1], "dst": [1]}))


@pytest.mark.parametrize(("more", "said"), [
    (["--edges", "bad.csv"], '"zz" in row 2'), ([], "name that of its edges with --edges"),
    (["--label", "label"], "name the table of its edges with --edges"),
    (["--edges", "edges.csv", "--time", "x"], 'edges.csv has no column "x"'),
    (["--edges", "edges.csv", "--node", "nn"], "Name columns with --node"),
    (["--edges", "edges.csv", "--stages", "3"], "has 2 classes; a task cannot have 3"),
    (["--edges", "edges.csv", "--split", "bank"], 'no column "bank" to split by'),
    (["--edges", "edges.csv", "--set", "data.options.feature=x"], 'data.options has "feature"'),
])
def test_a_bad_command_changes_nothing_on_disk(here, cache, more, said):
    write(here, NODES, EDGES)
    write(here, NODES, changed(EDGES, 2, 1, "zz"))
    (here / "edges.csv").rename("bad.csv")
    write(here, NODES, EDGES)
    before = {p: p.read_bytes() for p in here.iterdir()}
    code, _, told = fedvine("run", "power", "--data", "nodes.csv", *more)
    assert code == 2 and said in told and told.count("\n") == 1
    assert {p: p.read_bytes() for p in here.iterdir()} == before and not list(cache.iterdir())


def test_data_sets_and_link_methods_take_no_second_table(tmp_path):
    nodes, edges = write(tmp_path, NODES, EDGES)
    with pytest.raises(FedvineError, match="leave out edges"):
        Experiment.model_validate({"data": {"source": "cora", "edges": edges},
                                   "method": "power"}).open()
    with pytest.raises(FedvineError, match="nodes is a labelled graph"):
        Experiment.model_validate({"data": {"source": nodes, "edges": edges},
                                   "method": "edgebank"}).open()


# -- whose nodes they are ------------------------------------------------------------------------
def test_nodes_go_to_their_owners(tmp_path):
    graph = read_graph(*write(tmp_path, *banks()), client="bank")
    assert graph.owner is not None
    whose = np.array(graph.owner.names)[graph.owner.of]
    for by in ("bank", "client"):
        found = graph.split(by=by)
        assert list(found) == ["north", "south", "west"]
        for name, part in found.parts.items():
            assert isinstance(part, Graph) and part.owner is not None
            np.testing.assert_array_equal(part.nodes, np.flatnonzero(whose == name))
            assert {part.owner.names[i] for i in part.owner.of} == {name}
    assert list(graph.split(by="bank", clients=["west"])) == ["west"]
    dealt = graph.split(by="hash", k=2).parts
    for part in dealt.values():     # another split leaves the owners where they are
        assert isinstance(part, Graph) and part.owner is not None
        assert (np.array(part.owner.names)[part.owner.of] == whose[part.nodes]).all()
    with pytest.raises(FedvineError, match="by bank, "):
        graph.split(by="banks")


def test_owners_count_for_what_a_graph_is(tmp_path):
    graph = read_graph(*write(tmp_path, *banks()), client="bank")
    assert graph.owner is not None
    of = graph.owner.of.copy()
    of[0] = (of[0] + 1) % 3
    moved = replace(graph, owner=graph.owner._replace(of=of))
    renamed = replace(graph, owner=graph.owner._replace(names=("n", "s", "w")))
    other = replace(graph, owner=graph.owner._replace(column="town"))
    none = replace(graph, owner=None)
    assert len({digest(g) for g in (graph, moved, none)}) == 3
    assert len({names(g) for g in (graph, renamed, other, none)}) == 4
    assert graph.ids is not None
    again = replace(graph, ids=Ids.of([f"p{i}" for i in range(len(graph.y))]))
    assert names(again) != names(graph)     # and which nodes are of the test
    for wrong in (graph.owner.of[1:], graph.owner.of + 1, graph.owner.of - 1):
        with pytest.raises(FedvineError, match="one a node, from 0 to 2"):
            Graph.make(graph.x, graph.edges, graph.y, owner=Owner(wrong, graph.owner.names))


# -- experiments ---------------------------------------------------------------------------------
def experiment(tables, method, **more):
    return Experiment.model_validate({
        "data": {"source": tables[0], "edges": tables[1], "client": "bank"},
        "method": {"name": method, **TINY}, **more})


def test_the_clients_column_is_the_split_unless_another_is_asked_for(tmp_path):
    tables = write(tmp_path, *banks())
    made = experiment(tables, "power")
    assert made.plain()["split"] == {"by": "bank"}
    assert list(made.open()[1]) == ["north", "south", "west"]
    other = made.updated({"split": {"by": "louvain", "k": 2}})
    assert list(other.open()[1]) == ["client-1", "client-2"]
    alone = made.model_copy(update={"data": made.data.model_copy(update={"client": None})})
    assert alone.plain()["split"] == {"by": "louvain", "k": 3}
    whole = alone.open()[1].stream
    assert isinstance(whole, Graph) and whole.facts() == {"features": 4, "classes": 4}


def test_a_table_of_scores_says_what_a_seed_draws(tmp_path):
    made = experiment(write(tmp_path, *banks()), "power")
    for split, drawn in (({}, False), ({"by": "louvain", "k": 2}, True),
                         ({"by": "louvain", "k": 2, "seed": 3}, False)):
        found = gathered([[cells([made.updated({"split": split})], tmp_path)]], ["power"])
        assert found.notes()[0].endswith(
            "A seed draws " + "the partition, " * drawn + "the order of tasks, the training nodes "
            "and the initialisation.")


@pytest.mark.slow
def test_an_experiment_file_finds_both_tables_beside_it(tmp_path, monkeypatch):
    nodes, edges = write(tmp_path, *banks())
    (tmp_path / "own.toml").write_text('[data]\nsource = "nodes.csv"\nedges = "edges.csv"\n'
                                       'client = "bank"\n[method]\nname = "power"\n')
    monkeypatch.chdir("/")
    made = Experiment.read(tmp_path / "own.toml")
    assert (made.data.source, made.data.edges) == (nodes, edges)
    run = made.updated({"method": TINY}).run(tmp_path / "run").finish()
    again = Experiment.of_run(tmp_path / "run")
    assert again.identity() == made.updated({"method": TINY}).identity()
    assert again.run(tmp_path / "run").finish().scores == run.scores


def test_the_lines_of_the_page_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, *banks())
    exec(compile(code("docs/howto-own-graph.md"), "howto-own-graph.md", "exec"), {})
    assert 0 <= float(capsys.readouterr().out) <= 100


# -- what methods make of odd graphs -------------------------------------------------------------
def odd(case):
    """Nodes, edges, and which clients take part."""
    nodes, edges = banks()
    head, *rows = nodes
    if case == "half of the labels are missing":
        rows = [[*r[:-1], "" if i % 2 else r[-1]] for i, r in enumerate(rows)]
    if case == "a client without any label":
        rows = [[*r[:-1], "" if r[-2] == "west" else r[-1]] for r in rows]
    if case in ("a client with one class", "one class at each client"):
        own = {"west": "c"} if case == "a client with one class" else {
            "north": "a", "south": "b", "west": "c"}
        rows = [[*r[:-1], own.get(r[-2], r[-1])] for r in rows]
        rows[0][-1] = "d"
    if case == "a class that no client has":
        rows = [[*r[:-2], "west" if r[-1] == "d" else r[-2], r[-1]] for r in rows]
    if case == "a task that no client has":
        rows = [[*r[:-2], "west" if r[-1] in "cd" else r[-2], r[-1]] for r in rows]
    if case == "a client with one node":
        rows = [[*r[:-2], "south" if r[-2] == "west" else r[-2], r[-1]] for r in rows]
        rows[7][-2] = "west"
    if case == "one node of each class":
        rows = [[*r[:-1], r[-1] if i in [next(j for j, s in enumerate(rows) if s[-1] == c)
                                         for c in "abcd"] else ""] for i, r in enumerate(rows)]
    if case == "features that say nothing":
        rows = [[r[0], *[0] * 4, *r[-2:]] for r in rows]
    if case == "isolated nodes":
        edges = [edges[0], *(e for e in edges[1:] if int(e[0][1:]) < 20 and int(e[1][1:]) < 20)]
    if case == "no edges":
        edges = edges[:1]
    return [head, *rows], edges, (["north", "south"] if case.endswith("no client has") else None)


CASES = ["half of the labels are missing", "a client without any label", "a client with one class",
         "one class at each client", "a class that no client has", "a task that no client has",
         "a client with one node", "one node of each class", "features that say nothing",
         "isolated nodes", "no edges"]


@pytest.mark.parametrize(("case", "method", "keep"), [
    (case, ("power", "replay")[i % 2], i % 3 == 0) for i, case in enumerate(CASES)])
def test_odd_graphs_are_learned_all_the_same(tmp_path, case, method, keep):
    nodes, edges, clients = odd(case)
    made = experiment(write(tmp_path, nodes, edges), method, split={"clients": clients},
                      tasks={"keep_inter_task_edges": keep})
    run = made.run(tmp_path / "run").finish()
    owners = {r[-2] for r in nodes[1:]} & set(clients or ["north", "south", "west"])
    assert set(run.clients.names) == owners
    test = run.scores["test"]
    if case == "one node of each class":    # each is learned from, none is left to ask
        assert test["mean"] == {} and test["client"] == {}
        return
    assert 0 <= test["mean"]["am"] <= 100
    assert all(0 <= scores["am"] <= 100 for scores in test["client"].values())
    silent = owners - set(test["client"])
    assert silent == {"a client without any label": {"west"},
                      "a client with one node": {"west"}}.get(case, set())
