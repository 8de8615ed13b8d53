"""The application: one page, and the JSON that it shows.

``GET /api/runs`` has a row a run and the time now, ``/api/compared`` the runs side by side,
``/api/runs/N`` one run in detail, ``/api/runs/N/forecasts?client=&user=&top=``,
``/api/runs/N/labels?client=&node=`` and ``/api/runs/N/names?client=&start=`` answer questions.
``GET /metrics`` has numbers for a monitor. Programs ask by a run's name: ``GET
/runs/NAME/forecasts?client=&user=&n=`` answers by what the night wrote (``fedvine predict --all``,
``--forecasts``), else computes it; ``POST`` there with users or pairs, and with nodes to
``/runs/NAME/labels``, computes up to 10,000 answers. ``GET /openapi.json`` says it for machines. An
error is ``{"error": SENTENCE}`` with status 400, or
404 for a run that there is not.
"""

# pyright: reportMissingImports=false
# The extra "app" brings what this file imports.
from __future__ import annotations

import base64
import bisect
import contextlib
import hashlib
import hmac
import ipaddress
import json
import os
import re
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse
from starlette.routing import Route

from fedvine.app import programs
from fedvine.core.errors import FedvineError
from fedvine.data.ids import Ids
from fedvine.experiments.nights import metrics
from fedvine.experiments.reopened import OpenRun, open_run
from fedvine.experiments.run_files import PENDING, RECEIPTS
from fedvine.federation import site_saves
from fedvine.results.report import PAGE
from fedvine.results.view import plain
from fedvine.results.watched import Watched, compared
from fedvine.tasks.class_incremental import said_of

