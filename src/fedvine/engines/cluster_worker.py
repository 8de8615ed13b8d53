"""A worker of :class:`fedvine.engines.cluster.RayClients`: one process that holds many clients.

It has :class:`fedvine.engines.local.LocalClients`, so a client does here what it does in one
process.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from fedvine.core import registry
from fedvine.core.compiling import leave_out_compiler
from fedvine.core.errors import FedvineError
from fedvine.core.files import cache_folder
from fedvine.core.message import Packed
from fedvine.core.method import Method
from fedvine.core.replies import ClientError
from fedvine.core.settings import build
from fedvine.core.worker import Envelope
from fedvine.engines.local import LocalClients

Outcome = tuple[Packed | Exception | None, float]   # reply or error, and seconds


class Worker:
    """One process of the cluster: its clients, and one thread for their arithmetic."""

    def look_in(self, folders: list[str]) -> None:
        """Find modules where the run's own process does, such as that of a person's method."""
        sys.path += [folder for folder in folders if folder not in sys.path]

    def prepare(self, made: tuple[Any, ...], parts: dict[str, Any], notes: str | None = None
                ) -> None:
        """Make the clients of ``parts`` by name.

        ``made`` is what all workers have alike: method (:func:`carried`), plan, protocol, world,
        and the source of keys of noise. ``notes`` is the folder of :meth:`remember`; None: not said
        yet.
        """
        from threadpoolctl import threadpool_limits
        method, code, plan, protocol, world, fresh = made
        if code:
            method = _of_code(method, code)
        leave_out_compiler()
        os.environ["OMP_NUM_THREADS"] = "1"             # of what is imported later
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
        self.limits = threadpool_limits(1)
        self.clients = LocalClients(method, parts, plan, protocol, world, fresh=fresh)
        if notes is not None:
            self.remember(notes)

    def process(self) -> int:
        """Return the number of this process."""
        return os.getpid()

    def remember(self, folder: str) -> None:
        """Keep the clients' releases below this folder."""
        self.clients.remember(Path(folder))

    def exchange(self, calls: list[tuple[str, list[tuple[Envelope, Packed | int]]]],
                 *shared: Packed) -> list[Outcome]:
        """Carry out calls (numbers stand for ``shared`` bodies); an error ends a client's list."""
        found: list[Outcome] = []
        letters = ((name, [e._replace(body=shared[b] if isinstance(b, int) else b)
                           for e, b in envelopes]) for name, envelopes in calls)
        try:
            for _, reply, seconds in self.clients.exchange(letters):
                found.append((reply, seconds))
        except ClientError as error:
            found.append((ClientError(str(error)), 0.0))    # without the cause, of any type
        except FedvineError as error:
            found.append((error, 0.0))
        return found

    def save(self, checkpoint: str) -> dict[str, Packed]:
        """Return the memory of the clients here."""
        return self.clients.save(checkpoint)

    def restore(self, saved: dict[str, Packed], checkpoint: str | None) -> None:
        """Restore the clients from copies: what is in shared memory cannot be written."""
        self.clients.restore({n: self.clients.pool.take(p) for n, p in saved.items()}, checkpoint)


def carried(method: Method) -> tuple[Any, bytes]:
    """Return the method and nothing; of one in a person's own file its constants and the file."""
    if not method.file_digest:
        return method, b""          # Ray names its class by its module, which a worker can import
    file = cache_folder() / "methods" / f"{method.file_digest}.py"
    return method.constants(), file.read_bytes()


def _of_code(constants: dict[str, Any], code: bytes) -> Method:
    """Return the method of a person's own file, which is carried out here as it was there."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{constants['name']}.py"
        file.write_bytes(code)
        found = registry.from_file(file)
    assert issubclass(found, Method)
    return build(found, {k: v for k, v in constants.items() if k not in ("name", "file_digest")})
