"""Processes that live for long keep nothing of jobs that have ended."""

import ctypes
import gc
import os
import subprocess
import sys
import threading
import weakref
from types import SimpleNamespace

import pytest

from fedvine.federation import spare


@pytest.mark.slow
def test_of_a_job_that_ended_nothing_is_kept():
    pytest.importorskip("nvflare", reason="the extra flare is not installed")
    from nvflare.fuel.f3.communicator import Communicator
    from nvflare.fuel.f3.endpoint import Endpoint, EndpointState
    from nvflare.fuel.f3.sfm.sfm_endpoint import SfmEndpoint
    from nvflare.fuel.f3.stats_pool import new_time_pool

    cell = SimpleNamespace(communicator=Communicator(Endpoint("server")),
                           msg_travel_stats_pool=new_time_pool("travel", "seconds"))
    kept = cell.communicator.conn_manager.sfm_endpoints
    for name, state in {"ada": EndpointState.READY, "bob": EndpointState.DISCONNECTED,
                        "ada.new": EndpointState.READY, "ada.old": EndpointState.DISCONNECTED,
                        "server.old": EndpointState.DISCONNECTED}.items():
        kept[name] = SfmEndpoint(Endpoint(name))
        kept[name].endpoint.state = state
        cell.msg_travel_stats_pool.record_value(f"{name}#task:get", 0.1)
        cell.msg_travel_stats_pool.record_value(f"{name}#task:put", 0.1)
    spare.forget_jobs(cell)
    assert set(kept) == {"ada", "bob", "ada.new"}       # bob, a site, may come back
    assert set(cell.msg_travel_stats_pool.cat_bins) == {
        f"{name}#task:{what}" for name in kept for what in ("get", "put")}


class _Buffer(bytearray):
    pass


@pytest.mark.slow
def test_garbage_goes_until_told_to_stop(monkeypatch):
    monkeypatch.setattr(spare, "EVERY", 0.01)
    monkeypatch.setattr(spare, "SHARE", 1.0)
    seen = threading.Semaphore(0)

    def forget() -> None:
        seen.release()
        raise RuntimeError("dictionary changed size during iteration")

    def wait_for_a_whole_look() -> None:
        while seen.acquire(blocking=False):
            pass
        assert all(seen.acquire(timeout=60) for _ in range(2))      # it begins, and the next does

    gc.disable()
    try:
        before = set(threading.enumerate())
        stop = spare.keep_small(forget)
        thread, = set(threading.enumerate()) - before
        wait_for_a_whole_look()
        for _ in range(3):
            cycle: list[object] = [_Buffer(1000)]
            cycle.append(cycle)
            gone = weakref.ref(cycle[0])
            del cycle
            wait_for_a_whole_look()
            assert gone() is None
        stop()
        assert not thread.is_alive()
        assert gc.get_freeze_count() == 0
    finally:
        gc.enable()


FREED = """
import ctypes, threading
fields = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
class Heap(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in fields]
library = ctypes.CDLL(None)
library.mallinfo2.restype = Heap
def work():
    [bytes(size) for size in range(520, 1000, 8) for _ in range(10)]    # freed at once
    freed.wait()
    over.wait()
freed, over = threading.Barrier(61), threading.Event()
before = library.mallinfo2().uordblks
for _ in range(60):
    threading.Thread(target=work).start()
freed.wait()
print(library.mallinfo2().uordblks - before)
over.set()
"""


def test_threads_of_a_kits_processes_keep_no_freed_blocks():
    if not hasattr(ctypes.CDLL(None), "mallinfo2"):
        pytest.skip("this system's C library has no mallinfo2")
    kept, usual = (int(subprocess.run([sys.executable, "-c", FREED], env={**os.environ, **more},
                                      capture_output=True, text=True, check=True).stdout)
                   for more in (spare.ONE_HEAP, {}))
    assert kept < usual - 4_000_000     # of 60 threads


@pytest.mark.parametrize("size", [1, 700, (1 << 20) - 1, 1 << 20, (1 << 20) + 5])
def test_a_message_on_its_way_takes_a_buffer_of_its_own_size(size, monkeypatch):
    pytest.importorskip("nvflare", reason="the extra flare is not installed")
    from nvflare.fuel.f3.streaming import byte_streamer
    from nvflare.fuel.f3.streaming.blob_streamer import BlobStream

    monkeypatch.setattr(byte_streamer, "TxTask", byte_streamer.TxTask)      # put back afterwards
    spare.fit_buffers(byte_streamer)
    sent, whole = [], os.urandom(size)

    def fire_and_forget(channel, topic, target, message, **options):
        sent.append(bytes(message.payload))

    for payload in (whole, [whole[:size // 2], whole[size // 2:]]):     # the latter in short reads
        task = byte_streamer.TxTask(
            SimpleNamespace(fire_and_forget=fire_and_forget), 1 << 20, "channel", "topic", "ada",
            {}, BlobStream(payload, {}), False, False, False)
        assert len(task.buffer) == min(size, 1 << 20)
        sent.clear()
        task.send_loop()
        assert b"".join(sent) == whole
