"""The adjacency that changes is the set of its pairs, whatever came and went before."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from fedvine.core.errors import FedvineError
from fedvine.core.rng import rng
from fedvine.data.adjacency import Adjacency

PAIRS = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30)


def ends(pairs) -> np.ndarray:
    return np.array(sorted(pairs), np.int64).reshape(-1, 2).T


def same(graph: Adjacency, held: set, nodes: int) -> None:
    assert {tuple(e) for e in graph.edges().T.tolist()} == held
    a, b = ends(held)
    matrix = csr_matrix((np.ones(2 * len(held)), (np.r_[a, b], np.r_[b, a])), (nodes, nodes))
    for n in range(nodes):
        assert sorted(graph.row(n)) == sorted(matrix.indices[slice(*matrix.indptr[n:n + 2])])
    every = np.indices((nodes, nodes)).reshape(2, -1)
    assert (graph.has(*every) == np.asarray(matrix.todense()).ravel().astype(bool)).all()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), PAIRS), max_size=8), st.booleans())
def test_it_is_the_set_of_its_pairs(changes, saved):
    graph, held, nodes = Adjacency(3), set(), 3
    for come, pairs in changes:
        pairs = {(min(p), max(p)) for p in pairs if p[0] != p[1]}
        nodes = max([nodes, *(b + 1 for _, b in pairs)])
        graph.grow(nodes)
        if come:
            graph.add(ends(pairs - held))
            held |= pairs
        else:
            graph.remove(ends(pairs))           # also of edges that are not there
            held -= pairs
        if saved:
            state, graph = graph.state_dict(), Adjacency()
            graph.load_state_dict(state)
        same(graph, held, nodes)


def test_rows_keep_the_order_of_arrival_through_moves_and_saves():
    graph, order = Adjacency(300), []
    for n in range(1, 300):
        graph.add(np.array([[0], [n]]))
        order.append(n)
        if n % 7 == 0:
            graph.remove(np.array([[0], [n - 3]]))
            order.remove(n - 3)
    assert graph.row(0).tolist() == order
    again = Adjacency()
    again.load_state_dict(graph.state_dict())
    assert again.row(0).tolist() == order


def test_an_end_that_is_not_a_node_is_an_error_and_changes_nothing():
    graph = Adjacency.of(np.array([[0], [1]]), 2)
    for change in (graph.add, graph.remove, lambda ends: graph.has(*ends),
                   lambda ends: graph.replace(ends[1], [1], [0])):
        for wrong in (2, -1):
            with pytest.raises(FedvineError, match="the graph has nodes 0 to 1"):
                change(np.array([[0], [wrong]]))
    assert graph.edges().T.tolist() == [[0, 1]]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.lists(st.integers(0, 7), max_size=12)),
                max_size=20))
def test_rows_that_are_replaced(changes):
    graph, held = Adjacency(8), {n: [] for n in range(8)}
    for node, row in changes:
        graph.replace([node], [len(row)], row)
        held[node] = row
    assert {n: graph.row(n).tolist() for n in range(8)} == held


@pytest.mark.parametrize(("nodes", "edges"), [(3000, 20_000), (20_000, 60_000)])
def test_memory_is_that_of_a_csr_matrix_and_a_third(nodes, edges):
    """After every snapshot that adds and removes a share of the edges, by a power law."""
    draw = rng("adjacency", nodes)

    def some(many):
        a, b = (nodes * draw.random((2, many)) ** 3).astype(np.int64)
        codes = np.unique(np.minimum(a, b)[a != b] << 32 | np.maximum(a, b)[a != b])
        return np.stack([codes >> 32, codes & 0xFFFFFFFF])
    graph = Adjacency.of(some(edges), nodes)
    for share in (0.0001, 0.001, 0.01, 0.1, 0.5, 0.01, 0.01):
        new = some(int(share * edges) + 1)
        graph.add(new[:, ~graph.has(*new)])
        now = graph.edges()
        graph.remove(now[:, draw.random(now.shape[1]) < share / 2])
        ends = graph.ends
        assert ends == 2 * graph.edges().shape[1]
        assert graph.nbytes <= 1.3 * (4 * ends + 8 * (nodes + 1)) + 1000


def test_neighbours_that_are_no_nodes_are_refused_before_compiled_loops_read_them():
    graph = Adjacency.of(np.array([[0, 1], [1, 2]]), 3)
    before = graph.edges()
    for sizes, neighbours in (([1], [3]), ([1], [-7]), ([2], [1]), ([-1], [])):
        with pytest.raises(FedvineError):
            graph.replace(np.array([1]), np.array(sizes), np.array(neighbours, np.int32))
        with pytest.raises(FedvineError):
            Adjacency.of_rows(np.array([*sizes, 0]), np.array(neighbours, np.int32))
    with pytest.raises(FedvineError, match=r"2,000,000,000|2000000000"):
        Adjacency().load_state_dict({"degree": np.array([1, 0], np.int32),
                                     "neighbours": np.array([2_000_000_000], np.int32)})
    np.testing.assert_array_equal(graph.edges(), before)
