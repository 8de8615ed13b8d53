"""The clients as a method uses them: ``call`` a function on them, get replies in name order.

This file has the parts that all engines share: numbers of calls, choice of clients, missing
replies, byte counts, scoring. An engine only carries envelopes (:meth:`Clients.exchange`).
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import math
import textwrap
import time
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedvine.core.errors import Failed, MethodError, Refused
from fedvine.core.expect import Maybe, Number, Scores
from fedvine.core.message import Packed, Pool, accept, pack, unpack
from fedvine.core.replies import Query, Replies, RoundAborted, code
from fedvine.core.rng import rng
from fedvine.core.state import World
from fedvine.core.worker import Envelope

if TYPE_CHECKING:
    import numpy as np

    from fedvine.core.method import At, Method
    from fedvine.core.protocol import ServerScorer, TaskLike

REASON = 300    # characters of a reason that are kept
OUTLIER = 5.0   # times the median norm of an update


class Clients:
    """Base of the engines.

    Args:
        method: has the functions that are called.
        names: of the clients.
        world: facts that all sides know.
        protocol: of scoring.
        server_scorer: scores at the server, where it holds the graph.
        quorum: share of replies, in (0, 1], that a call needs by default.
    """

    def __init__(self, method: Method, names: Iterable[str], world: World, protocol: TaskLike,
                 server_scorer: ServerScorer | None = None, *, quorum: float = 1.0) -> None:
        self.method, self.protocol = method, protocol
        self.everyone = tuple(sorted(names))        # also those whose first stage is still to come
        self.whole = world                          # of the whole run; ``world``: at this stage
        self.world, self.names = world, self.everyone
        self.scored_before: int | None = None       # see score()
        self.quorum, self.pool = quorum, Pool()
        self.log: list[dict[str, Any]] = []         # one line a call; the run folder empties it
        # By client: bytes down and up, seconds, whether it answered the last call.
        self.traffic: dict[str, dict[str, Any]] = {}
        self.barred: set[str] = set()   # who sent a false part of a secure sum: in no later one
        self.server_scorer = server_scorer          # only where the server holds the graph
        self._place, self._calls, self._draws = (-1, -1), 0, 0
        self._query: Query | None = None            # what calls of now are to answer
        self.unscored = False       # learn, and score nothing
        self._given: dict[str, Any] = {}            # queries by client, where they are given
        self._undelivered: dict[str, list[Envelope]] = {}    # arrivals that a client did not get
        # By function that is called once: the first round whose answer did not come, by client.
        self._lost: dict[str, dict[str, list[int]]] = {}

    # -- what an engine adds -------------------------------------------------------------------
    def exchange(self, outgoing: Iterable[tuple[str, list[Envelope]]]) -> Iterator[
            tuple[str, Packed | Refused | None, float]]:
        """Deliver each client's envelopes; yield (client, reply to the last one, seconds) in order.

        Messages are packed as ``outgoing`` is iterated: an engine that takes one client at a time
        has one client's messages in memory. The reply is None if none came, and :class:`Refused` if
        it could not be read. A reply's memory belongs to the receiver. A client's own error is
        raised as :class:`ClientError`.
        """
        raise NotImplementedError

    def save(self, checkpoint: str) -> dict[str, Packed]:
        """Return the memory of the clients in this process, by name.

        It is empty where sites save themselves. ``checkpoint`` names the save; sites keep their
        last ones under that name.
        """
        raise NotImplementedError

    def restore(self, saved: Mapping[str, Packed], checkpoint: str | None) -> None:
        """Restore all clients to a save; ``checkpoint`` None: to the start of the run."""
        raise NotImplementedError

    def checkpoints(self) -> set[str] | None:
        """Return the saves that every client can restore; None where :meth:`save` returns all."""
        return None

    def remember(self, folder: Path) -> None:
        """Let the clients in this process keep their releases with noise in ``folder``.

        A site has its own file. Nothing is written before the first release.
        """

    # -- what a method uses --------------------------------------------------------------------
    def call(self, function: Callable[..., Any], *same: Any,
             per_client: Mapping[str, Any] | None = None, only: Iterable[str] | None = None,
             quorum: float | None = None, expect: Any = None,
             fold: Callable[[str, Any], None] | None = None, later: bool = True,
             once: bool | Literal["late"] = False,
             step: int = 0) -> Replies:
        """Call a client function on clients and return their replies, in name order.

        Every client gets the arguments ``same``, which are packed once. A reply that is not as
        expected, or an error in place of one, is refused: it counts as missing, and the reason is
        kept in the run's log of messages.

        Args:
            function: a function of the method with ``@on_client``.
            *same: its arguments, the same for all clients.
            per_client: one more argument for each client, by client name; clients that are not
                named are not called.
            only: the names to call; None: all.
            quorum: share of the called clients that must answer; None: the engine's, which is 1 by
                default. With fewer replies :class:`RoundAborted` is raised and the round starts
                over from the last save.
            expect: a statement of every reply (:mod:`fedvine.core.expect`), or a function that
                returns it for a client's name; None: the reply must be None. For replies of
                ``predict`` to the library's queries the protocol has the statement.
            fold: called with (name, reply) one at a time, in order; the replies are not kept.
            later: whether a client that does not get a call of an arrival gets it when it is back.
            once: whether the function's replies are made once, so that one which does not come is
                sent with the next (:mod:`fedvine.core.state`); late: see :meth:`late`.
            step: exchange of a secure sum, from 1; all of them are one call.

        Returns:
            The replies that came, by client name; none of them where ``fold`` takes them.

        Raises:
            RoundAborted: if fewer clients than the quorum answered.
            MethodError: for a function that is not one of the method's client functions, an unknown
                name, or a call without ``expect`` of a function that has a reply.
        """
        self._check(function)
        if expect is None and (self._query is None or function.__name__ != "predict"):
            _check_stated(function.__func__, type(self.method).__name__)  # type: ignore[attr-defined]
        chosen = self._chosen(only, per_client)
        shared, began = pack(list(same)), time.perf_counter()
        if fold is not None and len(chosen) > 1:
            shared = self.pool.take(shared)  # the server may change its model while folding
        again = [] if per_client is None else unpack(shared)
        lost = ({} if step else self._lost.setdefault(function.__name__, {})
                ) if once and (step or self.quorum < 1) else None
        self._calls += step < 2
        place = (*self._place, self._calls, step)
        sent: dict[str, list[Envelope]] = {}

        def outgoing() -> Iterator[tuple[str, list[Envelope]]]:
            for name in chosen:
                body = shared if per_client is None else pack([*again, per_client[name]])
                if self._query == Query("given"):
                    body = pack([*same, *([] if per_client is None else [per_client[name]]),
                                 self._given[name]])
                envelope = Envelope(place, function.__name__, self._query, body,
                                    None if lost is None else
                                    [*lost.get(name, []), *([1] if once == "late" else [])])
                sent[name] = [*self._undelivered.get(name, []), envelope]
                yield name, sent[name]

        kept: dict[str, Packed] = {}
        missing, down, up, slowest, answered = [], 0, 0, 0.0, 0
        refused: dict[str, str] = {}
        undone: set[str] = set()        # clients that did not carry out the call
        for name, (_, reply, seconds) in zip(chosen, self.exchange(outgoing()), strict=True):
            envelopes, slowest, message = sent.pop(name), max(slowest, seconds), None
            size = envelopes[-1].body.nbytes
            down += size
            try:
                if isinstance(reply, Refused):
                    raise reply
                if reply is not None:
                    message = accept(reply, self._expected(function, expect, name))
            except Refused as reason:
                refused[name], reply = str(reason)[:REASON], None
                undone |= {name} if isinstance(reason, Failed) else set()
            self._note(name, down=size, up=reply.nbytes if reply else 0, seconds=seconds,
                       answers=reply is not None)
            if lost is not None:
                lost.pop(name, None) if reply is not None else lost.setdefault(
                    name, list(self._place))
            if reply is None:
                missing.append(name)
                if later and place[1] == 0 and (name not in refused or name in undone):
                    # An arrival: kept until the client is back.
                    held = [e._replace(body=self.pool.take(e.body)) for e in envelopes[-1:]]
                    self._undelivered[name] = [*self._undelivered.get(name, []), *held]
                continue
            answered += 1
            up += reply.nbytes
            self._undelivered.pop(name, None)
            if fold is None:
                kept[name] = reply
            else:
                fold(name, message)
        self.log.append({"t": place[0], "r": place[1], "call": place[2],
                         "function": function.__name__, "clients": len(chosen),
                         "missing": missing, "refused": refused, "down": down, "up": up,
                         "seconds": time.perf_counter() - began, "slowest": slowest})
        needed = math.ceil((self.quorum if quorum is None else quorum) * len(chosen) - 1e-9)
        if answered < needed:
            why = "; ".join(f"{n}'s answer to {function.__name__} was refused, as {refused[n]}"
                            if n in refused else f"{n} did not answer the call {function.__name__}"
                            for n in missing)
            raise RoundAborted(f"{why} (stage {place[0]}, round {place[1]})")
        return Replies(kept, missing)

    def mean(self, function: Callable[..., Any], *same: Any, **options: Any) -> Any:
        """Compute the mean of the models that ``function`` returns at clients.

        See :meth:`fedvine.aggregate.means.Means.mean` for what is given and returned.
        """
        return self._aggregate("mean")(self, function, *same, **options)

    def sum(self, function: Callable[..., Any], *same: Any, **options: Any
            ) -> tuple[np.ndarray, tuple[str, ...]]:
        """Sum the vectors that ``function`` returns at clients, in fixed point.

        See :meth:`fedvine.aggregate.aggregate.Sum.sum` for what is given and returned.
        """
        return self._aggregate("sum")(self, function, *same, **options)

    def late(self, function: Callable[..., Any], expect: Any) -> list[Any]:
        """Return what clients that are back had sent to calls of ``function`` with ``once``.

        It is what did not come; the function is not carried out. A reply that does not come now
        either is left for the next call.
        """
        names = set(self._lost.get(function.__name__, {})) & set(self.names)
        return [] if not names else list(self.call(
            function, only=names, quorum=0.0, expect=Maybe(expect), once="late"))

    def choose(self, fraction: float, at_least: int = 1) -> tuple[str, ...]:
        """Draw the names of the clients that take part, from the run's seed and this place.

        ``fraction`` in [0, 1] is the share of the clients, ``at_least`` the least number.
        """
        self._draws += 1
        count = min(len(self.names), max(at_least, round(fraction * len(self.names))))
        draw = rng(self.world.seed, "server", *self._place, self._draws, "choose")
        return tuple(sorted(draw.choice(self.names, count, replace=False).tolist()))

    def measured(self, norms: Mapping[str, float]) -> None:
        """Note the norms of the updates of a round, by client, for the status.

        Where three or more have sent one, an ``outlier`` is above five times the median.
        """
        usual = sorted(norms.values())[len(norms) // 2] if len(norms) > 2 else math.inf
        for name, norm in norms.items():
            self._note(name)
            self.traffic[name] |= {"norm": norm, "outlier": norm > OUTLIER * usual}

    @property
    def place(self) -> tuple[int, int, int]:
        """Return stage, round and number of the last call."""
        return (*self._place, self._calls)

    # -- what the loop uses --------------------------------------------------------------------
    def begin(self, at: At) -> None:
        """Begin the round ``at``; calls are numbered from here.

        ``world`` and ``names`` are then those of the stage: a client is there from the first stage
        in which it has data.
        """
        self._place, self._calls, self._draws = (at.t, at.r), 0, 0
        self.world = self.whole.at(at.t)
        self.names = tuple(n for n in self.everyone if n in set(self.world.clients))

    @contextlib.contextmanager
    def querying(self, query: Query, given: Mapping[str, Any] | None = None) -> Iterator[None]:
        """Let client functions take these queries in this block.

        Args:
            query: their kind.
            given: the clients to call, with the queries of each where ``query.kind`` is "given";
                None, for queries of a stage: all clients.
        """
        self._query, self._given = query, dict(given or {})
        try:
            yield
        finally:
            self._query, self._given = None, {}

    @contextlib.contextmanager
    def unasked(self) -> Iterator[None]:
        """Call functions without queries in this block, also clients that are not asked."""
        kept = self._query, self._given
        self._query, self._given = None, {}
        try:
            yield
        finally:
            self._query, self._given = kept

    def score(self, method: Method, server: Any, at: At) -> dict[int, Any]:
        """Return the scores of the stages that the protocol scores; {} where ``unscored`` is set.

        They are {stage: {client: {"n": counts, "scores": numbers}}}. Where ``scored_before`` is
        set, ``at.t`` was scored when the run had that many stages: only later ones are scored.
        """
        found, done = {}, (() if self.scored_before is None else
                           self.protocol.scored(at.t, self.scored_before))
        for stage in () if self.unscored else self.protocol.scored(at.t, self.whole.stages):
            if stage in done:
                continue
            with self.querying(Query("stage", stage)):
                if self.server_scorer is not None:
                    self.server_scorer.learned = at.t
                    server.queries = self.server_scorer.queries(stage)
                    found[stage] = self.server_scorer.by_client(
                        stage, method.answer(server, self, at))
                    del server.queries
                else:
                    found[stage] = dict(method.answer(server, self, at).items())
        return found

    def dump(self) -> dict[str, Any]:
        """Return the base's own state for a save."""
        return {"missed": {n: [[list(e.place), e.function, code(e.query), _plain(e.body), e.once]
                               for e in held] for n, held in self._undelivered.items()},
                "lost": {f: dict(places) for f, places in self._lost.items()}}

    def load(self, state: Mapping[str, Any] | None) -> None:
        """Restore a state of :meth:`dump`; None for the start of a run."""
        state = state or {"missed": {}, "lost": {}}
        self._lost = {f: dict(places) for f, places in state["lost"].items()}
        self._undelivered = {n: [Envelope(tuple(p), f, Query.of_code(q), _packed(b), o)
                            for p, f, q, b, o in held] for n, held in state["missed"].items()}

    def _note(self, name: str, answers: bool | None = None, **more: float) -> None:
        found = self.traffic.setdefault(name, {"down": 0, "up": 0, "seconds": 0.0, "answers": True})
        for key, value in more.items():
            found[key] += value
        found["answers"] = found["answers"] if answers is None else answers

    def _check(self, function: Callable[..., Any]) -> None:
        owner = getattr(function, "__self__", None)
        if (owner != self.method and owner is not self.method.combining) or not getattr(
                function, "__on_client__", False):
            raise MethodError(f"{getattr(function, '__name__', function)} cannot be called on "
                              f"clients; mark it with @on_client in {type(self.method).__name__}.")

    def _aggregate(self, what: str) -> Callable[..., Any]:
        found = getattr(self.method.combining, what, None)
        if found is None:
            raise MethodError(f"{type(self.method).__name__} takes a {what} over clients; give it "
                              "a field aggregate that has one, as fedvine.aggregate offers.")
        return found

    def _expected(self, function: Callable[..., Any], expect: Any, name: str) -> Any:
        """Return the statement of this client's reply; of measured scores in place of raw ones."""
        if self._query is not None and function.__name__ == "predict":
            return (self.protocol.measured if self._query.kind == "stage" else
                    Scores() if self._query.kind == "given" else Number(0, 2 ** 53, whole=True))
        return expect(name) if callable(expect) else expect

    def _chosen(self, only: Iterable[str] | None, per_client: Mapping[str, Any] | None
                ) -> list[str]:
        names = set(self.names if only is None else only)
        if per_client is not None:
            names &= set(per_client) if only is None else names
        if self._query is not None and self._query.kind != "stage":
            names &= set(self._given)
        unknown = (names | set(per_client or ())) - set(self.names)
        if unknown or (per_client is not None and not names <= set(per_client)):
            lacking = sorted(unknown or names - set(per_client or ()))[0]
            raise MethodError(f'a call names the client "{lacking}", which is not in this run '
                              "or has no message.")
        return sorted(names)


