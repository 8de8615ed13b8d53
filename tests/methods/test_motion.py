"""MOTION: the contract, coarsening against dense matrices, and the merge entry by entry."""

import math

import numpy as np
import torch
from scipy.sparse import csr_matrix

from fedvine import testing
from fedvine.core.rng import rng
from fedvine.data.graph import Graph
from fedvine.rivals.motion import Motion, chosen, coarsened, merged

TINY = Motion.tiny()


def test_the_merge_entry_by_entry():
    draw, share = rng("merge"), 0.4
    v = draw.normal(size=(3, 50)) * [[1.0], [0.3], [2.0]]
    total, weights = v.sum(0), []
    for row in v:
        size = np.abs(row)
        top = np.sort(size)[48]                     # int(50 (1 - 1e-4)) - 1
        size = np.minimum(size, top)
        inside = (size - size.min()) / (size.max() - size.min())
        c = [math.exp(3 * s * s) * math.tanh(x * t)
             for s, x, t in zip(inside, row, total, strict=True)]
        least = sorted(c)[30]                       # int(50 (1 - 0.4))
        c = [max(x, least) for x in c]
        weights.append([(x - min(c)) / (max(c) - min(c)) for x in c])
    w = np.array(weights)
    assert ((w > 0).sum(1) == 19).all()             # the others are at the quantile or below
    capped = np.sign(v) * np.minimum(np.abs(v), np.sort(np.abs(v), 1)[:, [48]])
    by_hand = (w * capped).sum(0) / np.maximum(w.sum(0), 1e-12)
    np.testing.assert_allclose(merged(torch.from_numpy(v), share), by_hand, rtol=1e-9, atol=1e-12)


def test_a_merge_of_no_updates_and_of_many():
    assert not merged(torch.zeros(3, 40), 0.5).any()
    many = merged(torch.from_numpy(rng("many").normal(size=(2000, 40))), 0.5)
    assert many.isfinite().all()


def test_a_coarse_graph_by_hand():
    h = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9], [0.2, 0.9]])
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    y = np.array([-1, 1, 0, 0, 2])
    edges = [[0, 0, 2, 1], [1, 2, 3, 4]]
    for given in (x, csr_matrix(x)):
        graph = Graph.make(given, edges, y)
        coarse = coarsened(graph, h, np.array([0, 2]), block=2)
        rows = coarse.x if isinstance(coarse.x, np.ndarray) else coarse.x.toarray()
        np.testing.assert_allclose(rows, [x[[0, 1]].mean(0), x[[2, 3, 4]].mean(0)])
        assert coarse.edges.tolist() == [[0], [1]]      # 0-2 and 1-4; 0-1 and 2-3 are inside
        assert coarse.y.tolist() == [1, 0] and coarse.classes == graph.classes


def test_nodes_stay_that_are_in_the_buffer_and_then_those_unlike_the_others():
    draw = rng("stay")
    h = torch.from_numpy(draw.normal(size=(30, 4)))
    keys = np.where(np.arange(30) < 12, draw.random(30), np.inf)
    stay = chosen(h, keys, 0.5, 5)
    assert len(stay) == 15 and np.array_equal(stay, np.unique(stay))
    first = np.argsort(keys)[:5]
    assert np.isin(first, stay).all()
    z = (h / h.norm(dim=1, keepdim=True)).numpy()
    cosine = z @ z.T
    np.fill_diagonal(cosine, 0)
    rest = [i for i in np.argsort(cosine.mean(1)) if i not in first][:10]
    assert set(stay) == set(first) | set(rest)
    assert len(chosen(h, np.full(30, np.inf), 0.01, 5)) == 1
    assert chosen(h, keys, 1.0, 5).tolist() == list(range(30))


def test_a_client_trains_on_both_graphs_and_keeps_half_of_their_nodes():
    method = TINY.model_copy(update={"buffer": 1000})
    made = testing.run_small(method)
    stages = iter(made)
    next(stages)
    client = made.clients.workers["ada"].client
    first, kept = client.stage, dict(client.kept)
    assert len(kept["y"]) == len(first) // 2
    assert set(np.unique(kept["y"][kept["y"] >= 0])) <= set(np.unique(first.y[first.y >= 0]))
    next(stages)
    second = client.stage
    assert len(client.kept["y"]) == (len(second) + len(kept["y"])) // 2
    client.cache.clear()
    client.kept = kept
    graph, _, y = method.labelled(client)
    assert len(graph.x) == len(second) + len(kept["y"])
    assert len(y) == (second.y >= 0).sum() + (kept["y"] >= 0).sum()
    split = graph.src >= len(second)
    assert torch.equal(split, graph.dst >= len(second))     # no edge between the graphs
