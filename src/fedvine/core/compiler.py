"""Leave PyTorch's compiler out of processes that compile nothing.

The first step of an optimizer imports it, for a mark that says where code may not be compiled:
1.6 CPU seconds and 70 MB in every process.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

COMPILER = "torch._dynamo"


def leave_out_compiler() -> None:
    """Import PyTorch's compiler in this process only when more than its marks is asked for.

    Until then optimizers set the marks of a stand-in, which do nothing. Does nothing where the
    compiler is imported already.
    """
    if COMPILER not in sys.modules:
        sys.modules[COMPILER] = _StandIn(COMPILER)


class _StandIn(ModuleType):
    """Has the two marks that optimizers set; everything else is the compiler's."""

    @staticmethod
    def graph_break(*_: Any, **options: Any) -> None:
        """Mark a place where compiled code would end."""

    @staticmethod
    def disable(function: Callable[..., Any], *_: Any, **options: Any) -> Callable[..., Any]:
        """Return a function that would not be compiled: itself."""
        return function

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":    # asked of every module, by inspect
            raise AttributeError(name)
        if sys.modules.get(COMPILER) is self:
            del sys.modules[COMPILER]
        return getattr(importlib.import_module(COMPILER), name)
