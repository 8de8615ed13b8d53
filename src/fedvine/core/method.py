"""The contract: a method is a frozen record of constants that holds its paper's functions.

Inside a round a method is a plain script that reads like the paper's algorithm box. Around it
the library owns the loops, the scoring and the saving. There are three nouns: ``self`` has the
paper's constants, ``server`` is the server's memory, ``client`` the memory of one client.

>>> from typing import ClassVar, NamedTuple
>>> import numpy as np
>>> from fedvine.core.expect import Number
>>> class Popular(Method):
...     '''An item is as likely as it was often seen, anywhere.'''
...     name: ClassVar[str] = ""               # no name: not on the command line
...     rounds: int = Field(default=1, description="rounds a stage")
...     def setup(self, client):
...         client.seen = np.zeros(0)
...     def start(self, world):
...         return Server(total=0.0)
...     @on_client
...     def count(self, client):
...         counts = np.bincount(client.stage.dst, minlength=len(client.seen)).astype(float)
...         counts[:len(client.seen)] += client.seen
...         client.seen = counts
...         return float(counts.sum())
...     def arrive(self, server, clients, at):
...         server.total = sum(clients.call(self.count, expect=Number(low=0)))
...     def round(self, server, clients, at):
...         pass
...     @on_client
...     def predict(self, client, queries):
...         known = np.append(client.seen, 0.0)
...         return known[np.minimum(queries.dst, len(client.seen))]
...     def answer(self, server, clients, at):
...         return clients.call(self.predict)
>>> Popular().rounds_at(0)
1
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from fedvine.core import state
from fedvine.core.refresh import Refresh
from fedvine.core.state import Client, Memory, World

if TYPE_CHECKING:
    import numpy as np

    from fedvine.core.clients import Clients
    from fedvine.core.protocol import Combining
    from fedvine.core.replies import Replies

__all__ = ["At", "Client", "Field", "Method", "Server", "World", "on_client"]

Server = Memory
F = TypeVar("F", bound=Callable[..., Any])


class At(NamedTuple):
    """A place in the run: stage ``t`` (from 0), round ``r`` of ``R`` (from 1; 0 is arrival)."""

    t: int
    r: int
    R: int

    @property
    def first(self) -> bool:
        """Return whether this is the stage's first round."""
        return self.r == 1

    @property
    def last(self) -> bool:
        """Return whether this is the stage's last round."""
        return self.r == self.R


def on_client(function: Any = None, *, combined: Literal["", "mean", "sum"] = "",
              whole: bool = False, plain: bool = False) -> Any:
    """Mark a function of a method that runs at a client: ``(self, client, *message) -> reply``.

    ``self`` holds the constants, ``client`` is its memory. A parameter called ``queries`` is filled
    in at the client, and only while the library scores or a person requests predictions. With
    ``combined`` the reply is for ``clients.mean`` or ``clients.sum``, and leaves the client as
    the method's ``aggregate`` says, or not at all. ``whole``: it is also of rows of earlier
    stages; ``plain``: it gets no noise, even where other sums do.
    """
    def marked(function: F) -> F:
        function.__on_client__ = True       # type: ignore[attr-defined]
        function.__combined__ = combined    # type: ignore[attr-defined]
        function.__whole__ = whole          # type: ignore[attr-defined]
        function.__plain__ = plain          # type: ignore[attr-defined]
        return function

    return marked if function is None else marked(function)


class Counting(NamedTuple):
    """A method that counts as another one does, and does not learn.

    ``server`` and ``client`` name what was learned in their memories: it stays as it was.
    """

    method: Method
    server: tuple[str, ...] = ()
    client: tuple[str, ...] = ()


