"""Forecasts against the obvious way: score every item of a user and sort."""

import contextlib
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas
import polars
import pyarrow
import pytest
import shop
from hypothesis import given
from hypothesis import strategies as st

import fedvine
from fedvine.core.errors import FedvineError
from fedvine.data.plan import Plan
from fedvine.experiments import all_users, forecasts
from fedvine.experiments.answers import Wanted
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.forecasts import Forecast, Forecasts
from fedvine.experiments.reopened import forecasts_of
from fedvine.experiments.run import run
from fedvine.methods.fedlink_plus import FedLinkPlus
from fedvine.methods.popularity import Popularity
from fedvine.tasks.link_prediction import LinkPrediction


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("predict")
    Experiment.model_validate(
        {"data": {"source": str(shop.write(place)), **shop.COLUMNS},
         "method": {"name": "popularity", "decay": 1.0}}).run(place / "run").finish()
    return place / "run"


@pytest.fixture
def found(folder):
    return forecasts_of(folder)


def expected(part, user, count):
    """With a decay of 1 popularity is the plain count of an item."""
    scores = [(-int((part.dst == i).sum()), i) for i in range(part.num_dst)]
    number = part.src_ids.find(user)
    met = set(part.dst[part.src == number].tolist())
    return [Forecast(part.dst_ids[i], float(-s), i in met) for s, i in sorted(scores)[:count]]


def test_forecasts_are_of_the_middle_of_the_next_stage():
    """Right at the end the last edges would be no time ago, which training never shows."""
    plan = Plan((0.0, 10.0, 20.0, 30.0), 1, 2)
    assert plan.asked == 35.0 and replace(plan, at=31.0).asked == 31.0
    task = LinkPrediction()
    pairs = task.pairs(plan, np.arange(2), np.arange(2), [])
    assert pairs["t"].tolist() == [35.0, 35.0]
    assert Plan((5.0, np.nextafter(5.0, 6)), 0, 0).asked == pytest.approx(5.0)


def test_a_user_of_the_last_moment_is_forecast_like_the_others(tmp_path):
    """With dates alone many are: a feature of ages that was 0 in training made them likelier."""
    draw = np.random.default_rng(2)
    user, own = draw.integers(0, 60, 1500), draw.integers(0, 30, (60, 3))
    item = np.where(draw.random(1500) < 0.7, own[user, draw.integers(0, 3, 1500)],
                    draw.integers(0, 30, 1500))
    day = np.sort(draw.integers(0, 60, 1500)).astype(np.int64)
    rows = pandas.DataFrame({"src": user, "dst": item, "time": 86_400 * day})
    stream = fedvine.from_frame(rows, src="src", dst="dst", time="time")
    done = run(FedLinkPlus(), stream.split("hash", k=2), stream.by_time("7d")).finish()
    Forecasts(done).every(1, tmp_path / "all.parquet")
    best = polars.read_parquet(tmp_path / "all.parquet")
    last = {str(u) for u in user[day == day[-1]]}
    late, others = (best.filter(best["user"].is_in(last) == is_late)["score"]
                    for is_late in (True, False))
    assert 3 < len(late) < len(best) / 2
    assert late.median() == pytest.approx(others.median(), abs=0.7)     # it was 1.8 more


def test_the_top_of_every_user_is_what_sorting_gives(found):
    for client, part in found.parts.items():
        for number in range(part.num_src):
            user = part.src_ids[number]
            assert found.top(client, user, 4) == expected(part, user, 4)


@pytest.mark.parametrize(("block", "suffix"), [
    (1, "csv"), (100, "parquet"), (forecasts.BLOCK, "csv")])
