"""Stop a command, and what it started, from outside."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AGAIN = 0.05        # seconds until a signal that got lost comes again


def stopped_as_by_ctrl_c() -> None:
    """Let a plain kill, or the terminal's end, end a command and its processes as Ctrl-C does.

    Python drops an exception that is raised in a function which C calls back (as LLVM does while
    it compiles) or in a ``__del__``. A ``KeyboardInterrupt`` dropped there comes again.
    """
    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    for number in STOPS[1:]:
        if signal.getsignal(number) == signal.SIG_DFL:  # under nohup a hang-up is ignored
            signal.signal(number, stop)
    if not isinstance(sys.unraisablehook, _Again):
        sys.unraisablehook = _Again(sys.unraisablehook)


class _Again:
    """A hook for exceptions that Python dropped: an interruption is sent again."""

    def __init__(self, other: Any) -> None:
        self.other = other      # for every other exception

    def __call__(self, dropped: Any) -> None:
        number = next((n for n in STOPS if callable(signal.getsignal(n))), None)
        if number is None or not issubclass(dropped.exc_type, KeyboardInterrupt):
            self.other(dropped)
            return
        # at once it would be raised here, and dropped again
        later = threading.Timer(AGAIN, os.kill, (os.getpid(), number))
        later.daemon = True
        later.start()
