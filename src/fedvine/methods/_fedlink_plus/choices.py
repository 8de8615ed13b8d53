"""Say in words what answered after each stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from fedvine.methods._fedlink_plus.newton import MILDER, SIMPLE

SHOWN = 3       # kinds of answers that a sentence names
PARTS = {"pairs": "the pair's own past", "steps": "what item follows which",
          "clocks": "the hour and the weekday", "elsewhere": "what the user met at other clients",
          "neighbours": "similar users", "turned": "the pair turned round",
          "tables": "tables of users and items", "edges": "columns of edges"}


def report(chosen: Sequence[str]) -> dict[str, Any]:
    """Return the choice after each stage, and the sentence that is shown in its place."""
    return {"answers": list(chosen), "said": {"answers": said(chosen)}}


def said(chosen: Sequence[str]) -> str:
    """Return one sentence on the choices after the stages, the most frequent first."""
    kinds = Counter(chosen).most_common()
    if len(kinds) == 1:
        return f"All forecasts were made by {_words(kinds[0][0])}."
    named = [f"{_words(kind)} ({count}{' times' * (not k)})" for k, (kind, count) in
             enumerate(kinds[:SHOWN])]
    rest = sum(count for _, count in kinds[SHOWN:])
    if rest:
        named.append(f"others ({rest})")
    return ("Forecasts are made by what ranked the newest edges best. After "
            f"{len(chosen)} stages that was {', '.join(named)}; summary.json has each.")


def _words(kind: str) -> str:
    """Return a choice in words; those that are not known as they are."""
    if kind in MILDER:
        return f"the whole model with the odds of known pairs divided by {MILDER[kind]}"
    if kind in SIMPLE:
        return f"{kind} alone"
    part = kind.removeprefix("without ")
    return "the whole model" if kind == "all" else f"the model without {PARTS.get(part, part)}"
