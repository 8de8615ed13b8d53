"""An engine that keeps all messages of a run, as an auditor of the server would."""

from __future__ import annotations

from typing import Any, NamedTuple

from fedvine.core.message import Packed, unpack
from fedvine.core.worker import Envelope
from fedvine.engines.local import LocalClients


class Letter(NamedTuple):
    """One call and its reply: what the server sent down and what it got, as plain trees.

    ``place`` is (t, r, call); ``query`` whether it was a call for answers.
    """

    place: tuple[int, int, int]
    client: str
    function: str
    query: bool
    down: list[Any]
    up: Any


class RecordingClients(LocalClients):
    """Clients in this process; ``letters`` has every message, in order. For small runs."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.letters: list[Letter] = []

    def _deliver(self, name: str, envelope: Envelope) -> Packed | None:
        down = unpack(_kept(envelope.body))
        reply = super()._deliver(name, envelope)
        up = None if reply is None else unpack(_kept(reply))
        self.letters.append(Letter(envelope.place, name, envelope.function,
                                   envelope.query is not None, down, up))
        return reply


def _kept(packed: Packed) -> Packed:
    return Packed(packed.skeleton, [b.copy() for b in packed.buffers])
