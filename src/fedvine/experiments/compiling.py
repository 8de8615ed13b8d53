"""Notice when loops are compiled, which each machine does once, when they are first used."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


class Compiling:
    """Count in ``now`` the loops that are being compiled at this moment, one inside the other."""

    def __init__(self) -> None:
        self.now = 0

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
                outer.now += 1

            def on_end(self, event: object) -> None:
                outer.now -= 1

        with event.install_listener("numba:compile", Listener()):
            yield
