"""Class-incremental node classification: its queries, and the matrix of accuracies.

A[i, j] is the accuracy on task j after task i was learned, over the clients weighted by their
nodes. AM is the mean of the last row, FM the mean of A[j, j] - A[T, j] over the tasks before the
last (POWER, Section 5.1). A method answers with scores of all classes; the library takes the
largest, over all classes (class-incremental) or over those of the task (``masked``). What else is
measured after the last task: :mod:`fedvine.tasks.class_measures`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, Field

from fedvine.core.errors import FedvineError, MethodError
from fedvine.core.expect import Measured
from fedvine.core.rng import rng
from fedvine.data.graph import Graph
from fedvine.data.split import Split
from fedvine.tasks import class_measures
from fedvine.tasks.shown import Axis, Line, Lines, Matrix, Rows, Score, Shown
from fedvine.tasks.task import Judged, Labelled, Task
from fedvine.tasks.task_plan import TaskPlan, TaskSettings, begin, of_settings

__all__ = ["ClassIncremental", "NodeQueries", "NodeScorer"]


class NodeShown(Shown):
    """What is shown of class-incremental tasks; a ``task`` is :class:`ClassIncremental`."""

    def questions(self, task: Any, partitions: bool = False, drawn: bool = True) -> str:
        """Return the sentences about the classes to choose from, AM, FM, and what a seed draws."""
        draws = ("A partition has orders of tasks and training nodes of its own; a seed draws the "
                 "initialisation." if partitions else
                 f"A seed draws {'the partition, ' * drawn}the order of tasks, the training nodes "
                 "and the initialisation.")
        return (f"Each test node is classified among {_among(task)}. AM: mean accuracy in percent "
                "on the tasks after the last one; FM: what was lost on them since they were "
                f"learned. {draws}")

    def tables(self, task: Any, summary: Mapping[str, Any]) -> list[str | Rows]:
        """Return the scores by client, those of each class, and the matrix of accuracies."""
        found = summary["scores"]["test"]
        if not found["client"]:
            return ["Nothing was scored: no client has nodes for the test."]
        total = sum(c["n"] for c in found["n"].values())

        def by_client(keys: Sequence[str]) -> Rows:
            return Rows(["client", "n", *(self.scores[key].name for key in keys)], [
                [name, f"{n:,}", *(self.text(k, scores.get(k)) for k in keys)]
                for name, scores, n in [*((name, s, found["n"][name]["n"])
                                          for name, s in found["client"].items()),
                                        ("all, by nodes", found["mean"], total)]], total=True)
        more = [key for key in self.scores if key not in self.main and key in found["mean"]]
        matrix = Rows(["learned", *(f"task {j + 1}" for j in range(len(found["matrix"])))], [
            [f"task {i + 1}", *("-" if a is None else f"{100 * a:.1f}" for a in row)]
            for i, row in enumerate(found["matrix"])])
        refit = summary.get("final")
        return [f"Accuracy in percent on n test nodes, each among {_among(task)}. AM: mean over "
                "the tasks after the last one; FM: what was lost on them since they were learned."
                , by_client(self.main),
                *([class_measures.MEASURES, by_client(more)] if more else []),
                *class_measures.tables(found.get("classes"), summary.get("classes", ())),
                *class_measures.alert_tables(
                    (refit or summary.get("report", {})).get("alerts", ()),
                    summary.get("classes", ())),
                *(["Accuracy on each task, after each task:", matrix]
                  if len(found["matrix"]) > 1 else []),
                *([f"{said_of(refit)} These scores are of the model before."] if refit else [])]

    def course(self, lines: Sequence[Line], names: Sequence[str] = ()) -> list[Lines | Matrix]:
        """Return the mean accuracy of the tasks so far, of all and by client, and two matrices.

        They are those of accuracies, and of confusions after the newest task.
        """
        found: dict[int, dict[int, dict[str, Any]]] = {}
        for line in lines:
            found.setdefault(line["t"], {}).setdefault(line["stage"], {})[line["client"]] = line
        clients = sorted({str(line["client"]) for line in lines})
        series = []
        for name, among in [("all", clients), *((name, [name]) for name in clients)]:
            points = {t + 1: 100 * sum(known) / len(known) for t, by in sorted(found.items())
                      if (known := [a for j in range(t + 1) if (
                          a := _mean(by.get(j, {}), among, "")) is not None])}
            series.append((name, list(points), list(points.values())))
        count = max(found, default=-1) + 1
        cells = [[float("nan") if (a := _mean(found.get(i, {}).get(j, {}), clients, "")) is None
                  or j > i else 100 * a for j in range(count)] for i in range(count)]
        newest = [line["classes"] for line in lines if line["t"] == count - 1 and "classes" in line]
        return [Lines("mean accuracy of the tasks so far, %", "after task", series,
                      limits=(0, 102)),
                Matrix("accuracy, %", "accuracy on task", "after task", cells),
                *class_measures.matrix(class_measures.summed(newest), names)] if count else []


def _among(task: Any) -> str:
    return "the classes of its task" if task.masked else "all classes"


class ClassIncremental(Task):
    """The protocol of node classification; a run keeps it with its scores."""

    task: Literal["node"] = "node"  # type: ignore[assignment]
    revision: ClassVar[int] = 2         # test nodes are the same for all seeds

    measured: ClassVar[Measured] = Measured(("val",), classes=True)
    data: ClassVar[Literal["stream", "classes", "graph"]] = "graph"
    unit: ClassVar[str] = "nodes"
    federated: ClassVar[bool] = True
    refits: ClassVar[bool] = True
    settings: ClassVar[type[BaseModel] | None] = TaskSettings
    shown: ClassVar[Shown] = NodeShown(
        scores={
            "am": Score("AM", "%"), "fm": Score("FM", "%", True), "accuracy": Score("accuracy"),
            "common": Score("commonest"), "balanced": Score("balanced"),
            "f1_macro": Score("macro F1"), "ap": Score("mean AP"),
            "ece": Score("ECE", falling=True)},
        main=("am", "fm"),
        by_client=("am", "fm"),
        chosen_by="am",
        tried=("common", "power_plus:rounds=0", "hop_ral", "fedavg", "power", "power_plus"),
        simple=("common",),
        mean_over="all clients' nodes",
        means="over the nodes of all clients together",
        axes=(
            Axis("AM: accuracy after the last task, %", (("am", ""),)),
            Axis("FM: forgotten since learned, %", (("fm", ""),))))
    partitions: ClassVar[bool] = True

    masked: bool = Field(default=False, description="choose among the classes of the task alone "
                         "(task-incremental), not among all classes")

    curves: bool = Field(default=False, description="measure the clients' models also when they "
                         "have just received the global one, and after each local epoch")

    @classmethod
    def choices(cls) -> frozenset[str]:
        """Return the scores that are kept of nodes for validation; ``ap`` by class."""
        return frozenset(["am", "accuracy", "balanced", "ap"])

    @classmethod
    def default_split(cls, column: str | None) -> dict[str, Any]:
        """Return three clients by Louvain's communities, or those of a column."""
        return {"by": column} if column else {"by": "louvain", "k": 3}

    @classmethod
    def prepare(cls, stream: Graph, split: Mapping[str, Any], stages: int | str | None,
                settings: TaskSettings, seed: int) -> tuple[Split, TaskPlan]:
        """Return the split graph, thinned where ``settings`` say so, and its tasks.

        ``stages`` is the number of classes a task, or "batches"; see :func:`.task_plan.by_task`.
        Raises :class:`FedvineError` for a duration.
        """
        given = {"by": "louvain", "k": 3, "seed": seed} | dict(split)
        plan = of_settings(stream, given["by"], stages, settings, seed)
        stream = replace(stream, notes=(*stream.notes, *_left_out(stream, plan)))
        found = stream.split(**given)
        if min(settings.features, settings.edges) < 1:
            found = replace(found, parts={name: part.thinned(
                settings.features, settings.edges, rng(seed, name, "thinned"))
                for name, part in found.parts.items()})
        return found, plan

    @classmethod
    def prepare_open(cls, stream: Graph, split: Mapping[str, Any], stages: int | str | None,
                     settings: TaskSettings, seed: int, as_of: float | None = None
                     ) -> tuple[Split, TaskPlan]:
        """Return :meth:`prepare`'s pair for tables that grow (:mod:`fedvine.tasks.task_plan`).

        Raises :class:`FedvineError` for a duration or a time ``as_of``, too few classes, and
        settings that leave out rows.
        """
        if isinstance(stages, str) or as_of is not None:
            raise FedvineError(f"{stream.name} has no times, and an open run learns what is new; "
                               "stages is a number of classes a task.")
        given = {"by": "louvain", "k": 3, "seed": seed} | dict(split)
        graph, plan = begin(stream, given, stages, settings, seed)
        assert graph.owner is not None
        return graph.split(graph.owner.column, clients=given.get("clients")), plan

    @classmethod
    def plan_of(cls, facts: Mapping[str, Any]) -> TaskPlan:
        """Return the plan of these facts."""
        return TaskPlan.of_facts(facts)

    def scored(self, t: int, stages: int) -> list[int]:
        """Return every task so far, once task ``t`` is learned."""
        return list(range(t + 1))

    def scorer(self, part: Graph, plan: TaskPlan, name: str, seed: int) -> NodeScorer:  # type: ignore
        """Return the scorer of one client's part."""
        return NodeScorer(self, part, plan, name)

    def ask(self, part: Graph, plan: TaskPlan, users: np.ndarray, guests: Sequence[str]
            ) -> dict[str, Any]:
        """Return the nodes themselves: all classes of a node are scored at once."""
        return {"nodes": users}

    def labelled(self, part: Graph) -> Labelled:
        """Return all nodes of a client's graph with the classes that the data give them."""
        return Labelled(part.names(), part.y, part.classes)

    def summary(self, stages: list[Any], plan: TaskPlan) -> dict[str, Any]:
        """Return ``{"test": ..., "val": ...}``.

        Each has ``mean`` (``am``, ``fm``), ``client`` (the same by client), ``n`` (nodes) and
        ``matrix`` (A[i][j] for j <= i).
        """
        return {period: summarise(stages, period) for period in ("test", "val")}

    def judged_until(self, plan: TaskPlan) -> int:
        """Return the last task, after which all tasks are scored."""
        return len(plan) - 1

    def judged(self, stages: Sequence[Any], plan: TaskPlan, key: str) -> Judged:
        """Return a score of nodes for validation after the last task.

        AM is by task and client, the accuracy by client, the others by class over all clients.
        """
        last = [(j, name, result) for stage in stages if stage.t == len(plan) - 1
                for j, by in stage.found.items() for name, result in by.items()]
        if key in ("balanced", "ap"):
            made = class_measures.summed(r["classes_val"] for _, _, r in last if "classes_val" in r)
            values = made.get("recall" if key == "balanced" else key, ())
            return {(len(plan) - 1, f"class {c}"): (value, round(n)) for c, value, n in zip(
                made.get("class", ()), values, made.get("n", ()), strict=True) if value is not None}
        sums: dict[tuple[int, str], tuple[float, int]] = {}
        for j, name, result in last:
            if "accuracy_val" in result["scores"]:
                n, at = result["n"]["n_val"], (j if key == "am" else len(plan) - 1, name)
                right, total = sums.get(at, (0.0, 0))
                sums[at] = right + n * result["scores"]["accuracy_val"], total + n
        return {at: (right / n, n) for at, (right, n) in sums.items()}

    def on_all(self, plan: TaskPlan) -> TaskPlan | None:
        """Return the plan with all labelled nodes for training, None where they are already."""
        return None if plan.shares[0] == 1 else replace(plan, shares=(1.0, 0.0, 0.0), cuts=None)

    def learned(self, plan: TaskPlan, parts: Mapping[str, Graph]) -> int:
        """Return the number of training nodes of all tasks."""
        return sum(int((plan.past(part, len(plan) - 1).y >= 0).sum()) for part in parts.values())

