"""Runs on tables of nodes that grow: the same command goes on, as if all had been there at once."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tomlkit
from wrong import fedvine

from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.core.message import dumps, pack
from fedvine.core.rng import rng
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.reopened import open_run
from fedvine.experiments.run import run
from fedvine.living.rows import StoredRows

NODES, SHOPS, TOWNS = 320, "abcdef", ("north", "south", "west", "new")
# (nodes, classes, clients, nodes whose class is not known yet) of each night: more nodes of known
# classes, an empty night, classes that come, a night that gives classes alone, a client that comes.
NIGHTS = [(110, 2, 3, 110), (200, 2, 3, 0), (200, 2, 3, 0), (230, 5, 3, 0), (NODES, 6, 4, 0)]
#: FedSage+ draws noise from the operating system, so no two of its runs are the same.
METHODS = sorted(n for n in registry.names("methods") if registry.method(n).task == "node"
                 and n != "fedsage_plus")


def write(folder: Path, nodes: int, classes: int, clients: int, blank: int = 0) -> None:
    """Write the tables with the first ``nodes`` nodes, ``classes`` classes, ``clients`` clients."""
    draw = rng("living graph")
    y, owner = draw.integers(0, 6, NODES), draw.integers(0, 4, NODES)
    x = (2 * np.eye(6)[y] + draw.normal(size=(NODES, 6))).round(3)
    ends = draw.integers(0, NODES, (2, 900))
    here = [i for i in range(nodes) if owner[i] < clients]
    known = set(here)
    rows = [[f"n{i}", *x[i], TOWNS[owner[i]],
             "" if y[i] >= classes or (blank and i % 7 == 0) else SHOPS[y[i]]] for i in here]
    tables = {"nodes.csv": [["id", *"uvwxyz", "town", "label"], *rows],
              "edges.csv": [["src", "dst", "paid", "day"], *(
                  [f"n{a}", f"n{b}", a * b % 97, k % 31] for k, (a, b) in enumerate(ends.T.tolist())
                  if a in known and b in known)]}
    for name, table in tables.items():
        with open(folder / name, "w", newline="") as file:
            csv.writer(file).writerows(table)


def experiment(folder: Path, method="power", told=None, **options) -> Experiment:
    values = {"data": {"source": str(folder / "nodes.csv"), "edges": str(folder / "edges.csv"),
                       "client": "town", **(told or {})},
              "method": {"name": method, **registry.method(method).tiny().model_dump(
                  exclude_unset=True)}, "open_end": True, "stages": 2, "split": {"by": "town"},
              **options}
    return Experiment.model_validate(values)


def grow(folder: Path, nights=NIGHTS, **options):
    """Carry out the run night by night, each time from a fresh object; return the last one."""
    done = None
    for night in nights:
        write(folder, *night)
        done = experiment(folder, **options).run(folder / "run").finish()
    return done


def scores(done):
    return [(s.t, s.found) for s in done.stages]


def memory(done):
    return (dumps(pack(done.server.dump())),
            {n: dumps(p) for n, p in done.clients.save("end").items()})


def at_once(folder: Path, done):
    """One run given the stored graph and plan."""
    kept = StoredRows.open(folder / "run" / "data")
    return run(done.method, kept.split, kept.plan, seed=0,
               protocol=done.protocol).finish()


def plain(scores):
    return json.loads(json.dumps(scores))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_night_by_night_is_one_run_over_all_nights(method, tmp_path):
    done = grow(tmp_path, method=method)
    whole = at_once(tmp_path, done)
    assert memory(done) == memory(whole)
    assert plain(scores(done)) == plain(scores(whole))
    plan = done.plan
    assert plan.groups[0] == (0, 1) and plan.blocks[0] == 1 and len(plan.blocks) == 4
    assert plan.classes_at[0] == 2 and plan.classes_at[-1] == 6
    assert done.clients.whole.since == {"new": plan.blocks[-2]}
    first = dict(scores(done))[plan.blocks[-2] - 1]
    assert set(first[0]) == {"north", "south", "west"}          # the fourth was not there yet
    assert done.summary["stages"] == len(plan)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["power", "power_plus"])
def test_amounts_and_times_of_edges_grow_too(method, tmp_path):
    done = grow(tmp_path, method=method, told={"weight": "paid", "time": "day"})
    whole = at_once(tmp_path, done)
    assert memory(done) == memory(whole)
    assert plain(scores(done)) == plain(scores(whole))
    assert done.clients.world.facts["features"] == 6 + 2 * 6
    table = (tmp_path / "edges.csv").read_text().splitlines(True)
    (tmp_path / "edges.csv").write_text("".join([*table[:-1], table[-1].strip() + "1\n"]))
    before = files(tmp_path / "run")
    with pytest.raises(FedvineError, match="has vanished or changed"):
        experiment(tmp_path, method, {"weight": "paid", "time": "day"}).run(tmp_path / "run")
    assert files(tmp_path / "run") == before


@pytest.mark.slow
def test_a_run_that_is_stopped_anywhere_goes_on_as_if_it_was_not(tmp_path):
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    whole = grow(tmp_path / "a")

    class Stop(Exception):
        pass
    places = []
    for night in NIGHTS:
        write(tmp_path / "b", *night)
        for attempt in range(20):
            def stop(at, clients, attempt=attempt):
                places.append((at.t, at.r))
                if len(places) % 3 == 2 and attempt < 19:
                    raise Stop
            made = experiment(tmp_path / "b").run(tmp_path / "b" / "run", on_round=stop,
                                                  save_every=0)
            try:
                made.finish()
                break
            except Stop:
                pass
    assert len(places) > len(set(places))
    assert plain(scores(made)) == plain(scores(whole)) and memory(made) == memory(whole)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*")
            if p.is_file() and p.name != ".lock"}


def test_an_empty_night_and_one_that_lost_a_node_change_nothing(tmp_path):
    grow(tmp_path, NIGHTS[:2])
    before = files(tmp_path / "run")
    experiment(tmp_path).run(tmp_path / "run").finish()
    assert files(tmp_path / "run") == before
    lines = (tmp_path / "nodes.csv").read_text().splitlines(True)
    (tmp_path / "nodes.csv").write_text("".join([*lines[:3], *lines[4:]]))
    with pytest.raises(FedvineError, match=r'" has vanished|is no node of'):
        experiment(tmp_path).run(tmp_path / "run")
    assert files(tmp_path / "run") == before


def correct(folder):
    """Change a label, a feature and an amount; take out a node with its edges, and an edge."""
    with open(folder / "nodes.csv", newline="") as file:
        head, *nodes = csv.reader(file)
    with open(folder / "edges.csv", newline="") as file:
        first, *edges = csv.reader(file)
    gone = nodes.pop(5)[0]
    nodes[2][-1] = "ab"[nodes[2][-1] == "a"]
    nodes[3][1] = "9.5"
    edges = [row for row in edges if gone not in row]
    early = [row for row in edges if all(int(end[1:]) < NIGHTS[0][0] for end in row[:2])]
    early[1][2] = "1000"
    edges = [row for row in edges if set(row[:2]) != set(early[4][:2])]
    for name, rows in (("nodes.csv", [head, *nodes]), ("edges.csv", [first, *edges])):
        with open(folder / name, "w", newline="") as file:
            csv.writer(file).writerows(rows)


@pytest.mark.slow
@pytest.mark.parametrize("told", [None, {"weight": "paid"}], ids=["plain", "amounts"])
def test_what_has_changed_is_learned_again_or_comes_as_new(tmp_path, told):
    here, other = tmp_path / "here", tmp_path / "other"
    here.mkdir(), other.mkdir()
    grow(here, NIGHTS[:2], told=told)
    correct(here)
    before = files(here / "run")
    with pytest.raises(FedvineError, match=r"node \"n\d+\" has .*--changed relearn"):
        experiment(here, told=told).run(here / "run")
    Path(here / "e.toml").write_text(tomlkit.dumps(experiment(here, told=told).plain()))
    code, _, said = fedvine("run", str(here / "e.toml"), "--out", str(here / "run"))
    assert code == 4 and "--changed append" in said
    assert files(here / "run") == before
    shutil.copytree(here / "run", here / "late")
    again = experiment(here, told=told).run(here / "run", changed="relearn").finish()
    for night in NIGHTS[:2]:
        write(other, *night)
        correct(other)
        done = experiment(other, told=told).run(other / "run").finish()
    assert plain(scores(again)) == plain(scores(done)) and memory(again) == memory(done)
    late = experiment(here, told=told).run(here / "late", changed="append", now=True).finish()
    graph = late.ready.stream
    assert len(graph) == len(again.ready.stream)
    newest = {graph.ids[i] for i in np.flatnonzero(graph.came.node == graph.came.node.max())}
    with open(here / "nodes.csv", newline="") as file:
        rows = list(csv.reader(file))[1:]
    assert newest == {rows[2][0], rows[3][0]}


@pytest.mark.slow
def test_fewer_rows_than_a_task_wait_and_are_learned_now(tmp_path):
    write(tmp_path, 110, 2, 3)
    experiment(tmp_path).run(tmp_path / "run").finish()
    write(tmp_path, 125, 2, 3)                          # a few nodes
    waits = experiment(tmp_path).run(tmp_path / "run")
    assert len(waits.plan) == 1 and waits.summary is not None
    assert any("labelled nodes" in note and "--now" in note for note in waits.news)
    now = experiment(tmp_path).run(tmp_path / "run", now=True).finish()
    assert now.plan.groups == ((0, 1), (0,)) and len(now.stages) == 2
    first = next(iter(waits))                           # of the run as it was
    assert plain(now.stages[0].found) == plain(first.found)


@pytest.mark.slow
def test_a_class_that_comes_alone_is_learned_alone(tmp_path):
    grow(tmp_path, [(110, 3, 3)])
    done = grow(tmp_path, [(112, 4, 3)])
    assert done.plan.groups == ((0, 1), (2,), (3,))
    (tmp_path / "all").mkdir()
    done = grow(tmp_path / "all", [(110, 3, 3), (112, 6, 3)], stages=None)
    assert done.plan.groups == ((0, 1, 2), (3, 4, 5))
    assert done.plan.shares == (0.8, 0.1, 0.1) and done.plan.keep_inter_task_edges


@pytest.mark.slow
@pytest.mark.parametrize("split", [{"by": "louvain", "k": 3},
                                   {"by": "town", "clients": ["north", "west"]}])
def test_clients_of_a_partition_and_some_of_a_column(split, tmp_path):
    done = grow(tmp_path, method="power_plus", split=split)
    whole = at_once(tmp_path, done)
    assert memory(done) == memory(whole) and plain(scores(done)) == plain(scores(whole))


def test_what_cannot_grow_is_said(tmp_path):
    write(tmp_path, 110, 2, 3)
    for options, said in [({"tasks": {"edges": 0.5}}, "keeps all rows"),
                          ({"stages": "30d"}, "has no times")]:
        with pytest.raises(FedvineError, match=said):
            experiment(tmp_path, **options).run(tmp_path / "run")


@pytest.mark.slow
def test_a_grown_run_is_asked_for_labels_without_its_tables(tmp_path):
    done = grow(tmp_path)
    for table in ("nodes.csv", "edges.csv"):
        (tmp_path / table).unlink()
    labels = open_run(tmp_path / "run").labels()
    assert len(labels) == sum(map(len, done.parts.values()))
    assert set(labels["client"].to_pylist()) == set(TOWNS)
    assert {f"p({c})" for c in SHOPS} <= set(labels.column_names)