def test_everybody_in_blocks_is_the_same_as_one_by_one(found, tmp_path, monkeypatch, block, suffix):
    monkeypatch.setattr(forecasts, "BLOCK", block)
    out = tmp_path / f"all.{suffix}"
    rows = found.every(3, out)
    table = (polars.read_csv(out, schema_overrides={"user": polars.String}) if suffix == "csv"
             else polars.read_parquet(out))
    assert table.columns == ["client", "user", "rank", "item", "score", "known", "basis", "as_of",
                             "run", "model"]
    assert table["basis"].unique().to_list() == ["edges"]
    assert table["run"].unique().to_list() == ["run"] and len(table["model"][0]) == 16
    assert rows == len(table) == 3 * sum(p.num_src for p in found.parts.values())
    for (client, user), own in table.group_by("client", "user"):
        own = own.sort("rank")
        assert own["rank"].to_list() == [1, 2, 3]
        assert [Forecast(*row) for row in own.select("item", "score", "known").rows()] == expected(
            found.parts[client], user, 3)


@pytest.mark.slow
def test_users_of_the_table_without_an_edge_are_answered_by_it(tmp_path, monkeypatch):
    """Users of a kind meet the ten items of that kind; new ones get lists of theirs."""
    draw = np.random.default_rng(1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(forecasts, "GUESTS", 3)
    with open("shop.csv", "w") as file:
        file.write("user,item,at,town\n")
        file.writelines(f"u{u},i{u % 3 * 10 + draw.integers(10)},{t},{'ab'[u % 2]}\n"
                        for t, u in enumerate(draw.integers(0, 30, 600)))
    Path("users.csv").write_text("user,kind\n" + "".join(
        f"u{u},{'xyz'[u % 3]}\n" for u in range(40)))
    made = Experiment.model_validate({
        "data": {"source": "shop.csv", "src": "user", "dst": "item", "time": "at", "client": "town",
                 "users": "users.csv"}, "method": {"name": "fedlink_plus"}, "stages": "100"})
    made.run("run").finish()
    found, told = forecasts_of("run"), []
    count = found.every(4, "all.parquet", say=lambda *done: told.append(done))
    table = polars.read_parquet("all.parquet")
    new = table.filter(polars.col("basis") == "table")
    assert count == 4 * (30 + 2 * 10) and told[-1] == (50, 50)
    assert sorted(set(new["user"])) == sorted(f"u{u}" for u in range(30, 40))
    assert set(new["client"]) == {"a", "b"} and not new["known"].any()
    right = [int(item[1:]) // 10 == int(user[1:]) % 3 for user, item in
             zip(new["user"], new["item"], strict=True)]
    assert np.mean(right) > 0.9
    for (client, user), own in new.group_by("client", "user"):
        assert own.sort("rank")["item"].to_list() == [
            one.item for one in found.top(client, user, 4)]
    assert all_users.every("run", found, None, 4, "two.parquet", None, 2) == count
    other = polars.read_parquet("two.parquet")
    assert other.drop("score").equals(table.drop("score"))
    assert np.allclose(other["score"], table["score"], rtol=0, atol=1e-12)
    with pytest.raises(FedvineError, match="kind"):
        all_users.every("run", found, None, 4, "no.parquet", Wanted(cap=("kind", 2)), 2)
    assert not Path("no.parquet").exists()


@pytest.mark.parametrize("block", [1, forecasts.BLOCK])
def test_lists_name_only_what_is_wanted(found, tmp_path, monkeypatch, block):
    monkeypatch.setattr(forecasts, "BLOCK", block)
    part = found.parts["ada"]
    items = [part.dst_ids[i] for i in range(part.num_dst)]
    pairs = [("ada", part.src_ids[u], items[i]) for u, i in [(0, 0), (0, 1), (2, 3)]]
    polars.DataFrame(pairs, schema=["client", "user", "item"], orient="row").with_columns(
        score=1.0).write_csv(tmp_path / "not.csv")     # such as an earlier file of forecasts
    polars.DataFrame({"item": items[:6]}).write_csv(tmp_path / "shown.csv")
    wanted = Wanted.read(True, tmp_path / "shown.csv", tmp_path / "not.csv")
    found.every(3, tmp_path / "all.jsonl", wanted)
    table = polars.read_ndjson(tmp_path / "all.jsonl")
    found.every(3, f"sqlite:{tmp_path}/lists.db/best", wanted)
    found.every(3, f"sqlite:{tmp_path}/lists.db/best", wanted)
    with contextlib.closing(sqlite3.connect(tmp_path / "lists.db")) as base:
        assert base.execute("SELECT client, user, rank, item, score FROM best").fetchall() == (
            table.select("client", "user", "rank", "item", "score").rows())
        assert base.execute("SELECT count(*) FROM sqlite_master").fetchone() == (1,)
    for client, part in found.parts.items():
        for number in range(part.num_src):
            user = part.src_ids[number]
            mine = table.filter(client=client, user=user).sort("rank")
            best = [f for f in expected(part, user, None) if not f.known and f.item in items[:6]
                    and (client, user, f.item) not in pairs][:3]
            assert mine["item"].to_list() == [f.item for f in best]
            assert mine["rank"].to_list() == list(range(1, len(best) + 1))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 2)), min_size=1), st.integers(1, 3))
