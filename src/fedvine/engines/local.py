"""All clients in this process, one after the other; messages are packed and copied for real."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fedvine.core.clients import Clients
from fedvine.core.errors import Failed, FedvineError
from fedvine.core.ledger import Fresh, Ledger, Spent
from fedvine.core.message import Packed
from fedvine.core.method import Method
from fedvine.core.protocol import PlanLike, ServerScorer, TaskLike
from fedvine.core.replies import ClientError
from fedvine.core.state import World
from fedvine.core.worker import ClientWorker, Envelope


class LocalClients(Clients):
    """Clients in this process.

    Args:
        method: has the functions that are called.
        parts: the clients' own data by name; None for a client without any (where the server holds
            the graph).
        plan: of stages.
        protocol: of scoring.
        world: facts that all sides know.
        server_scorer: scores at the server, where it holds the graph.
        quorum: share of replies, in (0, 1], that a call needs by default.
        fresh: makes keys of noise, for tests (:class:`fedvine.core.ledger.Ledger`).
    """

    keep_last = False

    def __init__(self, method: Method, parts: Mapping[str, Any], plan: PlanLike,
                 protocol: TaskLike, world: World, *, server_scorer: ServerScorer | None = None,
                 quorum: float = 1.0, fresh: Fresh | None = None) -> None:
        super().__init__(method, parts, world, protocol, server_scorer, quorum=quorum)
        self.workers = {n: ClientWorker(method, n, parts[n], plan, protocol, world,
                                        keep_last=self.keep_last,
                                        ledger=Ledger(client=n, fresh=fresh))
                        for n in self.everyone}

    def remember(self, folder: Path) -> None:
        """Keep each client's releases in a file of its own."""
        for name, worker in self.workers.items():
            worker.ledger.file = folder / f"{quote(name, safe='')}.jsonl"

    def exchange(self, outgoing: Iterable[tuple[str, list[Envelope]]]) -> Iterator[
            tuple[str, Packed | Failed | None, float]]:
        """Deliver to one client after the other; see :meth:`Clients.exchange`."""
        for name, envelopes in outgoing:
            reply: Packed | Failed | None = None
            for envelope in envelopes:
                try:
                    reply = self._deliver(name, envelope)
                except Spent as reason:
                    reply = Failed(f"it is an error: {reason}")
                if not isinstance(reply, Packed):
                    break
            yield name, reply, self.workers[name].seconds

    def _deliver(self, name: str, envelope: Envelope) -> Packed | None:
        """Carry out one call: one copy in for the receiver, one copy out for the server."""
        worker = self.workers[name]
        received = envelope._replace(body=self.pool.take(envelope.body))
        try:
            return self.pool.take(worker.handle(received))
        except FedvineError:
            raise
        except Exception as error:
            t, r, *_ = envelope.place
            raise ClientError(f'client "{name}" failed in {envelope.function} (stage {t}, round '
                              f"{r}): {type(error).__name__}: {error}") from error

    def save(self, checkpoint: str) -> dict[str, Packed]:
        """Return the memory of all clients, by name."""
        return {name: worker.save() for name, worker in self.workers.items()}

    def restore(self, saved: Mapping[str, Packed], checkpoint: str | None) -> None:
        """Restore the clients in ``saved``; start the others afresh."""
        for name, worker in self.workers.items():
            if name in saved:
                worker.restore(saved[name])
            else:
                worker.renew()
