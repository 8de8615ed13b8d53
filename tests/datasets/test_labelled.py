"""LabelledGraph graphs as published, and read without a trace."""

from __future__ import annotations

import pickle
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from layouts import REAL, dataset, listing, raw, same
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from fedvine.core import registry
from fedvine.data.graph import Graph
from fedvine.datasets.labelled import LabelledGraph

NAMES = [*REAL, "digits", "roman_empire", "flickr", "ogbn_arxiv"]


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("copies")


@pytest.fixture(scope="module")
def loaded() -> dict[str, Graph]:
    return {}


@pytest.fixture
def graph(request: pytest.FixtureRequest, data: Path, copies: Path,
          loaded: dict[str, Graph]) -> Graph:
    """The real one of ``request.param``, made once from a copy that is compared afterwards."""
    name = request.param
    if name not in loaded:
        copy = raw(name, data, copies)
        before = listing(copies)
        loaded[name] = dataset(name).load(copy)
        assert listing(copies) == before
    return loaded[name]


def real(*names: str):
    return pytest.mark.parametrize("graph", names or list(REAL), indirect=True)


def rows(graph: Graph) -> csr_matrix:
    assert isinstance(graph.x, csr_matrix)
    return graph.x


def adjacency(graph: Graph) -> csr_matrix:
    return csr_matrix((np.ones(graph.edges.shape[1]), graph.edges), (len(graph), len(graph)))


@pytest.mark.parametrize("name", NAMES)
def test_on_the_shelf(name):
    module = dataset(name)
    assert name in registry.names("datasets")
    assert module.SPLIT["by"] == "louvain" and 3 <= module.SPLIT["k"] <= 10
    assert isinstance(module.STAGES, int) and sum(module.SHARES) == pytest.approx(1)
    assert module.__doc__.split("\n")[0].endswith(".") and "Source: " in module.__doc__


def test_helpers_are_not():
    assert not [name for name in registry.names("datasets") if name.startswith("_")]


@pytest.mark.slow
@real()
def test_counts_as_published(graph):
    isolated = len(graph) - len(np.unique(graph.edges))
    assert REAL[graph.name][:-1] == (len(graph), graph.edges.shape[1], graph.features,
                                     len(graph.classes), isolated)
    assert np.array_equal(np.unique(graph.y), np.arange(len(graph.classes)))
    if graph.name == "ud_ewt":
        assert isinstance(graph.x, np.ndarray) and graph.x.dtype == np.float32
    else:
        assert rows(graph).dtype == np.float32 and np.all(rows(graph).data == 1)


@real("cora", "computers", "squirrel_filtered", "wordnet", "ud_ewt")
def test_a_second_load_only_opens(graph, data, copies, monkeypatch):
    """From another cache: read once more, then from what was kept."""
    module, folder = dataset(graph.name), raw(graph.name, data, copies)
    assert same(module.load(folder), graph)
    monkeypatch.setattr(LabelledGraph, "_made", lambda *_: pytest.fail("made again"))
    assert same(module.load(folder), graph)


@real("cora", "citeseer")
def test_entries_of_the_citations(graph, data, copies):
    """The published 5,429 and 4,732 count entries, and the words are those of the file."""
    folder = raw(graph.name, data, copies)

    def part(what: str):
        with warnings.catch_warnings():     # an old SciPy wrote it
            warnings.simplefilter("ignore")
            return pickle.loads((folder / f"ind.{graph.name}.{what}").read_bytes(),
                                encoding="latin1")

    entries = Counter(tuple(sorted((a, b))) for a, near in part("graph").items() for b in near)
    loops = sum(n for (a, b), n in entries.items() if a == b)
    assert (sum(entries.values()), loops) == {
        "cora": (2 * 5_429, 0), "citeseer": (2 * 4_732, 2 * 124)}[graph.name]
    assert sorted(e for e in entries if e[0] != e[1]) == list(map(tuple, graph.edges.T.tolist()))
    words, topics = part("allx"), part("ally")
    assert np.array_equal(rows(graph)[:words.shape[0]].toarray(), words.toarray())
    assert np.array_equal(graph.y[:len(topics)], topics.argmax(1))


