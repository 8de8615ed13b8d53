"""Graph attention (Velickovic et al. 2018) for node classification, one head, two layers.

A layer: h_i = x_i W, e_ij = LeakyReLU(a_src . h_j + a_dst . h_i), alpha = softmax of e over the
neighbours j of i and i itself, z_i = sum_j alpha_ij h_j + b. Features may be a sparse CSR tensor,
which the first layer multiplies without making it dense.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import MutableMapping
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from scipy.sparse import csr_matrix, vstack
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from fedvine.core.rng import torch_rng
from fedvine.core.state import World
from fedvine.data.graph import Features, Graph
from fedvine.nn.sparse import COMPILED, arrays, pointers, row_product, row_products

# -- weighted sums over neighbours, and products with sparse features, with gradients --------------
# torch writes the row of each edge before it adds it, and on the way back three more; and it sorts
# the transpose of sparse features anew in each step. Here loops over the edges of a node add rows
# at once, only gradients of weights take a row for each edge, and a transpose is made once for as
# long as its tensor lives. Numbers are added in torch's order: results are the same bit for bit.
#: By tensor, which does not change: its edges or its transpose.
_made: MutableMapping[torch.Tensor, Any] = WeakIdKeyDictionary()


def weighted_sums(rows: torch.Tensor, weight: torch.Tensor, src: torch.Tensor, dst: torch.Tensor
                  ) -> torch.Tensor:
    """Compute sum_e weight_e rows_src(e) over the edges e into each node, float [n, d].

    Edges go from ``src`` to ``dst`` int64 [E], the latter ascending; neither is changed later.
    There are gradients for ``rows`` [n, d] and ``weight`` [E].
    """
    if rows.device.type != "cpu" or rows.dtype not in COMPILED:
        sent = rows.index_select(0, src) * weight[:, None]
        return torch.zeros_like(rows).index_add(0, dst, sent)
    edges = _made.get(dst)
    if edges is None or edges.of() is not src or edges.n != len(rows):
        edges = _made[dst] = _Edges(src, dst, len(rows))
    return _Sums.apply(rows, weight, edges)     # type: ignore[no-any-return]


def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Compute ``x @ weight`` for x [n, F], dense or CSR; a CSR tensor gets no gradient."""
    if x.layout != torch.sparse_csr:
        return x @ weight
    turned = _made.get(x)
    if turned is None:
        turned = _made[x] = x.t().to_sparse_csr()
    return _Product.apply(weight, x, turned)    # type: ignore[no-any-return]


