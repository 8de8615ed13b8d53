"""The code that a malicious site runs in place of fedvine's own: see :mod:`benchmarks._attack`.

It answers the server, and meanwhile tries to be the server for the others, to end their processes,
and to end the run by what it answers.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.shareable import Shareable
from nvflare.collab import collab
from nvflare.fuel.common.exit_codes import ProcessExitCode
from nvflare.fuel.f3.cellnet.defs import CellChannel, MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import new_cell_message
from nvflare.private.admin_defs import Message
from nvflare.private.defs import TrainingTopic

from benchmarks._attacker import PHASE, VICTIM, Victims, calls, deep, empty, letter, tell
from fedvine.core.message import Packed, dumps, loads, pack, unpack
from fedvine.federation.flare_site import Desk as Honest
from fedvine.federation.signed import Signer

DESK = "FEDVINE_SITE"   # of the environment: its kit
SECONDS = 3.0       # that it waits for an answer
MEASURED = {"n": {"n": 100}, "scores": {"auc": 0.5}}
NASTY = "\x1b[2J[red]<script>alert(1)</script>\n=HYPERLINK(\"x\")"


class Gate(FLComponent):
    """In place of a site's gate: nothing."""


class Desk(Honest):
    """Answers the server, and now and then attacks."""

    def __init__(self) -> None:
        super().__init__()
        self._told, self._lied = False, set[Any]()

    @collab.publish
    def handle(self, letter: bytes, seal: bytes) -> bytes:
        """The honest answer, sometimes after an attack; or a false one."""
        request = unpack(loads(letter))
        answer = super().handle(letter, seal)
        place, function = request.get("place"), request.get("function")
        if place is None or place[0] < 1:       # the hub's own attacks are before
            return answer
        if function == "upload" and not self._told:
            self._told = True
            act_as_the_server(letter, seal)
        lies = {"upload": LIES, "predict": SCORES}.get(str(function))
        if lies and os.environ.get(PHASE) == "site" and (*place[:2], function) not in self._lied:
            self._lied.add((*place[:2], function))
            finding, what, lie = lies.pop(0)
            tell(finding, what, "the hub", f"stage {place[0]}, round {place[1]}", True,
                 "messages")                # the hub's log has the sentence
            return lie(answer)
        return answer


def act_as_the_server(sealed: bytes, seal: bytes) -> None:
    """Ask another site what the server asks; where there is a gate also end the others (D1)."""
    kit, gate = Path(os.environ[DESK]), os.environ[PHASE] == "site"
    for end in ("key", "crt"):
        shutil.copy(kit / "startup" / f"client.{end}", kit / "startup" / f"server.{end}")
    mine = Signer(kit, "out", lambda *_: b"", lambda *_: b"")
    victims = Victims(kit.parent)
    others = {p.name: p for p in collab.clients if p.name != collab.site_name}
    other = others[VICTIM]
    try:
        session = other(timeout=SECONDS).alive(letter=b"")
    except Exception as error:
        session = bytes(32)
        tell("D1", "a site asks another one for its session", VICTIM, str(error), gate, "gate")
    letters = [("a request that the server sent to it, once more", sealed, seal)]
    for name, wanted in requests():
        letters += [(f"{name}, without a seal", wanted, b""),
                    (f"{name}, with the seal of a request of the server", wanted, seal),
                    (f"{name}, with its own seal", wanted, mine.seal(VICTIM, session, wanted))]
    for what, wanted, with_ in letters[:3] if gate else letters:
        what = f"a site asks another one: {what}"
        if gate:
            tell("D1", what, VICTIM, *said(other, wanted, with_), "gate")
        else:
            victims.attempt("D1", what, VICTIM, lambda w=wanted, s=with_: other(
                timeout=SECONDS).handle(letter=w, seal=s), sealed=False)
    if gate:
        cell = other.backend.cell
        job = cell.get_fqcn().split(".")[-1]
        for to, channel, topic, payload in ends(job):
            answer, held = sent(cell, to, channel, topic, payload)
            # The hub hears a site's report of its own end, and ends nothing.
            tell("D1", f"a site sends FLARE's command {channel}/{topic}", to, answer,
                 held or topic == "report_job_failure", "gate")


def requests() -> list[tuple[str, bytes]]:
    """What it would take to read another site's graph and to delete its memory."""
    pairs = {"src": np.repeat(np.arange(20), 20), "dst": np.tile(np.arange(20), 20),
             "t": np.full(400, 1e18)}
    plan = {"bounds": [0.0, 1e12], "val": 0, "test": 0}
    wanted: dict[str, dict[str, Any]] = {
        "facts": {"do": "facts"}, "arrivals": {"do": "arrivals"},
        "open(edgebank)": {
            "do": "open", "run": "out", "number": "", "plan": plan, "protocol": {}, "seed": 0,
            "stages": 1, "clients": ["x"], "elsewhere": None, "method": {"name": "edgebank"}},
        "observe": calls([99, 0, 1], "observe", None, 0),
        "predict with pairs of its own": calls([99, 0, 2], "predict", -1, 0, pairs),
        "restore(None), which deletes": {"do": "restore", "moment": None}}
    return [(name, letter(**value)) for name, value in wanted.items()]


