"""The contract suite: the rules that every method must keep, checked in seconds on a small stream.

    from fedvine.testing import check_method
    check_method(MyMethod)            # raises AssertionError that names the broken rule

In a test suite, parametrise over :data:`CHECKS` instead, to see each rule by name.
"""

from __future__ import annotations

import functools
import json
import math
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedvine.core.ledger import seeded
from fedvine.core.message import dumps, pack
from fedvine.core.method import Method
from fedvine.core.settings import fields
from fedvine.data.graph import Graph
from fedvine.data.split import Split
from fedvine.data.stream import EventStream
from fedvine.engines import bad_replies
from fedvine.engines.faults import MockClients
from fedvine.engines.local import LocalClients
from fedvine.experiments import growth_check
from fedvine.experiments.run import Run, run
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.tasks.task import of
from fedvine.tasks.task_plan import TaskPlan
from fedvine.tasks.tiny import FOUR, NAMES, tiny_case, tiny_graphs, tiny_labelled, tiny_stream

PROTOCOL = LinkPrediction.tiny()     # how their links are scored


def _names(method: Method) -> tuple[str, ...]:
    """Return three clients; four where none of three may be missing (``secure``)."""
    return FOUR if method.needed(len(NAMES)) == len(NAMES) else NAMES


def _stream(method: Method) -> EventStream:
    return tiny_labelled() if of(method).data == "classes" else tiny_stream(names=_names(method))


def _case(method: Method) -> tuple[Any, Any]:
    return (tiny_graphs(_names(method)) if of(method).data == "graph" else
            tiny_case(_stream(method)))


def run_small(method: Method, case: tuple[Any, Any] | None = None, engine: Any = LocalClients,
              **options: Any) -> Run:
    """Prepare a run of ``method`` on the small data, as the checks have it.

    Args:
        method: Constants with which a run takes a second, such as ``tiny()``.
        case: A split and its plan; else those of :func:`fedvine.tasks.tiny.tiny_case` or of
            ``tiny_graphs``, by the method's task.
        engine: The class of the engine.
        **options: What :func:`fedvine.experiments.run.run` takes besides. Noise is drawn from a
            fixed key, unless ``fresh`` is given.

    Returns:
        The run, of which nothing is carried out yet.
    """
    parts, plan = case or _case(method)
    options.setdefault("fresh", seeded(7))      # noise comes from the system else
    return run(method, parts, plan, seed=7, protocol=of(method).tiny(), engine=engine, **options)


def _outcome(made: Run) -> tuple[str, bytes, dict[str, bytes]]:
    """Return all that a run leaves: its scores, and the memory of both sides byte for byte."""
    made.finish()
    assert made.server is not None
    scores = json.dumps([[s.t, s.found] for s in made.stages], sort_keys=True)
    return (scores, dumps(pack(made.server.dump())),
            {n: dumps(p) for n, p in made.clients.save("end").items()})


@dataclass(frozen=True)
class _Asked:
    """A method on the small data, as a key."""

    kind: type
    fields: str
    data: tuple[Any, ...]       # what makes it: a test may put something else in its place
    method: Method = field(compare=False)


@dataclass(frozen=True)
class _Plain:
    """Hold what a plain run leaves, and what was seen of it."""

    outcome: tuple[str, bytes, dict[str, bytes]]
    found: tuple[Any, ...]              # the scores of each stage
    log: tuple[dict[str, Any], ...]     # a line for each call
    calls: tuple[tuple[str, str], ...]  # phase and function of each call


@functools.lru_cache(maxsize=32)
def _kept(asked: _Asked) -> _Plain:
    log: list[dict[str, Any]] = []
    made = run_small(asked.method, engine=bad_replies.Recording,
                on_round=lambda at, clients: log.extend(clients.log))
    assert isinstance(made.clients, bad_replies.Recording)
    return _Plain(_outcome(made), tuple(s.found for s in made.stages), tuple(log),
                  tuple(sorted(made.clients.calls)))


def _plain(method: Method) -> _Plain:
    """Return what a plain run leaves; most checks compare with it, and it is made once."""
    return _kept(_Asked(type(method), method.model_dump_json(),
                        (tiny_stream, tiny_labelled, tiny_graphs, tiny_case), method))


def _undisturbed(method: Method) -> tuple[str, bytes, dict[str, bytes]]:
    return _plain(method).outcome


def _same(a: Any, b: Any, rule: str) -> None:
    assert a[0] == b[0], f"{rule}: scores differ"
    assert a[1] == b[1], f"{rule}: the server's memory differs"
    for name in a[2]:
        assert a[2][name] == b[2][name], f"{rule}: the memory of client {name} differs"


