"""Stop a command, and what it started, from outside."""

from __future__ import annotations

import signal


def stopped_as_by_ctrl_c() -> None:
    """Let a plain kill, or the terminal's end, end a command and its processes as Ctrl-C does."""
    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # under nohup a hang-up is ignored
            signal.signal(number, stop)
