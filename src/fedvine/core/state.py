"""Memory of the server and of a client: named values that can be saved and restored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvine.core.ledger import Ledger
from fedvine.core.rng import key, rng, torch_rng

if TYPE_CHECKING:
    import torch

    from fedvine.core.query import Query


_STATE = "<state>"


@dataclass(frozen=True)
class World:
    """Facts that all sides know: client names, seed, number of stages, others.

    ``since`` is the first stage of each client that is not there from the beginning: before it the
    client has no data, and takes no part. ``until`` is the stage from which a client takes no part
    any more. ``living``: further stages may come.
    """

    clients: tuple[str, ...]
    seed: int
    stages: int
    facts: dict[str, Any] = field(default_factory=dict)
    since: Mapping[str, int] = field(default_factory=dict)
    until: Mapping[str, int] = field(default_factory=dict)
    living: bool = False
    _at: dict[int, World] = field(default_factory=dict, init=False, repr=False, compare=False)

    def at(self, t: int) -> World:
        """Return the facts that are known at stage ``t``: clients that are there by then.

        Of a run whose stages still come also the number of stages so far, and of classes where
        ``facts["classes_at"]`` has the number known at each stage.
        """
        if not (self.since or self.until or self.living):
            return self
        if t in self._at:       # thousands of clients of one process ask for it
            return self._at[t]
        facts = self.facts
        if "classes_at" in facts:
            facts = {**facts, "classes": facts["classes_at"][max(t, 0)]}
        found = replace(self, facts=facts, stages=t + 1 if self.living else self.stages,
                        clients=tuple(n for n in self.clients
                                      if self.since.get(n, 0) <= t < self.until.get(n, t + 1)))
        self._at.clear()
        self._at[t] = found
        return found


class Memory(SimpleNamespace):
    """Attributes are memory, of the types that a message may hold.

    Modules, optimisers and tables are allowed too: any object with ``state_dict`` and
    ``load_state_dict``. ``given`` names are attached by the engine and never saved; ``cache`` of a
    server is a dict for values that a run may lose, such as seconds.
    """

    given: frozenset[str] = frozenset({"stage", "past", "queries", "cache"})

    def __getattr__(self, name: str) -> Any:  # so that type checkers accept any memory
        raise AttributeError(f"{type(self).__name__.lower()} has no memory called {name!r}")

    def dump(self) -> dict[str, Any]:
        """Return a tree that can be packed; tensors are the live ones, so pack or copy at once."""
        return {k: _freeze(v) for k, v in vars(self).items() if k not in self.given}

    def load(self, saved: dict[str, Any]) -> None:
        """Restore a state of :meth:`dump`; modules are loaded into those already there."""
        for name in [n for n in vars(self) if n not in self.given and n not in saved]:
            delattr(self, name)
        for name, value in saved.items():
            setattr(self, name, _thaw(value, vars(self).get(name)))


class Client(Memory):
    """The memory of one client.

    These attributes are attached by the engine:

    - ``name``, ``world``: its name and the facts that all sides know
    - ``stage``: its own part of the current stage (EventStream or Graph), which never leaves it
    - ``past``: its own part up to and with the current stage
    - ``ahead``: in calls that answer queries with ``protocol.refresh``, its own events that no
      round has learned yet, before the last query; else None. They say which rows to request; what
      of them a query may see comes through :meth:`fedvine.core.method.Method.refresh`
    - ``cache``: a dict for values that can be made again; never saved, may vanish between rounds
    - ``rng``: ``client.rng(purpose)``: randomness that belongs to this very call
    - ``mark``: ``client.mark("epoch 1")``: a moment at which curves are measured
    - ``guests``: number of guests in a person's queries, the last users of ``past.src_ids``
    - ``asked``: the kind of queries that this call answers (:class:`fedvine.core.query.Query`);
      None in training
    - ``secret``: bytes that the server does not know; at a site of a real federation from the
      site's own file, in one process from the seed (a simulation)
    - ``identity``: the key of the site's kit and its roster of the other sites' fingerprints
      (:mod:`fedvine.aggregate.identities`); None in one process
    - ``sums``: a dict for the secure sum that is on; never saved
    - ``once``: the function that is called, and the first round of it whose answer the server
      lacks, [t, r]; [] for none, None where nothing is sent twice (:mod:`fedvine.core.once`)
    - ``ledger``: its releases with noise, see :func:`fedvine.aggregate.noise.noised`
    """

    given = frozenset({"name", "world", "stage", "past", "ahead", "cache", "place", "secret",
                       "identity", "sums", "ledger", "marker", "asked", "guests", "once"})

    name: str
    world: World
    stage: Any
    past: Any
    ahead: Any
    cache: dict[Any, Any]
    asked: Query | None
    guests: int
    identity: Any
    once: tuple[str, list[int] | None]
    sums: dict[str, Any]
    ledger: Ledger
    marker: Callable[[str], None] | None = None

    def __init__(self, name: str, world: World, secret: bytes | None = None,
                 identity: Any = None, ledger: Ledger | None = None) -> None:
        super().__init__(name=name, world=world, cache={}, place=(-1, -1, -1), asked=None,
                         ahead=None, guests=0, identity=identity, sums={}, once=("", None),
                         ledger=ledger or Ledger(),
                         secret=secret or str(key(world.seed, name, "secret")).encode())

    def mark(self, moment: str) -> None:
        """Add a point to a curve: the scores of the client's model now, if there are curves."""
        if self.marker is not None:
            self.marker(moment)

    def rng(self, purpose: str = "") -> np.random.Generator:
        """Return NumPy randomness of this call, of (seed, client, t, r, call, purpose) alone."""
        return rng(self.world.seed, self.name, *self.place, purpose)

    def torch_rng(self, purpose: str = "") -> torch.Generator:
        """Return torch randomness of this call; see :meth:`rng`."""
        return torch_rng(self.world.seed, self.name, *self.place, purpose)


def _freeze(value: Any) -> Any:
    if hasattr(value, "state_dict"):
        return {_STATE: _freeze(value.state_dict())}
    return _walk(value, _freeze)


def _thaw(value: Any, current: Any) -> Any:
    if isinstance(value, dict) and _STATE in value:
        current.load_state_dict(_own(value[_STATE]))
        return current
    if isinstance(value, dict):
        now = current if isinstance(current, dict) else {}
        return {k: _thaw(v, now.get(k)) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        now = current if isinstance(current, (list, tuple)) else []
        return type(value)(_thaw(v, now[i] if i < len(now) else None)
                           for i, v in enumerate(value))
    return _own(value)


def _own(value: Any) -> Any:
    """Return a private copy of arrays: a saved value may be a mapped file or part of a message."""
    if isinstance(value, np.ndarray):
        return np.array(value)
    if hasattr(value, "detach"):
        return value.detach().clone()
    return _walk(value, _own)


def _walk(value: Any, f: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {k: f(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [f(v) for v in value] if isinstance(value, list) else tuple(map(f, value))
    return value
