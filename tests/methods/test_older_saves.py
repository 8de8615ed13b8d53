"""Saves of the release before: what is kept in objects today stood in the memory itself."""

from typing import Any

import pytest

from fedvine import testing
from fedvine.core.ledger import seeded
from fedvine.core.message import pack, unpack
from fedvine.core.state import Memory
from fedvine.experiments.run import run
from fedvine.methods.dgcolearn import DgCoLearn
from fedvine.methods.fedsage_dyn import FedSageDyn


def flat(memory: Memory) -> dict[str, Any]:
    """What the release before saved: one name each in place of placement, border and part."""
    found = memory.dump()
    for name, held in vars(memory).items():
        if hasattr(held, "flat_names"):
            state = found.pop(name)["<state>"]
            found |= {was: state[now] for was, now in held.flat_names.items()}
    return unpack(pack(found))


def plain(memory: Memory) -> Any:
    """The memory in an order that does not depend on how it was loaded."""
    def ordered(value: Any) -> Any:
        if isinstance(value, dict):
            return [[str(k), ordered(value[k])] for k in sorted(value, key=str)]
        return [ordered(v) for v in value] if isinstance(value, (list, tuple)) else value
    packed = pack(ordered(memory.dump()))
    return packed.skeleton, [bytes(b) for b in packed.buffers]


@pytest.mark.slow
@pytest.mark.parametrize("method", [
    DgCoLearn(rounds=1, features=4, hidden=4, min_group=2, scope="changed", edges_per_client=40),
    DgCoLearn(rounds=1, features=4, hidden=4, exchange="paper", exchange_gradients=False),
    FedSageDyn.tiny()], ids=["layerwise", "paper", "fedsage_dyn"])
def test_both_sides_resume_from_a_save_of_the_release_before(method):
    """Half a run, then memory as it was saved then: the other half is that of the whole run."""
    split, plan = testing.tiny_case()
    whole: Any = run(method, split, plan, protocol=testing.PROTOCOL, fresh=seeded(1)).finish()
    made: Any = run(method, split, plan, protocol=testing.PROTOCOL, fresh=seeded(1))
    steps = iter(made)
    next(steps), next(steps)
    old = flat(made.server)
    assert {"owner", "dealt", "edges", "served"} <= set(old) and "placement" not in old
    for name, value in vars(method.start(made.clients.world)).items():
        setattr(made.server, name, value)               # as at the start of a run
    made.server.load(old)
    for worker in made.clients.workers.values():
        was, place = flat(worker.client), worker.client.place
        assert {"x", "ends", "others"} <= set(was) and "part" not in was
        worker.renew()
        worker.client.load(was)
        worker.client.place = (-1, *place[1:])
    for _ in steps:
        pass
    assert [s.found for s in made.stages] == [s.found for s in whole.stages]
    assert plain(made.server) == plain(whole.server)
    for a, b in zip(made.clients.workers.values(), whole.clients.workers.values(), strict=True):
        assert plain(a.client) == plain(b.client)
