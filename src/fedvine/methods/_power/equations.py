"""POWER's equations on arrays: coverage (2)-(4), prototypes (8)-(11), their neighbours (13).

Eq. (5) stands in :mod:`fedvine.methods.fedavg`, (6) and (7) in
:mod:`fedvine.methods._power.remembering`, (12) and (14) in :mod:`fedvine.methods.power`.

A client sends for each class the gradients that the class's mean feature vector causes in a random
network that server and clients know, so that the server does not receive the mean itself. **This
hides nothing**: the gradient of one sample through a linear layer with bias is the outer product
delta x^T beside delta, and a division gives x (``how="closed-form"``). The paper's way, L-BFGS on
the gradient-matching loss, is ``how="lbfgs"``. :func:`fedvine.aggregate.class_means.protect` does
protect a mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from scipy.sparse import issparse
from torch import Tensor

from fedvine.aggregate.class_means import class_sums
from fedvine.core.errors import FedvineError
from fedvine.core.expect import LARGEST
from fedvine.core.expect import Tensor as Stated
from fedvine.core.rng import torch_rng
from fedvine.core.state import World
from fedvine.nn.gradient_matching import Encoder, factors, match, mismatch, sizes, solve

TIE = 1e-6     # numbers that differ by less than this share of their scale are equal
BLOCK = 512    # rows of distances at a time, so that n nodes take O(n) memory
REACHED = 0.9  # the authors' code starts again when this share of a class is covered


# -- (2)-(4): experience nodes with maximum local-global coverage -----------------------------
def select(h: Tensor, h_global: Tensor | None, y: np.ndarray, per_class: int, *,
           alpha: float = 0.5, epsilon: float = 0.1, code: bool = False,
           reached: float = REACHED) -> np.ndarray:
    """Select the ``per_class`` nodes of each class with the largest coverage.

    Args:
        h: embeddings by the local model, float [N, d].
        h_global: embeddings by the global model, float [N, d]; None: the local ones alone.
        y: the class of each node, int [N]; nodes of -1 are neither selected nor covered.
        per_class: nodes of a class, b; a class with fewer gives all.
        alpha: weight of the local embeddings, in [0, 1].
        epsilon: a node's radius as a share of its mean distance to its class, above 0.
        code: as the authors' code: one radius for the class, from the mean of its whole distance
            matrix, zeros included; nodes covered by a selected one do not count for the next,
            until a share ``reached`` of the class is covered.
        reached: in ]0, 1].

    Returns:
        Numbers of nodes, int64: classes ascending, a class's nodes in the order of selection; of
        equal nodes the lower number first.
    """
    z = h if h_global is None else alpha * h + (1 - alpha) * h_global       # (2)
    z = z.detach().float()

    def best(nodes: np.ndarray) -> np.ndarray:
        rows = z[torch.from_numpy(nodes)]
        if code:
            return _greedy(rows, epsilon, per_class, reached)
        return largest(coverage(rows, radii(rows, epsilon)), per_class)     # (4)
    return by_class(y, best)


def radii(z: Tensor, epsilon: float, code: bool = False) -> Tensor:
    """Compute epsilon E(v) for the nodes v of one class, float64 [n], from embeddings [n, d].

    E(v) is the mean distance to the other nodes; with ``code`` the mean of the whole matrix, its
    zero diagonal included.
    """
    totals = torch.cat([d.sum(1, dtype=torch.float64) for d in distances(z, z)])
    if code:
        return (epsilon * totals.mean() / len(z)).expand(len(z))
    return epsilon * totals / max(len(z) - 1, 1)


def coverage(z: Tensor, radius: Tensor, of: Tensor | None = None) -> np.ndarray:
    """Count C(v) of Eq. (3), int64 [n]: the rows ``of`` (all of ``z``) within v's radius.

    A row at the radius, to within :data:`TIE`, is outside.
    """
    radius = radius * (1 - TIE)
    found = [(d < radius[a:a + BLOCK, None]).sum(1)                          # (3)
             for a, d in zip(range(0, len(z), BLOCK), distances(z, z if of is None else of),
                             strict=True)]
    return torch.cat(found).cpu().numpy()


def _greedy(z: Tensor, epsilon: float, count: int, reached: float) -> np.ndarray:
    radius = radii(z, epsilon, code=True)
    whole = coverage(z, radius)
    covered, left, chosen = np.zeros(len(z), bool), whole.copy(), []
    for _ in range(min(count, len(z))):
        open_ = np.where(covered, 0, left)
        open_[chosen] = -1
        chosen.append(int(open_.argmax()))
        near = torch.cdist(z[chosen[-1:]], z, compute_mode=_EXACT)[0] < radius * (1 - TIE)
        gone = near.cpu().numpy() & ~covered
        covered |= gone
        if covered.sum() >= reached * len(z):
            covered, left = np.zeros(len(z), bool), whole.copy()
            gone = np.zeros(len(z), bool)
            gone[chosen] = covered[chosen] = True
        left -= coverage(z, radius, z[torch.from_numpy(gone)])
    return np.array(chosen, np.int64)


def by_class(y: np.ndarray, best: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Apply ``best`` (nodes of one class -> positions among them) to each class, ascending."""
    members = [np.flatnonzero(y == label) for label in np.unique(y[y >= 0])]
    return np.concatenate([np.empty(0, np.int64), *(nodes[best(nodes)] for nodes in members)])


