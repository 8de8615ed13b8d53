import contextlib

import pytest
import torch

from fedvine import products
from fedvine.rng import torch_rng


@pytest.fixture
def asked(monkeypatch):
    """The path by oneDNN; where that would cost precision, the same code without permission."""
    if not products.wide():
        monkeypatch.setattr(products, "_permitted", contextlib.nullcontext)
    monkeypatch.setattr(products, "wide", lambda: True)


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
    found = products.sum_of_products(*ours)
    found.backward(slope.float())
    torch.testing.assert_close(found, right.float(), rtol=1e-5, atol=1e-4)
    for mine, theirs in zip(ours, given, strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad.float(), rtol=1e-5, atol=2e-4)


def test_only_what_is_asked_for_gets_a_gradient_and_slices_of_a_parameter_may_be_weights(asked):
    draw = torch_rng("slices")
    flat = torch.randn(600, generator=draw, requires_grad=True)
    a, b, c = (flat[at: at + 128].view(16, 8) for at in (0, 128, 300))
    x, y, z = (torch.randn(300, 32, generator=draw)[:, ::2] for _ in range(3))
    z.requires_grad_()
    products.sum_of_products(x, a, y, b, z, c).square().sum().backward()
    mine, flat.grad = flat.grad.clone(), None
    slope, z.grad = z.grad.clone(), None
    (x @ a + y @ b + z @ c).square().sum().backward()
    torch.testing.assert_close(mine, flat.grad, rtol=1e-4, atol=1e-2)
    torch.testing.assert_close(slope, z.grad, rtol=1e-4, atol=1e-2)
    assert x.grad is None and (mine[256:300] == 0).all()


def test_nothing_is_lost_where_permission_is_used_and_the_setting_is_as_before():
    if not products.wide():
        pytest.skip("this processor's products go to MKL")
    switch = torch.backends.mkldnn.matmul
    before = switch.fp32_precision
    draw = torch_rng("lost")
    x, w = torch.randn(4096, 64, generator=draw), torch.randn(64, 64, generator=draw)
    with products._permitted():
        found = x @ w
    exact = x.double() @ w.double()
    assert (found.double() - exact).abs().max() < 2 * ((x @ w).double() - exact).abs().max()
    with pytest.raises(ZeroDivisionError), products._permitted():
        _ = 1 / 0
    assert switch.fp32_precision == before
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize("facts", ["vendor_id : GenuineIntel\nflags : avx512f amx_bf16",
                                   "vendor_id : AuthenticAMD\nflags : avx2", ""])
def test_other_processors_are_left_to_mkl(monkeypatch, facts):
    monkeypatch.setattr(products.Path, "read_text", lambda *_, **__: facts)
    assert not products._needed()
    assert not products.wide.__wrapped__()


def test_a_processor_that_loses_precision_is_found_out(monkeypatch):
    monkeypatch.setattr(products, "_needed", lambda: True)

    @contextlib.contextmanager
    def rounding():
        real = torch.Tensor.__matmul__
        monkeypatch.setattr(torch.Tensor, "__matmul__", lambda x, y: real(
            x.bfloat16().float(), y.bfloat16().float()))
        yield
        monkeypatch.setattr(torch.Tensor, "__matmul__", real)
    monkeypatch.setattr(products, "_permitted", rounding)
    assert not products.wide.__wrapped__()
