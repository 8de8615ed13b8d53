"""LabelledGraph graphs as published, and read without a trace."""

from pathlib import Path

import numpy as np
import pytest
from layouts import REAL, dataset, listing, raw, same
from scipy.sparse import csr_matrix

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


@pytest.mark.parametrize("name", NAMES)
def test_on_the_shelf(name):
    module = dataset(name)
    assert name in registry.names("datasets")
    assert module.SPLIT["by"] == "louvain" and 3 <= module.SPLIT["k"] <= 10
    assert isinstance(module.STAGES, int) and sum(module.SHARES) == pytest.approx(1)
    assert module.__doc__.split("\n")[0].endswith(".") and "Source: " in module.__doc__


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
