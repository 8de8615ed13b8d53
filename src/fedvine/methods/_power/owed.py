"""Uploads that a client makes once, where the server may go on without its answer.

With a quorum below 1 a round may end before a client's sums or prototypes of a task have come. The
server then names the client in its next call of the same function, with the first round whose
answer it lacks. A client keeps what it sent last until such a call, and sends it once more if it is
named and the server does not have it. With a quorum of 1 the round starts over, and nothing is
kept. Nor is it with secure sums, where the classes of an earlier task would come from the named
clients alone, nor with noise: what was lost then stays away.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from fedvine.core.clients import Clients
from fedvine.core.growth import enlarged
from fedvine.core.method import Client, Server

Lost = Mapping[str, list[int]]      # client name: [t, r] of the first answer that did not come
Value = dict[str, Any]


def lost(server: Server, clients: Clients, what: str) -> Lost | None:
    """Return the clients whose last answer to ``what`` did not come; None where all must come."""
    return None if clients.quorum == 1 else vars(server).get("lost", {}).get(what, {})


def note(server: Server, clients: Clients, what: str, called: Collection[str],
         came: Collection[str]) -> None:
    """Note which of the ``called`` clients have not answered the last call of ``what``."""
    if clients.quorum == 1:
        return
    before, place = vars(server).get("lost", {}), list(clients.place[:2])
    found = {n: p for n, p in before.get(what, {}).items() if n not in came}
    found = {n: place for n in called if n not in came} | found
    server.lost = before | {what: found}


def owed(client: Client, what: str, value: Value | None, named: Lost | None,
         join: Callable[[Value, Value], Value]) -> Value | None:
    """Return what the server lacks: ``value``, after what was sent before and did not come.

    Args:
        client: its memory keeps the result until the next call of ``what``.
        what: the client function.
        value: what is sent now; None: nothing.
        named: the clients that :func:`lost` returned.
        join: makes one value of two, the older first.

    Returns:
        The value to send; None where there is nothing to send.
    """
    if named is None:
        return value
    kept = dict(vars(client).get("kept_uploads", {}))
    place, before = kept.pop(what, ([-1, -1], None))
    if before is not None and client.name in named and place >= named[client.name]:
        value = before if value is None else join(before, value)
    if value is not None:
        kept[what] = list(client.place[:2]), value
    client.kept_uploads = kept
    return value


def added(before: Value, value: Value) -> Value:
    """Add sums by name; those from before there were all of today's classes get zeros."""
    return {name: enlarged(before[name], np.zeros_like(now)) + now for name, now in value.items()}
