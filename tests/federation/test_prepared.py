"""A run is prepared alike in one process and in a federation: facts, queries and scores."""


import numpy as np
import pandas as pd
import pytest
from engines.small_kits import kit

from fedvine import testing
from fedvine.core.errors import FedvineError
from fedvine.core.message import dumps, loads, pack, unpack
from fedvine.core.rng import rng
from fedvine.datasets import synthetic
from fedvine.experiments.answers import Labels
from fedvine.experiments.experiment import Experiment
from fedvine.federation.order import Order
from fedvine.federation.server import forecast, open_order
from fedvine.federation.signed import Signer, Trusted
from fedvine.federation.site import Site
from fedvine.federation.site_saves import kept, labels
from fedvine.methods.dgcolearn import DgCoLearn
from fedvine.methods.last_label import LastLabel

SITES, SERVER = testing.NAMES, "hub.example"


@pytest.fixture
def table(tmp_path):
    """Edges without a direction between nodes of one kind, some from a node to itself."""
    draw = rng("prepared")
    u, v = draw.integers(0, 30, (2, 400))
    frame = pd.DataFrame({"u": u, "v": v, "t": np.sort(draw.integers(0, 4000, 400)),
                          "who": np.array(SITES)[u % len(SITES)]})
    frame.to_csv(tmp_path / "all.csv", index=False)
    return {"source": str(tmp_path / "all.csv"), "src": "u", "dst": "v", "time": "t",
            "undirected": True, "sure": True}


def sites(folder):
    """Sites in this process that hold no table, and the way to them."""
    kits = {name: kit(folder / "kits", name) for name in (SERVER, *SITES)}
    found = {name: Site(name, lambda: None, folder / name, Trusted(kits[name], name))
             for name in SITES}
    return found, Signer(kits[SERVER], "a run",
                         lambda name, block, seal, _: bytes(found[name].handle(bytes(block), seal)),
                         lambda name, _: found[name].trusted.session)


@pytest.mark.slow
def test_a_server_with_an_undirected_graph(tmp_path, table):
    method = DgCoLearn.tiny()
    chosen = {"name": method.name, **method.model_dump(mode="json", exclude_none=True)}
    protocol = testing.PROTOCOL.model_dump()
    one = Experiment.model_validate({
        "data": {**table, "client": "who"}, "method": chosen, "stages": "1000s", "seed": 7,
        "protocol": protocol}).run(tmp_path / "one").finish()
    held, send = sites(tmp_path)
    order = Order.model_validate({"out": str(tmp_path / "run"), "method": chosen, "data": table,
                                  "stages": "1000s", "seed": 7, "protocol": protocol})
    made = open_order(order, "a run", list(SITES), send)[0].finish()
    assert made.clients.world.facts == {"directed": False}
    assert all(s.worker.world == made.clients.world for s in held.values())
    assert [[s.t, s.found] for s in made.stages] == [[s.t, s.found] for s in one.stages]
    assert "ap_nodes_across" in made.scores["test"]["mean"]
    for key in ("bytes_up", "bytes_down", "sizes", "self_loops_left_out"):
        assert made.summary[key] == one.summary[key], key
    assert forecast(made, 3) == ""                      # the server's own, in its run folder
    user = pd.read_csv(table["source"])["u"].astype(str)[0]
    best, expected = kept(tmp_path / "run", user, 3), one.predict("all", user, 3)
    assert [(b.item, b.known) for b in best] == [(e.item, e.known) for e in expected]
    assert np.allclose([b.score for b in best], [e.score for e in expected])
    table["source"] = str(tmp_path / "other.csv")       # not the table that the run began with
    pd.read_csv(tmp_path / "all.csv").iloc[:-1].to_csv(table["source"], index=False)
    with pytest.raises(FedvineError, match="another experiment"):
        open_order(order.model_copy(update={"data": Order.model_validate(
            {**order.model_dump(), "data": table}).data}), "a run", list(SITES), send)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [DgCoLearn, LastLabel], ids=lambda kind: kind.name)
def test_a_server_with_classes(tmp_path, monkeypatch, kind):
    """Classes of nodes over snapshots: the sites hold no table, the server keeps the labels."""
    method = kind.tiny()
    method = method.model_copy(update={"target": "classes"} if kind is DgCoLearn else {})
    chosen = {"name": method.name, **method.model_dump(mode="json", exclude_none=True)}
    monkeypatch.setattr(synthetic, "load", lambda *args, **options: testing.tiny_labelled())
    one = Experiment.model_validate({"data": "synthetic", "split": {"by": "client"}, "seed": 7,
                                     "method": chosen, "stages": "1000"}).run().finish()
    _, send = sites(tmp_path)
    order = Order.model_validate({"out": str(tmp_path / "run"), "method": chosen, "seed": 7,
                                  "data": {"source": "synthetic"}, "stages": "1000"})
    made = open_order(order, "a run", list(SITES), send)[0].finish()
    assert [[s.t, s.found] for s in made.stages] == [[s.t, s.found] for s in one.stages]
    assert any(s.found for s in made.stages) and forecast(made, 3) == ""
    found, expected = labels(tmp_path / "run"), Labels(one).table()
    assert found.drop(["probability"]).select(range(4)) == expected.drop(["probability"]).select(
        range(4))


def test_a_site_refuses_facts_that_cannot_be(tmp_path):
    site = Site("ann", lambda: None, tmp_path, None)
    method = DgCoLearn.tiny()
    said = {"method": {"name": method.name, **method.model_dump(mode="json")}, "protocol": {}}
    site.answer("run", dumps(pack({"do": "agree", "run": "run", "travelled": False, **said})))
    for facts in ({"directed": 0}, {"path": "x"}, {"classes": 2.0}):
        answer = unpack(loads(site.answer("run", dumps(pack({
            "do": "open", "run": "run", "number": "1", "plan": {"bounds": [0, 1], "val": 0,
            "test": 0}, "clients": ["ann"], "seed": 0, "stages": 1, "elsewhere": None,
            "facts": facts, **said})))))
        assert answer["error"] == ["facts"], answer
