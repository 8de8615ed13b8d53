"""What a site checks before a run: the server's settings, and that its table is still the same."""

from __future__ import annotations

import hmac
import json
from pathlib import Path
from typing import Any

from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic
from fedvine.core.method import Method
from fedvine.core.settings import build
from fedvine.data.spec import digest, names
from fedvine.data.stream import EventStream
from fedvine.engines.refusals import Refusal
from fedvine.tasks.task import of


def same_table(part: EventStream, file: Path) -> None:
    """Keep a digest of a run's table in ``file``; raise :class:`FedvineError` for another table."""
    now = {"edges": digest(part), "names": names(part),
           "keys": hmac.digest(part.src_ids.secret, b"table", "sha256").hex()}
    if not file.exists():
        with atomic(file, "w") as handle:
            json.dump(now, handle)
    elif json.loads(file.read_text("utf-8")) != now:
        raise Refusal("changed")


def settings(method: dict[str, Any], protocol: dict[str, Any]) -> tuple[Method, Any]:
    """Return a method and its task with the server's constants, validated.

    Raises :class:`Refusal` where they are not valid, or the task cannot be carried here.
    """
    chosen = dict(method)
    try:
        kind = registry.method(str(chosen.pop("name", "")))
        assert issubclass(kind, Method)
        constants = build(kind, chosen, under="method.")
        scored = build(of(constants), protocol, under="protocol.")
    except FedvineError as error:
        raise Refusal("settings", text=str(error)) from error
    if not scored.federated:
        raise Refusal("task")
    return constants, scored
