"""Arithmetic on named tensors: nested dicts and lists of tensors of equal shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch

from fedvine.core.errors import FedvineError

Tree = Any  # a tensor, or a dict or list of trees


def map_tree(f: Callable[..., torch.Tensor], first: Tree, *others: Tree) -> Tree:
    """Apply ``f`` to the tensors in the same place of all trees; return a new tree.

    Raises :class:`FedvineError` if the trees do not have the same names or lengths.
    """
    if isinstance(first, dict):
        for other in others:
            if not isinstance(other, dict) or other.keys() != first.keys():
                raise FedvineError("Two models do not have the same names; they cannot be added.")
        return {k: map_tree(f, v, *(o[k] for o in others)) for k, v in first.items()}
    if isinstance(first, (list, tuple)):
        if any(len(o) != len(first) for o in others):
            raise FedvineError("Two models do not have the same length; they cannot be added.")
        return type(first)(map_tree(f, *parts) for parts in zip(first, *others, strict=True))
    return f(first, *others)


def add(a: Tree, b: Tree, scale: float = 1.0) -> Tree:
    """Compute ``a + scale * b``, a new tree."""
    return map_tree(lambda x, y: torch.add(x, y, alpha=scale), a, b)


def subtract(a: Tree, b: Tree) -> Tree:
    """Compute ``a - b``, a new tree."""
    return map_tree(torch.sub, a, b)


def mean(trees: Iterable[Tree], weights: Iterable[float] | None = None) -> Tree:
    """Compute the (weighted) mean, summed one tree at a time in the order given.

    Weights need not sum to one. Raises :class:`FedvineError` for no trees or no weight.
    """
    total, weight = None, 0.0
    trees = iter(trees)
    for w in (float(w) for w in weights) if weights is not None else iter(lambda: 1.0, None):
        tree = next(trees, None)
        if tree is None:
            break
        scaled = map_tree(lambda x, w=w: x * w, tree)
        total = scaled if total is None else map_tree(lambda t, x: t.add_(x), total, scaled)
        weight += w
    if total is None or weight <= 0:
        raise FedvineError("The mean of no models was asked for; check quorum and weights.")
    return map_tree(lambda t, weight=weight: t / weight, total)


def clone(tree: Tree) -> Tree:
    """Return a copy that shares no memory and no autograd history."""
    return map_tree(lambda x: x.detach().clone(), tree)


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return a module's parameters by name, copied to the CPU."""
    return {n: p.detach().cpu().clone() for n, p in model.named_parameters()}


def change(model: torch.nn.Module, since: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return a module's parameters minus their values ``since``, by name, on the CPU."""
    return {n: torch.sub(p.detach().cpu(), since[n]) for n, p in model.named_parameters()}


def flattened(named: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return all values of named tensors in one axis, by name."""
    return torch.cat([torch.empty(0), *(named[name].reshape(-1) for name in sorted(named))])


def unflattened(flat: torch.Tensor, like: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the values of :func:`flattened` as tensors of the names and shapes of ``like``."""
    found, start = {}, 0
    for name in sorted(like):
        found[name] = flat[start:start + like[name].numel()].reshape(like[name].shape)
        start += like[name].numel()
    return {name: found[name] for name in like}


M = TypeVar("M", bound=torch.nn.Module)


def load(model: M, values: dict[str, torch.Tensor]) -> M:
    """Put ``values`` into a module's parameters; return the module."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(values[name])
    return model
