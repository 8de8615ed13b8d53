"""Node classification over tasks: what is asked, and the matrix of accuracies.

A[i, j] is the accuracy on task j once task i was learned, over the clients weighted by their
nodes. AM is the mean of the last row, FM the mean of A[j, j] - A[T, j] over the tasks before the
last (POWER, Section 4.1). A method answers with scores of all classes; the library takes the
largest, over all classes (class-incremental) or over those of the task (``masked``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from fedvine.core.errors import MethodError
from fedvine.core.expect import Measured
from fedvine.data.graph import Graph
from fedvine.tasks.task_plan import TaskPlan


@dataclass(frozen=True)
class NodeQueries:
    """Nodes to classify: ``nodes`` int64 [Q] are numbers in ``graph``, whose labels are hidden."""

    graph: Graph
    nodes: np.ndarray

    def __len__(self) -> int:
        return len(self.nodes)


class ClassIncremental(BaseModel):
    """The protocol of node classification; a run keeps it beside its scores."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: Literal["node"] = "node"
    measured: ClassVar[Measured] = Measured(("val",))       # what a client may answer
    masked: bool = Field(default=False, description="choose among the classes of the task alone "
                         "(task-incremental), not among all classes")

    curves: bool = Field(default=False, description="measure the clients' models also when they "
                         "have just received the global one, and after each local epoch")

    def scored(self, t: int, stages: int) -> list[int]:
        """Every task so far, once task ``t`` is learned."""
        return list(range(t + 1))

    def period(self, plan: TaskPlan, learned: int, t: int) -> str:
        """What stage ``t`` is scored for: "train", "val" or "test"."""
        return plan.period(t)

    def scorer(self, part: Graph, plan: TaskPlan, name: str, seed: int) -> NodeScorer:
        """The scorer that lives beside one client's part."""
        return NodeScorer(self, part, plan, name)

    def summary(self, stages: list[Any], plan: TaskPlan) -> dict[str, Any]:
        """``{"test": ..., "val": ...}``, each with ``mean`` (``am``, ``fm``), ``client`` (the
        same by client), ``n`` (nodes) and ``matrix`` (A[i][j] for j <= i)."""
        return {period: summarise(stages, period) for period in ("test", "val")}


class NodeScorer:
    """Asks a part's nodes for validation and test, and measures the answers."""

    def __init__(self, protocol: ClassIncremental, part: Graph, plan: TaskPlan, name: str) -> None:
        self.protocol, self.part, self.plan, self.name = protocol, part, plan, name
        self._asked: dict[int, tuple[NodeQueries, np.ndarray, np.ndarray]] = {}

    def queries(self, t: int) -> NodeQueries:
        """Nodes of this client's t-th task that are not for training."""
        if t not in self._asked:
            graph, nodes, y, test = self.plan.asked(self.part, t)
            self._asked[t] = NodeQueries(graph, nodes), y, test
        return self._asked[t][0]

    def given(self, asked: dict[str, Any]) -> NodeQueries:
        """Nodes of the client's whole graph that a person asks for."""
        return NodeQueries(self.part.seen_as(np.full(len(self.part), -1)),
                           np.asarray(asked["nodes"], np.int64))

    @staticmethod
    def answered(answer: Any) -> Any:
        """What a person gets of an answer to :meth:`given`."""
        return answer

    def measure(self, t: int, answer: Any) -> dict[str, Any]:
        """Counts and accuracies (``accuracy``, ``accuracy_val``) of scores [Q, classes].

        Raises :class:`MethodError` when the answer does not fit.
        """
        asked, (_, y, test) = self.queries(t), self._asked[t]
        scores = np.asarray(answer, float)
        if scores.shape != (len(asked), len(self.part.classes)) or not np.isfinite(scores).all():
            raise MethodError(f'client "{self.name}" answered {scores.shape} for {len(asked)} '
                              f"nodes and {len(self.part.classes)} classes, or values that are "
                              "not finite; predict must give one score for each class.")
        if self.protocol.masked:
            own = self.plan.groups[self.plan.order(self.part)[t]]
            scores = np.where(np.isin(np.arange(scores.shape[1]), own), scores, -np.inf)
        right = scores.argmax(1) == y if len(y) else np.zeros(0, bool)
        found = {f"accuracy{end}": float(right[mask].mean()) for end, mask in
                 (("", test), ("_val", ~test)) if mask.any()}
        return {"n": {"n": int(test.sum()), "n_val": int((~test).sum())}, "scores": found}


def summarise(stages: list[Any], period: str) -> dict[str, Any]:
    """AM, FM and the matrix, over all clients and for each one, of ``"test"`` or ``"val"``."""
    end = "" if period == "test" else "_val"
    names = sorted({name for s in stages for by in s.found.values() for name in by})
    matrix = [[_accuracy(s.found.get(j, {}), names, end) for j in range(s.t + 1)] for s in stages]
    client = {n: _means([[_accuracy(s.found.get(j, {}), [n], end) for j in range(s.t + 1)]
                         for s in stages]) for n in names}
    counts = {n: {"n": sum(by[n]["n"][f"n{end}"] for by in stages[-1].found.values() if n in by)}
              for n in names} if stages else {}
    return {"mean": _means(matrix), "client": {n: m for n, m in client.items() if m}, "n": counts,
            "matrix": matrix}


def _accuracy(by: dict[str, Any], names: list[str], end: str) -> float | None:
    """Weighted by nodes; None where nobody has any."""
    pairs = [(by[n]["scores"][f"accuracy{end}"], by[n]["n"][f"n{end}"]) for n in names
             if n in by and f"accuracy{end}" in by[n]["scores"]]
    total = sum(w for _, w in pairs)
    return sum(v * w for v, w in pairs) / total if total else None


def _means(matrix: list[list[float | None]]) -> dict[str, float]:
    """AM and FM in percent, of the tasks that could be measured."""
    if not matrix:
        return {}
    last = matrix[-1]
    now = [a for a in last if a is not None]
    lost = [matrix[j][j] - last[j] for j in range(len(last) - 1)  # type: ignore[operator]
            if last[j] is not None and matrix[j][j] is not None]
    return ({"am": 100 * sum(now) / len(now)} if now else {}) | (
        {"fm": 100 * sum(lost) / len(lost)} if lost else {})
