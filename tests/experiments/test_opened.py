"""A run that is loaded once and asked often: from what it saved, without its table."""

import json
import shutil
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc
import pytest
import shop
from data.test_graph_tables import banks
from data.test_graph_tables import write as write_banks
from wrong import fedvine as command
from wrong import is_sentence

import fedvine
from fedvine import testing
from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.data.ids import Ids
from fedvine.data.io.read import read
from fedvine.data.stream import EventStream
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.run import run
from fedvine.methods.edgebank import EdgeBank
from fedvine.methods.fedlink import FedLink
from fedvine.methods.popularity import Popularity
from fedvine.tasks.task import of

LINKS = sorted(name for name in registry.names("methods") if registry.method(name).task == "link")
CLASSES = sorted(name for name in registry.names("methods")
                 if registry.method(name).task == "node")
OVER_TIME = sorted(name for name in registry.names("methods")
                   if registry.method(name).task == "label")


def asked_slowly(made, client, user, top):
    """The same question to a run that remembers nothing of earlier ones."""
    for worker in getattr(made.clients, "workers", {}).values():
        worker.client.cache.clear()
    return made.predict(client, user, top)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kinds"), [
    *((name, "users and items") for name in LINKS),
    *((name, "one kind, no direction") for name in ("fedlink", "fedlink_plus", "popularity",
                                                    "dgcolearn"))])
def test_many_questions_are_answered_as_one_by_one(tmp_path, name, kinds):
    """Also about guests, in any order, by every method."""
    method = registry.method(name).tiny()
    stream = testing.tiny_stream()
    if kinds != "users and items":
        stream = EventStream(stream.src, stream.dst, stream.t, Ids.of(
            f"n{i}" for i in range(max(stream.num_src, stream.num_dst))), codes=stream.codes,
            categories=stream.categories, directed=False)
    split, plan = testing.tiny_case(stream)
    made = run(method, split, plan, protocol=of(method).tiny(), out=tmp_path / "run").finish()
    opened, draw = fedvine.open_run(tmp_path / "run"), np.random.default_rng(3)
    users = [stream.src_ids[i] for i in range(stream.num_src)]
    for _ in range(20):
        client, user = draw.choice(opened.clients), draw.choice(users)
        if not any(user in (p.src_ids[i] for i in range(p.num_src)) for p in made.parts.values()):
            with pytest.raises(FedvineError, match="No client has ever seen"):
                opened.predict(client, user, 4)
            continue
        slow = asked_slowly(made, client, user, 4)
        quick = opened.predict(client, user, 1000)
        assert {f.item: f.known for f in slow}.items() <= {f.item: f.known for f in quick}.items()
        scores = {f.item: f.score for f in quick}
        assert [scores[f.item] for f in slow] == pytest.approx([f.score for f in slow], rel=1e-4,
                                                               abs=1e-5)
        assert [f.score for f in quick[:4]] == pytest.approx([f.score for f in slow], rel=1e-4,
                                                             abs=1e-5)


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return shop.write(tmp_path)


def test_pairs_of_a_frame_a_table_a_list(table):
    stream = read("shop.csv", **shop.COLUMNS)
    run(Popularity(), stream.split("town"), stream.by_count(100), out="run").finish()
    table.unlink()
    opened = fedvine.open_run("run")
    part = opened.run.parts["ada"]
    rows = [("ada", part.src_ids[0], part.dst_ids[1]), ("bob", "nobody", part.dst_ids[0]),
            ("ada", part.src_ids[1], part.dst_ids[2]), ("ada", part.src_ids[1], "nothing")]
    found = opened.score(rows)
    assert found["score"].null_count == 2 and found.column_names == [
        "client", "user", "item", "score", "known"]
    frame = pd.DataFrame(rows, columns=["client", "user", "item"])
    for same in (frame, found.select(["item", "user", "client"]), frame.to_dict("records")):
        assert opened.score(same).equals(found)
    best = {f.item: f.score for f in opened.predict("ada", part.src_ids[0], 10**6)}
    assert found["score"][0].as_py() == best[part.dst_ids[1]]
    assert len(opened.score([])) == 0
    for bad, words in (([("ada", "x")], "Row 1"), (frame[["user", "item"]], 'no column "client"'),
                       ([("ada", None, "x")], '"user" is empty in row 1'),
                       ([("adda", "x", "y")], 'did you mean "ada"')):
        with pytest.raises(FedvineError, match=words):
            opened.score(bad)
    with pytest.raises(FedvineError, match="does not name classes"):
        opened.labels()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["edgebank", "fedlink"])
