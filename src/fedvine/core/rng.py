"""Randomness as a function of its place: the same place draws the same numbers, always.

There is no generator with a state that moves on. A draw is named by the place where it happens, for
example ``rng(seed, client, t, r, call, purpose)``, so that delivering a message twice, replaying a
round or restarting a client changes nothing.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

Place = str | int | bytes


def key(*place: Place) -> int:
    """Return a 128-bit number for a place; two places, also ("a", "b") and ("ab",), differ."""
    parts = []
    for part in place:
        text = part if isinstance(part, bytes) else str(part).encode()
        parts += [len(text).to_bytes(8, "little"), type(part).__name__[:1].encode(), text]
    return int.from_bytes(hashlib.blake2b(b"".join(parts), digest_size=16).digest(), "little")


class _Key(np.random.bit_generator.ISeedSequence):
    """Seed sequence that gives a Philox its key, in place of a seed from the system."""

    def __init__(self, number: int) -> None:
        self.number = number

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        """Return the key as two words, uint64 [2]."""
        return np.array([self.number & (2**64 - 1), self.number >> 64], np.uint64)


def rng(*place: Place) -> np.random.Generator:
    """Return a NumPy generator (Philox, counter-based) that belongs to ``place``."""
    return np.random.Generator(np.random.Philox(_Key(key(*place))))  # type: ignore[arg-type]


def torch_rng(*place: Place) -> torch.Generator:
    """Return a torch CPU generator that belongs to ``place``; for layers and dropout masks."""
    import torch
    return torch.Generator().manual_seed(key(*place) & (2**63 - 1))


def hashed_uniform(seed: int, keys: np.ndarray, width: int) -> np.ndarray:
    """Return uniform numbers in [-1, 1), one row a key, that depend on (seed, key) alone.

    A node's first embedding comes from here, so the time, place and order in which nodes are first
    seen do not matter. The mixing is SplitMix64's finaliser (Steele et al. 2014), in integers only,
    so the result is the same on every machine.

    Args:
        seed: of the run.
        keys: uint64 [n].
        width: numbers a key.

    Returns:
        float32 [n, width].
    """
    with np.errstate(over="ignore"):
        state = mixed(keys.astype(np.uint64) ^ np.uint64(key("rows", seed) & (2**64 - 1)))
        columns = (np.arange(1, width + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        bits = mixed(state[:, None] + columns[None, :])
    return ((bits >> np.uint64(40)).astype(np.float32)) * np.float32(2.0**-23) - np.float32(1.0)


def mixed(x: np.ndarray) -> np.ndarray:
    """Return SplitMix64's finaliser of each number, uint64 [...]: all bits depend on all bits."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
