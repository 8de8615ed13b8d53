"""The graph that is there on every machine."""

from __future__ import annotations

import numpy as np
import pytest

from fedvine.core.errors import FedvineError
from fedvine.datasets.labelled import Digits


@pytest.mark.slow
def test_digits():
    graph = Digits.load()
    assert (len(graph), graph.edges.shape[1], graph.features) == (1_797, 6_309, 64)
    assert graph.classes == tuple("0123456789") and np.bincount(graph.y).min() == 174
    x = np.asarray(graph.x)
    assert x.dtype == np.float32 and (x.min(), x.max()) == (0, 1)
    assert np.array_equal(x * 16, np.round(x * 16))
    shades = (x * 16).astype(np.int64)
    edges = set(map(tuple, graph.edges.T.tolist()))
    near = {}
    for node in range(0, len(graph), 6):
        far = ((shades - shades[node]) ** 2).sum(1).tolist()
        near[node] = sorted((d, i) for i, d in enumerate(far) if i != node)[:5]
        assert all((min(i, node), max(i, node)) in edges for _, i in near[node])
    for a, b in edges:
        if a in near and b in near:
            assert b in [i for _, i in near[a]] or a in [i for _, i in near[b]]
    degree = np.bincount(graph.edges.reshape(-1))
    assert degree.min() == 5
    agree = graph.y[graph.edges[0]] == graph.y[graph.edges[1]]
    assert agree.mean() > 0.95


def test_digits_have_no_folder(tmp_path):
    with pytest.raises(FedvineError, match="leave out the folder"):
        Digits.load(tmp_path)
