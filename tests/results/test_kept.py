"""Kept cells: found by what scores depend on, written whole, enough for a page by themselves."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import quick
import shop

from fedvine.cli import main as cli
from fedvine.core.errors import FedvineError
from fedvine.experiments.experiment import Experiment
from fedvine.methods.popularity import Popularity
from fedvine.results import cells as cell_module
from fedvine.results import fill as filling
from fedvine.results.cells import Job, cells, opened_once, rounded
from fedvine.results.compare import compare, experiments
from fedvine.results.fill import Budget, fill, fill_pages
from fedvine.results.kept import Identity, Kept, differing, read
from fedvine.results.tune import tune
from fedvine.tasks.link_prediction import LinkPrediction


def wanted(folder, *words):
    data = {"source": str(shop.write(folder)), **shop.COLUMNS}
    return experiments(words or ("popularity",), {"data": data, "stages": "400s"},
                       ["protocol.negatives=5"])


def lines(folder):
    return read(folder / "kept" / "shop.parquet")


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


def test_stages_that_begin_at_another_time_or_wait_are_other_cells(filled):
    first = wanted(filled[0])[0].with_settings(["stages='2d'"])
    mine, *others = (Identity(e) for e in (first, *(
        first.with_settings([text]) for text in ("origin='12:00'", "open_end=true"))))
    assert len({one.key for one in (mine, *others)}) == 3
    line = {"method": "popularity", "seed": first.seed, "revision": mine.revision, "content": None,
            "settings": json.loads(json.dumps(mine.settings))}
    assert mine.stands(line) and not any(one.stands(line) for one in others)
    for key in ("origin", "open_end"):
        del line["settings"]["run"][key]    # of a line from before these were told apart
    assert mine.stands(line) and not any(one.stands(line) for one in others)


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


def test_cells_of_two_machines_merge_and_a_spoilt_file_is_named(filled):
    folder, found = filled
    file, here = folder / "cells" / "kept" / "shop.parquet", Kept(folder / "here")
    whole = lines(folder / "cells")
    here._write("shop", [*whole[:2], {**whole[2], "made": "2000-01-01", "summary": {}}])
    file.rename(folder / "other.parquet")
    (folder / "there").mkdir()
    (folder / "other.parquet").rename(folder / "there" / "shop.parquet")
    assert here.add(Kept(folder / "there")) == len(whole) - 2       # the later line stays
    assert Kept(folder / "here").lines("shop") == whole
    assert here.add(Kept(folder / "there")) == 0
    (folder / "else").mkdir()
    Kept(folder / "else")._write("shop", [{**whole[0], "measured": {"trees": 1}}])
    here._write("shop", [{**whole[0], "measured": {"rows": 2}}, *whole[1:]])
    assert here.add(Kept(folder / "else")) == 1     # what was measured of the same cell
    assert here.lines("shop")[0]["measured"] == {"trees": 1, "rows": 2}
    here._write("shop", whole)
    (folder / "here" / "shop.parquet").rename(file)
    assert compare(wanted(folder, "popularity", "edgebank"), 2, folder / "cells") == found
    file.write_bytes(b"<<<<<<< ours" + file.read_bytes())
    with pytest.raises(FedvineError, match=r"shop\.parquet is not a file of kept cells"):
        compare(wanted(folder), 2, folder / "cells")


def test_cells_are_printed(filled, capsys):
    folder, _ = filled
    place = ["--folder", str(folder / "cells" / "kept")]

    def printed(*words):
        with pytest.raises(SystemExit) as ended:
            cli.main(["cells", *words, *place])
        return ended.value.code or 0, capsys.readouterr()
    assert printed()[1].out == "shop: 4 cells of 2 methods\n"
    whole = lines(folder / "cells")
    assert [x.split()[0] for x in printed("shop")[1].out.splitlines()] == [x["key"] for x in whole]
    said = printed("shop", "--method", "edgebank", "--lines")[1].out.splitlines()
    assert [json.loads(x) for x in said] == [x for x in whole if x["method"] == "edgebank"]
    code, told = printed("shops")
    assert code == 2 and 'no cells of a method on "shops"; it has cells of shop' in told.err
    code, told = printed("--method", "fedlink")
    assert code == 2 and 'no cells of fedlink on "any data"' in told.err
    code, told = printed("--add", str(folder / "none"))
    assert code == 2 and "none has no kept cells" in told.err
    assert "auc=0." in printed("shop")[1].out


def test_what_differs_between_cells_of_a_method_is_shown(filled):
    folder, _ = filled
    whole = lines(folder / "cells")
    assert not any(found for _, found in differing(whole))
    other = json.loads(json.dumps(whole[0]))
    other["settings"]["protocol"]["negatives"] = 7
    (_, found), *rest = differing([other, *whole, *whole])
    assert found == {"protocol.negatives": 7} and not any(more for _, more in rest)


def test_processes_that_write_at_once_lose_nothing(tmp_path):
    made = [Experiment.model_validate({"data": "flights", "method": "stfl", "seed": s})
            for s in range(12)]

    def keep(experiment):
        Kept(tmp_path).keep(Identity(experiment, "x"), {
            "method": "stfl", "seed": experiment.seed, "content": "x", "summary": {},
            "settings": Identity(experiment).settings})
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(keep, made))
    assert sorted(x["seed"] for x in read(tmp_path / "flights.parquet")) == list(range(12))
    assert [p.name for p in tmp_path.iterdir()] == ["flights.parquet"]


def test_a_run_that_finished_before_is_kept_without_being_run(tmp_path, monkeypatch):
    never(monkeypatch)
    cell, = cells(wanted(tmp_path), tmp_path / "cells")
    cell.experiment.run(cell.folder).finish()
    assert cell.finished and cell.line is None
    before = cell.records()
    assert fill([[cell]]) == []
    shutil.rmtree(cell.folder)
    assert cell.finished and cell.records() == before == rounded(before)


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


def test_pages_with_a_cell_in_common_run_it_once(tmp_path, monkeypatch):
    made = []
    quick.here(monkeypatch, made)
    with opened_once():
        pages = [rows(tmp_path, "popularity", seeds=n) for n in (2, 1)]
    assert fill_pages(pages) == []
    assert made == [f"popularity on shop, seed {seed}" for seed in (0, 1)]


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


@pytest.mark.slow
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
