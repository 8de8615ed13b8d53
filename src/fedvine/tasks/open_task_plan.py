"""Tasks of a labelled graph that grows: new classes are new tasks, the earlier tasks stay.

Tasks are opened in blocks, one each time that the graph was read and had something to learn:

- new classes make groups of ``size`` classes, in the order in which they came, the last one of
  those that are left
- new labelled nodes of classes of earlier blocks make one more group, which learns these nodes
  alone; fewer than :data:`LEAST` wait
- a client meets the groups of a block in an order of its own; blocks follow each other

A node is learned in the first block, from the one in which its label came, that has its class. Its
use is chosen among the nodes of its class that this block learns, so later nodes do not change it;
where test nodes are chosen in the whole graph, by the hashes of the block that first had the class.
A task sees the graph as it was when its block was opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.core.rng import rng
from fedvine.data.graph import Came, Graph, Owner
from fedvine.data.growing_graph import GraphNews, first, merged
from fedvine.tasks.task_plan import TaskPlan, TaskSettings, cuts_of, of_settings, plain

LEAST = 20      # new labelled nodes of earlier classes for which a task is opened


@dataclass(frozen=True)
class OpenTaskPlan(TaskPlan):
    """A plan that more tasks are added to, by :meth:`extended`.

    - ``blocks``: number of groups that were open after each opening
    - ``size``: classes of a group of new classes; None: all that came
    """

    blocks: tuple[int, ...] = ()
    size: int | None = None

    @staticmethod
    def of(facts: Mapping[str, Any]) -> OpenTaskPlan:
        """Return the plan of :meth:`facts`, also as JSON or TOML holds them."""
        return OpenTaskPlan(**plain(facts))

    def block(self, t: int) -> int:
        """Return the block of task ``t``."""
        return int(np.searchsorted(self.blocks, t, side="right"))

    @property
    def classes(self) -> int:
        """Number of classes that the tasks have."""
        return max((c + 1 for group in self.groups for c in group), default=0)

    @property
    def world(self) -> dict[str, Any]:
        """Return facts that all sides know of the stages: the number of classes at each."""
        return {"classes_at": self.classes_at}

    @cached_property
    def classes_at(self) -> list[int]:
        """Return the number of classes known at each stage: of its block and of all before."""
        most = np.maximum.accumulate([max(group) + 1 for group in self.groups])
        return [int(most[self.blocks[self.block(t)] - 1]) for t in range(len(self))]

    @property
    def living(self) -> bool:
        """Return whether further stages may come."""
        return True

    @property
    def began(self) -> OpenTaskPlan:
        """Return the plan with which the run began: the first block."""
        first = replace(self, groups=self.groups[:self.blocks[0]], blocks=self.blocks[:1])
        return first if self.cuts is None else replace(first, cuts=self.cuts[:first.classes])

    def since(self, part: Graph) -> int:
        """Return the first stage of a client: that of the block in which its first node came.

        A client without nodes is there from the start.
        """
        block = int(_came(part).node.min()) if len(part) else 0
        return self.blocks[block - 1] if block else 0

    def widths(self, part: Graph) -> set[int]:
        """Return the numbers of classes that are known at any stage."""
        return set(self.classes_at)

    def order(self, part: Graph) -> np.ndarray:
        """Return the groups in the order in which this client meets them, block after block."""
        whose = part.name if self.orders == "own" else "all"
        begins = (0, *self.blocks)
        return np.concatenate([np.zeros(0, np.int64), *(
            begin + rng(self.seed, whose, "order", *([k] if k else [])).permutation(end - begin)
            for k, (begin, end) in enumerate(zip(begins, self.blocks, strict=False)))])

    # -- growth ----------------------------------------------------------------------------------
    def extended(self, graph: Graph, now: bool = False) -> OpenTaskPlan:
        """Return the plan with one more block, if ``graph`` has enough to learn; else this plan.

        Args:
            graph: the whole graph, as it is now.
            now: learn what would have to wait, too.

        Returns:
            The plan.
        """
        made = self.extended_by(*self.waiting(graph), now)
        if self.cuts is None:
            return made
        return replace(made, cuts=(*self.cuts, *cuts_of(
            graph, self.shares[2], range(self.classes, made.classes))))

    def extended_by(self, classes: Sequence[int], waiting: Mapping[int, int], now: bool = False
                    ) -> OpenTaskPlan:
        """Return what :meth:`extended` does, given what :meth:`waiting` returns."""
        size = self.size or max(1, len(classes))
        groups = [tuple(classes[i:i + size]) for i in range(0, len(classes), size)]
        if waiting and sum(waiting.values()) >= (1 if now else LEAST):
            groups.append(tuple(sorted(waiting)))
        if not groups:
            return self
        every = (*self.groups, *groups)
        return replace(self, groups=every, blocks=(*self.blocks, len(every)))

    def waiting(self, graph: Graph) -> tuple[list[int], dict[int, int]]:
        """Return the classes that no task has, and counts of nodes that none learns, by class."""
        learned = self.classes
        task, _ = self.assign(graph)
        late = graph.y[(task < 0) & (graph.y >= 0) & (graph.y < learned)]
        counts = np.bincount(late, minlength=learned)
        return (list(range(learned, len(graph.classes))),
                {int(c): int(counts[c]) for c in np.flatnonzero(counts)})

    # -- the graph as it was at a stage ----------------------------------------------------------
    def _batch(self, part: Graph, task: np.ndarray, group: int, label: int
               ) -> tuple[np.ndarray, tuple[int, ...]]:
        block = self.block(group)
        begin = self.blocks[block - 1] if block else 0
        nodes = np.flatnonzero((part.y == label) & (_came(part).label <= block) & (task < 0))
        again = any(label in earlier for earlier in self.groups[:begin])
        return nodes, (label, block) if again else (label,)

    def _here(self, part: Graph, task: np.ndarray, t: int) -> np.ndarray:
        """Return the task's nodes, their neighbours of its classes from earlier tasks, and more.

        These are the nodes without a class, or where edges between tasks are kept all nodes.
        """
        block = self.block(t)
        if self.keep_inter_task_edges:
            return np.flatnonzero(_came(part).node <= block)
        own = task == t
        a, b = part.edges[:, _came(part).edge <= block]
        near = np.zeros(len(part), bool)
        near[b[own[a]]] = near[a[own[b]]] = True
        earlier = (task >= 0) & (task < t) & np.isin(part.y, self.groups[self.order(part)[t]])
        return np.flatnonzero(own | near & earlier | self._unlabelled(part, t))

    def _unlabelled(self, part: Graph, t: int) -> np.ndarray:
        block, came = self.block(t), _came(part)
        return (came.node <= block) & ((part.y < 0) | (came.label > block))

    def _linked(self, part: Graph, task: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return which edges lie in a task, or lead to earlier nodes of its classes, bool [E]."""
        has = np.zeros((len(self), self.classes), bool)
        for t, group in enumerate(self.order(part)):
            has[t, list(self.groups[group])] = True
        earlier = np.where(task[a] < task[b], a, b)
        return has[np.maximum(task[a], task[b]), part.y[earlier]]

    def _seen(self, part: Graph, y: np.ndarray, here: np.ndarray, t: int) -> Graph:
        graph = part.seen_as(y).induced(here)
        known = replace(graph, classes=graph.classes[:self.classes_at[t]])
        return known.kept(_came(known).edge <= self.block(t))


