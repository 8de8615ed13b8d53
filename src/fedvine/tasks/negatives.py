"""Negatives of link prediction: items that a user does not meet, as codes or numbers.

The code of a pair is user * width + item; ``now`` are the sorted codes of the pairs that the scored
stage holds, ``width`` is the number of items.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedvine.core.lookup import find


def random(draw: np.random.Generator, src: np.ndarray, items: np.ndarray, now: np.ndarray,
           many: int, width: int) -> np.ndarray:
    """Draw items for each user, none of which the user meets in this stage.

    Args:
        draw: generator.
        src: users int64 [Q].
        items: items to draw from, int64, ascending.
        now: sorted codes of the pairs of this stage, int64.
        many: items a user.
        width: number of items.

    Returns:
        Items int64 [Q, many]; 0 where ``items`` is empty. A user who meets every item gets items
            all the same.
    """
    def taken(user: np.ndarray, item: np.ndarray) -> np.ndarray:
        codes = user * width + item
        # np.isin makes both unique first: 140 times as long where there are many codes of now
        return find(now, codes) >= 0 if len(now) > len(codes) else np.isin(codes, now)

    def free(user: int) -> np.ndarray:
        own = now[slice(*np.searchsorted(now, [user * width, (user + 1) * width]))]
        return np.setdiff1d(items, own % width)
    return drawn(draw, src, items, many, taken, free)


def drawn(draw: np.random.Generator, src: np.ndarray, items: np.ndarray, many: int,
          taken: Callable[[np.ndarray, np.ndarray], np.ndarray], free: Callable[[int], np.ndarray]
          ) -> np.ndarray:
    """Draw items as :func:`random` does.

    Args:
        draw: generator.
        src: users int64 [Q].
        items: items to draw from, int64, ascending.
        many: items a user.
        taken: returns which of some users and items int64 [n] meet in this stage, bool [n].
        free: returns the items, ascending, that a user does not meet in this stage.

    Returns:
        Items int64 [Q, many], see :func:`random`.
    """
    if not len(items):
        return np.zeros((len(src), many), np.int64)
    user = np.broadcast_to(src[:, None], (len(src), many))
    found = items[draw.integers(0, len(items), (len(src), many))]
    for _ in range(3):
        hit = taken(user.ravel(), found.ravel()).reshape(found.shape)
        if not hit.any():
            return found
        found[hit] = items[draw.integers(0, len(items), int(hit.sum()))]
    hit = taken(user.ravel(), found.ravel()).reshape(found.shape)
    for u in np.unique(user[hit]):  # users who meet nearly all items: draw exactly
        left = free(int(u))
        mine = hit & (user == u)
        if len(left):
            found[mine] = draw.choice(left, int(mine.sum()))
    return found


def met(draw: np.random.Generator, src: np.ndarray, past: np.ndarray, wide: np.ndarray,
        share: float, width: int) -> np.ndarray:
    """Replace the first items of each user by items that the user met before.

    Args:
        draw: generator.
        src: users int64 [Q].
        past: sorted codes of pairs met before and not in this stage, int64.
        wide: items int64 [Q, W].
        share: share of the W items to replace, in [0, 1].
        width: number of items.

    Returns:
        Items int64 [Q, W]; a user without such pairs keeps the items of ``wide``.
    """
    if not len(past):
        return wide
    first, end = np.searchsorted(past, src * width), np.searchsorted(past, (src + 1) * width)
    many = round(share * wide.shape[1])
    pick = first[:, None] + (draw.random((len(src), many)) * (end - first)[:, None]).astype(int)
    old = past[np.minimum(pick, len(past) - 1)] % width
    return np.concatenate([np.where((end > first)[:, None], old, wide[:, :many]), wide[:, many:]],
                          1)


def pairs(draw: np.random.Generator, users: np.ndarray, items: np.ndarray, now: np.ndarray,
          many: int, width: int) -> np.ndarray:
    """Draw pairs of a random user and a random item, none of them in this stage.

    Args:
        draw: generator.
        users: users to draw from, int64.
        items: items to draw from, int64.
        now: sorted codes of the pairs of this stage, int64.
        many: number of pairs.
        width: number of items.

    Returns:
        Codes int64 [many]; where every drawn pair is in this stage, those pairs.
    """
    if not many:
        return np.empty(0, np.int64)
    codes = (users[draw.integers(0, len(users), many)] * width
             + items[draw.integers(0, len(items), many)])
    free = codes[~np.isin(codes, now)]
    return np.resize(free, many) if len(free) else codes
