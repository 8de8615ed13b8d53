"""Rules of who may ask the page: a person with the token.

A page of another site cannot read the answers of this one, unless its name is made to lead to this
machine (DNS rebinding): so the Host of a request must be an address, or a name of this machine.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse

HEADERS = {
    "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
Call = Callable[..., Awaitable[Any]]


class Guard:
    """ASGI middleware: checks Host, method, origin and token, and adds headers to every answer.

    Every request to ``/api/`` must have ``token`` (None: none).
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
        if method not in ("GET", "HEAD"):
            return 405, "Only GET is answered."
        if not path.startswith("/api/"):
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


# -- addresses to listen on ------------------------------------------------------------------------
def is_loopback(host: str) -> bool:
    """Return whether an address to listen on can be reached from this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
