"""The only loop over stages and rounds in the library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fedvine.core.clients import Clients
from fedvine.core.method import At, Method
from fedvine.core.protocol import PlanLike, ServerScorer
from fedvine.core.state import Memory

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
