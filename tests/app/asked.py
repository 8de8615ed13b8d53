"""Runs for tests of the page, and requests to its application without a server."""

import asyncio
import json
from pathlib import Path

from fedvine import testing
from fedvine.core import registry
from fedvine.data.ids import Ids
from fedvine.data.stream import EventStream
from fedvine.experiments.run import Run, run
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.tasks.tiny import tiny_graphs

NASTY = "<script>document.title = 'harmed'</script><img src=x onerror=\"document.title='harmed'\">"


def links(folder: Path, method: str = "fedlink_plus", seed: int = 0, names=("ada", "bob", "cyd"),
          prefix: str = "", **protocol) -> Run:
    """Return a run on the tiny stream; users and items are called with ``prefix``."""
    plain, (_, plan) = testing.tiny_stream(names=tuple(names)), testing.tiny_case()
    stream = plain
    if prefix:
        src, dst = (Ids.of(prefix + ids[i] for i in range(len(ids)))
                    for ids in (plain.src_ids, plain.dst_ids))
        stream = EventStream(plain.src, plain.dst, plain.t, src, dst, codes=plain.codes,
                             categories=plain.categories, name="tiny")
    return run(registry.method(method).tiny(), stream.split("client"), plan, seed=seed, out=folder,
               protocol=LinkPrediction(**{"negatives": 5, "positives": 40, **protocol}))


def labels(folder: Path, method: str = "power") -> Run:
    """Return a run of class-incremental tasks on tiny graphs."""
    parts, plan = tiny_graphs()
    return run(registry.method(method).tiny(), parts, plan, out=folder)


def get(app, path: str, method: str = "GET", host: str = "127.0.0.1:8765", given=b"",
        **headers):
    """Return status, headers and body of an answer; the body of JSON as its value.

    ``given`` is the body of the request, as bytes or a value for JSON.
    """
    path, _, query = path.partition("?")
    sent = []

    async def receive():
        body = given if isinstance(given, bytes) else json.dumps(given).encode()
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    named = {"host": host, **{k.replace("_", "-"): v for k, v in headers.items()}}
    asyncio.run(app({"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1",
                     "method": method, "path": path, "raw_path": path.encode(), "root_path": "",
                     "scheme": "http", "query_string": query.encode(), "client": ("127.0.0.1", 1),
                     "server": ("127.0.0.1", 8765),
                     "headers": [(k.encode(), v.encode()) for k, v in named.items()]},
                    receive, send))
    found = {k.decode().lower(): v.decode() for k, v in sent[0]["headers"]}
    body = b"".join(m.get("body", b"") for m in sent[1:])
    return sent[0]["status"], found, (json.loads(body) if "json" in found["content-type"] else
                                      body.decode())
