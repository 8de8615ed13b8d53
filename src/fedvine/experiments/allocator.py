"""Keep freed memory in the process: glibc returns every large block to the system at once.

A block that is allocated afresh costs a page fault for every page: ten times the time of filling
it. With kept blocks the memory of the process stays at its highest value.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import resource
from pathlib import Path

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3     # of malloc.h
MOST = 2**31 - 1


def keep_large_blocks() -> bool:
    """Keep freed blocks up to 2 GB in this process from now on; return whether the system can.

    For a process that computes and ends; ``fedvine run`` and the benchmarks call it.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):        # no glibc
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, MOST)) and bool(mallopt(M_TRIM_THRESHOLD, MOST))


def peak_memory() -> int:
    """Return the highest resident memory of this process so far, in bytes.

    The system's ``ru_maxrss`` includes the process that this one was forked from, so it is only
    used where ``/proc`` does not exist.
    """
    with contextlib.suppress(OSError):
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        if found:
            return int(found[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
