"""A run: its loop with saves, scores and costs around it, and the summary at the end."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedvine.core import registry
from fedvine.core.clients import Clients
from fedvine.core.device import Device, placed
from fedvine.core.errors import FedvineError, near
from fedvine.core.expect import Several, Text
from fedvine.core.ledger import Ledger
from fedvine.core.message import pack, unpack
from fedvine.core.method import At, Method
from fedvine.core.protocol import PlanLike
from fedvine.core.replies import Query, RoundAborted
from fedvine.core.settings import build
from fedvine.core.state import Memory
from fedvine.data.dates import moment
from fedvine.data.identity import digest, names
from fedvine.data.split import Split
from fedvine.engines.local import LocalClients
from fedvine.experiments import nights, run_folder
from fedvine.experiments.prepare import OnRound, Prepared, StageScores, loop, prepare, show
from fedvine.experiments.run_files import read_choice
from fedvine.experiments.summary import Costs, lines, logged, summary
from fedvine.living.gate import Closed
from fedvine.living.rows import StoredRows
from fedvine.tasks.task import REPLICATES, Task, of

ATTEMPTS = 3  # times that one round may start over before the run gives up
ENGINES = ("local", "ray")
OnStage = Callable[[StageScores, "Run"], None]
__all__ = ["Run", "StageScores", "run"]


class Run:
    """A run: iterate over its stages, or :meth:`finish` it; then read ``scores`` or ``predict``."""

    def __init__(self, ready: Prepared, clients: Clients, folder: run_folder.RunFolder | None, *,
                 save_every: float = 60.0, on_round: OnRound | None = None,
                 on_stage: OnStage | None = None) -> None:
        self.ready, self.clients = ready, clients
        self.method, self.plan, self.protocol = ready.method, ready.plan, ready.protocol
        self.parts, self.notes = ready.parts, ready.notes
        self.folder, self.save_every = folder, save_every
        self.news: list[str] = []       # sentences about rows that came since, or wait
        self.on_round: OnRound = on_round or (lambda at, clients: None)
        self.on_stage: OnStage = on_stage or (lambda stage, run: None)
        self.on_abort: Callable[[str], None] = lambda why: None     # a round is played again
        self.halted: Callable[[], bool] = lambda: False     # whether to stop after this round
        self.server: Memory | None = None
        self.stages: list[StageScores] = []
        self.summary: dict[str, Any] | None = (
            run_folder.read_summary(folder.path, len(self.plan)) if folder else None)
        if folder:
            folder.logs.living = ready.plan.living
            clients.remember(folder.path / "noise")
        self._known: int | None = None      # stages of the plan when the last one was scored
        self._night: int | None = None      # and when this night began
        self.check: Callable[[list[StageScores], int], object] = lambda stages, new: None
        self.undo: Callable[[], object] = lambda: None      # where check raised Closed
        self._began = time.monotonic()
        self.costs, self._last_save = Costs(), 0.0
        self.learned: int | None = None     # the stage that is asked; None: the last one
        self.on_all: Callable[[], Run] | None = None    # prepares the run on all labelled data
        self.on_final: OnRound = lambda at, clients: None   # after a round of that run
        self._final: Run | None = None
        self._shown: Memory | None = None   # the server that has the events of that stage

    def __iter__(self) -> Iterator[StageScores]:
        """Yield the scores of each stage, from the last save on; of a finished run all again."""
        if self.summary is not None:
            self.stages = self.stages or self.measured()
            yield from self.stages
            return
        try:
            with self.folder.alone() if self.folder else contextlib.nullcontext():
                if self.folder:
                    run_folder.tidy(self.folder.path)
                yield from self._carry_out()
        except Closed:
            self.undo()
            raise

    def _carry_out(self) -> Iterator[StageScores]:
        done, attempts = self._restore(), 0
        self.stages = self.measured()
        while True:
            failed_at = done
            try:
                assert self.server is not None
                self.costs.begin(self.clients)
                for stage in loop(self.method, self.server, self.clients, self.plan, done,
                                  self._round_done, self._known):
                    self._stage_done(stage, save=stage.t > done[0] or not self._is_end(*done))
                    if self._night is not None and max(stage.found, default=-1) >= self._night:
                        self.check(self.stages, max(stage.found))   # of a new stage, not learned
                    yield stage
                    self.costs.begin(self.clients)
                break
            except RoundAborted as reason:
                self.on_abort(str(reason))
                done = self._restore()
                self.stages = self.measured()
                attempts = attempts + 1 if failed_at == done else 1
                if attempts >= ATTEMPTS:
                    raise FedvineError(f"{reason} in {ATTEMPTS} attempts; check that client, or "
                                       "let the run go on without it by a lower quorum.") from None
        if self.on_all is not None:
            again = self.on_all()       # goes on from its own last save
            again.on_round, again.on_abort, again.halted = (
                self.on_final, self.on_abort, self.halted)
            self._final = again.finish()
        self._finish()

    def finish(self) -> Run:
        """Run to the end and return the run."""
        for _ in self:
            pass
        return self

    @property
    def final(self) -> Run | None:
        """The run on all labelled data, whose model answers; None where this run's own does."""
        if self._final is None and self.on_all and self.summary and "final" in self.summary:
            self._final = self.on_all()
        return self._final

    @property
    def learned_to(self) -> str:
        """Return the end of what was learned as a date; empty where times are no dates."""
        bounds: Any = getattr(self.plan, "bounds", None)
        if not (bounds and self.ready.dates):
            return ""
        return moment(bounds[-1 if self.learned is None else self.learned + 1], self.ready.dates)

    def unscored(self) -> Run:
        """Let the run learn without being scored, and return it."""
        self.clients.unscored = True
        return self

    @property
    def scores(self) -> dict[str, Any]:
        """Return the scores by client, ``mean`` and ``mean_edges``; raise if it is not finished."""
        if self.summary is None:
            raise FedvineError("This run is not finished; call finish() first.")
        return self.summary["scores"]

    def _round_done(self, at: At, clients: Clients) -> None:
        self.costs.round_done(at, clients)
        self.on_round(at, clients)
        halted = self.halted()
        if self.folder and (halted or time.perf_counter() - self._last_save > self.save_every):
            self._save(at.t, at.r)
        if halted:
            raise KeyboardInterrupt
        self.costs.begin(clients)

    def _stage_done(self, stage: StageScores, save: bool = True) -> None:
        """Keep a stage's scores; ``save`` False: the stage itself was learned and saved before."""
        self._add_replicates(stage)
        before = [s for s in self.stages if s.t == stage.t]
        if before:
            before[0].found.update(stage.found)
        else:
            self.stages.append(stage)
        self._flush()
        if self.folder:
            self.folder.logs.append("metrics.jsonl", lines(stage, self.protocol, self.plan))
            if save:
                self._save(stage.t, self.method.rounds_at(stage.t) + 1)
        self.on_stage(stage, self)

    def _add_replicates(self, stage: StageScores) -> None:
        """Add the replicates that scorers in this process keep to a stage's scores."""
        server = self.clients.server_scorer
        scorers = getattr(server, "clients", {"all": server}) if server is not None else {
            name: worker.scorer for name, worker in getattr(self.clients, "workers", {}).items()}
        for scored, by in stage.found.items():
            for name, result in by.items():
                kept = getattr(scorers.get(name), "resampled", {})
                if scored in kept:
                    result[REPLICATES] = {part: {
                        key: [float(x) if x == x else None for x in values]     # JSON has no NaN
                        for key, values in of.items()}
                        for part, of in kept.pop(scored).items()}

    def _is_end(self, t: int, r: int) -> bool:
        """Return whether round ``r`` of stage ``t`` is the place after its scores."""
        return t >= 0 and r > self.method.rounds_at(t)

    def _flush(self) -> None:
        self.costs.count(self.clients.log)
        if self.folder:
            self.folder.logs.append("messages.jsonl", self.clients.log)
        self.clients.log = []

    def _save(self, t: int, r: int) -> None:
        self._flush()
        assert self.folder is not None and self.server is not None
        by_client = self.costs.by_client(self.clients)
        state = {"server": self.server.dump(), "clients": self.clients.dump(), **self.costs.dump(),
                 "by_client": by_client}
        self._last_save, packed = time.perf_counter(), pack(state)
        clients = self.clients.save(run_folder.checkpoint(t, r))
        self.folder.save(run_folder.Save(t, r, packed, clients, self.costs.seconds,
                                         self._is_end(t, r), len(self.plan), self._night))
        self.folder.moved(by_client)

    def _restore(self) -> tuple[int, int]:
        """Restore both sides from the last save, or start afresh; return its (stage, round)."""
        last = len(self.plan) - 1
        end = run_folder.checkpoint(last, self.method.rounds_at(last) + 1) if self.summary else None
        save = self.folder.restore(self.clients.checkpoints(), end) if self.folder else None
        return self._take(save, last)

    def _take(self, save: run_folder.Save | None, last: int) -> tuple[int, int]:
        """Restore both sides from this save, or start afresh; ``last`` is the plan's last stage."""
        self.server = self.method.start(self.clients.whole.at(save.t if save else 0))
        self.server.cache = {}
        self.costs, self._last_save = Costs(), time.perf_counter()
        self.costs.begin(self.clients)
        self.clients.log = []
        self._known = self._night = None
        if save is None:
            self.clients.restore({}, None)
            self.clients.load(None)
            return -1, -1
        if not (0 <= save.t <= last and 0 <= save.r <= self.method.rounds_at(save.t) + 1):
            raise FedvineError("The run was saved after its own end; delete its folder to start "
                               "afresh.")
        state = unpack(save.server)
        self.server.load(state["server"])
        self.clients.load(state["clients"])
        self.clients.restore(save.clients, run_folder.checkpoint(save.t, save.r))
        self.costs.load(state, save.seconds)
        if save.stages is not None and save.stages < len(self.plan):
            self._known = save.stages
        self._night = save.night if self._known is None else self._known
        return save.t, save.r

    def look(self, save: run_folder.Save) -> None:
        """Restore both sides from the save at the end of a stage, to ask them; write no file."""
        self._take(save, len(self.plan) - 1)
        self.learned = save.t

    def measured(self) -> list[StageScores]:
        """Return the scores of the stages so far, those of a run folder from its files."""
        if not self.folder:
            return self.stages if self.summary is not None else []
        return logged(self.folder.path)

    def _finish(self) -> None:
        self._flush()
        assert self.server is not None
        ledgers = map(Ledger, self.folder.path.glob("noise/*.jsonl")) if self.folder else ()
        self.summary = summary(self.ready, self.server, self.stages, self.costs, ledgers)
        if self._final is not None:
            again = self._final         # the nodes are the labelled ones, None in a federation
            assert again.summary is not None
            self.summary["final"] = {
                "nodes": self.protocol.learned(again.plan, again.parts) if again.parts else None,
                **{key: again.summary[key] for key in ("seconds_total", "bytes_down", "bytes_up")},
                "alerts": again.summary.get("report", {}).get("alerts", [])}
        if self.folder:
            if found := read_choice(self.folder.path):
                self.summary["auto"] = found
            self.folder.finish(self.summary)
            if self.plan.living:
                nights.log(self.folder.path, {
                    "stages": len(self.plan), "rows": len(self.ready.stream or ()),
                    "seconds": round(time.monotonic() - self._began, 1), "scores":
                    self.summary["scores"].get("live", self.summary["scores"]["test"])["mean"]})

    # -- forecasts -------------------------------------------------------------------------------
    def predict(self, client: str | int, user: str | int, top: int = 5) -> list[Any]:
        """Return the ``top`` most likely items, :class:`fedvine.experiments.forecasts.Forecast`.

        The user may be known at another client alone.
        """
        from fedvine.experiments.forecasts import Forecasts
        return Forecasts(self).top(client, user, top)

    def ask(self, client: str, pairs: dict[str, Any]) -> Any:
        """Return the raw answers of a finished run for pairs in a client's local numbers.

        ``pairs`` has ``src``, ``dst`` int [P] and ``t`` float [P]. Users without an edge at the
        client are named in ``guests``; they get the numbers after the client's own users. With
        ``refresh`` true the client's own events before ``t`` that no round has learned count.
        """
        if self.final is not None:
            return self.final.ask(client, pairs)
        server, at = self.at_the_end()
        try:
            if self.clients.server_scorer is not None:
                scorer = self.clients.server_scorer
                if self._shown is not server:
                    show(server, scorer, self.plan, at.t)
                    self._shown = server
                server.queries = scorer.given(pairs)
                return scorer.answered(self.method.answer(server, self.clients, at))
            with self.clients.querying(Query("given"), {client: pairs}):
                return self.method.answer(server, self.clients, at)[client]
        finally:
            self.clients.log = []       # nothing of a question is kept

    def explain(self, client: str, pairs: dict[str, Any]) -> list[str]:
        """Return a text on each score of ``pairs`` (:meth:`ask`), if the method has ``explain``."""
        server, at = self.at_the_end()
        try:
            with self.clients.querying(Query("given"), {client: pairs}):
                if pairs.get("guests"):     # with the answer a client gets what others know of them
                    self.method.answer(server, self.clients, at)
                return self.clients.call(self.method.explain,  # type: ignore[attr-defined]
                                         expect=Several(Text()))[client]
        finally:
            self.clients.log = []

    def at_the_end(self) -> tuple[Memory, At]:
        """Return the server, the clients ready for queries, and the last learned place."""
        if self.server is None:
            self._restore()
        assert self.server is not None
        t = len(self.plan) - 1 if self.learned is None else self.learned
        at = At(t, self.method.rounds_at(t), self.method.rounds_at(t))
        self.clients.begin(At(t, at.R + 2, at.R))
        return self.server, at


