"""Replies of the clients to one call, and the errors that end a round."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

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