def largest(score: np.ndarray, count: int) -> np.ndarray:
    """Return the positions of the ``count`` largest scores; of equal ones the lower first.

    Scores are equal within :data:`TIE` of the largest magnitude: sums in another order, as another
    kind of processor makes them, do not decide. What is not a number comes last.
    """
    lowest = -np.finfo(float).max
    left = np.nan_to_num(np.asarray(score, float), nan=lowest, neginf=lowest)
    slack = TIE * np.abs(left, where=left > lowest, out=np.zeros_like(left)).max(initial=0.0)
    chosen = np.empty(min(count, len(left)), np.int64)
    for i in range(len(chosen)):
        chosen[i] = (left >= left.max() - slack).argmax()
        left[chosen[i]] = -np.inf
    return chosen


_EXACT = "donot_use_mm_for_euclid_dist"  # equal rows are at 0, whatever the block


def distances(a: Tensor, b: Tensor) -> Iterator[Tensor]:
    """Yield the Euclidean distances of ``a`` [n, d] to ``b`` [m, d], a block of rows at a time."""
    return (torch.cdist(rows, b, compute_mode=_EXACT) for rows in a.split(BLOCK))


# -- (8)-(11): prototypes, as gradients, and back ---------------------------------------------
def class_means(features: Any, labels: Any, classes: int, clip: float = math.inf
                ) -> tuple[Tensor, Tensor]:
    """Compute prototypes float32 [classes, F] and node counts [classes], Eq. (8).

    ``features`` [N, F] are a tensor, an array or CSR, each row shortened to an L2 norm of
    ``clip``; ``labels`` int [N], -1 for none. A class without nodes gets 0.
    """
    x = features if issparse(features) else np.asarray(features)
    sums, counts = (torch.from_numpy(part) for part in class_sums(
        x, np.asarray(labels), classes, clip if math.isfinite(clip) else None))
    return sums / counts.clamp(min=1)[:, None], counts                       # (8)


