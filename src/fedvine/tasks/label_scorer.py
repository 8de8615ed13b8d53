"""Queries of node classification over snapshots and the measures of their answers.

Which nodes are queried: :mod:`fedvine.tasks.snapshot_classification`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvine.core.errors import FedvineError, MethodError
from fedvine.core.rng import key
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream
from fedvine.tasks import class_measures

if TYPE_CHECKING:
    from fedvine.tasks.snapshot_classification import SnapshotClassification


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

    With the nodes' names ``seed`` decides which nodes are set aside. Raises :class:`FedvineError`
    for data without classes.
    """

    def __init__(self, protocol: SnapshotClassification, part: EventStream, plan: Plan, name: str,
                 seed: int) -> None:
        if why := protocol.refuses(part):
            raise FedvineError(why)
        self.protocol, self.part, self.plan, self.name = protocol, part, plan, name
        draw = part.src_ids.keys(np.arange(part.num_src)) ^ np.uint64(key("aside", seed) % 2**64)
        place = (draw % np.uint64(10**6)).astype(float) / 10**6
        self.aside = np.where(place < protocol.test, 2,
                              np.where(place < protocol.test + protocol.val, 1, 0))
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

        The rivals are those of ``methods/last_label.py`` and ``common_dyn.py``: they know the
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
