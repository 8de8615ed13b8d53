"""``fedvine join KIT --dry-run``: every message that a run would send, without sending one.

The run is carried out in this process, on this site's own table, with its own policy. Two more
sites with the same table take part in place of the others: what is asked for of this site's users
and items is then the most that others could ask for.
"""

from __future__ import annotations

import contextlib
import inspect
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedvine.aggregate.aggregate import Sum
from fedvine.core.errors import FedvineError
from fedvine.core.expect import is_tensor, name_of
from fedvine.core.message import Packed, loads, unpack
from fedvine.core.method import Method
from fedvine.core.replies import RoundAborted
from fedvine.engines.remote import sentence
from fedvine.federation.launch import read_order
from fedvine.federation.order import Order, SiteFile
from fedvine.federation.server import forecast, open_order
from fedvine.federation.site import Site
from fedvine.federation.site_file import opener

RUN = "dry-run"
OTHERS = 2      # sites with the same table that take part
LEARNS = {
    "agree": "that this site takes part in this run, or why not; a random number for each erasure "
             "here that concerns it",
    "erased": "that this site dropped what it learned in the run, when, and how many saves",
    "facts": "the number of edges, the first and the last time, and whether there are tables of "
             "users or items",
    "known": "the number of edges at or before each stage's end",
    "tables": "names of the columns of users and items; of numbers also how many, their sum and "
              "the sum of their squares; of a labelled graph, without names, those of what nodes "
              "have from amounts and times of their edges",
    "arrivals": "each user's key (an HMAC), and the time at which it was first seen here",
    "blind": "how many names are new here, rounded up to the grain; blinded, they say nothing else",
    "nodes": "numbers of nodes and features, a digest of the columns' names, and the classes: "
             "keys, or names where the site gives them",
    "moments": "the names of the saves that this site has",
    "forecasts": "the number of blocks of users that forecasts are made for; they stay here"}


class Sent:
    """The messages of one kind: ``count``, bytes in all and of the ``largest``, an example."""

    def __init__(self, function: str, kind: str) -> None:
        self.function, self.kind, self.learns = function, kind, ""
        self.count = self.all = self.largest = 0

    def add(self, block: bytes) -> bool:
        """Count an answer; return whether it is the largest so far."""
        self.count += 1
        self.all += len(block)
        larger = len(block) > self.largest
        self.largest = max(self.largest, len(block))
        return larger


def dry_run(name: str, found: SiteFile, experiment: Path) -> tuple[list[Sent], str]:
    """Return what the site ``name`` would send in a run of ``experiment``, and why it would end.

    The text is empty for a run that comes to its end. Raises :class:`FedvineError` for an
    experiment that cannot be read, or whose server holds the graph.
    """
    with tempfile.TemporaryDirectory() as folder:
        order = read_order(experiment, Path(folder) / "run", opened=False, live=False)
        if order.kind().server_holds_graph:
            raise FedvineError(f"The server of {order.kind().name} holds the graph: no table of "
                               "this site takes part, and nothing of one is sent.")
        return _carry_out(order.model_copy(update={"clients": []}), name, found, Path(folder))


def _carry_out(order: Order, name: str, found: SiteFile, folder: Path) -> tuple[list[Sent], str]:
    names = [name, *(f"{name}-other-{i + 1}" for i in range(OTHERS))]
    identity = _identities(order.kind(), names)
    sites = {n: Site(n, opener(found), folder / f"site-{i}", None,  # type: ignore[arg-type]
                     bool(found.data and found.data.sure), found.policy if n == name else None,
                     identity[n], found.open_classes)
             for i, n in enumerate(names)}
    sent: dict[tuple[str, str], Sent] = {}
    method = type(order.kind())

    def send(to: str, block: bytes, seconds: float) -> bytes:
        answer = sites[to].answer(RUN, block)
        if to == name:
            line = sites[to].account.last
            one = sent.setdefault((line["function"], line["kind"]),
                                  Sent(line["function"], line["kind"]))
            if one.add(answer):
                one.learns = learns(method, one, answer)
        return answer

    why = ""
    made = None
    try:
        made = open_order(order, RUN, names, send, folder)[0]
        assert made is not None
        made.finish()
        if order.forecasts:
            forecast(made, order.forecasts)
    except (RoundAborted, FedvineError) as error:
        why = str(error)
    finally:
        if made is not None:
            with contextlib.suppress(AttributeError):
                made.clients.close()    # type: ignore[attr-defined]
    return list(sent.values()), why


def _identities(method: Method, names: list[str]) -> dict[str, Callable[[], Any]]:
    """Return a key for each site, made for this run alone, and their roster; if there are sums."""
    if not method.hides:
        return {name: lambda: None for name in names}
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from fedvine.aggregate.identities import RosterMember, der, fingerprint
    keys = {name: Ed25519PrivateKey.generate() for name in names}
    roster = {name: fingerprint(der(key.public_key())) for name, key in keys.items()}
    return {name: lambda name=name, key=key: RosterMember(name, key, roster)
            for name, key in keys.items()}


def learns(method: type, sent: Sent, answer: bytes) -> str:
    """Return what the server learns of an answer, in words."""
    if sent.kind == "refused":
        return sentence(unpack(loads(answer))["error"])
    if sent.kind == "nothing":
        return LEARNS.get(sent.function, "that it was done")
    if sent.function in LEARNS:
        return LEARNS[sent.function]
    if sent.kind == "scores":
        return "counts of queries and mean scores over them; the answers stay here"
    if sent.kind == "a count":
        return "the number of users that forecasts were made for; they stay here"
    doc = inspect.getdoc(getattr(method, sent.function, getattr(Sum, sent.function, None))) or ""
    skeleton, buffers, _ = unpack(loads(answer))["reply"]
    reply = unpack(Packed(skeleton, list(buffers)))
    return f"{doc.splitlines()[0] if doc else sent.function} ({_shape(reply)})"


def _shape(value: Any) -> str:
    """Return names, types and shapes of what is in a reply."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_shape(one)}" for key, one in value.items()) or "empty"
    if isinstance(value, list | tuple):
        return f"{len(value)} values" if len(value) > 4 else ", ".join(map(_shape, value))
    if isinstance(value, np.ndarray) or is_tensor(value):
        kind = value.dtype if isinstance(value, np.ndarray) else name_of(value.dtype)
        return f"{kind} [{' x '.join(map(str, value.shape))}]"
    return "nothing" if value is None else type(value).__name__
