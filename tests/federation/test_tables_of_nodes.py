"""Each site has a table of its own users and items; the server gets sums of it."""

import json
from types import MappingProxyType

import numpy as np
import pytest
from federation.test_living import ROWS, World, scores, stream

from fedvine.core.errors import FedvineError
from fedvine.core.replies import RoundAborted
from fedvine.data.node_data import NodeTable, code
from fedvine.data.stream import EventStream
from fedvine.experiments.run import run as prepare
from fedvine.federation.server import open_order


def with_tables(found, skip=()):
    """Every user has an age and a town by its name, every item a price."""
    def table(ids, names, texts):
        which = [int(ids[i][-1]) for i in range(len(ids))]
        return NodeTable(np.ones(len(ids), bool), np.array(which, np.float32)[:, None],
                         np.array([[code(t, str(w % 3)) for t in texts] for w in which],
                                  np.int64).reshape(len(ids), len(texts)), names, texts)

    return found.with_tables(None if "users" in skip else table(found.src_ids, ("age",), ("town",)),
                             None if "items" in skip else table(found.dst_ids, ("price",), ()))


class Tables(World):
    skip = MappingProxyType({})

    def table(self, name):
        return with_tables(super().table(name), self.skip.get(name, ()))


@pytest.mark.slow
def test_nights_at_three_sites_give_the_scores_of_one_run(tmp_path):
    world = Tables(tmp_path)
    for until in (70, 103, 141, 200):
        run, _ = world.night(until)
        world.restart()
    split = with_tables(stream([r for r in ROWS if r[2] < run.plan.bounds[-1]])).split("client")
    other = prepare(world.method, split, run.plan, seed=3, protocol=world.order.protocol).finish()
    assert run.ready.world.facts["tables"] == other.ready.world.facts["tables"]
    assert scores(run) == scores(other) and len(run.server.model) == 2
    assert run.summary["bytes_up"] == other.summary["bytes_up"]
    assert "tables" in json.loads((tmp_path / "run" / "plan.json").read_text())


@pytest.mark.slow
def test_a_site_without_tables_takes_part(tmp_path):
    world = Tables(tmp_path)
    world.skip = {"bob": ("users", "items"), "cy": ("users",)}
    run, _ = world.night(140)
    assert set(run.ready.world.facts["tables"]) == {"users", "items"}
    assert all(np.isfinite(list(v[1].values())).all() for v in scores(run).values())


@pytest.mark.parametrize("bad", [
    None, 3, {"users": 1}, {"others": {"numbers": {}, "texts": []}},
    {"users": {"numbers": {"age": [1, 2]}, "texts": []}},
    {"users": {"numbers": {"age": [1, float("nan"), 2]}, "texts": []}},
    {"users": {"numbers": {"age": [1.0, 2.0, -3.0]}, "texts": []}},
    {"users": {"numbers": {}, "texts": [7]}}])
def test_sums_that_cannot_be_are_refused(tmp_path, bad):
    world = Tables(tmp_path)
    world.rows = ROWS
    world.sites["bob"].tables = lambda stop: bad
    with pytest.raises((FedvineError, RoundAborted), match=r"bob's answer to tables was refused"):
        open_order(world.order, "a run", world.names, world.signer)


def test_sites_whose_columns_differ_in_kind_are_refused(tmp_path):
    world = Tables(tmp_path)
    world.rows = ROWS
    world.sites["bob"].tables = lambda stop: {"users": {"numbers": {}, "texts": ["age"]}}
    with pytest.raises(FedvineError, match='"age" of the tables of users holds numbers at one'):
        open_order(world.order, "a run", world.names, world.signer)


def test_without_tables_no_site_is_asked_for_sums(tmp_path):
    world = World(tmp_path)
    world.rows = ROWS
    for site in world.sites.values():
        site.tables = None
    assert isinstance(world.table("ann"), EventStream)
    made, _ = open_order(world.order, "a run", world.names, world.signer)
    assert made.ready.world.facts == {}
    assert "tables" not in json.loads((tmp_path / "run" / "plan.json").read_text())
