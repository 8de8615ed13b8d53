"""ROLAND: the meta-model and batch norm, by hand; without them it is one machine's DG-CoLearn."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from fedvine import testing
from fedvine.core import tree
from fedvine.experiments.run import run
from fedvine.methods.roland import Roland
from fedvine.nn.roland import Roland as Layers


def test_a_layer_has_the_rows_of_torchs_batch_norm():
    net = Layers(6, 4, 2, seed=1).double()
    plain = net.combine(0, *(given := rows(6, 4)))
    net.add_norm()
    draw = torch.Generator().manual_seed(2)
    with torch.no_grad():
        net.double().norm_scale_0.copy_(torch.rand(4, generator=draw))
        net.norm_shift_0.copy_(torch.rand(4, generator=draw))
    layer = torch.nn.BatchNorm1d(4).double().train()
    layer.weight.data, layer.bias.data = net.norm_scale_0.data, net.norm_shift_0.data
    linear = given[0] @ net.self_0 + (given[2] / given[3].clamp(min=1)[:, None]) @ net.near_0 \
        if not net.short(0) else (given[0] @ net.self_0 + given[2] / given[3].clamp(min=1)[:, None])
    torch.testing.assert_close(net.combine(0, *given), layer(linear).relu())
    assert not torch.allclose(net.combine(0, *given), plain)
    alone = net.combine(0, *(g[:1] for g in given))
    torch.testing.assert_close(alone, net.norm_shift_0.relu()[None])    # its own mean


def rows(features: int, hidden: int, nodes: int = 9) -> tuple[torch.Tensor, ...]:
    draw = torch.Generator().manual_seed(1)
    width = min(features, hidden)
    return (torch.randn(nodes, features, generator=draw, dtype=torch.float64),
            torch.randn(nodes, width, generator=draw, dtype=torch.float64),
            torch.randn(nodes, width, generator=draw, dtype=torch.float64),
            torch.randint(0, 4, (nodes,), generator=draw).double())


def test_every_snapshot_begins_with_the_moving_average_of_the_models_before():
    begun: list[Any] = []
    learned: list[Any] = []

    class Watched(Roland):
        """The model before the first round and after the last one is written down."""

        def round(self, server, clients, at):
            super().round(server, clients, at)
            if at.last:
                learned.append(tree.weights(server.net))
                begun.append(tree.clone(server.meta))

    parts, plan = testing.tiny_case()
    method: Any = Watched.tiny().model_copy(update={"meta": 0.7})
    found = run(method, parts, plan, seed=7, protocol=testing.PROTOCOL)
    found.finish()
    meta = learned[0]
    for now, kept in zip(learned, begun, strict=True):
        if now is not learned[0]:
            meta = {n: 0.3 * meta[n] + 0.7 * now[n] for n in meta}
        for n, value in meta.items():
            torch.testing.assert_close(kept[n], value)
    assert len(learned) == len(plan) > 2

    # One round without a step would leave the meta-model: Adam's first step is the learning rate.
    still = Watched.tiny().model_copy(update={"meta": 0.7, "rounds": 1, "learning_rate": 1e-9})
    begun.clear(), learned.clear()
    run(still, parts, plan, seed=7, protocol=testing.PROTOCOL).finish()
    for n, value in learned[-1].items():
        torch.testing.assert_close(value, begun[0][n], atol=1e-6, rtol=0)


def test_norm_needs_layers_with_rows_and_all_rows():
    with pytest.raises(ValidationError, match="norm is for the backbones sage and gcn"):
        Roland(norm=True, backbone="evolvegcn-o")
    with pytest.raises(ValueError, match="norm takes the mean over all nodes"):
        Roland(scope="changed", norm=True)