EDGES = 10          # last edges that are shown
NAMES = 8           # names that are suggested
BODY = 4_000_000    # bytes of such a question
MOST = 2_000_000    # names of a client; of more none are suggested
HEADERS = {
    "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
Call = Callable[..., Awaitable[Any]]


class Api:
    """The answers about the runs in ``folders``, in this order, and those found by ``more``."""

    def __init__(self, folders: Sequence[str | os.PathLike[str]],
                 more: Callable[[], Sequence[Path]] = lambda: ()) -> None:
        self.runs, self.asked, self._more = list[Watched](), list[Asked](), more
        self._adding = threading.Lock()
        self._add(folders)

    def _add(self, folders: Sequence[str | os.PathLike[str]]) -> None:
        with self._adding:
            known = {seen.folder for seen in self.runs}
            for folder in map(Path, folders):
                if folder not in known:
                    seen = Watched(folder, len(self.runs))
                    self.asked.append(Asked(seen))
                    self.runs.append(seen)

    async def listed(self, request: Request) -> JSONResponse:
        """Answer with a row a run."""
        self._add(self._more())
        return await run_in_threadpool(self._rows)

    def _rows(self) -> JSONResponse:
        for seen in self.runs:
            seen.look()
        return JSONResponse({"now": time.time(), "runs": [s.row() for s in self.runs]})

    def compared(self, request: Request) -> JSONResponse:
        """Answer with the runs side by side."""
        for seen in self.runs:
            seen.look()
        return _answer(compared, self.runs)

    def metrics(self, request: Request) -> PlainTextResponse:
        """Answer with numbers of all runs, as Prometheus reads them."""
        self._add(self._more())
        texts = []
        for seen in self.runs:
            with contextlib.suppress(FedvineError):     # a folder that is being changed
                texts.append(metrics(seen.folder))
        blocks: dict[str, list[str]] = {}       # a metric's lines stand together
        for line in (line for text in texts for line in text.rstrip("\n").split("\n")):
            name = line.split(" ")[2] if line[0] == "#" else line.split("{")[0]
            held = blocks.setdefault(name, [])
            if line not in held:
                held.append(line)
        return PlainTextResponse("".join(f"{line}\n" for held in blocks.values() for line in held))

    def detail(self, request: Request) -> JSONResponse:
        """Answer with all about one run."""
        if (seen := self._one(request)) is None:
            return _unknown(request)
        seen.look()
        return _answer(seen.detail)

    def forecasts(self, request: Request) -> JSONResponse:
        """Answer with a user's likeliest items."""
        if (seen := self._one(request)) is None:
            return _unknown(request)
        given = request.query_params
        top = given.get("top", "5")
        if not (len(top) <= 3 and top.isdecimal() and 1 <= int(top) <= 100):
            return JSONResponse({"error": "top is a number from 1 to 100."}, 400)
        return _answer(self.asked[seen.number].forecasts, *_names(request, "client", "user"),
                       int(top))

    def labels(self, request: Request) -> JSONResponse:
        """Answer with a node's classes."""
        if (seen := self._one(request)) is None:
            return _unknown(request)
        return _answer(self.asked[seen.number].label, *_names(request, "client", "node"))

    def names(self, request: Request) -> JSONResponse:
        """Answer with names that begin as the given one does."""
        if (seen := self._one(request)) is None:
            return _unknown(request)
        return _answer(self.asked[seen.number].names, *_names(request, "client", "start"))

    # -- for programs, by the name of a run ------------------------------------------------------
    async def written(self, request: Request) -> JSONResponse:
        """Answer with a user's forecasts as the night wrote them; else they are computed."""
        asked = await self._named(request)
        if asked is None:
            return _unknown(request)
        client, user = _names(request, "client", "user")
        n = request.query_params.get("n", "5")
        if not (len(n) <= 3 and n.isdecimal() and 1 <= int(n) <= 100):
            return JSONResponse({"error": "n is a number from 1 to 100."}, 400)
        if asked.written.waits():
            await run_in_threadpool(asked.written.load)
        found = asked.written.of(client, user, int(n))
        return JSONResponse(found) if found else await run_in_threadpool(
            _answer, asked.program, programs.computed,
            {"client": client, "users": [user], "n": int(n)}, True)

    async def label(self, request: Request) -> JSONResponse:
        """Answer with the label of a node."""
        asked, client = await self._named(request), request.query_params.get("client")
        return _unknown(request) if asked is None else await run_in_threadpool(
            _answer, asked.program, programs.labels,
            {"nodes": _names(request, "node"), "client": client})

    async def computed(self, request: Request) -> JSONResponse:
        """Answer about the users, pairs or nodes of a JSON body."""
        asked = await self._named(request)
        if asked is None:
            return _unknown(request)
        try:
            given = await _body(request)
        except FedvineError as error:
            return JSONResponse({"error": str(error)}, 400)
        labels = request.url.path.endswith("/labels")
        return await run_in_threadpool(_answer, asked.program,
                                       programs.labels if labels else programs.computed, given)

    async def _named(self, request: Request) -> Asked | None:
        """Return the run of a name, that of its folder; the first of several."""
        for _ in range(2):
            for seen, asked in zip(self.runs, self.asked, strict=True):
                if seen.folder.resolve().name == request.path_params["name"]:
                    return asked
            self._add(self._more())
        return None

    def _one(self, request: Request) -> Watched | None:
        number = int(request.path_params["number"])
        return self.runs[number] if number < len(self.runs) else None


def _names(request: Request, *keys: str) -> list[str]:
    return [request.query_params.get(key, "") for key in keys]


def _unknown(request: Request) -> JSONResponse:
    name = next(iter(request.path_params.values()))
    return JSONResponse({"error": f"There is no run {name!s:.200}."}, 404)


async def _body(request: Request) -> Any:
    """Return the value of a JSON body; raise :class:`FedvineError` for none, and a long one."""
    found = b""
    async for block in request.stream():
        found += block
        if len(found) > BODY:
            raise FedvineError(f"The body is longer than {BODY:,} bytes; ask in several parts.")
    try:
        json.dumps(given := json.loads(found), ensure_ascii=False).encode()     # half a character
        return given
    except (ValueError, RecursionError) as error:
        raise FedvineError(f"The body is no JSON ({error}).") from error


def _answer(made: Any, *arguments: Any) -> JSONResponse:
    """Return the answer of a function, or its error as a sentence."""
    try:
        refuse_long(*(a for a in arguments if isinstance(a, str)))
        return JSONResponse(made(*arguments))
    except FedvineError as error:
        return JSONResponse({"error": str(error)}, 400)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OSError) as error:
        return JSONResponse({"error": "The folder holds what no run has written "
                             f"({type(error).__name__}: {error})."}, 400)


def policy(page: str) -> str:
    """Return the page's content security policy: its own script and style, by hash, alone."""
    def hashes(tag: str) -> str:
        found = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.S)
        digests = (base64.b64encode(hashlib.sha256(body.encode()).digest()) for body in found)
        return " ".join(f"'sha256-{digest.decode()}'" for digest in digests)
    return (f"default-src 'none'; script-src {hashes('script')}; style-src {hashes('style')}; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
            "img-src data:; require-trusted-types-for 'script'")


