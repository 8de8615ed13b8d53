"""Stages of a labelled graph: each is a task that brings new classes (class-incremental).

The classes are grouped in label order, a surplus is dropped, and each client meets the groups in an
order of its own (POWER, Section 4.1 and the authors' code).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from fedvine.core.errors import FedvineError
from fedvine.core.rng import rng
from fedvine.data.graph import Graph

TRAIN, VAL, TEST, HIDDEN = 0, 1, 2, 3
SHARES = (0.2, 0.4, 0.4)    # of training, validation and test


class TaskSettings(BaseModel):
    """The table ``[tasks]`` of an experiment on a labelled graph."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shares: tuple[float, float, float] | None = Field(
        default=None, description="of each class for training, validation, test; if not said the "
        "data set's, or 0.2, 0.4, 0.4")
    seed: int | None = Field(default=None, ge=0, description="what orders and splits are drawn "
                             "from; the run's seed if not said")
    keep_inter_task_edges: bool = Field(
        default=False, description="a task sees the whole graph of its client")
    orders: Literal["own", "same"] = Field(
        default="own", description="each client meets the tasks in an order of its own, or all in "
        "the same one")
    features: float = Field(default=1.0, ge=0, le=1, description="share of the features' values "
                            "that are known; the others are 0")
    edges: float = Field(default=1.0, ge=0, le=1, description="share of the clients' edges that "
                         "are known")
    labels: float = Field(default=1.0, gt=0, le=1, description="share of the training nodes whose "
                          "labels are known")


@dataclass(frozen=True)
class TaskPlan:
    """A plan whose stage ``t`` is, for a client, its t-th group of classes.

    - ``groups``: classes of each group
    - ``shares``: of a client's nodes of a class for training, validation and test
    - ``seed``: orders and splits are drawn from it, and from the client's name
    - ``keep_inter_task_edges``: true: a task sees the client's whole graph, as in the authors'
      code; false: the graph of its own nodes, as the paper says
    - ``labels``: share of the training nodes whose labels are known
    - ``orders``: "own": each client meets the groups in an order of its own; "same": all in one
      order
    """

    groups: tuple[tuple[int, ...], ...]
    shares: tuple[float, float, float] = (0.2, 0.4, 0.4)
    seed: int = 0
    keep_inter_task_edges: bool = False
    labels: float = 1.0
    orders: Literal["own", "same"] = "own"

    def __len__(self) -> int:
        return len(self.groups)

    def period(self, t: int) -> str:
        """Return "test": every task has nodes for validation and for the test."""
        return "test"

    def order(self, part: Graph) -> np.ndarray:
        """Return the groups in the order in which this client meets them, int [T]."""
        whose = part.name if self.orders == "own" else "all"
        return rng(self.seed, whose, "order").permutation(len(self.groups))

    def assign(self, part: Graph) -> tuple[np.ndarray, np.ndarray]:
        """Return the task and the use of every node, split class by class.

        Args:
            part: the client's graph with N nodes.

        Returns:
            Tasks int [N], -1 where the class is dropped or unknown; uses int [N]: ``TRAIN``,
                ``VAL``, ``TEST``, or ``HIDDEN`` for a training node without its label.
        """
        task, use = np.full(len(part), -1), np.full(len(part), TEST)
        for t, group in enumerate(self.order(part)):
            for label in self.groups[group]:
                nodes = np.flatnonzero(part.y == label)
                task[nodes] = t
                nodes = rng(self.seed, part.name, "split", label).permutation(nodes)
                train, val = (round(len(nodes) * s) for s in np.cumsum(self.shares[:2]))
                train = max(train, 1)  # a class that is here has a node to learn from
                use[nodes[:train]], use[nodes[train:max(val, train)]] = TRAIN, VAL
                use[nodes[max(round(train * self.labels), 1):train]] = HIDDEN
        return task, use

    def stage(self, part: Graph, t: int) -> Graph:
        """Return the graph of task ``t``; labels of nodes that are not for training are hidden."""
        task, use = self.assign(part)
        return self._seen(part, np.where((task == t) & (use == TRAIN), part.y, -1), task == t)

    def past(self, part: Graph, t: int) -> Graph:
        """Return the graph of all tasks up to ``t``, for methods that may keep everything."""
        task, use = self.assign(part)
        known = (task >= 0) & (task <= t)
        graph = self._seen(part, np.where(known & (use == TRAIN), part.y, -1), known)
        if self.keep_inter_task_edges:
            return graph
        own = task[known]
        return graph.kept(own[graph.edges[0]] == own[graph.edges[1]])

    def held_out(self, part: Graph, t: int) -> tuple[Graph, np.ndarray, np.ndarray, np.ndarray]:
        """Return what is needed to score task ``t``.

        Args:
            part: the client's graph.
            t: the task.

        Returns:
            The graph of the task without labels; the nodes to classify, numbers in it, int64 [Q];
                their classes [Q]; and which of them are for the test, bool [Q].
        """
        task, use = self.assign(part)
        graph = self._seen(part, np.full(len(part), -1), task == t)
        here = np.arange(len(part)) if self.keep_inter_task_edges else np.flatnonzero(task == t)
        nodes = np.flatnonzero((task[here] == t) & ((use[here] == VAL) | (use[here] == TEST)))
        return graph, nodes, part.y[here[nodes]], use[here[nodes]] == TEST

    def facts(self) -> dict[str, Any]:
        """Return the plan as plain values, for a run folder."""
        return asdict(self)

    def _seen(self, part: Graph, y: np.ndarray, nodes: np.ndarray) -> Graph:
        graph = part.seen_as(y)
        return graph if self.keep_inter_task_edges else graph.induced(np.flatnonzero(nodes))


def by_task(graph: Graph, classes: int = 2, *, shares: tuple[float, float, float] = SHARES,
            seed: int = 0, keep_inter_task_edges: bool = False, labels: float = 1.0,
            orders: Literal["own", "same"] = "own") -> TaskPlan:
    """Make tasks of ``classes`` classes each; classes left over are dropped.

    The other arguments are the fields of :class:`TaskPlan`. Raises :class:`FedvineError` if there
    are too few classes, or shares that are negative, come to more than 1, or leave no training.
    """
    count = len(graph.classes)
    if not 1 <= classes <= count:
        raise FedvineError(f"{graph.name} has {count} classes; a task cannot have {classes}.")
    if min(shares) < 0 or not 0 < sum(shares) <= 1 + 1e-9 or shares[0] <= 0:
        raise FedvineError("The shares of training, validation and test are positive and come to "
                           "at most 1.")
    groups = tuple(tuple(range(g * classes, (g + 1) * classes)) for g in range(count // classes))
    return TaskPlan(groups, (float(shares[0]), float(shares[1]), float(shares[2])), seed,
                    keep_inter_task_edges, labels, orders)
