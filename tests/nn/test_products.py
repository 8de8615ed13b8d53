from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from fedvine.core.rng import torch_rng
from fedvine.nn import sparse


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
