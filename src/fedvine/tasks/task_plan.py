"""Stages of a labelled graph: each is a task that brings new classes (class-incremental).

The classes are grouped in label order, and each client meets the groups in an order of its own
(POWER, Sections 3, 5.1, and the code). An own table, whose nodes have names, has all classes in one
task where nothing else is said, and all edges; of a data set of fedvine the last classes, which
make no whole task, are dropped, and edges between tasks removed, as in the paper.

Test nodes are those whose names have the lowest hashes within their class, so no seed and no search
learns or chooses by a test node of another. Where the library deals the nodes to clients, the class
is that of the whole graph: the nodes stay test nodes at whichever client a seed puts them. Where a
column of the data names the clients, it is the class within its client, as a site of a federation
knows no others' nodes. The seed draws the training and validation nodes among the rest.

Of a graph that grows, tasks are opened in blocks, one each time that the graph was read and had
something to learn; earlier tasks stay as they are:

- new classes make groups of ``size`` classes, in the order in which they came, the last one of
  those that are left
- new labelled nodes of classes of earlier blocks make one more group, which learns these nodes
  alone; fewer than :data:`LEAST` wait
- a client meets the groups of a block in an order of its own; blocks follow each other

**Without borders** (``stages = "batches"``, or ``"batches:20"`` for 20 in place of ten) a stage is
a batch of a client's nodes of any class, drawn by the seed. Which nodes are for training,
validation and the test is as with tasks; a batch sees all edges unless that is set otherwise.

A node is learned in the first block, from the one in which its label came, that has its class. Its
use is chosen among the nodes of its class that this block learns, so later nodes do not change it;
where test nodes are chosen in the whole graph, by the hashes of the block that first had the class.
A task sees the graph as it was when its block was opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from fedvine.core.errors import FedvineError
from fedvine.core.rng import rng
from fedvine.data.graph import Came, Graph, Owner

TRAIN, VAL, TEST, HIDDEN, UNUSED = 0, 1, 2, 3, 4
SHARES = (0.2, 0.4, 0.4)    # of training, validation and test
OWN = (0.8, 0.1, 0.1)       # the same of an own table
BATCHES = 10    # of a plan without borders
LEAST = 20      # new labelled nodes of earlier classes for which a task is opened

_assigned: WeakKeyDictionary[Graph, tuple[Any, Any]] = WeakKeyDictionary()


class TaskSettings(BaseModel):
    """The table ``[tasks]`` of an experiment on a labelled graph."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shares: tuple[float, float, float] | None = Field(
        default=None, description="of each class for training, validation, test; if not said the "
        "data set's, of an own table 0.8, 0.1, 0.1")
    seed: int | None = Field(default=None, ge=0, description="what orders, training and "
                             "validation nodes are drawn from; the run's seed if not said")
    keep_inter_task_edges: bool | None = Field(
        default=None, description="a task sees the whole graph of its client; else edges between "
        "nodes of two tasks are removed, which takes the classes of all nodes; if not said true "
        "of an own table, and false of a data set of fedvine, as in POWER's paper")
    orders: Literal["own", "same"] = Field(
        default="own", description="each client meets the tasks in an order of its own, or all in "
        "the same one")
    features: float = Field(default=1.0, ge=0, le=1, description="share of the features' values "
                            "that are known; the others are 0")
    edges: float = Field(default=1.0, ge=0, le=1, description="share of the clients' edges that "
                         "are known")
    labels: float = Field(default=1.0, gt=0, le=1, description="share of the training nodes whose "
                          "labels are known")

    def filled(self, own: bool, shares: tuple[float, float, float] = SHARES) -> TaskSettings:
        """Return the settings with defaults: of an own table, or of data with ``shares``."""
        return self.model_copy(update={
            "shares": self.shares or (OWN if own else shares), "keep_inter_task_edges":
            own if self.keep_inter_task_edges is None else self.keep_inter_task_edges})