def application(folders: Sequence[str | os.PathLike[str]], host: str = "127.0.0.1",
                token: str | None = None, more: Callable[[], Sequence[Path]] = lambda: ()
                ) -> Guard:
    """Return the ASGI application about the runs in ``folders``.

    ``token`` is what its JSON is asked with (None: none); ``more`` returns folders of runs that may
    have come since, and is called at every look.
    """
    api, page = Api(folders, more), PAGE.read_text("utf-8")
    run = "/api/runs/{number:int}"
    return Guard(Starlette(routes=[
        Route("/", lambda request: HTMLResponse(page)),
        Route("/metrics", api.metrics),
        Route("/api/runs", api.listed), Route("/api/compared", api.compared),
        Route(run, api.detail), Route(f"{run}/forecasts", api.forecasts),
        Route(f"{run}/labels", api.labels), Route(f"{run}/names", api.names),
        Route("/runs/{name}/forecasts", api.written),
        Route("/runs/{name}/forecasts", api.computed, methods=["POST"]),
        Route("/runs/{name}/labels", api.label),
        Route("/runs/{name}/labels", api.computed, methods=["POST"]),
        Route("/openapi.json", lambda request: JSONResponse(programs.described())),
    ]), host, token, {"Content-Security-Policy": policy(page)})


# -- questions to runs: each is opened at its first question and kept open for the next ones -------
class Asked:
    """The run of a folder, opened when it is first asked, and anew when it has learned more."""

    def __init__(self, seen: Watched) -> None:
        self.seen, self._lock = seen, threading.Lock()      # a run is for one thread at a time
        self._opening = threading.Lock()
        self._opened: OpenRun | None = None
        self._ends: Any = None, None
        self.written = programs.Written(seen.folder)
        self._names: dict[str, list[str]] = {}

    def forecasts(self, client: str, user: str, top: int) -> dict[str, Any]:
        """Return a user's likeliest items at a client and last edges (:class:`OpenRun`)."""
        if site_saves.there(self.seen.folder):
            best = site_saves.kept(self.seen.folder, user, top)
            return plain({"items": _items(best, []), "edges": [], "as_of": "", "home": True})
        with self._lock:
            opened = self._open()
            best = opened.predict(client, user, top)
            edges = opened.last_edges(client, user, EDGES)
            why = opened.why(client, user, [one.item for one in best])
            return plain({"items": _items(best, why), "edges": [e._asdict() for e in edges],
                          "as_of": _as_of(opened), "home": bool(edges)})

    def label(self, client: str | None, node: str) -> dict[str, Any]:
        """Return a node's likeliest classes and last edges; raise if client or node is unknown."""
        if site_saves.there(self.seen.folder):
            row, = site_saves.labels(self.seen.folder, node).to_pylist()
            return plain({**_classes(row), "edges": [], "as_of": ""})
        with self._lock:
            opened = self._open()
            row, = opened.labels([node], client or None).to_pylist()
            place = row["client"] if row["client"] in opened.clients else opened.clients[0]
            edges = opened.last_edges(place, node, EDGES)
            return plain({**_classes(row), "edges": [e._asdict() for e in edges],
                          "as_of": _as_of(opened)})

    def program(self, answer: Callable[..., dict[str, Any]], *given: Any) -> dict[str, Any]:
        """Return what a program asks, an answer of :mod:`fedvine.app.programs`."""
        with self._lock:
            return answer(self._last_opened(), self.seen.folder.resolve().name, *given)

    def names(self, client: str, start: str) -> list[str]:
        """Return some names of users or nodes of a client that begin with ``start``, sorted."""
        with self._lock:
            opened = self._open()
            part = opened.run.parts.get(client)
            if part is None:
                return []
            if client not in self._names:
                ids: Ids = part.src_ids if hasattr(part, "src_ids") else part.names()
                self._names[client] = ([] if len(ids) > MOST else
                                       sorted(ids[i] for i in range(len(ids))))
        every = self._names[client]
        first = bisect.bisect_left(every, start)
        return plain([n for n in every[first:first + NAMES] if n.startswith(start)])

    def _open(self) -> OpenRun:
        """Return the run, opened again where it was saved since."""
        ends = self._saved()
        if ends[0] != self._ends[0]:        # somebody was erased: not answered from memory
            self._opened = None
        if self._opened is None or ends != self._ends:
            try:
                self._take(open_run(self.seen.folder), ends)
            except (FedvineError, OSError):     # a night may write at this moment
                if self._opened is None:
                    raise
        assert self._opened is not None
        return self._opened

    def _last_opened(self) -> OpenRun:
        """Return the run as it was opened last; one that was saved since is opened beside."""
        ends = self._saved()
        if self._opened is None or ends[0] != self._ends[0]:
            return self._open()
        if ends != self._ends and not self._opening.locked():
            threading.Thread(target=self._reopen, daemon=True).start()
        return self._opened

    def _reopen(self) -> None:
        if self._opening.acquire(blocking=False):
            with contextlib.suppress(FedvineError, OSError), contextlib.ExitStack() as stack:
                stack.callback(self._opening.release)
                ends = self._saved()
                found = open_run(self.seen.folder)
                with self._lock:
                    self._take(found, ends)

    def _saved(self) -> tuple[Any, list[tuple[str, int]]]:
        """Return the erasures so far and whether one is under way; and the saves with their times.

        An erasure writes saves anew under their names.
        """
        found, place = [], self.seen.folder
        for path in (*place.glob("saves/[0-9]*"), *place.glob("final/saves/[0-9]*"),
                     place / "data", place / "summary.json"):
            with contextlib.suppress(OSError):
                found.append((str(path), path.stat().st_mtime_ns))
        erased = sorted(path.name for path in (place / RECEIPTS).glob("*"))
        return (erased, (place / PENDING).exists()), sorted(found)

    def _take(self, opened: OpenRun, ends: tuple[Any, list[tuple[str, int]]]) -> None:
        self._opened, self._ends, self._names = opened, ends, {}


