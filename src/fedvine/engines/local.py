"""All clients in this process, on one or more threads; messages are packed and copied for real."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

from fedvine.core.clients import Clients
from fedvine.core.errors import Failed, FedvineError
from fedvine.core.files import file_name
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
        workers: threads on which so many clients compute at a time, "auto": one a processor, but no
            more than clients, and one where the method gains nothing; None: one. Scores do not
            depend on it.
    """

    keep_last = False

    def __init__(self, method: Method, parts: Mapping[str, Any], plan: PlanLike,
                 protocol: TaskLike, world: World, *, server_scorer: ServerScorer | None = None,
                 quorum: float = 1.0, fresh: Fresh | None = None,
                 workers: int | Literal["auto"] | None = None) -> None:
        super().__init__(method, parts, world, protocol, server_scorer, quorum=quorum)
        self.workers = {n: ClientWorker(method, n, parts[n], plan, protocol, world,
                                        keep_last=self.keep_last,
                                        ledger=Ledger(client=n, fresh=fresh))
                        for n in self.everyone}
        every = os.cpu_count() if method.parallel else 1
        most = (every if workers == "auto" else workers) or 1
        self.threads = max(min(most, len(self.workers)), 1)

    def remember(self, folder: Path) -> None:
        """Keep each client's releases in a file of its own."""
        for name, worker in self.workers.items():
            worker.ledger.file = folder / f"{file_name(name)}.jsonl"

    def exchange(self, outgoing: Iterable[tuple[str, list[Envelope]]]) -> Iterator[
            tuple[str, Packed | Failed | None, float]]:
        """Deliver to so many clients at a time as there are threads; see :meth:`Clients.exchange`.

        Replies are in the order of the clients, so nothing depends on the number of threads.
        """
        if self.threads == 1:
            yield from (self._one(name, envelopes) for name, envelopes in outgoing)
            return
        waiting: deque[Future[tuple[str, Packed | Failed | None, float]]] = deque()
        with ThreadPoolExecutor(self.threads, initializer=_alone) as pool:
            for name, envelopes in outgoing:
                waiting.append(pool.submit(self._one, name, envelopes))
                if len(waiting) > self.threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    def _one(self, name: str, envelopes: list[Envelope]
             ) -> tuple[str, Packed | Failed | None, float]:
        """Deliver to one client; return its name, last reply, and seconds."""
        reply: Packed | Failed | None = None
        for envelope in envelopes:
            try:
                reply = self._deliver(name, envelope)
            except Spent as reason:
                reply = Failed(f"it is an error: {reason}")
            if not isinstance(reply, Packed):
                break
        return name, reply, self.workers[name].seconds

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


def _alone() -> None:
    """Let a thread compute by itself: torch would take as many more as there are processors."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