def encode(encoder: Encoder, prototypes: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Compute the gradients of the softmax cross-entropy of each prototype, Eq. (9).

    Eq. (9) is printed with a sum over y log y' + (1 - y) log(1 - y') and does not say how the "soft
    label" y' follows from the network's output. Softmax and -log y' of the true class is what the
    text around Eq. (10) calls cross-entropy and what POWER's code computes. With it, as with a
    sigmoid for each class, the derivative is negative at the true class alone.

    ``encoder`` has L layers, ``prototypes`` are float [P, F], ``labels`` int64 [P]. The result is
    ``weight_l`` [P, out, in] and ``bias_l`` [P, out] for l = 0 .. L - 1. Raises
    :class:`FedvineError` where shapes or classes do not fit the encoder.
    """
    found = factors(encoder.like(prototypes), prototypes, encoder.truth(prototypes, labels))
    parts, layers, sent = found.split(encoder.widths, 1), len(encoder.weights), {}
    for layer, (h, delta) in enumerate(zip(parts[:layers], parts[layers:], strict=True)):
        sent[f"weight_{layer}"] = delta[:, :, None] * h[:, None, :]          # (9)
        sent[f"bias_{layer}"] = delta.clone()
    return sent


def infer_labels(gradients: dict[str, Tensor]) -> Tensor:
    """Return the classes int64 [P]: the least entry of the last layer's bias gradient.

    That gradient is softmax minus one-hot, negative at the true class alone, so for one sample
    the answer is exact (text below Eq. 10).
    """
    return gradients[f"bias_{len(gradients) // 2 - 1}"].argmin(dim=1)


class Reconstructed(NamedTuple):
    """Return value of :func:`reconstruct`: ``prototypes`` [P, F], and how well they fit.

    ``loss`` [P] is Eq. (11) as a share of the squared norm of the gradients. ``converged`` bool [P]
    is true where every layer's own share is below the tolerance (never for a network that is dead
    at the sample, whose first layer has zero gradients); ``iterations`` [P] are those of the start
    that was returned (0 for the closed form).
    """

    prototypes: Tensor
    loss: Tensor
    converged: Tensor
    iterations: Tensor


def reconstruct(encoder: Encoder, gradients: dict[str, Tensor], labels: Tensor | None = None,
                how: Literal["closed-form", "lbfgs"] = "closed-form", *, restarts: int = 1,
                iterations: int = 300, generator: torch.Generator | None = None,
                tolerance: float = 1e-8) -> Reconstructed:
    """Compute the prototypes [P, F] from their ``gradients`` (:func:`encode`), Eqs. (10), (11).

    ``labels`` int64 [P] are inferred where they are not given. The closed form divides a row of
    the first layer's weight gradient by its bias gradient. ``"lbfgs"`` minimises Eq. (11) from
    ``restarts`` standard normal starts a prototype, drawn from ``generator``, in at most
    ``iterations`` steps (the paper: 300). Both are judged by encoding the result again, so sums
    over samples, or a wrong label, do not count as converged. Raises FedvineError where shapes or
    labels do not fit the encoder, and without a generator for L-BFGS.
    """
    target = solve(encoder, gradients)
    x = target[:, :encoder.widths[0]]                                        # closed form
    truth = encoder.truth(x, infer_labels(gradients) if labels is None else labels)
    encoder, taken = encoder.like(x), torch.zeros(len(x), dtype=torch.long, device=x.device)
    if how == "lbfgs":
        if generator is None or restarts < 1:
            raise FedvineError("L-BFGS needs a generator for its starts, and at least one start.")
        with torch.inference_mode():  # a tenth faster; the clones may take part in autograd
            found = match(encoder, truth, target, restarts, iterations, generator, tolerance)
        x, taken = (part.clone() for part in found)
    whole, parts = sizes(encoder, target), mismatch(encoder, x, truth, target)[0]   # (10), (11)
    return Reconstructed(x, parts.sum(1) / whole.sum(1).clamp(min=1e-30),
                         (parts <= tolerance * whole).all(1) & (whole[:, 0] > 0), taken)


# -- (13) -------------------------------------------------------------------------------------
def neighbours(prototypes: Tensor, k: int, block: int = 1024) -> Tensor:
    """Join each prototype [P, F] to the k others with the largest product, Eq. (13).

    The result is an edge index int64 [2, E]: both directions, sorted, no loops, each pair once. The
    sigmoid of Eq. (13) changes no order and is left out (it would round large products to equal
    ones). Of products that are equal within :data:`TIE` the lower number is first. Only ``block``
    rows of products are in memory at a time.
    """
    count = len(prototypes)
    near = [torch.empty(0, min(k, max(count - 1, 0)), dtype=torch.long, device=prototypes.device)]
    for begin in range(0, count, block):
        products = prototypes[begin:begin + block] @ prototypes.T
        slack = TIE * products.abs().amax(1, keepdim=True)
        products.diagonal(begin).fill_(-math.inf)
        near.append(products.new_empty(len(products), near[0].shape[1], dtype=torch.long))
        for column in near[-1].unbind(1):
            first = products >= products.amax(1, keepdim=True) - slack
            column.copy_(first.to(torch.uint8).argmax(1))
            products.scatter_(1, column[:, None], -math.inf)
    to = torch.cat(near)
    at = torch.arange(count, device=to.device)[:, None].expand_as(to)
    pairs = torch.unique(torch.cat([at * count + to, to * count + at]))
    return torch.stack([pairs // max(count, 1), pairs % max(count, 1)])


# -- gradients on the wire ---------------------------------------------------------------------
def shared_encoder(world: World) -> Encoder:
    """Draw the gradient-encoding network, the same at every client and at the server."""
    return Encoder.make(world.facts["features"], world.facts["classes"],
                        generator=torch_rng(world.seed, "encoder"))


def expected_gradients(encoder: Encoder, most: int) -> dict[str, Stated]:
    """Return the schema of the gradients of at most ``most`` prototypes."""
    layers = enumerate(zip(encoder.weights, encoder.biases, strict=True))
    parts = {f"{kind}_{i}": part for i, pair in layers
             for kind, part in zip(("weight", "bias"), pair, strict=True)}
    return {name: Stated("float32", ("prototypes", *part.shape), most=most * part.nbytes)
            for name, part in parts.items()}


def read_gradients(encoder: Encoder, gradients: dict[str, torch.Tensor],
         how: Literal["closed-form", "lbfgs"] = "closed-form",
         generator: torch.Generator | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Reconstruct prototypes float32 [P, F] and their classes int64 [P], Eqs. (10), (11) of POWER.

    Prototypes with values that are not finite, or too large for a reply, are left out.
    """
    labels = infer_labels(gradients)
    if not len(labels):
        return torch.empty(0, encoder.widths[0]), labels
    found = reconstruct(encoder, gradients, labels, how, generator=generator).prototypes.float()
    finite = found.abs().amax(1) < LARGEST                          # false for NaN, too
    return found[finite], labels[finite]
