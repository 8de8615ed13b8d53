"""The page's JSON: the same numbers as the folder's, answers as of a run that is opened."""

import base64
import hashlib
import json
import re
import shutil

import asked
import pytest
from asked import NASTY, get

import fedvine
from fedvine.experiments.run_files import read_lines

pytest.importorskip("starlette", reason="the extra app is not installed")
from fedvine.app.api import application, is_loopback


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three finished runs and one that has learned two of four stages."""
    place = tmp_path_factory.mktemp("runs")
    asked.links(place / "plus", drift=True).finish()
    asked.links(place / "popular", "popularity").finish()
    asked.labels(place / "labels").finish()
    stages = iter(asked.links(place / "half", "popularity", seed=3))
    next(stages), next(stages)
    return [place / name for name in ("plus", "popular", "labels", "half")]


@pytest.fixture(scope="module")
def app(runs):
    return application(runs)


def answer(app, path):
    status, _, found = get(app, path)
    assert status == 200, found
    return found


@pytest.mark.slow
def test_a_row_says_how_far_a_run_has_come(app, runs):
    rows = answer(app, "/api/runs")["runs"]
    assert [row["state"] for row in rows] == ["finished", "finished", "finished", "learning"]
    assert [(row["done"], row["stages"]) for row in rows] == [(4, 4), (4, 4), (4, 4), (2, 4)]
    summary = json.loads((runs[0] / "summary.json").read_text())
    mean = summary["scores"]["test"]["mean"]
    assert rows[0]["scores"] == {"of": "test period", "values": [
        ["AUC new", f"{mean['auc_new']:.3f}"], ["MRR new", f"{mean['mrr_new']:.3f}"]]}
    assert rows[3]["scores"]["of"] == "newest stage"


def slow_mean(folder, key):
    """The mean over clients by stage, from the lines of the log."""
    by = {}
    for line in read_lines(folder, "metrics.jsonl"):
        if key in line["scores"]:
            by.setdefault(line["stage"] + 1, []).append(line["scores"][key])
    return {stage: sum(values) / len(values) for stage, values in by.items()}


def test_runs_are_compared_where_task_and_stages_are_the_same(app, runs):
    found = answer(app, "/api/compared")
    assert [group["runs"] for group in found["groups"]] == [[0, 1, 3], [2]]
    plot = found["groups"][0]["plots"][0]
    assert [(s["name"], s["run"]) for s in plot["series"]] == [
        ("fedlink_plus, seed 0", 0), ("popularity, seed 0", 1), ("popularity, seed 3", 3)]
    for series, folder in zip(plot["series"], (runs[0], runs[1], runs[3]), strict=True):
        assert dict(series["points"]) == pytest.approx(slow_mean(folder, "auc_new"), rel=1e-5)


def test_a_run_in_detail_has_the_folders_numbers(app, runs):
    found = answer(app, "/api/runs/0")
    summary = json.loads((runs[0] / "summary.json").read_text())
    mean, *clients = found["plots"][0]["series"]
    assert mean["name"] == "mean" and [c["name"] for c in clients] == ["ada", "bob", "cyd"]
    assert dict(mean["points"]) == pytest.approx(slow_mean(runs[0], "auc_new"), rel=1e-5)
    assert found["plots"][0]["shaded"] == [3.5, 4.5]
    table = found["clients"]
    column = {name: i for i, name in enumerate(table["columns"])}
    by = {row["name"]: row["cells"] for row in table["rows"]}
    assert {n: cells[column["edges"]][0] for n, cells in by.items()} == summary["sizes"]
    assert sum(cells[column["to it"]][0] for cells in by.values()) == summary["bytes_down"]
    assert sum(cells[column["from it"]][0] for cells in by.values()) == summary["bytes_up"]
    assert found["drift"]["plots"] and found["traffic"] and found["tables"]
    assert found["asks"] == {"kind": "forecasts", "clients": ["ada", "bob", "cyd"]}


def test_tasks_of_classes_have_their_matrix_and_their_means(app, runs):
    found = answer(app, "/api/runs/2")
    lines, matrix, confused = found["plots"]
    summary = json.loads((runs[2] / "summary.json").read_text())["scores"]["test"]
    names, classes = json.loads((runs[2] / "summary.json").read_text())["classes"], (
        summary["classes"])
    assert confused["names"] == [names[c] for c in classes["class"]]
    assert confused["values"] == [[pytest.approx(100 * v / n, rel=1e-5) for v in row]
                                  for row, n in zip(classes["confusion"], classes["n"],
                                                    strict=True)]
    wanted = [[100 * a for a in row] for row in summary["matrix"]]
    assert [[v for v in row if v is not None] for row in matrix["values"]] == [
        pytest.approx(row, rel=1e-5) for row in wanted]
    assert lines["series"][0]["points"] == [
        pytest.approx([t + 1, sum(row) / len(row)], rel=1e-5) for t, row in enumerate(wanted)]
    assert lines["series"][0]["points"][-1][1] == pytest.approx(summary["mean"]["am"], rel=1e-5)
    for name, (_, values) in zip(("ada", "bob", "cyd"), (
            s["points"][-1] for s in lines["series"][1:]), strict=True):
        assert values == pytest.approx(summary["client"][name]["am"], rel=1e-5)


def test_forecasts_are_those_of_the_opened_run_with_the_last_edges(app, runs):
    opened = fedvine.open_run(runs[0])
    part = opened.run.parts["bob"]
    user = part.src_ids[int(part.src[0])]
    found = answer(app, f"/api/runs/0/forecasts?client=bob&user={user}&top=3")
    best = opened.predict("bob", user, 3)
    assert [(i["item"], i["known"]) for i in found["items"]] == [(b.item, b.known) for b in best]
    assert [i["score"] for i in found["items"]] == pytest.approx([b.score for b in best], rel=1e-5)
    assert [i["why"] for i in found["items"]] == opened.why("bob", user, [b.item for b in best])
    edges = [(part.dst_ids[int(part.dst[e])], f"{part.t[e]}") for e in range(len(part))
             if part.src_ids[int(part.src[e])] == user]
    assert [(e["node"], e["time"]) for e in found["edges"]] == edges[::-1][:10]
    assert found["home"] and not found["as_of"]


def test_a_run_that_goes_on_is_asked_as_of_its_newest_stage(tmp_path):
    made = asked.links(tmp_path / "run", "popularity")
    app, stages = application([tmp_path / "run"]), iter(made)
    path = "/api/runs/0/forecasts?client=ada&user=100"
    status, _, found = get(app, path)
    assert status == 400 and "has not learned a whole stage yet" in found["error"]
    for t in range(3):
        next(stages)
        found = answer(app, path)
        assert f"stage {t + 1} of 4" in found["as_of"]
        part = made.parts["ada"]
        ends = [float(part.t[e]) for e in range(len(part))
                if part.src_ids[int(part.src[e])] == "100" and part.t[e] < 1000 * (t + 1)]
        assert [float(e["time"]) for e in found["edges"]] == ends[::-1][:10]


def test_labels_are_those_of_the_opened_run_with_neighbours(app, runs):
    opened = fedvine.open_run(runs[2])
    row = opened.labels(["7"], None).to_pylist()[0]
    found = answer(app, "/api/runs/2/labels?client=&node=7")
    assert (found["client"], found["label"], found["given"]) == (
        row["client"], row["label"], row["given"])
    assert found["classes"][0]["p"] == pytest.approx(row["probability"], rel=1e-5)
    part = opened.run.parts[row["client"]]
    names, me = part.names(), int(part.names().numbers(["7"])[0])
    beside = {names[int(b if a == me else a)] for a, b in part.edges.T if me in (a, b)}
    assert len(beside) <= 10 and {e["node"] for e in found["edges"]} == beside


@pytest.mark.parametrize(("path", "status", "said"), [
    ("/api/runs/9", 404, "There is no run 9"), ("/api/runs/9/forecasts", 404, "no run 9"),
    ("/api/runs/0/forecasts?client=ada&user=nobody", 400, 'a user called "nobody"'),
    ("/api/runs/0/forecasts?client=nowhere&user=100", 400, 'no client "nowhere"'),
    ("/api/runs/0/forecasts?client=ada&user=100&top=0", 400, "from 1 to 100"),
    ("/api/runs/0/forecasts?client=ada&user=100&top=" + "9" * 99, 400, "from 1 to 100"),
    ("/api/runs/0/forecasts?client=ada&user=100&top=0000991234", 400, "from 1 to 100"),
    ("/api/runs/0/labels?node=7", 400, "forecasts pairs"),
    ("/api/runs/2/forecasts?client=ada&user=7", 400, "names classes"),
    ("/api/runs/0/forecasts?client=ada&user=" + "x" * 2000, 400, "longer than 1,000")])
def test_an_error_is_one_sentence(app, path, status, said):
    found = get(app, path)
    assert found[0] == status and said in found[2]["error"]


def test_one_broken_folder_leaves_the_others(runs, tmp_path):
    shutil.copytree(runs[1], tmp_path / "broken")
    (tmp_path / "broken" / "saves" / "x").symlink_to("/etc/passwd")
    app = application([tmp_path / "broken", runs[1]])
    rows = answer(app, "/api/runs")["runs"]
    assert rows[0]["state"] == "error" and "is a link" in rows[0]["error"]
    assert rows[1]["state"] == "finished"
    assert answer(app, "/api/runs/0")["error"] == rows[0]["error"]
    assert [g["runs"] for g in answer(app, "/api/compared")["groups"]] == [[1]]
    status, _, found = get(app, "/api/runs/0/forecasts?client=ada&user=100")
    assert status == 400 and "is a link" in found["error"]


# -- who may ask -----------------------------------------------------------------------------------
@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765", "LOCALHOST", "[::1]:8765"])
def test_a_name_of_this_machine_is_answered(app, host):
    assert get(app, "/api/runs", host=host)[0] == get(app, "/", host=host)[0] == 200


@pytest.mark.parametrize("host", ["rebound.example:8765", "localhost.evil.example", "", "10.0.0.7",
                                  "127.0.0.1.evil.example", "[::1", "a@localhost:99999"])
def test_another_name_is_refused(app, host):
    for path in ("/", "/api/runs"):
        assert get(app, path, host=host)[0] == 421


def test_another_site_and_other_methods_are_refused(app):
    assert get(app, "/api/runs", sec_fetch_site="cross-site")[0] == 403
    assert get(app, "/api/runs", origin="http://evil.example")[0] == 403
    assert get(app, "/api/runs", origin="http://127.0.0.1:8765")[0] == 200
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert get(app, "/api/runs", method=method)[0] == 405


def test_with_a_token_nothing_is_answered_without_it(runs):
    app = application(runs[:1], "0.0.0.0", "right")
    host = "192.168.0.9:8765"
    for given in ({}, {"authorization": "Bearer wrong"}, {"authorization": "right"},
                  {"authorization": "Bearer r\u00efght"}):
        status, headers, found = get(app, "/api/runs", host=host, **given)
        assert (status, list(found), headers["www-authenticate"]) == (401, ["error"], "Bearer")
    assert get(app, "/api/runs", host=host, authorization="Bearer right")[0] == 200
    assert get(app, "/", host=host)[0] == 200           # the page holds nothing of the runs
    assert get(app, "/", host="rebound.example")[0] == 421


def test_loopback():
    assert is_loopback("127.0.0.1") and is_loopback("::1") and is_loopback("localhost")
    assert not is_loopback("0.0.0.0") and not is_loopback("::") and not is_loopback("hub.example")


def test_the_page_takes_nothing_from_elsewhere_and_only_its_own_script_runs(app):
    _, headers, page = get(app, "/")
    policy = dict(part.strip().split(" ", 1) for part in
                  headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    for tag in ("script", "style"):
        bodies = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.S)
        digest = base64.b64encode(hashlib.sha256(bodies[0].encode()).digest()).decode()
        assert policy[f"{tag}-src"] == f"'sha256-{digest}'" and len(bodies) == 1
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", page)
    assert headers["x-content-type-options"] == "nosniff"


def test_names_are_text_in_json(tmp_path):
    names = (NASTY, "bob\u202e\x1b[31m", "cyd")
    asked.links(tmp_path / "run", "popularity", names=names, prefix=NASTY).finish()
    app = application([tmp_path / "run"])
    _, headers, found = get(app, "/api/runs/0")
    assert headers["content-type"] == "application/json"
    assert {row["name"] for row in found["clients"]["rows"]} == {NASTY, "bob??[31m", "cyd"}
