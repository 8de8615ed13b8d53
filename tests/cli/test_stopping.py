"""A command ends at a signal, also where Python drops the exception that it raises."""

import subprocess
import sys

import pytest

LOST = """
import ctypes, signal, sys, time
from fedvine.cli.run import stopped_as_by_ctrl_c

signal.signal(signal.SIGINT, signal.{sigint})
for other in (signal.SIGTERM, signal.SIGHUP):       # whatever this process was started with
    signal.signal(other, signal.SIG_DFL)
stopped_as_by_ctrl_c()

def interrupted():
    signal.raise_signal(signal.{number})
    time.sleep(0)

ctypes.CFUNCTYPE(None)(interrupted)()       # C calls it back, and cannot pass an exception on
print("went on", flush=True)
try:
    while True:
        time.sleep(1)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(("number", "sigint"), [
    ("SIGINT", "default_int_handler"), ("SIGTERM", "default_int_handler"), ("SIGTERM", "SIG_IGN"),
    ("SIGHUP", "SIG_IGN")])
def test_an_interruption_that_was_dropped_comes_again(number, sigint):
    code = LOST.format(number=number, sigint=sigint)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "went on\n", "")


def test_other_dropped_exceptions_are_reported_as_before():
    code = ("from fedvine.cli.run import stopped_as_by_ctrl_c\n"
            "stopped_as_by_ctrl_c()\n"
            "class Bad:\n    def __del__(self): raise ValueError('seen')\n"
            "Bad()\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and "ValueError: seen" in done.stderr
