"""Labelled graphs at the sites: agreed classes and features, tasks, labels that stay at home."""

from dataclasses import replace

import numpy as np
import pytest
from federation.labelled import NAMES, Federation, one_process, own, scores, table, whole

from fedvine.core.errors import FedvineError
from fedvine.core.ledger import seeded
from fedvine.core.message import dumps, pack
from fedvine.core.replies import RoundAborted
from fedvine.experiments.answers import Labels
from fedvine.experiments.receipts import check_receipt
from fedvine.experiments.run import run
from fedvine.federation.dashboard import waits
from fedvine.federation.erasures import erase
from fedvine.federation.order import Order
from fedvine.federation.site_saves import labels
from fedvine.living.run import go_on
from fedvine.methods.fedavg import FedAvg
from fedvine.methods.power import Power
from fedvine.methods.power_plus import PowerPlus
from fedvine.tasks.task_plan import TaskSettings, begin

QUICK = Power.tiny().model_copy(update={"rounds": 1})


def kit_of(folder, name):
    """A kit whose ``memory`` is a site's folder of saves."""
    kit = folder / f"{name}-kit"
    kit.mkdir(exist_ok=True)
    if not (kit / "memory").exists():
        (kit / "memory").symlink_to(folder / name)
    return kit


def at_home(folder, name):
    return labels(kit_of(folder, name))


@pytest.mark.slow
def test_sites_give_what_one_process_gives(tmp_path):
    made, _ = Federation(tmp_path, Power.tiny()).finish()
    one = one_process(Power.tiny())
    assert scores(made) == scores(one) and made.scores == one.scores
    assert dumps(pack(made.server.dump())) == dumps(pack(one.server.dump()))
    for cost in ("bytes_up", "bytes_down"):
        assert made.summary[cost] == one.summary[cost]
    assert made.clients.world.facts == {"features": 5, "classes": 6}
    orders = [one.plan.order(part).tolist() for part in one.parts.values()]
    assert orders[0] != orders[1]       # each site has an order of tasks of its own
    for name in NAMES:                  # labels, made at home, are those of one process
        mine, theirs = at_home(tmp_path, name), Labels(one).table(client=name)
        for column in ("client", "node", "label", "given"):
            assert mine[column].to_pylist() == theirs[column].to_pylist()
        assert np.allclose(mine["probability"], theirs["probability"])
    assert not list((tmp_path / "run").rglob("*.parquet"))


def test_sites_name_the_alerts_of_one_process(tmp_path):
    method = PowerPlus.tiny().model_copy(update={"rounds": 0})
    made, _ = Federation(tmp_path, method, stages=None).finish()
    one = one_process(method, classes=None)
    assert scores(made) == scores(one)
    assert made.summary["report"]["alerts"] == one.summary["report"]["alerts"] != []
    for name in NAMES:
        mine, theirs = at_home(tmp_path, name), Labels(one).table(client=name)
        assert mine["alert"].to_pylist() == theirs["alert"].to_pylist()
        few = labels(tmp_path / f"{name}-kit", alerts=3)
        assert sum(map(bool, few["alert"].to_pylist())) == 3


@pytest.mark.parametrize("tasks", [{}, {"keep_inter_task_edges": False, "shares": [0.5, 0.2, 0.3]}])
def test_by_default_all_classes_are_one_task(tmp_path, tasks):
    made, _ = Federation(tmp_path, QUICK, stages=None, tasks=tasks).finish()
    one = one_process(QUICK, classes=None, **tasks)
    assert scores(made) == scores(one) and made.plan == one.plan
    assert made.plan.groups == (tuple(range(6)),)
    assert tasks or (made.plan.keep_inter_task_edges and made.plan.shares == (0.8, 0.1, 0.1))
    assert made.notes == made.plan.notes and "1 task of 6 classes" in made.notes[0]


@pytest.mark.parametrize("method", [PowerPlus.tiny(), QUICK], ids=lambda m: m.name)
def test_amounts_and_times_of_edges_count_as_in_one_process(tmp_path, method):
    graph = whole(told=True)
    federation = Federation(tmp_path, method, {name: own(graph, name) for name in NAMES})
    made, _ = federation.finish()
    one = one_process(method, graph)
    assert made.clients.world.facts == one.clients.world.facts
    assert scores(made) == scores(one) != scores(one_process(method, graph.with_rows(None)))
    assert not [1 for _, _, down, up in federation.said if b"amount" in down + up]


@pytest.mark.slow
def test_a_server_of_keyed_classes_never_sees_a_name(tmp_path):
    federation = Federation(tmp_path, QUICK, openly=False, class_names="keyed")
    federation.tables["cy"] = own(whole(classes=4), "cy")       # cy does not have two classes
    made, _ = federation.finish()
    names = [w.encode() for w in whole().classes]
    assert not [n for _, _, down, up in federation.said for n in names if n in down + up]
    kept = (tmp_path / "run" / "plan.json").read_text()
    assert len(made.clients.world.facts) == 2 and not [n for n in whole().classes if n in kept]
    found = at_home(tmp_path, "cy")     # and shows the names of classes that only others have
    assert {f"p({word})" for word in whole().classes} <= set(found.column_names)
    assert set(found["given"].to_pylist()) <= {None, *whole(classes=4).classes}


