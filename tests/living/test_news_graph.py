"""A labelled graph whose tables are read again: what joins it, what is refused, what stays."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from fedvine.core.errors import FedvineError
from fedvine.core.rng import rng
from fedvine.data.graph import Graph, Owner
from fedvine.data.ids import Ids
from fedvine.living.graph_news import merged

CLASSES = np.array(["ham", "egg", "tea", "ale"])
TOWNS = np.array(["ulm", "bonn", "jena"])


def table(rows, edges, labels, towns, *, sparse=False) -> Graph:
    """The graph that reading finds: nodes ``rows`` of a fixed world, in this order."""
    rows = np.asarray(rows)
    x = (rng("x").integers(0, 3, (100, 4)) / 2).astype(np.float32)[rows]
    place = {int(r): i for i, r in enumerate(rows)}
    ends = np.array([[place[a], place[b]] for a, b in edges], int).reshape(-1, 2).T
    y, classes = numbers(labels, CLASSES)
    of, names = numbers(towns, TOWNS)
    return Graph.make(csr_matrix(x) if sparse else x, ends, y, classes=classes, name="shop",
                      owner=Owner(of.astype(np.int32), names, "town"),
                      ids=Ids.of([f"n{r}" for r in rows]))


def numbers(values, names):
    """Values into ``names`` (-1: none), as numbers into those that are there, by the alphabet."""
    there = sorted({str(names[v]) for v in values if v >= 0})
    return np.array([there.index(names[v]) if v >= 0 else -1 for v in values]), tuple(there)


def plain(graph):
    """Nodes and edges by name."""
    ids = graph.names()
    owner = graph.owner
    return ({ids[i]: (graph.classes[graph.y[i]] if graph.y[i] >= 0 else None,
                      owner.names[owner.of[i]], np.asarray(
                          graph.x[i].todense() if hasattr(graph.x, "nnz") else graph.x[i]
                      ).reshape(-1).tolist()) for i in range(len(graph))},
            {frozenset((ids[a], ids[b])) for a, b in graph.edges.T})


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_nothing_is_lost_and_nothing_renumbered(data):
    sparse, count = data.draw(st.booleans()), data.draw(st.integers(2, 20))
    draw = rng("grown", data.draw(st.integers(0, 999)))
    label, town = draw.integers(-1, 4, count), draw.integers(0, 3, count)
    every = [(a, b) for a in range(count) for b in range(a) if draw.random() < 0.2]
    known = data.draw(st.integers(1, count))
    before = np.where(draw.random(known) < 0.7, label[:known], -1)      # some labels come later
    edges = [e for e in every if max(e) < known and draw.random() < 0.7]

    def read(upto, labels, links):
        order = draw.permutation(upto)
        links = [links[i] for i in draw.permutation(len(links))]
        return table(order, links, labels[order], town[order], sparse=sparse)
    kept = read(known, before, edges).begun()
    again, news = merged(kept, read(known, before, edges), 1)
    assert plain(again) == plain(kept) and not any(news)
    for old, new in zip(kept.came, again.came, strict=True):
        np.testing.assert_array_equal(old, new)
    whole = read(count, label, every)
    grown, news = merged(kept, whole, 1)
    assert plain(grown) == plain(whole)
    names = [grown.names()[i] for i in range(count)]
    assert names[:known] == [kept.names()[i] for i in range(known)]
    assert grown.classes[:len(kept.classes)] == kept.classes
    assert grown.owner.names[:len(kept.owner.names)] == kept.owner.names
    assert (grown.came.node == [0] * known + [1] * (count - known)).all()
    assert (grown.came.label[:known] == ((kept.y < 0) & (grown.y[:known] >= 0))).all()
    was = plain(kept)[1]
    for (a, b), came in zip(grown.edges.T, grown.came.edge, strict=True):
        assert came == (frozenset((names[a], names[b])) not in was)
    assert news == (count - known, grown.came.label[:known].sum(), grown.came.edge.sum(),
                    len(grown.classes) - len(kept.classes),
                    len(grown.owner.names) - len(kept.owner.names))
    low, high = grown.edges
    assert (low < high).all() and (np.diff(low.astype(int) * count + high) > 0).all()


BASE = ([0, 1, 2, 3], [(0, 1), (1, 2)], [0, 0, 1, -1], [0, 1, 0, 1])


@pytest.mark.parametrize(("change", "said"), [
    (lambda g: g.induced(np.array([0, 2, 3])), 'node "n1" has vanished'),
    (lambda g: g.kept(np.array([True, False])), 'the edge of "n1" and "n2" has vanished'),
    (lambda g: replace(g, x=g.x + np.eye(4, dtype=np.float32) * [0, 1, 0, 0]),
     'node "n1" has other features'),
    (lambda g: replace(g, y=np.array([1, 0, 0, -1])), 'node "n1" has another class'),
    (lambda g: replace(g, y=np.array([1, 1, -1, -1])), 'node "n2" has another class'),
    (lambda g: replace(g, owner=g.owner._replace(of=np.array([1, 0, 0, 0], np.int32))),
     'node "n2" has another client'),
    (lambda g: replace(g, x=g.x[:, :3]), "3 columns of features, and had 4"),
    (lambda g: replace(g, ids=None), "does not name its nodes")],
    ids=["node", "edge", "features", "class", "class gone", "client", "columns", "names"])
def test_what_has_changed_is_refused_by_name(change, said):
    kept = table(*BASE).begun()
    with pytest.raises(FedvineError, match=said):
        merged(kept, change(table(*BASE)), 1)


def test_new_nodes_of_a_partition_join_their_neighbours():
    base = table([0, 1, 2, 3], [(0, 1), (2, 3)], [0, 0, 1, 1], [0, 0, 0, 0])
    kept = replace(base, owner=Owner(np.array([1, 1, 0, 0], np.int32), ("a", "b"), "hash")).begun()
    more = table([0, 1, 2, 3, 4, 5, 6], [(0, 1), (2, 3), (4, 0), (4, 1), (4, 2), (5, 4)],
                 [0, 0, 1, 1, 0, 0, 0], [0] * 7)
    grown, _ = merged(kept, more, 1)
    assert grown.owner.of.tolist() == [1, 1, 0, 0, 1, 1, 0]    # the last one has no neighbour
    assert grown.owner.column == "hash"


def test_nodes_without_features_keep_the_degree_with_which_they_came():
    def degrees(rows, edges):
        found = table(rows, edges, [0, 1, 0, 1][:len(rows)], [0] * len(rows))
        degree = np.bincount(found.edges.reshape(-1), minlength=len(rows)).astype(np.float32)
        return replace(found, x=np.log1p(degree)[:, None])
    kept = degrees([0, 1, 2], [(0, 1)]).begun()
    grown, _ = merged(kept, degrees([0, 1, 2, 3], [(0, 1), (0, 3), (1, 3)]), 1)
    np.testing.assert_array_equal(grown.x, np.log1p(np.float32([1, 1, 0, 2]))[:, None])


def test_a_grown_graph_is_written_and_opened(tmp_path):
    kept, _ = merged(table(*BASE).begun(), table([0, 1, 2, 3, 7], [(0, 1), (1, 2), (3, 7)],
                                                [0, 0, 1, 2, 2], [0, 1, 0, 1, 2]), 3)
    found = Graph.open(kept.write(tmp_path / "g") and tmp_path / "g")
    assert plain(found) == plain(kept)
    for a, b in zip(found.came, kept.came, strict=True):
        np.testing.assert_array_equal(a, b)
