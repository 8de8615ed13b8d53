"""Fields of DG-CoLearn that exclude each other."""

from __future__ import annotations

from typing import Any


def check_bounds(method: Any) -> None:
    """Raise :class:`ValueError` if ``neighbours`` or ``stale`` have nothing to bound."""
    if (method.neighbours or method.stale) and not (method.follows and method.backbone != "tgn"):
        raise ValueError("neighbours and stale are for scope=changed where rows that did not "
                         "change are skipped: with exchange=layerwise and gradients, without "
                         "noise, min_group, evolvegcn-h or tgn; leave them out")


def check(method: Any) -> None:
    """Raise :class:`ValueError` if two fields of a :class:`DgCoLearn` exclude each other."""
    layerwise, withheld = method.exchange == "layerwise", method.min_group > 1
    corrected = method.exchange not in ("layerwise", "none")
    if method.robust != "none" and method.exchange_gradients and layerwise:
        raise ValueError("clients return parts of one machine's gradients, which are added and "
                         "not averaged; with robust set exchange_gradients = false")
    if (method.exchange in ("paper", "two-hop-exact")
            and method.backbone in ("gcrn-gru", "gcrn-lstm")):
        raise ValueError(f"Eqs. (5) and (6) are added to the rows between convolution and "
                         f"state, which {method.backbone} does not have; choose another exchange "
                         "or gcrn-baseline")
    if method.backbone == "tgn" and (corrected or withheld):
        raise ValueError("tgn needs exchange=layerwise or none and no min_group, as sums of "
                         "memories come in no other way, and none of them is withheld")
    if method.backbone == "dygformer" and (
            method.target == "classes" or method.scope == "changed" or method.noise
            or corrected or withheld):
        raise ValueError("dygformer computes pairs from lists of events, and no rows from "
                         "sums: it needs target=edges, scope=snapshot and exchange=layerwise "
                         "or none; leave out noise and min_group, as nothing is added up")
    if method.candidates == "all" and (
            method.backbone != "evolvegcn-h" or not layerwise or method.noise
            or not method.exchange_gradients or withheld):
        raise ValueError("candidates=all is for evolvegcn-h, exchange=layerwise and gradients; "
                         "rows go to all clients as they are, so leave out noise and min_group")
