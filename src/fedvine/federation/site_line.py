"""The line between FLARE's processes at a site and the site's own: one UNIX socket, a few frames.

A frame is a kind of one byte, a length of eight bytes, and as many bytes. A connection begins with
a frame that says what it is: :data:`JOB`, after which sealed requests and their answers follow, or
:data:`NOTE`, a refusal of the gate. It needs the standard library alone, since FLARE's processes
import nothing else of the package.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from typing import Any

SOCKET = "FEDVINE_VAULT"    # of the environment: the socket's file
JOB, NOTE, DONE, BUSY = b"J", b"N", b"D", b"B"
_HEAD = struct.Struct(">cQ")
MOST = 1 << 33              # bytes of a frame
LONGEST = 4000              # bytes of a note


class Line:
    """One end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def send(self, body: bytes, kind: bytes = DONE) -> None:
        """Send a frame; raise :class:`OSError` where the other end is gone."""
        self.socket.sendall(_HEAD.pack(kind, len(body)))
        self.socket.sendall(body)

    def receive(self, most: int = MOST) -> tuple[bytes, bytes] | None:
        """Return a frame's kind and body, None at the end; raise ValueError above ``most``."""
        head = self._read(_HEAD.size)
        if head is None:
            return None
        kind, size = _HEAD.unpack(head)
        if size > most:
            raise ValueError(f"a frame of {size} bytes")
        body = self._read(size)
        return None if body is None else (kind, body)

    def _read(self, size: int) -> bytes | None:
        made = bytearray()
        while len(made) < size:         # grows with what came, not with what was announced
            part = self.socket.recv(min(size - len(made), 1 << 20))
            if not part:
                return None
            made += part
        return bytes(made)

    def close(self) -> None:
        """Close it."""
        with contextlib.suppress(OSError):
            self.socket.close()


def connect() -> Line:
    """Return a line to the site's own process; raise :class:`OSError` where there is none."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.connect(os.environ[SOCKET])
    return Line(made)


def note(what: str, why: str) -> None:
    """Tell the site's own process what was refused; nothing happens where there is none."""
    with contextlib.suppress(OSError, KeyError):
        line = connect()
        line.socket.settimeout(5.0)
        line.send(json.dumps([what, why]).encode()[:LONGEST], NOTE)
        line.close()


def read_note(body: bytes) -> tuple[str, str]:
    """Return what was refused and why, printable; the sender may be anybody."""
    try:
        found: Any = json.loads(body)
        what, why = (str(text) for text in found)
    except (ValueError, TypeError):
        what, why = "?", "a note that cannot be read"
    return tuple("".join(c if c.isprintable() else "?" for c in text)[:300]  # type: ignore[return-value]
                 for text in (what, why))
