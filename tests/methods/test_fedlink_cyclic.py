"""draw = "cyclic": a client's steps take its buffers in their order, over rounds and stages."""

import numpy as np
import pytest

from fedvine import testing
from fedvine.experiments.run import run
from fedvine.methods._fedlink.edges import EdgeBuffers
from fedvine.methods._fedlink.rows import draw_batch
from fedvine.methods.fedlink import FedLink


@pytest.mark.slow
def test_the_contract():
    testing.check_method(FedLink.tiny().model_copy(update={"draw": "cyclic"}))


def test_steps_take_the_buffers_oldest_first_and_begin_again():
    kept, draw = EdgeBuffers(10, 3), np.random.default_rng(0)
    kept.push(*np.arange(44).reshape(2, 22).astype(np.int32))     # two whole buffers, and 2 edges
    oldest = [(0, 2), (2, 12), (12, 22)]                           # newest edges fill a buffer
    for turn in range(7):
        batch = draw_batch(kept, "cyclic", draw, {}, "cpu", turn)
        assert batch.users.tolist() == list(range(*oldest[turn % 3]))


def test_a_client_goes_on_where_it_was():
    taken = []

    class Watched(FedLink):
        """Turns are written down."""

        def batch(self, client, draw):
            taken.append((client.name, client.turn))
            return super().batch(client, draw)

    method = Watched.tiny().model_copy(update={"draw": "cyclic", "steps": 3})
    run(method, *testing.tiny_case(), seed=7, protocol=testing.PROTOCOL).finish()
    for name in testing.NAMES:
        turns = [turn for who, turn in taken if who == name]
        assert turns == list(range(len(turns))) and len(turns) == 4 * 2 * 3
