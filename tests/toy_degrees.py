"""A task in one file outside the package: a node's number of edges in the next stage.

With it comes a method that answers a share of as many as in the last stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from fedvine.core.expect import Measured
from fedvine.core.method import Field, Method, Server, on_client
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream
from fedvine.tasks.shown import Score, Shown
from fedvine.tasks.task import Task


class Degrees(Task):
    """How many edges each user of a client will have in the next stage."""

    task: Literal["degree"] = "degree"

    measured: ClassVar[Measured] = Measured(high=1e6)
    shown: ClassVar[Shown] = Shown({"error": Score("mean error", falling=True),
                                    "exact": Score("exact", "%")}, by_client=("error",))
    no_pairs: ClassVar[str] = "This run counts edges of users; it does not score pairs."

    def scorer(self, part: EventStream, plan: Plan, name: str, seed: int) -> Scorer:
        return Scorer(part, plan)

    def outcomes(self, part: EventStream) -> Sequence[str]:
        return ["edges in the next stage"]

    def ask(self, part: EventStream, plan: Plan, users: np.ndarray, guests: Sequence[str]
            ) -> dict[str, Any]:
        return {"users": users}


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
