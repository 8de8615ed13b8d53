"""Requests of the server at a site: checked, carried out, and written into the site's account."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from fedvine.core.errors import FedvineError, MethodError
from fedvine.core.ledger import Spent
from fedvine.core.message import dumps, loads, pack, unpack
from fedvine.core.units import size
from fedvine.engines.refusals import Refusal
from fedvine.federation.account import NOTHING

if TYPE_CHECKING:
    from fedvine.federation.site import Site

_LOG = logging.getLogger(__name__)
# Requests before a run is open here, and what leaves with the answer; then those of the run.
BEFORE = {"agree": NOTHING, "facts": "counts and times", "known": "counts",
          "tables": "sums of columns", "arrivals": "keys and times of users",
          "nodes": "classes and counts", "grow": NOTHING, "open": NOTHING}
DURING = {"call": "", "save": NOTHING, "restore": NOTHING, "moments": "names of saves",
          "forecasts": "a count"}
STEPS = ("sum_keys", "sum_shares", "sum_agree", "sum_unmask")     # of a secure sum
NAME = 100      # characters of a run's name in the account


def handle(site: Site, block: bytes, seal: bytes) -> bytes:
    """Carry out one request if the server has signed it; any other one is refused unread."""
    try:
        run = site.trusted.check(block, seal)
    except FedvineError as error:
        return _refused(site, "", "?", block, Refusal("seal", text=str(error)))
    return answer(site, run, block)


def answer(site: Site, run: str, block: bytes) -> bytes:
    """Carry out one request of the server; the answer is a reply, or an error's code."""
    name = "?"
    try:
        request = unpack(loads(block, site.pool))
        if not isinstance(request, dict):
            raise Refusal("unread")
        do = request.pop("do", "")
        if do not in BEFORE and do not in DURING:
            raise Refusal("unknown")
        name = do
        if do in DURING and run != site.run:
            raise Refusal("closed") if site.run is None else Refusal("another")
        if do in ("agree", "nodes", "grow", "open") and request.get("run") != run:
            raise Refusal("another")
        if do in BEFORE and do not in ("agree", "grow", "open") and (
                site.agreed is None or site.agreed[0] != run):
            raise Refusal("terms")
        if do != "call":
            out, kind = dumps(pack({"reply": getattr(site, _NAMES.get(do, do))(**request)})), (
                {**BEFORE, **DURING}[do])
        else:
            if hasattr(site.worker and site.worker.method, str(request["function"])):
                name = str(request["function"])
            kind, out = _call(site, request)
    except Exception as error:
        return _refused(site, run, name, block, error)
    site.account.add(**{"run": run[:NAME], "function": name, "kind": kind, "in": len(block),
                        "out": len(out)})
    return out


_NAMES = {"moments": "checkpoints"}     # functions of a site that are not called as the request is


def _call(site: Site, request: dict[str, Any]) -> tuple[str, bytes]:
    """Return what leaves, and the answer to a call.

    A repeated or an overtaken call gets the last answer. Raises :class:`Refusal` where more would
    leave in a round than the site's policy allows.
    """
    place = tuple(request["place"])
    if site.last is None or place > site.last.place:
        reply = site.call(**request)
        out = dumps(pack({"reply": reply}))
        before = site.last.left if site.last is not None and (
            site.last.place[:2] == place[:2]) else 0
        most = None if site.policy is None else site.policy.most_bytes
        if most is not None and before + len(out) > most:
            raise Refusal("policy-bytes", size(most), size(before + len(out)))
        asks = request["asks"]
        kind = (NOTHING if reply[0] == pack(None).skeleton else
                "for training" if asks is None else
                "for answers" if request["function"] != "predict" else
                "scores" if asks >= 0 else "a count")
        site.last = Last(place, out, kind, before + len(out))
    return site.last.kind, site.last.answer


class Last:
    """The last call's answer: ``place``, ``kind`` that left, and bytes ``left`` in this round."""

    def __init__(self, place: tuple[int, ...], answer: bytes, kind: str, left: int) -> None:
        self.place, self.answer, self.kind, self.left = place, answer, kind, left


def _refused(site: Site, run: str, name: str, block: bytes, error: Exception) -> bytes:
    """Return an error's code; its sentence may hold values of the table, and stays here."""
    known = isinstance(error, FedvineError)
    sent = (error.sent if isinstance(error, Refusal) else
            ["spent" if isinstance(error, Spent) else
             "method" if isinstance(error, MethodError) else
             "sum" if name in STEPS else "failed"])
    why = str(error) if known else f"{type(error).__name__}: {error}"
    if not known:       # with where it came from
        _LOG.error("a request failed: %s", why, exc_info=error)
    out = dumps(pack({"error": sent}))
    site.account.add(**{"run": run[:NAME], "function": name, "kind": "refused", "in": len(block),
                        "out": len(out), "code": sent[0], "why": why})
    return out
