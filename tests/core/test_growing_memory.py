"""Memory that grows with the number of classes: nothing learned is lost, new rows are drawn."""

from typing import Any

import numpy as np
import pytest
import torch

from fedvine.core import registry
from fedvine.core.message import dumps, pack
from fedvine.core.rng import rng
from fedvine.core.state import Client, World
from fedvine.data.graph import Graph

NAMES = ("tea", "ham", "egg", "ale", "rye")
METHODS = sorted(name for name in registry.names("methods")
                 for kind in [registry.method(name)] if kind.task == "node")


def world(classes) -> World:
    return World(("ada",), 7, 9, {"features": 3, "classes": classes, "classes_at": [2, 3, 5],
                                  "class_names": NAMES})


def client(method, classes) -> Client:
    found = Client("ada", world(classes))
    method.setup(found)
    return found


def trained(name):
    """A method, its server and a client that has learned two classes."""
    method = registry.method(name).tiny()
    server, ada = method.start(world(2)), client(method, 2)
    draw = rng("growth")
    ada.stage = ada.past = Graph.make(draw.normal(size=(8, 3)), draw.integers(0, 8, (2, 9)),
                                      np.tile([0, 1], 4), classes=NAMES[:2])
    ada.place = (0, 1, 1)
    if hasattr(method, "step"):
        method.labelled(ada)
        method.receive(ada, server.model)
        ada.cache |= {"gradients": [], "correction": {n: torch.zeros(()) for n in server.model}}
        method.step(ada, 0)
    return method, server, ada


def state(memory) -> bytes:
    return dumps(pack(memory.dump()))


@pytest.mark.parametrize("name", METHODS)
def test_what_was_learned_stays_and_the_way_does_not_matter(name):
    method, server, ada = trained(name)
    before: Any = {k: v.clone() for k, v in getattr(server, "model", {}).items()}
    again, _, bob = method, *trained(name)[1:]
    method.grow(server, method.start(world(5)))
    for classes in (3, 5):                                  # one after the other, and at once
        method.grow(ada, client(method, classes))
    method.grow(bob, client(again, 5))
    assert state(ada) == state(bob)
    fresh = method.start(world(5))
    for key, old in before.items():
        new = server.model[key]
        assert new.shape == fresh.model[key].shape
        corner = tuple(map(slice, old.shape))
        assert torch.equal(new[corner], old)
        if key.startswith("second"):
            assert torch.equal(new[..., 2:], fresh.model[key][..., 2:])
    if hasattr(ada, "optimizer"):
        assert ada.optimizer.param_groups[0]["params"][0] is next(ada.model.parameters())
        held = ada.optimizer.state_dict()["state"]
        assert held
        for p, moments in zip(ada.optimizer.param_groups[0]["params"], held.values(), strict=True):
            assert moments["exp_avg"].shape == p.shape
            if p.shape[-1] == 5:
                assert not moments["exp_avg"][..., 2:].any() and moments["exp_avg"][..., :2].any()
        method.receive(ada, server.model)
        method.step(ada, 1)                                 # it learns on


def test_a_head_of_a_class_does_not_depend_on_the_others():
    net = registry.method("fedavg").tiny()
    whole = net.start(world(5)).model
    other = World(("ada",), 7, 9, world(5).facts | {"class_names": NAMES[::-1]})
    turned = net.start(other).model
    for key in ("second.weight", "second.source", "second.target"):
        assert torch.equal(whole[key], turned[key].flip(-1))
        assert len(whole[key].unique()) == whole[key].numel()
