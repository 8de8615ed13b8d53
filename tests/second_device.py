"""A second device on the processor: what meets the wrong device raises, as it does on a GPU.

Inside :func:`emulated` the methods' GPU is a device whose tensors (:class:`Far`) hold their values
on the processor. Each operation is computed there, after a check that all its tensors are on one
device; numbers of indices and single values may be on the CPU, as with CUDA. So a test runs a whole
method, with its steps, saves and answers, and finds a tensor that was left behind, without a GPU.
Kernels that CUDA does not have, and its order of additions, are found on a GPU alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fedvine.core import device

FAR = torch.device("meta")      # a name that torch has without any hardware
COPIES = {"copy_", "_to_copy"}
BY_INDEX = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}


class Far(torch.Tensor):
    """A tensor of the second device; ``held`` has its values on the CPU."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> Far:
        place = {} if held.layout != torch.strided else {
            "strides": held.stride(), "storage_offset": held.storage_offset()}
        made = torch.Tensor._make_wrapper_subclass(
            cls, held.shape, dtype=held.dtype, device=FAR, **place)
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} outside of emulated()")

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made = Far(self.held.detach().clone()).requires_grad_(self.requires_grad)
        memo[id(self)] = made = torch.nn.Parameter(made, self.requires_grad) if getattr(
            self, "_is_param", False) else made
        return made

    @property
    def layout(self) -> torch.layout:       # type: ignore[override]
        return self.held.layout

    @property
    def is_meta(self) -> bool:              # type: ignore[override]
        return False

    def new_tensor(self, data: Any, **how: Any) -> Far:
        return Far(self.held.new_tensor(data, **how))

    def __getitem__(self, at: Any) -> torch.Tensor:
        return super().__getitem__(_index(at))

    def __setitem__(self, at: Any, value: Any) -> None:
        super().__setitem__(_index(at), value)

    def tolist(self) -> Any:
        return self.held.tolist()


def _index(at: Any) -> Any:
    """Return lists and arrays of places as tensors on the CPU; torch would give them no values."""
    if isinstance(at, tuple):
        return tuple(map(_index, at))
    if not isinstance(at, (list, np.ndarray)):
        return at
    return torch.as_tensor(np.asarray(at, None if len(at) else np.int64))


class _Second(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, func.overloadpacket.__name__
        tensors = list(_tensors((*args, *kwargs.values())))
        far = [x for x in tensors if isinstance(x, Far)]
        asked = kwargs.get("device")
        if not far and (asked is None or asked.type != FAR.type):
            return func(*args, **kwargs)
        near = [x for x in tensors if not isinstance(x, Far)]
        assert all(x.device != FAR for x in near), f"{func}: a tensor without values"
        if name in BY_INDEX and isinstance(args[0], Far):
            near = [x for x in near if all(x is not index for index in args[1])]
        if far and name not in COPIES and any(x.dim() for x in near):
            raise RuntimeError(f"{func}: tensors on two devices")
        stays = name == "copy_" and not isinstance(args[0], Far)
        if asked is not None:
            stays, kwargs = asked.type != FAR.type, {**kwargs, "device": torch.device("cpu")}
        found = func(*(_held(x) for x in args), **{key: _held(x) for key, x in kwargs.items()})
        if stays:
            return found
        return _wrapped(found, {id(x.held): x for x in far})


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)


def _held(value: Any) -> Any:
    if isinstance(value, Far):
        return value.held
    return type(value)(map(_held, value)) if isinstance(value, (list, tuple)) else value


def _wrapped(value: Any, written: dict[int, Far]) -> Any:
    if isinstance(value, torch.Tensor):
        return written[id(value)] if id(value) in written else Far(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_wrapped(part, written) for part in value)
    return value


@contextlib.contextmanager
def emulated(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let ``device="cuda"`` mean the second device inside the ``with`` block."""
    patch.setattr(device, "GPU", str(FAR))
    patch.setattr(device, "has_gpu", lambda: True)
    patch.setattr(import_module("torch.optim.adam"), "_device_dtype_check_for_fused",
                  lambda *_, **__: None)
    made = torch.tensor
    patch.setattr(torch, "tensor", lambda data, *, device=None, **how: made(data, **how).to(device))
    with _Second():
        yield