def test_a_cap_keeps_the_best_of_each_category(rows, most):
    score, codes = np.array([[s for s, _ in rows]], float), np.array([c for _, c in rows])
    kept = np.flatnonzero(forecasts.capped(score, codes, most)[0] > -np.inf)
    seen, slow = {}, []
    for i in np.argsort(-score[0], kind="stable").tolist():
        seen[codes[i]] = seen.get(codes[i], 0) + 1
        if codes[i] < 0 or seen[codes[i]] <= most:
            slow.append(i)
    assert sorted(slow) == kept.tolist()


def test_wishes_that_cannot_be_met_are_sentences(found, tmp_path):
    (tmp_path / "x.csv").write_text("thing\n1\n")
    for words, sentence in (({"cap": "category"}, "such as category=2"),
                            ({"items": tmp_path / "x.csv"}, 'no column "item"'),
                            ({"exclude": tmp_path / "x.csv"}, "needs client, user and item")):
        with pytest.raises(FedvineError, match=sentence):
            Wanted.read(**words)
    with pytest.raises(FedvineError, match="no table of items with categories"):
        found.every(3, tmp_path / "a.csv", Wanted(cap=("kind", 1)))
    with pytest.raises(FedvineError, match=r"sqlite:shop\.db/forecasts"):
        found.every(3, "sqlite:nothing")
    assert not (tmp_path / "a.csv").exists()


@pytest.mark.parametrize(("block", "suffix"), [(2, "csv"), (forecasts.BLOCK, "parquet")])
def test_given_pairs_are_scored_in_their_order(found, tmp_path, monkeypatch, suffix, block):
    monkeypatch.setattr(forecasts, "BLOCK", block)
    rows = []
    for client, part in found.parts.items():
        for u, i in [(0, 0), (1, 2), (2, 1), (part.num_src - 1, part.num_dst - 1)]:
            rows.append((client, part.src_ids[u], part.dst_ids[i]))
    rows = [*rows[::2], ("bob", "nobody", rows[0][2]), ("bob", rows[4][1], "nothing"), *rows[1::2]]
    asked = polars.DataFrame(rows, schema=["client", "user", "item"], orient="row")
    file, out = tmp_path / f"pairs.{suffix}", tmp_path / "scores.parquet"
    (asked.write_csv if suffix == "csv" else asked.write_parquet)(file)
    assert found.pairs(file, out) == (14, 12)
    answer = polars.read_parquet(out)
    assert answer.select("client", "user", "item").equals(asked)
    for client, user, item, score, known in answer.rows():
        if user == "nobody" or item == "nothing":
            assert (score, known) == (None, False)
        else:
            forecast = {f.item: f for f in expected(found.parts[client], user, None)}[item]
            assert (score, known) == (forecast.score, forecast.known)


@pytest.mark.parametrize(("client", "user", "message"), [
    ("adda", "100", 'no client "adda" .did you mean "ada"'),
    ("ada", "nobody", 'No client has ever seen a user called "nobody"')])
