"""Run a command that ends when the process that started it does, in any way that one ends.

    python -IS tied.py PARENT MARK COMMAND ...

A small process between the two watches the process id ``PARENT``. When that one is gone, or this
one gets a signal to stop, or the command ends by itself, it ends the command's process group and
every process that has ``MARK`` (``NAME=value``, or nothing) in its environment, which FLARE's
processes of a job inherit. It is run as a plain script and needs the standard library alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

WATCHED = 0.2  # seconds between two checks of the parent
GRACE = 3.0    # seconds that a process gets to end by itself


def start(command: list[str], mark: str = "", env: dict[str, str] | None = None,
          cwd: Path | None = None, out: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """Start ``command`` so that it ends with this process.

    ``mark`` is put into its environment, and its output goes to ``out``. The process that is
    returned has the command's exit code; :func:`stop` ends both.
    """
    name, _, value = mark.partition("=")
    env = {**(os.environ if env is None else env), **({name: value} if mark else {})}
    return subprocess.Popen(
        [sys.executable, "-IS", str(Path(__file__).absolute()), str(os.getpid()), mark, *command],
        stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, env=env, cwd=cwd)


def stop(process: subprocess.Popen[bytes], mark: str = "") -> None:
    """End a process of :func:`start`, and all that it started itself."""
    process.terminate()
    try:
        process.wait(2 * GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    sweep(mark)


def sweep(mark: str) -> None:
    """Kill every other process with ``mark`` in its environment and wait; nothing without /proc."""
    until = time.monotonic() + GRACE
    while (found := _marked(mark)) and time.monotonic() < until:
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(WATCHED / 10)


def resident(mark: str, word: str) -> float:
    """Return MB of processes with ``mark`` whose command has ``word`` in it; 0 without /proc."""
    pages = 0
    for pid in _with_word(mark, word):
        with contextlib.suppress(OSError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _with_word(mark: str, word: str) -> list[int]:
    found = []
    for pid in _marked(mark):
        with contextlib.suppress(OSError):
            if word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def _marked(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ") if mark else ():
        with contextlib.suppress(OSError):
            if (mark.encode() in entry.read_bytes().split(b"\0")
                    and int(entry.parent.name) != os.getpid()):
                found.append(int(entry.parent.name))
    return found


def _end(child: subprocess.Popen[bytes], mark: str) -> None:
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGTERM)
    for pid in _marked(mark):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + GRACE
    while time.monotonic() < until and (child.poll() is None or _marked(mark)):
        time.sleep(WATCHED / 2)
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    sweep(mark)
    child.wait()


def main() -> None:
    """Run the command; exit with its code."""
    parent, mark, *command = sys.argv[1:]
    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *which: told.append(which[0]))
    child = subprocess.Popen(command, start_new_session=True)
    while child.poll() is None and not told and os.getppid() == int(parent):
        time.sleep(WATCHED)
    _end(child, mark)
    sys.exit(child.returncode if child.returncode >= 0 else 128 - child.returncode)


if __name__ == "__main__":
    main()