def said(other: Any, wanted: bytes, seal: bytes) -> tuple[str, bool]:
    """Return what another site answered, and whether that is a refusal."""
    try:
        return "ANSWERED", "error" in unpack(loads(other(timeout=SECONDS).handle(
            letter=wanted, seal=seal)))
    except Exception as error:
        return str(error), True


def ends(job: str) -> list[tuple[str, str, str, Any]]:
    """FLARE's own commands by which processes and jobs end, as the server or a parent sends
    them."""
    found: list[tuple[str, str, str, Any]] = [
        (f"{VICTIM}.{job}", CellChannel.CLIENT_COMMAND, t, Shareable()) for t in
        ("abort", "abort_task", "bye")]
    found += [(f"{VICTIM}.{job}", CellChannel.AUX_COMMUNICATION, t, Shareable()) for t in
              ("__end_run__", "__abort_task__")]
    found += [(VICTIM, CellChannel.CLIENT_MAIN, t, Message(t, job)) for t in
              (TrainingTopic.ABORT, TrainingTopic.SHUTDOWN, TrainingTopic.DELETE_RUN,
               TrainingTopic.RESTART)]
    found += [(to, "_net_manager", "stop_cell", None) for to in (VICTIM, f"{VICTIM}.{job}")]
    found += [(f"server.{job}", CellChannel.SERVER_COMMAND, t, Shareable()) for t in
              ("abort", "bye", "handle_dead_job")]
    failure = {"job_id": job, "code": ProcessExitCode.EXCEPTION, "reason": "no"}
    found += [("server", CellChannel.SERVER_PARENT_LISTENER, "update_run_status",
               {"execution_error": True}),
              ("server", CellChannel.SERVER_MAIN, "report_job_failure", failure),
              (f"server.{job}", "_net_manager", "stop_cell", None),
              ("server", "_net_manager", "stop_cell", None)]
    return found


def sent(cell: Any, to: str, channel: str, topic: str, payload: Any) -> tuple[str, bool]:
    """Return what became of a command, and whether it was refused."""
    try:
        reply = cell.send_request(channel=channel, target=to, topic=topic, timeout=SECONDS,
                                  request=new_cell_message({"job_id": to.split(".")[-1]}, payload))
    except Exception as error:
        return f"{type(error).__name__}: {error}", True
    code = reply.get_header(MessageHeaderKey.RETURN_CODE)
    return (f"{code} {reply.get_header(MessageHeaderKey.ERROR) or ''}",
            code not in (None, ReturnCode.OK))


# -- what it answers to the server ----------------------------------------------------------------
def replied(change: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
    """Return a lie that changes the message in an answer to a call."""
    def lie(answer: bytes) -> bytes:
        skeleton, buffers, seconds = unpack(loads(answer))["reply"]
        made = pack(change(unpack(Packed(skeleton, buffers))))
        return dumps(pack({"reply": [made.skeleton, list(made.buffers), seconds]}))
    return lie


def error(words: Any) -> Callable[[bytes], bytes]:
    """Return a lie that is an error with these words."""
    return lambda answer: dumps(pack({"error": words}))


Lie = tuple[str, str, Callable[[bytes], bytes]]
LIES: list[Lie] = [
    ("D7", "a site answers with an error", error(["failed"])),
    ("D7", "a site answers with half of its bytes", lambda a: a[:len(a) // 2]),
    ("D7", "a site answers with numbers of another type, not finite",
     replied(lambda x: np.full(len(x), np.nan))),
    ("own 1", "a site answers 64 MB in place of a few kB",
     replied(lambda x: np.zeros(8_000_000, np.uint64))),
    ("own 2", "a site sends two million empty buffers in 2 MB", lambda a: empty()),
    ("own 2", "a site sends lists in lists, a million deep", lambda a: deep()),
    ("own 3", "a site's error is terminal codes, tags and a formula", error([NASTY, NASTY])),
    ("D7", "a site's answer to a call is no answer to a call",
     lambda a: dumps(pack({"reply": {"what": 3}})))]
SCORES: list[Lie] = [
    ("own 4", "a site's score is 7", replied(lambda x: {**MEASURED, "scores": {"auc": 7.0}})),
    ("own 4", "a site counts -5 queries", replied(lambda x: {**MEASURED, "n": {"n": -5}}))]
