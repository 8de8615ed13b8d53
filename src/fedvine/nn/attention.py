"""Weighted sums over the neighbours of nodes, and products with sparse features, with gradients.

torch writes the row of each edge before it adds it, and on the way back three more; and it sorts
the transpose of sparse features anew in each step. Here loops over the edges of a node add rows at
once, only gradients of weights take a row for each edge, and a transpose is made once for as long
as its tensor lives. Numbers are added in torch's order: results are the same bit for bit.
"""

from __future__ import annotations

import weakref
from collections.abc import MutableMapping
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.utils.weak import WeakIdKeyDictionary

from fedvine.nn.sparse import arrays, pointers, row_product, row_products

#: By tensor, which does not change: its edges or its transpose.
_made: MutableMapping[torch.Tensor, Any] = WeakIdKeyDictionary()


def weighted_sums(rows: torch.Tensor, weight: torch.Tensor, src: torch.Tensor, dst: torch.Tensor
                  ) -> torch.Tensor:
    """Compute sum_e weight_e rows_src(e) over the edges e into each node, float [n, d].

    Edges go from ``src`` to ``dst`` int64 [E], the latter ascending; neither is changed later.
    There are gradients for ``rows`` [n, d] and ``weight`` [E].
    """
    if rows.device.type != "cpu" or rows.dtype != torch.float32:
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
        ctx.edges, out = edges, torch.empty(edges.n, rows.shape[1])
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
            of_rows = torch.empty(rows.shape)
            start, dst, order = edges.back
            row_product(start, dst, a[order], g, of_rows.numpy())
        if ctx.needs_input_grad[1]:
            each = torch.empty(len(weight), rows.shape[1])
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
