"""Kept cells: found by what scores depend on, written whole, enough for a page by themselves."""

import json
import platform
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import quick
import shop

from fedvine.core.device import processor
from fedvine.core.errors import FedvineError
from fedvine.experiments.experiment import Experiment
from fedvine.methods.popularity import Popularity
from fedvine.results import cells as cell_module
from fedvine.results import fill as filling
from fedvine.results.cells import Job, cells, kept_beside, opened_once, rounded, without_folders
from fedvine.results.compare import compare, experiments
from fedvine.results.fill import fill, fill_pages
from fedvine.results.kept import Identity, Kept, read
from fedvine.results.tune import find_search, tune
from fedvine.results.work import Budget
from fedvine.tasks.link_prediction import LinkPrediction


def wanted(folder, *words):
    data = {"source": str(shop.write(folder)), **shop.COLUMNS}
    return experiments(words or ("popularity",), {"data": data, "stages": "400s"},
                       ["protocol.negatives=5"])


def lines(folder):
    return read(folder / "kept" / "shop.jsonl")


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """Two methods and two seeds, made once; and their comparison."""
    folder = tmp_path_factory.mktemp("kept")
    with pytest.MonkeyPatch.context() as patch:
        quick.here(patch)
        found = compare(wanted(folder, "popularity", "edgebank"), 2, folder / "cells")
    return folder, found


@pytest.fixture
def filled(once, tmp_path):
    """A copy of its lines and data in a folder of the test's own, without the runs."""
    folder, found = once
    shutil.copy(folder / "shop.csv", tmp_path)
    shutil.copytree(folder / "cells" / "kept", tmp_path / "cells" / "kept")
    return tmp_path, found


def never(monkeypatch):
    def start(cell, _):
        raise AssertionError(f"{cell} was run")
    monkeypatch.setattr(filling, "_start", start)


@pytest.mark.slow
def test_a_comparison_is_made_from_lines_alone(filled, monkeypatch):
    folder, found = filled
    never(monkeypatch)
    again = wanted(folder, "popularity", "edgebank")
    assert compare(again, 2, folder / "cells") == found
    (folder / "shop.csv").unlink()                                  # nor are the data here
    assert compare(again, 2, folder / "cells") == found
    third = compare(again, 3, folder / "cells")
    assert third.absent.keys() == {"popularity on shop, seed 2", "edgebank on shop, seed 2"}
    assert any("seed 2: " in n and "shop.csv does not exist" in n for n in third.notes())
    with pytest.raises(FedvineError, match=r"shop\.csv does not exist"):
        compare(again, 2, folder / "none")


def test_texts_lose_the_folders_of_absolute_paths():
    for text, left in (
            ("/home/ada/data/shop.csv: columns are not used.", "shop.csv: columns are not used."),
            ("x.npz was not found in /srv/data/x, get it.", "x.npz was not found in x, get it."),
            ("see https://example.org/a/b.csv, and/or a/b.csv", None), ("5/7 of /tmp", None)):
        assert without_folders(text) == (text if left is None else left)


def test_data_that_a_task_refuses_count_as_missing(tmp_path):
    data = {"source": str(shop.write(tmp_path)), **shop.COLUMNS}
    def of(name):
        return Experiment.model_validate({"method": name, "data": data, "split": {"by": "hash"}})
    with pytest.raises(FedvineError, match="shop has no classes of nodes"):
        cells([of("last_label")], tmp_path / "cells")
    with opened_once():     # the data are opened once for each task
        for name, absent in (("popularity", False), ("last_label", True), ("popularity", False)):
            try:
                found, = cells([of(name)], tmp_path / "cells")
                assert not absent and not found.absent
            except FedvineError:
                assert absent


def test_a_line_holds_no_path_and_stands_in_order_of_keys(filled):
    folder, _ = filled
    file = folder / "cells" / "kept" / "shop.jsonl"
    found = [json.loads(text) for text in file.read_text().splitlines()]
    assert [x["key"] for x in found] == sorted(x["key"] for x in found) and len(found) == 4
    assert str(folder) not in file.read_text() and found[0]["settings"]["data"]["source"] == "shop"
    one = found[0]
    assert one["processor"] == processor() and platform.node() not in one["processor"].split()
    assert one["summary"]["seconds_cpu"] > 0 and one["summary"]["sizes"].keys() == {
        "ada", "bob", "cyd"} & one["summary"]["sizes"].keys()
    assert set(one["summary"]["scores"]) == {"test", "val"} and one["fedvine"]


