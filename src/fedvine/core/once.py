"""Replies that a client makes once, where the server may go on without its answer.

With a quorum below 1 a round may end before a client's sums or prototypes of a task have come. The
next call of the same function (``once=True``) names the first round whose answer the server lacks,
and the client sends what it had sent with what is new. With a quorum of 1 the round starts over,
and nothing is kept. Calls under masks or with noise are not made so: the sums of an earlier task
would come from few clients, and what was lost stays away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedvine.core.growth import enlarged
from fedvine.core.state import Client

Value = dict[str, Any]


def added(before: Value, value: Value) -> Value:
    """Add sums by name; those from before there were all of today's classes get zeros."""
    return {name: enlarged(before[name], np.zeros_like(now)) + now for name, now in value.items()}


def unsent(client: Client, value: Value | None, join: Callable[[Value, Value], Value] = added
           ) -> Value | None:
    """Return what the server lacks: ``value``, after what was sent before and did not come.

    Args:
        client: in a call with ``once``; its memory keeps the result until the next one.
        value: what is sent now; None: nothing.
        join: makes one value of two, the older first.

    Returns:
        The value to send; None where there is nothing to send.
    """
    function, lost = client.once
    if lost is None:
        return value
    kept = dict(vars(client).get("kept_uploads", {}))
    place, before = kept.pop(function, ([-1, -1], None))
    if before is not None and lost and list(place) >= lost[:2]:
        value = before if value is None else join(before, value)
    if value is not None:
        kept[function] = list(client.place[:2]), value
    client.kept_uploads = kept
    return value
