"""Where tensors are computed: on the processor, or on a GPU.

Messages, saves and what a run is known by do not depend on it: what travels or is kept is on the
CPU. Numbers do in their last digits: a GPU adds in another order, and in an order that differs from
run to run where several edges add to one row.
"""

from __future__ import annotations

import functools
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedvine.core.errors import FedvineError
from fedvine.core.expect import is_tensor
from fedvine.core.method import Method

if TYPE_CHECKING:
    import torch

GPU = "cuda"
Device = Literal["auto", "cpu", "cuda"]     # a GPU where torch finds one, never, or always
ABOUT = ("where tensors are computed: on a GPU where torch finds one (auto), never (cpu), or "
         "always (cuda)")


class OnDevice(Method):
    """Base of the methods that compute with tensors, where :func:`placed` says."""

    _device: Device = "auto"        # a run's setting, and none of the method's constants

    @property
    def where(self) -> torch.device:
        """Return the device of this machine where tensors are computed."""
        import torch
        return torch.device(GPU if self._device != "cpu" and has_gpu() else "cpu")


def has_gpu() -> bool:
    """Return whether torch finds a GPU here."""
    import torch
    return torch.cuda.is_available()


def placed(method: Method, device: Device) -> Method:
    """Return the method as it computes on a device; raise where that is a GPU and there is none."""
    if isinstance(method, OnDevice) and device != method._device:
        if device == GPU and not has_gpu():
            raise FedvineError('device is "cuda", and torch finds no GPU here; set it to "auto" or '
                               '"cpu", or install a torch with CUDA.')
        method = method.model_copy()
        method._device = device
    return method


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


def moved(value: Any, device: torch.device) -> Any:
    """Return a tree of dicts, lists and tuples with its tensors on ``device``."""
    if isinstance(value, dict):
        return {key: moved(part, device) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(moved(part, device) for part in value)
    return value.to(device) if is_tensor(value) else value
