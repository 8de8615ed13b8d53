"""Differences of two experiments, for the sentence that refuses a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LONG = 250         # characters; with more the keys alone are named


def difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Return the keys in which two resolved experiments differ, with both values; empty if none.

    Keys that only follow from another one (a digest from another table, the bounds of the stages
    from another data set) are named only where nothing else differs.
    """
    here, there = _flat(ours), _flat(theirs)
    if "data.names" not in there:   # written by a run that did not keep it
        here.pop("data.names", None)
    found: dict[str, str] = {}
    for place in sorted(here.keys() | there.keys()):
        if here.get(place) != there.get(place):
            key = place.removeprefix("data.experiment.")
            found.setdefault(key, f"{key} is {_said(there.get(place))} there and "
                                  f"{_said(here.get(place))} here")
    if "method.name" in found:      # another method has other fields
        found = {k: v for k, v in found.items() if not k.startswith("method.") or k[7:] == "name"}
    causes = {k: v for k, v in found.items() if not _follows(k)} or found
    text = "; ".join(causes.values())
    return text if len(text) <= _LONG else ", ".join(causes)


def _follows(key: str) -> bool:
    """Return whether a key's value follows from other keys."""
    return (key in ("data.digest", "data.names", "data.edges", "data.name")
            or key.startswith("stages."))


def _flat(table: Mapping[str, Any], under: str = "") -> dict[str, Any]:
    """Return nested tables as one: ``{"method": {"rounds": 3}}`` as ``{"method.rounds": 3}``."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= (_flat(value, f"{under}{key}.") if isinstance(value, Mapping)
                 else {f"{under}{key}": value})
    return flat


def _said(value: Any) -> str:
    text = "not set" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:20]}...{text[-37:]}"
