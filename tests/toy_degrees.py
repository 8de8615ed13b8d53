"""A task in one file outside the package: a node's number of edges in the next stage.

With it comes a method that answers a share of as many as in the last stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from fedvine.core.expect_scores import Measured
from fedvine.core.method import Field, Method, Server, on_client
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream
from fedvine.tasks.shown import Axis, Lines, Picture, Score
from fedvine.tasks.task import Task


class Degrees(Task):
    """How many edges each user of a client will have in the next stage."""

    task: Literal["degree"] = "degree"

    measured: ClassVar[Measured] = Measured(high=1e6)
    scores: ClassVar[dict[str, Score]] = {"error": Score("mean error", falling=True),
                                          "exact": Score("exact", "%")}
    main: ClassVar[tuple[str, ...]] = ("error", "exact")
    by_client: ClassVar[tuple[str, ...]] = ("error",)
    chosen_by: ClassVar[str] = "exact"
    judged_by: ClassVar[tuple[str, str]] = ("exact", "By exact answers")
    axes: ClassVar[tuple[Axis, ...]] = (Axis("mean error, edges", (("error", ""),)),)
    ranked_by: ClassVar[tuple[str, ...]] = ("exact",)
    no_pairs: ClassVar[str] = "This run counts edges of users; it does not score pairs."

    def scored(self, t: int, stages: int) -> list[int]:
        return [t + 1] if t + 1 < stages else []

    def period(self, plan: Plan, learned: int, t: int) -> str:
        return plan.period(t)

    def scorer(self, part: EventStream, plan: Plan, name: str, seed: int) -> Scorer:
        return Scorer(part, plan)

    def summary(self, stages: list[Any], plan: Plan) -> dict[str, Any]:
        return {period: self._means(stages, plan, period) for period in ("test", "val")}

    def _means(self, stages: list[Any], plan: Plan, period: str) -> dict[str, Any]:
        found: dict[str, list[dict[str, Any]]] = {}
        for stage in stages:
            for t, by in stage.found.items():
                for name, result in by.items() if plan.period(t) == period else ():
                    if not result["scores"]:
                        continue
                    found.setdefault(name, []).append(result)
        client = {name: {k: float(np.mean([r["scores"][k] for r in results])) for k in self.scores}
                  for name, results in found.items()}
        mean = {k: float(np.mean([s[k] for s in client.values()])) for k in self.scores} if (
            client) else {}
        return {"mean": mean, "client": client,
                "n": {n: {"n": sum(r["n"]["n"] for r in rs)} for n, rs in found.items()}}

    def questions(self, partitions: bool = False, drawn: bool = True) -> str:
        return "Each user's number of edges in the next stage is asked for."

    def picture(self, summary: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> Picture:
        series = [(name, *zip(*[(x["stage"] + 1, x["scores"]["error"]) for x in lines
                                if x["client"] == name], strict=True))
                  for name in sorted({line["client"] for line in lines})]
        return Picture([Lines("mean error", "stage", series)])

    def outcomes(self, part: EventStream) -> Sequence[str]:
        return ["edges in the next stage"]

    def ask(self, part: EventStream, plan: Plan, users: np.ndarray, guests: Sequence[str]
            ) -> dict[str, Any]:
        return {"users": users}

    def met(self, part: EventStream, plan: Plan) -> Callable[..., np.ndarray]:
        return lambda users, candidates: np.zeros(len(users), bool)


class Scorer:
    """Asks about all users that a client has met, and counts their edges."""

    def __init__(self, part: EventStream, plan: Plan) -> None:
        self.part, self.plan = part, plan

    def queries(self, t: int) -> np.ndarray:
        return np.unique(self.plan.past(self.part, t - 1).src)

    def given(self, query: dict[str, Any]) -> np.ndarray:
        return np.asarray(query["users"])

    @staticmethod
    def answered(answer: Any) -> Any:
        return answer

    def measure(self, t: int, answer: Any) -> dict[str, Any]:
        users = self.queries(t)
        true = np.bincount(self.plan.stage(self.part, t).src, minlength=self.part.num_src)[users]
        apart = np.abs(np.asarray(answer, float) - true)
        return {"n": {"n": len(users)}, "scores": {
            "error": float(apart.mean()), "exact": 100 * float((apart < 0.5).mean())} if (
                len(users)) else {}}


class ToyDegrees(Method):
    """A share of as many edges as in the stage that was learned last."""

    name: ClassVar[str] = "toy_degrees"
    task: ClassVar[str] = "degree"
    rounds: int = Field(default=0, description="rounds a stage")
    share: float = Field(default=1.0, ge=0, description="how many for each edge of that stage")

    @classmethod
    def tiny(cls) -> ToyDegrees:
        return cls()

    def setup(self, client: Any) -> None:
        client.count = np.zeros(0)

    @on_client
    def learn(self, client: Any) -> None:
        client.count = self.share * np.bincount(client.stage.src, minlength=client.past.num_src)

    def arrive(self, server: Server, clients: Any, at: Any) -> None:
        clients.call(self.learn)

    def answer(self, server: Server, clients: Any, at: Any) -> Any:
        return clients.call(self.predict)

    @on_client
    def predict(self, client: Any, queries: np.ndarray) -> np.ndarray:
        return client.count[queries]
