"""Questions to the page: a client of 300,000 users and 3,000 items, over HTTP.

A run is made, ``fedvine app`` is started, and one client asks for one user's five likeliest items
with the last edges: the first question, which opens the run, then median and 95 % of 1,000
questions in milliseconds, while the page is polled as an open browser does. "Other" is the target
(100 ms at 95 %); the floor is the same questions to the run in this process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np

from benchmarks.ask import QUESTIONS, USERS, asked, make

METHODS = ("edgebank", "fedlink")
TARGET = 100.0


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
    return rows


def through_the_page(folder: str) -> dict[str, float]:
    """What was measured by one client of a page that is polled meanwhile."""
    from fedvine.core.rng import rng
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