def test_a_line_is_taken_where_a_field_is_new_and_at_its_default(once):
    folder, _ = once
    first, = wanted(folder)
    line = Kept(folder / "cells" / "kept").find(Identity(first))
    mine = Identity(first)
    assert mine.stands(line)
    def without(table, key):
        there = json.loads(json.dumps(line))
        del there["settings"][table][key]
        return there
    other = Identity(first.with_settings(["method.decay=0.25"]))
    assert not other.stands(line)
    assert mine.stands(without("method", "decay"))          # written before there was a decay
    assert not other.stands(without("method", "decay"))
    assert mine.stands(without("split", "seed")) and mine.stands(without("run", "quorum"))
    assert not mine.stands(without("protocol", "negatives"))    # here 5, by default another
    old = json.loads(json.dumps(line))
    old["settings"]["method"]["gone"] = 1                   # a field that is no more
    assert not mine.stands(old)
    table = json.loads(json.dumps(line))
    table["settings"]["gone"] = {}
    assert not mine.stands(table)


def test_a_default_that_changes_makes_another_cell(once, monkeypatch):
    folder, _ = once
    first, = wanted(folder)
    line = Kept(folder / "cells" / "kept").find(Identity(first))
    changed = first.with_settings(["method.decay=0.25"])    # as if it were the default of today
    monkeypatch.setattr(Popularity.model_fields["decay"], "default", 0.25)
    assert not Identity(changed).stands(line)
    assert Identity(first).stands(line)


def test_a_revision_and_other_content_make_another_cell(filled, monkeypatch):
    folder, _ = filled
    first, = wanted(folder)
    one, = cells([first], folder / "cells")
    assert one.finished
    for changed in (Popularity, LinkPrediction):
        monkeypatch.setattr(changed, "revision", changed.revision + 1)
        assert not cells([first], folder / "cells")[0].finished
        assert cells([first], folder / "cells")[0].folder != one.folder
        (folder / "shop.csv").rename(folder / "away.csv")       # nor where the data are not here
        with pytest.raises(FedvineError, match=r"shop\.csv does not exist"):
            cells([first], folder / "cells")
        (folder / "away.csv").rename(folder / "shop.csv")
        monkeypatch.undo()
    shop.write(folder, seed=1)
    assert not cells([first], folder / "cells")[0].finished
    shop.write(folder)
    assert cells([first], folder / "cells")[0].finished


@pytest.mark.slow
def test_a_search_under_another_protocol_is_not_taken(tmp_path, monkeypatch):
    quick.here(monkeypatch)
    monkeypatch.chdir(tmp_path)
    first, = wanted(tmp_path)
    tune(first, trials=1, folder=tmp_path / "cells", tell=len)
    assert find_search(first, 100, tmp_path / "cells") is not None
    monkeypatch.setattr(LinkPrediction, "revision", 99)
    assert find_search(first, 100, tmp_path / "cells") is None


def test_of_a_data_set_a_line_that_nobody_can_ask_for_goes(tmp_path):
    store, made = Kept(tmp_path), Experiment.model_validate({"data": "flights", "method": "stfl"})
    line = {"method": "stfl", "seed": 0, "settings": Identity(made).settings, "summary": {}}
    store.keep(Identity(made, "old"), line | {"content": "old"})
    store.keep(Identity(made, "new"), line | {"content": "new"})
    store.keep(Identity(made.model_copy(update={"seed": 1}), "new"),
               line | {"content": "new", "seed": 1})
    assert sorted((x["content"], x["seed"]) for x in read(tmp_path / "flights.jsonl")) == [
        ("new", 0), ("new", 1)]