@real("citeseer")
def test_papers_without_words(graph, data, copies):
    """They are the gaps of the file's list, and PyTorch Geometric makes them class 0."""
    listed = np.loadtxt(raw("citeseer", data, copies) / "ind.citeseer.test.index", np.int64)
    gaps = np.setdiff1d(np.arange(listed.min(), listed.max()), listed)
    assert np.array_equal(np.flatnonzero(np.diff(rows(graph).indptr) == 0), gaps)
    assert len(gaps) == 15 and not graph.y[gaps].any() and np.isin(gaps, graph.edges).all()


@real("computers")
def test_the_largest_component(graph):
    _, of = connected_components(adjacency(graph), directed=False)
    largest = np.flatnonzero(of == np.bincount(of).argmax())
    assert (len(largest), graph.induced(largest).edges.shape[1]) == (13_381, 245_778)


@pytest.mark.slow
@real("physics")
def test_physics_hangs_together(graph):
    assert connected_components(adjacency(graph), directed=False)[0] == 1


@pytest.mark.slow
@real("squirrel")
def test_lines_of_squirrel(graph, data, copies):
    folder = raw("squirrel", data, copies)
    links = np.loadtxt(folder / "out1_graph_edges.txt", np.int64, skiprows=1)
    assert len(links) == 217_073 and int((links[:, 0] != links[:, 1]).sum()) == 216_933
    pairs = np.unique(np.sort(links[links[:, 0] != links[:, 1]], axis=1), axis=0)
    assert np.array_equal(pairs, graph.edges.T)
    with open(folder / "out1_node_feature_label.txt") as lines:
        for i, line in enumerate(lines):
            if i % 200 == 1:
                node, words, label = line.split("\t")
                assert graph.y[int(node)] == int(label)
                assert rows(graph)[int(node)].toarray()[0].tolist() == list(
                    map(float, words.split(",")))
    assert int((np.diff(rows(graph).indptr) == 0).sum()) == 165


@real("squirrel_filtered", "ud_ewt", "wordnet")
def test_substitutes(graph, data, copies):
    """Arrays of the file, entry for entry, and the size of the classes that the docstring gives."""
    folder = raw(graph.name, data, copies)
    sizes = np.bincount(graph.y)
    if graph.name == "wordnet":
        z = np.load(folder / "wordnet30_synsets.npz")
        assert np.array_equal(rows(graph).indices, z["attr_indices"])
        both = adjacency(graph)
        assert np.array_equal((both + both.T).indptr, z["adj_indptr"])
        assert np.array_equal(graph.y, z["labels"]) and graph.classes[14] == z["class_names"][14]
        assert (sizes.min(), sizes.max()) == (42, 14_435)
        assert int((np.diff(rows(graph).indptr) == 0).sum()) == 15_931
        return
    z = np.load(next(folder.glob(f"{graph.name}*s.npz" if graph.name == "ud_ewt" else
                                 "squirrel_filtered.npz")))
    x = graph.x.toarray() if isinstance(graph.x, csr_matrix) else graph.x
    assert np.array_equal(x, z["node_features"]) and np.array_equal(graph.y, z["node_labels"])
    assert sorted(sorted(e) for e in z["edges"].tolist()) == graph.edges.T.tolist()
    if graph.name == "ud_ewt":
        assert "nsubj" in graph.classes and sizes.min() == 381


@real("citeseer")
def test_normalise(graph, data, copies):
    shares = dataset("citeseer").load(raw("citeseer", data, copies), normalise=True)
    words = np.diff(rows(graph).indptr)
    expected = rows(graph).toarray() / np.maximum(words, 1)[:, None]
    assert np.allclose(rows(shares).toarray(), expected) and shares.x.dtype == np.float32
    assert sorted(set(rows(shares).sum(1).round(5).ravel().tolist())) == [0, 1]


@pytest.mark.parametrize("level", ["", "Planetoid", "Planetoid/Cora", "Planetoid/Cora/raw"])
def test_any_folder_on_the_way(level, data, copies, monkeypatch):
    raw("cora", data, copies)
    expected = dataset("cora").load(copies / "Planetoid/Cora/raw")
    assert same(dataset("cora").load(copies / level), expected)
    monkeypatch.setenv("FEDVINE_DATA", str(copies))
    assert same(dataset("cora").load(), expected)
