"""Answers that know the newest events: they enter a copy of a client's memory before each query.

Between two stages no round is carried out, but a client may let its own events into its local state
(counts, buffers, pairs met) as they come. A method that supports this has the function ``refresh``
and states in ``refreshes`` how often it can afford the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedvine.core.errors import FedvineError, MethodError
from fedvine.core.state import Client

if TYPE_CHECKING:
    from fedvine.core.method import Method

Refresh = Literal["stage", "event"] | int


def step_of(refresh: Refresh) -> int | None:
    """Return after how many events the state is refreshed: 1 for "event", None for "stage"."""
    return None if refresh == "stage" else 1 if refresh == "event" else int(refresh)


def check_refresh(method: Method, refresh: Refresh) -> None:
    """Raise :class:`FedvineError` if a protocol refreshes more often than the method affords."""
    step, finest = step_of(refresh), step_of(method.refreshes)
    if step is None or (finest is not None and finest <= step):
        return
    if finest is None:
        raise FedvineError(f"{method.name} answers from what its rounds have learned and takes in "
                           f'no events between two stages; leave protocol.refresh at "stage".')
    raise FedvineError(f"{method.name} affords protocol.refresh = {method.refreshes} and larger "
                       f"numbers; {refresh} is more often than that.")


def batches(came: np.ndarray, asked: np.ndarray, step: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (number of events to let in, positions of the queries that are answered then).

    With n events strictly before its time a query sees the first n - n mod ``step`` of them: every
    event that it sees lies strictly before it, however many times are equal, and which ones these
    are does not depend on any event at its time or later.

    Args:
        came: times of the events, [E], ascending.
        asked: times of the queries, [Q], in any order.
        step: events after which the state is refreshed.

    Yields:
        Numbers of events, ascending, and positions int64, ascending; each position once.
    """
    seen = np.searchsorted(came, asked, side="left")
    seen -= seen % step
    order = np.argsort(seen, kind="stable")
    counts, first = np.unique(seen[order], return_index=True)
    stops = [*first, len(order)][1:]
    for count, start, stop in zip(counts.tolist(), first, stops, strict=True):
        yield count, order[start:stop]


def refreshed(method: Method, client: Client, function: Callable[..., Any], message: list[Any],
              queries: Any, part: Any, step: int) -> np.ndarray:
    """Answer ``queries``, each with the client's own events before it in a copy of the memory.

    ``client.ahead`` has the events that no round has learned, before the last query's time.
    ``method`` has :meth:`fedvine.core.method.Method.refresh`; ``function`` is ``predict`` of its
    class, called once a batch (:func:`batches`) with the arguments ``message``; ``queries`` have
    ``t`` and ``take``; of the client's data ``part`` the first rows are ``client.past``. Returns
    one score a query, float64 [Q], in their order; raises :class:`MethodError` if an answer has
    another number.
    """
    copy = Client(client.name, client.world, client.secret)
    method.setup(copy)
    copy.load(client.dump())
    for name in ("stage", "past", "place", "asked"):
        setattr(copy, name, getattr(client, name))
    copy.cache = dict(client.cache)
    ahead, learned, known = client.ahead, client.past, 0
    # ``order``: a late event has an early time, and is there from when it came.
    step *= 2 if getattr(part, "mirrored", False) else 1     # both directions of an event
    answer = np.empty(len(queries))
    for count, index in batches(np.asarray(ahead.order, float), queries.t, step):
        if count > known:
            copy.past = part[:len(learned) + count]
            copy.past.nodes = learned.nodes
            method.refresh(copy, ahead[known:count])
            known = count
        found = np.asarray(function(method, copy, *message, queries=queries.take(index)),
                           float).reshape(-1)
        if len(found) != len(index):
            raise MethodError(f'client "{client.name}" answered {len(found)} scores to '
                              f"{len(index)} pairs; predict must give one each.")
        answer[index] = found
    return answer
