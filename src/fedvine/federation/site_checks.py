"""Check a run before a site takes part: the server's settings, and that the table is the same."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic
from fedvine.core.method import Method
from fedvine.core.settings import build
from fedvine.data.graph import Graph
from fedvine.data.identity import digest, names
from fedvine.data.stream import EventStream
from fedvine.engines.refusals import Refusal
from fedvine.tasks.by_name import of

if TYPE_CHECKING:
    from fedvine.aggregate.identities import RosterMember


def same_table(part: EventStream | Graph, file: Path) -> None:
    """Keep a digest of a run's table in ``file``; raise :class:`FedvineError` for another table."""
    ids = part.names() if isinstance(part, Graph) else part.src_ids
    now = {"edges": digest(part), "names": names(part),
           "keys": hmac.digest(ids.secret, b"table", "sha256").hex()}
    if not file.exists():
        with atomic(file, "w") as handle:
            json.dump(now, handle)
    elif json.loads(file.read_text("utf-8")) != now:
        raise Refusal("changed")


def plain(run: str) -> str:
    """Return a run's name as a part of a file's name."""
    return "".join(c if c.isalnum() else "-" for c in run)


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


def confirmed(method: Method, identity: Callable[[], RosterMember | None],
              clients: list[str] | None = None) -> RosterMember | None:
    """Return the site's key and roster for a run with secure sums; None for other runs.

    Raises :class:`Refusal` without a roster, or where the run's ``clients`` are not all on it or
    are fewer than must stay by it.
    """
    if not method.hides:
        return None
    try:
        found = identity()
    except FedvineError as error:
        raise Refusal("roster", text=str(error)) from error
    if found is None:
        raise Refusal("roster")
    strangers = sorted(set(clients or ()) - found.roster.keys())
    if strangers:
        raise Refusal("roster-names", ", ".join(strangers))
    needed, there = method.needed(len(found.roster)), len(found.roster)
    if clients is not None and len(clients) < needed:
        raise Refusal("roster-size", str(there), str(needed), str(len(clients)))
    return found
