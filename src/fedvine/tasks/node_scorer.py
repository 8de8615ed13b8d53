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
    """The queries about one part's nodes for validation and test, and the measures of the answers.

    Args:
        protocol: whether to choose among the classes of a task alone.
        part: the client's graph.
        plan: the tasks.
        name: name of the client.
    """

    def __init__(self, protocol: ClassIncremental, part: Graph, plan: TaskPlan, name: str) -> None:
        self.protocol, self.part, self.plan, self.name = protocol, part, plan, name
        self.drift = protocol.drifts(plan)
        self._scored: dict[int, tuple[NodeQueries, np.ndarray, np.ndarray]] = {}

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
        """Return counts and accuracies of an answer to ``queries(t)``.

        Args:
            t: the task.
            answer: scores [Q, classes]; the highest is the predicted class.

        Returns:
            ``{"n": {"n", "n_val"}, "scores": {"accuracy", "accuracy_val"}}``; accuracies are in [0,
                1], and left out where there are no nodes. Where the protocol measures drift also
                ``drift``: ``edges``, here the training nodes of the task, the share of them with
                ``new`` classes, and the scores of the commonest class (``methods/common.py``).

        Raises:
            MethodError: if the answer has another shape or values that are not finite.
        """
        asked, (_, _, test) = self.queries(t), self._scored[t]
        scores = np.asarray(answer, float)
        widths = self.plan.widths(self.part)
        if (scores.ndim != 2 or len(scores) != len(asked) or scores.shape[1] not in widths
                or not np.isfinite(scores).all()):
            raise MethodError(f'client "{self.name}" answered {scores.shape} for {len(asked)} '
                              f"nodes and {max(widths)} classes, or values that are "
                              "not finite; predict must give one score for each class.")
        found = self._scores(t, scores)
        drift = {"drift": self._drift(t)} if self.drift else {}
        return {"n": {"n": int(test.sum()), "n_val": int((~test).sum())}, "scores": found} | drift

    def _scores(self, t: int, scores: np.ndarray) -> dict[str, float]:
        """Return the accuracies of scores [Q, classes] of the nodes of task ``t``."""
        _, y, test = self._scored[t]
        if self.protocol.masked:
            own = self.plan.groups[self.plan.order(self.part)[t]]
            scores = np.where(np.isin(np.arange(scores.shape[1]), own), scores, -np.inf)
        right = scores.argmax(1) == y if len(y) else np.zeros(0, bool)
        return {f"accuracy{end}": float(right[mask].mean()) for end, mask in
                (("", test), ("_val", ~test)) if mask.any()}

    def _drift(self, t: int) -> dict[str, Any]:
        """Return how new the classes of task ``t`` are, and the scores of the commonest class.

        That class knows the tasks up to ``t`` alone, also where later ones were learned.
        """
        width = len(self.part.classes)
        before, now = (np.bincount(y[y >= 0], minlength=width) for y in (
            self.plan.past(self.part, t - 1).y, self.plan.stage(self.part, t).y))
        total = int(now.sum())
        common = np.tile((before + now) / max(1, (before + now).sum()), (len(self.queries(t)), 1))
        return {"edges": total, "rivals": {"common": self._scores(t, common)},
                "new": {"classes": float(now[before == 0].sum() / total)} if total else {}}
