"""Files that say what is run: the server's order, and a site's own file.

At the server: ``<hub>/<run>.json``, the :class:`Order`. At a site: ``<kit>/site.toml``, the
:class:`SiteFile`, which names the local table; nothing of it is ever in a job.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, model_validator

from fedvine.core import registry
from fedvine.core.device import ABOUT, Device, placed
from fedvine.core.errors import FedvineError
from fedvine.core.method import Method
from fedvine.core.settings import build
from fedvine.data.spec import Data
from fedvine.experiments.prepare import check_final
from fedvine.federation.policy import Naming, Policy
from fedvine.living.gate import Gate
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.tasks.task import Task, of
from fedvine.tasks.task_plan import TaskSettings


class Order(BaseModel):
    """The run that the server carries out; validated again in the process that does."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    out: str = Field(description="the run folder, at the server")
    method: dict[str, Any] = Field(description="the method's name and constants")
    data: Data | None = Field(default=None, description="the server's own table, only for a "
                              "method whose server holds the graph")
    stages: Annotated[int, Field(ge=1)] | str | None = Field(
        default=None, description="a duration such as 30d; of labelled graphs the number of "
        "classes a task, all if not said; of a server's own table also a number of edges")
    tasks: TaskSettings = Field(default_factory=TaskSettings, description="tasks of labelled "
                                "graphs")
    class_names: Named = Field(default="keyed", description="classes of labelled graphs are known "
                               "by keys that the server cannot read (keyed), or by their names "
                               "(open), where every site agrees")
    val: float = Field(default=0.15, ge=0, lt=1, description="share of edges for validation")
    test: float = Field(default=0.15, ge=0, lt=1, description="share of edges for the test")
    protocol: SerializeAsAny[Task] = Field(default_factory=LinkPrediction,
                                           description="how answers are scored")
    final: bool = Field(default=False, description="of labelled graphs: fit the model that answers "
                        "once more on all labelled nodes, after it was scored")
    seed: int = Field(default=0, ge=0, description="all randomness of the run comes from here")
    threads: int = Field(default=1, ge=1, description="threads of torch")
    device: Device = Field(default="auto", description=ABOUT)
    quorum: float = Field(default=1.0, gt=0, le=1, description="share of clients a call needs")
    deadline: float = Field(default=600.0, gt=0, description="seconds a call may take")
    silence: float = Field(default=30.0, ge=2, description="seconds without a sign of life after "
                           "which a client at work counts as dead, whatever the deadline")
    save_every: float = Field(default=60.0, ge=0, description="seconds between saves in a stage")
    travelled: bool = Field(default=True, description="score travelled users; the server learns "
                            "when each hashed user was first seen at which site")
    names: Naming = Field(default="key", description="names travel as HMACs with the key that "
                          "sites share (key), or of what the hub has evaluated of them, blinded, "
                          "with a key of its own, so that neither alone can test a guess (oprf)")
    names_first: int = Field(default=1_000_000, ge=1, description="with oprf, names that a site "
                             "may ask for on its first day")
    names_more: int = Field(default=100_000, ge=1, description="and on a later day")
    match: bool = Field(default=False, description="count the users that each pair of sites has in "
                        "common, and learn nothing (fedvine match)")
    clients: list[str] = Field(default_factory=list, description="sites; empty: all that came")
    forecasts: int = Field(default=10, ge=0, description="items a user for which each site keeps "
                           "forecasts when the run ends; 0: none")
    live: bool = Field(default=False, description="the run does not end: the sites' tables are "
                       "read again, and stages that are whole are learned")
    slack: str = Field(default="0", description="how long after a stage's end an event must have "
                       "come, at a quorum of the sites, for it to be whole, such as 6h")
    look: float = Field(default=60.0, gt=0, description="seconds between two looks at the tables")

    @model_validator(mode="before")
    @classmethod
    def _protocol_of_the_task(cls, values: Any) -> Any:
        method = values.get("method") if isinstance(values, dict) else None
        if isinstance(method, dict) and isinstance(values.get("protocol", {}), dict):
            task = of(_built(method))
            values = {**values, "protocol": build(task, values.get("protocol", {}),
                                                  under="protocol.")}
        return values

    @property
    def every(self) -> str:
        """Return the duration of a stage."""
        return "30d" if self.stages is None else str(self.stages)

    @property
    def classes_a_task(self) -> int | str | None:
        """Return the number of classes a task, None for all; or batches."""
        return self.stages if isinstance(self.stages, int) or not self.live else None

    @property
    def of_graph(self) -> str | int:
        """Return the duration, or the number of edges, of a stage of the server's own table."""
        known = self.data and self.data.dataset
        return self.stages or (known.STAGES if known else self.every)

    def kind(self) -> Method:
        """Return the method itself; raises :class:`FedvineError` for one that cannot run here."""
        made = placed(_built(self.method), self.device)
        task = of(made)
        check_final(self.final, self.protocol, made)
        if not task.federated:
            raise FedvineError(f"A federation does not carry {made.task}s, of which {made.name} "
                               "is; fedvine run carries it out in one process.")
        if made.server_holds_graph and self.data is None:
            raise FedvineError(f"The server of {made.name} holds the graph; say under [data] where "
                               "its table lies.")
        if made.server_holds_graph and self.live:
            raise FedvineError(f"The server of {made.name} holds the graph, and a federation lives "
                               "on its sites' tables; leave out --live.")
        if task.server_graph and not made.server_holds_graph:
            raise FedvineError(f"{made.name} names classes without a server that holds the graph; "
                               "that is not built.")
        if task.data == "graph":
            if isinstance(self.stages, str) and (self.live or "batches" not in self.stages):
                raise FedvineError("Labelled graphs have no times; stages is a number of classes "
                                   "a task.")
            if min(self.tasks.features, self.tasks.edges) < 1:
                raise FedvineError("A federation uses all that the sites have; leave out "
                                   "tasks.features and tasks.edges.")
            if self.names == "oprf":
                raise FedvineError("Names of nodes do not leave a site with a labelled graph; "
                                   "leave out names.")
        elif isinstance(self.stages, int) and not made.server_holds_graph:
            raise FedvineError("Stages by number of edges need all data in one place; write a "
                               "duration, such as stages = \"30d\".")
        return made