#: What a reply of such a type may be stated as, by the annotation of the function.
_STATED = {"bool": "Flag()", "int": "Number(whole=True)", "float": "Number()",
           "ndarray": 'Array("float32", (None,))', "Tensor": 'Tensor("float32", (None,))'}


@functools.cache
def _check_stated(function: Callable[..., Any], method: str) -> None:
    """Raise :class:`MethodError` with the line to add where a client function always replies.

    It is read from the function's source: a reply is a client's, and ends no run.
    """
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, SyntaxError, TypeError, tokenize.TokenError):     # it is in no file of Python
        return
    own = _own_nodes(body[0]) if body else ()
    returned = [node.value for node in own if isinstance(node, ast.Return)]
    if returned and not any(_may_be_none(value, function.__name__) for value in returned):
        kind = function.__annotations__.get("return")
        kind = kind.rpartition(".")[2] if isinstance(kind, str) else getattr(kind, "__name__", "")
        stated = _STATED.get(kind, "...")
        raise MethodError(
            f"{method}.{function.__name__} returns a value that the call does not state; add "
            f"expect={stated} to clients.call(self.{function.__name__}, ...), with what "
            "fedvine.core.expect offers.")


def _may_be_none(value: ast.expr | None, name: str) -> bool:
    """Return whether a returned value is None, or that of a base class's function ``name``."""
    return value is None or (isinstance(value, ast.Constant) and value.value is None) or (
        isinstance(value, ast.Call) and getattr(value.func, "attr", "") == name)


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, without those of functions inside of it."""
    for below in ast.iter_child_nodes(node):
        if not isinstance(below, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield below
            yield from _own_nodes(below)


def _plain(packed: Packed) -> list[Any]:
    return [packed.skeleton, list(packed.buffers)]


def _packed(plain: list[Any]) -> Packed:
    return Packed(plain[0], [b.copy() for b in plain[1]])
