"""The loss of very many pairs, in blocks: the gradients are those of all pairs together."""

import numpy as np
import pytest
import torch

from fedvine.core.rng import rng
from fedvine.nn import roland


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
