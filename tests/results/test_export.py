"""Exports: a process that cannot import fedvine gives the scores of the run."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet
from safetensors.numpy import load_file

import fedvine as fv
from fedvine.cli.main import main
from fedvine.core.errors import FedvineError
from fedvine.data.graph import Graph, Owner
from fedvine.data.ids import Ids
from fedvine.experiments.answers import Labels
from fedvine.methods._fedlink_plus.features import AT, CURVES, WIDTH, curve_part
from fedvine.results.export import export
from fedvine.tasks.task_plan import by_task

LONG = "Ж" * 66         # percent-encoded longer than a file name may be
BLOCKED = """
import json, sys, importlib.abc
class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "fedvine":
            raise ImportError("fedvine is not here")
sys.meta_path.insert(0, Blocked())
sys.path.insert(0, sys.argv[1])
import load
function, *given = json.loads(sys.argv[2])
print(json.dumps(getattr(load, function)(*given).tolist()))
"""


def outside(folder, *call):
    """The answer of ``load.py`` in a process of its own, isolated and without fedvine."""
    done = subprocess.run([sys.executable, "-I", "-c", BLOCKED, str(folder), json.dumps(call)],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return np.array(json.loads(done.stdout), float)


def refused(folder, *words):
    """The sentence with which ``python load.py WORDS`` ends."""
    done = subprocess.run([sys.executable, "-I", str(folder / "load.py"), *words],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "Traceback" not in done.stderr and not done.stdout
    return done.stderr.strip()


@pytest.fixture(scope="module")
def rows():
    draw = np.random.default_rng(5)
    user = draw.integers(0, 12, 240)
    return pd.DataFrame({"src": [f"u/{n}" for n in user], "dst": (user * 2 + draw.integers(
        0, 4, 240)) % 20, "time": np.sort(draw.integers(0, 1000, 240)),
        "town": np.where(user < 6, LONG, "rye")})


def made(rows, method, folder, directed=True, **kind):
    stream = fv.from_frame(rows, src="src", dst="dst", time="time", client="town", **kind)
    stream = stream if directed else stream.with_direction(False)
    plan = stream.by_count(60)
    return fv.run(method, stream.split(by="town"), plan, out=folder).finish()


def pairs_of(part):
    """All pairs of some users and items of a client, by name."""
    return [list(pair) for pair in zip(*((part.src_ids[u], part.dst_ids[i])
            for u in range(0, part.num_src, 2) for i in range(0, part.num_dst, 3)), strict=True)]


def scored(run, name, users, items):
    import pyarrow as pa
    table = pa.table({"client": [name] * len(users), "user": users, "item": items})
    return np.array(fv.Forecasts(run).scored(table)["score"].to_pylist(), float)


@pytest.mark.slow
@pytest.mark.parametrize("method", [
    fv.FedLink.tiny(), fv.FedLink.tiny().model_copy(update={"score_by": "cosine"}),
    fv.FedLinkLocal.tiny(), fv.FedLinkNoEmb.tiny()], ids=repr)
def test_fedlink_scores_the_same_outside(rows, method, tmp_path):
    run = made(rows, method, tmp_path / "run")
    export(tmp_path / "run", tmp_path / "out")
    for name, part in run.parts.items():
        users, items = pairs_of(part)
        expected = scored(run, name, users, items)
        assert np.allclose(outside(tmp_path / "out", "scores", name, users, items), expected,
                           rtol=1e-5, atol=1e-6)
    if method.score_by == "dot":    # the embeddings are what the scores are of
        tables = [parquet.read_table(tmp_path / "out" / "clients" / "rye" / f"{side}.parquet")
                  for side in ("users", "items")]
        z = [dict(zip(t["name"].to_pylist(), map(np.array, t["embedding"].to_pylist()),
                      strict=True)) for t in tables]
        users, items = pairs_of(run.parts["rye"])
        assert np.allclose([z[0][u] @ z[1][i] for u, i in zip(users, items, strict=True)],
                           scored(run, "rye", users, items), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("method", [fv.FedLink.tiny(), fv.FedLinkPlus.tiny()], ids=repr)
def test_scores_of_edges_without_direction_are_the_same_outside(rows, method, tmp_path):
    rows = rows.assign(dst="u/" + (rows.dst % 12).astype(str))
    run = made(rows, method, tmp_path / "run", bipartite=False, directed=False)
    export(tmp_path / "run", tmp_path / "out", top=100)
    part = run.parts["rye"]
    pairs = {(part.src_ids[a], part.dst_ids[b]) for a, b in zip(part.src, part.dst, strict=True)}
    users, items = map(list, zip(*sorted(pairs), strict=True))
    assert np.allclose(outside(tmp_path / "out", "scores", "rye", users, items),
                       scored(run, "rye", users, items), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_fedlink_plus_scores_the_same_outside(rows, tmp_path):
    run = made(rows, fv.FedLinkPlus.tiny(), tmp_path / "run")
    export(tmp_path / "run", tmp_path / "out", top=100)
    for name, part in run.parts.items():
        users, items = pairs_of(part)
        assert np.allclose(outside(tmp_path / "out", "scores", name, users, items),
                           scored(run, name, users, items), rtol=0, atol=1e-6)
    export(tmp_path / "run", tmp_path / "few", top=0)
    met = parquet.read_table(tmp_path / "few" / "clients" / "rye" / "pairs.parquet")
    mine = rows[rows.town == "rye"]
    assert set(zip(met["user"].to_pylist(), met["item"].to_pylist(), strict=True)) == set(
        zip(mine.src, mine.dst.astype(str), strict=True))
    assert np.isnan(outside(tmp_path / "few", "scores", "rye", ["nobody"], ["1"])).all()


@pytest.mark.slow
@pytest.mark.parametrize("bipartite", [True, False])
@pytest.mark.parametrize("directed", [True, False])
def test_dgcolearn_scores_the_same_outside(rows, bipartite, directed, tmp_path):
    if bipartite and not directed:
        pytest.skip("edges between two kinds have a direction")
    stream = fv.from_frame(rows, src="src", dst="dst", time="time", client="town",
                           bipartite=bipartite)
    stream = stream if directed else stream.with_direction(False)
    run = fv.run(fv.DgCoLearn.tiny(), stream.split(by="town"), stream.by_count(60),
                 out=tmp_path / "run").finish()
    export(tmp_path / "run", tmp_path / "out")
    users, items = pairs_of(run.parts["all"])
    assert np.allclose(outside(tmp_path / "out", "scores", "all", users, items),
                       scored(run, "all", users, items), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_name_that_is_not_there_is_named_in_a_sentence(rows, graph, tmp_path):
    for method in (fv.FedLinkNoEmb.tiny(), fv.FedLinkPlus.tiny()):
        made(rows, method, tmp_path / method.name)
        export(tmp_path / method.name, tmp_path / f"{method.name}-out")
    stream = fv.from_frame(rows, src="src", dst="dst", time="time", client="town")
    for name, method, split, plan in (
            ("dgcolearn", fv.DgCoLearn.tiny(), stream.split(by="town"), stream.by_count(60)),
            ("fedavg", fv.FedAvg.tiny(), graph.split("client"), by_task(graph, 2))):
        fv.run(method, split, plan, out=tmp_path / name).finish()
        export(tmp_path / name, tmp_path / f"{name}-out")
    link, plus, shared, nodes = (tmp_path / f"{name}-out" for name in (
        "fedlink_noemb", "fedlink_plus", "dgcolearn", "fedavg"))
    assert refused(link, "rye", "nobody", "1") == (
        "The user nobody had no edge at rye; load.py scores users and items of a client alone, "
        "fedvine predict also users of others.")
    assert refused(link, "paris", "u/7", "1") == (
        f"No client paris was exported; there are rye, {LONG}.")
    here, = set(rows.src[rows.town == "rye"][:1])
    away, = set(rows.src[rows.town != "rye"][:1])
    assert refused(link, "rye", here, "no item").startswith("The item no item had no edge at rye;")
    assert refused(link, "rye", away, "1").startswith(f"The user {away} had no edge at rye;")
    assert refused(plus, "rye", "nobody", "1") == (
        "No pair of the user nobody with these items was exported at rye; load.py scores users of "
        "a client alone, fedvine predict also users of others.")
    assert refused(plus, "paris", "nobody", "1").startswith("No client paris was exported")
    assert refused(shared, "nobody", "1").startswith("The model knows no user nobody")
    assert refused(nodes, "north", "n999") == "The model knows no node n999 at this client."
    for folder in (link, plus, shared, nodes):
        assert "python load.py" in refused(folder)


@pytest.fixture(scope="module")
def graph():
    draw = np.random.default_rng(6)
    y = np.repeat([0, 1, 2, 3], 12)
    return Graph.make(draw.normal(size=(48, 5)) + y[:, None], draw.integers(0, 48, (2, 90)), y,
                      classes=list("abcd"), ids=Ids.of([f"n{i}" for i in range(48)]),
                      owner=Owner(np.arange(48) % 2, ("north", "south")))


@pytest.mark.slow
@pytest.mark.parametrize("method", [
    fv.Power.tiny(), fv.Power.tiny().model_copy(update={"answers": "global"}), fv.FedAvg.tiny()],
    ids=repr)
def test_power_scores_the_same_outside(graph, method, tmp_path):
    run = fv.run(method, graph.split("client"), by_task(graph, 2), out=tmp_path / "run").finish()
    export(tmp_path / "run", tmp_path / "out")
    for name in ("north", "south"):
        table = Labels(run).table(client=name)
        found = outside(tmp_path / "out", "classes", name, table["node"].to_pylist())
        p = np.exp(found) / np.exp(found).sum(1, keepdims=True)
        expected = np.stack([table[f"p({c})"].to_numpy() for c in "abcd"], 1)
        assert np.allclose(p, expected, rtol=0, atol=1e-6)


def test_other_methods_are_arrays_with_a_sentence(rows, tmp_path, capsys):
    made(rows, fv.Popularity(), tmp_path / "run")
    with pytest.raises(SystemExit, match="0"):
        main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "out")])
    assert "no script that computes answers of popularity" in capsys.readouterr().out
    assert not (tmp_path / "out" / "load.py").exists()
    assert "is part of fedvine" not in (tmp_path / "out" / "README.md").read_text()
    assert (tmp_path / "out" / "model.safetensors").exists()
    assert load_file(tmp_path / "out" / "clients" / "rye" / "arrays.safetensors")


def test_the_card_has_what_a_person_asks(rows, tmp_path):
    run = made(rows, fv.FedLink.tiny(), tmp_path / "run")
    export(tmp_path / "run", tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text()
    for title in ("Data", "Protocol", "Scores", "Who learned what", "Privacy spent", "Licence"):
        assert f"\n## {title}\n" in text
    assert f"| rye | {len(run.parts['rye']):,} |" in text
    auc = [json.loads(line)["scores"]["auc"] for line in (tmp_path / "run" / "metrics.jsonl"
           ).read_text().splitlines() if json.loads(line)["period"] == "test"]
    assert f"| auc | {np.mean(auc):.4f} | - | {len(auc)} |" in text
    assert "The data are the run owner's own" in text and "`load.py` is part of" in text
    assert "| train |" in text and "No noise was added" in text


def test_a_folder_with_files_is_not_written_to(rows, tmp_path):
    made(rows, fv.Popularity(), tmp_path / "run")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("kept")
    with pytest.raises(FedvineError, match="is there already"):
        export(tmp_path / "run", tmp_path / "out")
    assert [f.name for f in (tmp_path / "out").iterdir()] == ["mine"]
    with pytest.raises(FedvineError):
        export(tmp_path / "nothing", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_what_features_weigh_is_printed_and_drawn(rows, tmp_path, capsys):
    def told(*words):
        with pytest.raises(SystemExit) as done:
            main(["explain", *map(str, words)])
        return done.value.code, capsys.readouterr()

    run = made(rows, fv.FedLinkPlus.tiny(), tmp_path / "run")
    code, (text, _) = told(tmp_path / "run")
    w = run.method.answering(run.at_the_end()[0])[0]
    assert code == 0
    assert f"{w[AT.pair_met]:+.3f}   pair_met " in text and " curve_" not in text
    _, (text, _) = told(tmp_path / "run", "--feature", "item_log_fast",
                        "--plot", tmp_path / "curve.png")
    table = [line.split() for line in text.splitlines()[3:]]
    x, added = np.array(table, float).T
    f = np.zeros((len(x), WIDTH), np.float32)
    f[:, AT.item_log_fast] = x
    for row in f:       # what a pair's features of this one count add, less that of the first
        curve_part(row)
    f[:, [k for name in CURVES if name != "item_log_fast" for k in [
        getattr(AT, f"curve_{name}_{i}") for i in range(1, 7)]]] = 0
    assert added == pytest.approx(f @ w - f[0] @ w, abs=2e-3)
    assert (tmp_path / "curve.png").read_bytes()[:4] == b"\x89PNG"
    code, (_, error) = told(tmp_path / "run", "--feature", "item_log_fas")
    assert code == 2 and 'did you mean "item_log_fast"' in error
    made(rows, fv.FedLinkNoEmb.tiny(), tmp_path / "other")
    assert "fedlink_noemb, whose scores are not sums" in told(tmp_path / "other")[1].err
