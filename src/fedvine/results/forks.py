"""Processes that run a command of fedvine without importing what every run needs again.

One process imports it once, for some three CPU seconds, and each run is a fork of that process. A
run has its own memory, and ends by itself: nothing of it is left for the next one. Where a system
cannot fork safely (macOS, Windows) each run is a new process.

``python -m fedvine.results.forks`` is that process. It reads a line of JSON for each run and writes
the number of its process; a second line has the exit code when the run has ended. A line with a
number and a signal sends it. At the end of its input it stops the runs that are left and waits for
them; where it is killed they are, too.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import queue
import runpy
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

#: What every run with tensors imports.
MODULES = ("torch", "numba", "scipy.sparse", "duckdb", "pyarrow", "fedvine.cli.run",
           "fedvine.experiments.command", "fedvine.experiments.run", "fedvine.experiments.progress",
           "fedvine.experiments.track", "fedvine.results.records", "fedvine.nn.sparse")
POLL = 0.02         # seconds between two looks for runs that have ended
_PARENT_DEATH = 1   # of prctl, in Linux's prctl.h


class ForkServer:
    """The process that is forked, started with the first run; ``close`` ends it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._started: queue.Queue[int | None] = queue.Queue()
        self._codes: dict[int, int] = {}

    def start(self, arguments: Sequence[str], log: Path) -> Fork | subprocess.Popen[bytes]:
        """Start ``python -m fedvine`` with these arguments, its stderr written to ``log``.

        Where forks are not safe, or the process that is forked has ended, it is a new process.
        """
        pid = self._forked(arguments, log) if sys.platform == "linux" else None
        return new_process(arguments, log) if pid is None else Fork(pid, self)

    def code(self, pid: int) -> int | None:
        """Return the exit code of a fork (-n where signal n ended it), None while it is running.

        It is that of a killed run where the process that is forked has ended without saying it.
        """
        ended = self._process is None or self._process.poll() is not None
        if ended and self._process is not None:
            self._reader.join()     # it may have said it last
        return self._codes.get(pid, -signal.SIGKILL if ended else None)

    def send_signal(self, pid: int, number: int) -> None:
        """Send a signal to a fork, if it goes on; the process that is forked knows."""
        with suppress(OSError):
            self._write([pid, int(number)])

    def close(self) -> None:
        """End the process that is forked; runs that are left are stopped."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
            self._process.wait()
            self._reader.join()

    def _forked(self, arguments: Sequence[str], log: Path) -> int | None:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fedvine.results.forks"], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            self._reader = threading.Thread(target=self._read, daemon=True)
            self._reader.start()
        try:
            self._write({"arguments": list(arguments), "log": str(log), "folder": str(Path.cwd())})
        except OSError:
            return None
        return self._started.get()

    def _write(self, order: dict[str, Any] | list[int]) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        """Take in numbers and exit codes of runs until the process that is forked ends."""
        assert self._process is not None and self._process.stdout is not None
        with self._process.stdout as lines:
            for text in lines:
                pid, *code = json.loads(text)
                if code:
                    self._codes[pid] = code[0]
                else:
                    self._started.put(pid)
        self._started.put(None)


class Fork:
    """A run in a fork, with the part of Popen's interface that runs of cells need."""

    def __init__(self, pid: int, server: ForkServer) -> None:
        self.pid, self._server = pid, server
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, None while the run goes on."""
        self.returncode = self._server.code(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code; raise ``subprocess.TimeoutExpired`` after ``timeout`` seconds."""
        ends = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if ends is not None and time.monotonic() > ends:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            time.sleep(POLL)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, if the run goes on."""
        self._server.send_signal(self.pid, number)

    def kill(self) -> None:
        """Kill the run."""
        self.send_signal(signal.SIGKILL)


def new_process(arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start ``python -m fedvine`` with these arguments in a new process."""
    with open(log, "wb") as stderr:
        return subprocess.Popen([sys.executable, "-m", "fedvine", *arguments],
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr)


def serve() -> None:
    """Import what runs need, then fork a run for each line of stdin, until its end."""
    for number in (signal.SIGINT, signal.SIGTERM):      # they are for the runs
        signal.signal(number, signal.SIG_IGN)
    from fedvine.core.compiler import leave_out_compiler
    from fedvine.experiments.allocator import keep_large_blocks
    keep_large_blocks()
    leave_out_compiler()
    for module in MODULES:
        with suppress(ImportError):     # a run that needs it says so
            importlib.import_module(module)
    running: set[int] = set()
    lines, rest = selectors.DefaultSelector(), b""
    lines.register(0, selectors.EVENT_READ)
    while True:
        if lines.select(POLL if running else None):
            more = os.read(0, 1 << 16)
            if not more:
                break
            *whole, rest = (rest + more).split(b"\n")
            for order in map(json.loads, whole):
                if isinstance(order, dict):
                    pid = _fork(order)
                    running.add(pid)
                    _say([pid])
                elif order[0] in running:       # not reaped yet, so the number is its own
                    os.kill(*order)
        _reap(running)
    for pid in running:
        os.kill(pid, signal.SIGTERM)
    while running:
        _reap(running)
        time.sleep(POLL)


def _fork(order: dict[str, Any]) -> int:
    """Return the number of a new process that carries out the order."""
    pid = os.fork()
    if not pid:
        _carry_out(order)
    return pid


def _carry_out(order: dict[str, Any]) -> NoReturn:
    """Run the command of an order in this process as a new one would, and end the process."""
    code = 1
    try:
        with suppress(OSError, AttributeError):     # of the GNU C library: end with the server
            ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with open(os.devnull, "r+b") as nothing, open(order["log"], "wb") as log:
            for number, file in enumerate((nothing, nothing, log)):
                os.dup2(file.fileno(), number)
        os.chdir(order["folder"])
        sys.argv = ["fedvine", *order["arguments"]]
        runpy.run_module("fedvine", run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _reap(running: set[int]) -> None:
    """Tell the exit code of each run that has ended."""
    for pid in list(running):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            running.discard(pid)
            _say([pid, os.waitstatus_to_exitcode(status)])


def _say(numbers: list[int]) -> None:
    with suppress(BrokenPipeError):
        os.write(1, json.dumps(numbers).encode() + b"\n")


if __name__ == "__main__":
    serve()
