"""The application: one page, and the JSON that it shows.

``GET /api/runs`` has a row a run and the time now, ``/api/compared`` the runs side by side,
``/api/runs/N`` one run in detail, ``/api/runs/N/forecasts?client=&user=&top=``,
``/api/runs/N/labels?client=&node=`` and ``/api/runs/N/names?client=&start=`` answer questions. An
error is ``{"error": SENTENCE}`` with status 400, or 404 for a run that there is not.
"""

# pyright: reportMissingImports=false
# The extra "app" brings what this file imports.
from __future__ import annotations

import base64
import hashlib
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route

from fedvine.app.asking import Asked, refuse_long
from fedvine.app.guard import Guard
from fedvine.app.watched import Watched, compared
from fedvine.core.errors import FedvineError


class Api:
    """The answers about the runs in ``folders``, in this order, and those found by ``more``."""

    def __init__(self, folders: Sequence[str | os.PathLike[str]],
                 more: Callable[[], Sequence[Path]] = lambda: ()) -> None:
        self.runs, self.asked, self._more = list[Watched](), list[Asked](), more
        self._add(folders)

    def _add(self, folders: Sequence[str | os.PathLike[str]]) -> None:
        known = {seen.folder for seen in self.runs}
        for folder in map(Path, folders):
            if folder not in known:
                seen = Watched(folder, len(self.runs))
                self.asked.append(Asked(seen))
                self.runs.append(seen)

    async def listed(self, request: Request) -> JSONResponse:
        """Answer with a row a run."""
        self._add(self._more())     # on the loop's own thread, so one at a time
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
        if not (top.isdecimal() and 1 <= int(top[:6]) <= 100):
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

    def _one(self, request: Request) -> Watched | None:
        number = int(request.path_params["number"])
        return self.runs[number] if number < len(self.runs) else None


def _names(request: Request, *keys: str) -> list[str]:
    return [request.query_params.get(key, "") for key in keys]


def _unknown(request: Request) -> JSONResponse:
    return JSONResponse({"error": f"There is no run {request.path_params['number']}."}, 404)


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
    api, page = Api(folders, more), (Path(__file__).parent / "page.html").read_text("utf-8")
    run = "/api/runs/{number:int}"
    return Guard(Starlette(routes=[
        Route("/", lambda request: HTMLResponse(page)),
        Route("/api/runs", api.listed), Route("/api/compared", api.compared),
        Route(run, api.detail), Route(f"{run}/forecasts", api.forecasts),
        Route(f"{run}/labels", api.labels), Route(f"{run}/names", api.names),
    ]), host, token, {"Content-Security-Policy": policy(page)})