@dataclass(frozen=True)
class TaskPlan:
    """A plan whose stage ``t`` is, for a client, its t-th group of classes.

    - ``groups``: classes of each group
    - ``shares``: of the nodes of a class for training, validation and test
    - ``seed``: orders, training and validation nodes are drawn from it, and from the client's name
    - ``keep_inter_task_edges``: true: a task sees the client's whole graph, as in the authors'
      code; false: the graph of its own nodes, as the paper says, and of those without a class
    - ``labels``: share of the training nodes whose labels are known
    - ``orders``: "own": each client meets the groups in an order of its own; "same": all in one
      order
    - ``cuts``: for each class the highest hash of a test node's name (:meth:`Ids.hashes`), -1 for
      none; None: a client's test nodes are those with the lowest hashes among its own of the class
    - ``blocks``: number of groups that were open after each opening, of a graph that grows; None:
      the plan does not grow
    - ``size``: classes of a group of new classes; None: all that came
    - ``batches``: true: stages are batches of nodes, and each group has all classes
    """

    groups: tuple[tuple[int, ...], ...]
    shares: tuple[float, float, float] = (0.2, 0.4, 0.4)
    seed: int = 0
    keep_inter_task_edges: bool = False
    labels: float = 1.0
    orders: Literal["own", "same"] = "own"
    cuts: tuple[float, ...] | None = None
    blocks: tuple[int, ...] | None = None
    size: int | None = None
    batches: Literal[True] | None = None

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def living(self) -> bool:
        """Return whether further stages may come."""
        return self.blocks is not None

    @property
    def began(self) -> TaskPlan:
        """Return the plan with which the run began: the first block."""
        if not self.blocks:
            return self
        first = replace(self, groups=self.groups[:self.blocks[0]], blocks=self.blocks[:1])
        return first if self.cuts is None else replace(first, cuts=self.cuts[:first.classes])

    def block(self, t: int) -> int:
        """Return the block of task ``t``, 0 of a plan that does not grow."""
        return int(np.searchsorted(self.blocks or (), t, side="right"))

    @property
    def classes(self) -> int:
        """Number of classes that the tasks have."""
        return max((c + 1 for group in self.groups for c in group), default=0)

    @cached_property
    def classes_at(self) -> list[int]:
        """Return the number of classes known at each stage: of its block and of all before."""
        most = np.maximum.accumulate([max(group) + 1 for group in self.groups])
        ends = self.blocks or (len(self.groups),)
        return [int(most[ends[self.block(t)] - 1]) for t in range(len(self.groups))]

    @property
    def world(self) -> dict[str, Any]:
        """Return what all sides know of stages: of a plan that grows the classes at each."""
        return {"classes_at": self.classes_at} if self.living else {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Return a sentence about the tasks, their nodes and edges."""
        sizes = sorted({len(group) for group in self.groups})
        what = f"{len(self)} batches of nodes of all classes" if self.batches else (
            f"{len(self)} task{'s' * (len(self) > 1)} of "
            f"{' or '.join(map(str, sizes))} class{'es' * (sizes[-1] > 1)}")
        train, val, test = (f"{100 * share:.4g} %" for share in self.shares)
        one = "batch" if self.batches else "task"
        edges = (f"a {one} sees all edges of its client" if self.keep_inter_task_edges else
                 f"edges between {one}{'es' if self.batches else 's'} are removed")
        return (f"{what}; of each class {train} of the nodes are for training, {val} for "
                f"validation and {test} for the test; {edges} (--stages, tasks.shares, "
                "tasks.keep_inter_task_edges).",) if self.groups else ()

    def since(self, part: Graph) -> int:
        """Return the first stage of a client: that of the block in which its first node came.

        A client without nodes is there from the start.
        """
        block = int(self._came(part).node.min()) if len(part) else 0
        return self.blocks[block - 1] if self.blocks and block else 0

    def period(self, t: int) -> str:
        """Return "test": every task has nodes for validation and for the test."""
        return "test"

    def order(self, part: Graph) -> np.ndarray:
        """Return the groups in the order in which this client meets them, int [T]."""
        whose = part.name if self.orders == "own" else "all"
        ends = (len(self.groups),) if self.blocks is None else self.blocks
        return np.concatenate([np.zeros(0, np.int64), *(
            begin + rng(self.seed, whose, "order", *([k] if k else [])).permutation(end - begin)
            for k, (begin, end) in enumerate(zip((0, *ends), ends, strict=False)))])

    def assign(self, part: Graph) -> tuple[np.ndarray, np.ndarray]:
        """Return the task and the use of every node, split class by class.

        Args:
            part: the client's graph with N nodes.

        Returns:
            Tasks int [N], -1 where the class is dropped or unknown; uses int [N]: ``TRAIN``,
                ``VAL``, ``TEST``, ``HIDDEN`` for a training node without its label, or ``UNUSED``
                where shares come to less than 1.
        """
        if part not in _assigned or _assigned[part][0] != self:
            _assigned[part] = self, self._assigned(part)
        return _assigned[part][1]

    def _assigned(self, part: Graph) -> tuple[np.ndarray, np.ndarray]:
        if self.batches:
            task, use = replace(self, groups=self.groups[:1], batches=None)._assigned(part)
            nodes = rng(self.seed, part.name, "batches").permutation(np.flatnonzero(task == 0))
            task[nodes] = np.arange(len(nodes)) % len(self.groups)
            return task, use
        task, use = np.full(len(part), -1), np.full(len(part), TEST)
        hashes, kept = part.names().uniform(), 1 - self.shares[2]
        for t, group in enumerate(self.order(part)):
            for label in self.groups[group]:
                nodes, place = self._batch(part, task, int(group), label)
                task[nodes] = t
                of = hashes[nodes]
                cut = lowest(of, self.shares[2]) if self.cuts is None else self.cuts[label]
                nodes = rng(self.seed, part.name, "split", *place).permutation(nodes[of > cut])
                train, val = (round(len(nodes) * s / kept) for s in np.cumsum(self.shares[:2]))
                train = max(train, 1)  # a class that is here has a node to learn from
                use[nodes[:train]], use[nodes[train:max(val, train)]] = TRAIN, VAL
                use[nodes[max(val, train):]] = UNUSED
                use[nodes[max(round(train * self.labels), 1):train]] = HIDDEN
        return task, use

    def stage(self, part: Graph, t: int) -> Graph:
        """Return the graph of task ``t``; labels of nodes that are not for training are hidden."""
        task, use = self.assign(part)
        y = np.where((task == t) & (use == TRAIN), part.y, -1)
        return self._seen(part, y, self._here(part, task, t), t)

    def past(self, part: Graph, t: int) -> Graph:
        """Return the graph of all tasks up to ``t``, for methods that may keep everything."""
        task, use = self.assign(part)
        known = (task >= 0) & (task <= t)
        y = np.where(known & (use == TRAIN), part.y, -1)
        if self.keep_inter_task_edges:
            return self._seen(part, y, self._here(part, task, t), t)
        bare = self._unlabelled(part, t)
        here = np.flatnonzero(known | bare)
        graph = self._seen(part, y, here, t)
        a, b = here[graph.edges]
        return graph.kept(self._linked(part, task, a, b) | bare[a] | bare[b])

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
        here = self._here(part, task, t)
        nodes = np.flatnonzero((task[here] == t) & ((use[here] == VAL) | (use[here] == TEST)))
        graph = self._seen(part, np.full(len(part), -1), here, t)
        return graph, nodes, part.y[here[nodes]], use[here[nodes]] == TEST

    def widths(self, part: Graph) -> set[int]:
        """Return the numbers of scores that a node may get: one for each class known by then."""
        return set(self.classes_at) if self.living else {len(part.classes)}

    def facts(self) -> dict[str, Any]:
        """Return the plan as plain values, for a run folder."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @staticmethod
    def of_facts(values: Mapping[str, Any]) -> TaskPlan:
        """Return the plan of :meth:`facts`, also as JSON or TOML holds them.

        Raises :class:`KeyError`, :class:`TypeError` or :class:`ValueError` where the values are not
        those of a plan.
        """
        lists = {name: tuple(values[name]) for name in ("shares", "cuts", "blocks")
                 if name in values}
        return TaskPlan(**{**values, **lists, "groups": tuple(map(tuple, values["groups"]))})

    # -- growth ----------------------------------------------------------------------------------
    def extended(self, graph: Graph, now: bool = False) -> TaskPlan:
        """Return the plan with one more block, if ``graph`` has enough to learn; else this plan.

        ``graph`` is the whole one, as it is now; ``now``: learn what would have to wait, too.
        """
        made = self.extended_by(*self.waiting(graph), now)
        if self.cuts is None:
            return made
        return replace(made, cuts=(*self.cuts, *cuts_of(
            graph, self.shares[2], range(self.classes, made.classes))))

    def cut_anew(self, graph: Graph) -> TaskPlan:
        """Return the plan with the cuts that it would have had with this graph from the start."""
        if self.cuts is None:
            return self
        came = self._came(graph).label
        first = {c: self.block(k) for k, group in reversed([*enumerate(self.groups)])
                 for c in group}
        y = np.where(came <= np.array([first.get(c, 0) for c in range(len(graph.classes))])[
            graph.y], graph.y, -1)
        return replace(self, cuts=cuts_of(replace(graph, y=y), self.shares[2],
                                          range(len(self.cuts))))

    def extended_by(self, classes: Sequence[int], waiting: Mapping[int, int], now: bool = False
                    ) -> TaskPlan:
        """Return what :meth:`extended` does, given what :meth:`waiting` returns."""
        size = self.size or max(1, len(classes))
        groups = [tuple(classes[i:i + size]) for i in range(0, len(classes), size)]
        if waiting and sum(waiting.values()) >= (1 if now else LEAST):
            groups.append(tuple(sorted(waiting)))
        if not groups:
            return self
        every = (*self.groups, *groups)
        return replace(self, groups=every, blocks=(*(self.blocks or ()), len(every)))

    def waiting(self, graph: Graph) -> tuple[list[int], dict[int, int]]:
        """Return the classes that no task has, and counts of nodes that none learns, by class."""
        learned = self.classes
        task, _ = self.assign(graph)
        late = graph.y[(task < 0) & (graph.y >= 0) & (graph.y < learned)]
        counts = np.bincount(late, minlength=learned)
        return (list(range(learned, len(graph.classes))),
                {int(c): int(counts[c]) for c in np.flatnonzero(counts)})

    # -- the graph as it was at a stage ----------------------------------------------------------
    def _came(self, part: Graph) -> Came:
        """Return the block in which each row came; 0 where the plan does not grow."""
        found = part.came if self.living else part.begun().came
        if found is None:
            raise FedvineError(f"{part.name} does not say when its rows came; "
                               "Graph.begun makes a graph that does.")
        return found

    def _batch(self, part: Graph, task: np.ndarray, group: int, label: int
               ) -> tuple[np.ndarray, tuple[int, ...]]:
        """Return a class's nodes of this group (after ``task``), and what names their draw."""
        block = self.block(group)
        begin = self.blocks[block - 1] if self.blocks and block else 0
        nodes = np.flatnonzero((part.y == label) & (self._came(part).label <= block) & (task < 0))
        again = any(label in earlier for earlier in self.groups[:begin])
        return nodes, (label, block) if again else (label,)

    def _here(self, part: Graph, task: np.ndarray, t: int) -> np.ndarray:
        """Return the nodes that task ``t`` sees, ascending; ``task`` is that of each node.

        They are its own nodes, their neighbours of its classes from tasks of earlier blocks, and
        those without a class; or where edges between tasks are kept all nodes.
        """
        block, came = self.block(t), self._came(part)
        if self.keep_inter_task_edges:
            return np.flatnonzero(came.node <= block)
        own, near, earlier = task == t, *np.zeros((2, len(part)), bool)
        if self.living:         # else a class is of one task
            earlier = (task >= 0) & (task < t) & np.isin(part.y, self.groups[self.order(part)[t]])
            a, b = part.edges[:, came.edge <= block]
            near[b[own[a]]] = near[a[own[b]]] = True
        return np.flatnonzero(own | near & earlier | self._unlabelled(part, t))

    def _unlabelled(self, part: Graph, t: int) -> np.ndarray:
        """Return which nodes have no class at task ``t``, bool [N]; they are in every task."""
        block, came = self.block(t), self._came(part)
        return (came.node <= block) & ((part.y < 0) | (came.label > block))

    def _linked(self, part: Graph, task: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return which edges lie in a task, or lead to earlier nodes of its classes, bool [E]."""
        has = np.zeros((len(self.groups), len(part.classes)), bool)
        for t, group in enumerate(self.order(part)):
            has[t, list(self.groups[group])] = True
        earlier = np.where(task[a] < task[b], a, b)
        return has[np.maximum(task[a], task[b]), part.y[earlier]]

    def _seen(self, part: Graph, y: np.ndarray, here: np.ndarray, t: int) -> Graph:
        """Return the graph of the nodes ``here`` as it is at task ``t``, with the labels ``y``."""
        graph = replace(part, y=y)
        graph = graph if len(here) == len(part) else graph.induced(here)
        if not self.living:
            return graph
        known = replace(graph, classes=graph.classes[:self.classes_at[t]])
        return known.kept(self._came(known).edge <= self.block(t)).of_rows_until(self.block(t))


def lowest(hashes: np.ndarray, share: float) -> float:
    """Return the highest hash of the test nodes among nodes of a class, -1 where there are none.

    They are the ``share`` of the nodes with the lowest hashes, rounded; at least one of three
    nodes, and never all.
    """
    count = max(round(len(hashes) * share), int(len(hashes) >= 3 and share > 0))
    count = min(count, len(hashes) - 1)
    return float(np.sort(hashes)[count - 1]) if count > 0 else -1.0


def cuts_of(graph: Graph, share: float, classes: Iterable[int]) -> tuple[float, ...]:
    """Return :func:`lowest` for each of ``classes``, over the nodes of the whole graph."""
    hashes = graph.names().uniform()
    return tuple(lowest(hashes[graph.y == label], share) for label in classes)


def by_task(graph: Graph, classes: int | str | None = None, *,
            shares: tuple[float, float, float] | None = None, seed: int = 0,
            keep_inter_task_edges: bool | None = None, labels: float = 1.0,
            orders: Literal["own", "same"] = "own") -> TaskPlan:
    """Make tasks of ``classes`` classes each, two if not said, or of an own table all in one task.

    ``classes`` may be ``"batches"``, or ``"batches:20"``: stages without borders between classes.
    The other arguments are those of :class:`TaskSettings`. Test nodes are chosen in the whole
    graph, or in each client where a column of the data names the clients (``graph.owner``). Raises
    :class:`FedvineError` if there are too few classes, or shares that are negative, come to more
    than 1, or leave no training.
    """
    settings = TaskSettings(shares=shares, keep_inter_task_edges=keep_inter_task_edges,
                            labels=labels, orders=orders)
    return of_settings(graph, "client", classes, settings, seed)


def of_settings(graph: Graph, by: str, classes: int | str | None, settings: TaskSettings, seed: int
                ) -> TaskPlan:
    """Make the tasks of a graph that is dealt to clients ``by`` a column or a partition.

    Otherwise as :func:`by_task`; ``seed`` counts where ``settings`` have none.
    """
    count = len(graph.classes)
    plan = of_classes(count, graph.name, classes, settings, seed, own=graph.ids is not None)
    return plan if graph.owned(by) else replace(
        plan, cuts=cuts_of(graph, plan.shares[2], range(count)))


def of_classes(count: int, name: str, classes: int | str | None, settings: TaskSettings, seed: int,
               *, own: bool = True) -> TaskPlan:
    """Make the tasks of :func:`of_settings` for ``count`` classes, of data called ``name``.

    Test nodes are chosen in each client. ``own``: of own tables, in whose last task may be fewer
    classes.
    """
    batches = _batches(classes, name) if isinstance(classes, str) else 0
    keep = settings.keep_inter_task_edges
    settings = settings.filled(own).model_copy(update={"keep_inter_task_edges": True} if batches
                                               and keep is None else {})
    size: Any = count if batches else classes or (count if own else 2)
    shares = settings.shares or OWN
    if not 1 <= size <= count or classes == 0:
        raise FedvineError(f"{name} has {count} classes; a task cannot have "
                           f"{size if classes is None else classes}.")
    if min(shares) < 0 or not 0 < sum(shares) <= 1 + 1e-9 or shares[0] <= 0:
        raise FedvineError("The shares of training, validation and test are positive and come to "
                           "at most 1.")
    groups = tuple(tuple(range(first, min(first + size, count)))
                   for first in range(0, count if own else count - count % size, size))
    train, val, test = map(float, shares)
    return TaskPlan(groups * max(batches, 1), (train, val, test),
                    seed if settings.seed is None else settings.seed,
                    bool(settings.keep_inter_task_edges), settings.labels, settings.orders,
                    batches=True if batches else None)


def _batches(stages: str, name: str) -> int:
    """Return the number of batches; raise :class:`FedvineError` for other stages in words."""
    found = re.fullmatch(r"batches(?::([1-9]\d{0,5}))?", stages)
    if not found:
        raise FedvineError(f"{name} has no times; stages is a number of classes a task, or "
                           "batches.")
    return int(found[1] or BATCHES)


def begin(table: Graph, split: Mapping[str, Any], classes: int | None, settings: TaskSettings,
          seed: int) -> tuple[Graph, TaskPlan]:
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
    graph = table.begun()
    if graph.ids is None:
        raise FedvineError(f"{table.name} does not name its nodes; only own tables can grow.")
    if not graph.owned(by):
        found = graph.split(**{k: v for k, v in split.items() if k != "clients"})
        of = np.zeros(len(graph), np.int32)
        for i, part in enumerate(found.parts.values()):
            of[part.nodes] = i  # type: ignore[attr-defined]
        graph = replace(graph, owner=Owner(of, tuple(found.parts), by))
    plan = replace(closed, groups=(), cuts=closed.cuts and (), blocks=(), size=classes)
    return graph, plan.extended(graph)
