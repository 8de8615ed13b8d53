"""Prepare a run before it has clients, in one process or in a federation.

In one process the whole stream is available; in a federation only where the server holds the graph.
Otherwise the tables are at the sites, and the server has what they say of them: numbers of edges,
times and sums of tables of nodes; or of labelled graphs the classes and the number of features
(``facts``). ``World.facts`` then cannot say whether edges have a direction, which a client sees in
its own part.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedvine.core.clients import Clients
from fedvine.core.errors import FedvineError
from fedvine.core.method import At, Method
from fedvine.core.protocol import PlanLike, ServerScorer
from fedvine.core.state import Memory, World
from fedvine.data.dates import Dates
from fedvine.data.edge_features import said
from fedvine.data.graph import Graph
from fedvine.data.identity import digest
from fedvine.data.node_features import scales, sums, tables
from fedvine.experiments.run_folder import RunFolder, read_experiment
from fedvine.tasks.task import Task


@dataclass(frozen=True)
class Prepared:
    """A run's method, plan, protocol and world, and the data that this process has.

    - ``stream``: the whole stream or graph; None where it is at the sites
    - ``scorer``: the server's, where it holds the graph; else None, and each client has its own
    - ``parts``: the streams that hold the names of users and items, by client; one called "all"
      where the server holds the graph, none where they are at the sites
    - ``dates``: whether times are dates, or the zone in which they are shown
    - ``step``: duration or number of edges of a stage, where it is known
    - ``classes``: names of the classes of the sites' labelled graphs, where these are there alone
    """

    method: Method
    plan: PlanLike
    protocol: Task
    world: World
    stream: Any
    scorer: ServerScorer | None
    parts: Mapping[str, Any]
    dates: Dates = False
    step: int | str | None = None
    classes: tuple[str, ...] = ()

    @property
    def class_names(self) -> tuple[str, ...]:
        """Return the names of the classes of a labelled graph, by number; () of a stream."""
        return self.classes or tuple(getattr(self.stream, "classes", ()))

    @property
    def self_loops(self) -> int | None:
        """Return the number of loops that were left out, None if directed or elsewhere."""
        return None if getattr(self.stream, "directed", True) else self.stream.self_loops

    @property
    def notes(self) -> tuple[str, ...]:
        """Return sentences on how the data were read."""
        known = said(self.world)        # at the sites of a federation; a weight is any column there
        columns = getattr(self.stream, "edge_columns", (*known.get("numbers", ()),
                                                        *known.get("texts", ())))
        more = () if self.protocol.data == "graph" else unused(self.method, columns)
        return (*getattr(self.stream, "notes", ()), *getattr(self.plan, "notes", ()), *more)

    def folder(self, out: str | os.PathLike[str], by: str | None, *, name: str | None = None,
               source: Mapping[str, Any] | None = None) -> RunFolder:
        """Open the run folder ``out``, or make it, with the facts that a run is known by.

        ``by`` is the column or the partition by which the data are split, ``name`` that of the data
        (None: the experiment's in ``source``, or else the stream's), ``source`` the facts by which
        they are found again (None: a digest of the stream). Raises :class:`FedvineError` if another
        run is in the folder.
        """
        named = (source or {}).get("experiment", {}).get("name")
        data: dict[str, Any] = {"name": name or named or self.stream.name}
        if self.stream is not None:
            data |= {"edges": len(self.stream), **(source or {"digest": digest(self.stream)})}
        split = {"by": by, "clients": list(self.world.clients)}
        stages = self.plan.facts()
        if self.plan.living and (Path(out) / "experiment.toml").exists():
            known = read_experiment(out)    # as the run began; clients and stages are more now
            split, stages = known.get("split", split), known.get("stages", stages)
        return RunFolder(out, {
            "seed": self.world.seed, "method": self.method.constants(), "data": data,
            "split": split, "stages": stages, "protocol": self.protocol.model_dump()})

    def final_folder(self, scored: RunFolder | None, by: str | None,
                     source: Mapping[str, Any] | None, name: str | None = None) -> RunFolder | None:
        """Return the folder inside that of the scored run; other arguments: :meth:`folder`."""
        if scored is None:
            return None
        place = scored.path / FINAL
        return (RunFolder(place, None) if (place / "experiment.toml").exists() else
                self.folder(place, by, name=name, source=source))


def unused(method: Method, columns: Iterable[str]) -> tuple[str, ...]:
    """Return a sentence where there are columns of edges that a method does not learn from."""
    named = ", ".join(column.strip("*") for column in columns)
    return () if method.edge_columns or not named else (
        f"{method.name} does not learn from the edges' own columns ({named}).",)


def prepare(method: Method, plan: PlanLike, protocol: Task, clients: Iterable[str], seed: int, *,
            stream: Any = None, by: str | None = None, parts: Mapping[str, Any] | None = None,
            since: Mapping[str, int] | None = None, until: Mapping[str, int] | None = None,
            dates: Dates = False, known: Mapping[str, Any] | None = None,
            facts: Mapping[str, Any] | None = None, classes: Iterable[str] = ()) -> Prepared:
    """Make the world of a run, and the server's scorer where the server holds the graph.

    ``clients`` are names in any order; ``stream`` is the whole stream or graph, where this process
    has it, and ``parts`` are the clients' own, where it has them. ``by`` is the column that names
    the clients, or a partition; ``World.facts["split"]`` names it if it is a column of the stream.
    ``since`` is the first stage of clients that are not there from the beginning, where it is known
    without ``parts`` (a client without any data is there from the beginning), ``until`` the stage
    from which clients that left take no part. Where ``stream`` is None: ``dates``, whether times
    are dates; ``known``, means and deviations of the sites' tables of nodes
    (:func:`fedvine.data.node_features.scales`); ``facts``, what all sides know of the sites'
    graphs; ``classes``, names of their classes, by number. Raises :class:`FedvineError` for a
    method that cannot be scored with the protocol's settings.
    """
    protocol.check(method)
    known_facts: dict[str, Any] = dict(facts or {}) if stream is None else stream.facts()
    if by in getattr(stream, "codes", ()):
        known_facts["split"] = by
    known_facts |= getattr(plan, "world", {})
    held: dict[str, Any] = {"all": stream} if method.server_holds_graph else dict(parts or {})
    graph = any(isinstance(part, Graph) for part in held.values())
    if known is None and any(tables(part) or getattr(part, "edge_columns", None) or getattr(
            part, "rows", None) is not None for part in held.values()):
        known = scales(sums(held[name] if graph else plan.stage(held[name], 0))
                       for name in sorted(held))
        if graph and parts:
            parts = {name: part.scaled(known) for name, part in parts.items()}
    if known:
        known_facts["tables"] = dict(known)
    if since is None and parts and not method.server_holds_graph:
        # Of a run that lives a client without an edge has its first rows among those that wait.
        since = {name: plan.since(part) for name, part in parts.items()
                 if len(part) or plan.living}
    since = {name: t for name, t in sorted((since or {}).items()) if t > 0}
    world = World(tuple(sorted(clients)), seed, len(plan), known_facts, since,
                  until or {}, plan.living)
    protocol, scorer = protocol.settled(held, plan), None
    if method.server_holds_graph:
        assert stream is not None
        scorer = protocol.server_scorer(stream.both_ways(), parts or {}, plan, seed)
        parts = {"all": stream}
    return Prepared(method, plan, protocol, world, stream, scorer, parts or {},
                    getattr(stream, "dates", dates), classes=tuple(classes))


# -- the model that answers, fitted once more on all labelled nodes after the run was scored -------
# It is a run of its own: the same method on the plan in which every labelled node is for training
# (:meth:`fedvine.tasks.task.Task.on_all`), in the folder ``final`` of the run folder, without
# scores. The summary of the scored run is written after it, so that a run that was killed in
# between goes on with it. Where tables grow, both runs go on, each from its own last save.
FINAL = "final"


def check_final(final: bool, protocol: Task, method: Method) -> None:
    """Raise :class:`FedvineError` where no model can be fitted once more on all labelled nodes."""
    if final and not protocol.refits:
        raise FedvineError("final = true fits a model on all labelled nodes of a labelled graph; "
                           f"{method.name} answers for {method.task}s, leave it out.")
    if final and method.noisy():
        raise FedvineError("final = true would send everything a second time, which the noise of "
                           f"{method.name} is not meant for; leave it out.")


# -- the only loop over stages and rounds in the library -------------------------------------------
OnRound = Callable[[At, Clients], None]


@dataclass(frozen=True)
class StageScores:
    """The scores measured after stage ``t`` was learned: {scored stage: {client: result}}."""

    t: int
    found: dict[int, dict[str, Any]]

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """Return the scores by client of the newest stage that was scored."""
        newest = self.found[max(self.found)] if self.found else {}
        return {client: result["scores"] for client, result in newest.items()}


def loop(method: Method, server: Memory, clients: Clients, plan: PlanLike, done: tuple[int, int],
         on_round: OnRound, stages: int | None = None) -> Iterator[StageScores]:
    """Carry out the stages and rounds that are not done, and yield the scores of each stage.

    Where the plan has grown since the last stage was scored (``stages`` was then its number),
    stages that can be scored only now are scored first, by the model as it is: before the first of
    them is learned. ``done`` is the last (stage, round) already carried out, (-1, -1) at the start;
    ``on_round`` is called after each arrival and each round.
    """
    t = done[0]
    if stages is not None and t >= 0 and done[1] > method.rounds_at(t):
        R = method.rounds_at(t)
        clients.begin(At(t, R + 1, R))
        if clients.server_scorer is not None:
            show(server, clients.server_scorer, plan, t)
        clients.scored_before = stages
        try:
            found = method.score(server, clients, At(t, R, R))
        finally:
            clients.scored_before = None
        if found:
            yield StageScores(t, found)  # type: ignore[arg-type]
    for t in range(max(done[0], 0), len(plan)):
        R = method.rounds_at(t)
        for r in range(R + 1):
            if (t, r) <= done:
                continue
            at = At(t, r, R)
            clients.begin(at)
            if r == 0:
                reach(method, server, clients, t)
            if clients.server_scorer is not None:
                show(server, clients.server_scorer, plan, t)
            (method.arrive if r == 0 else method.round)(server, clients, at)
            on_round(at, clients)
        if (t, R + 1) > done:
            clients.begin(At(t, R + 1, R))
            if clients.server_scorer is not None:       # it may come from a save after round R
                show(server, clients.server_scorer, plan, t)
            yield StageScores(t, method.score(server, clients, At(t, R, R)))  # type: ignore[arg-type]


def reach(method: Method, server: Memory, clients: Clients, t: int) -> None:
    """Let the server's memory grow with the world of stage ``t``, which is the clients' now."""
    if clients.world.facts != clients.whole.at(t - 1).facts:
        method.grow(server, method.start(clients.world))


def show(server: Memory, scorer: ServerScorer, plan: PlanLike, t: int) -> None:
    """Give a server that holds the graph the events of stage ``t`` and all events so far."""
    server.stage = scorer.shown(plan.stage(scorer.part, t))
    server.past = scorer.shown(plan.past(scorer.part, t))
