"""Check that a bad reply of a client counts as missing, in every function and phase.

Every client function of a method is answered once with each of :data:`KINDS` in each phase
(arrival, rounds, scoring), by two of three clients, while a quorum of one is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from fedvine.core.clients import Clients
from fedvine.core.errors import Failed, FedvineError, Refused
from fedvine.core.message import Packed, pack, unpack
from fedvine.core.method import At, Method
from fedvine.core.refresh import check_refresh
from fedvine.core.replies import Query, Replies
from fedvine.core.worker import Envelope
from fedvine.engines.faults import MockClients
from fedvine.engines.local import LocalClients

Todo = dict[tuple[str, str], list[str]]     # kinds still to try, by phase and function


def _arrays(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return the tree with every array and tensor changed."""
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return change(value)
    if isinstance(value, dict):
        return {k: _arrays(v, change) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_arrays(v, change) for v in value)
    return value


def _floats(number: float) -> Callable[[Any], Any]:
    """Return a change that puts ``number`` where a tree has floats, at the start of each array."""
    def change(array: Any) -> Any:
        floats = (array.is_floating_point() if isinstance(array, torch.Tensor)
                  else array.dtype.kind == "f")
        if not floats or not len(array.reshape(-1)):
            return array
        array = array.clone() if isinstance(array, torch.Tensor) else array.copy()
        array.reshape(-1)[0] = number
        return array

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: walk(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(walk(v) for v in value)
        return number if isinstance(value, float) else _arrays(value, change)
    return walk


def _outermost(array: Any) -> Any:
    """Return an array of integers with the largest number of its type in the first place."""
    kind = str(array.dtype).removeprefix("torch.")
    if kind not in ("int32", "int64", "uint64") or not len(array.reshape(-1)):
        return array
    array = array.clone() if isinstance(array, torch.Tensor) else array.copy()
    array.reshape(-1)[0] = np.iinfo(kind).max
    return array


KINDS: dict[str, Callable[[Any], Any]] = {
    "NaN": _floats(float("nan")), "1e30": _floats(1e30), "1e12": _floats(1e12),
    "another shape": lambda reply: _arrays(reply, lambda a: a[None]),
    "text": lambda reply: "model", "none": lambda reply: None, "no parts": lambda reply: {},
    "other parts": lambda reply: {"<script>": 1}, "a list": lambda reply: [reply, reply],
    "a number": lambda reply: -1, "an error": lambda reply: Failed("it failed: ValueError: no row"),
    "cut off": lambda reply: Packed(pack(reply).skeleton[:-1], pack(reply).buffers),
    "large integers": lambda reply: _arrays(reply, _outermost)}
# A key or count may be as large (:mod:`fedvine.core.expect`), and some replies may be empty.
MAY_PASS = {"1e12", "large integers", "none", "no parts"}


def spoil(kind: str, reply: Packed) -> Packed | Refused | None:
    """Return the reply made bad; None where this kind does not change it."""
    bad = KINDS[kind](unpack(reply))
    if isinstance(bad, (Refused, Packed)):
        return bad
    bad = pack(bad)
    same = bad.skeleton == reply.skeleton and len(bad.buffers) == len(reply.buffers) and all(
        np.array_equal(a, b) for a, b in zip(bad.buffers, reply.buffers, strict=True))
    return None if same else bad


class Spoiler:
    """Choice of the replies that are made bad, one a round, until all of ``wanted`` were tried.

    ``wanted`` [client] are the kinds by phase and function that are left; ``passed`` collects those
    that the engine did not refuse.
    """

    def __init__(self, wanted: dict[str, Todo]) -> None:
        self.wanted, self.passed = wanted, list[str]()
        self.round: tuple[int, int] = (-1, -1)      # current stage and round
        self._last: tuple[int, int] = (-1, -1)      # those of the last bad reply in this attempt
        self._failed: tuple[int, int] = (-1, -1)    # and of the last one in an attempt before
        self._now: dict[str, str] = {}

    def begin(self, place: tuple[int, int]) -> None:
        """Begin a round; one that is not after the last is the start of another attempt."""
        if place <= self.round:
            self._failed, self._last = self._last, (-1, -1)
        self.round = place

    def left(self) -> int:
        """Return how many kinds are still to be tried."""
        return sum(len(kinds) for todo in self.wanted.values() for kinds in todo.values())

    def spoil(self, name: str, place: tuple[int, ...], query: Query | None, function: str,
              reply: Packed) -> Packed | Refused | None:
        """Return a bad reply in place of this one; None if this one stays as it is."""
        here, wanted = phase(place, query), self.wanted.get(name, {})
        todo = wanted.get((here, function))
        # A reply to a call that a client gets after the others is dropped; and a run that has
        # started over gets past the place where it failed first.
        if (not todo or self.round != place[:2] or self._last == place[:2]
                or self.round <= self._failed):
            return None
        # Functions of a phase take turns: the one with most kinds left goes first.
        if len(todo) < max(len(kinds) for (p, _), kinds in wanted.items() if p == here) - 1:
            return None
        while todo:
            kind = todo.pop(0)
            bad = spoil(kind, reply)
            if bad is not None:
                self._last, self._now[name] = (place[0], place[1]), kind
                return bad
        return None

    def judge(self, log: list[dict[str, Any]]) -> None:
        """Compare the replies spoilt in the last call with those that the log calls refused."""
        if self._now:
            line, now = log[-1], self._now
            self._now = {}
            self.passed += [f"{line['function']}: {kind}" for name, kind in now.items()
                            if kind not in MAY_PASS and not line["refused"].get(name)]


class JudgedMixin(Clients):
    """Engine whose replies a ``spoiler`` makes bad."""

    spoiler: Spoiler

    def begin(self, at: At) -> None:
        """Begin a round, also of the spoiler."""
        super().begin(at)
        self.spoiler.begin((at.t, at.r))

    def call(self, function: Any, *same: Any, **options: Any) -> Replies:
        """Call as the engine does; then judge the replies that were spoilt."""
        try:
            return super().call(function, *same, **options)
        finally:
            self.spoiler.judge(self.log)


class Spoilt(JudgedMixin, LocalClients):
    """Clients in this process whose replies a spoiler makes bad."""

    def __init__(self, *args: Any, spoiler: Spoiler, **options: Any) -> None:
        super().__init__(*args, **options)
        self.spoiler = spoiler

    def _deliver(self, name: str, envelope: Envelope) -> Any:
        worker, arrives = self.workers[name], phase(envelope.place, envelope.query) == "arrival"
        before = worker.before() if arrives else None
        reply = super()._deliver(name, envelope)
        bad = reply and self.spoiler.spoil(name, envelope.place, envelope.query, envelope.function,
                                           reply)
        if before is not None and isinstance(bad, Failed):
            worker.undo(before)         # as a site does: the call comes again
        return bad or reply


def phase(place: tuple[int, ...], query: Query | None) -> str:
    """Return the phase that a call belongs to."""
    return "scoring" if query is not None else "arrival" if place[1] == 0 else "rounds"


class Recording(LocalClients):
    """Clients in this process; ``calls`` collects phase and function of each call."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.calls: set[tuple[str, str]] = set()

    def _deliver(self, name: str, envelope: Envelope) -> Packed | None:
        self.calls.add((phase(envelope.place, envelope.query), envelope.function))
        return super()._deliver(name, envelope)


def check(method: Method, start: Callable[..., Any], outcome: Callable[[Any], Any],
          undisturbed: Any, calls: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a sentence for every rule that the method breaks.

    ``start(method, engine=..., **options)`` prepares a run of ada, bob and cyd; ``outcome`` carries
    a run out and returns all that it leaves, ``undisturbed`` is that of a good run; ``calls`` are
    phase and function of its calls, as :class:`Recording` has them.
    """
    calls = sorted(calls)
    spoiler = every_kind(calls)
    left = -1
    while (rest := spoiler.left()) not in (0, left):        # until a run tries no new kind
        left = rest
        spoiler.round = spoiler._last = spoiler._failed = (-1, -1)
        made = start(method, engine=Spoilt, quorum=0.3, spoiler=spoiler)
        try:
            made.finish()
        except Exception as error:
            yield f"a run ended after bad replies ({type(error).__name__}: {error})"
            return
    yield from spoiler.passed
    if rest:
        yield f"{rest} bad replies could not be tried"
    # One a phase: a run ends after three attempts from the same save.
    last = {phase: function for phase, function in calls if phase != "arrival"}
    first = Spoiler({"bob": {call: ["an error"] for call in last.items()}})
    if outcome(start(method, engine=Spoilt, spoiler=first)) != undisturbed:
        yield "a bad reply that the quorum cannot do without leaves a trace after starting over"


def every_kind(calls: list[tuple[str, str]]) -> Spoiler:
    """Return a spoiler that tries all kinds on each (phase, function), by bob and cyd in turn."""
    return Spoiler({name: {c: list(KINDS)[i::2] for c in calls}
                    for i, name in enumerate(("bob", "cyd"))})


# -- check that a refreshed answer knows the events before it, and no others -----------------------
# See :mod:`fedvine.core.refresh`.
STEPS = ("event", 7, 200)      # "event" is a step of 1
NOTHING = {"n": {"n": 0}, "scores": {}}


def answers(made: Any, t: int, queries: Mapping[str, Any], parts: Mapping[str, Any]
            ) -> dict[str, np.ndarray]:
    """Return the raw answers float64 [Q] by client to queries about stage ``t + 1``.

    ``made`` is a run in this process that has learned stage ``t``; ``parts`` are the data that
    clients are taken to have, with the ids of their own data. Clients without data are left out.
    """
    found: dict[str, np.ndarray] = {}
    workers = made.clients.workers
    kept = {name: worker.part for name, worker in workers.items()}

    def measure(name: str) -> Callable[[int, Any], Any]:
        def keep(t: int, answer: Any) -> Any:
            found[name] = np.asarray(answer, float).reshape(-1).copy()
            return NOTHING
        return keep

    for name, worker in workers.items():
        worker.part = worker.scorer.part = parts[name]
        worker.scorer.queries = lambda t, name=name: queries[name]
        worker.scorer.measure = measure(name)
    try:
        R = made.method.rounds_at(t)
        made.clients.begin(At(t, R + 1, R))
        with made.clients.querying(Query("stage", t + 1)):
            made.method.answer(made.server, made.clients, At(t, R, R))
    finally:
        for name, worker in workers.items():
            worker.part = worker.scorer.part = kept[name]
            del worker.scorer.queries, worker.scorer.measure
    return found


def futures(part: Any, q: float) -> Iterator[Any]:
    """Yield ``part`` without its events at ``q`` and later, and with others in their place."""
    k = len(part.before(q))
    yield part[:k]
    turned = part.take(np.arange(len(part)))
    turned.src[k:], turned.dst[k:] = turned.src[k:][::-1].copy(), np.roll(turned.dst[k:], 1)
    yield turned


def leaks(made: Any, t: int) -> Iterator[str]:
    """Yield what is wrong: answers that change with events at a query's own time or later."""
    workers = made.clients.workers
    parts = {name: worker.part for name, worker in workers.items()}
    queries = {name: worker.scorer.queries(t + 1) for name, worker in workers.items()}
    whole = answers(made, t, queries, parts)
    times = np.unique(np.concatenate([asked.t for asked in queries.values()]))
    for q in times[[0, len(times) // 2, -1]] if len(times) else ():
        for other in zip(*(futures(part, float(q)) for part in parts.values()), strict=True):
            cut = answers(made, t, queries, dict(zip(parts, other, strict=True)))
            for name, answer in whole.items():
                early = queries[name].t <= q
                if not np.array_equal(answer[early], cut[name][early]):
                    yield f"answers of {name} at {q:g} change with events at that time or later"


def check_refreshed(method: Method, make: Callable[..., Any], outcome: Callable[[Any], Any]
                    ) -> Iterator[str]:
    """Yield what is wrong with a method's refreshed answers.

    ``make`` returns a run for a value of ``refresh`` and options; ``outcome`` scores and memory of
    both sides after a run.
    """
    plain, again = outcome(make("stage")), True
    for refresh in STEPS:
        try:
            check_refresh(method, refresh)
        except FedvineError:
            try:
                make(refresh)
            except FedvineError:
                continue
            yield f"a run with refresh = {refresh} is not refused"
            continue
        made = make(refresh)
        for stage in made:
            if stage.t == 1:
                yield from leaks(made, 1)
                break
        first = outcome(made)
        if first[1:] != plain[1:]:
            yield f"with refresh = {refresh} the memory after a stage differs"
        if again and first != outcome(make(refresh, engine=MockClients, twice=True, forget=True)):
            yield f"with refresh = {refresh} engines differ"
        again = False       # the finest step that the method affords is enough
