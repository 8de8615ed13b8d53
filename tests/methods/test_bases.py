"""A method whose own parts are off is the method that it extends; with them it is another one."""

from typing import Any

import pytest
import torch
from toys import changed

from fedvine import testing
from fedvine.core import registry
from fedvine.methods._fedlink.edges import edges
from fedvine.methods._fedlink.rows import make_batch
from fedvine.methods.stfl import STFL


class Newest(STFL):
    """Full-batch training on the newest snapshot, and nothing else."""

    def retained(self, client):
        return edges(client.stage)

    def batch(self, client, draw):
        return make_batch(*self.retained(client), self.where)


ALONE = {"share": ("users", "items")}
OFF: list[tuple[str, dict[str, Any], Any]] = [
    ("fed4dgnn", {"follow": False, "meeting": 1}, Newest), ("feddy", {"former": 0}, Newest),
    ("feddgl", {"distil": 0.0, "pull": 0.0}, "stfl"), ("fedprox", {"mu": 0.0}, "fedlink"),
    ("fedprox", {"mu": 1.0, **ALONE}, "fedlink"), ("scaffold", ALONE, "fedlink"),
    ("fedprox_node", {"mu": 0.0}, "fedavg"), ("replay", {"per_class": 0}, "fedavg"),
    ("twp", {"lambda_l": 0.0, "lambda_t": 0.0}, "fedavg"),
    ("dslr", {"neighbours": 0, "epsilon": 1e-9}, "ergnn"),
    ("feddgl_dyn", {"distil": 0.0, "pull": 0.0, "personal": False, "contrast": 0}, "fedavg_dyn")]


def ended(method: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """Return the scores, and the weights of the server's model."""
    made: Any = testing.run_small(method).finish()
    server = made.server
    model = dict(server.net.named_parameters()) if hasattr(server, "net") else server.model
    return made.scores, {n: v for n, v in model.items() if not n.endswith("_time")}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "off", "base"), OFF, ids=str)
def test_with_its_own_parts_off_a_method_is_its_base(name, off, base):
    method = changed(registry.method(name).tiny(), **off)
    base = registry.method(base) if isinstance(base, str) else base
    plain = base(**method.model_dump(include=base.model_fields.keys()))
    (scores, model), (expected, weights) = ended(method), ended(plain)
    assert scores == expected
    for n, value in weights.items():
        torch.testing.assert_close(model[n], value, rtol=0, atol=1e-12)
    if name != "scaffold" and off.get("mu") != 1.0:
        assert ended(registry.method(name).tiny())[0] != expected