def said_of(refit: Mapping[str, Any]) -> str:
    """Return the sentence on the model that answers; ``refit`` is ``final`` of a summary."""
    nodes = "all labelled nodes" if refit["nodes"] is None else (
        f"all {refit['nodes']:,} labelled nodes")
    return (f"The model that answers was fitted once more on {nodes} (training, validation and "
            "test) after it was scored.")


def summarise(stages: list[Any], period: str) -> dict[str, Any]:
    """Compute AM, FM and the matrix, over all clients and for each one, of "test" or "val".

    Returns ``{"mean", "client", "n", "matrix"}``; AM and FM are in percent, the matrix in [0, 1],
    None where no client has nodes. Of the test also what is measured of the classes after the last
    task: ``classes`` (:func:`fedvine.tasks.class_measures.summed`) over all clients, and in
    ``mean`` and ``client`` accuracy, balanced accuracy, macro F1, mean average precision,
    calibration error and the accuracy of the commonest class, in [0, 1].
    """
    end = "" if period == "test" else "_val"
    names = sorted({name for s in stages for by in s.found.values() for name in by})
    matrix = [[_mean(s.found.get(j, {}), names, end) for j in range(s.t + 1)] for s in stages]
    client = {n: _means([[_mean(s.found.get(j, {}), [n], end) for j in range(s.t + 1)]
                         for s in stages]) for n in names}
    last = list(stages[-1].found.values()) if stages else []
    counts = {n: {"n": sum(by[n]["n"].get(f"n{end}", 0) for by in last if n in by)}
              for n in names} if stages else {}
    mean, more = _means(matrix), {}
    if stages and not end:
        last = stages[-1].found
        more, scores = _classes(last, names)
        mean |= scores
        for n in names:
            client[n] |= _classes(last, [n])[1]
    return {"mean": mean, "client": {n: m for n, m in client.items() if m}, "n": counts,
            "matrix": matrix, **({"classes": more} if more else {})}


