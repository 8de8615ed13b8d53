"""Labelled graphs on disk: what is written is what is read, whole or not at all."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import issparse, random

from fedvine.core.errors import FedvineError
from fedvine.core.rng import rng
from fedvine.data.graph import Graph, Owner
from fedvine.data.identity import digest, names
from fedvine.data.ids import Ids
from fedvine.living.rows import StoredRows
from fedvine.tasks.task_plan import by_task

NAMES = ["zürich", "", "a b", "naïve/..", "0", "007"]


def graph(sparse=False, named=True, owned=True):
    draw = rng("graph files", sparse)
    x = draw.normal(size=(60, 5)) if not sparse else random(60, 5, 0.3, "csr", np.float32, rng=draw)
    ids = Ids.of([*NAMES, *(f"n{i}" for i in range(54))]) if named else None
    owner = Owner(draw.integers(0, 3, 60), ("b", "a ä", "c"), "town") if owned else None
    found = Graph.make(x, draw.integers(0, 60, (2, 150)), draw.integers(-1, 4, 60),
                       classes=("w", "ä", "", "z"), name="odd/name", owner=owner, ids=ids)
    return replace(found, notes=("a note",))


def same(one, other):
    assert (one.name, one.classes, one.notes) == (other.name, other.classes, other.notes)
    assert digest(one) == digest(other) and names(one) == names(other)
    assert issparse(one.x) == issparse(other.x) and one.x.dtype == other.x.dtype
    for field in ("edges", "y", "nodes"):
        a, b = getattr(one, field), getattr(other, field)
        assert a.dtype == b.dtype and np.array_equal(a, b)
    assert list(one.names()) == list(other.names())
    assert (one.owner is None) == (other.owner is None)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_what_is_written_is_read(tmp_path, sparse, known):
    made = graph(sparse, named=known, owned=known)
    split = made.split("town" if known else "louvain")
    StoredRows.create(tmp_path, split, by_task(made))
    opened = StoredRows.open(tmp_path).split
    same(made, opened.stream)
    assert list(opened.parts) == list(split.parts) and opened.by == split.by
    for name, part in split.parts.items():
        same(part, opened.parts[name])
    assert not list(tmp_path.rglob("x.npy"))[1:]      # parts that are induced have no own features


def test_parts_with_less_than_their_nodes_induce_are_written_in_full(tmp_path):
    made = graph(True)
    split = made.split("town")
    split = replace(split, parts={name: part.thinned(0.5, 0.5, rng(name))
                                  for name, part in split.parts.items()})
    StoredRows.create(tmp_path, split, by_task(made))
    for name, part in StoredRows.open(tmp_path).split.parts.items():
        same(split.parts[name], part)


def test_names_go_with_the_nodes():
    made = graph()
    part = made.induced(np.array([0, 2, 7]))
    assert list(part.names()) == ["zürich", "a b", "n1"]
    assert list(graph(named=False).induced(np.array([3, 5])).names()) == ["3", "5"]
    with pytest.raises(FedvineError, match="60 nodes and 2 names"):
        Graph.make(np.ones((60, 1)), [[], []], np.zeros(60), name="g", ids=Ids.of(["a", "b"]))


def test_what_cannot_be_read_is_said(tmp_path):
    made = graph()
    made.write(tmp_path / "g")
    (tmp_path / "g" / "y.npy").write_bytes(b"")
    with pytest.raises(FedvineError, match="not a graph that can be opened"):
        Graph.open(tmp_path / "g")
    meta = tmp_path / "g" / "graph.json"
    made.write(tmp_path / "g")
    meta.write_text(json.dumps({**json.loads(meta.read_text()), "shape": [3, 5]}))
    with pytest.raises(FedvineError, match="not a graph that can be opened"):
        Graph.open(tmp_path / "g")
    (tmp_path / "other").mkdir()
    with pytest.raises(FedvineError, match="is not a graph; name a new folder"):
        made.write(tmp_path / "other")
