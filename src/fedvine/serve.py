"""The files and processes behind ``fedvine serve`` and ``fedvine join``."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomlkit

from fedvine import kit as kits
from fedvine import shelf
from fedvine.errors import FedvineError
from fedvine.federation import Order, SiteFile
from fedvine.files import atomic
from fedvine.settings import assignment, build, merged

Say = Callable[[str], None]


def read_order(file: Path, out: Path, settings: list[str] | None = None, **given: Any) -> Order:
    """The order from an experiment file (``[data]`` and ``[split]`` are the sites' own matter).

    Raises :class:`FedvineError` that names the file and the key.
    """
    try:
        values = tomllib.loads(file.read_text("utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise FedvineError(f"{file} cannot be read as an experiment ({error}).") from error
    if isinstance(values.get("method"), str):
        values["method"] = {"name": values["method"]}
    values.pop("split", None)  # each site is a client
    if not _server_holds_graph(values):
        values.pop("data", None)  # each site has its own
    for setting in settings or []:
        values = merged(values, assignment(setting))
    values |= {"out": str(out.absolute())} | {k: v for k, v in given.items() if v is not None}
    order = build(Order, values, str(file))
    if order.kind().server_holds_graph and order.data is not None:
        order.data.open()
    return order


def _server_holds_graph(values: dict[str, Any]) -> bool:
    method = values.get("method")
    name = method.get("name") if isinstance(method, dict) else None
    return bool(name) and shelf.method(str(name)).server_holds_graph  # type: ignore[attr-defined]


def write_site(kit: Path, values: dict[str, Any]) -> SiteFile:
    """Write ``<kit>/site.toml``, validated; the data is opened once so that errors show now."""
    found = build(SiteFile, values, "the arguments of fedvine join")
    if found.data is not None and not len(found.data.open()):
        raise FedvineError(f"{found.data.source} has no edges.")
    with atomic(kit / "site.toml", "w") as file:
        file.write(tomlkit.dumps(found.model_dump(exclude_none=True, exclude_defaults=True)))
    (kit / "site.toml").chmod(0o600)
    return found


def join(kit: Path, say: Say, stay: Callable[[], bool] = lambda: True) -> None:
    """Keep this site's client running until ``stay`` is false or Ctrl-C."""
    process = None
    try:
        while stay():
            if process is None or process.poll() is not None:
                if process is not None:
                    say("the client's process ended; starting it again")
                process = kits.start(kit, kit / "client.log", FEDVINE_SITE=str(kit.absolute()))
            time.sleep(1.0)
    except KeyboardInterrupt:
        say("left")
    finally:
        if process is not None:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a kit's process and its children."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signum)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(3.0)
            if signum == signal.SIGTERM:
                time.sleep(0.5)
