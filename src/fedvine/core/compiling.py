"""Notice when loops are compiled, and leave PyTorch's compiler out of what compiles nothing.

Loops are compiled once on each machine, when they are first used. The first step of an optimizer
imports PyTorch's compiler, for a mark that says where code may not be compiled: 1.6 CPU seconds and
70 MB in every process.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import time
from collections.abc import Callable, Iterator, MutableMapping
from types import ModuleType
from typing import Any

COMPILER = "torch._dynamo"


class Compiling:
    """Count in ``now`` the loops that are being compiled at this moment, one inside the other.

    ``seconds`` is the time that this took in all.
    """

    def __init__(self) -> None:
        self.now, self.seconds = 0, 0.0

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Count in this block; nothing is counted where no module with such loops is loaded."""
        if "numba" not in sys.modules:
            yield
            return
        from numba.core import event
        outer = self

        class Listener(event.Listener):
            """Told when a loop's compilation begins and ends; a cached loop is only loaded."""

            def on_start(self, event: object) -> None:
                if not outer.now:
                    self.began = time.perf_counter()
                outer.now += 1

            def on_end(self, event: object) -> None:
                outer.now -= 1
                if not outer.now:
                    outer.seconds += time.perf_counter() - self.began

        with event.install_listener("numba:compile", Listener()):
            yield


@contextlib.contextmanager
def timed(seconds: MutableMapping[str, float], key: str) -> Iterator[None]:
    """Write the seconds of this block to ``seconds``, without those in which loops are compiled."""
    compiling, began = Compiling(), time.perf_counter()
    with compiling.watch():
        yield
    seconds[key] = time.perf_counter() - began - compiling.seconds


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
