"""Node classification over snapshots: learn stage t, choose settings on t + 1, score t + 2.

Nodes are set aside by a hash of their names, some for validation and some for the test, which has
the same ones with every seed; no method ever sees their classes. After stage t was learned, the
edges and features of t + 1 and t + 2 arrive without any class, and the model of stage t predicts
the classes of the nodes that are active there (DG-CoLearn, Appendix E.2; FedDGL).

With ``forgetting`` the model of each stage is also asked about every stage so far: a[l, j] is the
accuracy, after stage l was learned, on the test nodes that were active in stage j, on the snapshot
of stage j. A method answers with the weights and states that it has after l. Forgetting (Chaudhry
et al., ECCV 2018; DG-CoLearn, Appendix G) after stage k is

    F_k = mean over j < k of (max over j <= l < k of a[l, j]) - a[k, j]

and negative where later stages made the model better on earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedvine.core.errors import FedvineError, MethodError
from fedvine.core.rng import key, mixed
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream
from fedvine.tasks import class_measures
from fedvine.tasks.shown import Axis, Rows, Score, Shown
from fedvine.tasks.task import Labelled, Task

__all__ = ["LabelScorer", "SnapshotClassification", "SnapshotQueries"]

AHEAD = {1: "val", 2: "test"}     # period by number of stages after the learned one


class LabelShown(Shown):
    """What is shown of classes over snapshots; a ``task`` is :class:`SnapshotClassification`."""

    def questions(self, task: Any, partitions: bool = False, drawn: bool = True) -> str:
        """Return the sentences about the nodes that are scored, and what a seed draws."""
        return ("Classes of nodes that were set aside, and that no method was told in any stage"
                + (" after the learned one" if task.known else "")
                + ": the model of each stage is asked about the nodes that are active two stages "
                "later; means over stages, weighted by nodes. A seed draws the nodes to choose by "
                "and the initialisation; the test's are the same for all.")

    def tables(self, task: Any, summary: Mapping[str, Any]) -> list[str | Rows]:
        """Return the scores of both periods, and accuracy by client."""
        found = summary["scores"]
        if not found["test"]["mean"]:
            return ["Nothing was scored: no node that was set aside has a class two stages after "
                    "one that was learned."]
        keys = [*self.main, "balanced", "common"]
        table = Rows(["asked", "n", *(self.scores[k].name for k in keys)], [
            [name, f"{found[period]['n']['all']['n']:,}",
             *(self.text(k, found[period]["mean"].get(k)) for k in keys)]
            for period, name in (("val", "one stage ahead, to choose by"),
                                 ("test", "two stages ahead")) if found[period]["mean"]])
        by = Rows(["client", "n", "accuracy"], [
            [name, f"{one['n']:,}", f"{one['accuracy']:.3f}"]
            for name, one in found["test"]["parts"].items()])
        return ["Classes of n nodes that were set aside, by the model of each stage, in stages "
                "that it has not seen; means over stages, weighted by nodes. "
                "Balanced: the mean recall of the classes; commonest: the accuracy of always "
                "answering the most frequent class that was shown.", table,
                *(["By the client that has the node:", by] if by.rows else [])]

class SnapshotClassification(Task):
    """The protocol of node classification over snapshots; a run keeps it with its scores."""

    task: Literal["label"] = "label"  # type: ignore[assignment]

    revision: ClassVar[int] = 2         # the same nodes are scored with every seed
    data: ClassVar[Literal["stream", "classes", "graph"]] = "classes"
    server_graph: ClassVar[bool] = True
    federated: ClassVar[bool] = True
    shown: ClassVar[Shown] = LabelShown(
        scores={
            "accuracy": Score("accuracy"), "f1_micro": Score("micro F1"),
            "f1_macro": Score("macro F1"), "balanced": Score("balanced"),
            "common": Score("commonest"), "forgetting": Score("forgetting", falling=True)},
        main=("accuracy", "f1_micro", "f1_macro"),
        chosen_by="f1_micro",
        tried=("last_label", "common_dyn", "mlp_dyn:target=classes", "fedavg_dyn:target=classes",
               "dgcolearn:target=classes"),
        judged_by=("f1_macro", "By macro F1"),
        simple=("last_label", "common_dyn"),
        mean_over="nodes set aside, two stages ahead",
        means="means over stages, weighted by nodes",
        axes=(Axis("accuracy, two stages ahead", (("accuracy", ""),)),
                                            Axis("macro F1", (("f1_macro", ""),))),
        ranked_by=("accuracy",))
    no_pairs: ClassVar[str] = ("This run names classes of nodes, not pairs; say --client and "
                               "--user, or --all.")

    val: float = Field(default=0.2, ge=0, lt=1, description="share of the nodes to choose by")
    test: float = Field(default=0.2, gt=0, lt=1, description="share of the nodes to score")
    known: bool = Field(default=False, description="nodes set aside are scored with their past: "
                        "their classes are known, and learned, up to the learned stage; for "
                        "classes that change")
    forgetting: bool = Field(default=False, description="the model of each stage is also asked "
                             "about all stages so far, on their own snapshots: forgetting")

    def scored(self, t: int, stages: int) -> list[int]:
        """Return one stage for validation, and the one after it for the test.

        With ``forgetting`` all stages so far come before them.
        """
        return [*range(t + 1 if self.forgetting else 0),
                *(t + lead for lead in AHEAD if t + lead < stages)]

    def period(self, plan: Plan, learned: int, t: int) -> str:
        """Return the period that stage ``t`` is scored for: "val", "test", or "past"."""
        return AHEAD.get(t - learned, "past")

    def refuses(self, stream: EventStream) -> str:
        """Return the sentence that data without classes get."""
        if stream.nodes is not None and (stream.nodes.y >= 0).any():
            return ""
        return (f"{stream.name} has no classes of nodes; choose data that have, or a method's "
                "target edges.")

    def scorer(self, part: EventStream, plan: Plan, name: str, seed: int) -> LabelScorer:  # type: ignore
        """Return the scorer of the server's graph; raise for data without classes."""
        return LabelScorer(self, part, plan, name, seed)

    def summary(self, stages: list[Any], plan: Plan) -> dict[str, Any]:
        """Return ``{"test": ..., "val": ...}``.

        Each has ``mean`` (over stages, weighted by nodes), ``client``, ``n``, ``stages`` (scores
        one by one) and ``parts`` (by client). The means of the test have ``forgetting`` after the
        last stage, where it was measured.
        """
        found = {period: summarise(stages, lead) for lead, period in AHEAD.items()}
        lost = forgotten({(s.t, j): by["all"]["scores"]["accuracy"] for s in stages
                          for j, by in s.found.items() if j <= s.t and by["all"]["scores"]})
        if lost and found["test"]["mean"]:
            found["test"]["mean"]["forgetting"] = lost[max(lost)]
        return found

    # -- forecasts -------------------------------------------------------------------------------
    def outcomes(self, part: EventStream) -> Sequence[str]:
        """Return the names of the classes."""
        assert part.nodes is not None
        return part.nodes.classes

    def ask(self, part: EventStream, plan: Plan, users: np.ndarray, guests: Sequence[str]
            ) -> dict[str, Any]:
        """Return the nodes themselves: all classes of a node are scored at once."""
        return {"nodes": users}

    def met(self, part: EventStream, plan: Plan) -> Callable[..., np.ndarray]:
        """Return a function of nodes and classes: whether the data give the node the class."""
        y = self.labelled(part).y
        return lambda users, classes: y[users] == classes

    def labelled(self, part: EventStream) -> Labelled:
        """Return all nodes with the classes that the data give them."""
        assert part.nodes is not None
        return Labelled(part.src_ids, part.nodes.at(np.inf, part.num_src)[1], part.nodes.classes)


