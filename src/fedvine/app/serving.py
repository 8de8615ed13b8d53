"""Serve the page until a signal ends it."""
# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fedvine.core.errors import FedvineError

PATIENCE = 2        # seconds that running answers get at the end


def serve(folders: Sequence[Path], host: str = "127.0.0.1", port: int = 8765,
          say: Callable[[str], object] = print, token: str | None = None) -> None:
    """Serve the page about the runs in ``folders`` until SIGTERM or Ctrl-C.

    Args:
        folders: of runs, or of folders with runs in them.
        host: the address to listen on. A token is in the printed address: on loopback, too, since
            other users of a machine may connect there.
        port: the port; 0 for any that is free.
        say: gets the sentences for a person.
        token: that a request must have; None: one that is drawn.

    Raises:
        FedvineError: for a folder that is not one of a run, an address or port that cannot be used,
            and where the extra "app" is not installed.
    """
    try:
        import uvicorn

        from fedvine.app.api import application, is_loopback
    except ModuleNotFoundError as error:
        raise FedvineError(f"The page needs {error.name}, which is not installed; install the "
                           'extra: pip install "fedvine[app]".') from error
    found = runs_in(folders)
    token = token or secrets.token_urlsafe(32)
    server = uvicorn.Server(uvicorn.Config(
        application(found, host, token, lambda: _inside(folders)), lifespan="off",
        log_level="warning", ws="none",
        server_header=False, date_header=False, timeout_graceful_shutdown=PATIENCE,
        limit_concurrency=200, h11_max_incomplete_event_size=16_384, proxy_headers=False))
    try:
        listening = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=128)
    except OSError as error:
        raise FedvineError(f"{host}:{port} cannot be listened on ({error.strerror or error}); "
                           "choose another port with --port, or 0 for any.") from error
    with listening, _ended_by_signals(server):
        # asyncio does so only where a socket names its protocol; without it an answer in two
        # pieces waits 40 ms for the client's system
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        shown = f"[{host}]" if ":" in host else host
        say(f"http://{shown}:{listening.getsockname()[1]}/#token={token}")
        if not is_loopback(host):
            say("Whoever has this address reads all of these runs. It is not encrypted: use it in "
                "a network that you trust, or a tunnel to loopback.")
        say("Ctrl-C ends it.")
        asyncio.run(server.serve(sockets=[listening]))


def runs_in(folders: Sequence[Path]) -> list[Path]:
    """Return the run folders: those given, and those in a given folder; raise without any."""
    found: list[Path] = []
    for folder in folders:
        inside = _inside([folder])
        if not inside and not (folder / "experiment.toml").exists():
            raise FedvineError(f"{folder} is not a run folder and has none in it; give the folder "
                               "that fedvine run --out wrote.")
        found += [path for path in inside or [folder] if path not in found]
    return found


def _inside(folders: Sequence[Path]) -> list[Path]:
    """Return the runs in those folders that are not runs themselves."""
    return [path.parent for folder in folders if not (folder / "experiment.toml").exists()
            for path in sorted(folder.glob("*/experiment.toml"))]


@contextlib.contextmanager
def _ended_by_signals(server: Any) -> Iterator[None]:
    """Let a signal end the server, also one that comes before the server has its own handlers.

    The server raises a signal again when it is done, which then does nothing more.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        server.should_exit = True

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
