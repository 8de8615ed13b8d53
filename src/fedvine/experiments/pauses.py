"""Pauses of a process that stays: a signal ends one, and asks for the end of the process."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from typing import Any, Self


class Pauses:
    """Pauses in a ``with`` block, where signals are taken as follows.

    - SIGUSR1 ends a pause, or leaves out the next one.
    - SIGINT (Ctrl-C), SIGTERM and SIGHUP end it too, and set ``stopping``. The second of them
      raises :class:`KeyboardInterrupt` at once. One that is ignored (``nohup``) stays ignored.

    In another thread than the first one signals are left as they are.
    """

    def __init__(self) -> None:
        self.stopping = False
        self._before: dict[int, Any] = {}
        self._ends: tuple[int, int] = (-1, -1)

    def __enter__(self) -> Self:
        self._ends = os.pipe()
        os.set_blocking(self._ends[1], False)
        if threading.current_thread() is threading.main_thread():
            for number, then in ((signal.SIGUSR1, self._look), (signal.SIGINT, self._stop),
                                 (signal.SIGTERM, self._stop), (signal.SIGHUP, self._stop)):
                if signal.getsignal(number) != signal.SIG_IGN:
                    self._before[number] = signal.signal(number, then)
        return self

    def __exit__(self, *error: object) -> None:
        for number, then in self._before.items():
            signal.signal(number, then)
        for end in self._ends:
            os.close(end)

    def wait(self, seconds: float) -> bool:
        """Pause for so many seconds at most; return whether a signal ended the pause."""
        ready, _, _ = select.select([self._ends[0]], [], [], seconds)
        if ready:
            os.read(self._ends[0], 4096)
        return bool(ready)

    def _look(self, number: int, frame: object) -> None:
        with contextlib.suppress(BlockingIOError):      # thousands of signals wait
            os.write(self._ends[1], b".")

    def _stop(self, number: int, frame: object) -> None:
        if self.stopping:
            raise KeyboardInterrupt
        self.stopping = True
        self._look(number, frame)