def _as_of(opened: OpenRun) -> str:
    day = opened.run.learned_to
    if opened.run.summary is None:
        return (f"As of stage {opened.stage + 1} of {opened.stages}, the last one that was learned"
                f"{day and f' (to {day})'}.")
    return said_of(opened.run.summary["final"]) if opened.final else day and f"As of {day}."


def _items(best: list[Any], why: list[str]) -> list[dict[str, Any]]:
    return [{"item": one.item, "score": one.score, "known": one.known,
             "why": why[i] if i < len(why) else ""} for i, one in enumerate(best)]


def _classes(row: dict[str, Any]) -> dict[str, Any]:
    found = sorted(((value, key[2:-1]) for key, value in row.items() if key.startswith("p(")),
                   reverse=True)
    return {"client": row["client"], "label": row["label"], "given": row["given"],
            "classes": [{"label": name, "p": p} for p, name in found[:10]]}


def refuse_long(*names: str) -> None:
    """Raise :class:`FedvineError` for a name that no person types."""
    if any(len(name) > 1000 for name in names):
        raise FedvineError("A name is longer than 1,000 characters.")


# -- who may ask: a person with the token ----------------------------------------------------------
# A page of another site cannot read the answers of this one, unless its name is made to lead to
# this machine (DNS rebinding): so the Host of a request must be an address, or one of its names.
class Guard:
    """ASGI middleware: checks Host, method, origin and token, and adds headers to every answer.

    Every request to ``/api/``, ``/runs/`` and ``/metrics`` must have ``token`` (None: none).
    """

    def __init__(self, app: Call, host: str, token: str | None, headers: Mapping[str, str]) -> None:
        self.app, self.token, self.headers = app, token, {**HEADERS, **headers}
        self.loopback = is_loopback(host)
        self.names = {"localhost"} if self.loopback else {
            "localhost", host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}

    async def __call__(self, scope: Any, receive: Call, send: Call) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                found = MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    found[name] = value
            await send(message)

        why = self.refused(scope["method"], scope["path"], Headers(scope=scope))
        if why is None:
            await self.app(scope, receive, guarded)
            return
        code, said = why
        extra = {"WWW-Authenticate": "Bearer"} if code == 401 else None
        await JSONResponse({"error": said}, code, headers=extra)(scope, receive, guarded)

    def refused(self, method: str, path: str, headers: Headers) -> tuple[int, str] | None:
        """Return the code and the sentence of a refusal; None for a request that is answered."""
        if not self.known(headers.get("host", "")):
            return 421, "This is not the name of this page; use the address that was printed."
        if method not in ("GET", "HEAD") and (method, path[:6]) != ("POST", "/runs/"):
            return 405, "Only GET is answered, and POST to /runs/."
        if not path.startswith(("/api/", "/metrics", "/runs/")):
            return None
        origin = headers.get("origin")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none") or (
                origin is not None and urlsplit(origin).netloc != headers.get("host")):
            return 403, "Another site may not ask this page."
        given = headers.get("authorization", "")
        if self.token is not None and not hmac.compare_digest(
                given.encode(), f"Bearer {self.token}".encode()):
            return 401, "The token is missing or wrong; open the address that was printed."
        return None

    def known(self, host: str) -> bool:
        """Return whether a Host is an address that may be meant, or a name of this machine."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            _ = urlsplit(f"//{host}").port
        except ValueError:
            return False
        if name in self.names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not self.loopback


def is_loopback(host: str) -> bool:
    """Return whether an address to listen on can be reached from this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
