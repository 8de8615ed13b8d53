"""Clients on the workers of a Ray cluster, for simulations; each worker holds many clients.

The clients of a call are sent in batches, a few ahead, and the replies are yielded in the order of
names. What several clients get alike is put into shared memory once. A worker that dies ends the
round: the run goes back to its last save, with another worker in its place. Ray pickles between its
processes, which must all be the person's own.
"""

from __future__ import annotations

import heapq
import itertools
import os
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from fedvine.core.clients import Clients
from fedvine.core.errors import Failed, FedvineError
from fedvine.core.ledger import Fresh
from fedvine.core.message import Packed
from fedvine.core.method import Method
from fedvine.core.protocol import PlanLike, ServerScorer, TaskLike
from fedvine.core.replies import RoundAborted
from fedvine.core.state import World
from fedvine.core.worker import Envelope
from fedvine.engines.cluster_worker import Outcome, Worker, carried

BATCH = 32      # clients a worker and batch
AHEAD = 3       # batches that are sent before the replies of the first one are read
ATTEMPTS = 3    # times that workers which die at once are replaced
PATIENCE = 300.0    # seconds for a worker to start


class RayClients(Clients):
    """Clients on the workers of a Ray cluster.

    Scores are those of :class:`fedvine.engines.local.LocalClients` with one thread, bit for bit.
    Arguments of the same name mean the same. ``workers`` is the number of processes, at most one a
    client (None: one a processor of the cluster), ``address`` that of a cluster to join (None: one
    on this machine, for this process alone). Raises :class:`FedvineError` where Ray is not
    installed, or the cluster cannot be reached or is too small.
    """

    def __init__(self, method: Method, parts: Mapping[str, Any], plan: PlanLike,
                 protocol: TaskLike, world: World, *, server_scorer: ServerScorer | None = None,
                 quorum: float = 1.0, fresh: Fresh | None = None, workers: int | None = None,
                 address: str | None = None) -> None:
        super().__init__(method, parts, world, protocol, server_scorer, quorum=quorum)
        self._ray = ray = cluster(address, workers)
        cores = int(ray.cluster_resources().get("CPU", 1))
        if address and workers is not None and workers > cores:
            raise FedvineError(f"The cluster has {cores} processors, one for each worker; ask for "
                               f"at most {cores} workers.")
        held = dealt(parts, workers or cores)
        self._of = {name: number for number, names in enumerate(held) for name in names}
        shared = ray.put((*carried(method), plan, protocol, world, fresh))
        self._made = [(shared, ray.put({n: parts[n] for n in names})) for names in held]
        # Those of a cluster have a processor each; those of this process share its machine.
        self._actor = ray.remote(num_cpus=1 if address else 0)(Worker)
        self._notes: tuple[str, ...] = ()           # folder of the releases with noise
        self._dead = set(range(len(held)))          # none was started yet
        self.actors: list[Any] = [None] * len(held)
        self.processes()

    def processes(self) -> list[int]:
        """Return the number of each worker's process, on its machine."""
        return self._surely("process", [()] * len(self.actors))

    def remember(self, folder: Path) -> None:
        """Keep each client's releases in a file of its own, on the machine of its worker."""
        self._notes = (str(folder.absolute()),)
        self._surely("remember", [self._notes] * len(self.actors))

    def exchange(self, outgoing: Iterable[tuple[str, list[Envelope]]]) -> Iterator[
            tuple[str, Packed | Failed | None, float]]:
        """Deliver to all workers at once; see :meth:`Clients.exchange`."""
        put: dict[int, tuple[Packed, Any]] = {}     # what is in shared memory; keeps its id taken
        sent: deque[tuple[list[str], dict[int, Any]]] = deque()
        letters = iter(outgoing)
        while batch := list(itertools.islice(letters, BATCH * len(self.actors))):
            sent.append(([name for name, _ in batch], self._post(batch, put)))
            if len(sent) > AHEAD:
                yield from self._replies(*sent.popleft())
        for names, posted in sent:
            yield from self._replies(names, posted)

    def _post(self, batch: list[tuple[str, list[Envelope]]], put: dict[int, tuple[Packed, Any]]
              ) -> dict[int, Any]:
        """Send a batch; return the replies to come, by worker."""
        uses = Counter(id(e.body) for _, envelopes in batch for e in envelopes)
        calls: dict[int, list[Any]] = {}
        shared: dict[int, list[int]] = {}           # of each worker: ids of bodies, in order
        for name, envelopes in batch:
            number, plain = self._of[name], []
            refs = shared.setdefault(number, [])
            for envelope in envelopes:
                body, key = envelope.body, id(envelope.body)
                if uses[key] > 1 and key not in put:
                    put[key] = body, self._ray.put(body)
                if key in put and key not in refs:
                    refs.append(key)
                plain.append((envelope._replace(body=None),     # type: ignore[arg-type]
                              refs.index(key) if key in put else body))
            calls.setdefault(number, []).append((name, plain))
        return {number: self.actors[number].exchange.remote(
            theirs, *(put[key][1] for key in shared[number])) for number, theirs in calls.items()}

    def _replies(self, names: list[str], posted: dict[int, Any]) -> Iterator[
            tuple[str, Packed | Failed | None, float]]:
        """Yield the replies of a batch; they are taken out of shared memory."""
        came: dict[int, Iterator[Outcome]] = {}
        for name in names:
            number = self._of[name]
            if number not in came:
                came[number] = iter(self._got(number, posted[number]))
            reply, seconds = next(came[number])
            if isinstance(reply, Packed):
                reply = self.pool.take(reply)
            elif isinstance(reply, Exception) and not isinstance(reply, Failed):
                raise reply
            yield name, reply, seconds

    def save(self, checkpoint: str) -> dict[str, Packed]:
        """Return the memory of all clients, by name."""
        found: dict[str, Packed] = {}
        for theirs in self._all("save", [(checkpoint,)] * len(self.actors)):
            found |= theirs
        return {name: found[name] for name in self.everyone}

    def restore(self, saved: Mapping[str, Packed], checkpoint: str | None) -> None:
        """Restore the clients in ``saved``, start the others afresh, and replace dead workers."""
        theirs: list[dict[str, Packed]] = [{} for _ in self.actors]
        for name, packed in saved.items():
            theirs[self._of[name]][name] = packed
        self._surely("restore", [(mine, checkpoint) for mine in theirs])

    def close(self) -> None:
        """End the workers."""
        for worker in self.actors:
            self._ray.kill(worker)

    def _surely(self, do: str, arguments: list[tuple[Any, ...]]) -> list[Any]:
        """Call a function on every worker, with other workers in place of dead ones."""
        why = None
        for _ in range(ATTEMPTS):
            try:
                self._replace()
                return self._all(do, arguments)
            except RoundAborted as reason:
                why = reason
        raise FedvineError(f"{why}, {ATTEMPTS} times in a row; look whether its machine has enough "
                           "memory.") from why

    def _replace(self) -> None:
        """Start workers in place of the dead ones, with the same clients, as yet without memory."""
        if not self._dead:
            return
        for number in self._dead:
            self.actors[number] = self._actor.remote()
            self.actors[number].look_in.remote(sys.path)   # before anything is sent to it
        started, self._dead = sorted(self._dead), set()
        self._all("prepare", [(*self._made[number], *self._notes) for number in started], started)

    def _all(self, do: str, arguments: list[tuple[Any, ...]], numbers: Iterable[int] | None = None
             ) -> list[Any]:
        """Call a function on these workers (None: all) at once; return the answers in order."""
        refs = [(number, getattr(self.actors[number], do).remote(*mine)) for number, mine in zip(
            range(len(self.actors)) if numbers is None else numbers, arguments, strict=True)]
        answers, died = [], None
        for number, ref in refs:
            try:
                answers.append(self._got(number, ref, PATIENCE if do == "prepare" else None))
            except RoundAborted as reason:
                died = reason       # the others are waited for: all that are dead are known
        if died is not None:
            raise died
        return answers

    def _got(self, number: int, ref: Any, seconds: float | None = None) -> Any:
        """Return what a worker answers; raise :class:`RoundAborted` where it died."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(ref, timeout=seconds)
        except errors.RayTaskError as error:
            raise error.cause from error
        except errors.GetTimeoutError as error:
            raise FedvineError(f"The cluster did not start a worker in {PATIENCE:.0f} seconds; "
                               "wait until it has a free processor, or ask for fewer workers."
                               ) from error
        except (errors.RayActorError, errors.ObjectLostError) as error:
            self._dead.add(number)
            count = sum(found == number for found in self._of.values())
            raise RoundAborted(f"A worker died that held {count} clients") from error


def cluster(address: str | None, workers: int | None) -> Any:
    """Return the package ray, connected; nothing is sent to its makers, and no page is served.

    A process that is connected already stays so. Raises :class:`FedvineError` where Ray is not
    installed or nothing answers at the address.
    """
    os.environ["RAY_usage_stats_enabled"] = "0"     # noqa: SIM112 (so it is called)
    try:
        ray = import_module("ray")
    except ImportError as error:
        raise FedvineError('The engine "ray" needs Ray: pip install "fedvine[ray]".') from error
    if not hasattr(ray, "init"):        # a folder of that name is not the package
        raise FedvineError('The engine "ray" needs Ray: pip install "fedvine[ray]".')
    if ray.is_initialized():
        return ray
    here: dict[str, Any] = {} if address else {
        "include_dashboard": False, "num_cpus": max(workers or 0, os.cpu_count() or 1)}
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level="ERROR", **here)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise FedvineError(f"The Ray cluster {address or 'of this machine'} does not answer "
                           f"({why}).") from error
    return ray


def dealt(parts: Mapping[str, Any], workers: int) -> list[list[str]]:
    """Return the names of each worker's clients, so that the workers have about as many edges."""
    size = {name: 1 + (0 if part is None else len(part)) for name, part in parts.items()}
    heap = [(0, number) for number in range(min(workers, max(len(parts), 1)))]
    held: list[list[str]] = [[] for _ in heap]
    for name in sorted(size, key=lambda n: (-size[n], n)):
        load, number = heap[0]
        heapq.heapreplace(heap, (load + size[name], number))
        held[number].append(name)
    return [sorted(names) for names in held]
