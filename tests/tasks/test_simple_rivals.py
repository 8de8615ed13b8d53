"""No table of scores without the rivals that need no model."""


import pytest

from fedvine.core import registry
from fedvine.papers import published
from fedvine.results.comparison import Comparison
from fedvine.results.entry import Entry
from fedvine.results.view import _COSTS
from fedvine.tasks.class_incremental import ClassIncremental
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.tasks.task import every, of

SCALES = {"seconds_own", "seconds_client", "seconds_server", *_COSTS}


def lacking(methods):
    """The simple rivals that a table of these methods ({name: ..., fields}) lacks."""
    kinds = [registry.method(m["name"])(**{k: v for k, v in m.items() if k != "name"})
             for m in methods]
    return sorted({name for m in kinds for name in of(m).shown.simple} - {m.name for m in kinds})


@pytest.mark.parametrize("name", published.names())
def test_a_papers_table_of_scores_has_them(name):
    table = published.PaperTable.named(name)
    if all(c.ours in SCALES for c in table.column):
        return                                          # seconds and bytes alone
    assert not lacking(r.method for r in table.row if r.method)


def test_a_table_without_one_is_refused():
    table = published.PaperTable.named("fedlink-table1")
    rows = [r.method for r in table.row if r.method]
    assert lacking(rows) == []
    for name in LinkPrediction.shown.simple:
        assert lacking(m for m in rows if m["name"] != name) == [name]
    assert lacking([{"name": "dgcolearn", "target": "classes"}]) == ["common_dyn", "last_label"]
    assert lacking([{"name": "power"}]) == ["common"]


@pytest.mark.parametrize("task", every())
def test_a_comparison_says_which_it_lacks(task):
    def notes(*methods):
        return " ".join(Comparison("toys", 1, task(), [Entry(m, m, {}) for m in methods]).notes())
    assert f"lacks: {', '.join(task.shown.simple)}." in notes("ours")
    assert "lacks" not in notes("ours", *task.shown.simple)
    first, *others = task.shown.simple
    assert (f"lacks: {', '.join(others)}." in notes("ours", first)) == bool(others)


def test_less_forgetting_is_no_defeat():
    """FM is the better the lower it is; a rival that never learns forgets nothing."""
    def entry(name, am, fm):
        return Entry(name, name, {s: [{"client": None, "scores": {"am": am + s, "fm": fm + s}}]
                                  for s in range(3)})
    ours, rival = entry("power", 60.0, 20.0), entry("common", 20.0, 30.0)
    found = Comparison("toys", 3, ClassIncremental(), [ours, rival])
    assert not found.unbeaten(ours, "fm") and not found.unbeaten(ours, "am")
    worse = entry("fedavg", 10.0, 20.0)
    found = Comparison("toys", 3, ClassIncremental(), [worse, rival])
    assert found.unbeaten(worse, "am") == [rival]
    assert any("AM common, which has no model, is not beaten by fedavg" in n for n in found.notes())
