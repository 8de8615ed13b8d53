"""The client's side of every engine: one client, and the calls on it."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from fedvine.core.errors import MethodError
from fedvine.core.ledger import Ledger
from fedvine.core.message import Packed, pack, unpack
from fedvine.core.method import Method
from fedvine.core.refresh import refreshed
from fedvine.core.replies import Query
from fedvine.core.state import Client, World, unsent

if TYPE_CHECKING:
    from fedvine.core.protocol import Combining, OwnQueries, PlanLike, Scorer, TaskLike


class Envelope(NamedTuple):
    """One call: its place (t, r, call, step), the function's name, kind of queries, and message.

    ``query`` is None in training. ``step`` counts the exchanges of a secure sum, which is one call;
    it is 0 elsewhere. ``once`` is that of ``client.once``, and with a third number the function is
    not carried out: what the server lacks is sent, and nothing new.
    """

    place: tuple[int, int, int, int]
    function: str
    query: Query | None
    body: Packed
    once: list[int] | None = None


@functools.cache
def _asks_for_queries(function: Any) -> bool:
    return "queries" in inspect.signature(function).parameters


class ClientWorker:
    """One client of a run: its part (None where the server holds the graph), memory and scorer.

    ``keep_last``: keep the last reply, so that a call delivered twice is answered and not repeated.
    ``secret`` and ``identity`` are the client's own (:class:`fedvine.core.state.Client`);
    ``ledger`` is of its releases with noise, ``answered`` of its sums, None: one in memory.
    """

    def __init__(self, method: Method, name: str, part: Any, plan: PlanLike, protocol: TaskLike,
                 world: World, *, keep_last: bool = False, secret: bytes | None = None,
                 identity: Any = None, ledger: Ledger | None = None, answered: Any = None) -> None:
        self.method, self.name, self.part, self.plan = method, name, part, plan
        self.protocol = protocol
        self.world, self.keep_last = world, keep_last
        self.secret, self.identity, self.ledger = secret, identity, ledger or Ledger()
        self.answered = answered
        said = [] if not method.hides else [
            method.name, method.model_dump(mode="json", exclude={"device"}), plan.facts(),
            protocol.model_dump(mode="json"), world.seed, list(world.clients)]
        self.terms = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
        self.forecasts: OwnQueries | None = None    # while a site makes its users' forecasts
        self.scorer: Scorer | None = (
            None if part is None else protocol.scorer(part, plan, name, world.seed))
        self.renew()

    def renew(self, t: int = -1) -> None:
        """Make a fresh client, as at the start of a run, or as of stage ``t`` to be restored."""
        self.reached = max(t, self.world.since.get(self.name, 0))   # stage of the world
        self.client = self._fresh(self.reached)
        self.marks: list[dict[str, Any]] = []
        if self.scorer is not None and getattr(self.protocol, "curves", False):
            self.client.marker = self._mark
        self._last: tuple[tuple[int, ...], Packed] | None = None
        self.seconds = 0.0

    def handle(self, envelope: Envelope) -> Packed:
        """Carry out a call and return its reply; a late or repeated call gets the last reply.

        Raises the method's own errors.
        """
        if self._last and envelope.place <= self._last[0]:
            return self._last[1]  # delivered twice, or overtaken by a later call
        began = time.perf_counter()
        reply = pack(self._run(envelope))
        self.seconds = time.perf_counter() - began
        if self.keep_last:
            self._last = (envelope.place, Packed(reply.skeleton, [b.copy() for b in reply.buffers]))
        return reply

    def _run(self, envelope: Envelope) -> Any:
        client, t = self.client, envelope.place[0]
        if client.place[0] != t:
            self._reach(t)
        if self.part is not None and client.place[0] != t:
            client.stage, client.past = self.plan.stage(self.part, t), self.plan.past(self.part, t)
            self.part.release()  # pages read for earlier stages, and to find this one
        client.place, client.asked = envelope.place[:3], envelope.query
        client.once = envelope.function, envelope.once
        if (found := self.method.client_function(envelope.function)) is None:
            raise MethodError(f"{envelope.function} is not a client function of "
                              f"{self.method.name}; the call was refused.")
        owner, function = found
        if envelope.function in self.method.closed():
            raise MethodError(f"{envelope.function} of {self.method.name} is not answered with "
                              "these constants; the call was refused.")
        message = unpack(envelope.body)
        if combined := getattr(function, "__combined__", ""):
            self._aggregate().opened(client, function, message)
        queries, query, part = None, envelope.query, self.part
        step: int | None = None         # after so many new events the answer is refreshed
        if query is not None and self.scorer is not None:
            if query.kind == "given":
                pairs = message.pop()
                part, queries = self._with_guests(pairs), self.scorer.given(pairs)
                step = 1 if pairs.get("refresh") else None
            else:
                self.scorer.learned = t
                queries = (self.scorer.queries(query.number) if query.kind == "stage" else
                           self.scorer.given(self._own().pairs(query.number)))
                step = self.protocol.step if query.kind == "stage" else None
        client.ahead = None if step is None else self.scorer.ahead(t, queries)  # type: ignore[union-attr]
        named: dict[str, Any] = {}
        if _asks_for_queries(function):
            if queries is None:
                raise MethodError(f"{envelope.function} of {self.method.name} takes queries, which "
                                  "exist only while the library scores; call it from answer().")
            named["queries"] = queries
        if envelope.function != "predict" or query is None:
            reply = (unsent(client, None) if len(envelope.once or ()) > 2 else
                     function(owner, client, *message, **named))
            return self._aggregate().leaving(client, combined, reply) if combined else reply
        reply = (function(self.method, client, *message, **named)
                 if step is None or not len(client.ahead) else
                 refreshed(self.method, client, function, message, queries, part, step))
        if query.kind == "stage":
            assert self.scorer is not None
            found = self.scorer.measure(query.number, reply)  # raw scores stay at the client
            if self.marks and query.number == t:
                found["curve"], self.marks = self.marks, []
            return found
        if self.scorer is not None:
            reply = self.scorer.answered(reply)
            if query.kind == "own":
                return self._own().keep(query.number, reply)
        return reply

    def _aggregate(self) -> Combining:
        if self.method.combining is None:
            raise MethodError(f"{self.method.name} has combined replies; give it a field "
                              "aggregate, as fedvine.aggregate offers.")
        return self.method.combining

    def _fresh(self, t: int) -> Client:
        """Return a client as at the start of a run, in the world of stage ``t``."""
        client = Client(self.name, self.world.at(t), self.secret, self.identity, self.ledger,
                        self.answered)
        client.terms = self.terms
        self.method.setup(client)
        return client

    def _reach(self, t: int) -> None:
        """Let the client know the world of stage ``t``; its memory grows with it."""
        world, known = self.world.at(t), self.client.world.facts
        if world.facts != known:
            self.method.grow(self.client, self._fresh(t))
        self.client.world, self.reached = world, t

    def _with_guests(self, pairs: dict[str, Any]) -> Any:
        """Show the method a person's ``guests``, users without an edge here; return the part."""
        client, t = self.client, self.client.place[0]
        client.guests = len(pairs.get("guests", ()))
        part = self.part.with_guests(pairs["guests"], pairs.get("said")) if client.guests else (
            self.part)
        client.stage, client.past = self.plan.stage(part, t), self.plan.past(part, t)
        return part

    def _own(self) -> OwnQueries:
        assert self.forecasts is not None
        return self.forecasts

    def _mark(self, moment: str) -> None:
        """Measure the client's model on all queries that the protocol scores at this stage."""
        assert self.scorer is not None
        t, r, _ = self.client.place
        for stage in self.protocol.scored(t, self.world.stages):
            answer = self.method.now(self.client, self.scorer.queries(stage))
            self.marks.append({"r": r, "moment": moment, "stage": stage,
                               **self.scorer.measure(stage, answer)["scores"]})

    def save(self) -> Packed:
        """Return the client's memory, packed; views of the live tensors."""
        return pack({"memory": self.client.dump(), "place": self.client.place,
                     **({"reached": self.reached} if self.world.living else {}),
                     **({"marks": self.marks} if self.marks else {})})

    def restore(self, saved: Packed) -> None:
        """Restore the client that was saved."""
        state = unpack(saved)
        self.renew(int(state.get("reached", -1)))
        self.client.load(state["memory"])
        self.marks = list(state.get("marks", []))
        self.client.place = (-1, *tuple(state["place"])[1:])  # -1 attaches the stage again

    def before(self) -> tuple[Packed, dict[Any, Any]]:
        """Return what :meth:`undo` takes back a call with: a copy of the memory, and the cache."""
        saved = self.save()
        return (Packed(saved.skeleton, [b.copy() for b in saved.buffers]), dict(self.client.cache))

    def undo(self, before: tuple[Packed, dict[Any, Any]]) -> None:
        """Restore the client as it was before a call that failed; a secure sum goes on."""
        sums = self.client.sums
        self.restore(before[0])
        self.client.sums, self.client.cache = sums, before[1]
