"""Sums and products: neighbours, products of rows, losses in blocks."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedvine.core.rng import rng, torch_rng
from fedvine.nn import roland, sparse
from fedvine.nn.neighbour_sum import neighbour_sum


@pytest.fixture
def asked(monkeypatch):
    """The path by oneDNN; where there is none, the same code with another product."""
    if not sparse.wide():
        monkeypatch.setattr(sparse, "_wide_product", torch.matmul)
    monkeypatch.setattr(sparse, "wide", lambda: True)


@pytest.mark.parametrize("rows", [1, 255, 256, 257, 700, 1024])
@pytest.mark.parametrize("width", [4, 16, 64])
def test_sum_of_products_equals_float64(asked, rows, width):
    draw = torch_rng("products", rows, width)
    shapes = (rows, 2), (2, 8), (rows, width), (width, 8), (rows, width), (width, 8)
    given = [torch.randn(s, generator=draw, dtype=torch.float64, requires_grad=True)
             for s in shapes]
    slope = torch.randn(rows, 8, generator=draw, dtype=torch.float64)
    x, a, y, b, z, c = given
    right = x @ a + y @ b + z @ c
    right.backward(slope)
    ours = [g.detach().float().requires_grad_() for g in given]
    found = sparse.sum_of_products(*ours)
    found.backward(slope.float())
    torch.testing.assert_close(found, right.float(), rtol=1e-5, atol=1e-4)
    for mine, theirs in zip(ours, given, strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad.float(), rtol=1e-5, atol=2e-4)


def test_slices_of_rows_and_of_a_parameter_are_as_good(asked):
    draw = torch_rng("slices")
    flat = torch.randn(600, generator=draw, requires_grad=True)
    a, b, c = (flat[at: at + 128].view(16, 8) for at in (0, 128, 300))
    x, y, z = (torch.randn(300, 32, generator=draw)[:, ::2] for _ in range(3))
    z.requires_grad_()
    sparse.sum_of_products(x, a, y, b, z, c).square().sum().backward()
    mine, flat.grad = flat.grad.clone(), None
    slope, z.grad = z.grad.clone(), None
    (x @ a + y @ b + z @ c).square().sum().backward()
    torch.testing.assert_close(mine, flat.grad, rtol=1e-4, atol=1e-2)
    torch.testing.assert_close(slope, z.grad, rtol=1e-4, atol=1e-2)


def test_threads_beside_each_other_find_what_one_finds(asked):
    draw = torch_rng("threads")
    given = [torch.randn(s, generator=draw) for s in ((5000, 2), (2, 64), (5000, 64), (64, 64),
                                                      (5000, 64), (64, 64))]

    def once(_=None):
        mine = [g.clone().requires_grad_() for g in given]
        found = sparse.sum_of_products(*mine)
        found.sum().backward()
        return [found.detach(), *(m.grad for m in mine)]

    alone = once()
    with ThreadPoolExecutor(3) as pool:
        for found in pool.map(once, range(30)):
            assert all(torch.equal(a, b) for a, b in zip(alone, found, strict=True))


@pytest.mark.parametrize("facts", ["vendor_id : GenuineIntel\nflags : avx512f amx_bf16",
                                   "vendor_id : AuthenticAMD\nflags : avx2", ""])
def test_other_processors_are_left_to_mkl(monkeypatch, facts):
    monkeypatch.setattr(sparse.Path, "read_text", lambda *_, **__: facts)
    assert not sparse.wide.__wrapped__()


def _missing(x, w):
    raise RuntimeError("there is no such product")


@pytest.mark.parametrize("product", [
    _missing, lambda x, w: (x.bfloat16() @ w.bfloat16()).float()])
def test_a_product_that_is_not_there_or_rounds_is_left_alone(monkeypatch, product):
    monkeypatch.setattr(sparse, "_needed", lambda: True)
    monkeypatch.setattr(sparse, "_wide_product", product)
    assert not sparse.wide.__wrapped__()


@given(nodes=st.integers(1, 40), edges=st.integers(0, 300), width=st.sampled_from([1, 3, 16, 33]),
       dtype=st.sampled_from([torch.float32, torch.float64]), seed=st.integers(0, 9))
def test_sums_and_gradients(nodes, edges, width, dtype, seed):
    """Also of repeated edges, and of rows without any."""
    rng, draw, found = np.random.default_rng(seed), torch.Generator().manual_seed(seed), []
    sizes = np.bincount(rng.integers(0, nodes, edges), minlength=nodes)
    pointers = np.concatenate([[0], np.cumsum(sizes)])
    columns = rng.integers(0, nodes, edges).astype(np.int32)
    A = torch.zeros(nodes, nodes, dtype=dtype).index_put_(
        (torch.arange(nodes).repeat_interleave(torch.from_numpy(sizes)),
         torch.from_numpy(columns).long()), torch.ones(edges, dtype=dtype), accumulate=True)
    rows, gradient = (torch.randn(nodes, width, generator=draw, dtype=dtype) for _ in range(2))
    for function in (lambda x: A @ x, lambda x: neighbour_sum(x, pointers, columns)):
        leaf = rows.clone().requires_grad_()
        out = function(leaf)
        out.backward(gradient)
        found.append((out.detach(), leaf.grad))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-4)


def test_no_gradient_of_a_gradient_in_silence():
    rows = torch.randn(3, 2).requires_grad_()
    out = neighbour_sum(rows, np.array([0, 1, 2, 2]), np.array([1, 0], np.int32))
    first, = torch.autograd.grad(out.square().sum(), rows, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate"):
        first.sum().backward()


@pytest.mark.parametrize(("classes", "ends"), [(0, 2), (4, 1)])
@pytest.mark.parametrize("count", [0, 1, 20, 50])
def test_gradients_in_blocks_are_those_of_all(classes, ends, count, monkeypatch):
    draw = rng("blocks of pairs", classes, count)
    net = roland.Roland(5, 6, 2, seed=1, classes=classes).double()
    at = draw.integers(0, 30, (ends, count))
    labels = draw.integers(0, 4, count) if classes else draw.integers(0, 2, count).astype(float)
    start, found = torch.from_numpy(draw.normal(size=(30, 6))), []
    for size in (10**6, 7):
        monkeypatch.setattr(roland, "PAIRS", size)
        rows = start.clone().requires_grad_()
        net.zero_grad()
        net.descend(rows, at, labels)
        found.append([rows.grad, *(p.grad for p in net.parameters() if p.grad is not None)])
    rows = start.clone().requires_grad_()
    net.zero_grad()
    net.loss([rows[torch.from_numpy(e)] for e in at], labels).backward()
    assert all((a == b).all() for a, b in zip(found[0], [rows.grad, *(
        p.grad for p in net.parameters() if p.grad is not None)], strict=True))
    for a, b in zip(*found, strict=True):
        assert np.allclose(a.numpy(), b.numpy(), rtol=1e-12, atol=1e-14)
