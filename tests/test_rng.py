"""Randomness by place."""

import numpy as np

from fedvine import rng as rng_module


def test_a_generator_is_a_philox_of_its_key():
    for place in ((0, "a"), (7, "client", 3, 1, 2, "step"), (b"x",)):
        plain = np.random.Generator(np.random.Philox(key=rng_module.key(*place)))
        mine = rng_module.rng(*place)
        assert plain.integers(0, 2**63, 9).tolist() == mine.integers(0, 2**63, 9).tolist()
        assert plain.normal(size=3).tolist() == mine.normal(size=3).tolist()
