"""Where tensors are computed: on the processor, or on a GPU.

Messages, saves and what a run is known by do not depend on it: what travels or is kept is on the
CPU. Numbers do in their last digits: a GPU adds in another order, and in an order that differs from
run to run where several edges add to one row.
"""

from __future__ import annotations

import functools
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedvine.core.errors import FedvineError
from fedvine.core.method import Field, Method
from fedvine.core.tensors import is_tensor

if TYPE_CHECKING:
    import torch

FIELD = "device"
GPU = "cuda"


class OnDevice(Method):
    """Base of the methods that compute with tensors."""

    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="where tensors are computed: on a GPU where torch finds one "
        "(auto), never, or always; a client without one then refuses")

    @property
    def where(self) -> torch.device:
        """Return the device of this machine that ``device`` names.

        It is the CPU where there is no GPU: a server may have none, and :func:`check` refuses
        clients without one.
        """
        import torch
        return torch.device(GPU if self.device != "cpu" and has_gpu() else "cpu")


def has_gpu() -> bool:
    """Return whether torch finds a GPU here."""
    import torch
    return torch.cuda.is_available()


def check(method: Method) -> None:
    """Raise :class:`FedvineError` where a client of the method needs a GPU and there is none."""
    if isinstance(method, OnDevice) and method.device == GPU and not has_gpu():
        raise FedvineError('method.device is "cuda", and torch finds no GPU here; set it to "auto" '
                           'or "cpu", or install a torch with CUDA.')


@functools.cache
def processor() -> str:
    """Return the architecture and the model of this machine's processor: "x86_64, AMD EPYC"."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    except (OSError, ValueError):
        found = None
    model = found[1].strip() if found else platform.processor()
    kind = platform.machine()
    return kind if model in ("", kind) else f"{kind}, {model}"


def without(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a method's values without its device, which changes nothing of what it learns."""
    return {key: value for key, value in values.items() if key != FIELD}


def moved(value: Any, device: torch.device) -> Any:
    """Return a tree of dicts, lists and tuples with its tensors on ``device``."""
    if isinstance(value, dict):
        return {key: moved(part, device) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(moved(part, device) for part in value)
    return value.to(device) if is_tensor(value) else value
