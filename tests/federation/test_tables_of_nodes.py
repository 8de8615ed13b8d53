"""Sites with tables of nodes and with columns of edges give the scores of one run."""

import json
from types import MappingProxyType

import numpy as np
import pytest
from federation.test_living import ROWS, World, scores, stream

from fedvine.core.errors import FedvineError
from fedvine.core.replies import RoundAborted
from fedvine.data.edge_features import NAME
from fedvine.data.node_data import NodeTable, code
from fedvine.data.stream import CATEGORY, WEIGHT
from fedvine.experiments.run import run as prepare
from fedvine.federation.server import open_order
from fedvine.federation.site_table import SiteTable
from fedvine.methods._fedlink_plus.features import WIDTH
from fedvine.methods.edgebank import EdgeBank
from fedvine.methods.fedlink_plus import FedLinkPlus


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


def with_columns(found, weight="stars"):
    """Every edge has a weight and one of three kinds, by the names of its ends."""
    ends = np.array([[int(ids[int(n)][-1]) for n in column] for ids, column in (
        (found.src_ids, found.src), (found.dst_ids, found.dst))])
    told = found[:]
    told.weight = (ends[0] - ends[1]).astype(np.float32)
    told.features = (ends.sum(0) % 3 * 5_000_011)[:, None].astype(np.float32)
    told.edge_columns = {weight: WEIGHT, "kind": CATEGORY}
    return told


class Told(World):
    """Sites call their weight differently; ``without`` has none."""

    without = ""

    def table(self, name):
        found = super().table(name)
        return found if name == self.without else with_columns(found, f"stars of {name}")


@pytest.mark.slow
def test_nights_with_columns_of_edges_give_the_scores_of_one_run(tmp_path):
    world = Told(tmp_path, method=FedLinkPlus.tiny())
    for until in (70, 103, 200):
        run, _ = world.night(until)
        world.restart()
    split = with_columns(stream([r for r in ROWS if r[2] < run.plan.bounds[-1]])).split("client")
    other = prepare(world.method, split, run.plan, seed=3, protocol=world.order.protocol).finish()
    assert run.ready.world.facts["tables"] == other.ready.world.facts["tables"]
    assert set(run.ready.world.facts["tables"]["edges"]["numbers"]) == {NAME}
    assert scores(run) == scores(other)
    assert run.server.newton.w[WIDTH:].any()
    assert "edges" in json.loads((tmp_path / "run" / "plan.json").read_text())["tables"]


@pytest.mark.slow
def test_a_site_without_them_takes_part_and_a_method_that_does_not_use_them_says_so(tmp_path):
    for method, said in ((FedLinkPlus.tiny(), ()), (EdgeBank(), (
            "edgebank does not learn from the edges' own columns (weight, kind).",))):
        world = Told(tmp_path / method.name, method=method)
        world.without = "bob"
        run, _ = world.night(103)
        assert run.ready.notes == said


def test_a_policy_hides_how_many_edges_there_are():
    plain = with_columns(stream(ROWS))
    sent = {grain: SiteTable(lambda: plain, grain=grain).tables(60)["edges"]["numbers"][NAME]
            for grain in (1, 50)}
    count, total, square = sent[1]
    assert count == (plain.t < 60).sum() and count % 50
    assert sent[50] == pytest.approx(np.array(sent[1]) * (-(-count // 50) * 50 / count))
    few = SiteTable(lambda: plain, grain=1000).tables(60)["edges"]["numbers"][NAME]
    assert few == [0.0, 0.0, 0.0] and total and square