def test_a_run_of_the_command_is_asked_after_its_table_was_deleted(table, method):
    small = [] if method == "edgebank" else ["--set", "method.rounds=1", "--set", "method.width=4"]
    assert command("run", method, "--data", "shop.csv", "--src", "user", "--dst", "item", "--time",
                   "at", "--client", "town", "--out", "run", *small)[0] == 0
    stream = read("shop.csv", **shop.COLUMNS)
    user = stream.split("town").parts["ada"].src_ids[0]
    before = fedvine.open_run("run").predict("ada", user, 9)
    table.write_text("user,item,at,town\nx,y,1,z\n")
    assert fedvine.open_run("run").predict("ada", user, 9) == before
    table.unlink()
    opened = fedvine.open_run("run")
    assert [opened.predict("ada", user, 9) for _ in range(3)] == [before] * 3
    code, out, told = command("predict", "run", "--client", "ada", "--user", user)
    assert code == 0 and before[0].item in out, told


# -- runs that go on -----------------------------------------------------------------------------
@pytest.mark.slow
def test_a_run_in_the_middle_answers_as_of_its_newest_stage(table):
    stream = read("shop.csv", **shop.COLUMNS)
    split, plan = stream.split("town"), stream.by_count(60)
    whole = run(FedLink.tiny(), split, plan, out="run", save_every=0.0)
    with pytest.raises(FedvineError, match="not learned a whole stage yet"):
        fedvine.open_run("run")
    stages = iter(whole)
    next(stages), next(stages)
    short = run(FedLink.tiny(), split, plan.cut(2)).finish()
    before = {p.name: p.read_bytes() for p in (table.parent / "run").glob("*.jsonl")}
    user = split.parts["ada"].src_ids[0]
    opened = fedvine.open_run("run")
    assert (opened.stage, opened.stages) == (1, len(plan))
    assert [tuple(f) for f in opened.predict("ada", user, 9)] == [
        tuple(f) for f in short.predict("ada", user, 9)]
    assert before == {p.name: p.read_bytes() for p in (table.parent / "run").glob("*.jsonl")}
    for _ in stages:
        pass
    again = run(FedLink.tiny(), split, plan).finish()
    assert again.scores == whole.scores
    assert fedvine.open_run("run").predict("ada", user, 9) == again.predict("ada", user, 9)


def test_the_save_of_a_stage_stays_while_the_next_one_is_learned(table):
    stream = read("shop.csv", **shop.COLUMNS)
    split, plan = stream.split("town"), stream.by_count(100)

    def stop(at, clients):
        if (at.t, at.r) == (1, 8):
            raise KeyboardInterrupt
    made = run(FedLink.tiny().model_copy(update={"rounds": 9}), split, plan, out="run",
               save_every=0.0, on_round=stop)
    with pytest.raises(KeyboardInterrupt):
        made.finish()
    assert sorted(p.name for p in (table.parent / "run" / "saves").iterdir()) == [
        "000000-000010", "000001-000006", "000001-000007"]
    assert fedvine.open_run("run").stage == 0


def test_data_that_were_changed_are_refused(table):
    stream = read("shop.csv", **shop.COLUMNS)
    run(EdgeBank(), stream.split("town"), stream.by_count(100), out="run").finish()
    file = table.parent / "run" / "data" / "stream" / "dst.npy"
    dst = np.load(file)
    dst[3] += 1
    np.save(file, dst)
    with pytest.raises(FedvineError, match="run/data was changed"):
        fedvine.open_run("run")