class _Edges:
    """Edges by target, and by source when a gradient first asks; those of a node in order."""

    def __init__(self, src: torch.Tensor, dst: torch.Tensor, n: int) -> None:
        self.of, self.n = weakref.ref(src), n
        self.src, self.dst = src.numpy().astype(np.int32), dst.numpy().astype(np.int32)
        self.pointers = pointers(self.dst, n).numpy()

    @cached_property
    def back(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return int32 pointers [n + 1] by source, targets [E] and edges [E] in that order."""
        order = np.argsort(self.src, kind="stable").astype(np.int32)
        return pointers(self.src[order], self.n).numpy(), self.dst[order], order


class _Sums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, weight: torch.Tensor,  # type: ignore[override]
                edges: _Edges) -> torch.Tensor:
        ctx.save_for_backward(rows, weight)
        ctx.edges, out = edges, rows.new_empty(edges.n, rows.shape[1])
        a, x = arrays(weight, rows)
        row_product(edges.pointers, edges.src, a, x, out.numpy())
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor):  # type: ignore[override]
        (rows, weight), edges, of_rows, of_weight = ctx.saved_tensors, ctx.edges, None, None
        if torch.is_grad_enabled():     # the gradients are differentiated, too
            src, dst = (torch.from_numpy(e.astype(np.int64)) for e in (edges.src, edges.dst))
            sent = gradient.index_select(0, dst)
            return (torch.zeros_like(rows).index_add(0, src, sent * weight[:, None]),
                    (sent * rows.index_select(0, src)).sum(1), None)
        a, x, g = arrays(weight, rows, gradient)
        if ctx.needs_input_grad[0]:
            of_rows = rows.new_empty(rows.shape)
            start, dst, order = edges.back
            row_product(start, dst, a[order], g, of_rows.numpy())
        if ctx.needs_input_grad[1]:
            each = rows.new_empty(len(weight), rows.shape[1])
            row_products(g, x, edges.dst, edges.src, each.numpy())
            of_weight = each.sum(1)
        return of_rows, of_weight, None


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, x: torch.Tensor,  # type: ignore[override]
                turned: torch.Tensor) -> torch.Tensor:
        ctx.turned = turned
        return torch.sparse.mm(x, weight)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor):  # type: ignore[override]
        return torch.sparse.mm(ctx.turned, gradient), None, None


class Inputs(NamedTuple):
    """A graph as tensors.

    ``x`` is float32 [N, F], dense or CSR; ``src`` and ``dst`` are int64 [2E + N]: both directions
    of each edge and a loop at each node, sorted by ``dst``.
    """

    x: torch.Tensor
    src: torch.Tensor
    dst: torch.Tensor

    def to(self, device: torch.device) -> Inputs:
        """Return the graph on a device."""
        return Inputs(*(part.to(device) for part in self))


def inputs(graph: Graph, edges: bool = True) -> Inputs:
    """Convert a graph to tensors; without ``edges`` it has only the loops."""
    ends = graph.edges if edges else graph.edges[:, :0]
    loops = np.arange(len(graph))
    src = np.concatenate([ends[0], ends[1], loops]).astype(np.int64)
    dst = np.concatenate([ends[1], ends[0], loops]).astype(np.int64)
    order = np.argsort(dst, kind="stable")
    return Inputs(features(graph.x), torch.from_numpy(src[order]), torch.from_numpy(dst[order]))


def features(x: object) -> torch.Tensor:
    """Convert features [N, F] to a tensor; a SciPy CSR matrix stays sparse."""
    if isinstance(x, np.ndarray):
        return torch.from_numpy(x)
    with warnings.catch_warnings():  # torch warns once that CSR is in beta
        warnings.filterwarnings("ignore", "Sparse CSR")
        return torch.sparse_csr_tensor(
            torch.from_numpy(x.indptr.astype(np.int64)),  # type: ignore[attr-defined]
            torch.from_numpy(x.indices.astype(np.int64)),  # type: ignore[attr-defined]
            torch.from_numpy(x.data), x.shape,  # type: ignore[attr-defined]
            check_invariants=False)  # SciPy keeps them; without this argument torch warns


def below(x: Features, graph: Inputs, rows: Features, edges: torch.Tensor | None = None
          ) -> Inputs:
    """Add nodes with the features ``rows`` [B, F] after those of ``graph``, each with a loop.

    ``x`` [N, F] are the features of ``graph``, as data hold them. ``edges`` int64 [2, E] join new
    nodes, which are numbered from 0, in both directions; None: they have the loops alone. The
    result is on the device of ``graph``.
    """
    count, device = len(graph.x), graph.src.device
    ends = torch.arange(count, count + int(rows.shape[0])).repeat(2, 1)  # type: ignore[index]
    if edges is not None and edges.shape[1]:
        ends = torch.cat([ends, edges + count, edges.flip(0) + count], 1)
        ends = ends[:, torch.argsort(ends[1], stable=True)]
    ends = ends.to(device)
    return Inputs(features(joined(x, rows)).to(device), torch.cat([graph.src, ends[0]]),
                  torch.cat([graph.dst, ends[1]]))


def joined(first: Features, second: Features) -> Features:
    """Concatenate the rows of both; the result is dense or CSR as ``first`` is."""
    if isinstance(first, np.ndarray):
        return np.concatenate([first, np.asarray(second)])
    return csr_matrix(vstack([first, csr_matrix(second)], format="csr"))


def packed(x: Features) -> Any:
    """Convert rows of features to what a client's memory may hold: an array, or CSR's parts."""
    if isinstance(x, np.ndarray):
        return x
    width = int(x.shape[1])  # type: ignore[index]
    return {"data": x.data, "indices": x.indices, "indptr": x.indptr, "width": width}


def unpacked(kept: Any) -> Features:
    """Convert the result of :func:`packed` back to rows of features."""
    if isinstance(kept, np.ndarray):
        return kept
    return csr_matrix((kept["data"], kept["indices"], kept["indptr"]),
                      shape=(len(kept["indptr"]) - 1, kept["width"]))


class GatLayer(nn.Module):
    """One attention head.

    **Shapes:** input float32 [N, ``features``] (dense or CSR) with E' directed edges, output
    float32 [N, ``width``].
    """

    def __init__(self, features: int, width: int, draw: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(glorot(features, width, draw))
        self.source, self.target = (nn.Parameter(glorot(width, 1, draw)[:, 0]) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, graph: Inputs) -> torch.Tensor:
        """Compute rows [N, width] from the rows and edges of ``graph``."""
        h = product(graph.x, self.weight)
        return attended(h, graph, *self.attention(graph, h)) + self.bias

    def attention(self, graph: Inputs, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute exp(e_ij) [E'] of the edges and its sum [N] over the neighbours of each node.

        ``h`` [N, width] is x W; alpha_ij is the first divided by the second of its target. The
        largest e_ij of a node is subtracted before, so that no exponential overflows.

        Where all e_ij of a node are on one side of 0, a_dst . h_i changes no alpha. Its gradient is
        exactly 0 then, edge by edge: a sum that is 0 except for rounding would become full steps of
        Adam, which differ from one kind of processor to another.
        """
        near = (h @ self.source).index_select(0, graph.src)
        own = (h @ self.target).index_select(0, graph.dst)
        top = h.new_full((len(h),), -torch.inf).scatter_reduce_(0, graph.dst, near.detach(), "amax")
        a = (nn.functional.leaky_relu(near + own, 0.2) - nn.functional.leaky_relu(
            top.index_select(0, graph.dst) + own, 0.2)).exp()
        return a, h.new_zeros(len(h)).index_add(0, graph.dst, a)


def attended(rows: torch.Tensor, graph: Inputs, a: torch.Tensor, total: torch.Tensor
             ) -> torch.Tensor:
    """Compute sum_j alpha_ij rows_j [N, width]; ``a`` and ``total`` are a layer's attention."""
    return weighted_sums(rows, a, graph.src, graph.dst) / total[:, None]


class Gat(nn.Module):
    """Two layers; the embedding of a node is its hidden row after ReLU.

    **Shapes:** input float32 [N, ``features``], embedding [N, ``hidden``], output (logits)
    [N, ``classes``]. The first weights follow from ``seed``.
    """

    def __init__(self, features: int, hidden: int, classes: int, *, seed: int,
                 dropout: float = 0.5) -> None:
        super().__init__()
        draw = torch_rng(seed, "gat")
        self.first, self.second = GatLayer(features, hidden, draw), GatLayer(hidden, classes, draw)
        self.dropout = dropout

    def embed(self, graph: Inputs) -> torch.Tensor:
        """Compute the embeddings [N, hidden]."""
        return self.first(graph).relu()

    def coefficients(self, graph: Inputs) -> list[torch.Tensor]:
        """Compute alpha [E'], the attention of each edge, of both layers."""
        inner = self.embed(graph) @ self.second.weight
        both = ((self.first, product(graph.x, self.first.weight)), (self.second, inner))
        pairs = (layer.attention(graph, h) for layer, h in both)
        return [a / total.index_select(0, graph.dst) for a, total in pairs]

    def last_rows(self, graph: Inputs) -> torch.Tensor:
        """Compute z [N, hidden], the last layer's mean over neighbours: logits are z W + b."""
        h = self.embed(graph)
        return attended(h, graph, *self.second.attention(graph, h @ self.second.weight))

    def forward(self, graph: Inputs, draw: torch.Generator | None = None) -> torch.Tensor:
        """Compute logits [N, classes]; with ``draw`` dropout is applied to the hidden layer."""
        h = dropped(self.embed(graph), self.dropout, draw)
        return self.second(graph._replace(x=h))


def dropped(h: torch.Tensor, share: float, draw: torch.Generator | None) -> torch.Tensor:
    """Apply inverted dropout at rate ``share`` from the generator ``draw``; None: do not."""
    if draw is None or share == 0:
        return h
    keep = torch.rand(h.shape, generator=draw).to(h.device) >= share
    return h * keep / (1 - share)


def glorot(rows: int, columns: int, draw: torch.Generator) -> torch.Tensor:
    """Draw weights [rows, columns], uniform in +- sqrt(6 / (rows + columns))."""
    return (2 * torch.rand(rows, columns, generator=draw) - 1) * (6 / (rows + columns)) ** 0.5


# -- heads of classes that come later: the weights of a class follow from (seed, its name) alone ---
M = TypeVar("M", bound=nn.Module)


def named(net: M, world: World) -> M:
    """Draw the head's first weights again, class by class, where classes may come later.

    The head is the layer ``second``, and the last axis of each of its parameters that of the
    classes. Weights are uniform, as Glorot's for a layer of the classes that the run began with
    (``world.facts["class_names"]``), so a class has the same ones whenever it comes; biases stay.
    """
    if "class_names" not in world.facts:
        return net
    first, layer = world.facts["classes_at"][0], net.second
    with torch.no_grad():
        for c, name in enumerate(world.facts["class_names"][:world.facts["classes"]]):
            draw = torch_rng(world.seed, "class", name)
            for key, p in layer.named_parameters():  # type: ignore[union-attr,operator]
                if not key.endswith("bias"):
                    rows = p.shape[0] if p.dim() > 1 else 1
                    bound = (6 / (rows + first)) ** 0.5
                    p[..., c] = (2 * torch.rand(p.shape[:-1], generator=draw) - 1) * bound
    return net
