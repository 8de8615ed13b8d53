"""Questions to the page: a client of 300,000 users and 3,000 items, over HTTP.

A run is made, ``fedvine app`` is started, and one client asks for one user's five likeliest items
with the last edges: the first question, which opens the run, then median and 95 % of 1,000
questions in milliseconds, while the page is polled as an open browser does. "Other" is the target
(100 ms at 95 %); the floor is the same questions to the run in this process.

Then a program asks by the run's name: 300 requests a second, sent evenly over 50 connections for
two minutes whether the ones before are answered or not, one of ten about pairs, which are computed.
Meanwhile nights are learned by another process, each with forecasts of all users. A request counts
from the moment it was due; "other" is the target (15 ms at 95 %), the floor the median. None may
fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np

from benchmarks.ask import QUESTIONS, USERS, asked, make
from fedvine.core.rng import rng

METHODS = ("edgebank", "fedlink")
TARGET, DUE = 100.0, 15.0
RATE, CONNECTIONS, SECONDS = 300, 50, 120
BUYERS, ITEMS, DAYS = 5_000, 3_000, 40
COLUMNS = ["--src", "user", "--dst", "item", "--time", "at", "--client", "town"]


def measure() -> list[dict[str, Any]]:
    """The first question, median and 95 % by method."""
    rows = []
    for method in METHODS:
        with tempfile.TemporaryDirectory() as place:
            make(Path(place) / "run", method)
            floor = asked(f"{place}/run")
            found = through_the_page(f"{place}/run")
        name = f"{USERS:,} users, {method}"
        rows.append({"name": f"{name}: first question, s", "ours": found["first"],
                     "other": floor["load"], "ratio": found["first"] / floor["load"],
                     "floor": floor["load"]})
        rows += [{"name": f"{name}: {what} of {QUESTIONS:,}, ms", "ours": found[what],
                  "other": TARGET, "ratio": found[what] / TARGET, "floor": floor[what]}
                 for what in ("median", "95 %")]
    return rows + by_name()


def through_the_page(folder: str) -> dict[str, float]:
    """What was measured by one client of a page that is polled meanwhile."""
    process = subprocess.Popen([sys.executable, "-m", "fedvine", "app", folder, "--port", "0"],
                               stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        address, _, token = process.stdout.readline().strip().partition("/#token=")
        port = int(address.rpartition(":")[2])
        allowed = {"Authorization": f"Bearer {token}"}
        done = threading.Event()
        poller = threading.Thread(target=_poll, args=(port, allowed, done))
        poller.start()
        connection, spent = HTTPConnection("127.0.0.1", port), []
        users = [f"user {i * 7919 % 10**8}" for i in rng("asked").integers(0, USERS, QUESTIONS)]
        first = _question(connection, allowed, "large", users[0])
        for i, user in enumerate(users):
            spent.append(1e3 * _question(connection, allowed,
                                         "small" if i % 10 == 9 else "large", user))
        done.set()
        poller.join()
        connection.close()
    finally:
        process.terminate()
        process.communicate()
    return {"first": first, "median": float(np.median(spent)),
            "95 %": float(np.quantile(spent, 0.95))}


def _question(connection: HTTPConnection, allowed: dict[str, str], client: str, user: str
              ) -> float:
    """Ask; return the seconds."""
    began = time.perf_counter()
    connection.request("GET", "/api/runs/0/forecasts?" + urlencode(
        {"client": client, "user": user, "top": 5}), headers=allowed)
    found = json.loads(connection.getresponse().read())
    assert len(found["items"]) == 5, found
    return time.perf_counter() - began


def _poll(port: int, allowed: dict[str, str], done: threading.Event) -> None:
    """Look every two seconds, as the page does."""
    connection = HTTPConnection("127.0.0.1", port)
    while not done.wait(2):
        connection.request("GET", "/api/runs", headers=allowed)
        connection.getresponse().read()
    connection.close()


# -- programs, by the name of a run, while nights are learned --------------------------------------
def by_name() -> list[dict[str, Any]]:
    """The time of written and of computed answers, and the number of nights meanwhile."""
    with tempfile.TemporaryDirectory() as place:
        _table(Path(place) / "shop.csv")
        _night(place, 20)
        stop, nights = threading.Event(), []

        def learn() -> None:
            for day in range(21, DAYS):
                if stop.is_set():
                    return
                _night(place, day)
                nights.append(day)

        with _app(f"{place}/run") as (port, token):
            learner = threading.Thread(target=learn)
            learner.start()
            found = asyncio.run(_load(port, token))
            stop.set()
            learner.join()
    rows = []
    for kind, spent in found.items():
        high, middle = float(np.quantile(spent, 0.95)), float(np.median(spent))
        rows.append({"name": f"{RATE} a second, {len(nights)} nights: {kind}, 95 %, ms",
                     "ours": high, "other": DUE, "ratio": high / DUE, "floor": middle})
    return rows


def _table(path: Path) -> None:
    """Write a generated shop: :data:`BUYERS` users at two towns, 250 rows an hour."""
    draw, count = rng("shop, asked"), DAYS * 24 * 250
    user, item = draw.integers(0, BUYERS, count), (ITEMS * draw.random(count) ** 2).astype(int)
    at = np.datetime64("2024-01-01", "s") + np.sort(draw.integers(0, DAYS * 86_400, count))
    with open(path, "w", encoding="utf-8") as file:
        file.write("user,item,at,town\n")
        file.writelines(f"u{u},i{i},{t},{'ab'[u % 2]}\n"
                        for u, i, t in zip(user, item, at, strict=True))


def _night(place: str, day: int) -> None:
    """Learn the days before ``day``, and write the forecasts of all users."""
    as_of = f"{np.datetime64('2024-01-01', 's') + day * 86_400}"
    for words in (["run", "fedlink_plus", "--data", "shop.csv", *COLUMNS, "--stages", "1d",
                   "--open", "--as-of", as_of, "--out", "run"],
                  ["predict", "run", "--all", "--top", "10", "--out", "all.parquet"]):
        subprocess.run([sys.executable, "-m", "fedvine", *words], cwd=place, check=True,
                       capture_output=True)


@contextlib.contextmanager
def _app(folder: str) -> Iterator[tuple[int, str]]:
    """Serve a run; yield the port and the token."""
    process = subprocess.Popen([sys.executable, "-m", "fedvine", "app", folder, "--port", "0"],
                               stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        address, _, token = process.stdout.readline().strip().partition("/#token=")
        yield int(address.rpartition(":")[2]), token
    finally:
        process.terminate()
        process.communicate()


async def _load(port: int, token: str) -> dict[str, list[float]]:
    """Send requests when they are due; return milliseconds by kind. Raises for one that fails."""
    spent: dict[str, list[float]] = {"written": [], "pairs": []}
    draw, began = rng("load"), time.perf_counter() + 1
    users = draw.integers(0, BUYERS, RATE * SECONDS).tolist()

    async def connection(first: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for k in range(first, len(users), CONNECTIONS):
            user, due = users[k], began + k / RATE
            town, computed = "ab"[user % 2], k % 10 == 9
            path = "/runs/run/forecasts" + ("" if computed else
                                            f"?client={town}&user=u{user}&n=10")
            body = json.dumps({"pairs": [
                {"client": town, "user": f"u{user}", "item": f"i{(user + i) % 900}"}
                for i in range(20)]}) if computed else ""
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            writer.write(f"{'POST' if computed else 'GET'} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                         f"Authorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n"
                         f"{body}".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            answer = await reader.readexactly(size)
            if not head.startswith(b"HTTP/1.1 200") or b"item" not in answer:
                raise AssertionError(head + answer)
            spent["pairs" if computed else "written"].append(1e3 * (time.perf_counter() - due))
        writer.close()

    await asyncio.gather(*map(connection, range(CONNECTIONS)))
    return spent
