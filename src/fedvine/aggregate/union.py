"""The union of what clients have, by secure sums over prefixes of hashed keys.

The server learns which keys some client has, and not which client; see ``fedlink_private``.
"""

from __future__ import annotations

import secrets

import numpy as np

from fedvine.core.lookup import find

LEVELS = (12, 6, 6, 6, 6, 6)  # bits of a key that each sum of the union adds; 42 in all
BITS = sum(LEVELS)


def short(keys: np.ndarray) -> np.ndarray:
    """Return the first 42 bits of 64-bit keys: of a million keys two hardly ever agree in them."""
    return keys >> np.uint64(64 - BITS)


def marks(keys: list[np.ndarray], parents: list[np.ndarray], done: int, bits: int) -> np.ndarray:
    """Return a client's vector for one level of the union: not 0 where it has a key.

    Numbers are random, so a place of the sum that is not 0 shows that some client has the key, and
    not how many do.

    Args:
        keys: the client's short keys, uint64, one array a table.
        parents: prefixes of ``done`` bits that some client has, sorted, one array a table.
        done: bits of the parents.
        bits: bits that this level adds.

    Returns:
        A vector uint64 with 2^bits places for each parent, tables one after the other.
    """
    found = []
    for mine, known in zip(keys, parents, strict=True):
        vector = np.zeros(len(known) << bits, np.uint64)
        here = np.unique(mine >> np.uint64(BITS - done - bits))
        # A prefix is missing where this client's vector of the level before did not arrive.
        at = find(known, here >> np.uint64(bits))
        here, at = here[at >= 0], at[at >= 0] << bits
        at += (here & np.uint64((1 << bits) - 1)).astype(at.dtype)
        drawn = np.frombuffer(secrets.token_bytes(8 * len(at)), np.uint64)
        vector[at] = np.maximum(drawn, np.uint64(1))
        found.append(vector)
    return np.concatenate(found)


def occupied(total: np.ndarray, parents: list[np.ndarray], bits: int) -> list[np.ndarray]:
    """Return the prefixes that some client has by a level's sum, uint64, sorted, a table each."""
    found, start = [], 0
    for known in parents:
        here = np.flatnonzero(total[start:start + (len(known) << bits)])
        found.append((known[here >> bits] << np.uint64(bits)) |
                     (here & ((1 << bits) - 1)).astype(np.uint64))
        start += len(known) << bits
    return found
