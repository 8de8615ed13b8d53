"""What runs in the job of ``scripts/bench federation``: both ways of a call, side by side."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, ClassVar

import torch
from nvflare.collab import collab

from fedvine import checks
from fedvine.engines.flare import Desk, _call
from fedvine.engines.remote import RemoteClients
from fedvine.memory import World
from fedvine.method import At, Method, on_client
from fedvine.resident import Resident
from fedvine.site import Site

SIZES = (0, 1, 10, 100)  # MB
TIMES = (30, 20, 8, 6)


class Echo(Method):
    """Sends back what it gets."""

    name: ClassVar[str] = ""

    @on_client
    def echo(self, client: Any, payload: torch.Tensor) -> torch.Tensor:
        """The payload."""
        return payload


class EchoDesk(Desk):
    """A site that echoes: through fedvine's whole path, and as plain bytes."""

    @collab.publish
    def raw(self, letter: bytes) -> bytes:
        """The bytes that came."""
        return letter

    @collab.publish
    def handle(self, letter: bytes) -> bytes:
        """A request of fedvine's, answered by a resident client of :class:`Echo`."""
        if self._site is None:
            split, plan = checks.tiny_case()
            site = Site("echo", lambda: split.parts["ada"], Path(os.environ["FEDVINE_SITE"]))
            site.resident = Resident(Echo(), "echo", None, plan, checks.PROTOCOL,
                                     World(("echo",), 0, 1))
            self._site = site
        return self._site.handle(letter)


class EchoHub:
    """The server: alternates both ways, and writes medians."""

    def __init__(self, run: str) -> None:
        self.run = run

    @collab.main
    def main(self) -> None:
        """Each size, several times, ours and the raw engine's in turn."""
        proxies = {p.name: p for p in collab.clients}

        def send(name: str, block: bytes, seconds: float) -> bytes:
            return _call(proxies[name], "handle", block, seconds)

        found: list[dict[str, Any]] = []
        place = 0
        clients = RemoteClients(Echo(), proxies, World(tuple(proxies), 0, 1), checks.PROTOCOL, send)
        threads = clients._threads
        for size, times in zip(SIZES, TIMES, strict=True):
            payload = torch.zeros(size * 250_000)
            block = bytes(size * 1_000_000)
            ours, raw = [], []

            def our_way(turn: int, payload: torch.Tensor = payload) -> float:
                clients.begin(At(turn, 1, 1))
                began = time.perf_counter()
                replies = clients.call(clients.method.echo, payload)  # type: ignore[attr-defined]
                got = sum(r.numel() for r in replies)
                assert got == len(proxies) * payload.numel()
                return time.perf_counter() - began

            def raw_way(block: bytes = block) -> float:
                began = time.perf_counter()
                waiting = [threads.submit(_call, p, "raw", block, 600.0) for p in proxies.values()]
                assert all(len(w.result()) == len(block) for w in waiting)
                return time.perf_counter() - began

            for _ in range(times + 1):
                place += 1
                if place % 2:  # whoever comes second finds the connections warm
                    ours.append(our_way(place))
                    raw.append(raw_way())
                else:
                    raw.append(raw_way())
                    ours.append(our_way(place))
            found.append({"size": size, "ours": sorted(ours[1:])[times // 2],
                          "raw": sorted(raw[1:])[times // 2], "times": times})
        Path(os.environ["FEDVINE_HUB"], "bench.json").write_text(json.dumps(found))