# -- labels --------------------------------------------------------------------------------------
def own_graph(folder, blank=7):
    nodes, edges = banks()
    for row in nodes[5:5 + blank]:
        row[-1] = ""
    return nodes, edges, write_banks(folder, nodes, edges)


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
def test_every_method_of_tasks_labels_nodes_without_its_tables(tmp_path, name):
    nodes, _, files = own_graph(tmp_path)
    method = registry.method(name).tiny()
    made = Experiment.model_validate({
        "data": {"source": files[0], "edges": files[1], "client": "bank"}, "method":
        {"name": name, **method.model_dump(exclude_unset=True)}}).run(tmp_path / "run").finish()
    for file in files:
        (tmp_path / file).unlink()
    opened = fedvine.open_run(tmp_path / "run")
    found = opened.labels()
    thresholds = ["alert"] * (made.method.held_back(made.at_the_end()[0]) is not None)
    assert found.column_names == ["client", "node", "label", "probability", "given", *thresholds,
                                  *(f"p({c})" for c in "abcd")]
    assert sorted(found["node"].to_pylist()) == sorted(row[0] for row in nodes[1:])
    assert found["given"].to_pylist()[:7] == [None] * 7 and not found["given"][7:].null_count
    facts = {row[0]: (row[-2], row[-1] or None) for row in nodes[1:]}
    p = np.stack([found[f"p({c})"].to_numpy() for c in "abcd"], 1)
    assert np.allclose(p.sum(1), 1) and np.array_equal(found["probability"], p.max(1))
    assert found["label"].to_pylist() == ["abcd"[i] for i in p.argmax(1)]
    for row in found.to_pylist():
        assert (row["client"], row["given"]) == facts[row["node"]]
    for client in opened.clients:      # as the run itself answers
        raw = np.asarray(made.ask(client, {"nodes": np.arange(len(made.parts[client]))}), float)
        mine = opened.labels(client=client)
        order = np.argsort(made.parts[client].y >= 0, stable=True)
        own = np.stack([mine[f"p({c})"].to_numpy() for c in "abcd"], 1)
        expected = np.exp(raw - raw.max(1, keepdims=True))[order]
        assert np.allclose(own, expected / expected.sum(1, keepdims=True), atol=1e-6)
    some = opened.labels(["n9", "n2", "n9"])
    assert some["node"].to_pylist() == ["n9", "n2", "n9"]
    assert some.to_pylist()[1] in found.to_pylist()
    assert len(opened.labels([])) == 0
    with pytest.raises(FedvineError, match=r'No node is called "n99" .did you mean "n'):
        opened.labels(["n9", "n99"])
    with pytest.raises(FedvineError, match="call labels"):
        opened.predict("north", "n1")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["power", "power_plus"])
def test_alerts_are_nodes_above_thresholds_or_the_likeliest(tmp_path, name):
    _, _, files = own_graph(tmp_path)
    method: Any = registry.method(name).tiny()
    made = Experiment.model_validate({
        "data": {"source": files[0], "edges": files[1], "client": "bank"}, "method":
        {"name": name, **method.model_dump(exclude_unset=True)}}).run(tmp_path / "run").finish()
    opened = fedvine.open_run(tmp_path / "run")
    counts = Counter(opened.labels()["given"].drop_null().to_pylist())
    total = counts.total()
    rare = {c for c in counts if counts[c] <= total / 10} or set(counts) - {max(
        counts, key=counts.__getitem__)}
    four = opened.labels(alerts=4).to_pylist()
    named = [row for row in four if row["alert"]]
    assert len(named) == 4 and not any(row["given"] for row in named)
    likely = [sum(row[f"p({c})"] for c in rare) for row in four if not row["given"]]
    assert sorted(sum(row[f"p({c})"] for c in rare) for row in named) == sorted(likely)[-4:]
    assert all(row["alert"] == max(rare, key=lambda c: row[f"p({c})"]) for row in named)
    with pytest.raises(FedvineError, match="not both"):
        opened.labels(alerts=4, precision=0.5)
    if name == "power":
        with pytest.raises(FedvineError, match="has no thresholds"):
            opened.labels(precision=0.5)
        return
    shown = {one["class"]: one["probability"] for one in made.summary["final"]["alerts"]}
    assert shown
    for row in opened.labels().to_pylist():
        assert row["alert"] == ", ".join(c for i, c in enumerate("abcd") if c in rare and
                                         i in shown and row[f"p({c})"] > shown[i])
    assert len(opened.labels(precision=1.0).filter(pc.field("alert") != "")) <= len(
        opened.labels(precision=0.0).filter(pc.field("alert") != ""))


