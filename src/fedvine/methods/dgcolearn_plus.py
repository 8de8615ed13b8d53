"""dgcolearn_plus: features of pairs beside the rows of DG-CoLearn's exchange.

Beyond the paper. The server of DG-CoLearn holds the graph, so it can count what each pair of nodes
did, whichever clients these are at: no count travels, and none depends on the partition. A pair's
score is a weighted sum of some hundred features of counts, those of ``fedlink_plus``
(:mod:`fedvine.methods._fedlink_plus.features`), of features of the snapshot, and of DG-CoLearn's
own logit (:mod:`fedvine.methods._dgcolearn.pair_features`). The weights are those of a softmax of
each edge against pairs that were not met (:mod:`fedvine.methods._fedlink_plus.newton`).

A stage's edges are scored before they are learned, by the rows of the stage before, and the weights
are fitted to these scores: the logit weighs as much as it was worth for edges that are new to it.
The same scores decide which parts of the features answer next, as in ``fedlink_plus``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from fedvine.core.method import At, Field, Server, World
from fedvine.methods._dgcolearn import pair_features
from fedvine.methods._dgcolearn.placement import renumber
from fedvine.methods._fedlink_plus import edge_columns, level, newton, samples, scoring
from fedvine.methods._fedlink_plus.counts import Counts
from fedvine.methods._fedlink_plus.features import Profiles
from fedvine.methods._fedlink_plus.newton import Newton, derivatives
from fedvine.methods._fedlink_plus.travel import lent
from fedvine.methods.dgcolearn import DgCoLearn, ahead

STEPS = 20      # of Newton's method a stage, at most; it mostly ends after 5 to 10


class DgCoLearnPlus(DgCoLearn):
    """DG-CoLearn's logit is one feature of a pair among counts, recencies and neighbours."""

    name: ClassVar[str] = "dgcolearn_plus"
    # curves of counts, first meetings lately, random walks
    revision: ClassVar[int] = 7  # type: ignore[override]
    edge_means: ClassVar[bool] = False      # features of pairs say it
    space: ClassVar[dict[str, Any]] = {"ridge": (0.1, 10.0, "log"), "new": (1.0, 4.0, "log"),
                                      "fade": (0.7, 1.0)}

    rounds: int = Field(default=2, ge=0, description="rounds a stage, R, in which "
                        "DG-CoLearn's rows are trained; 0: no rows, counts and the snapshot alone")
    target: Literal["edges"] = Field(  # type: ignore[assignment]
        default="edges", description="what is predicted: the next stage's edges")
    sampled: int = Field(default=2000, ge=1, description="edges a stage in the weights' loss")
    negatives: int = Field(default=16, ge=1, description="nodes that an edge is compared with")
    stages: int = Field(default=10, ge=1, description="stages whose edges are in that loss")
    fade: float = Field(default=0.9, gt=0, le=1, description="what the weight of an edge in that "
                        "loss keeps from stage to stage")
    new: float = Field(default=2.0, gt=0, description="weight in that loss of a pair that did not "
                       "meet before; others weigh 1")
    ridge: float = Field(default=1.0, ge=0, description="ridge, in units of a feature's square")
    items: int = Field(default=64, ge=1, description="newest neighbours of a node that similar "
                       "nodes are found by")
    users: int = Field(default=1024, ge=1, description="newest nodes at a neighbour, of which the "
                       "similar ones are found")
    near: int = Field(default=128, ge=1, description="most similar nodes whose neighbours are "
                      "summed")
    capacity: int = Field(default=1_000_000, ge=16, description="pairs that are kept, at most; "
                          "those with the least decayed counts are dropped")

    @classmethod
    def tiny(cls):
        return cls(rounds=2, hidden=4, sampled=20, negatives=3, stages=2, capacity=400)

    def start(self, world: World) -> Server:
        server = super().start(world)
        server.counts, server.profiles = Counts(), Profiles()
        if edge_columns.there(world):
            server.edges = edge_columns.EdgeColumns(world)
        server.newton = Newton(self.ridge, width=edge_columns.width(world))
        server.keys = {side: np.empty(0, np.uint64) for side in ("users", "items")}
        server.samples, server.gains, server.chosen, server.levels = [], {}, [], True
        server.level = level.Level()
        return server

    def arrive(self, server, clients, at: At) -> None:
        renumber(server, server.stage)
        logits = None
        if at.R and server.snapshot.known.any():    # of the stages before
            logits = self.scorer(server, clients)
        self.learn(server, clients.world, at.t, logits)
        super().arrive(server, clients, at)

    def learn(self, server: Server, world: World, t: int, logits: Any) -> None:
        """Score the stage's edges as new ones, count them, and fit the weights of the features."""
        graph, variants = pair_features.counter(server, world, t), server.newton.variants()
        sample = samples.take_in(
            graph, self.sampled, self.negatives, self.new, self.near_by, None, t,
            pair_features.beside(server, logits))
        server.samples = samples.kept_on(server.samples, sample, self.fade, self.stages, False)
        server.counts.trim(self.capacity)
        if edge_columns.there(world):
            server.edges.trim(self.capacity)
        server.cache.pop("scratch", None)
        answered = variants.get((server.chosen or ["all"])[-1], server.newton.w)
        samples.choose(server, list(variants), samples.measured(
            sample.own, sample.known, sample.edges, *samples.with_level(
                np.array(list(variants.values())), answered, server.level.answer)), new=False)
        server.newton.begin()
        for _ in range(STEPS):                      # w <- w - H^-1 g
            if server.newton.done:
                break
            server.newton.take(derivatives(server.samples, server.newton.trial), self.negatives)
        server.level.begin()
        rows = level.rows(server.samples, self.weights(server))
        while not server.level.done:
            server.level.take(level.derivatives(rows, server.level.trial))

    def weights(self, server: Server) -> np.ndarray:
        """Return the weights that answer, float64 [F]."""
        return server.newton.variants().get(server.chosen[-1], server.newton.w)

    @property
    def near_by(self) -> tuple[int, int, int]:
        """Return the bounds on neighbours, as features take them."""
        return self.items, self.users, self.near

    def answer(self, server, clients, at: At) -> dict[str, np.ndarray]:
        """Return the scores [Q] of queried pairs, and which of them are across clients."""
        server = ahead(server, deep=False)
        renumber(server, server.stage)
        logits = self.scorer(server, clients) if at.R else None
        levelled = server.levels and server.chosen[-1] not in newton.SIMPLE
        graph, asked = pair_features.counter(server, clients.world, at.t), server.queries
        shift = server.stage.num_src if server.stage.bipartite else 0
        a, b = (server.placement.part[e] for e in (asked.src, asked.dst + shift))
        return {"across": (a != b) & (a >= 0) & (b >= 0), "scores": scoring.scores(
            graph, asked, self.weights(server), lent(server.counts, None), self.near_by,
            pair_features.beside(server, logits),
            server.level.answer if levelled else level.START)}

    def report(self, server: Server) -> dict[str, Any]:
        """Return facts of the partition, and which answer was used after each stage."""
        return super().report(server) | samples.report(server)
