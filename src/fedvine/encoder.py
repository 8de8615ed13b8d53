"""POWER's gradient-encoding network, its per-sample gradients, and how far two of them differ.

For one sample the gradient of a linear layer is an outer product, weight: delta_l h_l^T and bias:
delta_l, with h_l the layer's input and delta_l the slope of the loss at its output. Everything
here works on these two factors; a layer's gradient is only multiplied out in :func:`encode`,
because that is what POWER sends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedvine.errors import FedvineError

Factors = tuple[list[Tensor], list[Tensor]]  # h_l [P, in] and delta_l [P, out] of each layer


@dataclass(frozen=True)
class Encoder:
    """Linear layers with ``activation`` between them; the last gives logits, one a class.

    ``weights[l]`` is [out, in] and ``biases[l]`` [out] of layer l.
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    activation: Literal["relu", "sigmoid"] = "relu"

    @classmethod
    def make(cls, features: int, classes: int, *, generator: torch.Generator,
             hidden: tuple[int, ...] = (128, 128, 64),
             activation: Literal["relu", "sigmoid"] = "relu") -> Encoder:
        """A random network; equal generators make equal networks, at the server and at a client.

        Hidden widths are the paper's (implementation details in its appendix), which leaves the
        activation open. Weights and biases are uniform within 1 / sqrt(in), as those of
        ``torch.nn.Linear``.
        """
        weights, biases = [], []
        for inputs, outputs in pairwise((features, *hidden, classes)):
            drawn = torch.rand(outputs, inputs + 1, generator=generator)
            drawn = (2 * drawn - 1) / math.sqrt(inputs)
            weights.append(drawn[:, :-1].contiguous())
            biases.append(drawn[:, -1].contiguous())
        return cls(tuple(weights), tuple(biases), activation)

    def like(self, tensor: Tensor) -> Encoder:
        """The same network in the number type and on the device of ``tensor``."""
        return Encoder(tuple(w.to(tensor) for w in self.weights),
                       tuple(b.to(tensor) for b in self.biases), self.activation)

    def truth(self, prototypes: Tensor, labels: Tensor) -> Tensor:
        """Labels as one-hot rows [P, C]; raises FedvineError where shapes or classes do not fit."""
        features, classes = self.weights[0].shape[1], len(self.biases[-1])
        if prototypes.dim() != 2 or prototypes.shape[1] != features:
            raise FedvineError(f"The encoder reads {features} features; the prototypes have the "
                               f"shape {list(prototypes.shape)}.")
        if labels.shape != prototypes.shape[:1]:
            raise FedvineError(f"{len(prototypes)} prototypes need as many labels; these have "
                               f"the shape {list(labels.shape)}.")
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
            raise FedvineError(f"Labels lie between 0 and {classes - 1} for this encoder; these "
                               f"go from {int(labels.min())} to {int(labels.max())}.")
        return one_hot(labels, classes).to(prototypes)


