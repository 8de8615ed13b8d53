"""Published numbers are read as printed, cells are made from the table's file, gaps are marked."""

import json
import shutil
from pathlib import Path

import pytest
import quick
import shop

from fedvine.cli import main
from fedvine.core.errors import FedvineError
from fedvine.datasets import at_hand
from fedvine.experiments.experiment import Experiment
from fedvine.papers import published, reproduce, tables
from fedvine.papers.published import PAPERS, PaperTable, names, numbers
from fedvine.papers.tables import lacking
from fedvine.results.cells import cells

CSVS = sorted(f.name for f in PAPERS.iterdir() if f.name.endswith(".csv"))


@pytest.mark.parametrize("file", CSVS)
def test_every_file_of_numbers_is_a_whole_table(file):
    lines = numbers(file)
    assert lines
    for line in lines:
        assert None not in line                      # a cell too many
        assert None not in line.values()             # a cell too few
    assert file in (PAPERS / "README.md").read_text()


@pytest.mark.parametrize("name", names())
def test_every_row_of_a_table_has_its_numbers_and_can_be_built(name):
    table = PaperTable.named(name)
    printed = table.printed()
    of_paper = [e.id for e in table.experiment if "not of the paper" not in e.name]
    means = {e.printed_mean[0] for e in table.experiment if e.printed_mean}
    printed = {place: line for place, line in printed.items() if place[0] not in means}
    assert {e for e, _ in printed} == set(of_paper)
    assert {m for _, m in printed} == {r.name for r in table.row if r.published}
    every = {(e, r.name) for e in of_paper for r in table.row if r.published}
    assert printed.keys() == every or name == "power-code"   # CiteSeer has one row there
    for setting in table.experiment:
        assert table.searched(setting).id == (setting.like or setting.id)
        for row in table.row:
            if (setting.id, row.name) in printed:
                for column in table.columns(setting):
                    if column.published:
                        number, *spread = table.paper(setting, row, column).split(" ±")
                        assert number == "O.O.M" or float(number) > -5, number
                        assert len(spread) == (column.spread is not None and not column.mean
                                               and column.place is None)
            if row.method:
                made = table.build(setting, row)
                assert made.method.name == row.method["name"]