def test_lines_of_two_machines_merge_and_a_conflict_is_named(filled):
    folder, found = filled
    file = folder / "cells" / "kept" / "shop.jsonl"
    texts = file.read_text().splitlines()
    file.write_text("\n".join([*texts[2:], *texts[:3]]) + "\n")       # a union, one line twice
    assert compare(wanted(folder, "popularity", "edgebank"), 2, folder / "cells") == found
    file.write_text("\n".join(["<<<<<<< ours", *texts]))
    with pytest.raises(FedvineError, match=r"shop\.jsonl, line 1 is no kept cell"):
        compare(wanted(folder), 2, folder / "cells")


def test_processes_that_write_at_once_lose_nothing(tmp_path):
    made = [Experiment.model_validate({"data": "flights", "method": "stfl", "seed": s})
            for s in range(12)]

    def keep(experiment):
        Kept(tmp_path).keep(Identity(experiment, "x"), {
            "method": "stfl", "seed": experiment.seed, "content": "x", "summary": {},
            "settings": Identity(experiment).settings})
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(keep, made))
    assert sorted(x["seed"] for x in read(tmp_path / "flights.jsonl")) == list(range(12))
    assert [p.name for p in tmp_path.iterdir()] == ["flights.jsonl"]


def test_a_run_that_finished_before_is_kept_without_being_run(tmp_path, monkeypatch):
    never(monkeypatch)
    cell, = cells(wanted(tmp_path), tmp_path / "cells")
    cell.experiment.run(cell.folder).finish()
    assert cell.finished and cell.line is None
    before = cell.records()
    assert fill([[cell]]) == []
    shutil.rmtree(cell.folder)
    assert cell.finished and cell.records() == before == rounded(before)


def test_what_is_measured_from_the_data_is_measured_once(filled):
    folder, _ = filled
    cell, = cells(wanted(folder), folder / "cells")
    asked = []
    for _ in range(2):
        cell, = cells(wanted(folder), folder / "cells")
        assert cell.measured("size", lambda c: asked.append(c) or {"edges": c.edges}) == {
            "edges": 480}
    assert len(asked) == 1 and len(lines(folder / "cells")) == 4