@pytest.mark.slow
def test_the_same_run_goes_on_after_everything_died(tmp_path):
    federation, moments = Federation(tmp_path, QUICK, save_every=0.0), []
    made, _ = federation.open()

    def die(at, clients):
        moments.append((at.t, at.r))
        if at.t == 1:
            raise KeyboardInterrupt

    made.on_round = die
    with pytest.raises(KeyboardInterrupt):
        made.finish()
    federation.restart()
    again, _ = federation.finish()
    assert scores(again) == scores(one_process(QUICK))
    changed = federation.tables["bob"].y.copy()
    changed[:20] = changed[0]
    federation.tables["bob"] = replace(federation.tables["bob"], y=changed)
    federation.restart()
    with pytest.raises(RoundAborted, match=r"table .* has changed since this run"):
        federation.open()


@pytest.mark.parametrize(("change", "sentence"), [
    ({"x": np.ones((60, 4), np.float32)}, r"equally many columns of features .*ann 5, bob 4, cy 5"),
    ({"columns": tuple("abced")}, "at bob do not have the names, or the order, of those at ann"),
])
def test_features_that_differ_are_refused_before_anything_starts(tmp_path, change, sentence):
    federation = Federation(tmp_path, QUICK)
    federation.tables["bob"] = replace(federation.tables["bob"], **change)
    with pytest.raises(FedvineError, match=sentence):
        federation.open()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("values", "sentence"), [
    ({"stages": "30d"}, "have no times; stages is a number of classes"),
    ({"tasks": {"edges": 0.5}}, "leave out tasks.features and tasks.edges"),
    ({"method": {"name": "fedlink"}, "stages": 5}, "write a duration"),
    ({"method": {"name": "mlp_dyn", "target": "classes"}}, "holds the graph; say under"),
])
def test_orders_that_cannot_be_carried_are_refused(values, sentence):
    order = Order.model_validate({"out": "run", "method": {"name": "power"}, **values})
    with pytest.raises(FedvineError, match=sentence):
        order.kind()


