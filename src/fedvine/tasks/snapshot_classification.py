"""Node classification over snapshots, scored honestly: learn t, choose on t + 1, score t + 2.

Nodes are set aside by a hash of their names, some to choose by and some to score; their classes
are told to no method, in no stage. Once stage t is learned, the graph goes on without it: edges
and features of t + 1 and t + 2 arrive, no class does, and the model of stage t names the classes
of the nodes that are active there (DG-CoLearn, Appendix E.2; FedDGL).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedvine.core.errors import FedvineError, MethodError
from fedvine.core.rng import key
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream
from fedvine.tasks import metrics
from fedvine.tasks.shown import Axis, Lines, Picture, Rows, Score
from fedvine.tasks.task import Line, Task

AHEAD = {1: "val", 2: "test"}     # what is asked so many stages after the one that was learned


@dataclass(frozen=True)
class SnapshotQueries:
    """Nodes to classify: ``nodes`` int64 [Q] are numbers in the stream's ``src_ids``.

    ``ahead`` are the stages since the last one that was learned, up to the one that is asked
    about, as (what is new, all so far); none of their nodes has a class.
    """

    nodes: np.ndarray
    ahead: list[tuple[EventStream, EventStream]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.nodes)


class SnapshotClassification(Task):
    """The protocol of node classification over snapshots; a run keeps it beside its scores."""

    task: Literal["label"] = "label"  # type: ignore[assignment]

    data: ClassVar[Literal["stream", "classes", "graph"]] = "classes"
    server_graph: ClassVar[bool] = True
    scores: ClassVar[dict[str, Score]] = {
        "accuracy": Score("accuracy"), "f1_micro": Score("micro F1"), "f1_macro": Score("macro F1")}
    main: ClassVar[tuple[str, ...]] = ("accuracy", "f1_micro", "f1_macro")
    chosen_by: ClassVar[str] = "f1_micro"
    judged_by: ClassVar[tuple[str, str]] = ("f1_macro", "By macro F1")
    simple: ClassVar[tuple[str, ...]] = ("last_label", "common_dyn")
    mean_over: ClassVar[str] = "nodes set aside, two stages ahead"
    axes: ClassVar[tuple[Axis, ...]] = (Axis("accuracy, two stages ahead", (("accuracy", ""),)),
                                        Axis("macro F1", (("f1_macro", ""),)))
    ranked_by: ClassVar[tuple[str, ...]] = ("accuracy",)
    no_pairs: ClassVar[str] = ("This run names classes of nodes, not pairs; say --client and "
                               "--user, or --all.")

    val: float = Field(default=0.2, ge=0, lt=1, description="share of the nodes to choose by")
    test: float = Field(default=0.2, gt=0, lt=1, description="share of the nodes to score")
    known: bool = Field(default=False, description="nodes set aside are scored with their past: "
                        "their classes are known, and learned, up to the learned stage; for "
                        "classes that change")

    def scored(self, t: int, stages: int) -> list[int]:
        """Return one stage to choose by, and the one after it."""
        return [t + lead for lead in AHEAD if t + lead < stages]

    def period(self, plan: Plan, learned: int, t: int) -> str:
        """Return what stage ``t`` is scored for: "val" or "test"."""
        return AHEAD[t - learned]

    def scorer(self, part: EventStream, plan: Plan, name: str, seed: int) -> LabelScorer:
        """Return the scorer beside the server's graph.

        Raises :class:`FedvineError` for data without classes.
        """
        return LabelScorer(self, part, plan, name, seed)

    def summary(self, stages: list[Any], plan: Plan) -> dict[str, Any]:
        """Return ``{"test": ..., "val": ...}``, each with ``mean`` (over stages, weighted by
        nodes), ``client``, ``n``, ``stages`` (scores one by one) and ``parts`` (by client)."""
        return {period: summarise(stages, lead) for lead, period in AHEAD.items()}

    # -- what is shown ---------------------------------------------------------------------------
    def questions(self, partitions: bool = False, drawn: bool = True) -> str:
        """Return which nodes are asked about, and what a seed draws."""
        return ("Classes of nodes that were set aside, and that no method was told in any stage"
                + (" after the learned one" if self.known else "")
                + ": the model of each stage is asked about the nodes that are active two stages "
                "later; means over stages, weighted by nodes. A seed draws the nodes set aside and "
                "the initialisation.")

    def tables(self, summary: Mapping[str, Any]) -> list[str | Rows]:
        """Return accuracy and F1 of both periods, and accuracy by client."""
        found = summary["scores"]
        if not found["test"]["mean"]:
            return ["Nothing was scored: no node that was set aside has a class two stages after "
                    "one that was learned."]
        table = Rows(["asked", "n", *(self.scores[k].name for k in self.main)], [
            [name, f"{found[period]['n']['all']['n']:,}",
             *(self.text(k, found[period]["mean"][k]) for k in self.main)]
            for period, name in (("val", "one stage ahead, to choose by"),
                                 ("test", "two stages ahead")) if found[period]["mean"]])
        by = Rows(["client", "n", "accuracy"], [
            [name, f"{one['n']:,}", f"{one['accuracy']:.3f}"]
            for name, one in found["test"]["parts"].items()])
        return ["Classes of n nodes that were set aside, by the model of each stage, in stages "
                "that it has not seen; means over stages, weighted by nodes.", table,
                *(["By the client that has the node:", by] if by.rows else [])]

    def picture(self, summary: Mapping[str, Any], lines: Sequence[Line]) -> Picture:
        """Return accuracy and macro F1 by stage, one and two stages ahead."""
        found, plots = summary["scores"], []
        for score, title in (("accuracy", "accuracy"), ("f1_macro", "macro F1")):
            series = []
            for period, name in (("val", "one stage ahead"), ("test", "two stages ahead")):
                stages = found[period]["stages"]
                series.append((name, [s["stage"] + 1 for s in stages], [s[score] for s in stages]))
            plots.append(Lines(title, "stage that was asked about", series, limits=(0, 1.02),
                               legend=bool(plots)))
        return Picture(plots, same=True)

    # -- forecasts -------------------------------------------------------------------------------
    def candidates(self, part: EventStream) -> Sequence[str]:
        """Return the names of the classes."""
        assert part.nodes is not None
        return part.nodes.classes

    def ask(self, part: EventStream, plan: Plan, users: np.ndarray, guests: Sequence[str]
            ) -> dict[str, Any]:
        """Return the nodes themselves: all classes of a node are scored at once."""
        return {"nodes": users}

    def met(self, part: EventStream, plan: Plan) -> Callable[..., np.ndarray]:
        """Return a function that says whether a class is the one that the data give a node."""
        assert part.nodes is not None
        y = part.nodes.at(np.inf, part.num_src)[1]
        return lambda users, classes: y[users] == classes


class LabelScorer:
    """Asks for classes of active nodes that were set aside, and measures the answers."""

    def __init__(self, protocol: SnapshotClassification, part: EventStream, plan: Plan, name: str,
                 seed: int) -> None:
        if part.nodes is None or not (part.nodes.y >= 0).any():
            raise FedvineError(f"{part.name} has no classes of nodes; choose data that have, or "
                               "a method's target edges.")
        self.protocol, self.part, self.plan, self.name = protocol, part, plan, name
        draw = part.src_ids.keys(np.arange(part.num_src)) ^ np.uint64(key("aside", seed) % 2**64)
        place = (draw % np.uint64(10**6)).astype(float) / 10**6
        self.aside = np.where(place < protocol.test, 2,
                              np.where(place < protocol.test + protocol.val, 1, 0))
        self.whole = True           # the server's graph is what is asked about
        self.learned = -1           # the last stage that was learned
        self._asked: tuple[SnapshotQueries, np.ndarray] = (
            SnapshotQueries(np.empty(0, np.int64)), self.aside)

    def shown(self, events: EventStream, blind: bool = False) -> EventStream:
        """The events as a method sees them: without the classes of nodes that are set aside
        (``blind``: of any)."""
        known = events.nodes
        assert known is not None
        hidden = np.full(len(known), blind) if self.protocol.known or blind else (
            self.aside[known.node] > 0)
        return events.with_nodes(known.with_classes(np.where(hidden, -1, known.y)))

    def queries(self, t: int) -> SnapshotQueries:
        """Nodes that are active in stage ``t``, and how the graph came there since ``learned``."""
        events = self.plan.stage(self.part, t)
        active = np.unique(events.src if events.bipartite else
                           np.concatenate([events.src, events.dst])).astype(np.int64)
        past = self.plan.past(self.part, t)
        assert past.nodes is not None
        y = past.nodes.at(np.inf, self.part.num_src)[1][active]
        nodes = active[(y >= 0) & (self.aside[active] == t - self.learned)]
        ahead = [(self.shown(self.plan.stage(self.part, s), True),
                  self.shown(self.plan.past(self.part, s), True))
                 for s in range(self.learned + 1, t + 1)]
        self._asked = SnapshotQueries(nodes, ahead), y[(y >= 0) & (self.aside[active]
                                                                   == t - self.learned)]
        return self._asked[0]

    def given(self, asked: dict[str, Any]) -> SnapshotQueries:
        """Nodes that a person asks for, in the graph as it was last learned."""
        return SnapshotQueries(np.asarray(asked["nodes"], np.int64))

    @staticmethod
    def answered(answer: Any) -> Any:
        """What a person gets of an answer to :meth:`given`."""
        return answer

    def measure(self, t: int, answer: Any) -> dict[str, Any]:
        """Counts, ``accuracy``, ``f1_micro`` and ``f1_macro`` of scores [Q, classes].

        An answer may also be ``{"scores": ..., "client": names [Q]}``: whose nodes they are; then
        ``parts`` has right ones and all by client. Raises :class:`MethodError` when the answer
        does not fit.
        """
        asked, y = self._asked
        owner = None
        if isinstance(answer, Mapping):
            answer, owner = answer["scores"], np.asarray(answer["client"])
        scores, classes = np.asarray(answer, float), len(self.part.nodes.classes)  # type: ignore[union-attr]
        if scores.shape != (len(asked), classes) or not np.isfinite(scores).all():
            raise MethodError(f"The answer has the shape {scores.shape} for {len(asked)} nodes and "
                              f"{classes} classes, or values that are not finite; give one score "
                              "for each class.")
        if not len(asked):
            return {"n": {"n": 0}, "scores": {}}
        named = scores.argmax(1)
        micro, macro = metrics.f1(y, named, classes)
        found: dict[str, Any] = {"n": {"n": len(asked)}, "scores": {
            "accuracy": float((named == y).mean()), "f1_micro": micro, "f1_macro": macro}}
        if owner is not None:
            found["parts"] = {str(name): [int((named == y)[owner == name].sum()),
                                          int((owner == name).sum())] for name in np.unique(owner)}
        return found


def summarise(stages: list[Any], lead: int) -> dict[str, Any]:
    """Means over the stages that were scored ``lead`` stages after they were learned."""
    found = [(s.t + lead, s.found[s.t + lead]["all"]) for s in stages if s.t + lead in s.found]
    found = [(t, result) for t, result in found if result["scores"]]
    total = sum(result["n"]["n"] for _, result in found)
    mean = {k: sum(r["scores"][k] * r["n"]["n"] for _, r in found) / total
            for k in found[0][1]["scores"]} if found else {}
    parts: dict[str, list[int]] = {}
    for _, result in found:
        for name, (right, many) in result.get("parts", {}).items():
            mine = parts.setdefault(name, [0, 0])
            mine[0], mine[1] = mine[0] + right, mine[1] + many
    return {"mean": mean, "client": {"all": mean} if mean else {}, "n": {"all": {"n": total}},
            "stages": [{"stage": t, **r["n"], **r["scores"]} for t, r in found],
            "parts": {name: {"accuracy": right / many, "n": many}
                      for name, (right, many) in sorted(parts.items())}}
