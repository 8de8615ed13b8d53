"""FedLink's lines of the server, its uploads to the byte, and buffers in turn."""

import numpy as np
import pytest
import torch

from fedvine import testing
from fedvine.core.errors import Refused
from fedvine.core.message import pack
from fedvine.core.method import At, World, on_client
from fedvine.methods._fedlink.edges import EdgeBuffers
from fedvine.methods._fedlink.rows import SIDES, Request, draw_batch
from fedvine.methods.fedlink import FedLink

NONE = {"rows": np.empty(0, np.int32), "keys": np.empty(0, np.uint64)}


class Given:
    """Clients that request given rows of users, and send differences that are all one number."""

    def __init__(self, touched, model):
        self.touched, self.model = touched, model

    def call(self, function, *same, fold=None, **more):
        if function.__name__ == "choose":
            return {str(n): {"users": {**NONE, "rows": np.array(rows, np.int32)}, "items": NONE}
                    for n, rows in self.touched.items()}
        for n, rows in self.touched.items():
            delta = {"users": torch.full((len(rows), 2), float(n)), "items": torch.empty(0, 2)}
            model = {name: torch.full(w.shape, float(n)) for name, w in self.model.items()}
            fold(str(n), delta | ({"model": model} if model else {}))
        return None

    def measured(self, norms):
        assert set(norms) == ({str(n) for n in self.touched} if self.model else set())


@pytest.mark.parametrize("share", [("model", "users", "items"), ("users",)], ids="-".join)
@pytest.mark.parametrize("divide", ["clients", "touching"])
def test_differences_are_averaged_over_all_clients_that_answer(divide, share):
    """Three answer; rows 0, 1, 2 and 3 are touched by one, two, three and none of them."""
    method = FedLink(width=2, divide=divide, share=share)
    server = method.start(World(("1", "2", "3"), 0, 1))
    server.users.numbers(np.arange(4, dtype=np.uint64))
    users, model = server.users.values.clone(), server.model
    given = Given({1: [0, 1, 2], 2: [1, 2], 3: [2]}, model if "model" in share else {})
    method.round(server, given, At(0, 1, 1))
    sums = np.array([1, 1 + 2, 1 + 2 + 3, 0])
    expected = sums / {"clients": 3, "touching": np.array([1, 2, 3, 1])}[divide]
    torch.testing.assert_close(server.users.values - users,
                               torch.from_numpy(expected).float()[:, None].expand(4, 2))
    for name, before in model.items():
        moved = torch.full(before.shape, 2.0 if "model" in share else 0.0)
        torch.testing.assert_close(server.model[name] - before, moved)


def test_a_round_that_no_client_answers_changes_nothing():
    method = FedLink(width=2)
    server = method.start(World(("1",), 0, 1))
    model = server.model
    method.round(server, Given({}, model), At(0, 1, 1))
    assert all(torch.equal(server.model[name], before) for name, before in model.items())
    assert not len(server.users)


@pytest.mark.parametrize("twice", [
    {"rows": [0, 1, 0]}, {"keys": [5, 5]}, {"rows": [1], "keys": [11]}, {"rows": [3]}], ids=str)
def test_a_row_that_is_asked_for_twice_is_refused(twice):
    """It would count as several clients', in averages and against a rule for false updates."""
    table = FedLink(width=2).start(World(("1",), 0, 1)).users
    table.numbers(np.array([10, 11, 12], np.uint64))
    asked = {"rows": np.array(twice.get("rows", []), np.int32),
             "keys": np.array(twice.get("keys", []), np.uint64)}
    with pytest.raises(Refused):
        Request(table).check(asked, "it", {})
    once = {"rows": np.array([0, 2], np.int32), "keys": np.array([11, 13], np.uint64)}
    Request(table).check(once, "it", {})


CAPACITY, SKELETON = 40, 2000    # edges of the one buffer; more bytes than any skeleton here has


class Spy(FedLink):
    """Keeps the skeletons of what clients answer, by (t, r, function)."""

    @on_client
    def choose(self, client):
        return self.note(client, "choose", super().choose(client))

    @on_client
    def train(self, client, model, sent):
        return self.note(client, "train", super().train(client, model, sent))

    def note(self, client, function, reply):
        client.world.facts.setdefault("skeletons", {}).setdefault(
            (*client.place[:2], function), []).append(len(pack(reply).skeleton))
        return reply


@pytest.mark.parametrize("width", [4, 64])
@pytest.mark.parametrize("share", [("users",), ("items",), ("model", *SIDES)], ids="-".join)
def test_an_upload_is_touched_rows_times_their_bytes(width, share):
    """Skeletons taken off. A row is a key of 8 bytes until its number is known."""
    counted = {}

    def on_round(at, clients):
        for line in clients.log:
            counted[line["t"], line["r"], line["function"]] = line["up"]

    made = testing.run_small(Spy(rounds=2, capacity=CAPACITY, buffers=1, steps=2, width=width,
                                 share=share), on_round=on_round)
    next(iter(made))
    skeletons = made.clients.world.facts["skeletons"]
    assert all(size < SKELETON for sizes in skeletons.values() for size in sizes)
    up = {place: counted[place] - sum(sizes) for place, sizes in skeletons.items()}
    touched = sum(len(np.unique(getattr(made.plan.stage(part, 0), column)[-CAPACITY:]))
                  for part in made.parts.values()
                  for column, side in (("src", "users"), ("dst", "items")) if side in share)
    model = sum(x.numel() for x in made.server.model.values()) * 4 * len(made.parts)
    assert touched > 10
    for r, row in ((1, 8), (2, 4)):
        assert up[0, r, "choose"] == touched * row
        assert up[0, r, "train"] == touched * 4 * width + ("model" in share) * model


def test_steps_take_the_buffers_oldest_first_and_begin_again():
    kept, draw = EdgeBuffers(10, 3), np.random.default_rng(0)
    kept.push(*np.arange(44).reshape(2, 22).astype(np.int32))     # two whole buffers, and 2 edges
    oldest = [(0, 2), (2, 12), (12, 22)]                           # newest edges fill a buffer
    for turn in range(7):
        batch = draw_batch(kept, "cyclic", draw, {}, "cpu", turn)
        assert batch.users.tolist() == list(range(*oldest[turn % 3]))