def encode(encoder: Encoder, prototypes: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Gradients of the cross-entropy, of one sample each (Eq. 9), stacked.

    ``weight_l`` [P, out, in] and ``bias_l`` [P, out] for each layer l from 0, for ``prototypes``
    [P, F] with ``labels`` [P]. Raises FedvineError where these do not fit the encoder.
    """
    truth = encoder.truth(prototypes, labels)
    sent = {}
    for layer, (h, delta) in enumerate(zip(*factors(encoder.like(prototypes), prototypes, truth),
                                           strict=True)):
        sent[f"weight_{layer}"] = delta[:, :, None] * h[:, None, :]
        sent[f"bias_{layer}"] = delta
    return sent


def infer_labels(gradients: dict[str, Tensor]) -> Tensor:
    """Classes [P]: the least entry of the last layer's bias gradient (text below Eq. 10).

    That gradient is softmax minus one-hot, negative at the true class alone, so for one sample
    the answer is exact.
    """
    return gradients[f"bias_{len(gradients) // 2 - 1}"].argmin(dim=1)


def solve(gradients: dict[str, Tensor]) -> Factors:
    """The factors behind gradients of one sample each: h = row i of weight / bias_i.

    Row i is the one with the largest abs(bias_i); a layer without any slope gives h = 0.
    """
    inputs, deltas = [], []
    for layer in range(len(gradients) // 2):
        delta = gradients[f"bias_{layer}"]
        at = torch.arange(len(delta), device=delta.device)
        row = delta.abs().argmax(dim=1)
        size = delta[at, row][:, None]
        inputs.append(torch.where(size != 0, gradients[f"weight_{layer}"][at, row] / size, 0))
        deltas.append(delta)
    return inputs, deltas


def sizes(target: Factors) -> Tensor:
    """Squared norm of each layer's gradient, weights and bias together, [P, L]."""
    return torch.stack([_square(d) * (1 + _square(h)) for h, d in zip(*target, strict=True)], 1)


def factors(encoder: Encoder, x: Tensor, truth: Tensor) -> Factors:
    """Forward and backward of the cross-entropy at ``x`` [P, F], without autograd."""
    return _walk(encoder, x, truth)[:2]


def mismatch(encoder: Encoder, x: Tensor, truth: Tensor, target: Factors) -> tuple[Tensor, Tensor]:
    """Eq. (11) of each sample and layer [P, L], and the gradient of its sum over layers [P, F].

    With e = delta - delta* and g = h - h*, a layer's delta h^T - delta* h*^T is e h^T + delta* g^T,
    whose squared norm needs inner products only; written so, nothing cancels near the solution.
    The gradient is the chain rule through the backward pass, then through the forward pass.
    """
    inputs, deltas, slopes, backs = _walk(encoder, x, truth)
    parts, to_inputs, to_deltas = [], [], []
    for h, delta, h_true, delta_true in zip(inputs, deltas, *target, strict=True):
        e, g = delta - delta_true, h - h_true
        hh, gh, ed = _square(h), _dot(g, h), _dot(e, delta_true)
        parts.append(_square(e) * (1 + hh) + _square(delta_true) * _square(g) + 2 * ed * gh)
        to_deltas.append(2 * (e * (1 + hh)[:, None] + delta_true * gh[:, None]))
        to_inputs.append(2 * (g * _square(delta)[:, None] + h_true * _dot(e, delta)[:, None]))
    bends = []  # what reaches each hidden layer's output through the slope of its activation
    for layer, slope in enumerate(slopes):
        to_deltas[layer + 1] = torch.addmm(to_deltas[layer + 1], to_deltas[layer] * slope,
                                           encoder.weights[layer + 1].T)
        bends.append(to_deltas[layer] * backs[layer] * slope * (1 - 2 * inputs[layer + 1])
                     if encoder.activation == "sigmoid" else 0)
    share = deltas[-1] + truth  # softmax
    back = share * (to_deltas[-1] - _dot(share, to_deltas[-1])[:, None])
    for layer in range(len(slopes), 0, -1):
        to_input = torch.addmm(to_inputs[layer], back, encoder.weights[layer])
        back = to_input * slopes[layer - 1] + bends[layer - 1]
    return torch.stack(parts, 1), torch.addmm(to_inputs[0], back, encoder.weights[0])


def shrink(encoder: Encoder, target: Tensor, start: Tensor
           ) -> tuple[Encoder, Tensor, Tensor, Callable[[Tensor], Tensor]]:
    """The same matching problem in H + 2 coordinates rather than F (H: width of layer 0).

    Its gradient lies in the span of the rows of the first weights, the prototype's ``target``
    [P, F] and the ``start`` [P, F]. L-BFGS stays in that span and does the same steps in any
    orthonormal basis of it. Returns encoder, target and start in that basis, and the way back.
    """
    basis, rest = torch.linalg.qr(encoder.weights[0].T)

    def outside(x: Tensor) -> tuple[Tensor, Tensor]:
        inside = x @ basis
        return inside, x - inside @ basis.T

    (target_in, target_out), (start_in, start_out) = outside(target), outside(start)
    length = target_out.norm(dim=1, keepdim=True)
    along = target_out / length.clamp(min=1e-300)
    share = _dot(start_out, along)[:, None]
    start_out = start_out - share * along
    beyond = start_out.norm(dim=1, keepdim=True)
    across = start_out / beyond.clamp(min=1e-300)
    first = torch.cat([rest.T, rest.new_zeros(len(rest.T), 2)], 1)

    def grow(x: Tensor) -> Tensor:
        return x[:, :-2] @ basis.T + x[:, -2:-1] * along + x[:, -1:] * across

    return (Encoder((first, *encoder.weights[1:]), encoder.biases, encoder.activation),
            torch.cat([target_in, length, torch.zeros_like(length)], 1),
            torch.cat([start_in, share, beyond], 1), grow)


def _walk(encoder: Encoder, x: Tensor, truth: Tensor
          ) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
    """h and delta of each layer; of hidden layers the activation's slope and what came back."""
    inputs, slopes = [x], []
    for weight, bias in zip(encoder.weights[:-1], encoder.biases[:-1], strict=True):
        z = torch.addmm(bias, inputs[-1], weight.T)
        h = z.relu() if encoder.activation == "relu" else z.sigmoid()
        slopes.append((h > 0).to(h) if encoder.activation == "relu" else h * (1 - h))
        inputs.append(h)
    logits = torch.addmm(encoder.biases[-1], inputs[-1], encoder.weights[-1].T)
    deltas, backs = [logits.softmax(1) - truth], []
    for weight, slope in zip(encoder.weights[:0:-1], slopes[::-1], strict=True):
        backs.append(deltas[-1] @ weight)
        deltas.append(backs[-1] * slope)
    return inputs, deltas[::-1], slopes, backs[::-1]


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return torch.linalg.vecdot(a, b)


def _square(a: Tensor) -> Tensor:
    return torch.linalg.vecdot(a, a)
