"""FedLink's upload to the byte, as a run counts it: 4 for a row's number and 4 d for its change.

Counted besides are each message's skeleton (names, types and shapes of its arrays; it does not
grow with the rows) and the model. The framing of a transport is not counted.
"""

import numpy as np
import pytest

from fedvine import testing
from fedvine.core.message import pack
from fedvine.core.method import on_client
from fedvine.experiments.run import run
from fedvine.methods._fedlink.rows import SIDES
from fedvine.methods.fedlink import FedLink

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


def _uploads(width, share):
    """Bytes up by (t, r, function), skeletons taken off, and rows touched in the first stage."""
    method = Spy(rounds=2, capacity=CAPACITY, buffers=1, steps=2, width=width, share=share)
    parts, plan = testing.tiny_case()
    counted = {}

    def on_round(at, clients):
        for line in clients.log:
            counted[line["t"], line["r"], line["function"]] = line["up"]

    made = run(method, parts, plan, seed=7, protocol=testing.PROTOCOL, on_round=on_round)
    next(iter(made))
    assert made.server is not None
    skeletons = made.clients.world.facts["skeletons"]
    assert all(size < SKELETON for sizes in skeletons.values() for size in sizes)
    touched = 0
    for part in parts.parts.values():
        stage = plan.stage(part, 0)
        touched += sum(len(np.unique(getattr(stage, column)[-CAPACITY:]))
                       for column, side in (("src", "users"), ("dst", "items")) if side in share)
    model = sum(x.numel() for x in made.server.model.values()) * 4 * len(parts.parts)
    return ({place: counted[place] - sum(sizes) for place, sizes in skeletons.items()}, touched,
            model if "model" in share else 0)


@pytest.mark.parametrize("width", [4, 64])
@pytest.mark.parametrize("share", [("users",), ("items",), ("model", *SIDES)], ids="-".join)
def test_an_upload_is_touched_rows_times_their_bytes(width, share):
    up, touched, model = _uploads(width, share)
    assert touched > 10
    # round 1: nobody knows a row's number yet, so a key of 8 bytes stands for it
    assert up[0, 1, "choose"] == touched * 8
    assert up[0, 1, "train"] == touched * 4 * width + model
    # round 2: numbers are known
    assert up[0, 2, "choose"] == touched * 4
    assert up[0, 2, "train"] == touched * 4 * width + model
    assert up[0, 2, "choose"] + up[0, 2, "train"] - model == touched * (4 * width + 4)
