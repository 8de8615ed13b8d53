"""Why a pair has its score, in words: what was counted of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedvine.core.method import Client
from fedvine.data.dates import moment
from fedvine.methods._fedlink_plus.counts import Counts
from fedvine.methods._fedlink_plus.features import TABLE, Lent
from fedvine.methods._fedlink_plus.meetings import AWAY, HERE

OFTEN = 1.0     # a log ratio above it is worth a word


def reasons(client: Client, queries: Any, x: np.ndarray, lent: Lent) -> list[str]:
    """Return one text a queried pair, such as "met 12 times, last on 2013-05-03".

    Args:
        client: with what it counted.
        queries: the pairs.
        x: their features, float32 [Q, WIDTH].
        lent: rows of users without an edge here; their numbers of meetings are faded, so that
            the texts have the last one alone.

    Returns:
        The texts.
    """
    counts: Counts = client.counts
    found = []
    for q in range(len(queries)):
        u, z = int(queries.src[q]), int(queries.dst[q])
        said = []
        row = -1
        if u < len(counts.users) and z < len(counts.items):
            key = np.array([u << 32 | int(counts.items.column[z])])
            row = int(counts.pairs.find(key)[0])
        for kind, where in ((HERE, "met"), (AWAY, "met elsewhere")):
            n = round(float(counts.pairs.count[row, kind, 2])) if row >= 0 else 0
            if n:
                last = moment(float(counts.pairs.last[row, kind]), client.past.dates)
                said.append(f"{where} {n:,} time{'s' * (n > 1)}, last at {last}")
        if row < 0 and z < len(counts.items) and (
                last_away := _last(lent, u, int(counts.items.column[z]))) is not None:
            said.append(f"met elsewhere, last at {moment(last_away, client.past.dates)}")
        said += dict.fromkeys(f.reason for f, value in zip(TABLE, x[q], strict=False)
                              if f.reason and value > OFTEN)
        if z < len(counts.items) and not (said and row >= 0):
            n = int(counts.items.others[z, 0])
            said.append(f"{n:,} user{'s' * (n != 1)} met it here")
        found.append("; ".join(said) or "never met here")
    return found


def _last(lent: Lent, user: int, column: int) -> float | None:
    """Return when a user without an edge here last met an item elsewhere; None: never."""
    k = int(np.searchsorted(lent.users, user))
    if k == len(lent.users) or lent.users[k] != user:
        return None
    there = np.flatnonzero(lent.column[lent.start[k]:lent.start[k + 1]] == column)
    return float(lent.last[lent.start[k] + there[0]]) if len(there) else None
