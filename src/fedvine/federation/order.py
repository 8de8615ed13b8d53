"""Files that say what is run: the server's order, and a site's own file.

At the server: ``<hub>/<run>.json``, the :class:`Order`. At a site: ``<kit>/site.toml``, the
:class:`SiteFile`, which names the local table; nothing of it is ever in a job.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.core.method import Method
from fedvine.core.settings import build
from fedvine.data.spec import Data
from fedvine.federation.policy import Policy
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.tasks.task import of


class Order(BaseModel):
    """The run that the server carries out; validated again in the process that does."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    out: str = Field(description="the run folder, at the server")
    method: dict[str, Any] = Field(description="the method's name and constants")
    data: Data | None = Field(default=None, description="the server's own table, only for a "
                              "method whose server holds the graph")
    stages: str = Field(default="30d", description="a duration such as 30d")
    val: float = Field(default=0.15, ge=0, lt=1, description="share of edges for validation")
    test: float = Field(default=0.15, ge=0, lt=1, description="share of edges for the test")
    protocol: LinkPrediction = Field(default_factory=LinkPrediction,
                                     description="how links are scored")
    seed: int = Field(default=0, ge=0, description="all randomness of the run comes from here")
    threads: int = Field(default=1, ge=1, description="threads of torch")
    quorum: float = Field(default=1.0, gt=0, le=1, description="share of clients a call needs")
    deadline: float = Field(default=600.0, gt=0, description="seconds a call may take")
    silence: float = Field(default=30.0, ge=2, description="seconds without a sign of life after "
                           "which a client at work counts as dead, whatever the deadline")
    save_every: float = Field(default=60.0, ge=0, description="seconds between saves in a stage")
    travelled: bool = Field(default=True, description="score travelled users; the server learns "
                            "when each hashed user was first seen at which site")
    clients: list[str] = Field(default_factory=list, description="sites; empty: all that came")
    forecasts: int = Field(default=10, ge=0, description="items a user for which each site keeps "
                           "forecasts when the run ends; 0: none")
    live: bool = Field(default=False, description="the run does not end: the sites' tables are "
                       "read again, and stages that are whole are learned")
    slack: str = Field(default="0", description="how long after a stage's end an event must have "
                       "come, at a quorum of the sites, for it to be whole, such as 6h")
    look: float = Field(default=60.0, gt=0, description="seconds between two looks at the tables")

    def kind(self) -> Method:
        """Return the method itself; raises :class:`FedvineError` for one that cannot run here."""
        found = registry.method(str(self.method.get("name", "")))
        made = build(found, {k: v for k, v in self.method.items() if k != "name"}, under="method.")
        if not of(made).federated:
            raise FedvineError(f"{made.name} names classes here, and a federation carries link "
                               "prediction alone; fedvine run carries it out in one process.")
        if made.server_holds_graph and self.data is None:
            raise FedvineError(f"The server of {made.name} holds the graph; say under [data] where "
                               "its table lies.")
        return made


class SiteFile(BaseModel):
    """A site's own file with the place of its table; it never leaves the site."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: Data | None = Field(default=None, description="the local table and its columns; none "
                              "where the server holds the graph")
    secret: str = Field(default="fedvine", min_length=1, description="the key that sites share "
                        "and the server never has; names travel as HMACs with it")
    threads: int = Field(default=1, ge=1, description="threads of torch")
    policy: Policy | None = Field(default=None, description="what a run may do at this site; none: "
                                  "whatever an installed method does")
