"""The contract of a task: its queries, the scores of the answers, and their tables and plots.

A new task is one file with a subclass of :class:`Task`, in this room or in a person's own file
beside a method. A method names its task by the text ``task``;
:func:`fedvine.tasks.by_name.of` finds the class. No other room checks which task it works on: all
differences are in the task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from fedvine.core.errors import FedvineError, near
from fedvine.core.expect_scores import Measured
from fedvine.core.protocol import Scorer, ServerScorer
from fedvine.data.ids import Ids
from fedvine.data.plan import Plan, open_plan
from fedvine.tasks.shown import (
    Axis,
    Group,
    Lines,
    Matrix,
    Picture,
    Rows,
    Score,
    by_stage,
    furthest,
)

# -- the settings that all tasks have --------------------------------------------------------------
REPLICATES = "replicates"       # the setting that changes no score


class Protocol(BaseModel):
    """Base of a task's settings.

    ``later`` names the settings that were added later, with the behaviour of before as default.
    ``revision`` is raised when the same settings give other scores, so that kept cells of an
    earlier one are not taken.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    later: ClassVar[tuple[str, ...]] = ("drift",)
    revision: ClassVar[int] = 1

    task: str = ""

    drift: bool | None = Field(default=None, description="measure how new each stage is, and "
                               "simple rivals on its queries; if not said where the plan has live "
                               "stages")
    replicates: int = Field(default=0, ge=0, le=10_000, description="bootstrap replicates of the "
                            "test period's scores over users, for intervals (fedvine compare sets "
                            "it); it changes no score")

    def drifts(self, plan: Any) -> bool:
        """Return whether drift is measured, with this plan."""
        return bool(getattr(plan, "living", False)) if self.drift is None else self.drift

    @model_serializer(mode="wrap")
    def _dumped(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out settings in ``later`` at their default: runs and cells keep their identity."""
        fields = type(self).model_fields
        same = {name for name in (*self.later, REPLICATES)
                if getattr(self, name) == fields[name].default}
        return {name: value for name, value in dump(self).items() if name not in same}


STAGES = 10     # of a table, about, where no setting says otherwise
Line = Mapping[str, Any]


class Labelled(NamedTuple):
    """Nodes and their classes: ``names`` of N nodes, ``y`` int [N] (-1: none), ``classes``."""

    names: Ids
    y: np.ndarray
    classes: Sequence[str]


class Task(Protocol):
    """Base of all tasks; the fields are the settings of the protocol, which a run keeps.

    Class variables are the facts that no setting changes:

    - ``measured``: counts and scores that a client may send, see :mod:`fedvine.core.expect`
    - ``data``: "stream" (of edges), "classes" (a stream whose nodes have classes) or "graph"
      (labelled)
    - ``unit``: unit in which data are counted, "edges" or "nodes"
    - ``server_graph``: only methods whose server holds the graph can be scored
    - ``federated``: whether a federation of real machines supports it
    - ``refits``: whether the model that answers may be fitted once more on all data
    - ``settings``: the table ``[tasks]`` of an experiment, None where there is none
    - ``scores``: names of the scores by key
    - ``main``: keys of the first table of a comparison
    - ``more``: its other tables
    - ``by_client``: keys that get a table with a row a client
    - ``chosen_by``: the key that ``fedvine tune`` searches by and ``fedvine run auto`` chooses by,
      where none is named
    - ``tried``: methods that ``fedvine run auto`` chooses from, from the cheapest on
    - ``judged_by``: the key by which methods are compared with simple ones, and the first words of
      the sentence about it
    - ``simple``: methods without a model
    - ``mean_over``: the set over which scores are averaged, for titles
    - ``means``: what the scores of a whole run are, after "Scores are"
    - ``axes``: axes of the picture of a comparison
    - ``ranked_by``: keys that order the methods in it
    - ``resampled``: whether its scorers keep replicates (:mod:`fedvine.tasks.metrics`); then a
      seed draws only the queries, neither nodes nor the partition
    - ``partitions``: whether an experiment may be repeated on several partitions
    - ``no_pairs``: why single pairs are not answered; empty where they are
    - ``no_self``: whether a node is never its own candidate where edges have no direction
    """

    measured: ClassVar[Measured] = Measured()
    data: ClassVar[Literal["stream", "classes", "graph"]] = "stream"
    unit: ClassVar[str] = "edges"
    server_graph: ClassVar[bool] = False
    federated: ClassVar[bool] = False
    refits: ClassVar[bool] = False
    settings: ClassVar[type[BaseModel] | None] = None
    scores: ClassVar[dict[str, Score]] = {}
    main: ClassVar[tuple[str, ...]] = ()
    more: ClassVar[tuple[Group, ...]] = ()
    by_client: ClassVar[tuple[str, ...]] = ()
    chosen_by: ClassVar[str] = ""
    tried: ClassVar[tuple[str, ...]] = ()
    judged_by: ClassVar[tuple[str, str]] = ("", "")
    simple: ClassVar[tuple[str, ...]] = ()
    mean_over: ClassVar[str] = "mean over clients"
    means: ClassVar[str] = "means over clients"
    axes: ClassVar[tuple[Axis, ...]] = ()
    ranked_by: ClassVar[tuple[str, ...]] = ()
    resampled: ClassVar[bool] = False
    partitions: ClassVar[bool] = False
    no_pairs: ClassVar[str] = ""
    no_self: ClassVar[bool] = False

    @property
    def compared(self) -> list[str]:
        """Return the keys of the one or two scores by which runs and simple rivals are compared."""
        return list(dict.fromkeys(key for key in (self.judged_by[0], self.chosen_by) if key))

    @classmethod
    def score_keys(cls) -> frozenset[str]:
        """Return the keys of all scores that a run may have; empty where they are not known."""
        return frozenset()

    @classmethod
    def choices(cls) -> frozenset[str]:
        """Return the keys of scores that methods may be chosen by: in [0, 1], more is better."""
        return frozenset(key for key in cls.score_keys() or cls.scores
                         if key not in cls.measured.above
                         and not (key in cls.scores and cls.scores[key].falling))

    @classmethod
    def settings_for(cls, key: str) -> dict[str, Any]:
        """Return the settings of the protocol without which a score may not be measured."""
        return {}

    @classmethod
    def plan_of(cls, facts: Mapping[str, Any]) -> Any:
        """Return the plan of these facts, as its ``facts()`` gave them."""
        return Plan.of_facts(facts)

    # -- queries and scores -----------------------------------------------------------------------
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
                     settings: Any, seed: int) -> tuple[Any, Any]:
        """Return what :meth:`prepare` does for data that grow: the whole stages, and their plan.

        Raises :class:`FedvineError` where no stage is whole yet, and for a task that cannot grow.
        """
        if cls.data != "stream":
            raise FedvineError(f"Runs of {cls.model_fields['task'].default}s do not go on when "
                               "their data grow; leave out --open.")
        plan = open_plan(stream, cls.stage_size(stream, stages))
        return stream.before(plan.bounds[-1]).split(**split), plan

    @classmethod
    def stage_size(cls, stream: Any, stages: int | str | None) -> int | str:
        """Return the duration of a stage, or its number of edges: ``stages``, or a default."""
        return stages if stages is not None else max(1, len(stream) // STAGES)

    def scored(self, t: int, stages: int) -> list[int]:
        """Return the stages that are scored once stage ``t`` of ``stages`` was learned."""
        raise NotImplementedError

    def period(self, plan: Any, learned: int, t: int) -> str:
        """Return the period that stage ``t`` is scored for: "train", "val" or "test"."""
        raise NotImplementedError

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
        """Return ``{"test": ..., "val": ...}``.

        Each has ``mean`` and ``client`` (scores by key) and ``n`` (counts by client).
        """
        raise NotImplementedError

    def settled(self, parts: Mapping[str, Any], plan: Any) -> Self:
        """Return the task with the settings that follow from the data decided.

        ``parts`` are the clients' data, or ``{"all": ...}`` where the server holds the graph; none
        where they are at the sites of a federation.
        """
        return self

    def replicates_of(self, stages: list[Any], plan: Any) -> dict[str, list[float | None]]:
        """Return the replicates [B] of the test period's mean scores, by key; empty without any."""
        return {}

    def judged_until(self, plan: Any) -> int:
        """Return the last stage to learn before methods are chosen between; -1: none is scored."""
        return until(self, plan)

    def judged(self, stages: Sequence[Any], plan: Any, key: str) -> Judged:
        """Return the scores that methods are chosen by."""
        return judged(self, stages, plan, key)

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

    # -- tables and plots ------------------------------------------------------------------------
    def questions(self, partitions: bool = False, drawn: bool = True) -> str:
        """Return the sentences under a comparison: the queries, and what a seed draws.

        Args:
            partitions: whether the experiment was repeated on several partitions.
            drawn: whether a seed draws the partition, too.

        Returns:
            The sentences; empty if there is nothing to say.
        """
        return ""

    def footnote(self) -> str:
        """Return the sentence under a comparison's picture; empty if there is nothing to say."""
        return ""

    def partial(self, found: Mapping[str, tuple[int, int]]) -> str:
        """Return the sentence on means that are over fewer clients than have the score.

        ``found`` has both numbers by key; empty if there is nothing to say.
        """
        return ""

    def tables(self, summary: Mapping[str, Any]) -> list[str | Rows]:
        """Return sentences and tables about the test period of a run with this summary."""
        return [f"Scores by client, {self.mean_over}.", self.by_key(summary["scores"]["test"])]

    def by_key(self, found: Mapping[str, Any]) -> Rows:
        """Return a table of all main scores with a row a client, and their mean."""
        keys = [k for k in self.main if k in found["mean"]]
        return Rows(["client", *(self.scores[k].name for k in keys)], [
            [name, *(self.text(k, values.get(k)) for k in keys)]
            for name, values in [*found["client"].items(), ("mean", found["mean"])]], total=True)

    def name_of(self, key: str) -> str:
        """Return the name of a score; the key itself where it has none."""
        return self.scores[key].name if key in self.scores else key

    def text(self, key: str, value: float | None) -> str:
        """Return a score as text with its number of digits; "-" for None."""
        return "-" if value is None else f"{value:.{self.scores[key].digits}f}"

    def picture(self, summary: Mapping[str, Any], lines: Sequence[Line]) -> Picture:
        """Return the plots of a run; ``lines`` are those of its ``metrics.jsonl``."""
        raise NotImplementedError

    def course(self, summary: Mapping[str, Any], lines: Sequence[Line]) -> list[Lines]:
        """Return a plot a score of :attr:`compared`, with one line: the mean over clients."""
        return [Lines(self.scores[key].name, "stage that was scored", [
                    ("", [s + 1 for s in points], list(points.values()))], stages=True)
                for key in self.compared if (points := by_stage(lines, key))]

    def so_far(self, lines: Sequence[Line], names: Sequence[str] = ()) -> list[Lines | Matrix]:
        """Return the plots of a run that may still learn: of its lines alone, without a summary.

        ``names`` are those of the classes of nodes, where they are known.
        A plot a main score; its first line is the mean over clients, then there is one a client
        where there are several.
        """
        newest, found = furthest(lines), []
        test = [line["stage"] + 1 for line in newest if line["period"] == "test"]
        clients = sorted({line["client"] for line in newest})
        for key in self.main:
            if not (mean := by_stage(lines, key)):
                continue
            series = [("mean", [s + 1 for s in mean], list(mean.values()))]
            for name in clients if len(clients) > 1 else []:
                points = {line["stage"] + 1: line["scores"][key] for line in newest
                          if line["client"] == name and key in line["scores"]}
                series.append((name, list(points), list(points.values())))
            found.append(Lines(self.scores[key].name, "stage that was scored", series, stages=True,
                               shaded=(min(test) - 0.5, max(test) + 0.5) if test else None))
        return found

    # -- forecasts -------------------------------------------------------------------------------
    def outcomes(self, part: Any) -> Sequence[str] | Ids:
        """Return the names of what is forecast for a user (or node), by number.

        Raises :class:`FedvineError` for a task of which nothing is forecast.
        """
        raise FedvineError("This run names classes of nodes of a labelled graph; ask for labels "
                           "(--labels).")

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

    def met(self, part: Any, plan: Any) -> Any:
        """Return a function of users and candidates (int64, same shape) to bool.

        It is true where the data up to the plan's end have the pair already.
        """
        raise NotImplementedError


# -- the scores that methods are chosen by: those before the test period, one by one ---------------
Judged = dict[tuple[int, str], tuple[float, int]]   # by stage and client: a score, and its count


def until(task: Any, plan: Any) -> int:
    """Return the last stage to learn before methods are chosen between; -1 where none is scored."""
    return _period(task, plan)[1]


def key_of(task: Any, by: str | None) -> str:
    """Return the key of the score to choose by: ``by``, or the task's default.

    Raises :class:`FedvineError` for a key that the task does not choose by.
    """
    known = task.choices()
    if by is None or by in known:
        return by or task.chosen_by
    shown = [key for key in task.scores if key in known]
    less = by in task.scores and task.scores[by].falling
    raise FedvineError(f'A method cannot be chosen by "{by}"'
                       + (", of which less is better" if less else near(by, known))
                       + f"; choose by {', '.join(shown)}.")


def judged(task: Any, stages: Sequence[Any], plan: Any, key: str) -> Judged:
    """Return a score of the validation period (else of training), by stage and client.

    Scores are in [0, 1], with the numbers of queries, or users, that they are means of; ``stages``
    are the scored stages, of type :class:`fedvine.experiments.prepare.StageScores`.
    """
    period, _ = _period(task, plan)
    count = task.measured.count(key)
    return {(s, name): (result["scores"][key], result["n"][count])
            for stage in stages for s, by in stage.found.items()
            if task.period(plan, stage.t, s) == period
            for name, result in by.items() if key in result["scores"]}


def _period(task: Any, plan: Any) -> tuple[str, int]:
    """Return the period to choose by, and the last stage that is learned for it."""
    for period in ("val", "train"):
        found = [t for t in range(len(plan)) if any(
            task.period(plan, t, s) == period for s in task.scored(t, len(plan)))]
        if found:
            return period, found[-1]
    return "", -1