def test_lines_go_beside_the_runs_but_for_a_checkout(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(kept_beside("runs/cells")) == "runs/cells/kept"
    (tmp_path / "docs/results/cells").mkdir(parents=True)
    assert str(kept_beside("runs/cells")) == "docs/results/cells"
    assert kept_beside(tmp_path / "x") == tmp_path / "x" / "kept"


# -- the order of work ----------------------------------------------------------------------------
def rows(folder, *words, seeds=5):
    every = cells((e.model_copy(update={"seed": s}) for e in wanted(folder, *words)
                   for s in range(seeds)), folder / "cells")
    return [every[i:i + seeds] for i in range(0, len(every), seeds)]


@pytest.fixture
def cost(monkeypatch):
    """CPU seconds that a method's runs are kept with, by its name."""
    prices = {}
    written = cell_module.Job._written

    def priced(self, other):
        line = written(self, other)
        line["summary"]["seconds_cpu"] = prices.get(line["method"], 1.0)
        return line
    monkeypatch.setattr(Job, "_written", priced)
    return prices


@pytest.mark.slow
def test_every_method_gets_its_first_seed_first_and_cheap_ones_come_before(
        tmp_path, monkeypatch, cost):
    made = []
    quick.here(monkeypatch, made)
    cost.update(popularity=50.0, edgebank=5.0)
    table = rows(tmp_path, "popularity", "edgebank", seeds=3)
    assert fill(table) == []
    first, later = made[:2], made[2:]
    assert {x.split()[0] for x in first} == {"popularity", "edgebank"}
    assert all(x.endswith("seed 0") for x in first)
    assert len(later) == 4 and [x[-1] for x in later] == ["1", "1", "2", "2"]
    shutil.rmtree(tmp_path / "cells" / "kept")
    for row in table:
        fill([row[:1]])                                     # what one run took is known now
    made.clear()
    for row in table:
        for cell in row[1:]:
            shutil.rmtree(cell.folder)
    assert fill(rows(tmp_path, "popularity", "edgebank", seeds=3)) == []
    assert [x.split()[0] for x in made] == ["edgebank", "popularity"] * 2


@pytest.mark.slow
def test_a_slow_row_gets_three_seeds_if_nobody_says(tmp_path, monkeypatch, cost):
    made = []
    quick.here(monkeypatch, made)
    cost.update(popularity=121.0, edgebank=119.0)
    table, limit = rows(tmp_path, "popularity", "edgebank"), Budget(fewer=True)
    assert fill(table, budget=limit) == []
    assert [len(limit.wanted(row)) for row in table] == [3, 5] and len(made) == 8
    assert len(fill(table, budget=Budget(0))) == 2          # five were asked for by name


@pytest.mark.slow
def test_a_page_takes_no_more_than_its_cap(tmp_path, monkeypatch, cost):
    made = []
    quick.here(monkeypatch, made)
    cost.update(popularity=40.0)
    table = rows(tmp_path, "popularity")
    assert len(fill(table, budget=Budget(cpu=100.0))) == 3 and len(made) == 2
    assert len(fill(table, budget=Budget(cpu=100.0))) == 3 and len(made) == 2
    assert len(fill(table, budget=Budget(cpu=130.0))) == 2 and len(made) == 3
    other = rows(tmp_path, "edgebank", seeds=1)             # on a page that has room
    assert len(fill_pages([table, other], budget=Budget(cpu=130.0))) == 2
    assert made[-1] == "edgebank on shop, seed 0"


@pytest.mark.slow
def test_a_busy_machine_costs_no_seed(tmp_path, monkeypatch):
    """The budget is of the processor: the clock may run as it likes."""
    made = []
    quick.here(monkeypatch, made)
    monkeypatch.setattr(filling._Running, "look", lambda one: setattr(one, "cpu", 10.0))
    ticks = iter(range(0, 10 ** 9, 10 ** 4))
    monkeypatch.setattr(filling.time, "monotonic", lambda: float(next(ticks)))
    assert len(fill(rows(tmp_path, "popularity"), budget=35.0)) == 1 and len(made) == 4
    assert fill(rows(tmp_path, "popularity"), budget=35.0) == [] and len(made) == 5


@pytest.mark.slow
def test_a_row_that_fails_does_not_hold_up_the_others(tmp_path, monkeypatch):
    made = []
    quick.here(monkeypatch, made)
    start = filling._start

    def failing(cell, _=None):
        if cell.experiment.method.name == "popularity":
            cell.folder.parent.mkdir(parents=True, exist_ok=True)
            log = cell.folder.with_name(cell.folder.name + ".log")
            log.write_text("Error: no luck.")
            one = start(cell)
            (cell.folder / "summary.json").unlink()
            one.process.returncode = 2
            return one
        return start(cell)
    monkeypatch.setattr(filling, "_start", failing)
    with pytest.raises(FedvineError, match=r"popularity on shop, seed 0 failed: no luck\."):
        fill(rows(tmp_path, "popularity", "edgebank", seeds=2))
    assert sorted(made) == ["edgebank on shop, seed 0", "edgebank on shop, seed 1",
                            "popularity on shop, seed 0"]


OWN = '''
from fedvine.core.method import on_client
from fedvine.methods.popularity import Popularity


class Mine(Popularity):
    name = "mine"
    space = {"decay": [0.1, 0.5, 0.9]}

    @on_client
    def predict(self, client, queries):
        return SIGN * self.popularity(client, queries.dst)
'''


def test_a_method_of_a_changed_file_is_run_and_searched_again(tmp_path, monkeypatch):
    """Its settings are what they were; lines of the file as it was are not used."""
    file, scores, searched = tmp_path / "mine.py", [], []
    quick.here(monkeypatch)
    monkeypatch.chdir(tmp_path)
    for sign in ("1", "-1", "1"):
        file.write_text(OWN.replace("SIGN", sign))
        asked = wanted(tmp_path, str(file))
        cell, = made = cells(asked, tmp_path / "cells")
        assert fill([made]) == [] and cell.finished
        scores.append(cell.records()[0]["scores"]["auc"])
        searched.append(tune(asked[0], trials=1, folder=tmp_path / "cells", tell=len).search.value)
    assert scores[0] == scores[2] != scores[1] and searched[0] == searched[2] != searched[1]
