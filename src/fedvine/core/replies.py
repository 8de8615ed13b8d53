"""Queries that a call answers, replies of the clients to it, and the errors that end a round."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from fedvine.core.errors import FedvineError
from fedvine.core.message import Packed, unpack


class RoundAborted(Exception):
    """Too few replies came by the deadline: the round starts over from the last save."""


class ClientError(FedvineError):
    """An error that a client raised; the sentence names the client."""


class Replies:
    """Replies in the order of client names; each is unpacked when it is read.

    Args:
        packed: replies by client name.
        missing: names of the clients without a reply.
    """

    def __init__(self, packed: Mapping[str, Packed], missing: Iterable[str] = ()) -> None:
        self._packed, self.missing = dict(packed), tuple(missing)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the clients that answered."""
        return tuple(self._packed)

    def __len__(self) -> int:
        return len(self._packed)

    def __iter__(self) -> Iterator[Any]:
        return (unpack(p) for p in self._packed.values())

    def __contains__(self, name: str) -> bool:
        return name in self._packed

    def __getitem__(self, name: str) -> Any:
        return unpack(self._packed[name])

    def items(self) -> Iterator[tuple[str, Any]]:
        """Yield (client, reply) pairs."""
        return ((n, unpack(p)) for n, p in self._packed.items())

    def each(self, key: str | int) -> list[Any]:
        """Return one field of every reply, for example ``sent.each("model")``."""
        return [reply[key] for reply in self]


class Query(NamedTuple):
    """Kind of the queries that a call of ``predict`` answers; None stands for training.

    Attributes:
        kind: "stage": queries of stage ``number``, which the library draws at the client and
            scores there. "given": queries of a person, the last argument of the call. "own":
            queries about block ``number`` of the client's own users, made at the client; the
            answers stay there.
        number: of the stage or of the block, from 0; 0 for "given".
    """

    kind: Literal["stage", "given", "own"]
    number: int = 0

    @staticmethod
    def of_code(code: int | None) -> Query | None:
        """Return the query of an integer of :func:`code`."""
        if code is None:
            return None
        return (Query("stage", code) if code >= 0 else
                Query("given") if code == -1 else Query("own", -2 - code))


def code(query: Query | None) -> int | None:
    """Return the integer that stands for a query in messages and saves, None in training.

    It is the number of the stage, -1 for given queries, and -2 - b for block b of own users.
    """
    if query is None:
        return None
    return (query.number if query.kind == "stage" else
            -1 if query.kind == "given" else -2 - query.number)
