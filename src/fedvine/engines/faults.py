"""An engine with planned faults, for the contract suite and for tests.

Messages go through bytes; calls are delivered twice; caches vanish between rounds; clients are
killed in the middle of a round and come back; clients are away for rounds, or lose one reply.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from fedvine.core.message import Packed, dumps, loads, unpack
from fedvine.core.method import At
from fedvine.core.replies import ClientError
from fedvine.core.worker import Envelope
from fedvine.engines.local import LocalClients


class MockClients(LocalClients):
    """Clients in this process, with faults.

    Args:
        *args: of :class:`LocalClients`.
        twice: deliver every call twice.
        forget: drop ``client.cache`` at the start of every round.
        kill: (t, r, call): before that call the first client loses its memory, gets it back as it
            was when the round began, and is sent the round's calls again.
        away: {(t, r): names}: clients that do not answer in that round.
        lose: {(t, r, call): names}: clients whose reply to that call is lost, once.
        **options: of :class:`LocalClients`.
    """

    keep_last = True

    def __init__(self, *args: Any, twice: bool = False, forget: bool = False,
                 kill: Collection[tuple[int, ...]] = (),
                 away: Mapping[tuple[int, int], Collection[str]] | None = None,
                 lose: Mapping[tuple[int, ...], Collection[str]] | None = None,
                 **options: Any) -> None:
        super().__init__(*args, **options)
        self.twice, self.forget, self.kill = twice, forget, set(kill)
        self.away, self.lose = dict(away or {}), {k: set(v) for k, v in (lose or {}).items()}
        self._began: dict[str, bytes] = {}
        self._sent: dict[str, list[Envelope]] = {}

    def begin(self, at: At) -> None:
        """Begin a round; remember the clients' memory, and drop caches if planned."""
        super().begin(at)
        self._began = {n: dumps(p) for n, p in self.save("round").items()}
        self._sent = {n: [] for n in self.names}
        if self.forget:
            for worker in self.workers.values():
                worker.client.cache = {}

    def _deliver(self, name: str, envelope: Envelope) -> Packed | None:
        if name in self.away.get(self._place, ()) and envelope.query is None:
            return None
        wire = dumps(envelope.body)
        place = envelope.place if envelope.place[3] else envelope.place[:3]
        if place in self.kill and name == self.names[0]:
            self.workers[name].restore(loads(self._began[name]))
            for earlier in self._sent[name]:
                super()._deliver(name, earlier)
        self._sent[name].append(envelope._replace(body=loads(wire)))
        reply = super()._deliver(name, envelope._replace(body=loads(wire)))
        if self.twice:
            again = super()._deliver(name, envelope._replace(body=loads(wire)))
            if again is None or reply is None or dumps(again) != dumps(reply):
                raise ClientError(f'client "{name}" answered a repeated call differently')
        lost = self.lose.get(place, set())
        if name in lost:
            lost.discard(name)  # lost once: the next attempt gets through
            return None
        return reply


# -- an engine that keeps all messages of a run, as an auditor of the server would -----------------
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
        self.letters.append(Letter(envelope.place[:3], name, envelope.function,
                                   envelope.query is not None, down, up))
        return reply


def _kept(packed: Packed) -> Packed:
    return Packed(packed.skeleton, [b.copy() for b in packed.buffers])
