"""The contract of a task: its queries, the scores of the answers, and what is shown of them.

A new task is one file with a subclass of :class:`Task`, in this room or in a person's own file
beside a method. A method names its task by the text ``task``;
:func:`of` finds the class. No other room checks which task it works on: all
differences are in the task.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from fedvine.core import registry
from fedvine.core.errors import FedvineError, near
from fedvine.core.expect import Measured
from fedvine.core.protocol import Scorer, ServerScorer
from fedvine.data.ids import Ids
from fedvine.data.plan import Plan, open_plan
from fedvine.tasks.shown import Shown

REPLICATES = "replicates"       # the setting that changes no score
STAGES = 10     # of a table, about, where no setting says otherwise
Judged = dict[tuple[int, str], tuple[float, int]]   # by stage and client: a score, and its count


class Labelled(NamedTuple):
    """Nodes and their classes: ``names`` of N nodes, ``y`` int [N] (-1: none), ``classes``."""

    names: Ids
    y: np.ndarray
    classes: Sequence[str]


class Task(BaseModel):
    """Base of all tasks; the fields are the settings of the protocol, which a run keeps.

    A task says :attr:`shown` and :meth:`scorer`. With the defaults of all else it is one of a
    stream whose next stage is scored before it is learned; :meth:`outcomes` and :meth:`ask` let its
    runs forecast. Class variables are the facts that no setting changes:

    - ``shown``: names of the scores, and the tables and plots of them
    - ``measured``: counts and scores that a client may send, see :mod:`fedvine.core.expect`
    - ``data``: "stream" (of edges), "classes" (a stream whose nodes have classes) or "graph"
      (labelled)
    - ``unit``: unit in which data are counted, "edges" or "nodes"
    - ``server_graph``: only methods whose server holds the graph can be scored
    - ``federated``: whether a federation of real machines supports it
    - ``refits``: whether the model that answers may be fitted once more on all data
    - ``settings``: the table ``[tasks]`` of an experiment, None where there is none
    - ``resampled``: whether its scorers keep replicates (:mod:`fedvine.tasks.metrics`); then a
      seed draws only the queries, neither nodes nor the partition
    - ``partitions``: whether an experiment may be repeated on several partitions
    - ``no_pairs``: why single pairs are not answered; empty where they are
    - ``no_self``: whether a node is never its own candidate where edges have no direction
    - ``least``: queries of a client in a period, with which its score counts in a mean of clients
    - ``later``: settings that were added later, with the behaviour of before as default
    - ``revision``: raised when the same settings give other scores, so that kept cells of an
      earlier one are not taken
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    shown: ClassVar[Shown] = Shown()
    measured: ClassVar[Measured] = Measured()
    data: ClassVar[Literal["stream", "classes", "graph"]] = "stream"
    unit: ClassVar[str] = "edges"
    server_graph: ClassVar[bool] = False
    federated: ClassVar[bool] = False
    refits: ClassVar[bool] = False
    settings: ClassVar[type[BaseModel] | None] = None
    resampled: ClassVar[bool] = False
    partitions: ClassVar[bool] = False
    no_pairs: ClassVar[str] = ""
    no_self: ClassVar[bool] = False
    least: ClassVar[int] = 1
    later: ClassVar[tuple[str, ...]] = ("drift",)
    revision: ClassVar[int] = 1

    task: str = ""
    drift: bool | None = Field(default=None, description="measure how new each stage is, and "
                               "simple rivals on its queries; if not said where the plan has live "
                               "stages")
    replicates: int = Field(default=0, ge=0, le=10_000, description="bootstrap replicates of the "
                            "test period's scores over users, for intervals (fedvine compare sets "
                            "it); it changes no score")

    @model_serializer(mode="wrap")
    def _dumped(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out settings in ``later`` at their default: runs and cells keep their identity."""
        fields = type(self).model_fields
        same = {name for name in (*self.later, REPLICATES)
                if getattr(self, name) == fields[name].default}
        return {name: value for name, value in dump(self).items() if name not in same}

    def drifts(self, plan: Any) -> bool:
        """Return whether drift is measured, with this plan."""
        return bool(getattr(plan, "living", False)) if self.drift is None else self.drift

    # -- data and stages -------------------------------------------------------------------------
    @classmethod
    def plan_of(cls, facts: Mapping[str, Any]) -> Any:
        """Return the plan of these facts, as its ``facts()`` gave them."""
        return Plan.of_facts(facts)

    @classmethod
    def tiny(cls) -> Task:
        """Return settings for which the contract suite takes seconds."""
        return cls()

    @classmethod
    def default_split(cls, column: str | None) -> dict[str, Any]:
        """Return the default arguments of a split; ``column`` names the clients, if not None."""
        return {"by": column or "hash"}

    @classmethod
    def prepare(cls, stream: Any, split: Mapping[str, Any], stages: int | str | None,
                settings: Any, seed: int) -> tuple[Any, Any]:
        """Return the split data and the plan of stages.

        ``split`` are the arguments of ``stream.split``; ``stages`` a duration or a number of edges,
        None for about :data:`STAGES` stages of equal count; ``settings`` the table ``[tasks]``.
        """
        count = cls.stage_size(stream, stages)
        plan = stream.by_time(count) if isinstance(count, str) else stream.by_count(count)
        return stream.split(**split), plan

    @classmethod
    def prepare_open(cls, stream: Any, split: Mapping[str, Any], stages: int | str | None,
                     settings: Any, seed: int, as_of: float | None = None) -> tuple[Any, Any]:
        """Return what :meth:`prepare` does for data that grow: the whole stages, and their plan.

        ``as_of``: stages are whole by that time (:func:`fedvine.data.plan.grown`). Raises
        :class:`FedvineError` where no stage is whole yet, and for a task that cannot grow.
        """
        if cls.data != "stream":
            raise FedvineError(f"Runs of {cls.model_fields['task'].default}s do not go on when "
                               "their data grow; leave out --open.")
        plan = open_plan(stream, cls.stage_size(stream, stages), as_of=as_of)
        whole = stream.before(plan.bounds[-1])
        whole.notes = stream.notes
        return whole.split(**split), plan

    @classmethod
    def stage_size(cls, stream: Any, stages: int | str | None) -> int | str:
        """Return the duration of a stage, or its number of edges: ``stages``, or a default."""
        return stages if stages is not None else max(1, len(stream) // STAGES)

    # -- queries and scores -----------------------------------------------------------------------
    def scored(self, t: int, stages: int) -> list[int]:
        """Return the stages that are scored once stage ``t`` of ``stages`` was learned."""
        return [t + 1] if t + 1 < stages else []

    def period(self, plan: Any, learned: int, t: int) -> str:
        """Return the period that stage ``t`` is scored for: "train", "val", "test" or "live"."""
        return plan.period(t)

    def scorer(self, part: Any, plan: Any, name: str, seed: int) -> Scorer:
        """Return the scorer of the client ``name`` with the data ``part``."""
        raise NotImplementedError

    def server_scorer(self, graph: Any, parts: Mapping[str, Any], plan: Any, seed: int
                      ) -> ServerScorer:
        """Return the scorer beside a server that holds the whole ``graph``, of clients' ``parts``.

        Here it is :meth:`scorer` of the client "all".
        """
        found: Any = self.scorer(graph, plan, "all", seed)
        found.whole = True
        return found

    def summary(self, stages: list[Any], plan: Any) -> dict[str, Any]:
        """Return ``{"test": ..., "val": ...}``, and ``"live"`` if there are such stages.

        Each has ``mean`` and ``client`` (scores by key) and ``n`` (counts by client), see
        :meth:`means`.
        """
        live = getattr(plan, "live", None)
        return {period: self.means(stages, plan, period) for period in (
            "test", "val", *(["live"] if live is not None and len(plan) > live else []))}

    def means(self, stages: list[Any], plan: Any, period: str = "test") -> dict[str, Any]:
        """Compute the scores of each client over the stages of a period, and their means.

        By key: ``client``, each client's scores weighted by queries; ``n``, its counts; ``mean``,
        the plain mean over clients with at least :attr:`least` queries of the score;
        ``mean_edges``, the mean over all queries; ``of``, the number of clients in the plain mean.
        Where no client has so many, that is 0 and the mean is the one over queries.
        """
        sums: dict[str, dict[str, list[tuple[float, int]]]] = {}
        counts: dict[str, dict[str, int]] = {}
        for stage in stages:
            for scored, by in stage.found.items():
                if self.period(plan, stage.t, scored) != period:
                    continue
                for name, result in by.items():
                    for key, value in result["n"].items():
                        mine = counts.setdefault(name, {})
                        mine[key] = mine.get(key, 0) + value
                    for key, value in result["scores"].items():
                        sums.setdefault(name, {}).setdefault(key, []).append(
                            (value, result["n"][self.measured.count(key)]))

        def weighted(pairs: list[tuple[float, int]]) -> float:
            return sum(v * w for v, w in pairs) / sum(w for _, w in pairs)

        client = {name: {k: weighted(v) for k, v in by.items()} for name, by in sums.items()}
        keys = list(dict.fromkeys(k for by in client.values() for k in by))
        have = {k: [n for n in client if k in client[n]] for k in keys}
        whole = {k: weighted([p for n in have[k] for p in sums[n][k]]) for k in keys}
        many = {k: [n for n in have[k] if sum(w for _, w in sums[n][k]) >= self.least]
                for k in keys}
        return {"client": client, "n": counts,
                "mean": {k: sum(client[n][k] for n in many[k]) / len(many[k]) if many[k] else
                         whole[k] for k in keys},
                "mean_edges": whole, "of": {k: len(many[k]) for k in keys}}

    def settled(self, parts: Mapping[str, Any], plan: Any) -> Self:
        """Return the task with the settings that follow from the data decided.

        ``parts`` are the clients' data, or ``{"all": ...}`` where the server holds the graph; none
        where they are at the sites of a federation.
        """
        return self

    def replicates_of(self, stages: list[Any], plan: Any) -> dict[str, list[float | None]]:
        """Return the replicates [B] of the test period's mean scores, by key; empty without any."""
        return {}

    @property
    def step(self) -> int | None:
        """Return after how many new events a client's answers are refreshed; None: never."""
        return None

    def refuses(self, stream: Any) -> str:
        """Return the sentence why the task cannot be scored on these data; empty where it can."""
        return ""

    def on_all(self, plan: Any) -> Any:
        """Return the plan by which all is learned and nothing kept back for scores.

        None where the task has no such plan, or ``plan`` is it.
        """
        return None

    def learned(self, plan: Any, parts: Mapping[str, Any]) -> int:
        """Return the number of rows with a label that ``plan`` lets clients learn of ``parts``."""
        return 0

    def check(self, method: Any) -> None:
        """Raise :class:`FedvineError` for a method that cannot be scored with these settings."""

    # -- the scores that methods are chosen by: those before the test period, one by one ----------
    @classmethod
    def choices(cls) -> frozenset[str]:
        """Return the keys of scores that methods may be chosen by: in [0, 1], more is better."""
        scores = cls.shown.scores
        return frozenset(key for key in cls.shown.score_keys if key not in cls.measured.above
                         and not (key in scores and scores[key].falling))

    @classmethod
    def key_of(cls, by: str | None) -> str:
        """Return the key of the score to choose by: ``by``, or the default.

        Raises :class:`FedvineError` for a key that methods are not chosen by.
        """
        known, scores = cls.choices(), cls.shown.scores
        if by is None or by in known:
            return by or cls.shown.chosen_by
        less = by in scores and scores[by].falling
        raise FedvineError(f'A method cannot be chosen by "{by}"'
                           + (", of which less is better" if less else near(by, known))
                           + f"; choose by {', '.join(key for key in scores if key in known)}.")

    @classmethod
    def settings_for(cls, key: str) -> dict[str, Any]:
        """Return the settings of the protocol without which a score may not be measured."""
        return {}

    def judged_until(self, plan: Any) -> int:
        """Return the last stage to learn before methods are chosen between; -1: none is scored."""
        return self._to_judge(plan)[1]

    def judged(self, stages: Sequence[Any], plan: Any, key: str) -> Judged:
        """Return a score of the validation period (else of training), by stage and client.

        Scores are in [0, 1], with the numbers of queries, or users, that they are means of;
        ``stages`` are the scored stages, of type
        :class:`fedvine.experiments.prepare.StageScores`.
        """
        period, _ = self._to_judge(plan)
        count = self.measured.count(key)
        return {(s, name): (result["scores"][key], result["n"][count])
                for stage in stages for s, by in stage.found.items()
                if self.period(plan, stage.t, s) == period
                for name, result in by.items() if key in result["scores"]}

    def _to_judge(self, plan: Any) -> tuple[str, int]:
        """Return the period to choose by, and the last stage that is learned for it."""
        for period in ("val", "train"):
            found = [t for t in range(len(plan)) if any(
                self.period(plan, t, s) == period for s in self.scored(t, len(plan)))]
            if found:
                return period, found[-1]
        return "", -1

    # -- forecasts -------------------------------------------------------------------------------
    def outcomes(self, part: Any) -> Sequence[str] | Ids:
        """Return the names of what is forecast for a user (or node), by number.

        Raises :class:`FedvineError` for a task of which nothing is forecast.
        """
        raise FedvineError("This run names classes of nodes of a labelled graph; ask for labels "
                           "(--labels)." if self.data == "graph" else
                           f"Nothing is forecast by runs of the task {self.task}.")

    def barred(self, part: Any, plan: Any) -> np.ndarray | None:
        """Return which outcomes no forecast names, bool; None where all may be named."""
        return None

    def labelled(self, part: Any) -> Labelled:
        """Return the nodes of a client's data with the classes that the data give them.

        Raises :class:`FedvineError` for a task that does not name classes of nodes.
        """
        raise FedvineError("This run forecasts pairs and does not name classes of nodes.")

    def ask(self, part: Any, plan: Any, users: np.ndarray, guests: Sequence[str]
            ) -> dict[str, Any]:
        """Return the query about all candidates of each user.

        Args:
            part: the client's data.
            plan: the stages.
            users: local numbers int64 [n]; numbers above those of the part are ``guests``.
            guests: names of users that the part does not have.

        Returns:
            The query, for :meth:`fedvine.experiments.run.Run.ask`.
        """
        raise NotImplementedError

    def pairs(self, plan: Any, src: np.ndarray, dst: np.ndarray, guests: Sequence[str]
              ) -> dict[str, Any]:
        """Return the query about single pairs in local numbers, int64 [P]; see :meth:`ask`.

        Only for tasks whose ``no_pairs`` is empty.
        """
        raise NotImplementedError

    def met(self, part: Any, plan: Any) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """Return a function of users and candidates (int64, same shape) to bool.

        It is true where the data up to the plan's end have the pair already.
        """
        return lambda users, candidates: np.zeros(len(users), bool)


# -- tasks by name: those of this room, of other packages, and of a method's own file --------------
def every() -> list[type[Task]]:
    """Return the tasks of this room and of other packages, in the order of their files."""
    return [kind for file in registry.names("tasks")
            for kind in _in(vars(registry.find("tasks", file)), file)]


def of(method: Any) -> type[Task]:
    """Return the task of a method (or of its class): its own file's, or one of this room.

    Raises :class:`FedvineError` for a task that neither has, and for what is no method.
    """
    if not hasattr(method, "task"):
        raise FedvineError(f"A method is wanted, such as fedvine.FedLink(), and {method!r:.60} is "
                           "none.")
    return task_named(method.task, beside(method if isinstance(method, type) else type(method)))


def beside(kind: type) -> list[type[Task]]:
    """Return the tasks among the names of the file that defines the class ``kind``."""
    module = sys.modules.get(kind.__module__)
    return list(_in(vars(module), None)) if module else []


def task_named(name: str, own: Sequence[type[Task]] = ()) -> type[Task]:
    """Return the task of this name among ``own`` ones and this room's; raise if there is none."""
    found = {_name(kind): kind for kind in [*every(), *own]}
    if name not in found:
        raise FedvineError(f'There is no task called "{name}"{near(name, found)}; there are '
                           f"{', '.join(sorted(found))}.")
    return found[name]


def _in(names: Mapping[str, Any], file: str | None) -> Iterator[type[Task]]:
    """Yield the tasks among a module's names; with ``file`` only those that it defines."""
    for value in names.values():
        if isinstance(value, type) and issubclass(value, Task) and _name(value) and (
                file is None or value.__module__.endswith(f".{file}")):
            yield value


def _name(kind: type[Task]) -> str:
    """Return the name of a task, the default of its field ``task``."""
    return kind.model_fields["task"].default