@pytest.mark.parametrize("name", OVER_TIME)
def test_runs_over_snapshots_label_nodes(tmp_path, name):
    split, plan = testing.tiny_case(testing.tiny_labelled())
    method = registry.method(name).tiny()
    run(method, split, plan, protocol=of(method).tiny(), out=tmp_path / "run").finish()
    opened = fedvine.open_run(tmp_path / "run")
    found = opened.labels()
    assert sorted(found["node"].to_pylist()) == sorted(
        split.stream.src_ids[i] for i in range(split.stream.num_src))
    given = np.asarray(found["given"].is_valid())
    assert not (np.diff(given.astype(int)) < 0).any()       # nodes without a class come first
    user = found["node"][0].as_py()
    best = opened.predict("all", user, 1)[0]
    assert best.item == found["label"][0].as_py()


@pytest.mark.slow
def test_labels_from_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, _, files = own_graph(tmp_path)
    assert command("run", "power", "--data", files[0], "--edges", files[1], "--client", "bank",
                   "--set", "method.rounds=1", "--set", "method.epochs=1", "--set",
                   "method.hidden=4", "--out", "run")[0] == 0
    for file in files:
        (tmp_path / file).unlink()
    code, out, told = command("predict", "run", "--labels", "--out", "labels.csv")
    assert code == 0, told
    found = pd.read_csv("labels.csv")
    assert "90 rows in labels.csv" in out and list(found["given"].isna())[:8] == [*[True] * 7,
                                                                                   False]
    code, out, told = command("predict", "run", "--labels", "--client", "north", "--top", "3")
    assert code == 0 and len([x for x in out.splitlines() if "north" in x]) == 3, told
    code, out, told = command("predict", "run", "--labels", "--user", "n7")
    assert code == 0 and "n7" in out, told
    assert command("predict", "run", "--labels", "--alerts", "2", "--out", "labels.csv")[0] == 0
    assert pd.read_csv("labels.csv")["alert"].notna().sum() == 2
    code, out, told = command("predict", "run", "--labels", "--alerts", "2", "--top", "2")
    assert code == 0 and out.splitlines()[0].split()[-1] == "alert", told
    for wrong in (["--labels", "--all", "--out", "x.csv"], ["--all", "--out", "x.csv"],
                  ["--all", "--out", "x.csv", "--alerts", "2"], ["--labels", "--precision", ".5"],
                  ["--labels", "--user", "nobody"]):
        code, _, told = command("predict", "run", *wrong)
        assert code == 2
        is_sentence(told[told.index("Error:"):])    # the model that answers is named before it


def test_a_run_that_keeps_no_copy_reads_its_tables_again(tmp_path):
    _, _, files = own_graph(tmp_path)
    experiment = Experiment.model_validate({
        "data": {"source": files[0], "edges": files[1], "client": "bank"}, "method": "common"})
    experiment.run(tmp_path / "run", keep=False).finish()
    experiment.run(tmp_path / "kept").finish()
    assert not (tmp_path / "run" / "data").exists()
    assert fedvine.open_run(tmp_path / "run").labels().equals(
        fedvine.open_run(tmp_path / "kept").labels())
    shutil.rmtree(tmp_path / "kept" / "data" / "part-0-0")
    with pytest.raises(FedvineError, match="does not hold the rows"):
        fedvine.open_run(tmp_path / "kept")
    assert json.loads((tmp_path / "kept" / "summary.json").read_text())