def forgotten(accuracy: Mapping[tuple[int, int], float]) -> dict[int, float]:
    """Compute forgetting F_k by stage k, of the accuracies a[l, j] by (l, j); j <= l.

    Stages without nodes are not in ``accuracy``, and those without an earlier one in the result.
    """
    found = {}
    for k in sorted({learned for learned, _ in accuracy}):
        before = [j for learned, j in accuracy if learned == k and j < k]
        lost = [max(a for (learned, i), a in accuracy.items() if i == j and learned < k)
                - accuracy[k, j] for j in before]
        if lost:
            found[k] = sum(lost) / len(lost)
    return found


def summarise(stages: list[Any], lead: int) -> dict[str, Any]:
    """Compute ``mean, client, n, stages, parts`` of stages scored ``lead`` after the learned one.

    Means are weighted by nodes; ``lead`` is 1 for validation, 2 for the test.
    """
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


# -- queries of node classification over snapshots and the measures of their answers ---------------
# Which nodes are queried: :mod:`fedvine.tasks.snapshot_classification`.
@dataclass(frozen=True)
class SnapshotQueries:
    """Nodes to classify: ``nodes`` int64 [Q] are numbers in the stream's ``src_ids``.

    ``ahead`` are the stages after the last learned one, up to the one that is scored, each as
    (events of the stage, all events so far); none of their nodes has a class. ``again`` are, where
    the stage that is asked about was learned before, the events of all stages up to it: the nodes
    are named on its snapshot, by the model as it is.
    """

    nodes: np.ndarray
    ahead: list[tuple[EventStream, EventStream]] = field(default_factory=list)
    again: list[EventStream] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.nodes)