def _classes(found: Mapping[int, dict[str, Any]], names: list[str]
             ) -> tuple[dict[str, Any], dict[str, float]]:
    """Return what these clients' classes are measured by, and the scores of all together."""
    here = [by[n] for by in found.values() for n in names if n in by]
    common = [(one["scores"]["common"], one["n"]["n"]) for one in here if "common" in one["scores"]]
    made = class_measures.summed([one["classes"] for one in here if "classes" in one])
    total = sum(n for _, n in common)
    return made, class_measures.scalars(made) | (
        {"common": sum(v * n for v, n in common) / total} if total else {})


def _mean(by: dict[str, Any], names: list[str], end: str) -> float | None:
    """Compute the accuracy of these clients, weighted by nodes; None where none has any."""
    pairs = [(by[n]["scores"][f"accuracy{end}"], by[n]["n"][f"n{end}"]) for n in names
             if n in by and f"accuracy{end}" in by[n]["scores"]]
    total = sum(w for _, w in pairs)
    return sum(v * w for v, w in pairs) / total if total else None


def _means(matrix: list[list[float | None]]) -> dict[str, float]:
    """Compute AM and FM in percent of the tasks that could be measured."""
    if not matrix:
        return {}
    last = matrix[-1]
    now = [a for a in last if a is not None]
    lost = [matrix[j][j] - last[j] for j in range(len(last) - 1)  # type: ignore[operator]
            if last[j] is not None and matrix[j][j] is not None]
    return ({"am": 100 * sum(now) / len(now)} if now else {}) | (
        {"fm": 100 * sum(lost) / len(lost)} if lost else {})


