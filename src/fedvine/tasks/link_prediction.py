"""Link prediction: the queries of a stage, and the scores of their answers.

A query is drawn from (part, seed, stage, row) alone, never by a method. Positives are the edges of
the stage that was not learned yet. They are asked among candidates, which are what a forecast could
name: items that the client knew before the stage began. A positive whose item is none is not asked,
but counted. Every score names its negatives and its pairs: all pairs, new pairs (not seen before at
this client, among items that the user has not met), travelled users (seen before at another
client), arrived users (travelled, without an edge at this client yet), and cold items (without an
edge at this client, among all items of the table of items).

Where nodes are of one kind, a node is not a negative of itself. Where edges have no direction
(:meth:`fedvine.data.stream.EventStream.both_ways`), an edge is queried from both of its ends:
against other nodes for the one, and for the other. A method scores (u, v) and (v, u), and the score
is the mean of both, so that it cannot depend on the order in which the ends were stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedvine.core.errors import FedvineError
from fedvine.core.expect import Measured
from fedvine.core.lookup import find
from fedvine.core.refresh import check_refresh, step_of
from fedvine.data.ids import Ids
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream
from fedvine.tasks import link_measures
from fedvine.tasks.chances import reliability
from fedvine.tasks.link_measures import SUBSETS, counted
from fedvine.tasks.link_scorer import EdgeQueries, Scorer, lists_are_cheap
from fedvine.tasks.link_tables import LEAST, SHOWN
from fedvine.tasks.metrics import period_means
from fedvine.tasks.shown import Shown
from fedvine.tasks.task import Task

__all__ = ["EdgeQueries", "LinkPrediction", "Scorer"]


class LinkPrediction(Task):
    """The protocol of link prediction; a run keeps it with its scores."""

    task: Literal["link"] = "link"  # type: ignore[assignment]

    revision: ClassVar[int] = 2         # candidates are known before the stage
    measured: ClassVar[Measured] = Measured(
        (*SUBSETS[1:], "unknown", "unasked", "unasked_new", "few", "users", "users_new"),
        counted=counted, above={"novelty": 64.0})
    federated: ClassVar[bool] = True
    resampled: ClassVar[bool] = True
    shown: ClassVar[Shown] = SHOWN
    no_self: ClassVar[bool] = True
    least: ClassVar[int] = LEAST
    candidates: Literal["known", "catalogue", "dataset", "roland"] = Field(
        default="known", description="what a positive is asked among, at a client: known: items "
        "with an edge there before the stage (nodes, where all are of one kind); catalogue: these "
        "and the items of the table of items, from its column since on; dataset: all items of the "
        "data, also later ones (TGB); roland: items known by the end of the stage, as in ROLAND's "
        "code, so that an item which nobody met before is nearly always right")
    negatives: Annotated[int, Field(ge=1)] | Literal["all"] = Field(
        default=100, description="random negatives a positive for MRR and hits, each at most once; "
        "all: every candidate")
    historical: float = Field(
        default=0.0, ge=0, le=1, description="share of those negatives that the user met before, "
        "and not in the stage, as far as there are such; 0.5 of 100 is TGB's rule")
    positives: int = Field(
        default=2000, ge=1, description="edges scored at most, a client and stage, drawn evenly; "
        "without directions each of an edge's two ends counts as one")
    ranking: bool | None = Field(
        default=None, description="also measure lists of the k most likely of all candidates, for "
        "users with an edge in the stage, at most 2,000, from the validation period on; if not "
        "said where that takes at most as many pairs as the other scores, and not in a federation")
    k: int = Field(default=10, ge=1, description="places of a list: the k of hit@k, recall@k, "
                   "NDCG@k, MAP@k and of sampled hits")
    lead: int = Field(default=1, ge=1, description="how many stages ahead is scored; 2 leaves one "
                      "between learning and the test, to choose by")
    cold: bool = Field(default=True, description="where there is a table of items, also score "
                       "items of it without an edge at the client, by themselves, among all of it")
    chances: int = Field(
        default=0, ge=0, description="users of each client who get a list of k items before every "
        "stage, whether they come or not, to learn how probable it is that what is listed is met "
        "in the next stage; 0: none")
    asked: Literal["graph", "clients"] = Field(
        default="graph", description="what methods whose server holds the graph are asked: its "
        "edges; or (clients) each client's own, the same pairs as all other methods")
    refresh: Literal["stage", "event"] | Annotated[int, Field(ge=1)] = Field(
        default="stage", description="when a client lets its own new events, before any round has "
        "learned them, into the local state that it answers from: not before their stage is "
        "learned; after every so many of them; or event, after each")

    @classmethod
    def tiny(cls) -> LinkPrediction:
        """Return a protocol with few queries."""
        return cls(negatives=5, positives=40, ranking=True)

    def summary(self, stages: list[Any], plan: Plan) -> dict[str, Any]:
        """Return the scores by period, and how probabilities fit, where these are learned."""
        found = super().summary(stages, plan)
        said = reliability(stages, lambda t, s: self.period(plan, t, s) != "train")
        return found | ({"test": found["test"] | {"chances": said}} if said else {})

    def settled(self, parts: Mapping[str, EventStream], plan: Plan) -> LinkPrediction:
        """Return the protocol with ``ranking`` decided, from the first stage that is reported."""
        if self.ranking is not None:
            return self
        cheap = bool(parts) and lists_are_cheap(self, parts, plan.began)
        return self.model_copy(update={"ranking": cheap})

    @classmethod
    def choices(cls) -> frozenset[str]:
        """Return the keys to choose by; coverage says what lists hold, not how good they are."""
        return super().choices() - {"coverage"}

    @classmethod
    def settings_for(cls, key: str) -> dict[str, Any]:
        """Return that lists are to be measured, for their scores."""
        return {"ranking": True} if key.removesuffix("_new") in link_measures.SCORES else {}

    @property
    def step(self) -> int | None:
        """Return after how many new events a client's answers are refreshed; None: never."""
        return step_of(self.refresh)

    def check(self, method: Any) -> None:
        """Raise :class:`FedvineError` for a method that cannot afford ``refresh``."""
        check_refresh(method, self.refresh)

    def scored(self, t: int, stages: int) -> list[int]:
        """Return the stage that is scored once stage ``t`` is learned: ``lead`` stages on."""
        return [t + self.lead] if t + self.lead < stages else []

    def scorer(self, part: EventStream, plan: Plan, name: str, seed: int) -> Scorer:
        """Return the scorer of one client's part."""
        return Scorer(self, part, plan, name, seed)

    def server_scorer(self, graph: EventStream, parts: Mapping[str, EventStream], plan: Plan,
                      seed: int) -> Any:
        """Return the scorer of the graph's edges, or of each client's own (``asked``).

        Raises :class:`FedvineError` for the latter where the clients' edges are not at hand.
        """
        whole = super().server_scorer(graph, parts, plan, seed)
        if self.asked == "graph":
            return whole
        if not parts:
            raise FedvineError("protocol.asked = clients needs the edges of each client, which a "
                               "federation's server does not have apart; leave it out.")
        return AskedByClient(whole, {name: self.scorer(part, plan, name, seed)  # type: ignore
                                     for name, part in parts.items()})

    def replicates_of(self, stages: list[Any], plan: Plan) -> dict[str, list[float | None]]:
        """Return the replicates of the test period's means, over the clients that these are of."""
        found = self.means(stages, plan)
        return period_means(stages, plan, counted, {
            key: [name for name in found["client"] if key in found["client"][name]
                  and found["n"][name].get(counted(key), 0) >= self.least]
            for key in found["mean"]})

    # -- forecasts -------------------------------------------------------------------------------
    def outcomes(self, part: EventStream) -> Ids:
        """Return the items by number."""
        return part.dst_ids

    def barred(self, part: EventStream, plan: Plan) -> np.ndarray | None:
        """Return the items that are no candidates at the plan's end: those without an edge before.

        With ``candidates = "catalogue"`` only those that are not listed yet.
        """
        table = part.dst_table
        if self.candidates == "dataset":
            return None
        found, known = np.ones(part.num_dst, bool), part.before(plan.bounds[-1])
        for ends in (known.dst,) if part.bipartite else (known.src, known.dst):
            found[np.asarray(ends)] = False
        if table is not None and self.candidates == "catalogue":
            found &= ~(np.asarray(table.known) & (table.since <= plan.bounds[-1]))
        return found if found.any() else None

    def ask(self, part: EventStream, plan: Plan, users: np.ndarray, guests: Sequence[str]
            ) -> dict[str, Any]:
        """Return every item for each of the users, at the time that the plan asks for."""
        src, dst = np.repeat(users, part.num_dst), np.tile(np.arange(part.num_dst), len(users))
        return self.pairs(plan, src, dst, guests)

    def pairs(self, plan: Plan, src: np.ndarray, dst: np.ndarray, guests: Sequence[str]
              ) -> dict[str, Any]:
        """Return the query about pairs in local numbers, int64 [P], at the plan's ``asked``."""
        return {"src": src, "dst": dst, "t": np.full(len(src), plan.asked),
                "guests": list(guests)}

    def met(self, part: EventStream, plan: Plan) -> Callable[..., np.ndarray]:
        """Return a function of users and items: whether they met before the plan's end."""
        seen = part.before(plan.bounds[-1]).both_ways()
        met = np.sort(seen.src.astype(np.int64) * part.num_dst + seen.dst)
        return lambda users, items: find(met, users.astype(np.int64) * part.num_dst + items) >= 0


