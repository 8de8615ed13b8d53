"""A site's own policy: what a run may do there, ``[policy]`` in its ``site.toml``.

It is checked at the site, before its table is opened for a run, and again when the run is opened.
Without a policy a site carries out every installed method with any constants. Some things no
policy can allow: raw answers to queries, and code, never leave or enter a site.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from fedvine.core import registry
from fedvine.core.errors import FedvineError, near
from fedvine.core.method import Method
from fedvine.core.settings import fields, flat
from fedvine.core.units import size
from fedvine.data.plan import seconds
from fedvine.engines.remote import Refusal

#: What ``fedvine join KIT --policy`` writes; the same as ``Policy()``.
SAFE = """\
[policy]
times = false            # may the server learn when each hashed user was first seen here?
grain = 10               # counts are multiples of it; scores and sums over fewer stay here
stage = "1h"             # least duration of a stage of edges
most_bytes = 100000000   # largest number of bytes that leave in a round
hourly_bytes = 1000000000    # and in an hour with answers outside of rounds
runs = 50                # runs that are kept here
# names = "oprf"         # names travel by a key in two halves alone
# match = true           # users in common with other sites may be counted (fedvine match)
# epsilon = 8.0          # largest epsilon, of a run and of all runs on this table together

# One table a method that may run here: a field is fixed (true), one of a list (["a", "b"]), or
# bounded ({least = 1.0, most = 5.0}). fedvine show METHOD lists the fields.
[policy.methods.edgebank]

[policy.methods.local]

[policy.methods.fedlink_private]
"aggregate.secure" = true
"aggregate.grain" = {least = 10}
# "aggregate.clip" = {most = 0.03}
# "aggregate.noise" = {least = 1.0}

[policy.methods.fedlink_plus]
share = ["sums", "none"]
buckets = {most = 65536}
negatives = {most = 100}
"aggregate.secure" = true
"aggregate.grain" = {least = 10}

[policy.methods.power_plus]
hops = {most = 5}
"aggregate.secure" = true
"aggregate.grain" = {least = 10}

