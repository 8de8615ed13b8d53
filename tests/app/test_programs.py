"""What programs ask by a run's name: written forecasts, and answers that are computed."""

import json
import shutil
import time
from pathlib import Path

import asked
import pytest
from asked import get

from fedvine.experiments.erase import erase
from fedvine.experiments.forecasts import Forecasts
from fedvine.experiments.reopened import forecasts_of, open_run
from fedvine.experiments.run_files import WRITTEN

pytest.importorskip("starlette", reason="the extra app is not installed")
from fedvine.app import programs
from fedvine.app.api import application

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("named")
    asked.links(place / "plus", chances=5, prefix="=").finish()
    asked.labels(place / "labels").finish()
    return place


def post(app, path, given, **more):
    return get(app, path, "POST", given=given, **more)


@pytest.mark.parametrize("out", ["all.csv", "all.jsonl", "all.parquet", "sqlite:{}/all.db/lists"])
def test_what_was_written_is_answered_to_the_last_digit(runs, out, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(runs / "plus", "plus")
    found, app = forecasts_of("plus"), application(["plus"])
    user = found.parts["ada"].src_ids[3]
    path = f"/runs/plus/forecasts?client=ada&user={user.replace('=', '%3D')}"
    status, _, before = get(app, path)      # nothing was written: it is computed
    assert status == 200 and "model" not in before
    found.every(4, out.format(tmp_path))
    app = application(["plus"])
    status, _, after = get(app, f"{path}&n=3")
    assert status == 200 and len(after["model"]) == 16 and after["run"] == "plus"
    assert [one["item"] for one in after["items"]] == [o["item"] for o in before["items"][:3]]
    for one, other in zip(after["items"], before["items"], strict=False):
        assert one["score"] == pytest.approx(other["score"]) and one["known"] == other["known"]
        assert one["probability"] == pytest.approx(other["probability"])
    assert "model" not in get(app, f"{path}&n=5")[2]        # more than were written
    assert get(app, "/runs/plus/forecasts?client=ada&user=nobody")[0] == 400


def test_a_night_replaces_what_was_written_without_a_failed_answer(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(programs, "LOOK", 0.0)
    shutil.copytree(runs / "plus", "plus")
    found, app = forecasts_of("plus"), application(["plus"])
    user = found.parts["ada"].src_ids[3].replace("=", "%3D")
    found.every(2, "all.parquet")
    path = f"/runs/plus/forecasts?client=ada&user={user}&n=2"
    assert len(get(app, path)[2]["items"]) == 2
    found.every(5, "all.parquet")
    for _ in range(500):
        status, _, body = get(app, path.replace("n=2", "n=5"))
        assert status == 200
        if "model" in body:
            break
        time.sleep(0.01)
    assert len(body["items"]) == 5 and "model" in body
    (tmp_path / "all.parquet").write_bytes(b"nothing")
    for _ in range(5):      # what cannot be read takes no one's place
        assert get(app, path)[0] == 200
        time.sleep(0.02)
    assert "model" in get(app, path)[2]


def test_many_users_and_pairs_are_computed(runs):
    app, opened = application([runs / "plus"]), open_run(runs / "plus")
    users = [opened.run.parts["ada"].src_ids[i] for i in (2, 0)]
    items = [opened.run.parts["ada"].dst_ids[i] for i in (1, 4)]
    status, _, found = post(app, "/runs/plus/forecasts",
                            {"client": "ada", "users": [*users, "nobody"], "n": 3})
    assert status == 200 and [one["user"] for one in found["forecasts"]] == [*users, "nobody"]
    assert found["forecasts"][2]["items"] == []
    for user, one in zip(users, found["forecasts"], strict=False):
        assert one["items"] == [json.loads(json.dumps(o._asdict())) for o in
                                Forecasts(opened.run).top("ada", user, 3)]
    pairs = [{"client": "ada", "user": u, "item": i} for u in users for i in items]
    status, _, found = post(app, "/runs/plus/forecasts", {"pairs": pairs})
    assert status == 200 and found["pairs"] == opened.score(pairs).to_pylist()
    assert post(app, "/runs/plus/forecasts", {"pairs": []})[2]["pairs"] == []


@pytest.mark.parametrize(("given", "said"), [
    (b"{", "is no JSON"), ([], "is no object"), ({"users": "ada"}, "users, a list"),
    ({"client": "ada"}, "Ask for"), ({"client": "ada", "users": [], "n": 0}, "Ask for"),
    ({"client": "eve", "users": ["u"]}, "eve"),
    ({"pairs": [{"client": "ada"}]}, "Row 1 of the pairs"),
    ({"pairs": [3]}, "A pair is"),
    ({"client": "ada", "users": ["u"] * 10_001}, "10,000 at most"),
    ({"client": "ada", "users": ["u"], "n": True}, "n, a int"),
    ({"client": "ada", "users": [None]}, "users, a list"),
    ({"client": "ada", "users": ["\ud800"]}, "is no JSON"),
    (b"[" + b" " * 4_000_000, "longer than")])
def test_other_questions_are_refused_with_a_sentence(runs, given, said):
    status, _, found = post(application([runs / "plus"]), "/runs/plus/forecasts", given)
    assert status == 400 and said in found["error"]


def test_labels_by_name(runs):
    app, opened = application([runs / "labels"]), open_run(runs / "labels")
    node = opened.run.protocol.labelled(next(iter(opened.run.parts.values()))).names[0]
    expected = opened.labels([node]).to_pylist()
    assert get(app, f"/runs/labels/labels?node={node}")[2]["labels"] == expected
    found = post(app, "/runs/labels/labels", {"nodes": [node, node]})
    assert found[0] == 200 and found[2]["labels"] == expected * 2
    assert post(app, "/runs/labels/labels", {"nodes": ["none"]})[0] == 400
    assert post(app, "/runs/labels/forecasts", {"client": "ada", "users": ["u"]})[0] == 400


def test_only_with_the_token_and_from_no_other_site(runs):
    app = application([runs / "plus"], token="secret")
    path, given = "/runs/plus/forecasts", {"pairs": []}
    assert post(app, path, given)[0] == 401 and get(app, path)[0] == 401
    assert post(app, path, given, authorization="Bearer secret")[0] == 200
    assert post(app, path, given, authorization="Bearer secret", origin="http://evil.org")[0] == 403
    assert post(app, "/api/runs", given, authorization="Bearer secret")[0] == 405
    assert get(app, "/runs/other/forecasts", authorization="Bearer secret")[0] == 404


def test_what_may_be_asked_is_said_for_machines(runs):
    paths = get(application([runs / "plus"]), "/openapi.json")[2]["paths"]
    assert {path: set(ways) for path, ways in paths.items()} == {
        "/runs/{name}/forecasts": {"get", "post"}, "/runs/{name}/labels": {"get", "post"}}
    for path, ways in paths.items():
        assert set(get(application([runs / "plus"]), path.replace("{name}", "other"))[2]) == {
            "error"}
        assert all(one["parameters"][0] == {"name": "name", "in": "path", "required": True,
                                            "schema": {"type": "string"}} for one in ways.values())


def test_an_erased_user_is_answered_no_longer(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(programs, "LOOK", 0.0)
    shutil.copytree(runs / "plus", "plus")
    app, found = application(["plus"]), forecasts_of("plus")
    first, second = (found.parts["ada"].src_ids[i] for i in (3, 4))
    paths = [f"/runs/plus/forecasts?client=ada&user={user.replace('=', '%3D')}" for user in (
        first, second)]
    assert [get(app, path)[0] for path in paths] == [200, 200]
    erase("plus", {"user": [first]}, exact=True)
    assert [get(app, path)[0] for path in paths] == [400, 200]
    found.every(4, "all.csv")
    erase("plus", {"user": [second]})
    assert [get(app, path)[0] for path in paths] == [400, 400]


def test_what_is_deleted_while_it_is_read_answers_nobody_and_a_read_that_fails_is_repeated(
        runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(programs, "LOOK", 0.0)
    monkeypatch.setattr(programs, "PAUSE", 0.0)
    shutil.copytree(runs / "plus", "plus")
    found, real = forecasts_of("plus"), programs.read_tables
    found.every(4, "all.csv")
    asked, written = ("ada", found.parts["ada"].src_ids[3], 2), programs.Written(Path("plus"))
    with monkeypatch.context() as patch:
        patch.setattr(programs, "read_tables", lambda _: (_ for _ in ()).throw(OSError("away")))
        written.load()
    assert written.waits() and written.of(*asked) is None
    written.load()
    assert written.of(*asked)

    def deleted(file):
        table = real(file)
        (Path("plus") / WRITTEN).unlink()
        return table
    monkeypatch.setattr(programs, "read_tables", deleted)
    found.every(4, "all.csv")
    written.load()
    assert not written.waits() and written.of(*asked) is None