# -- the clients' own queries, asked of a server that holds the graph ------------------------------
# So a method whose server holds the graph, and methods whose clients keep their edges, answer the
# same pairs.
class AskedByClient:
    """The scorers of all clients' parts, and that of the whole graph for a person's questions."""

    whole = True

    def __init__(self, whole: Scorer, clients: Mapping[str, Scorer]) -> None:
        self.clients, self.part, self.learned = dict(clients), whole.part, -1
        # All else is asked of the whole graph.
        self.shown, self.given, self.answered = whole.shown, whole.given, whole.answered
        self.ahead, self.measure = whole.ahead, whole.measure
        self._numbers = {name: tuple(
            getattr(self.part, ids).numbers(getattr(one.part, ids)) for ids in (
                "src_ids", "dst_ids")) for name, one in self.clients.items()}

    def queries(self, t: int) -> EdgeQueries:
        """Return the queries of all clients in the graph's numbers, one client after the other."""
        found = [(users[asked.src], items[asked.dst], asked.t) for name, one in
                 self.clients.items() for asked in (one.queries(t),)
                 for users, items in (self._numbers[name],)]
        return EdgeQueries(*(np.concatenate(column) for column in zip(*found, strict=True)))

    def by_client(self, t: int, answer: Any) -> dict[str, dict[str, Any]]:
        """Return what each client's scorer measures of its own queries."""
        scores = np.asarray(answer["scores"] if isinstance(answer, Mapping) else answer)
        ends = np.cumsum([len(one.queries(t)) for one in self.clients.values()])[:-1]
        return {name: one.measure(t, mine) for (name, one), mine in zip(
            self.clients.items(), np.split(scores.reshape(-1), ends), strict=True)}
