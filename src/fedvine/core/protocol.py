"""Methods that clients and engines need of a plan, a task and a scorer (structural types).

A class with these methods fits, whatever it inherits: :class:`fedvine.data.plan.Plan`,
:class:`fedvine.tasks.task.Task` and the scorers of the tasks do. Data, queries and answers differ
by task; their types are not stated here.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol


class Combining(Protocol):
    """How replies become one: :class:`fedvine.aggregate.aggregate.Aggregate` and its kinds.

    A kind also has ``mean`` or ``sum``, to which :class:`fedvine.core.clients.Clients` hands on.
    """

    @property
    def hides(self) -> bool:
        """Return whether clients send under masks."""
        ...

    def model_copy(self, *, update: dict[str, Any]) -> Any:
        """Return these settings with others for some keys."""
        ...

    def needed(self, clients: int) -> int:
        """Return how many of ``clients`` must answer, whatever the quorum."""
        ...

    def opened(self, client: Any, function: Any, message: list[Any]) -> None:
        """Take what masks need off a call at the client; refuse a call in the clear."""
        ...

    def leaving(self, client: Any, kind: Any, reply: Any) -> Any:
        """Return a combined reply as it leaves the client."""
        ...


class PlanLike(Protocol):
    """Stages of a run: :class:`fedvine.data.plan.Plan`, :class:`fedvine.tasks.task_plan.TaskPlan`.

    The length is the number of stages; ``t`` counts them from 0.
    """

    def __len__(self) -> int: ...

    @property
    def living(self) -> bool:
        """Return whether further stages may come."""
        ...

    def since(self, part: Any) -> int:
        """Return the first stage in which the client's data ``part`` has something."""
        ...

    def stage(self, part: Any, t: int) -> Any:
        """Return what is new to the client's data ``part`` at stage ``t``."""
        ...

    def past(self, part: Any, t: int) -> Any:
        """Return all that ``part`` holds once stage ``t`` has arrived."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return the plan as plain values, for a run folder."""
        ...


class Scorer(Protocol):
    """Draws the queries about one client's data and measures the answers.

    ``learned`` is the last stage that was learned (-1: none).
    """

    learned: int

    def queries(self, t: int) -> Any:
        """Return the queries of stage ``t``."""
        ...

    def given(self, asked: dict[str, Any], /) -> Any:
        """Return the queries that a person gave, in the form that ``predict`` takes."""
        ...

    def answered(self, answer: Any) -> Any:
        """Return what a person gets of an answer to :meth:`given`."""
        ...

    def ahead(self, t: int, queries: Any) -> Any:
        """Return the events after stage ``t`` and before the last query."""
        ...

    def measure(self, t: int, answer: Any) -> dict[str, Any]:
        """Return ``{"n": counts, "scores": numbers}`` of an answer to ``queries(t)``.

        Raises :class:`fedvine.core.errors.MethodError` when the answer does not fit.
        """
        ...


class ServerScorer(Scorer, Protocol):
    """The scorer beside a server that holds the whole graph.

    ``part`` is the graph, ``whole`` true.
    """

    part: Any
    whole: bool

    def shown(self, events: Any) -> Any:
        """Return a stage's data as the method may see it."""
        ...

    def by_client(self, t: int, answer: Any) -> dict[str, dict[str, Any]]:
        """Return what :meth:`measure` does, by client; "all" where they are asked together."""
        ...


class OwnQueries(Protocol):
    """Queries about a client's own users, in blocks; the answers stay at the client."""

    def pairs(self, block: int) -> dict[str, Any]:
        """Return the queries of a block, for :meth:`Scorer.given`."""
        ...

    def keep(self, block: int, answer: Any) -> int:
        """Keep what the answers say; return the number of users in the block."""
        ...


class TaskLike(Protocol):
    """The queries of a run and how answers are scored; see :class:`fedvine.tasks.task.Task`."""

    measured: ClassVar[Any]     # the statement of a client's scores, see fedvine.core.expect

    @property
    def step(self) -> int | None:
        """Return after how many new events a client's answers are refreshed; None: never."""
        ...

    def scored(self, t: int, stages: int) -> list[int]:
        """Return the stages that are scored once stage ``t`` of ``stages`` was learned."""
        ...

    def scorer(self, part: Any, plan: Any, name: str, seed: int) -> Scorer:
        """Return the scorer beside the data ``part`` of the client ``name``.

        Where the server holds the graph, it is a :class:`ServerScorer`.
        """
        ...

    def model_dump(self, *, mode: str = "python") -> dict[str, Any]:
        """Return the task's settings as plain values; with ``mode`` "json" those of JSON."""
        ...
