"""The contract: a method is a frozen record of constants that holds its paper's functions.

Inside a round a method is a plain script that reads like the paper's algorithm box. Around it
the library owns the loops, the scoring and the saving. Three nouns carry the reading: ``self``
is what the paper fixes, ``server`` is what the server knows, ``client`` what one client knows.

>>> from typing import ClassVar
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

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedvine.core import renamed
from fedvine.core.state import Client, Memory, World

if TYPE_CHECKING:
    from fedvine.core.clients import Clients, Replies

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
        """The stage's first round."""
        return self.r == 1

    @property
    def last(self) -> bool:
        """The stage's last round."""
        return self.r == self.R


def on_client(function: F) -> F:
    """Mark a function of a method that runs at a client: ``(self, client, *message) -> reply``.

    ``self`` are the constants, ``client`` is its memory. A parameter called ``queries`` is
    filled in at the client, and only while the library scores or a person asks.
    """
    function.__on_client__ = True  # type: ignore[attr-defined]
    return function


class Method(BaseModel):
    """Base of all methods; its fields are the paper's constants with unit, range and symbol."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True,
                              arbitrary_types_allowed=False, allow_inf_nan=False)

    name: ClassVar[str] = ""
    file_digest: ClassVar[str] = ""     # of the file it is in, where that is not on the shelf
    task: ClassVar[Literal["link", "node", "label"]] = "link"
    server_holds_graph: ClassVar[bool] = False
    #: Raised when the same fields give other scores, see :mod:`fedvine.results.kept`.
    revision: ClassVar[int] = 1
    #: What ``fedvine tune`` searches, by field: (low, high), (low, high, "log"), or a list of
    #: values; None takes a base class's field out.
    space: ClassVar[dict[str, Any]] = {}

    rounds: int = Field(default=10, ge=0, description="communication rounds a stage, R")

    @model_validator(mode="before")
    @classmethod
    def _old_names(cls, values: Any) -> Any:
        return renamed.fields(values, cls.model_fields) if isinstance(values, dict) else values

    @classmethod
    def tiny(cls) -> Self:
        """A small version of the method, for which its contract suite takes seconds."""
        return cls(rounds=2)

    def rounds_at(self, t: int) -> int:
        """Rounds in stage ``t``."""
        return self.rounds

    def start(self, world: World) -> Server:
        """Server memory before anything arrives."""
        return Server()

    def setup(self, client: Client) -> None:
        """Client memory, once; builds every module the client will need."""

    def arrive(self, server: Server, clients: Clients, at: At) -> None:
        """Stage ``at.t`` has reached the clients (``client.stage``)."""

    def round(self, server: Server, clients: Clients, at: At) -> None:
        """One communication round: the algorithm box."""
        raise NotImplementedError

    def answer(self, server: Server, clients: Clients, at: At) -> Any:
        """Replies of ``predict``; by default every client gets ``server.model``."""
        return clients.call(self.predict, server.model)  # type: ignore[attr-defined]

    def score(self, server: Server, clients: Clients, at: At) -> Replies | dict[int, Any]:
        """Scores by stage and client: the library's protocol over :meth:`answer`.

        For links the next stage is scored before it is learned, for nodes every stage so far.
        """
        return clients.score(self, server, at)

    def now(self, client: Client, queries: Any) -> Any:
        """What a client's own model answers at this moment, for curves; see ``client.mark``."""
        raise NotImplementedError

    def report(self, server: Server) -> dict[str, Any]:
        """What the summary of a finished run says of this method besides; nothing by default."""
        return {}

    def privacy(self, rounds: int) -> dict[str, Any]:
        """What the summary says of privacy after so many rounds in all; nothing by default."""
        return {}

    def constants(self) -> dict[str, Any]:
        """Name and constants, as plain values for a run folder."""
        whose = {"file_digest": self.file_digest} if self.file_digest else {}
        return {"name": self.name, **whose, **self.model_dump()}

    def __repr_args__(self):  # only what differs from the defaults
        for key, value in super().__repr_args__():
            if key is None or value != type(self).model_fields[key].default:
                yield key, value