def test_unknown_names_are_refused(found, client, user, message):
    with pytest.raises(FedvineError, match=message):
        found.top(client, user)


def test_a_guest_known_elsewhere_alone_gets_forecasts_and_leaves_no_trace(found):
    places = {user: [n for n, p in found.parts.items()
                     if user in {p.src_ids[i] for i in range(p.num_src)}]
              for part in found.parts.values() for user in (part.src_ids[0], part.src_ids[
                  part.num_src - 1])}
    user, known = next((u, k) for u, k in places.items() if len(k) < 3)
    absent = next(n for n in found.parts if n not in known)
    assert found.homes(user) == known
    part = found.parts[absent]
    before = found.top(absent, part.src_ids[0], 3)
    best = found.top(absent, user, part.num_dst)
    assert len(best) == part.num_dst and not any(f.known for f in best)
    assert [f.score for f in best] == sorted((f.score for f in best), reverse=True)
    assert found.top(absent, part.src_ids[0], 3) == before and part.num_src == len(part.src_ids)


@pytest.mark.parametrize("kind", [int, np.float64])
def test_names_that_are_whole_numbers_may_be_numbers(tmp_path, kind):
    table = pandas.DataFrame({"src": np.arange(60) % 7, "dst": np.arange(60) % 4,
                              "time": np.arange(60), "shop": np.arange(60) % 2})
    stream = fedvine.from_frame(table, src="src", dst="dst", time="time", client="shop")
    done = run(FedLinkPlus(rounds=1), stream.split("shop"), stream.by_time(20)).finish()
    asked = Forecasts(done)
    best = done.predict("1", "3", 2)
    items = [one.item for one in best]
    assert done.predict(kind(1), user=kind(3), top=2) == best and len(best) == 2
    assert asked.tops(kind(1), [kind(3), "3"], 2) == [best, best]
    assert asked.why(kind(1), kind(3), [kind(i) for i in items]) == asked.why("1", "3", items)
    assert asked.homes(kind(3)) == ["1", "0"] or asked.homes(kind(3)) == ["0", "1"]
    for name in (None, 3.5, True, b"3", float("nan")):
        with pytest.raises(FedvineError, match=r"The user is .*, but must be text or a whole"):
            done.predict("1", name)


def test_an_unfinished_run_makes_forecasts_as_of_its_last_stage(tmp_path):
    experiment = Experiment.model_validate(
        {"data": {"source": str(shop.write(tmp_path)), **shop.COLUMNS}, "method": "edgebank"})
    run = experiment.run(tmp_path / "run")
    with pytest.raises(FedvineError, match="not finished"):
        Forecasts(run)
    next(iter(run))
    kept = forecasts_of(tmp_path / "run")
    client, part = next((n, p) for n, p in kept.parts.items() if len(p.before(kept.plan.bounds[1])))
    user = part.src_ids[int(part.src[0])]
    known = {f.item for f in kept.top(client, user, 1000) if f.known}
    early = part.before(kept.plan.bounds[1])
    assert len(kept.plan) == 1 < len(run.plan)
    assert known == {part.dst_ids[int(i)] for i in early.dst[early.src == part.src[0]]}


def test_a_forecast_after_the_run_equals_one_from_its_folder(folder):
    again = Experiment.of_run(folder).run().finish()
    fresh, kept = Forecasts(again), forecasts_of(folder)
    user = kept.parts["bob"].src_ids[0]
    assert fresh.top("bob", user, 7) == kept.top("bob", user, 7)
    assert np.isfinite([f.score for f in kept.top("bob", user, 7)]).all()


@given(st.integers(1, 4), st.integers(1, 30), st.integers(1, 8), st.integers(0, 2**16))
def test_the_likeliest_are_the_first_of_a_stable_sort(users, items, count, seed):
    score = np.random.default_rng(seed).integers(0, 5, (users, items)).astype(float)    # many ties
    expected = np.argsort(-score, axis=1, kind="stable")[:, :count]
    assert forecasts.likeliest(score, count).tolist() == expected.tolist()


