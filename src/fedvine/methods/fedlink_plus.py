"""fedlink_plus: federated forecasts from counts, with one small model that all clients share.

Beyond FedLink. A client counts its own edges: items, users, pairs, steps from item to item, and
clocks (:mod:`fedvine.methods._fedlink_plus.counts`). A pair of a user and an item has 103
features of these counts (:mod:`fedvine.methods._fedlink_plus.features`), and its score is their sum
weighted by shared weights. The weights are those of a softmax of each edge against items that its
user did not meet, by Newton's method on derivatives that are summed over clients
(:mod:`fedvine.methods._fedlink_plus.newton`).

Users who are known to two clients travel: each gets what the other counts of them, as rows of pairs
by keyed hash (:mod:`fedvine.methods._fedlink_plus.travel`).

The weights rank the items of a user. A logistic regression on the score and on what is known of the
user, on sums over clients, too, brings the scores of different users to one level
(:mod:`fedvine.methods._fedlink_plus.level`).

The method checks itself. Before a stage is learned, some of its edges are ranked among 100 items by
the model, with other ridges, without each part of the features, by popularity, and by recency; what
was best over the last stages answers, by AUC, MRR and NDCG@10 of all pairs and of new ones. Where
popularity or recency was above the model in one of these scores, the odds of pairs that met before
are divided by 2, 4 or 8 if that brings it nearer.

A client can answer alone. What other clients add to the sums it cannot check, so it also learns
weights from its own edges, and where the common ones rank its newest edges worse it answers by its
own (``fallback``).

With ``noise`` all that leaves a client but its scores are sums with noise: two runs that differ in
one client, with all its edges, are hard to tell apart, as the summary's epsilon and delta say. No
finer unit can be accounted: an edge is part of the counts from which the features of many later
edges are made, so that a bound on each edge's term in the loss would not bound what the edge
changes. A client's whole part is bounded (:mod:`fedvine.aggregate.noise`), the weights of fewer
features are learned, in one step a stage, and the method does not check itself. Rows that travel
have no noise, so ``share`` must not be rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import PrivateAttr, model_validator

from fedvine.aggregate.aggregate import NoisySum, Part
from fedvine.aggregate.noise import from_fixed, shortened, spent
from fedvine.core.clients import Clients
from fedvine.core.errors import MethodError
from fedvine.core.expect import Array, Flag
from fedvine.core.method import (
    At,
    Client,
    Counting,
    Field,
    Method,
    Server,
    World,
    on_client,
)
from fedvine.core.refresh import Refresh, step_of
from fedvine.data.stream import EventStream
from fedvine.methods._fedlink.edges import kept
from fedvine.methods._fedlink_plus import edge_columns, level, newton, samples, scoring, travel
from fedvine.methods._fedlink_plus.counts import Counts
from fedvine.methods._fedlink_plus.features import PARTS, SIDES, Profiles, reasons
from fedvine.methods._fedlink_plus.level import Level
from fedvine.methods._fedlink_plus.newton import Newton, Noisy, Own, factors
from fedvine.methods._fedlink_plus.travel import Members
from fedvine.tasks.link_prediction import EdgeQueries

KEYS = Array("uint64", (None,), keys="unique")


class FedLinkPlus(Method):
    """Shared weights for features of counts; rows of users that several clients know travel."""

    name: ClassVar[str] = "fedlink_plus"
    refreshes: ClassVar[Refresh] = "event"
    revision: ClassVar[int] = 6         # curves of counts, first meetings lately, random walks
    space: ClassVar[dict[str, Any]] = {"ridge": (0.1, 10.0, "log"), "new": (1.0, 4.0, "log"),
                                      "fade": (0.7, 1.0)}

    aggregate: NoisySum = NoisySum()
    rounds: int = Field(default=10, ge=1, description="Newton steps a stage, at most")
    share: Literal["rows", "sums", "none"] = Field(
        default="rows", description="rows: clients exchange what they count of users and items "
        "that they both know; sums: secure sums of all clients' counts of items, by hash, and of "
        "derivatives; none: sums of derivatives alone")
    buckets: int = Field(default=1 << 14, ge=1, description="hashes of items whose counts are "
                         "summed where share is sums")
    sampled: int = Field(default=1000, ge=1, description="edges a client and stage in the loss; "
                         "with over 50 clients as many in all as of 50, but 10 each at least")
    negatives: int = Field(default=6, ge=1, description="items that an edge is compared with")
    stages: int = Field(default=10, ge=1, description="stages whose edges are in the loss")
    fade: float = Field(default=0.9, gt=0, le=1, description="what the weight of an edge in the "
                        "loss keeps from stage to stage")
    new: float = Field(default=2.0, gt=0, description="weight in the loss of a pair that did not "
                       "meet before; others weigh 1")
    ridge: float = Field(default=1.0, ge=0, description="ridge, in units of a feature's square")
    fresh: Refresh = Field(default="stage", description="what features know in the loss: the "
                           "stages before; or the events before, after every so many or each "
                           "(event), as with protocol.refresh")
    items: int = Field(default=64, ge=1, description="newest items of a user that similar users "
                       "are found by")
    users: int = Field(default=1024, ge=1, description="newest users of an item, of which the "
                       "similar ones are found")
    near: int = Field(default=128, ge=1, description="most similar users whose items are summed")
    capacity: int = Field(default=1_000_000, ge=16, description="pairs that a client keeps, at "
                          "most; those with the least decayed counts are dropped")
    fallback: bool = Field(default=True, description="a client also learns weights of its own, and "
                           "answers by them where those of all rank its newest edges worse; not "
                           "with noise")
    check: bool = Field(default=True, description="leave out what loses on the newest edges; "
                        "false, and always with noise: the whole model answers")
    calibrate: bool = Field(default=True, description="bring the scores of different users to one "
                            "level; not with noise")
    prefers: Literal["all", "new"] = Field(
        default="all", description="pairs whose scores decide what answers, where check is on: "
        "all and new ones alike, or those alone that did not meet before")
    without: tuple[str, ...] = Field(default=(), description="parts of the features that have no "
                                     f"weight, of {', '.join(PARTS)}, edges")
    clip: float = Field(default=0.3, gt=0, description="with noise, the largest L2 norm of a "
                        "client's mean derivatives")
    clip_counts: float = Field(default=30.0, gt=0, description="with noise, the largest L2 norm "
                               "of a client's counts of items in a stage")

    @property
    def edge_columns(self) -> bool:  # type: ignore[override]
        """Return whether weights and features of edges are learned from: not with noise."""
        return not self.noisy()

    _since: int = PrivateAttr(default=0)    # the first stage whose edges are sampled

    @classmethod
    def tiny(cls):
        return cls(rounds=3, sampled=20, negatives=3, stages=2, capacity=400)

    def counting(self, stages: int, server: Mapping[str, Any] | None = None) -> Counting | None:
        if self.noisy():
            return None
        same = self.model_copy(update={"rounds": 0, "calibrate": False, "check": False,
                                       "fallback": False})
        same._since = max(stages - self.stages, 0)
        return Counting(same, ("newton", "level", "gains", "chosen", "levels", "alone"),
                        ("own", "measured", "ranked"))

    def start(self, world: World) -> Server:
        width = edge_columns.width(world)
        search = (Noisy(width, self.clip * self.ridge, self.fade) if self.noisy()
                  else Newton(self.ridge, self.without, width))
        return Server(newton=search, level=Level(), users=Members(), items=Members(),
                      one_kind=False, gains={}, chosen=[], levels=True, alone={})

    def setup(self, client: Client) -> None:
        client.counts, client.profiles = Counts(), Profiles()
        if edge_columns.there(client.world):
            client.edges = edge_columns.EdgeColumns(client.world)
        client.keys = {side: np.empty(0, np.uint64) for side in SIDES}      # by local number
        client.shared = {side: np.empty(0, bool) for side in SIDES}
        client.samples, client.measured = [], np.zeros(0)
        client.ranked, client.observed = 0, -1      # edges in the measures; the stage
        client.met = samples.nobody(self.buckets) if self.share == "sums" else {}
        client.own = Own(self.ridge, self.without, edge_columns.width(client.world))

    @model_validator(mode="before")
    @classmethod
    def _sums_are_secure(cls, values: Any) -> Any:
        given = values.get("aggregate", {}) if isinstance(values, dict) else NoisySum()
        if isinstance(given, dict) and (values.get("share") == "sums" or given.get("noise")):
            return {**values, "aggregate": {"secure": True, **given}}
        return values

    def closed(self) -> frozenset[str]:
        """Return the functions of rows that travel, unless rows travel; of sums without noise."""
        return frozenset(() if self.share == "rows" else ("lend", "receive", "give", "look")) | (
            {"derive", "measures", "compare"} if self.noisy() else {"derive_means"})

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        for part in set(self.without) - {*PARTS, "edges"}:
            raise ValueError(f"there is no part {part} of the features; there are "
                             f"{', '.join(PARTS)}, edges")
        if self.noisy() and self.share == "rows":
            raise ValueError("noise is for sums, and rows that travel would show what it hides; "
                             'take share = "none" or "sums"')
        if self.noisy() and self.without:
            raise ValueError("with noise few features have a weight; leave out without")
        return self

    @property
    def checks(self) -> bool:
        """Return whether the method checks itself: its measures have no noise."""
        return self.check and not self.noisy()

    def noisy(self) -> bool:
        return self.aggregate.noise > 0

    def rounds_at(self, t: int) -> int:
        return 1 if self.noisy() else self.rounds + (level.STEPS if self.calibrate else 0)

    def levels(self, server: Server) -> bool:
        """Return whether scores are brought to a common level: those of weights of features."""
        chosen = (server.chosen or ["all"])[-1]
        return self.calibrate and not self.noisy() and chosen not in newton.SIMPLE

    def weights(self, server: Server) -> np.ndarray:
        """Return the weights that answer, float64 [F]."""
        chosen = (server.chosen or ["all"])[-1]
        return server.newton.w if chosen == "all" else server.newton.variants(milder=True).get(
            chosen, server.newton.w)

    def privacy(self, rounds: int) -> dict[str, Any]:
        uploads = rounds * (2 if self.share == "sums" else 1)
        return spent(self.aggregate.noise, uploads, self.aggregate.delta)

    # -- a stage ---------------------------------------------------------------------------------
    def arrive(self, server, clients, at: At) -> None:
        # Each client scores the new edges by every kind of answer, then counts them.
        before = {side: {n: travel.members(server, side).reported(n) for n in clients.names}
                  for side in SIDES}
        variants = server.newton.variants(milder=True)
        answered = [name in server.chosen[-1:] for name in variants]
        found = clients.call(
            self.observe, np.array(list(variants.values())), int(np.argmax(answered)),
            server.level.answer,
            expect={"one_kind": Flag(), "alone": Flag(), **dict.fromkeys(SIDES, KEYS)},
            per_client={n: [before[side][n] for side in SIDES] for n in clients.names})
        for name, reply in found.items():
            if reply["alone"]:
                server.alone = {**server.alone, name: server.alone.get(name, 0) + 1}
        if self.checks:
            samples.choose(server, list(variants), self.summed(
                clients, self.measures, 1 + 2 * len(samples.MEASURES) * (len(variants) + 1)),
                self.prefers == "new")
        else:
            server.chosen.append("all")
        server.newton.begin()
        server.level.begin()
        if self.share == "rows":
            travel.exchange(self, server, clients, found, before)
        elif self.share == "sums":
            total, came = clients.sum(self.counted, length=self.buckets)
            totals = from_fixed(total)
            if self.noisy():    # what is within three deviations of the noise is taken as nothing
                least = 3 * self.aggregate.deviation(self.clip_counts, len(clients.names))
                totals = np.where(totals > least, totals, 0.0)
            away = sorted(set(clients.names) - set(came))
            clients.call(self.total, totals.astype(np.float32), away, expect=None)

    def round(self, server, clients, at: At) -> None:
        # w <- w - (H + m U^-2)^-1 g, with the sums of all clients' derivatives at w;
        # m = 0 unless that step did not lower the loss
        if server.newton.done or at.r > self.rounds:
            # b <- b - (H + I)^-1 (g + b - b_0), the same way, once the weights are found
            if self.levels(server) and not server.level.done:
                server.level.take(self.summed(clients, self.compare, level.LENGTH,
                                              self.weights(server), server.level.trial))
            return
        if self.noisy():
            server.newton.take(
                self.summed(clients, self.derive_means, newton.LENGTH, server.newton.w),
                self.aggregate.deviation(self.clip, len(clients.names)))
            return
        units = server.newton.units
        sums = self.summed(clients, self.derive, newton.length(len(units)),
                           server.newton.trial, units)
        server.newton.take(sums / factors(units), self.negatives)

    @on_client
    def observe(self, client: Client, variants: np.ndarray, answered: int, b: np.ndarray,
                reported: list[int]) -> dict[str, Any]:
        """Sample the stage's edges with their features, score them by ``variants``, count them.

        ``b`` is the common level of the variant that ``answered``. Returns the keys of nodes that
        were not reported yet, none unless rows travel; and whether the last answers were by
        weights of its own, in place of that variant.
        """
        stage, counts, grain = client.stage, client.counts, self.aggregate.grain
        t = self.aggregate.begins(client)
        joins = self.short(client) or (bool(client.samples) and self.aggregate.waited(client))
        _, alone = client.own.better(variants[answered], client.samples)
        sample = samples.take_in(
            client, samples.each(client, self.sampled, grain) if t >= self._since else 0,
            self.negatives, self.new, self.near_by, step_of(self.fresh), t,
            ranked=samples.each(client, samples.RANKED, grain) if self.checks else 0)
        out = self.aggregate.given(client) == "out"
        if out:         # nothing of the stage, and of what waited, is in later sums either
            sample = sample._make(column[:0] for column in sample)
            if joins:
                client.samples[-1] = {key: x[:0] for key, x in client.samples[-1].items()}
        client.samples = samples.kept_on(client.samples, sample, self.fade, self.stages, joins)
        counts.trim(self.capacity)
        if edge_columns.there(client.world):
            client.edges.trim(self.capacity)
        client.cache.clear()
        if self.fallback and not self.noisy() and len(client.world.clients) > 1:
            client.own.learn(client.samples, self.negatives)
        found = samples.measured(
            sample.own[sample.chosen], sample.known[sample.chosen], sample.ranks,
            *samples.with_level(variants, variants[answered], b))
        client.measured, client.ranked = samples.with_waiting(
            found, samples.compared(sample.ranks), client.measured,
            0 if self.aggregate.enough(client.ranked) and not self.aggregate.was_left_out(
                client, self.measures) else client.ranked)
        if self.share == "sums" and not out:
            client.met = samples.by_hash(
                client, self.buckets, client.met, self.aggregate.grain,
                self.aggregate.was_left_out(client, self.counted))
        client.sums["alone"] = alone
        if self.hides:      # one bit of this client's own edges, for weights of the server's choice
            alone = False
        one_kind, rows = not stage.bipartite, self.share == "rows"
        return {"one_kind": one_kind, "alone": alone,
                "users": client.keys["users"][reported[0]:None if rows and not one_kind else 0],
                "items": client.keys["items"][reported[1]:None if rows else 0]}

    # -- sums over clients -----------------------------------------------------------------------
    def summed(self, clients: Clients, function: Any, length: int, *same: Any) -> np.ndarray:
        """Return the sum of the clients' vectors float64 [length], exact in fixed point."""
        return from_fixed(clients.sum(function, *same, length=length)[0])

    @on_client(combined="sum")
    def measures(self, client: Client) -> Part:
        """Return whether there are measures of the stage, and these by variant, [9 + 8 V]."""
        return Part(client.measured, of=client.ranked)

    @on_client(combined="sum")
    def counted(self, client: Client) -> Part:
        """Return how often the stage meets the items of each hash, [buckets]."""
        return self.part(client.met["counts"], self.clip_counts, samples.users_of(
            client.met, self.buckets))

    @on_client
    def total(self, client: Client, totals: np.ndarray, away: Sequence[str] = ()) -> None:
        """Enter what the other clients counted of this client's items: all less its own.

        Those of the clients ``away`` did not come, and are not in the totals.
        """
        if client.name not in away:
            own = self.aggregate.whole(self.counted(client)).value
            totals = totals - (shortened(own, self.clip_counts) if self.noisy() else own)
        samples.enter_totals(client, np.maximum(totals, 0.0))
        client.cache.clear()

    @on_client(combined="sum", whole=True)
    def derive(self, client: Client, w: np.ndarray, units: np.ndarray) -> Part:
        """Return this client's sums of the loss and its derivatives at ``w``, in ``units``."""
        # The difference of two stages' sums is of the newest edges, so too few of them wait.
        found = newton.derivatives(self.ready(client), w) * factors(units)
        # Units are those of the sums before; where they were far off the server asks again.
        return self.bounded(client, found)

    @on_client(combined="sum", whole=True)
    def compare(self, client: Client, w: np.ndarray, b: np.ndarray) -> Part:
        """Return this client's sums for a step of the common level at ``b``, [level.LENGTH]."""
        ready = self.ready(client)
        mark = w.tobytes(), len(ready)
        if client.cache.get("rows", (None,))[0] != mark:    # the same for all steps of a stage
            client.cache["rows"] = mark, level.rows(ready, w)
        return self.bounded(client, level.derivatives(client.cache["rows"][1], b))

    def ready(self, client: Client) -> list[dict[str, np.ndarray]]:
        """Return the sampled edges by stage, without the newest ones where these wait."""
        waits = self.short(client) or self.aggregate.given(client) == "wait"
        return client.samples[:len(client.samples) - waits]

    def bounded(self, client: Client, sums: np.ndarray) -> Part:
        """Return sums over the client's sampled edges, as fixed point can hold them."""
        return Part(np.clip(sums, -samples.MOST, samples.MOST),
                    of=sum(len(one["edges"]) for one in self.ready(client)))

    @on_client(combined="sum")
    def derive_means(self, client: Client, w: np.ndarray) -> Part:
        """Return this client's mean derivatives of the stage at ``w``; they get noise."""
        newest = client.samples[-1]
        return self.part(newton.means(newest, w), self.clip, len(newest["edges"]))

    def short(self, client: Client) -> bool:
        """Return whether the newest sampled edges are too few for a sum, and not none."""
        return bool(client.samples) and 0 < len(client.samples[-1]["edges"]) < self.aggregate.grain

    def part(self, found: np.ndarray, clip: float, of: int | np.ndarray) -> Part:
        """Return a client's part in a sum, with its bound where there is noise."""
        return Part(found, clip if self.noisy() else None, of=of)

    # -- rows that travel ------------------------------------------------------------------------
    @on_client
    def lend(self, client: Client, marks: dict[str, Any]) -> dict[str, Any]:
        """Return what this client counted of users and items that others know, too."""
        return travel.own_rows(client, marks)

    @on_client
    def receive(self, client: Client, sent: list[Any]) -> None:
        """Enter what other clients counted of this client's users and items."""
        users, items = sent
        if users is not None:
            travel.receive_rows(client.counts, users)
        if items is not None:
            travel.receive_items(client.counts, items)
        client.counts.trim(self.capacity)
        client.cache.clear()

    @on_client
    def look(self, client: Client, queries: EdgeQueries) -> dict[str, np.ndarray]:
        """Return local numbers and keys of the queried users without an edge here."""
        users = travel.unknown(client.counts, queries.src)
        return {"local": users, "key": client.past.src_ids.keys(users)}

    @on_client
    def give(self, client: Client, users: np.ndarray) -> dict[str, np.ndarray]:
        """Return the rows of users who are asked about elsewhere."""
        return travel.whole_rows(client.counts, users)

    # -- what answers ----------------------------------------------------------------------------
    @property
    def near_by(self) -> tuple[int, int, int]:
        """Return the bounds on neighbours, as features take them."""
        return self.items, self.users, self.near

    def answering(self, server: Server) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights and the level that answer."""
        used = self.levels(server) and server.levels
        return self.weights(server), server.level.answer if used else level.START

    def answer(self, server, clients, at: At):
        w, b = self.answering(server)
        if self.share != "rows" or len(clients.names) == 1:
            return clients.call(self.predict, w, b, None)
        return clients.call(self.predict, w, b, per_client=travel.lend_unknown(
            self, server, clients))

    @on_client
    def predict(self, client: Client, w: np.ndarray, b: np.ndarray,
                lent: dict[str, np.ndarray] | None, queries: EdgeQueries) -> np.ndarray:
        """Return scores float64 [Q]: weighted sums of the pairs' features, on a common level."""
        known = client.cache.get("better")      # the same for all questions of a stage
        if known is None or not (known[0] is client.samples and np.array_equal(known[1], w)):
            client.cache["better"] = known = (client.samples, w,
                                              client.own.better(w, client.samples))
        w, alone = known[2]
        kept = client.cache.get("lent")
        if kept is None or kept[0] is not lent:
            client.cache["lent"] = kept = lent, travel.lent(client.counts, lent)
        return scoring.scores(client, queries, w, kept[1], self.near_by,
                              b=level.START if alone else b)

    @on_client
    def explain(self, client: Client, queries: EdgeQueries) -> list[str]:
        """Return why each pair has its score, one text a pair, to a person's own question alone.

        Raises :class:`MethodError` where the library drew the pairs: texts name what was counted.
        """
        if client.asked is None or client.asked.kind != "given":
            raise MethodError("Reasons name what a client counted; they are for a person's own "
                              "questions, and this one was drawn to be scored.")
        lent = client.cache.get("lent", (None, travel.lent(client.counts, None)))[1]
        x = scoring.features(client, queries.src, queries.dst, queries.t, lent, self.near_by)
        return reasons(client, queries, x, lent)

    def refresh(self, client: Client, events: EventStream) -> None:
        """Count new events as the first ones of the next stage."""
        samples.count(client, kept(events))

    def report(self, server: Server) -> dict[str, Any]:
        """Return which answer was used after each stage, and who answered by its own weights."""
        found = samples.report(server)
        if server.alone:
            found["alone"] = server.alone
            each = ", ".join(f"{name} ({count} of {len(server.chosen)} stages)"
                             for name, count in sorted(server.alone.items()))
            found["said"]["alone"] = ("Answered by weights of their own, as those of all ranked "
                                      f"their newest edges worse: {each}.")
        return found
