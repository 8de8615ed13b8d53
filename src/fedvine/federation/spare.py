"""Give memory back that a process which lives for long would keep of jobs that have ended.

FLARE keeps three kinds of it in the processes of a hub:

- for every message that it sends, a buffer of 1 MB (:func:`fit_buffers`) in a cycle of references,
  which Python frees only when it looks for such cycles; a process with many objects rarely does;
- for every process of every job, an endpoint and statistics of its messages, for ever;
- what was freed of both, in the C library's heap; buffers that are freed between small blocks of
  other threads leave holes.

This module does not import FLARE: cells and modules are given.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import threading
import time
from collections.abc import Callable
from typing import Any

EVERY = 1.0     # seconds between two looks, and at least
SHARE = 20.0    # times as long as a look took
BUFFER = 16_384     # bytes; larger blocks get pages of their own, see own_pages
#: Environment of processes that pass messages on, of the GNU C library: one heap for all threads,
#: and no small blocks kept by thread. Else each of the many threads keeps holes, and freed blocks,
#: that no other one can use.
ONE_HEAP = {"MALLOC_ARENA_MAX": "1", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
_OVER = "DISCONNECTED"      # FLARE's name of an endpoint's state
_MMAP_THRESHOLD = -3        # of mallopt, in the GNU C library's malloc.h


def forget_jobs(cell: Any) -> None:
    """Remove what a FLARE core cell keeps of processes of jobs that are no longer connected.

    Such a process is named ``<site>.<job>``; a job's name is used once.
    """
    known = cell.communicator.conn_manager.sfm_endpoints
    for name, kept in list(known.items()):
        if "." in name and kept.endpoint.state.name == _OVER:
            cell.communicator.remove_endpoint(name)
    travel = cell.msg_travel_stats_pool
    for category in list(travel.cat_bins):      # "<sender>#<kind of message>"
        sender = category.partition("#")[0]
        if "." in sender and sender not in known:
            with travel.update_lock:
                travel.cat_bins.pop(category, None)


def fit_buffers(streamer: Any) -> None:
    """Let a message that FLARE sends from now on take a buffer of its own size, at most as before.

    ``streamer`` is FLARE's module ``byte_streamer``. How many messages are on their way depends on
    the machine's load, so buffers that are all of 1 MB make its memory rise and fall with that.
    """
    class Fitting(streamer.TxTask):     # one message on its way
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            if 0 < (size := self.stream.get_size()) < self.chunk_size:
                self.buffer = memoryview(bytearray(size))

    streamer.TxTask = Fitting


def own_pages() -> None:
    """Give each block of more than :data:`BUFFER` bytes pages of its own; it leaves no hole.

    The library does so by itself until the first such block is freed. For processes that pass
    messages on: where tensors come and go, pages that are always new cost time.
    """
    with contextlib.suppress(OSError, AttributeError):      # of the GNU C library alone
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, BUFFER)


def give_back() -> None:
    """Free cycles of references, and return the heap's free pages to the system where it can."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):      # of the GNU C library alone
        ctypes.CDLL(None).malloc_trim(0)


def keep_small(forget: Callable[[], None] = lambda: None) -> Callable[[], None]:
    """Start a thread that calls ``forget`` and :func:`give_back` every :data:`EVERY` seconds.

    Objects that exist by its first look (modules, mostly) are left out of later looks, which then
    take milliseconds. Returns the function that ends it.
    """
    over = threading.Event()

    def work() -> None:
        pause, first = EVERY, True
        while not over.wait(pause):
            began = time.monotonic()
            with contextlib.suppress(Exception):    # FLARE changed a table meanwhile; look again
                forget()
            give_back()
            if first:
                gc.freeze()
                first = False
            pause = max(EVERY, SHARE * (time.monotonic() - began))

    def stop() -> None:
        over.set()
        thread.join()
        gc.unfreeze()       # libraries report objects that were left out at the end as lost

    thread = threading.Thread(target=work, name="spare memory", daemon=True)
    thread.start()
    atexit.register(stop)
    return stop
