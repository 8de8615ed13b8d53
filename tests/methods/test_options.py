"""Every option of every method changes something on a tiny run, or is refused with a reason.

The options are those that ``fedvine show`` lists. What a method inherits as it is from another one
is walked there. Each gets all other values of a choice, or some numbers within its bounds, one of
which must change scores, messages or memory. An option that acts only beside another one is set
with it (:data:`WITH`); what may have no effect is in :data:`NONE`, each with its reason.
"""

import functools
import json
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from annotated_types import Ge, Gt, Le, Lt

from fedvine import testing
from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.core.settings import build, fields, flat, merged

#: What an option needs beside it to act.
WITH: dict[str, dict[str, Any]] = {
    "aggregate.attackers": {"aggregate.rule": "trimmed"}, "clip": {"aggregate.noise": 1.0},
    "clip_counts": {"aggregate.noise": 1.0}, "aggregate.delta": {"aggregate.noise": 1.0},
    "buckets": {"share": "sums"},
    "capacity": {"join": "full"}, "alpha": {"epsilon": 0.7}, "code_coverage": {"epsilon": 1.0},
    "beta": {"balanced": False}, "distance": {"select": "clearest"},
    "damping": {"select": "influence"}, "reached": {"per_class": 4, "epsilon": 1.0},
}
#: Numbers that the tiny data reach, where those near the default are not reached.
REACHED: dict[str, list[Any]] = {
    "items": [1], "users": [1], "near": [1], "capacity": [10], "clip_counts": [0.1],
    "candidates": [1], "reached": [0.01], "similarity": [0.9999], "meeting": [1], "least": [50],
    "steps": [1], "clip": [1e-3], "alpha": [0.0, 1.0], "beta": [0.9], "distance": [1e-3, 10.0],
    "aggregate.grain": [40], "aggregate.clip": [1e-3],
    "epsilon": [1e-3, 5.0], "rows": [0.0, 50.0], "sample": [1],
}
#: Texts and tuples, of which no list of values follows from the type.
TEXTS: dict[str, list[Any]] = {"share": [["model"]], "without": [["items"]], "partition": ["hash"]}
#: Options without an effect, and why they are accepted.
NONE = {"aggregate.threshold": "says how many clients must stay, and here all do",
        "draw='buffer'": "is what no value means where the capacity is a number",
        "partition='stream'": "cuts the small graph as multilevel does",
        "scope='changed'": "in the small graph every row changes in every stage",
        "ergnn_dyn.epsilon": "the small data have the same nodes whatever it is; ergnn's acts",
        "replay.alpha": "the small data have the same nodes whatever it is; power's acts",
        "power_plus.fallback": "no client lies here; in the method's own tests one does",
        **{f"by='{by}'": "the small data's classes are as frequent; in the method's own tests not"
           for by in ("balanced", "loss")},
        **{f"topology='{name}'": "two clients have one topology" for name in ("random", "full")},
        **{f"{name}.buffers": "clients train on all edges; tables of papers set it for all rows"
           for name in ("stfl", "local", "feddgl", "feddy", "fed4dgnn")}}
QUICK = ("edgebank", "popularity", "recency", "frequency", "hop_ral", "fedlink_plus", "joint",
         "stfl", "motion", "last_label", "common")


def choices(kind: Any, bounds: list[Any], value: Any) -> tuple[list[Any], list[Any]]:
    """Return the other values of a choice, each of which must act, and some other numbers."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return choices(inside[0], [*bounds, *(b for m in inside[1:] for b in getattr(
            m, "metadata", [m]))], value)
    if origin in (Union, UnionType):
        found = [choices(part, bounds, value) for part in inside]
        return tuple([v for pair in found for v in pair[i]] for i in (0, 1))   # type: ignore
    if origin is Literal:
        return [v for v in inside if v != value], []
    if kind is type(None):
        return ([] if value is None else [None]), []
    if kind is bool:
        return [not value], []
    if kind in (int, float):
        of = value if isinstance(value, (int, float)) else 1
        low, high = ([getattr(b, name) for b in bounds if isinstance(b, kind_)] for kind_, name in (
            (Ge, "ge"), (Le, "le")))
        near = [*low, *high, of * 2, kind(of / 2), of + 1, of - 1]
        return [], [v for v in dict.fromkeys(near) if v != value and all(
            v >= b.ge if isinstance(b, Ge) else v > b.gt if isinstance(b, Gt) else
            v <= b.le if isinstance(b, Le) else v < b.lt if isinstance(b, Lt) else True
            for b in bounds)]
    return [], []


@functools.cache
def outcome(name: str, values: str) -> Any:
    """Return all that a tiny run leaves, and its calls with their bytes; or why it is refused."""
    kind, calls = registry.method(name), list[Any]()
    try:
        made = testing.run_small(build(kind, json.loads(values), under="method."))
    except FedvineError as error:
        return str(error)
    made.on_round = lambda at, clients: calls.extend(
        [c["t"], c["r"], c["function"], c["down"], c["up"]] for c in clients.log)
    try:
        return testing._outcome(made), calls
    except FedvineError as error:
        return str(error)


def nested(key: str, value: Any) -> dict[str, Any]:
    """Return ``{"aggregate": {"rule": value}}`` of ``aggregate.rule``."""
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def acts(name: str, option: str, value: Any) -> bool:
    """Whether a value changes something, or is refused with a reason."""
    kind = registry.method(name)
    base = kind.tiny().model_dump(exclude_unset=True, mode="json")
    for key, what in WITH.get(option, {}).items():
        if key in fields(kind):
            base = merged(base, nested(key, what))
    before = outcome(name, json.dumps(base))
    found = outcome(name, json.dumps(merged(base, nested(option, value))))
    return isinstance(found, str) or found != before


def inherited(kind: Any, base: Any, option: str) -> bool:
    """Whether an option is that of a base which is a method by itself."""
    if not vars(base).get("name") or option not in fields(base):
        return False
    mine, its = fields(kind)[option], fields(base)[option]
    return (mine.annotation, mine.default) == (its.annotation, its.default)


@pytest.mark.parametrize("name", [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
    for name in registry.methods()])
def test_every_option_acts_or_is_refused(name):
    kind, idle = registry.method(name), list[str]()
    tiny = kind.tiny()
    for option, field in fields(kind).items():
        if any(inherited(kind, base, option) for base in kind.__mro__[1:]):
            continue
        value = flat(tiny)[option]
        each, some = choices(field.annotation, list(field.metadata), value)
        each += TEXTS.get(option, [])
        some = [v for v in (*REACHED.get(option, []), *some) if v != value]
        if not NONE.keys() & {option, f"{name}.{option}"}:
            idle += [said for v in each if (said := f"{option}={v!r}") not in NONE
                     and not acts(name, option, v)]
            if some and not any(acts(name, option, v) for v in some):
                idle.append(f"{option} in {some}")
    assert idle == []
