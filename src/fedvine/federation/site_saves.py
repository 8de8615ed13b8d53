"""Save a run at a site: its client's memory, forecasts or labels, and a secret of its own."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

from fedvine.core.files import atomic
from fedvine.core.worker import ClientWorker
from fedvine.experiments import run_folder
from fedvine.federation.site_forecasts import SiteForecasts
from fedvine.federation.site_labels import SiteLabels
from fedvine.tasks.task import Task

KEPT = 3  # saves a site keeps; one more than the server, which may be killed between two


def save(worker: ClientWorker, folder: Path, moment: str) -> None:
    """Keep the client's memory in ``folder``, under the save's name."""
    run_folder.write_packs({"client": worker.save()}, folder / run_folder.checked(moment))
    for old in sorted(folder.glob("[0-9]*"))[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def restore(worker: ClientWorker, folder: Path, moment: str | None) -> None:
    """Restore the client of that save or the newest before it (None: a fresh client)."""
    wanted = "" if moment is None else run_folder.checked(moment)
    if moment is None:
        for old in folder.glob("[0-9]*"):
            shutil.rmtree(old, ignore_errors=True)
    earlier = [m for m in moments(folder) if m <= wanted]
    if earlier:
        worker.restore(run_folder.read_packs(folder / earlier[-1])["client"])
    else:
        worker.renew()


def moments(folder: Path) -> list[str]:
    """Return the saves that this site can restore."""
    return sorted(p.name for p in folder.glob("[0-9]*"))


def forecasts(worker: ClientWorker, name: str, file: Path, count: int) -> int:
    """Begin forecasts of ``count`` items a user, or labels; with ``count`` 0 write them.

    Returns the number of blocks of users; of a labelled graph all nodes are one.
    """
    if worker.part is None:
        return 0
    if count:
        task, plan = worker.protocol, worker.plan
        assert isinstance(task, Task)       # as the site opened it
        worker.forecasts = made = (
            SiteLabels(name, task, worker.part, plan) if task.data == "graph" else
            SiteForecasts(name, task, worker.part, plan, count))  # type: ignore[arg-type]
        return made.blocks
    if isinstance(worker.forecasts, SiteForecasts | SiteLabels):
        worker.forecasts.write(file)
    return 0


def secret(folder: Path) -> bytes:
    """Return random bytes of this site alone, made once."""
    file = folder / "secret"
    if not file.exists():
        with atomic(file) as handle:
            handle.write(secrets.token_bytes(32))
        file.chmod(0o600)
    return file.read_bytes()
