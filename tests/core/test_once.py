"""What a client sends once reaches the server where an answer was lost or a client was away."""

from typing import Any

import numpy as np
import pytest
from toys import changed

from fedvine import testing
from fedvine.core.message import pack, unpack
from fedvine.core.state import Client, World, added, unsent
from fedvine.engines.faults import MockClients
from fedvine.methods.power import Power
from fedvine.methods.power_plus import PowerPlus
from fedvine.rivals.hop_ral import HopRal


def sums_of(server):
    """All that the server has added up, by name; prototypes in an order of their own."""
    if "gram" in vars(server):
        return {"gram": server.gram, "cross": server.cross}
    if "x" in vars(server):
        rows = np.column_stack([server.y.numpy(), server.x.numpy()])
        return {"prototypes": rows[np.lexsort(rows.round(4).T)]}
    kept = ("counts", "cross", "gram")
    return {"sums": server.sums.numpy(), "nodes": server.counts.numpy(),
            **{n: server.closed[n] for n in kept if server.closed}}


HOP = HopRal.tiny()
POWER = Power.tiny().model_copy(update={"rounds": 3})
PLUS = PowerPlus(rounds=2, epochs=1, hidden=4, width=24, expansion=3, hops=2)
NARROW = PLUS.model_copy(update={"width": 0})
FAULTS = {
    "a lost answer": {"lose": {(1, 0, 1): {"bob"}, (1, 0, 2): {"bob"}, (1, 1, 1): {"bob"}}},
    "two lost answers": {"lose": {(t, r, c): {"bob"} for t in (1, 2) for r in (0, 1)
                                  for c in (1, 2)}},
    "lost, then away": {"lose": {(1, 1, 1): {"cyd"}, (1, 0, 1): {"cyd"}}, "away": {
        (2, r): {"cyd"} for r in range(4)}},
    "away for a task": {"away": {(1, r): {"cyd"} for r in range(4)}},
    "away when two tasks begin": {"away": {(t, 0): {"cyd"} for t in (1, 2)}},
    "late in the last task": {"lose": {(3, 0, c): {"bob"} for c in (1, 2)}}}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("method", [HOP, POWER, PLUS, NARROW],
                         ids=["hop_ral", "power", "power_plus", "class_means"])
def test_the_server_has_the_sums_of_a_run_without_faults(method, fault):
    """Once: not twice where the answer came and the call after it did not."""
    whole = testing.run_small(method).finish()
    found = testing.run_small(method, engine=MockClients, quorum=0.5, **fault).finish()
    expected = sums_of(whole.server)
    for name, value in sums_of(found.server).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-4, err_msg=name)
    assert not any(found.clients._lost.values())


@pytest.mark.parametrize(("more", "quorum"), [
    ({}, 1.0), ({"aggregate": {"secure": True}}, 0.6),
    ({"noise": 1.0, "clip": 1.0, "width": 0, "hops": 0}, 0.6)], ids=str)
def test_hidden_sums_and_those_of_all_are_not_sent_again(more, quorum):
    """A sum of an earlier task's classes would be that of the late client alone."""
    made: Any = testing.run_small(changed(PLUS, **more), quorum=quorum).finish()
    for worker in made.clients.workers.values():
        assert "kept_uploads" not in vars(worker.client)


def client(place=(0, 1, 1), lost=()):
    found = Client("ada", World(testing.NAMES, 0, 4, {"features": 2, "classes": 3}))
    found.place, found.once = place, ("f", list(lost))
    return found


def test_what_is_kept_survives_a_save_and_more_classes():
    ada, value = client(), {"sums": np.ones((2, 3))}
    assert unsent(ada, value) is value
    again = client((1, 0, 1), lost=(0, 1))
    again.load(unpack(pack(ada.dump())))
    found: Any = unsent(again, {"sums": np.full((4, 3), 2.0)}, added)
    assert found["sums"].tolist() == [[3.0] * 3, [3.0] * 3, [2.0] * 3, [2.0] * 3]


@pytest.mark.parametrize(("lost", "sent"), [
    ([], None), ([0, 2], None), ([0, 1], 1.0), ([0, 0], 1.0)], ids=str)
def test_it_is_sent_again_only_where_the_server_does_not_have_it(lost, sent):
    """Not where the first answer that did not come is of a later round than this upload."""
    ada = client()
    unsent(ada, {"sums": np.ones(1)})
    ada.place, ada.once = (0, 3, 1), ("f", lost)
    found = unsent(ada, None)
    assert (None if found is None else found["sums"][0]) == sent