def run(method: Method, split: Split, stages: PlanLike, *, seed: int = 0,
        protocol: Task | None = None, out: str | os.PathLike[str] | None = None,
        source: dict[str, Any] | None = None, keep: bool = True, step: int | str | None = None,
        engine: str | type[Clients] = "local", device: Device | None = None,
        save_every: float = 60.0, final: bool = False, on_round: OnRound | None = None,
        on_stage: OnStage | None = None, **options: Any) -> Run:
    """Prepare a run of ``method`` on a split stream; nothing is computed until it is iterated.

    The callbacks are called again for rounds that start over or were not saved when a run was
    stopped, but not for stages that were saved. An error that one raises ends the iteration, and
    the run goes on from its last save. A callback must not change its arguments.

    Args:
        method: the method.
        split: the data, split by client.
        stages: the plan of stages.
        seed: all randomness comes from it.
        protocol: the task with its settings; the method's task with its defaults if not given.
        out: the run folder; without one the run is in memory alone.
        source: how to open the data again, for ``[data]`` of the folder.
        keep: the folder gets a copy of the data, by which it is asked, and by which it goes on when
            a table has grown.
        step: duration or number of edges of a stage, kept for stages that come later.
        engine: "local", "ray" (:class:`fedvine.engines.cluster.RayClients`), or a class of clients.
        device: where tensors are computed: on a GPU where torch finds one ("auto"), "cpu", "cuda";
            None: as the method is (:func:`fedvine.core.device.placed`), else "auto".
        save_every: seconds between two saves inside a stage.
        final: after it was scored, fit the model that answers once more on all labelled data, in
            the folder ``final`` of the run folder; only for tasks with ``refits``.
        on_round: called with ``(at, clients)`` after each arrival (``at.r`` is 0) and round, before
            a save; ``clients.log`` has a line for each of its calls.
        on_stage: called with a :class:`StageScores` and the run after a stage was scored and saved;
            ``run.costs`` has the seconds and bytes so far.
        **options: arguments of the engine.

    Returns:
        The run.

    Raises:
        FedvineError: where the method cannot be set up, or the folder holds another run.
    """
    protocol = protocol or of(method)()
    method = method if device is None else placed(method, device)
    if protocol.server_graph and not method.server_holds_graph:
        raise FedvineError(f"{method.name} names classes without a server that holds the graph; "
                           "that is not built.")
    if not hasattr(split, "parts"):
        raise FedvineError(f"The second argument is data split into clients, such as "
                           f"stream.split(by=\"origin\"), and not a {type(split).__name__}.")

    def made_of(plan: PlanLike, folder: Callable[[Prepared], run_folder.RunFolder | None],
                **callbacks: Any) -> Run:
        ready = prepare(method, plan, protocol, split.parts, seed, stream=split.stream, by=split.by,
                        parts=split.parts)
        ready = replace(ready, step=step)
        clients = _clients(engine, ready, split, options)
        return Run(ready, clients, folder(ready), save_every=save_every, **callbacks)

    def scored(ready: Prepared) -> run_folder.RunFolder | None:
        folder = None if out is None else ready.folder(out, split.by, source=source)
        if folder is not None and keep:
            read = source and f"{source.get('digest')}{source.get('names')}"
            folder.keep(split, stages, step=step, read=read)
        return folder

    made = made_of(stages, scored, on_round=on_round, on_stage=on_stage)
    everything = protocol.on_all(stages) if final else None
    if everything is not None:
        made.on_all = lambda: made_of(
            everything, lambda ready: ready.final_folder(made.folder, split.by, source)).unscored()
    return made


