"""The clients' own queries, asked of a server that holds the graph.

So a method whose server holds the graph, and methods whose clients keep their edges, answer the
same pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedvine.data.stream import EventStream
from fedvine.tasks.link_scorer import EdgeQueries, Scorer


class AskedByClient:
    """The scorers of all clients' parts, and that of the whole graph for a person's questions."""

    whole = True

    def __init__(self, whole: Scorer, clients: Mapping[str, Scorer]) -> None:
        self.graph, self.clients, self.part, self.learned = whole, dict(clients), whole.part, -1
        self._numbers = {name: tuple(
            getattr(self.part, ids).numbers(getattr(one.part, ids)) for ids in (
                "src_ids", "dst_ids")) for name, one in self.clients.items()}

    def queries(self, t: int) -> EdgeQueries:
        """Return the queries of all clients in the graph's numbers, one client after the other."""
        found = [(users[asked.src], items[asked.dst], asked.t) for name, one in
                 self.clients.items() for asked in (one.queries(t),)
                 for users, items in (self._numbers[name],)]
        return EdgeQueries(*(np.concatenate(column) for column in zip(*found, strict=True)))

    def by_client(self, t: int, answer: Any) -> dict[str, dict[str, Any]]:
        """Return what each client's scorer measures of its own queries."""
        scores = np.asarray(answer["scores"] if isinstance(answer, Mapping) else answer)
        ends = np.cumsum([len(one.queries(t)) for one in self.clients.values()])[:-1]
        return {name: one.measure(t, mine) for (name, one), mine in zip(
            self.clients.items(), np.split(scores.reshape(-1), ends), strict=True)}

    def shown(self, events: EventStream) -> EventStream:
        """Return the events that a method may see: all of them."""
        return self.graph.shown(events)

    def given(self, pairs: dict[str, Any]) -> EdgeQueries:
        """Return the queries about pairs that a person asks for, in the graph's numbers."""
        return self.graph.given(pairs)

    def answered(self, answer: Any) -> Any:
        """Return one score a pair of :meth:`given`."""
        return self.graph.answered(answer)

    def ahead(self, t: int, queries: EdgeQueries) -> EventStream:
        """Return the events after stage ``t`` and before the last query, a view."""
        return self.graph.ahead(t, queries)

    def measure(self, t: int, answer: Any) -> dict[str, Any]:
        """Return the measure of the whole graph's own queries."""
        return self.graph.measure(t, answer)
