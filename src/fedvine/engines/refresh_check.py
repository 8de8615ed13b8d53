"""Check that a refreshed answer knows the events before it, and no others.

See :mod:`fedvine.core.refresh`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.core.method import At, Method
from fedvine.core.query import Query
from fedvine.core.refresh import check_refresh
from fedvine.engines.faults import MockClients

STEPS = ("event", 7, 200)      # "event" is a step of 1
NOTHING = {"n": {"n": 0}, "scores": {}}


def answers(made: Any, t: int, queries: Mapping[str, Any], parts: Mapping[str, Any]
            ) -> dict[str, np.ndarray]:
    """Return the raw answers float64 [Q] by client to queries about stage ``t + 1``.

    ``made`` is a run in this process that has learned stage ``t``; ``parts`` are the data that
    clients are taken to have, with the ids of their own data. Clients without data are left out.
    """
    found: dict[str, np.ndarray] = {}
    workers = made.clients.workers
    kept = {name: worker.part for name, worker in workers.items()}

    def measure(name: str) -> Callable[[int, Any], Any]:
        def keep(t: int, answer: Any) -> Any:
            found[name] = np.asarray(answer, float).reshape(-1).copy()
            return NOTHING
        return keep

    for name, worker in workers.items():
        worker.part = worker.scorer.part = parts[name]
        worker.scorer.queries = lambda t, name=name: queries[name]
        worker.scorer.measure = measure(name)
    try:
        R = made.method.rounds_at(t)
        made.clients.begin(At(t, R + 1, R))
        with made.clients.querying(Query("stage", t + 1)):
            made.method.answer(made.server, made.clients, At(t, R, R))
    finally:
        for name, worker in workers.items():
            worker.part = worker.scorer.part = kept[name]
            del worker.scorer.queries, worker.scorer.measure
    return found


def futures(part: Any, q: float) -> Iterator[Any]:
    """Yield ``part`` without its events at ``q`` and later, and with others in their place."""
    k = len(part.before(q))
    yield part[:k]
    turned = part.take(np.arange(len(part)))
    turned.src[k:], turned.dst[k:] = turned.src[k:][::-1].copy(), np.roll(turned.dst[k:], 1)
    yield turned


def leaks(made: Any, t: int) -> Iterator[str]:
    """Yield what is wrong: answers that change with events at a query's own time or later."""
    workers = made.clients.workers
    parts = {name: worker.part for name, worker in workers.items()}
    queries = {name: worker.scorer.queries(t + 1) for name, worker in workers.items()}
    whole = answers(made, t, queries, parts)
    times = np.unique(np.concatenate([asked.t for asked in queries.values()]))
    for q in times[[0, len(times) // 2, -1]] if len(times) else ():
        for other in zip(*(futures(part, float(q)) for part in parts.values()), strict=True):
            cut = answers(made, t, queries, dict(zip(parts, other, strict=True)))
            for name, answer in whole.items():
                early = queries[name].t <= q
                if not np.array_equal(answer[early], cut[name][early]):
                    yield f"answers of {name} at {q:g} change with events at that time or later"


def check(method: Method, make: Callable[..., Any], outcome: Callable[[Any], Any]) -> Iterator[str]:
    """Yield what is wrong with a method's refreshed answers.

    ``make`` returns a run for a value of ``refresh`` and options; ``outcome`` scores and memory of
    both sides after a run.
    """
    plain, again = outcome(make("stage")), True
    for refresh in STEPS:
        try:
            check_refresh(method, refresh)
        except FedvineError:
            try:
                make(refresh)
            except FedvineError:
                continue
            yield f"a run with refresh = {refresh} is not refused"
            continue
        made = make(refresh)
        for stage in made:
            if stage.t == 1:
                yield from leaks(made, 1)
                break
        first = outcome(made)
        if first[1:] != plain[1:]:
            yield f"with refresh = {refresh} the memory after a stage differs"
        if again and first != outcome(make(refresh, engine=MockClients, twice=True, forget=True)):
            yield f"with refresh = {refresh} engines differ"
        again = False       # the finest step that the method affords is enough
