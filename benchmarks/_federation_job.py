"""What runs in the job of ``scripts/bench federation``: both ways of a call, side by side."""

from __future__ import annotations

import json
import os
import statistics
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import torch
from nvflare.collab import collab

from fedvine import testing
from fedvine.core.files import atomic
from fedvine.core.method import At, Method, on_client
from fedvine.core.state import World
from fedvine.core.worker import ClientWorker
from fedvine.engines.remote import RemoteClients
from fedvine.federation.flare import HUB, _call
from fedvine.federation.signed import Signer, Trusted
from fedvine.federation.site import Site

SIZES = (0, 1, 10, 100)  # MB
TIMES = (31, 21, 11, 9)
DEADLINE = 60.0          # seconds of a call


class Echo(Method):
    """Sends back what it gets."""

    name: ClassVar[str] = ""

    @on_client
    def echo(self, client: Any, payload: torch.Tensor) -> torch.Tensor:
        """The payload."""
        return payload


class EchoDesk:
    """A site that echoes: through fedvine's requests and seals, and as plain bytes."""

    def __init__(self) -> None:
        self._site: Site | None = None
        self._turn = threading.Lock()

    @collab.publish
    def alive(self, letter: bytes) -> bytes:
        """This process's session."""
        with self._turn:
            return self._opened().trusted.session

    @collab.publish
    def raw(self, letter: bytes) -> bytes:
        """The bytes that came."""
        return letter

    @collab.publish
    def handle(self, letter: bytes, seal: bytes) -> bytes:
        """A request of fedvine's, answered by a site with :class:`Echo`."""
        with self._turn:
            return self._opened().handle(letter, seal)

    def _opened(self) -> Site:
        if self._site is None:
            split, plan = testing.tiny_case()
            trusted = Trusted(Path(os.environ["FEDVINE_SITE"]), collab.site_name)
            self._site = Site("echo", lambda: split.parts["ada"], Path(), trusted)
            self._site.run = "bench"                       # it saves nothing
            self._site.worker = ClientWorker(Echo(), "echo", None, plan, testing.PROTOCOL,
                                             World(("echo",), 0, 1))
        return self._site


class EchoHub:
    """The server: alternates both ways, and writes medians."""

    def __init__(self, run: str) -> None:
        self.run = run

    @collab.main
    def main(self) -> None:
        """Each size, several times, ours and the raw engine's in turn."""
        proxies = {p.name: p for p in collab.clients}
        crossed: list[int] = []  # bytes of letters and answers, as the engine gets them

        def deliver(name: str, block: bytes, seal: bytes, seconds: float) -> bytes:
            answer = _call(proxies[name], "handle", seconds, letter=block, seal=seal)
            crossed.append(len(block) + len(seal) + len(answer))
            return answer

        def greet(name: str, seconds: float) -> bytes:
            return _call(proxies[name], "alive", seconds, letter=b"")

        def bare(name: str, block: bytes) -> bytes:
            answer = _call(proxies[name], "raw", DEADLINE, letter=block)
            crossed.append(len(block) + len(answer))
            return answer

        send = Signer(Path(os.environ[HUB]).parent / "server", "bench", deliver, greet)

        clients = RemoteClients(Echo(), proxies, World(tuple(proxies), 0, 1), testing.PROTOCOL,
                                send, deadline=DEADLINE)
        found: list[dict[str, Any]] = []
        turn = 0
        for size, times in zip(SIZES, TIMES, strict=True):
            payload, block = torch.zeros(size * 250_000), bytes(size * 1_000_000)

            def ours(turn: int, payload: torch.Tensor = payload) -> None:
                clients.begin(At(turn, 1, 1))
                replies = clients.call(clients.method.echo, payload,  # type: ignore[attr-defined]
                                       expect=payload)
                assert sum(r.numel() for r in replies) == len(proxies) * payload.numel()

            def raw(_: int, block: bytes = block) -> None:
                waiting = [clients._threads.submit(bare, n, block) for n in proxies]
                assert all(len(w.result()) == len(block) for w in waiting)

            seconds: dict[str, list[float]] = {"ours": [], "raw": []}
            count = dict[str, int]()
            for _ in range(times + 1):
                turn += 1  # whoever comes second finds the connections warm
                ways = (("ours", ours), ("raw", raw))
                for name, way in ways if turn % 2 else reversed(ways):
                    crossed.clear()
                    began = time.perf_counter()
                    way(turn)
                    seconds[name].append(time.perf_counter() - began)
                    count[name] = sum(crossed)
            found.append({"size": size, "times": times, "seconds": seconds, "bytes": count,
                          **{n: statistics.median(s[1:]) for n, s in seconds.items()}})
        with atomic(Path(os.environ[HUB], "bench.json"), "w") as file:
            json.dump(found, file)