# -- a federation that lives ---------------------------------------------------------------------
def nights(graph):
    """The nodes of the tables of three nights: four classes, two more, more nodes of the first."""
    late = (np.arange(len(graph)) // 3) % 3 == 2
    first = (graph.y < 4) & ~late
    return [np.flatnonzero(first), np.flatnonzero(first | (graph.y >= 4)), np.arange(len(graph))]


def show(federation, graph, nodes):
    for name in NAMES:
        at = federation.tables[name].name
        mine = nodes[graph.owner.of[nodes] == graph.owner.names.index(name)]
        federation.tables[name] = replace(own_rows(graph, mine), name=at)


def own_rows(graph, nodes):
    found = replace(table(graph, nodes), owner=None)
    found.ids.secret = b"shared by sites"
    return found


@pytest.mark.slow
@pytest.mark.parametrize("method", [QUICK, FedAvg.tiny()], ids=lambda m: m.name)
def test_tables_that_grow_give_the_scores_of_one_run(tmp_path, method):
    graph, made = whole(), None
    federation = Federation(tmp_path, method, live=True)
    known, plan = None, None
    for number, nodes in enumerate(nights(graph)):
        show(federation, graph, nodes)
        federation.restart()
        made, state = federation.finish()
        if known is None:
            known, plan = begin(table(graph, nodes), {"by": "client"}, 2, TaskSettings(), 3)
        else:
            known, plan, _ = go_on(known, plan, table(graph, nodes))
        assert made is not None and made.plan == plan and len(plan.blocks) == number + 1
        assert "tasks are learned; the next one waits for a new class, or" in waits(state)
    one = run(method, known.split("client"), plan, seed=3).finish()
    assert scores(made) == scores(one)
    assert made.clients.whole.facts["classes_at"] == [4, 4, 6, 6]
    federation.restart()
    assert federation.open()[0] is None         # nothing is new
    assert set(at_home(tmp_path, "ann")["given"].to_pylist()) == {None, *graph.classes}


@pytest.mark.slow
def test_a_node_that_is_erased_at_a_site_was_never_there(tmp_path):
    graph, gone = whole(), 9
    federation = Federation(tmp_path, QUICK, live=True)
    for nodes in nights(graph)[:2]:
        show(federation, graph, nodes)
        federation.restart()
        before, _ = federation.finish()
    federation.restart()
    name = str(graph.ids[gone])
    assert graph.owner.names[graph.owner.of[gone]] == "ann" and gone in nights(graph)[0]
    receipt = erase(kit_of(tmp_path, "ann"), {"node": [name]})
    assert check_receipt(receipt)["rows"] == 1
    assert not any(name.encode() in f.read_bytes() for f in (tmp_path / "ann").rglob("*")
                   if f.is_file())
    known, plan = None, None
    for number, nodes in enumerate(nights(graph)):
        left = nodes[nodes != gone]
        show(federation, graph, left)
        federation.restart()
        if known is None:
            known, plan = begin(table(graph, left), {"by": "client"}, 2, TaskSettings(), 3)
        else:
            known, plan, _ = go_on(known, plan, table(graph, left))
        if number:      # the second table once more: all is learned again, and then the third
            made, _ = federation.finish()
            one = run(QUICK, known.split("client"), plan, seed=3).finish()
            assert scores(made) == scores(one) != scores(before)


@pytest.mark.slow
def test_a_site_that_comes_late_or_does_not_fit_ends_nothing(tmp_path):
    graph = whole()
    federation = Federation(tmp_path, QUICK, live=True, quorum=0.6, forecasts=0)
    first, second, _ = nights(graph)
    federation.away = {"cy"}
    show(federation, graph, first)
    made, _ = federation.finish()
    assert made.clients.everyone == ("ann", "bob")
    federation.away = set()
    show(federation, graph, second)
    wide = federation.tables["cy"]
    federation.tables["cy"] = replace(wide, x=wide.x[:, :3])
    federation.restart()
    made, _ = federation.finish()
    assert made.clients.everyone == ("ann", "bob") and len(made.plan) == 3
    federation.tables["cy"] = wide
    show(federation, graph, np.arange(len(graph)))
    federation.restart()
    made, _ = federation.finish()
    assert made.clients.whole.since == {"cy": 3} and len(made.plan) == 4
    assert set(made.stages[-1].found[3]) == {"ann", "bob", "cy"}
    lost = federation.tables["ann"]
    federation.tables["ann"] = own_rows(graph, np.flatnonzero(graph.owner.of == 0)[5:])
    federation.restart()
    assert federation.open()[0] is None         # ann takes no part until its rows are back
    federation.tables["ann"] = lost


@pytest.mark.slow
def test_a_new_class_that_may_be_a_known_one_is_asked_about_at_the_site(tmp_path):
    graph = whole()
    federation = Federation(tmp_path, QUICK, live=True)
    first, second, _ = nights(graph)
    show(federation, graph, first)
    federation.finish()
    show(federation, graph, second)
    right = federation.tables["bob"]
    wrong = tuple("Apple" if name == graph.classes[4] else name for name in right.classes)
    federation.tables["bob"] = replace(right, classes=wrong)
    federation.restart()
    assert "Apple" not in str(federation.open())
    whys = [line["why"] for line in federation.sites["bob"].account.lines() if "why" in line]
    assert any('is the class "Apple"' in why and 'or is it "apple"?' in why for why in whys)
    for site in federation.sites.values():
        site.sure = True
    federation.finish()
    assert "Apple" in at_home(tmp_path, "bob")["given"].to_pylist()


@pytest.mark.slow
def test_a_server_or_a_site_that_dies_anywhere_in_a_night(tmp_path):
    graph, expected = whole(), None
    first, second, _ = nights(graph)
    for dies in (0, 2, 5, 7, 11, 30):
        federation = Federation(tmp_path / str(dies), QUICK, live=True, save_every=0.0,
                                forecasts=0)
        show(federation, graph, first)
        federation.finish()
        show(federation, graph, second)
        sent, real = 0, federation.deliver

        def deliver(name, block, seal, seconds, dies=dies, real=real):
            nonlocal sent
            sent += 1
            if sent > dies:
                raise KeyboardInterrupt
            return real(name, block, seal, seconds)

        federation.deliver = deliver
        federation.restart()
        with pytest.raises(KeyboardInterrupt):
            federation.finish()
        federation.deliver = real
        federation.restart()
        made, _ = federation.finish()
        expected = expected or scores(made)
        assert scores(made) == expected


@pytest.mark.slow
@pytest.mark.parametrize("live", [False, True])
def test_a_model_is_fitted_once_more_where_the_order_says_so(tmp_path, live):
    federation = Federation(tmp_path, QUICK, final=True, live=live)
    made, _ = federation.finish()
    plain, _ = Federation(tmp_path / "plain", QUICK, live=live).finish()
    assert scores(made) == scores(plain) and made.summary["final"]["nodes"] is None
    assert "final" not in plain.summary
    on_all = replace(made.plan, shares=(1.0, 0.0, 0.0), cuts=None)
    for name in NAMES:      # labels of the sites are those of all nodes
        mine = at_home(tmp_path, name)
        if not live:
            one = run(QUICK, whole().split("client"), on_all, seed=3, fresh=seeded(7)).finish()
            theirs = Labels(one).table(client=name)
            assert mine["label"].to_pylist() == theirs["label"].to_pylist()
            assert np.allclose(mine["probability"], theirs["probability"])
        other = at_home(tmp_path / "plain", name)
        assert mine["probability"].to_pylist() != other["probability"].to_pylist()
    assert federation.open()[0] is None if live else federation.finish()[0].scores == made.scores