def test_the_csv_file_of_forecasts_is_read_back(tmp_path):
    """Names that a spreadsheet would take as formulas have an apostrophe there."""
    names = ["+49 170", "=x", "'=y", "plain"]
    table = polars.DataFrame({"src": names * 10, "dst": ["-a", "b"] * 20, "time": range(40),
                              "client": ["@c"] * 40})
    table.write_parquet(tmp_path / "t.parquet")
    made = Experiment.model_validate({"data": {"source": str(tmp_path / "t.parquet"),
                                               "client": "client"}, "method": "popularity"})
    found = Forecasts(made.run().finish())
    found.every(2, tmp_path / "all.csv")
    rows = polars.read_csv(tmp_path / "all.csv")
    assert "'+49 170" in rows["user"].to_list() and set(rows["client"]) == {"'@c"}
    rows.drop("score", "known").write_csv(tmp_path / "pairs.csv")
    assert found.pairs(tmp_path / "pairs.csv", tmp_path / "scored.csv") == (8, 8)
    assert polars.read_csv(tmp_path / "scored.csv")["score"].to_list() == rows["score"].to_list()


def test_lists_of_an_unfinished_run_name_no_later_item_and_no_later_client(tmp_path):
    draw = np.random.default_rng(0)
    rows = pandas.DataFrame({"src": [f"u{i}" for i in draw.integers(0, 9, 60)], "time": range(60),
                             "dst": ["i1", "i2", "i3"] * 10 + ["late1", "late2"] * 15,
                             "town": ["ada"] * 50 + ["zed"] * 10})
    stream = fedvine.from_frame(rows, src="src", dst="dst", time="time", client="town")
    made = run(Popularity(), stream.split(by="town"), stream.by_count(10), out=tmp_path / "half",
               save_every=0)
    next(stage for stage in made if stage.t == 1)
    opened = fedvine.open_run(tmp_path / "half")
    assert {one.item for one in opened.predict("ada", rows.src[0], 9)} == {"i1", "i2", "i3"}
    for question in (lambda: opened.predict("zed", rows.src[0], 2),
                     lambda: opened.predict("ada", rows.src[0], 0)):
        with pytest.raises(FedvineError, match=r"zed|ask for 1 or more"):
            question()
    forecasts_of(tmp_path / "half").every(2, tmp_path / "all.csv")


@pytest.mark.parametrize("bipartite", [True, False])
def test_lists_of_all_users_are_of_those_who_came_before(bipartite, tmp_path):
    rows = pandas.DataFrame({"src": [f"u{n % 10 + 10 * (n > 299)}" for n in range(400)],
                             "dst": [f"i{n % 7 + 7 * (n > 299)}" for n in range(400)],
                             "time": range(400)})
    stream = fedvine.from_frame(rows, src="src", dst="dst", time="time", bipartite=bipartite)
    made = run(Popularity(), stream.split(by="hash", k=1), stream.by_count(100), out=tmp_path / "a")
    next(stage for stage in made if stage.t == 1)
    forecasts_of(tmp_path / "a").every(50, tmp_path / "all.csv")
    found = pandas.read_csv(tmp_path / "all.csv")
    before = {*rows.src[:200], *([] if bipartite else rows.dst[:200])}
    assert set(found.user) == before
    assert set(found.item) <= set(rows.dst[:200]) | (set() if bipartite else before)


