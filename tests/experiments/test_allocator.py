"""Large blocks are used again."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedvine.experiments.allocator import peak_memory

FAULTS = """
import resource, torch
from fedvine.experiments.allocator import keep_large_blocks
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        torch.empty(16_000_000).fill_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
first = faults()
able = keep_large_blocks()
for _ in range(4):      # until the heap is large enough
    faults()
print(able, first, faults())
"""


@pytest.mark.slow
def test_blocks_that_were_freed_cost_no_more_page_faults():
    found = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True,
                           check=True).stdout.split()
    if found[0] != "True":
        pytest.skip("this system's C library has no mallopt")
    assert int(found[2]) < int(found[1]) / 10 + 100


CHILD = "from fedvine.experiments.allocator import peak_memory; print(peak_memory())"
PARENT = f"""
import subprocess, sys
held = bytearray(400_000_000)
held[::4096] = bytes(len(held[::4096]))
print(subprocess.run([sys.executable, "-c", {CHILD!r}], capture_output=True, text=True,
                     check=True).stdout)
"""


def test_a_process_is_not_as_large_as_the_one_that_started_it():
    if not Path("/proc/self/status").exists():
        pytest.skip("this system tells no peak of a program alone")
    alone = int(subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True,
                               check=True).stdout)
    found = int(subprocess.run([sys.executable, "-c", PARENT], capture_output=True, text=True,
                               check=True).stdout)
    assert abs(found - alone) < 100e6 and found > 5e6
    held = bytearray(300_000_000)
    held[::4096] = bytes(len(held[::4096]))
    assert peak_memory() > 300e6