def _left_out(graph: Graph, plan: TaskPlan) -> list[str]:
    """Return the note on the last classes, where they make no whole task and are dropped."""
    count, size = len(graph.classes), len(plan.groups[0])
    names = graph.classes[sum(map(len, plan.groups)):]
    if not names:
        return []
    nodes = int((graph.y >= count - len(names)).sum())
    fits = [n for n in range(1, count + 1) if count % n == 0 and n != size]
    return [f"{graph.name}: tasks have {size} of its {count} classes, so "
            f"{'class' if len(names) == 1 else 'classes'} {', '.join(names)} ({nodes:,} nodes) "
            f"{'is' if len(names) == 1 else 'are'} left out; --stages "
            f"{' or '.join(map(str, fits[:4]))} takes all."]


# -- the queries of one client, and the measures of their answers ----------------------------------
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
        from scipy.sparse import csr_matrix
        graph, nodes = self.part, np.asarray(asked["nodes"], np.int64)
        if "size" in asked:
            x = asked["x"] if "x" in asked else csr_matrix(
                tuple(asked["csr"]), shape=tuple(asked["size"]))
            graph = Graph.make(x, asked["edges"], np.full(asked["size"][0], -1),
                               classes=graph.classes, name=graph.name)
        return NodeQueries(replace(graph, y=np.full(len(graph), -1)), nodes)

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
        (:func:`fedvine.tasks.class_measures.measured`), and ``classes_val`` of the nodes for
        validation; where the protocol measures drift
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
        if not test.all():
            found["classes_val"] = class_measures.measured(y[~test], scores[~test])
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