[policy.protocol]        # numbers of what is asked to score
negatives = {most = 1000}
positives = {most = 100000}
replicates = {most = 1000}
k = {most = 1000}
chances = {most = 1000}
"""

ENOUGH = {"aggregate.secure": True, "aggregate.grain": {"least": 10}}


Naming = Literal["key", "oprf"]     # see fedvine.federation.pseudonyms


class Policy(BaseModel):
    """State what a site allows; all else is refused in one sentence at both ends."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    methods: dict[str, dict[str, Any]] = Field(
        default_factory=lambda: {
            "edgebank": {}, "local": {}, "fedlink_private": ENOUGH,
            "fedlink_plus": {"share": ["sums", "none"], "buckets": {"most": 65536},
                             "negatives": {"most": 100}, **ENOUGH},
            "power_plus": {"hops": {"most": 5}, **ENOUGH}},
        description="methods that may run here; below each its fields: a value, a list of values, "
        'or least and most; for a method of another package also package = "NAME VERSION"')
    protocol: dict[str, Any] = Field(
        default_factory=lambda: {"negatives": {"most": 1000}, "positives": {"most": 100_000},
                                 "replicates": {"most": 1000}, "k": {"most": 1000},
                                 "chances": {"most": 1000}},
        description="keys of [protocol], where a task has them: as those of a method")
    stage: str = Field(default="1h", description="least duration of a stage of edges")
    names: Naming | None = Field(default=None, description="how names travel in runs that may be "
                                 "here: key or oprf; none: either")
    match: bool = Field(default=False, description="whether users that this site has in common "
                        "with another one may be counted, as a multiple of the grain")
    times: bool = Field(default=False, description="whether the server may learn when each hashed "
                        "user was first seen here")
    grain: int = Field(default=10, ge=1, description="counts leave as multiples of it, rounded up; "
                       "scores and sums of columns over fewer do not leave")
    most_bytes: int = Field(default=100_000_000, ge=1, description="bytes that may leave in a "
                            "round at most")
    hourly_bytes: int = Field(default=1_000_000_000, ge=1, description="bytes that may leave in an "
                              "hour at most, in answers outside of rounds, and in rounds that "
                              "are begun again")
    runs: int = Field(default=50, ge=1, description="runs whose memory is kept here; more are "
                      "refused until somebody deletes one from the kit's memory")
    epsilon: float | None = Field(default=None, gt=0, allow_inf_nan=False, description="largest "
                                  "epsilon of a run, and of all runs on this table together; "
                                  "methods without noise are then refused")
    delta: float = Field(default=1e-5, gt=0, lt=1, description="the delta of epsilon; the "
                         "experiment's does not count here")

    @field_validator("methods")
    @classmethod
    def _bounds(cls, methods: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for name, bounds in methods.items():
            _written(f"methods.{name}", bounds)
        return methods

    @field_validator("protocol")
    @classmethod
    def _numbers(cls, protocol: dict[str, Any]) -> dict[str, Any]:
        _written("protocol", protocol)
        return protocol

    @field_validator("stage")
    @classmethod
    def _duration(cls, stage: str) -> str:
        seconds(stage)
        return stage

    def installed(self, *names: str) -> None:
        """Raise :class:`FedvineError` unless what the policy says of these methods can be so.

        Without ``names`` it is all methods; some of them load PyTorch.
        """
        for name in names or self.methods:
            wanted = self.methods[name]
            there = fields(registry.method(name))       # type: ignore[arg-type]
            package = registry.package_of(name)
            if wanted.get("package") != package:
                raise FedvineError(
                    f"policy.methods.{name}: {name} is fedvine's own; leave out package."
                    if package is None else
                    f"policy.methods.{name}: the method that is installed is of another package; "
                    f'write package = "{package}" if it may run here.')
            if unknown := [field for field in wanted if field not in {*there, "package"}]:
                raise FedvineError(f"policy.methods.{name}: {name} has no field "
                                   f'"{unknown[0]}"{near(unknown[0], there)}.')

    def check(self, method: Method, travelled: bool = False, stages: int = 1,
              protocol: BaseModel | None = None, bounds: Sequence[float] = (),
              names: Naming | None = None) -> None:
        """Raise :class:`Refusal` unless a run of ``method`` over ``stages`` is allowed.

        ``travelled``: the server wants times at which users were first seen. ``protocol`` is what
        is asked to score, ``bounds`` float [stages + 1] those of stages of edges, in seconds, an
        infinite one where the last stage may end earlier. ``names``: how they would travel.
        """
        scored = {} if protocol is None else flat(protocol)
        for field, wanted in self.protocol.items():
            if field in scored and not _fits(scored[field], wanted):
                raise Refusal("policy-field", f"protocol.{field}", _said(wanted),
                              _said(scored[field]))
        lasts, wanted = [b - a for a, b in pairwise(bounds)], seconds(self.stage)
        least = min((x if x == x else 0.0 for x in lasts), default=math.inf)
        # A day of a calendar may have 23 hours, and a month 28 days.
        if least < wanted * (0.91 if "mo" in self.stage else 1) - 3600 * (wanted >= 21_600):
            raise Refusal("policy-field", "a stage", f"at least {self.stage} long",
                          f"{least:g} seconds")
        if method.name not in self.methods:
            raise Refusal("policy-method", method.name)
        self.installed(method.name)
        for field, wanted in self.methods[method.name].items():
            if field != "package" and not _fits(value := flat(method)[field], wanted):
                raise Refusal("policy-field", f"{method.name}.{field}", _said(wanted),
                              _said(value))
        if self.epsilon is not None:
            rounds = max(1, sum(map(method.rounds_at, range(stages))))
            if "aggregate.delta" in flat(method):       # a server could choose one close to 1
                combined = method.combining.model_copy(     # type: ignore[union-attr]
                    update={"delta": self.delta})
                method = method.model_copy(update={"aggregate": combined})
            spent = float(method.privacy(rounds).get("epsilon", math.inf))
            if not spent <= self.epsilon:
                raise Refusal("policy-epsilon", f"{self.epsilon:g}",
                              f"{spent:.3g}" if math.isfinite(spent) else "without a bound")
        if None not in (names, self.names) and names != self.names:
            raise Refusal("policy-field", "names", _said(self.names), _said(names))
        if travelled and not self.times:
            raise Refusal("policy-times")


def shown(policy: Policy | None) -> list[str]:
    """Return a site's policy as sentences for its people."""
    if policy is None:
        return ["this site has no policy, so a run may do whatever an installed method does; "
                "fedvine join KIT --policy writes one"]
    each = [name + (f" ({', '.join(f'{f} {_said(w)}' for f, w in fields.items())})"
                    if fields else "") for name, fields in sorted(policy.methods.items())]
    return [f"policy: methods {', '.join(each) or 'none'}",
            "policy: times at which users were first seen " + (
                "may leave" if policy.times else "stay here")
            + f"; counts leave as multiples of {policy.grain}; stages of edges last {policy.stage} "
            f"or more; at most {size(policy.most_bytes)} a round" + (
                "" if policy.epsilon is None else
                f"; epsilon at most {policy.epsilon:g} at delta {policy.delta:g}")]


def coarse(found: Any, grain: int) -> Any:
    """Return counts, a number or an array, as multiples of ``grain``, rounded up."""
    return -(-found // grain) * grain


def coarse_scores(found: dict[str, Any], grain: int) -> dict[str, Any]:
    """Return what a client measured, without scores over fewer edges than ``grain``.

    ``found`` is as :class:`fedvine.core.expect.Measured` states; counts below ``grain`` are
    then 0, others multiples of it. Scores are means over so many, and an exact one of few
    says of how many: they are rounded to parts of the least number that the count stands for.
    """
    few = {key for key, count in found["n"].items() if count < grain}
    ends = tuple(key.removeprefix("n") for key in few if key != "n")
    sizes = {key: coarse(count, grain) for key, count in found["n"].items()}
    least = {key: max(size - grain + 1, grain) for key, size in sizes.items()}
    scores = {} if "n" in few else _rounded(_without(found["scores"], ends), least)
    kept = {key: value for key, value in found.items()
            if key not in ("classes", "curve", "drift", "parts") or "n" not in few}
    for key in {"classes", "classes_val"} & kept.keys():
        kept[key] = _coarse_classes(kept[key], grain)
    if "parts" in kept:
        kept["parts"] = {key: [count // grain * grain for count in one]
                         for key, one in kept["parts"].items()}
    if "drift" in kept:
        drift = kept["drift"] = _coarse_drift(kept["drift"], ends, grain)
        drift["rivals"] = {name: _rounded(one, least) for name, one in drift["rivals"].items()}
    if "curve" in kept:
        kept["curve"] = [_rounded(_without(point, ends), least) for point in kept["curve"]]
    return {**kept, "scores": scores,
            "n": {key: 0 if key in few else size for key, size in sizes.items()}}


def _rounded(scores: dict[str, Any], least: dict[str, int]) -> dict[str, Any]:
    """Return floats as multiples of 1 / n, for the n that their key ends with, else the first."""
    def size(key: str) -> int:
        ends = [count for name, count in least.items() if key.endswith(name[1:]) and name != "n"]
        return ends[0] if ends else least["n"]

    return {key: round(value * size(key)) / size(key) if isinstance(value, float) else value
            for key, value in scores.items()}


def _coarse_classes(found: dict[str, Any], grain: int) -> dict[str, Any]:
    """Return counts by class as multiples of ``grain``, rounded down, so that none is of fewer.

    A bin's sums are in proportion; average precision is left out for a class, or its others, with
    fewer nodes.
    """
    sizes = {c: sum(row.values()) for c, row in found["confusion"].items()}
    rest = sum(sizes.values())
    rows = {c: {k: float(count // grain * grain) for k, count in row.items() if count >= grain}
            for c, row in found["confusion"].items()}
    return {"confusion": {c: row for c, row in rows.items() if row},
            "ap": {c: value for c, value in found["ap"].items()
                   if min(sizes[c], rest - sizes[c]) >= grain},
            "bins": {b: [n := one[0] // grain * grain, *(n * v / one[0] for v in one[1:])]
                     for b, one in found["bins"].items() if one[0] >= grain}}


def _coarse_drift(drift: dict[str, Any], ends: tuple[str, ...], grain: int) -> dict[str, Any]:
    """Return what drifts, as coarse as the counts that shares are of: few new ones are none."""
    edges = coarse(drift["edges"], grain)
    counts = {key: round(share * drift["edges"]) for key, share in drift["new"].items()}
    shares = {key: 0.0 if count < grain else min(coarse(count, grain) / max(edges, 1), 1.0)
              for key, count in counts.items()}
    return {**drift, "edges": edges, "new": shares,
            "rivals": {name: _without(scores, ends) for name, scores in drift["rivals"].items()}}


def _without(values: dict[str, Any], ends: tuple[str, ...]) -> dict[str, Any]:
    """Return the values whose key has none of these endings."""
    return {key: value for key, value in values.items() if not (ends and key.endswith(ends))}


def _written(place: str, bounds: dict[str, Any]) -> None:
    """Raise :class:`FedvineError` for a bound that is written in another way."""
    for field, wanted in bounds.items():
        if isinstance(wanted, dict) and not (
                wanted and wanted.keys() <= {"least", "most"}
                and all(_is_number(v) for v in wanted.values())):
            raise FedvineError(f"policy.{place}.{field}: a bound is written {{least = 1.0}}, "
                               "{most = 5.0}, or with both.")


def _fits(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return _is_number(value) and wanted.get("least", -math.inf) <= value <= wanted.get(
            "most", math.inf)
    return any(_same(value, one) for one in (wanted if isinstance(wanted, list) else [wanted]))


def _same(value: Any, wanted: Any) -> bool:
    value = list(value) if isinstance(value, tuple) else value      # a file has lists alone
    return value == wanted and isinstance(value, bool) == isinstance(wanted, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _said(wanted: Any) -> str:
    if isinstance(wanted, dict):
        return " and ".join(f"at {end} {wanted[end]:g}" for end in ("least", "most")
                            if end in wanted)
    if isinstance(wanted, list):
        return "one of " + ", ".join(map(_said, wanted))
    return "not set" if wanted is None else json.dumps(wanted, default=str)