class LabelScorer:
    """The queries about active nodes that were set aside, and the measures of the answers.

    Nodes of the test are told by their names alone, so that no search of settings chooses by those
    of another seed; which others are set aside to choose by, ``seed`` decides, too. Raises
    :class:`FedvineError` for data without classes.
    """

    def __init__(self, protocol: SnapshotClassification, part: EventStream, plan: Plan, name: str,
                 seed: int) -> None:
        if why := protocol.refuses(part):
            raise FedvineError(why)
        self.protocol, self.part, self.plan, self.name = protocol, part, plan, name
        names = part.src_ids.keys(np.arange(part.num_src))
        test, val = ((mixed(names ^ np.uint64(key(*of) % 2**64)) % np.uint64(10**6)).astype(float)
                     / 10**6 for of in (("aside",), ("aside", seed)))
        self.aside = np.where(test < protocol.test, 2,
                              np.where(val * (1 - protocol.test) < protocol.val, 1, 0))
        self.whole = True           # queries are about the server's whole graph
        self.learned = -1           # the last stage that was learned
        self.drift = protocol.drifts(plan)
        self._scored: tuple[SnapshotQueries, np.ndarray] = (
            SnapshotQueries(np.empty(0, np.int64)), self.aside)
        self._told: tuple[int, np.ndarray] = -2, self.aside     # classes shown up to a stage

    def shown(self, events: EventStream, blind: bool = False) -> EventStream:
        """Return the events without classes of nodes set aside, or with ``blind`` of any node."""
        known = events.nodes
        assert known is not None
        hidden = np.full(len(known), blind) if self.protocol.known or blind else (
            self.aside[known.node] > 0)
        return events.with_nodes(known.with_classes(np.where(hidden, -1, known.y)))

    def queries(self, t: int) -> SnapshotQueries:
        """Return the nodes set aside that are active in stage ``t``, with the stages ahead.

        Of a stage that was learned they are those of the test.
        """
        events = self.plan.stage(self.part, t)
        active = np.unique(events.src if events.bipartite else
                           np.concatenate([events.src, events.dst])).astype(np.int64)
        past = self.plan.past(self.part, t)
        assert past.nodes is not None
        y = past.nodes.at(np.inf, self.part.num_src)[1][active]
        mine = (y >= 0) & (self.aside[active] == (t - self.learned if t > self.learned else 2))
        nodes = active[mine]
        ahead = [(self.shown(self.plan.stage(self.part, s), True),
                  self.shown(self.plan.past(self.part, s), True))
                 for s in range(self.learned + 1, t + 1)]
        again = [] if t > self.learned else [
            self.shown(self.plan.stage(self.part, s), True) for s in range(t + 1)]
        self._scored = SnapshotQueries(nodes, ahead, again), y[mine]
        return self._scored[0]

    def given(self, asked: dict[str, Any]) -> SnapshotQueries:
        """Return the queries about nodes that a person asks for, after the last learned stage.

        ``asked`` has ``nodes``, numbers in ``src_ids``, [Q].
        """
        return SnapshotQueries(np.asarray(asked["nodes"], np.int64))

    @staticmethod
    def answered(answer: Any) -> Any:
        """Return a method's answer to :meth:`given` as it is."""
        return answer

    def by_client(self, t: int, answer: Any) -> dict[str, dict[str, Any]]:
        """Return what :meth:`measure` does; all clients are asked together."""
        return {"all": self.measure(t, answer)}

    def measure(self, t: int, answer: Any) -> dict[str, Any]:
        """Return counts, accuracy and F1 of an answer to the last :meth:`queries`.

        An answer is scores [Q, classes], or ``{"scores": ..., "client": names [Q]}`` with the
        client that holds each node. Returns ``{"n", "scores": {"accuracy", "f1_micro", "f1_macro",
        "balanced", "common"}}``, in [0, 1]; of m classes with equal scores each counts 1 / m.
        ``common`` is the accuracy of the commonest class that was shown. Where clients are named
        also ``parts``, right answers and nodes by client. Raises :class:`MethodError` for another
        shape or values not finite.
        """
        asked, y = self._scored
        owner = None
        if isinstance(answer, Mapping):
            answer, owner = answer["scores"], np.asarray(answer["client"])
        scores, classes = np.asarray(answer, float), len(self.part.nodes.classes)  # type: ignore[union-attr]
        if scores.shape != (len(asked), classes) or not np.isfinite(scores).all():
            raise MethodError(f"The answer has the shape {scores.shape} for {len(asked)} nodes and "
                              f"{classes} classes, or values that are not finite; give one score "
                              "for each class.")
        drift = {"drift": self._drift(t)} if self.drift and t > self.learned else {}
        if not len(asked):
            return {"n": {"n": 0}, "scores": {}, **drift}
        named = class_measures.shares(scores)
        right = named[np.arange(len(y)), y]
        found: dict[str, Any] = {"n": {"n": len(asked)}, "scores": self._scores(named), **drift}
        if owner is not None:
            found["parts"] = {str(name): [float(right[owner == name].sum()),
                                          int((owner == name).sum())] for name in np.unique(owner)}
        return found

    def _scores(self, named: np.ndarray) -> dict[str, float]:
        """Return the scores of predicted classes, shares [Q, classes], of the last queries."""
        y = self._scored[1]
        found = class_measures.overall(class_measures.confusion(y, named))
        return {"accuracy": found["accuracy"], "f1_micro": found["accuracy"],
                "f1_macro": found["f1_macro"], "balanced": found["balanced"],
                "common": class_measures.commonest(self._counts(), y)}

    def _shown_classes(self) -> np.ndarray:
        """Return the classes int [nodes] that were shown up to the learned stage, -1: none."""
        if self._told[0] != self.learned:
            shown = self.shown(self.plan.past(self.part, max(self.learned, 0))).nodes
            assert shown is not None
            self._told = self.learned, shown.at(np.inf, self.part.num_src)[1]
        return self._told[1]

    def _counts(self) -> np.ndarray:
        """Return the number of nodes that were shown with each class, int64 [classes]."""
        y = self._shown_classes()
        return np.bincount(y[y >= 0], minlength=len(self.part.nodes.classes))  # type: ignore[union-attr]

    def _drift(self, t: int) -> dict[str, Any]:
        """Return how new the nodes of stage ``t`` are, and simple rivals' scores of its queries.

        The rivals are those of ``methods/last_label.py``: they know the
        classes that were shown up to the learned stage.
        """
        events, past = self.plan.stage(self.part, t), self.plan.past(self.part, t - 1)
        known = np.zeros(self.part.num_src, bool)
        known[past.src] = True
        ends = events.src if events.bipartite else np.concatenate([events.src, events.dst])
        if not events.bipartite:
            known[past.dst] = True
        last = self._shown_classes()[self._scored[0].nodes]
        common = np.tile(self._counts().astype(float), (len(last), 1))
        own = common.copy()
        own[last >= 0] = np.eye(common.shape[1])[last[last >= 0]]
        return {"edges": len(events), "rivals": {
                    name: self._scores(class_measures.shares(scores)) if len(last) else {}
                    for name, scores in (("last_label", own), ("common_dyn", common))},
                "new": {"nodes": float(1 - known[ends].mean())} if len(ends) else {}}