def test_a_node_is_in_no_list_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    one = draw.integers(0, 12, 600)
    other = (one + draw.integers(1, 12, 600)) % 12
    pandas.DataFrame({"src": [f"n{n}" for n in one], "dst": [f"n{n}" for n in other],
                      "time": range(600)}).to_csv("edges.csv", index=False)
    Path("nodes.csv").write_text("src,kind\n" + "".join(f"n{n},k{n % 4}\n" for n in range(12)))
    Experiment.model_validate({
        "data": {"source": "edges.csv", "undirected": True, "users": "nodes.csv"},
        "method": {"name": "frequency"}, "stages": "100", "split": {"by": "hash", "k": 1},
        }).run("run").finish()
    found, lists = forecasts_of("run"), {}
    for name, wanted in (("all", None), ("cap", Wanted(cap=("kind", 1))),
                         ("new", Wanted(new_only=True))):
        found.every(12, f"{name}.csv", wanted)
        lists[name] = pandas.read_csv(f"{name}.csv")
        assert (lists[name].user != lists[name].item).all()
    lists["all"]["kind"] = lists["all"].item.str[1:].astype(int) % 4
    best = lists["all"].drop_duplicates(["client", "user", "kind"])
    assert lists["cap"].item.tolist() == best.item.tolist()
    client = found.homes("n1")[0]
    assert len(fedvine.open_run("run").last_edges(client, "n1", 1000)) == ((one == 1) | (
        other == 1)).sum()


def test_names_of_a_csv_file_and_with_spaces_are_those_of_the_run(tmp_path):
    rows = pandas.DataFrame({"src": ["Ann", "Bo"] * 10, "dst": ["=sum", "tea", "tea"] * 6 + [
        "=sum", "tea"], "time": range(20), "town": ["x"] * 20})
    stream = fedvine.from_frame(rows, src="src", dst="dst", time="time", client="town")
    run(Popularity(), stream.split(by="town"), stream.by_count(5), out=tmp_path / "a").finish()
    found = forecasts_of(tmp_path / "a")
    (tmp_path / "items.csv").write_text("item\n'=sum\n")
    wanted = Wanted.read(items=tmp_path / "items.csv")
    assert found.every(5, tmp_path / "all.parquet", wanted) == 2
    pairs = [("x", "Ann ", "tea"), ("x", "Ann", "=sum")]
    opened = fedvine.open_run(tmp_path / "a")
    assert opened.score(pairs).equals(opened.score(pandas.DataFrame(
        pairs, columns=["client", "user", "item"])))
    assert None not in opened.score(pairs)["score"].to_pylist()


def test_items_that_are_no_candidates_take_no_place_of_a_category(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("edges.csv").write_text("u,i,t,town\n" + "".join(
        f"u{n % 5},i{(n * 3) % 8 + (n % 2) * 8},{n},{('ada', 'bo')[n % 2]}\n" for n in range(80)))
    Path("items.csv").write_text("i,shelf\n" + "".join(f"i{n},s{n % 4}\n" for n in range(16)))
    Path("users.csv").write_text("u,age\n" + "".join(f"u{n},{n}\n" for n in range(7)))
    Experiment.model_validate({"data": {
        "source": "edges.csv", "src": "u", "dst": "i", "time": "t", "client": "town",
        "users": "users.csv", "items": "items.csv"}, "method": {"name": "popularity"},
        "stages": "10"}).run("run").finish()
    found = forecasts_of("run")
    with monkeypatch.context() as patch:
        draw = np.random.default_rng(0)
        patch.setattr(Forecasts, "_ask", lambda self, client, asked: draw.random(len(asked["src"])))
        found.every(4, "all.csv", wanted=Wanted(cap=("shelf", 1)))
    for (client, _), rows in pandas.read_csv("all.csv").groupby(["client", "user"]):
        part = found.parts[client]
        there = {part.dst_ids[i] for i in part.dst.tolist()}
        assert set(rows.item) <= there and len(rows) == len({int(i[1:]) % 4 for i in there})
    # also a user without an edge does not get what was excluded
    first = found.top("ada", "u6", 1)[0].item
    out = pyarrow.table({"client": ["ada"], "user": ["u6"], "item": [first]})
    found.every(3, "all.csv", wanted=Wanted(exclude=out))
    lists = pandas.read_csv("all.csv")
    assert len(lists[lists.user == "u6"]) and first not in set(
        lists[(lists.user == "u6") & (lists.client == "ada")].item)
