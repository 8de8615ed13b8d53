"""Queries of class-incremental classification and the measures of their answers, for one client.

Which nodes are queried: :mod:`fedvine.tasks.class_incremental`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix

from fedvine.core.errors import MethodError
from fedvine.data.graph import Graph
from fedvine.tasks import class_measures
from fedvine.tasks.task_plan import TaskPlan

if TYPE_CHECKING:
    from fedvine.tasks.class_incremental import ClassIncremental


@dataclass(frozen=True)
class NodeQueries:
    """Nodes to classify: ``nodes`` int64 [Q] are numbers in ``graph``, whose labels are hidden."""

    graph: Graph
    nodes: np.ndarray

    def __len__(self) -> int:
        return len(self.nodes)


class NodeScorer:
    """The queries about nodes of one part for validation and test, and the measures of answers."""

    def __init__(self, protocol: ClassIncremental, part: Graph, plan: TaskPlan, name: str) -> None:
        self.protocol, self.part, self.plan, self.name = protocol, part, plan, name
        self.drift = protocol.drifts(plan)
        self.learned = -1           # the last task that was learned
        self._scored: dict[int, tuple[NodeQueries, np.ndarray, np.ndarray]] = {}
        self._counts: tuple[int, np.ndarray] = -1, np.zeros(len(part.classes), np.int64)

    def queries(self, t: int) -> NodeQueries:
        """Return the nodes of this client's t-th task that are not for training."""
        if t not in self._scored:
            graph, nodes, y, test = self.plan.held_out(self.part, t)
            self._scored[t] = NodeQueries(graph, nodes), y, test
        return self._scored[t][0]

    def given(self, asked: dict[str, Any]) -> NodeQueries:
        """Return the queries about nodes that a person asks for.

        ``asked`` has ``nodes``, numbers [Q] in the client's whole graph; or in another one, if it
        also has ``edges`` int64 [2, E], ``size`` [N, F] and the features, ``x`` float32 [N, F] or
        ``csr``, data, indices and indptr of a sparse matrix.
        """
        graph, nodes = self.part, np.asarray(asked["nodes"], np.int64)
        if "size" in asked:
            x = asked["x"] if "x" in asked else csr_matrix(
                tuple(asked["csr"]), shape=tuple(asked["size"]))
            graph = Graph.make(x, asked["edges"], np.full(asked["size"][0], -1),
                               classes=graph.classes, name=graph.name)
        return NodeQueries(graph.seen_as(np.full(len(graph), -1)), nodes)

    def ahead(self, t: int, queries: NodeQueries) -> Any:
        """Raise :class:`MethodError`: nodes of a labelled graph have no times."""
        raise MethodError(f'client "{self.name}" has a labelled graph, whose nodes have no times; '
                          "nothing comes between two tasks.")

    @staticmethod
    def answered(answer: Any) -> Any:
        """Return a method's answer to :meth:`given` as it is."""
        return answer

    def measure(self, t: int, answer: Any) -> dict[str, Any]:
        """Return counts and accuracies of an answer to ``queries(t)``: scores [Q, classes].

        Of m equal highest classes each counts 1 / m. Returns ``{"n": {"n", "n_val"}, "scores":
        {"accuracy", "accuracy_val", "common"}}``, in [0, 1], left out where there are no nodes.
        ``common`` is the accuracy of the client's commonest class so far, on the nodes for the
        test. Where there are such nodes also ``classes``
        (:func:`fedvine.tasks.class_measures.measured`); where the protocol measures drift
        ``drift``: ``edges``, here the training nodes of the task, the share of them with ``new``
        classes, and the scores of the commonest class (``methods/last_label.py``). Raises
        :class:`MethodError` for another shape or values that are not finite.
        """
        asked, (_, y, test) = self.queries(t), self._scored[t]
        scores = np.asarray(answer, float)
        widths = self.plan.widths(self.part)
        if (scores.ndim != 2 or len(scores) != len(asked) or scores.shape[1] not in widths
                or not np.isfinite(scores).all()):
            raise MethodError(f'client "{self.name}" answered {scores.shape} for {len(asked)} '
                              f"nodes and {max(widths)} classes, or values that are "
                              "not finite; predict must give one score for each class.")
        scores = self._masked(t, scores)
        found: dict[str, Any] = {"n": {"n": int(test.sum()), "n_val": int((~test).sum())},
                                 "scores": self._scores(t, scores)}
        if test.any():
            common = self._masked(t, self._known()[None].astype(float))[0]
            found["scores"]["common"] = class_measures.commonest(common, y[test])
            found["classes"] = class_measures.measured(y[test], scores[test])
        return found | ({"drift": self._drift(t)} if self.drift else {})

    def _masked(self, t: int, scores: np.ndarray) -> np.ndarray:
        """Return scores [Q, classes], minus infinity for classes that are not to choose."""
        if not self.protocol.masked:
            return scores
        own = self.plan.groups[self.plan.order(self.part)[t]]
        return np.where(np.isin(np.arange(scores.shape[1]), own), scores, -np.inf)

    def _scores(self, t: int, scores: np.ndarray) -> dict[str, float]:
        """Return the accuracies of scores [Q, classes] of the nodes of task ``t``."""
        _, y, test = self._scored[t]
        right = class_measures.shares(scores)[np.arange(len(y)), y]
        return {f"accuracy{end}": float(right[mask].mean()) for end, mask in
                (("", test), ("_val", ~test)) if mask.any()}

    def _known(self) -> np.ndarray:
        """Return the number of training nodes of each class so far, int64 [classes]."""
        if self._counts[0] != self.learned:
            y = self.plan.past(self.part, self.learned).y
            self._counts = self.learned, np.bincount(y[y >= 0], minlength=len(self.part.classes))
        return self._counts[1]

    def _drift(self, t: int) -> dict[str, Any]:
        """Return how new the classes of task ``t`` are, and the scores of the commonest class."""
        y = self.plan.stage(self.part, t).y
        now = np.bincount(y[y >= 0], minlength=len(self.part.classes))
        y = self.plan.past(self.part, t - 1).y
        before = np.bincount(y[y >= 0], minlength=len(now))
        total = int(now.sum())
        common = self._masked(t, np.tile(self._known().astype(float), (len(self.queries(t)), 1)))
        return {"edges": total, "rivals": {"common": self._scores(t, common)},
                "new": {"classes": float(now[before == 0].sum() / total)} if total else {}}