def method_of(folder: str | os.PathLike[str], found: Mapping[str, Any]) -> Method:
    """Return the method of a run's experiment; raise :class:`FedvineError` if it is not here."""
    values = dict(found["method"])
    name, own_digest = str(values.pop("name")), values.pop("file_digest", None)
    if own_digest is None and name not in registry.names("methods") and (
            name not in registry.methods()):    # all are imported for this
        raise FedvineError(f"There is no method called {name} here, of which the run in {folder} "
                           "is; ask the run in Python, or make it with fedvine run FILE.py.")
    kind: Any = (registry.method(name) if own_digest is None else
                 registry.of_digest(name, str(own_digest)))
    return build(kind, values, f"{folder}/experiment.toml", under="method.")


def of_kept(folder: str | os.PathLike[str], found: dict[str, Any], method: Method | None = None,
            **options: Any) -> Run:
    """Return a run on what ``data/`` in a folder keeps, prepared with options of :func:`run`.

    ``found`` is the folder's experiment, ``method`` one in place of its own; with ``out`` the run
    is carried out in that folder. Raises
    :class:`FedvineError` where the method is not known here, or what is kept is another run's.
    """
    place = f"{folder}/experiment.toml"
    if "out" in options:
        options |= {"keep": False, "source": {key: found["data"][key] for key in (
            "digest", "names", "edges", "experiment") if key in found["data"]}}
    try:
        method = method_of(folder, found) if method is None else method
        rows = StoredRows.open(Path(folder) / "data")
        split, plan = rows.split, rows.plan
        known, facts = {"digest": digest(split.stream), "names": names(split.stream)}, found["data"]
        grown = (facts.get("edges") != len(split.stream) or getattr(split.stream, "came", None)
                 or "erased" in rows.facts)
        if not grown and any(facts.get(key, value) != value for key, value in known.items()):
            raise FedvineError(f"{folder}/data was changed, or is another run's; it cannot be "
                               "asked.")
        # Some sums depend on the number of threads in their last bits.
        threads = (found["data"].get("experiment") or {}).get("threads")
        if threads is not None and "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(int(threads))
        return run(method, split, plan, seed=found["seed"], step=rows.facts.get("step"),
                   protocol=build(of(method), found["protocol"], place, under="protocol."),
                   **options)
    except (KeyError, TypeError, ValueError, OSError) as error:
        if isinstance(error, FedvineError):
            raise
        raise FedvineError(f"{folder} does not hold what its run was made from ({error}); it "
                           "cannot be asked.") from error


def _clients(engine: str | type[Clients], ready: Prepared, split: Split, options: dict[str, Any]
             ) -> Clients:
    """Return a run's clients; raise :class:`FedvineError` where the method cannot be set up."""
    method = ready.method
    held = dict.fromkeys(split.parts) if method.server_holds_graph else dict(ready.parts)
    try:
        return _engine(engine)(method, held, ready.plan, ready.protocol, ready.world,
                               server_scorer=ready.scorer, **options)
    except (RuntimeError, MemoryError, AssertionError, ValueError, TypeError) as error:
        if isinstance(error, FedvineError):
            raise
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise FedvineError(f"{method!r} cannot be set up here ({why}).") from error


def _engine(named: str | type[Clients]) -> Callable[..., Clients]:
    """Return the class of clients; raise :class:`FedvineError` for a name that is not known."""
    if not isinstance(named, str):
        return named
    if named not in ENGINES:
        raise FedvineError(f'There is no engine "{named}"{near(named, ENGINES)}; choose one of '
                           f"{', '.join(ENGINES)}.")
    if named == "ray":
        from fedvine.engines.cluster import RayClients
        return RayClients
    return LocalClients