def test_rows_take_settings_that_were_searched_on_another_data_set(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    monkeypatch.delenv("FEDVINE_DATA", raising=False)
    table = PaperTable.named("dgcolearn-table3")
    place, took = {s.id: s for s in table.every}, 0
    with at_hand():
        for row in table.row:
            made, search = table.of(place["OTC"], row), table.search(place["UCI"], row)
            assert (made.data.source, made.stages, search) == (
                "bitcoin_otc", "13.8d", table.search(place["OTC"], row))
            took += search is not None and all(getattr(made.method, key) == value
                                               for key, value in search.fields.items())
        assert table.of(place["AS-733"], table.row[0]).method.window == "all" and took >= 10


def test_the_experiment_beside_the_table_is_one_of_its_cells():
    table = PaperTable.named("fedlink-table1")
    row = next(r for r in table.row if r.name == "FedLink")
    file = Path(__file__).parents[2] / "experiments" / "fedlink-table1.toml"
    assert Experiment.read(file).identity() == table.build(table.experiment[0], row).identity()


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A table of two experiments on a shop, of which one has no data."""
    data = {"source": str(shop.write(tmp_path)), **shop.COLUMNS}
    table = PaperTable.model_validate({
        "title": "Small", "numbers": "fedlink_table1_efficiency_and_auc.csv",
        "experiment_column": "experiment", "method_column": "method", "differences": ["It is."],
        "common": {"stages": "400s"},
        "column": [{"name": "AUC", "published": "auc", "ours": "auc"},
                   {"name": "memory", "published": "gpu_memory", "ours": "peak_memory_bytes",
                    "unit": "GB"}],
        "experiment": [{"id": "1", "name": "shop", "settings": {"data": data}},
                       {"id": "2", "name": "none", "settings": {
                           "data": {**data, "source": str(tmp_path / "none.csv")}}}],
        "row": [{"name": "STFL", "method": {"name": "popularity"}}, {"name": "FedDGL"},
                {"name": "Bank", "published": False, "method": {"name": "edgebank"}}]})
    monkeypatch.setattr(reproduce, "names", lambda: ["small"])
    monkeypatch.setattr(PaperTable, "named", staticmethod(lambda name: table))
    return table


def test_budget_and_gaps_are_marked(small, tmp_path):
    sheet = reproduce.reproduce("small", seeds=1, budget=0, folder=tmp_path / "cells")
    assert sheet.grids[0].columns == ["method", "AUC, paper", "AUC, ours", "memory (GB), paper",
                                      "memory (GB), ours"]
    assert sheet.grids[0].rows == [["STFL", "0.870", "budget", "6.003", ""],
                                   ["FedDGL", "0.873", "later", "1.892", ""],
                                   ["Bank", "-", "budget", "-", ""]]
    assert [row[2] for row in sheet.grids[1].rows] == ["no data", "later",
                                                       "no data"]
    assert any("none.csv does not exist" in note for note in sheet.notes)
    assert "480 edges of shop" in sheet.grids[0].title
    assert sheet.records == []


def test_what_was_run_stands_beside_the_paper(small, tmp_path):
    for row in (small.row[0], small.row[2]):
        cell, = cells([small.build(small.experiment[0], row)], tmp_path / "cells")
        cell.experiment.run(cell.folder).finish()
    sheet = reproduce.reproduce("small", only="shop", seeds=2, budget=0, folder=tmp_path / "cells")
    assert len(sheet.grids) == 1
    found = {r["method"]: r for r in sheet.records if r["client"] is None}
    (name, paper, ours, _, memory), _, bank = sheet.grids[0].rows
    auc = {m: r["scores"]["auc"] for m, r in found.items()}
    assert (name, paper, ours) == ("STFL", "0.870", f"{auc['popularity']:.3f}")
    assert memory == f"{found['popularity']['peak_memory_bytes'] / 1e9:.2f}"
    assert bank[1:3] == ["-", f"{auc['edgebank']:.3f}"]
    assert "Experiment 1, 1 of 2 seeds were run, the budget was spent: STFL; Bank." in sheet.notes
    assert sheet.markdown().endswith("Why they differ:\n\n- It is.\n")


def test_a_column_may_show_runs_with_other_settings(small, tmp_path, monkeypatch):
    auc = small.column[0]
    table = small.model_copy(update={
        "variant": {"few": {"stages": "800s"}}, "ours": "STFL",
        "column": [auc, auc.model_copy(update={"variant": "few", "published": None})]})
    monkeypatch.setattr(PaperTable, "named", staticmethod(lambda name: table))
    assert [(e.id, e.name, e.variant) for e in table.every] == [
        ("1", "shop", ""), ("1", "shop, few", "few"), ("2", "none", ""), ("2", "none, few", "few")]
    assert table.chosen("1") == table.every[:2] and table.chosen("few") == table.every[1::2]
    plain = table.experiment[0].model_copy(update={"varied": False})
    assert table.model_copy(update={"experiment": [plain]}).every == [plain]
    sheet = reproduce.reproduce("small", only="1", seeds=1, budget=0, folder=tmp_path / "cells")
    assert [r[2:] for r in sheet.grids[0].rows] == [["budget"] * 2, ["later"] * 2, ["budget"] * 2]
    scored = []
    for setting in table.every[:2]:
        cell, = cells([table.build(setting, table.row[0])], tmp_path / "cells")
        scored.append(f"{cell.experiment.run(cell.folder).finish().scores['test']['mean']['auc']:.3f}")
    sheet = reproduce.reproduce("small", only="1", seeds=1, budget=0, folder=tmp_path / "cells")
    assert len(sheet.grids) == 1 and sheet.grids[0].columns == [
        "method", "AUC, paper", "AUC, ours", "AUC, ours"]
    assert sheet.grids[0].rows[0] == ["STFL", "0.870", *scored] and scored[0] != scored[1]
    assert {r["experiment"] for r in sheet.records} == {"1", "1, few"}
    lines = lacking(table, "1", 1, tmp_path / "cells").sentences()
    assert "1, few: Bank has 0 of 1 seeds." in lines and not any("STFL" in x for x in lines)


@pytest.mark.slow
def test_all_pages_are_filled_together_and_written(small, tmp_path, monkeypatch, capsys):
    made = []
    quick.here(monkeypatch, made)
    monkeypatch.setattr(reproduce, "names", lambda: ["broken", "small", "twice"])
    named = PaperTable.named
    def page(name):
        if name == "broken":
            raise FedvineError("It is broken.")
        return named(name)
    monkeypatch.setattr(PaperTable, "named", staticmethod(page))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs/results/cells").mkdir(parents=True)
    with pytest.raises(SystemExit) as ended:
        main.main(["reproduce", "all", "--seeds", "2", "--markdown", "pages"])
    assert not ended.value.code
    assert len(made) == 4 and {x[-1] for x in made[:2]} == {"0"}    # of both pages, each once
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "broken: It is broken."
    assert [line.split(":")[0] for line in out] == ["broken", "small", "twice"]
    assert all("4 runs, 0.0 CPU minutes; a page may take 60." in line for line in out[1:])
    pages = sorted(f.name for f in (tmp_path / "pages").iterdir())
    assert pages == ["small.md", "twice.md"]
    for folder in (tmp_path / "runs/cells").iterdir():
        if folder.name != "kept":
            shutil.rmtree(folder)                                   # the page needs no run folder
    assert not any((tmp_path / "docs/results/cells").iterdir())     # which is for known data alone
    (tmp_path / "shop.csv").unlink()                                # nor its data
    again = reproduce.reproduce("small", seeds=2)
    assert again.markdown() == (tmp_path / "pages" / "small.md").read_text()
    with pytest.raises(SystemExit):
        main.main(["reproduce", "all", "--only", "shop"])
    assert "--only, --json, --table and --plot belong to one page" in capsys.readouterr().err


def test_cells_of_tables_in_the_cache_such_as_halves_are_kept_as_those_of_data_sets(
        tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDVINE_CACHE", str(tmp_path / "cache"))
    for folder in ("docs/results/cells", "cache"):
        Path(folder).mkdir(parents=True)
    made = [Experiment.model_validate({
        "data": {"source": str(shop.write(folder)), **shop.COLUMNS},
        "method": {"name": "popularity"}}) for folder in (tmp_path / "cache", tmp_path)]
    assert [cell.kept.folder for cell in cells(made)] == [
        Path("docs/results/cells"), Path("runs/cells/kept")]


@pytest.fixture
def by_client(tmp_path, monkeypatch):
    """A table by client, of two experiments on a shop; the second has no data."""
    data = {"source": str(shop.write(tmp_path)), **shop.COLUMNS}
    (tmp_path / "numbers.csv").write_text(
        "group,method,client,auc,sd,total\n"
        "1,Pop,cyd(5%),0.70,0.01,9.5\n1,Pop,ada(5%),0.75,0.02,9.5\n1,Pop,all,0.8,0.01,9.5\n"
        "2,Pop,ada,0.60,0.03,8.5\n2,Pop,cyd,0.61,0.04,8.5\n")
    monkeypatch.setattr(published, "PAPERS", tmp_path)
    table = PaperTable.model_validate({
        "title": "By client", "numbers": "numbers.csv", "experiment_column": "group",
        "method_column": "method", "client_column": "client", "differences": ["It is."],
        "common": {"stages": "400s"},
        "column": [{"name": "AUC {}", "published": "auc", "spread": "sd", "ours": "auc",
                    "each": True},
                   {"name": "mean", "published": "auc", "ours": "auc", "mean": True},
                   {"name": "total", "published": "total", "ours": "seconds_total", "unit": "s"},
                   {"name": "new", "ours": "auc_new"}],
        "experiment": [{"id": "1", "name": "shop", "settings": {"data": data},
                        "clients": ["cyd", "ada"], "client": "{}(5%)",
                        "printed_mean": ["1", "all"]},
                       {"id": "2", "name": "none", "clients": ["ada", "cyd"], "settings": {
                           "data": {**data, "source": str(tmp_path / "none.csv")}}},
                       {"id": "3", "name": "ours", "clients": ["bob"], "settings": {"data": data}}],
        "row": [{"name": "Pop", "method": {"name": "popularity"}},
                {"name": "Bank", "published": False, "method": {"name": "edgebank"}}]})
    monkeypatch.setattr(reproduce, "names", lambda: ["by-client"])
    monkeypatch.setattr(PaperTable, "named", staticmethod(lambda name: table))
    return table


@pytest.mark.slow
def test_clients_have_columns_with_the_papers_numbers_above_ours(by_client, tmp_path, monkeypatch):
    folder = tmp_path / "cells"
    made = cells((by_client.build(by_client.experiment[0], row) for row in by_client.row), folder)
    for cell in made:
        cell.experiment.run(cell.folder).finish()
    sizes = {n: len(p) for n, p in made[0].experiment.open()[1].parts.items()}
    limit = max(sizes["ada"], sizes["cyd"])                 # the other one has fewer
    monkeypatch.setattr(tables, "FEW", limit)
    sheet = reproduce.reproduce("by-client", seeds=1, budget=0, folder=folder)
    first, second, third = sheet.grids
    scores = {(r["method"], r["client"]): r["scores"] for r in sheet.records
              if r["experiment"] == "1"}
    small = [n for n in ("cyd", "ada") if sizes[n] < limit]
    assert len(small) == 1
    heads = [f"AUC {n}" + "‡" * (n in small) for n in ("cyd", "ada")]
    assert first.columns == ["method", *heads, "mean", "mean, as printed", "total (s)", "new"]
    paper, ours, bank = first.rows
    assert paper == ["Pop, paper", "0.70 ±0.01", "0.75 ±0.02", "0.725", "0.8", "9.5", ""]
    for name, row, method in (("Pop, ours", ours, "popularity"), ("Bank", bank, "edgebank")):
        assert row[0] == name and row[4] == ""
        assert row[1:3] == [f"{scores[method, c]['auc']:.3f}" for c in ("cyd", "ada")]
        assert row[3].rstrip("†") == f"{scores[method, None]['auc']:.3f}"
        assert row[6].rstrip("†") == f"{scores[method, None]['auc_new']:.3f}"
        assert float(row[5]) > 0
    assert second.columns == ["method", "AUC ada", "AUC cyd", "mean", "total (s)", "new"]
    assert second.rows == [["Pop, paper", "0.60 ±0.03", "0.61 ±0.04", "0.605", "8.5", ""],
                           ["Pop, ours", "no data", "", "", "", ""],
                           ["Bank", "no data", "", "", "", ""]]
    bob = "‡" * (sizes["bob"] < limit)
    assert third.columns == ["method", f"AUC bob{bob}", "mean", "total (s)", "new"]
    assert [row[0] for row in third.rows] == ["Pop", "Bank"]        # the paper has no numbers
    marks, = (note for note in sheet.notes if note.startswith("‡"))
    assert f"experiment 1, {small[0]} {sizes[small[0]]}" in marks and str(limit) in marks
    assert tables.COMPUTED in sheet.notes


def test_numbers_by_client_of_fedlink_as_printed():
    table = PaperTable.named("fedlink-tablec3")
    second = table.experiment[1]
    row = next(r for r in table.row if r.name == "FedLink")
    found = {c.name: table.paper(second, row, c) for c in table.columns(second, ["MX"])
             if c.published}
    assert found == {"US": "0.828 ±0.005", "BR": "0.929 ±0.001", "JP": "0.835 ±0.004",
                     "MX‡": "0.903 ±0.005", "ES": "0.859 ±0.003", "mean": "0.871",
                     "mean, as printed": "0.871"}
    times = PaperTable.named("fedlink-tablec1")
    stfl = {c.name: times.paper(times.experiment[3], times.row[0], c)
            for c in times.columns(times.experiment[3])}
    assert stfl == {"US": "2.015", "IT": "1.894", "GB": "1.723", "TR": "1.879", "ES": "1.982",
                    "total": "2.015", "memory": "4.449"}


@pytest.mark.slow
def test_tables_of_fedlink_share_their_cells():
    """What is the same experiment is the same run."""
    def plain(name, experiment, method):
        table = PaperTable.named(name)
        setting = next(e for e in table.experiment if e.id == experiment)
        row = next(r for r in table.row if r.method and r.method["name"] == method)
        return table.build(setting, row).plain()
    for group in "123":
        for method in ("stfl", "local", "fed4dgnn", "fedlink", "edgebank", "popularity"):
            assert plain("fedlink-tablec2", group, method) == plain("fedlink-table1", group, method)
    for method in ("stfl", "local", "fed4dgnn", "fedlink"):
        for group, experiment in zip("1235", "1234", strict=True):
            assert plain("fedlink-tablec1", group, method) == plain(
                "fedlink-table1", experiment, method)
        assert plain("fedlink-tablec1", "4", method) == plain("fedlink-tablec2", "4", method)
    for method in ("fedlink", "fedlink_local", "fedlink_noemb"):
        assert plain("fedlink-tablec4", "1", method) == plain("fedlink-table2", "200000", method)
    assert plain("fedlink-table2", "200000", "fedlink") == plain("fedlink-table1", "1", "fedlink")
    assert plain("fedlink-table2", "300000", "fedlink")["method"]["capacity"] == 1725


def test_experiments_are_chosen_by_number_or_name():
    table = PaperTable.named("fedlink-table1")
    assert [e.id for e in table.chosen(None)] == ["1", "2", "3", "4", "5", "6", "7"]
    assert [e.id for e in table.chosen("wiki")] == ["5", "6"]
    assert [e.id for e in table.chosen("6,1")] == ["1", "6"]
    with pytest.raises(FedvineError, match='no experiment "8"; there are 1'):
        table.chosen("8")
    with pytest.raises(FedvineError, match=r"did you mean .*fedlink-table1.*tgb-wiki"):
        reproduce.reproduce("fedlink-tabel1")


@pytest.mark.slow
def test_the_command_shows_tgb(data, capsys, tmp_path):
    with pytest.raises(SystemExit) as ended:
        main.main(["reproduce", "tgb-wiki", "--json", str(tmp_path / "a.json"), "--markdown", "-"])
    assert not ended.value.code
    shown = capsys.readouterr().out
    assert "| EdgeBank, window | 0.600 | 0.600 | 0.571 | 0.571 |" in shown
    assert "| fedlink_plus, 5 clients | event by event | " in shown
    first, *_ = json.loads((tmp_path / "a.json").read_text())
    assert first["scores"]["mrr_val"] == pytest.approx(0.527, abs=0.0005)
    assert first["client"] is None
