"""Tensors without an import of torch: a process that did not import torch has none."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    import torch

# Bytes of a value by the name of its dtype, of the dtypes that may travel.
WIDTHS = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4,
          "int16": 2, "int8": 1, "uint8": 1, "bool": 1}


def is_tensor(value: Any) -> TypeGuard[torch.Tensor]:
    """Return whether ``value`` is a torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


@cache
def name_of(dtype: Any) -> str:
    """Return the name of a dtype of torch or NumPy, such as ``"float32"``."""
    return str(dtype).removeprefix("torch.")