def _came(part: Graph) -> Came:
    if part.came is None:
        raise FedvineError(f"{part.name} does not say when its rows came; "
                           "fedvine.data.growing_graph makes a graph that does.")
    return part.came


# -- the graph and the tasks of an open run: at its first reading of the tables, and later ---------
def begin(table: Graph, split: Mapping[str, Any], classes: int | None, settings: TaskSettings,
          seed: int) -> tuple[Graph, OpenTaskPlan]:
    """Return the graph of a first reading, with the client of each node, and the tasks so far.

    ``split`` are arguments of :meth:`Graph.split` without ``clients``; ``classes`` a task, None:
    all that come together. Orders and uses are drawn from ``seed`` where ``settings`` have none.
    Raises :class:`FedvineError` for tables without names of nodes, or settings that leave out
    features or edges.
    """
    if min(settings.features, settings.edges) < 1:
        raise FedvineError("An open run keeps all rows; leave out tasks.features and tasks.edges.")
    by, size = split["by"], classes and min(classes, len(table.classes))
    closed = of_settings(table, by, size, settings, seed)
    graph = first(table)
    if not graph.owned(by):
        found = graph.split(**{k: v for k, v in split.items() if k != "clients"})
        of = np.zeros(len(graph), np.int32)
        for i, part in enumerate(found.parts.values()):
            of[part.nodes] = i  # type: ignore[attr-defined]
        graph = replace(graph, owner=Owner(of, tuple(found.parts), by))
    plan = OpenTaskPlan(**{**asdict(closed), "groups": (), "cuts": closed.cuts and ()},
                        size=classes)
    return graph, plan.extended(graph)


def go_on(graph: Graph, plan: OpenTaskPlan, table: Graph, now: bool = False
          ) -> tuple[Graph, OpenTaskPlan, GraphNews]:
    """Return the graph with the new rows of ``table``, the plan with their tasks, and counts.

    Args:
        graph: as it is.
        plan: as it is.
        table: the tables as they are now.
        now: also learn what would have to wait for more.

    Returns:
        The graph, the plan and the counts of new rows.

    Raises:
        FedvineError: where rows have vanished or changed, see
            :func:`fedvine.data.growing_graph.merged`.
    """
    grown, news = merged(graph, table, len(plan.blocks))
    return grown, plan.extended(grown, now), news


def sentences(graph: Graph, plan: OpenTaskPlan, news: GraphNews) -> list[str]:
    """Return what a person should know: what a reading added, and what waits for more."""
    added = [f"{count:,} {what}" for what, count in (
        ("nodes", news.nodes), ("labels of known nodes", news.labels), ("edges", news.edges),
        ("classes", news.classes), ("clients", news.clients)) if count]
    _, nodes = plan.waiting(graph)
    return [*([f"New in the tables: {', '.join(added)}."] if added else []),
            *([f"Waiting for more: {sum(nodes.values()):,} labelled nodes of classes that were "
               "learned before; --now learns them at once."] if nodes else [])]
