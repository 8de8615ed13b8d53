"""Features of a pair from tables of users and items: by whom an item is met, and the reverse.

For each item a client adds up the features of the users that meet it, and for each user those of
the items. A category has the log of its share among these less the log of its share overall (naive
Bayes); a number the log of its density less that of its density overall, both normal; all shares,
means and variances are drawn towards the overall ones by :data:`PRIOR` edges. So a user or an item
without an edge is answered from its row of the table.
"""

from __future__ import annotations

import numpy as np

from fedvine.core.method import Client
from fedvine.data.node_features import features, width
from fedvine.data.node_table import BUCKETS
from fedvine.methods._fedlink_plus.features import AT

PRIOR = 5.0
LEAST = 0.05        # variance, of numbers with variance 1 overall
MOST = 1000.0       # of a log ratio of many numbers, so that its square can be summed
SIDES = ("users", "items")


def parts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split features float32 [n, D] into categories [n, BUCKETS or 0], numbers [n, F], and flags.

    The flags, bool [n, F], say which numbers are there.
    """
    buckets = BUCKETS if x.shape[1] > BUCKETS else 0
    F = (x.shape[1] - 1 - buckets) // 2
    there = (x[:, F:2 * F] == 0) & (x[:, -1:] > 0)
    return np.abs(x[:, 2 * F:2 * F + buckets]), x[:, :F], there


def sums_of(x: np.ndarray) -> np.ndarray:
    """Return what is added up of rows of features, float64 [n, 1 + BUCKETS or 0 + 3 F]."""
    categories, numbers, there = parts(x)
    kept = np.where(there, numbers, 0.0)
    return np.concatenate([np.ones((len(x), 1)), categories, there, kept, kept ** 2], 1)


class Profiles:
    """Sums of features: by item those of its users, by user those of its items; and overall."""

    def __init__(self) -> None:
        self.by = {side: np.zeros((0, 0)) for side in SIDES}        # by node of the other side
        self.all = {side: np.zeros(0) for side in SIDES}

    def add(self, client: Client, src: np.ndarray, dst: np.ndarray) -> None:
        """Add the features of both ends of events; nothing without tables."""
        for side, own, other in ((SIDES[0], src, dst), (SIDES[1], dst, src)):
            x = features(client, side) if width(client.world, side) else None
            if x is None or not len(own):
                continue
            made = sums_of(x[own])
            held, most = self.by[side], int(other.max()) + 1
            if len(held) < most:
                grown = np.zeros((most, made.shape[1]))
                if held.size:
                    grown[:len(held)] = held
                self.by[side] = held = grown
            np.add.at(held, other, made)
            self.all[side] = made.sum(0) + (self.all[side] if self.all[side].size else 0.0)

    def features(self, client: Client, src: np.ndarray, dst: np.ndarray, out: np.ndarray) -> None:
        """Write the features of pairs into their part of ``out`` float32 [Q, WIDTH]."""
        for at, side, opposite, own, other in ((AT.table_user, *SIDES, src, dst),
                                               (AT.table_item, *SIDES[::-1], dst, src)):
            if not self.by[side].size:
                continue
            x, held = features(client, side), self.by[side]
            assert x is not None
            there = own < len(x)
            x = x[np.where(there, own, 0)] * there[:, None]
            met = other < len(held)
            mine = held[np.where(met, other, 0)] * met[:, None]
            likely, dense = compared(x, mine, self.all[side])
            reverse = self.by[opposite]
            known = own < len(reverse)
            known[known] = reverse[own[known], 0] > 0 if reverse.size else False
            out[:, at], out[:, at + 1] = likely, dense
            out[:, at + 2] = np.where(known, 0.0, likely)
            out[:, at + 3] = np.where(known, 0.0, dense)

    def state_dict(self) -> dict[str, dict[str, np.ndarray]]:
        """Return what a save keeps; arrays are the live ones."""
        return {"by": self.by, "all": self.all}

    def load_state_dict(self, state: dict[str, dict[str, np.ndarray]]) -> None:
        """Take back what :meth:`state_dict` gave."""
        self.by, self.all = dict(state["by"]), dict(state["all"])


def compared(x: np.ndarray, mine: np.ndarray, overall: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how much likelier features are among some nodes than overall.

    Args:
        x: features float32 [Q, D].
        mine: sums over the nodes that each was met by, [Q, S], as :func:`sums_of` has them.
        overall: sums over all, [S].

    Returns:
        Of categories and of numbers the log ratios, float64 [Q] each.
    """
    categories, numbers, there = parts(x)
    C, F = categories.shape[1], numbers.shape[1]
    n = mine[:, :1]
    share = (overall[1:1 + C] + 0.1) / (overall[0] + 1)
    ratio = np.log((mine[:, 1:1 + C] + PRIOR * share) / (n + PRIOR)) - np.log(share)
    many, total, square = (overall[1 + C + k * F:1 + C + (k + 1) * F] for k in range(3))
    mean = total / np.maximum(many, 1.0)
    spread = np.maximum(square / np.maximum(many, 1.0) - mean ** 2, LEAST)
    k, t, s = (mine[:, 1 + C + i * F:1 + C + (i + 1) * F] for i in range(3))
    own = (t + PRIOR * mean) / (k + PRIOR)
    own_spread = np.maximum((s + PRIOR * (spread + mean ** 2)) / (k + PRIOR) - own ** 2, LEAST)
    dense = 0.5 * (np.log(spread / own_spread) + (numbers - mean) ** 2 / spread
                   - (numbers - own) ** 2 / own_spread)
    return (ratio * categories).sum(1), np.clip(np.where(there, dense, 0.0).sum(1), -MOST, MOST)