class Method(BaseModel):
    """Base of all methods; its fields are the paper's constants with unit, range and symbol."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True,
                              arbitrary_types_allowed=False, allow_inf_nan=False)

    name: ClassVar[str] = ""
    file_digest: ClassVar[str] = ""     # of its file, where that is not one of fedvine.methods
    task: ClassVar[str] = "link"
    server_holds_graph: ClassVar[bool] = False
    #: Raised when the same fields give other scores, see :mod:`fedvine.results.kept`.
    revision: ClassVar[int] = 1
    #: The search space of ``fedvine tune``, by field: (low, high), (low, high, "log"), or a list of
    #: choices, of which the default is one more; None removes a base class's field.
    space: ClassVar[dict[str, Any]] = {}
    #: How often :meth:`refresh` can be afforded between two stages: "event", after every so many
    #: events, or "stage" for a method that does not have it.
    refreshes: ClassVar[Refresh] = "stage"

    #: Whether it learns from weights and features of edges (``EventStream.edge_columns``).
    edge_columns: ClassVar[bool] = False
    #: Whether clients on threads gain time: not with steps so small that Python's lock decides.
    parallel: ClassVar[bool] = True

    rounds: int = Field(default=10, ge=0, description="communication rounds a stage, R")

    @classmethod
    def tiny(cls) -> Self:
        """Return a small version of the method, for which its contract suite takes seconds."""
        return cls(rounds=2)

    def rounds_at(self, t: int) -> int:
        """Return the number of rounds in stage ``t``."""
        return self.rounds

    @property
    def combining(self) -> Combining | None:
        """Return the field ``aggregate``: how replies become one; None where none do."""
        return vars(self).get("aggregate")

    def client_function(self, name: str) -> tuple[Any, Callable[..., Any]] | None:
        """Return a client function of the method or of its aggregate, and whose it is, or None."""
        for owner in (self, self.combining):
            function = getattr(type(owner), name, None)
            if getattr(function, "__on_client__", False):
                return owner, function      # type: ignore[return-value]
        return None

    @property
    def hides(self) -> bool:
        """Return whether combined replies leave clients under masks."""
        return self.combining is not None and self.combining.hides

    def needed(self, clients: int) -> int:
        """Return how many of ``clients`` must answer in any case, whatever the quorum."""
        return 1 if self.combining is None else self.combining.needed(clients)

    def closed(self) -> frozenset[str]:
        """Return client functions that a client does not carry out with these constants.

        These are functions that a field turns off, such as those of rows that travel.
        """
        return frozenset()

    def start(self, world: World) -> Server:
        """Return the server's memory before anything arrives."""
        return Server()

    def setup(self, client: Client) -> None:
        """Set up a client's memory, once, with every module that the client will need."""

    def grow(self, memory: Server | Client, fresh: Any) -> None:
        """Enlarge a memory when the world has grown, for example by classes.

        ``fresh`` is what :meth:`start` or :meth:`setup` make in the larger world. A method adds
        what these do not make, for example values by client name. See
        :mod:`fedvine.core.state`.
        """
        state.grow(memory, fresh)

    def arrive(self, server: Server, clients: Clients, at: At) -> None:
        """Take in stage ``at.t``, which has reached the clients (``client.stage``)."""

    def round(self, server: Server, clients: Clients, at: At) -> None:
        """Run one communication round: the algorithm box."""
        raise NotImplementedError

    def answer(self, server: Server, clients: Clients, at: At) -> Any:
        """Return the replies of ``predict``; by default all clients get ``server.model``."""
        return clients.call(self.predict, server.model)  # type: ignore[attr-defined]

    def score(self, server: Server, clients: Clients, at: At) -> Replies | dict[int, Any]:
        """Return scores by stage and client: the library's protocol over :meth:`answer`.

        For links the next stage is scored before it is learned, for nodes every stage so far.
        """
        return clients.score(self, server, at)

    def now(self, client: Client, queries: Any) -> Any:
        """Return the answer of a client's own model now, for curves; see ``client.mark``."""
        raise NotImplementedError

    def refresh(self, client: Client, events: Any) -> None:
        """Let new events of the client, which no round has learned, into its local state.

        ``client`` is a copy that is dropped after the answer, so that no event counts twice once
        its stage is learned; ``client.past`` ends with these events, which are in time order.
        ``predict`` is then called once a batch of queries with the same message, which it must
        leave as it is. What ``client.cache`` has of the state before is to be removed here; values
        that ``predict`` needs each time stay. For methods with ``refreshes``.
        """
        raise NotImplementedError

    def report(self, server: Server) -> dict[str, Any]:
        """Return this method's own entries of a finished run's summary; none by default.

        With ``said``, sentences by the name of an entry, these are shown in the entries' place.
        """
        return {}

    def held_back(self, server: Server) -> np.ndarray | None:
        """Return what thresholds of classes follow from, None by default.

        They are histograms [2, C, 98] of :func:`fedvine.tasks.class_measures.histograms` of nodes
        that were held back, in proportion to the nodes of each class and to the others.
        """
        return None

    def privacy(self, rounds: int) -> dict[str, Any]:
        """Return the summary's entries on privacy after ``rounds`` rounds; none by default."""
        return {}

    def noisy(self) -> bool:
        """Return whether clients add noise to what they send: nothing is then learned twice."""
        return bool(self.privacy(1))

    def counting(self, stages: int, server: Mapping[str, Any] | None = None) -> Counting | None:
        """Return how the memory is made again after so many stages, without learning again.

        ``server`` is the server's memory as it is; None: only ask whether this is possible. Returns
        None, the default, where no part of the memory is a sum over rows alone. See
        :mod:`fedvine.experiments.erase`.
        """
        return None

    def constants(self) -> dict[str, Any]:
        """Return name and constants, as plain values for a run folder."""
        whose = {"file_digest": self.file_digest} if self.file_digest else {}
        return {"name": self.name, **whose, **self.model_dump()}

    def __repr_args__(self):  # only what differs from the defaults
        for key, value in super().__repr_args__():
            if key is None or value != type(self).model_fields[key].default:
                yield key, value
