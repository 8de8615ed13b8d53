"""Notice when loops are compiled, which each machine does once, when they are first used."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, MutableMapping


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
