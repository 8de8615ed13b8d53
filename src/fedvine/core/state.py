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

    from fedvine.core.replies import Query

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
        if found := self._at.get(t):    # thousands of clients, and threads, ask for it
            return found
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
    - ``asked``: the kind of queries that this call answers (:class:`fedvine.core.replies.Query`);
      None in training
    - ``secret``: bytes that the server does not know; at a site of a real federation from the
      site's own file, in one process from the seed (a simulation)
    - ``identity``: the key of the site's kit and its roster of the other sites' fingerprints
      (:mod:`fedvine.aggregate.identities`); None in one process
    - ``sums``: a dict for the secure sum that is on; never saved
    - ``terms``: a digest of the run as its clients know it: method, plan, protocol, world
    - ``answered``: what rows its sums were of (:mod:`fedvine.aggregate.answered`), None: not known
    - ``once``: the function that is called, and the first round of it whose answer the server
      lacks, [t, r]; [] for none, None where nothing is sent twice (:func:`unsent`)
    - ``ledger``: its releases with noise, see :func:`fedvine.aggregate.noise.noised`
    """

    given = frozenset({"name", "world", "stage", "past", "ahead", "cache", "place", "secret",
                       "identity", "sums", "ledger", "marker", "asked", "guests", "once",
                       "answered", "terms"})

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
    answered: Any
    terms: str
    ledger: Ledger
    marker: Callable[[str], None] | None = None

    def __init__(self, name: str, world: World, secret: bytes | None = None,
                 identity: Any = None, ledger: Ledger | None = None, answered: Any = None) -> None:
        super().__init__(name=name, world=world, cache={}, place=(-1, -1, -1), asked=None,
                         ahead=None, guests=0, identity=identity, sums={}, once=("", None),
                         answered=answered, terms="",
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


# -- memory when the facts of the world have grown, for example its classes ------------------------
# A memory of the larger world is made as at the start of a run, and all values so far are put into
# it at the same place. So a method does not know about growth: what depends on the number of
# classes starts at its ``start`` and ``setup`` as ever, and rows of new classes have those values.
def grow(memory: Memory, fresh: Memory) -> None:
    """Enlarge every value of a memory to that of its name in ``fresh``, by :func:`enlarged`.

    ``fresh`` is a memory of the same method in a larger world; what it does not have stays.
    """
    for name, new in vars(fresh).items():
        if name not in memory.given and name in vars(memory):
            setattr(memory, name, enlarged(vars(memory)[name], new))


def enlarged(old: Any, new: Any) -> Any:
    """Return ``new`` with the values of ``old``.

    A larger array or tensor gets them at the lowest indices of every axis, and one that is not
    larger gives way to ``old``. Modules and optimisers are those of ``new``; an optimiser's state
    of new values is 0. Of dicts the values of the same key are enlarged; the other keys are those
    of ``old``.
    """
    if hasattr(new, "param_groups"):
        new.load_state_dict(_moments(old.state_dict(), new))
        return new
    if hasattr(new, "state_dict"):
        new.load_state_dict(enlarged(dict(old.state_dict()), dict(new.state_dict())))
        return new
    if isinstance(old, dict) and isinstance(new, dict):
        return {k: enlarged(v, new[k]) if k in new else v for k, v in old.items()}
    return _block(old, new)


def _block(old: Any, new: Any) -> Any:
    """Return ``new`` with ``old`` in its first corner, or ``old`` where it is not smaller."""
    if not hasattr(old, "shape"):
        return old
    small, large = np.shape(old), np.shape(new)
    if len(small) != len(large) or small == large or any(
            a > b for a, b in zip(small, large, strict=True)):
        return old
    found = new.clone() if hasattr(new, "clone") else new.copy()
    found[tuple(map(slice, small))] = old
    return found


def _moments(state: dict[str, Any], optimizer: Any) -> dict[str, Any]:
    """Return an optimiser's state with zeros for the new values of its parameters."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    held = {i: {key: _block(value, params[i].detach() * 0) if np.ndim(value) else value
                for key, value in parts.items()} for i, parts in state["state"].items()}
    return {**state, "state": held}


# -- replies that a client makes once, where the server may go on without its answer ---------------
# With a quorum below 1 a round may end before a client's sums or prototypes of a task have come.
# The next call of the same function (``once=True``) names the first round whose answer the server
# lacks, and the client sends what it had sent with what is new. With a quorum of 1 the round starts
# over, and nothing is kept. Calls under masks or with noise are not made so: the sums of an earlier
# task would come from few clients, and what was lost stays away.
Value = dict[str, Any]


def added(before: Value, value: Value) -> Value:
    """Add sums by name; those from before there were all of today's classes get zeros."""
    return {name: enlarged(before[name], np.zeros_like(now)) + now for name, now in value.items()}


def unsent(client: Client, value: Value | None, join: Callable[[Value, Value], Value] = added
           ) -> Value | None:
    """Return what the server lacks: ``value``, after what was sent before and did not come.

    ``client``: in a call with ``once``; its memory keeps the result until the next one. ``value``
    is sent now, None: nothing; ``join`` makes one value of two, the older first. None: nothing to
    send.
    """
    function, lost = client.once
    if lost is None:
        return value
    kept = dict(vars(client).get("kept_uploads", {}))
    place, before = kept.pop(function, ([-1, -1], None))
    if before is not None and lost and list(place) >= lost[:2]:
        value = before if value is None else join(before, value)
    if value is not None:
        kept[function] = list(client.place[:2]), value
    client.kept_uploads = kept
    return value