def _built(method: dict[str, Any]) -> Method:
    found = registry.method(str(method.get("name", "")))
    assert issubclass(found, Method)
    return build(found, {k: v for k, v in method.items() if k != "name"}, under="method.")


class SiteFile(BaseModel):
    """A site's own file with the place of its table; it never leaves the site."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: Data | None = Field(default=None, description="the local table and its columns; none "
                              "where the server holds the graph")
    secret: str = Field(default="fedvine", min_length=1, description="the key that sites share "
                        "and the server never has; names travel as HMACs with it")
    open_classes: bool = Field(default=False, description="the server may read the names of the "
                               "classes of this site's nodes")
    threads: int = Field(default=1, ge=1, description="threads of torch")
    device: Device = Field(default="auto", description=ABOUT)
    any_method: bool = Field(default=False, description="without a policy: its people want a run "
                             "to do whatever an installed method does")
    policy: Policy | None = Field(default=None, description="what a run may do at this site; none: "
                                  "whatever an installed method does")
    gate: Gate | None = Field(default=None, description="new stages with unusual rows are not "
                              "learned here; scores are not watched")


# -- names of classes that sites agree on: open, or so that the server cannot read them ------------
# Keyed, a class is known by its key, an HMAC of its name with the secret that sites share. The name
# itself travels beside the key, encrypted (AES-GCM) under another key of that secret, so that every
# site can show the names of classes that only others have.
Named = Literal["keyed", "open"]    # whether the server can read the names of classes

LENGTH = 32     # hexadecimal digits of a key
NONCE = 12      # bytes


def keys(names: Iterable[str], secret: bytes, named: Named) -> list[str]:
    """Return by what the server knows the classes ``names``: themselves, or keys of LENGTH."""
    if named == "open":
        return list(names)
    return [hmac.digest(secret, b"class " + name.encode(), "sha256").hex()[:LENGTH]
            for name in names]


def sealed(names: Iterable[str], secret: bytes, named: Named) -> list[str]:
    """Return the encrypted names of keyed classes, as hexadecimal text; of open ones none."""
    if named == "open":
        return []
    found = []
    for name in names:
        nonce = secrets.token_bytes(NONCE)
        found.append((nonce + _cipher(secret).encrypt(nonce, name.encode(), None)).hex())
    return found


def shown(classes: Iterable[str], names: Mapping[str, str], secret: bytes) -> tuple[str, ...]:
    """Return names of ``classes``, decrypted with ``secret``, else the first digits of the key."""
    return tuple(_opened(key, names[key], secret) if key in names else key for key in classes)


def _opened(key: str, text: str, secret: bytes) -> str:
    from cryptography.exceptions import InvalidTag
    try:
        block = bytes.fromhex(text)
        name = _cipher(secret).decrypt(block[:NONCE], block[NONCE:], None).decode()
    except (InvalidTag, ValueError):
        return f"class {key[:8]}"
    return name if keys([name], secret, "keyed") == [key] else f"class {key[:8]}"


def _cipher(secret: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    return AESGCM(hmac.digest(secret, b"names of classes", "sha256"))
