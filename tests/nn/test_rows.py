"""The parts of FedLink: buffer, sparse product, embeddings; each against the obvious way."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from second_device import FAR, emulated

from fedvine.data.ids import Ids
from fedvine.methods._fedlink.edges import EdgeBuffers
from fedvine.nn.embedding import ClientEmbedding, EmbeddingTable, RowOptimizer
from fedvine.nn.sage import Bipartite


@given(st.integers(1, 12), st.lists(st.integers(0, 15), max_size=8))
def test_a_buffer_keeps_exactly_the_last_edges(capacity, sizes):
    buffer, all_src = EdgeBuffers(capacity), []
    for size in sizes:
        new = np.arange(len(all_src), len(all_src) + size, dtype=np.int32)
        buffer.push(new, new + 100)
        all_src += new.tolist()
    src, dst = buffer.last(0, capacity)
    assert src.tolist() == all_src[-capacity:] if all_src else len(src) == 0
    assert (dst == src + 100).all()
    for start in range(0, len(buffer), 3):  # consecutive runs, counted from the newest
        src, _ = buffer.last(start, start + 3)
        expected = all_src[max(len(all_src) - len(buffer), len(all_src) - start - 3):
                           len(all_src) - start]
        assert src.tolist() == expected
    again = EdgeBuffers(capacity)
    again.load_state_dict(buffer.state_dict())
    assert (again.last(0, capacity)[0] == buffer.last(0, capacity)[0]).all()


edges = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), min_size=1, max_size=40)


@given(edges, st.integers(0, 2**32 - 1))
def test_mean_aggregation_equals_a_dense_matrix_forward_and_backward(pairs, seed):
    src, dst = (np.array(c) for c in zip(*pairs, strict=True))
    graph = Bipartite(src, dst, 7, 5)
    draw = torch.Generator().manual_seed(seed)
    kept = graph.weight * (torch.rand(len(graph), generator=draw) < 0.7)
    A = torch.zeros(7, 5).index_put_((graph.src, graph.dst), kept)
    assert torch.equal(torch.zeros(7, 5).index_put_((graph.src, graph.dst), graph.weight),
                       torch.tensor(np.histogram2d(src, dst, (range(8), range(6)))[0]).float())
    for mean, matrix, n in zip(graph.messages(kept), (A, A.T), (5, 7), strict=True):
        x = torch.randn(n, 3, generator=draw, requires_grad=True)
        dense = torch.nan_to_num(matrix / matrix.sum(1, keepdim=True)) @ x
        ours = mean(x)
        torch.testing.assert_close(ours, dense)
        pull = torch.randn(ours.shape, generator=draw)
        torch.testing.assert_close(torch.autograd.grad(ours, x, pull)[0],
                                   torch.autograd.grad(dense, x, pull)[0])


def adam_reference(gradients, start, rate):
    """Row-wise Adam in float64, row by row and step by step; None: the row is not touched."""
    value, m, v, t = start.astype(float).copy(), np.zeros_like(start, float), np.zeros_like(
        start, float), np.zeros(len(start))
    for step in gradients:
        for row, g in step.items():
            t[row] += 1
            m[row] = 0.9 * m[row] + 0.1 * g
            v[row] = 0.999 * v[row] + 0.001 * g * g
            value[row] -= rate * (m[row] / (1 - 0.9**t[row])) / (
                np.sqrt(v[row] / (1 - 0.999**t[row])) + 1e-8)
    return value


@pytest.mark.parametrize("where", ["cpu", "second device"])
def test_row_wise_adam_equals_float64_and_untouched_rows_do_not_move(where):
    draw = np.random.Generator(np.random.PCG64(0))
    optimizer = RowOptimizer(4)
    optimizer.hold(np.arange(10))
    start = draw.normal(size=(10, 4)).astype(np.float32)
    values, history = torch.from_numpy(start.copy()), []
    for _ in range(25):
        rows = np.sort(draw.choice(9, draw.integers(1, 6), replace=False))  # row 9: never
        gradient = draw.normal(size=(len(rows), 4)).astype(np.float32)
        history.append(dict(zip(rows.tolist(), gradient.astype(float), strict=True)))
        if where == "cpu":
            optimizer.step(rows, values, rows, torch.from_numpy(gradient), 0.05)
            continue
        with pytest.MonkeyPatch.context() as patch, emulated(patch):
            there = values.to(FAR)
            optimizer.step(rows, there, rows, torch.from_numpy(gradient).to(FAR), 0.05)
            optimizer.hold(np.arange(10))
            values = there.cpu()
    np.testing.assert_allclose(values.numpy(), adam_reference(history, start, 0.05), atol=1e-5)
    assert (values[9].numpy() == start[9]).all()


def test_moments_live_while_a_buffer_holds_the_row():
    optimizer = RowOptimizer(2)
    optimizer.hold(np.array([1, 4, 7]))
    optimizer.step(np.array([4, 7]), torch.zeros(2, 2), np.arange(2), torch.ones(2, 2), 0.1)
    optimizer.hold(np.array([0, 4]))
    assert optimizer.steps.tolist() == [0, 1] and optimizer.moments[0, :, 0].tolist() == [
        0, pytest.approx(0.1)]
    optimizer.hold(np.array([4, 7]))
    assert optimizer.steps.tolist() == [1, 0] and optimizer.moments[:, 1].abs().sum() == 0


@given(st.lists(st.sets(st.integers(0, 9), min_size=1), min_size=1, max_size=5))
def test_every_change_reaches_its_own_row_whatever_was_known_before(rounds):
    """Rows that were never touched lie between such that were."""
    names = Ids.of(list("abcdefghij"))
    table, client = EmbeddingTable(5, 2, 1.0), ClientEmbedding(2, 5, 1.0)
    every = names.keys(np.arange(10))
    expected = table.peek(every).clone()
    answer, _ = table.fetch({"rows": np.empty(0, np.int32), "keys": every}, new_rows=False)
    assert torch.equal(answer["values"], expected) and not len(table)       # a forecast makes none
    for number, touched in enumerate(rounds):
        ids = np.array(sorted(touched))
        answer, rows = table.fetch(client.request(ids, names), new_rows=True)
        torch.testing.assert_close(client.receive(ids, answer), expected[ids])
        change = torch.from_numpy(ids + 100.0 * number).float()[:, None].repeat(1, 2)
        sent = client.update(ids, change, answer)
        assert len(sent) == len(rows)
        table.add_(rows, sent)
        expected[ids] += change
    torch.testing.assert_close(table.peek(every), expected)


def test_local_rows_start_as_the_server_would_start_them():
    names, local = Ids.of(list("abc")), ClientEmbedding(3, 5, 0.2, local=True)
    nothing = local.request(np.array([0, 2]), names)
    assert not len(nothing["rows"]) and not len(nothing["keys"])
    table = EmbeddingTable(5, 3, 0.2)
    ids = np.array([0, 2])
    assert torch.equal(local.receive(ids, {}), table.peek(names.keys(ids)))
    assert len(local.update(np.array([2]), torch.ones(1, 3))) == 0
    assert torch.equal(local.receive(np.array([2]), {}),
                       table.peek(names.keys(np.array([2]))) + 1)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 20), st.integers(0, 20))
def test_a_buffer_that_is_resized_keeps_what_it_is_given(first, second, before, after):
    edges = np.arange(before + after, dtype=np.int32)
    buffer = EdgeBuffers(first)
    buffer.push(edges[:before], edges[:before])
    buffer.resize(second, edges[:before][-second:], edges[:before][-second:])
    assert buffer.seen == before
    buffer.push(edges[before:], edges[before:])
    assert buffer.last(0, second)[0].tolist() == edges[-second:].tolist()
    saved = EdgeBuffers(first)
    saved.load_state_dict(buffer.state_dict())
    assert saved.capacity == second
    assert saved.last(0, second)[0].tolist() == edges[-second:].tolist()