def _sane(made: Run, rule: str) -> None:
    made.finish()
    values = [v for s in made.stages for by in s.found.values() for r in by.values()
              for v in r["scores"].values()]
    assert values, f"{rule}: nothing was scored"
    assert all(math.isfinite(v) for v in values), f"{rule}: a score is not finite"


def check_engines_agree(method: Method) -> None:
    """Check that calls delivered twice, sent as bytes, with caches dropped, give the same bytes.

    So do clients that compute at the same time, on three threads.
    """
    _same(_undisturbed(method), _outcome(run_small(method, workers=3)), "three threads")
    _same(_undisturbed(method), _outcome(run_small(method, engine=MockClients, twice=True,
                                              forget=True)), "redelivery and dropped cache")


def check_killed_in_a_round(method: Method) -> None:
    """Check that a client killed between two calls of a round, and restored, changes nothing."""
    kills = [(t, r, c) for t, r, c in ((1, 0, 1), (1, 1, 1), (1, 1, 2), (2, 2, 1), (2, 2, 2))]
    _same(_undisturbed(method), _outcome(run_small(method, engine=MockClients, kill=kills)),
          "client killed in a round")


class _Killed(Exception):
    pass


def check_resume(method: Method) -> None:
    """Check that a run killed after a round, also within a stage, and resumed is the same.

    One run is killed after several rounds, spread over all stages, and resumed each time.
    """
    whole = _undisturbed(method)
    places = [(t, r) for t in range(4) for r in range(method.rounds_at(t) + 1)]
    places = places[1::max(1, len(places) // 4)]
    with tempfile.TemporaryDirectory() as folder:
        out, killed = Path(folder) / "run", []
        for place in places:
            def stop(at: Any, clients: Any, place: Any = place) -> None:
                if (at.t, at.r) == place:
                    raise _Killed

            try:
                run_small(method, out=out, save_every=0.0, on_round=stop).finish()
            except _Killed:
                killed.append(place)
        assert killed == places, f"of the rounds {places} only {killed} were met after resuming"
        resumed = run_small(method, out=out, save_every=1e9)
        _same(whole, _outcome(resumed), f"killed after the rounds {places} and resumed each time")
        again = run_small(method, out=out)
        assert again.summary is not None and again.scores == resumed.scores, (
            "a finished run must answer at once")


@dataclass(frozen=True)
class _FirstTasks(TaskPlan):
    """The first tasks of a plan, in the order that each client has for all of them."""

    stages: int = 0

    def __len__(self) -> int:
        return self.stages


def check_no_future_leak(method: Method) -> None:
    """Check that cutting off the data's future changes no earlier score."""
    parts, plan = _case(method)
    whole = _plain(method).found
    for stages in (2, 3):
        if isinstance(parts.stream, Graph):
            early = _thinned(parts, plan, {n: range(stages) for n in parts.parts})
            short = _FirstTasks(**vars(plan), stages=stages)
        else:
            early = tiny_case(parts.stream.before(plan.bounds[stages]))[0]
            short = plan.cut(stages)
        cut = run_small(method, (early, short)).finish().stages
        for found, b in zip(whole, cut, strict=False):
            for stage in b.found:
                assert found[stage] == b.found[stage], (
                    f"scores of stage {stage} change when the future after it is cut off")


def check_client_order(method: Method) -> None:
    """Check that the order in which clients are listed does not matter."""
    parts, plan = _case(method)
    turned = type(parts)(dict(reversed(list(parts.parts.items()))), parts.stream, parts.by)
    _same(_undisturbed(method), _outcome(run_small(method, (turned, plan))), "order of clients")


def _thinned(split: Any, plan: Any, keep: Mapping[str, Collection[int]]) -> Any:
    """Keep only the edges or nodes of the stages ``keep[name]`` of a client (all if not named).

    Nodes without a class are of all stages.
    """
    parts = {}
    for name, part in split.parts.items():
        stage = (plan.assign(part)[0] if isinstance(split.stream, Graph) else
                 np.searchsorted(plan.bounds, part.t, side="right") - 1)
        wanted = [*keep.get(name, range(len(plan)))]
        kept = np.flatnonzero(np.isin(stage, [*wanted, -1] if wanted else wanted))
        parts[name] = part.induced(kept, part.name) if isinstance(split.stream, Graph) else kept
    if isinstance(split.stream, Graph):
        return Split(parts, split.stream, split.by)
    stream = split.stream
    owner = stream.codes["client"]
    rows = [np.flatnonzero(owner == k)[parts[n]] for k, n in enumerate(stream.categories["client"])]
    return tiny_case(stream.take(np.sort(np.concatenate(rows))))[0]     # its nodes stay known


def check_empty_single_idle_late(method: Method) -> None:
    """Check an empty client, a single one, one idle for some stages, and one that joins late."""
    parts, plan = _case(method)
    _sane(run_small(method, (_thinned(parts, plan, {"bob": ()}), plan)), "empty client")
    _sane(run_small(method, (parts.only(["bob"]), plan)), "single client")
    _sane(run_small(method, (_thinned(parts, plan, {"ada": (0, 3), "cyd": (2, 3)}), plan)),
          "one idle client and one late one")


def check_missing_replies(method: Method) -> None:
    """Check that a lost reply starts the attempt over, and that a client may miss some rounds."""
    first = 1 if method.rounds_at(1) else 0
    lost = run_small(method, engine=MockClients, lose={(1, first, 1): {"bob"}})
    _same(_undisturbed(method), _outcome(lost), "a lost reply")
    away = {(1, r): {"cyd"} for r in range(method.rounds_at(1) + 1)} | {(2, 0): {"cyd"}}
    later = (2, 1, 1) if method.rounds_at(2) else (3, 0, 1)     # the client is back by then
    _sane(run_small(method, engine=MockClients, quorum=0.5, lose={later: {"bob"}}, away=away),
          "a reply missing for good, and a client that was away")


def check_bad_replies(method: Method) -> None:
    """Check errors, wrong shapes, NaN, text and nothing as replies, in every phase and function.

    A bad reply counts as missing, the log gives the reason, and the run goes on if the quorum is
    met.
    """
    plain = _plain(method)
    broken = list(bad_replies.check(method, run_small, _outcome, plain.outcome, plain.calls))
    assert not broken, "bad replies: " + "; ".join(sorted(set(broken)))


def check_refresh(method: Method) -> None:
    """Check ``protocol.refresh``: answers know the events before them, and no others.

    Memory after the stage is the same as without it, and a run that refreshes more often than the
    method affords is refused.
    """
    if "refresh" not in of(method).model_fields:
        return
    stream = tiny_stream(3600)
    stream.t[:] = stream.t // 200 * 200     # many events of equal time

    def make(refresh: Any, **options: Any) -> Run:
        parts, plan = tiny_case(stream)
        return run(method, parts, plan, seed=7, fresh=seeded(7), protocol=LinkPrediction(
            negatives=5, positives=1000, refresh=refresh), **options)

    wrong = list(bad_replies.check_refreshed(method, make, _outcome))
    assert not wrong, "refresh: " + "; ".join(sorted(set(wrong)))


def check_growth(method: Method) -> None:
    """Check that a run whose table grows, night by night, has the scores of one run on all rows.

    That run has the same plan: the same stages and periods. Methods are left out whose task says
    that its runs do not go on, and those of labelled graphs.
    """
    if of(method).data != "graph":
        wrong = growth_check.check(method, tiny_stream())
        assert wrong is None, f"a table that grows: {wrong}"


def check_randomness_is_local(method: Method) -> None:
    """Check that global random generators are neither read nor advanced."""
    undisturbed = _undisturbed(method)      # made under another state of the generators
    torch.random.manual_seed(int(torch.randint(1 << 40, ()).item()))
    before = torch.random.get_rng_state()
    state = np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
    first = _outcome(run_small(method))
    assert torch.equal(before, torch.random.get_rng_state()), "torch's global generator moved"
    assert (state == np.random.get_state()[1]).all(), "NumPy's global generator moved"  # type: ignore[index]  # noqa: NPY002
    _same(first, undisturbed, "another global seed")


def check_messages_are_counted(method: Method) -> None:
    """Check that every call is logged with its bytes."""
    plain = _plain(method)
    assert bool(plain.log) == bool(plain.calls), "a call that is not logged"
    assert all(c["down"] > 0 and c["up"] > 0 for c in plain.log), "a call without bytes"


def check_fields_are_documented(method: Method) -> None:
    """Check that the class has a docstring and that every field has a description."""
    assert (type(method).__doc__ or "").strip(), "the method has no docstring"
    for name, one in fields(type(method)).items():
        assert one.description, f"field {name} has no description"
    assert type(method)(**method.model_dump()) == method, "the method is not its fields"


CHECKS = (check_engines_agree, check_killed_in_a_round, check_resume, check_no_future_leak,
          check_client_order, check_empty_single_idle_late, check_missing_replies,
          check_bad_replies, check_refresh, check_growth, check_randomness_is_local,
          check_messages_are_counted, check_fields_are_documented)


def check_method(method: Method | type[Method]) -> None:
    """Run every check on ``method`` (of a class, on its ``tiny()``)."""
    for check in CHECKS:
        check(method.tiny() if isinstance(method, type) else method)
