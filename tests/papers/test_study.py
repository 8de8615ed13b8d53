"""The runner of pages: what --only chooses, how many seeds a panel gets, what is said of gaps."""

import pytest
import shop

from fedvine.core.errors import FedvineError
from fedvine.papers.study import Panel, Study, carry_out, chosen, experiments, planned
from fedvine.results.tables import Table, TableSet


def page(found):
    """A row a line: how many cells are finished, of how many."""
    rows = [[panel, str(line), f"{len(found.finished(panel, line))} of {len(row)}"]
            for (panel, line), row in found.cells.items()]
    return TableSet([Table("cells", ["panel", "line", "finished"], rows)],
                    ["A page.", *found.seeds, *found.gaps], found.records)


@pytest.fixture
def study(tmp_path):
    """Two panels of a shop, one of them with a single seed; one without data; one extra."""
    here = {"source": str(shop.write(tmp_path)), **shop.COLUMNS}
    gone = {**here, "source": str(tmp_path / "none.csv")}

    def panel(name, data, **more):
        return Panel(name, lambda folder: experiments({
            m: {"data": data, "stages": "400s", "method": m} for m in ("popularity", "edgebank")}),
            **more)
    return Study("Shops", [panel("Shop", here, id="1", seeds=1), panel("Shop 50 %", here, id="10"),
                           panel("Gone", gone), panel("more", here, extra=True)], page)


def test_only_names_panels_by_id_or_name_or_a_part_of_the_name(study):
    def names(only):
        return [p.name for p in chosen(study.title, study.panels, only)]
    assert names("1") == names("shop") == names("SHOP,") == ["Shop"]       # whole names come first
    assert names("10") == names("50") == ["Shop 50 %"]
    assert names("go, sho") == ["Shop", "Shop 50 %", "Gone"]               # in the study's order
    assert names(None) == names("") == []
    with pytest.raises(FedvineError, match=r'Shops has no experiment "gon e" \(did you mean "Gone"'
                       r"\?\); there are 1 \(Shop\), 10 \(Shop 50 %\), Gone, more\."):
        names("gon e")


def test_cells_are_planned_by_panel_line_and_seed(study, tmp_path):
    found = planned(study, None, 3, tmp_path / "cells")
    assert {place: [c.experiment.seed for c in row] for place, row in found.cells.items()} == {
        ("Shop", "popularity"): [0], ("Shop", "edgebank"): [0],
        ("Shop 50 %", "popularity"): [0, 1, 2], ("Shop 50 %", "edgebank"): [0, 1, 2]}
    assert [p.name for p in found.chosen] == ["Shop", "Shop 50 %", "Gone"]
    assert [p.name for p in found.panels] == ["Shop", "Shop 50 %"]
    assert "more" in {name for name, _ in planned(study, "more", 1, tmp_path / "cells").cells}


def test_a_page_says_what_it_cost_and_what_is_missing(study, tmp_path):
    options = {"seeds": 2, "budget": 0, "folder": tmp_path / "cells"}
    first = planned(study, "1", 1, tmp_path / "cells").cells["Shop", "popularity"][0]
    first.experiment.run(first.folder).finish()
    sheet = carry_out(study, **options)
    assert [row[2] for row in sheet.grids[0].rows] == ["1 of 1", "0 of 1", "1 of 2", "0 of 2"]
    title, cost, seeds, left, gone = sheet.notes
    assert title == "A page." and seeds.startswith("One seed")
    assert cost.startswith("1 run, 0.0 CPU minutes") and cost.endswith("3 more are not made.")
    assert left.startswith("4 runs were not made, the budget was spent")
    assert gone.startswith("Gone was not run, its data are not here: ") and "none.csv" in gone
    assert {(r["panel"], r["line"]) for r in sheet.records} == {
        ("Shop", "popularity"), ("Shop 50 %", "popularity")}
