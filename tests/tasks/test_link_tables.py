"""What tables of links say of candidates, of what was not asked, and of means."""


import pytest

from fedvine.results.comparison import Comparison
from fedvine.results.entry import Entry
from fedvine.results.view import listed
from fedvine.tasks.link_prediction import LinkPrediction


def scores(**given):
    return dict.fromkeys(("auc", "ap", "mrr"), 0.5) | given


def summary(of, n=(), **more):
    """Scores of two clients; both have all pairs, new ones and lists, ``n`` counts of each."""
    client = {c: scores(auc_new=0.25, ndcg=0.4, hit=0.5, recall=0.3) for c in ("ada", "bob")}
    counts = {c: {"n": 60, "n_new": 20, "n_users": 40} | dict(n) for c in client}
    return {"scores": {"test": {
        "client": client, "n": counts, "of": of,
        "mean": client["ada"] | {"coverage": 0.125, "no_list": 0.25}}}} | more


def asked(task):
    return task.shown.questions(task)


def text(task, found):
    return [t for t in task.shown.tables(task, found) if isinstance(t, str)]


@pytest.mark.parametrize(("candidates", "said"), [
    ("known", "Candidates are items known at the client before the stage."),
    ("catalogue", "known at the client or listed in the table of items before the stage."),
    ("dataset", "all items of the data, also later ones (TGB's rule)."),
    ("roland", "by which an item that nobody met before it is nearly always right).")])
def test_candidates_and_negatives_are_named(candidates, said):
    task = LinkPrediction(candidates=candidates, negatives=7, k=3)
    for given in (asked(task), text(task, summary({}))[0]):
        assert said in given and "each at most once" in given
        assert "for new pairs those that the user has never met" in given
        assert "one for AUC and AP, 7 for MRR." in given
    assert "k is 3" in asked(task)
    assert "all for MRR" in asked(LinkPrediction(negatives="all", historical=0.5))
    assert "7 for MRR, 50% of them met before" in asked(LinkPrediction(
        negatives=7, historical=0.5))
    assert "2 stages ahead" in asked(LinkPrediction(lead=2))


def test_means_that_are_not_over_all_clients_are_said_in_run_and_compare():
    task, of = LinkPrediction(), {"auc": 2, "mrr": 2, "auc_new": 1, "ndcg": 0}
    words = ("Means are over clients with at least 30 queries: 1 of 2 for new pairs. "
             "No client has 30 queries for lists: means are over all queries.")
    found = summary(of)
    assert words in " ".join(text(task, found))
    records = listed({"method": "ours", "data": "toys", "seed": 0}, found)
    assert records[0]["of"] == {"auc_new": [1, 2], "ndcg": [0, 2]}
    whole = listed({"method": "other", "data": "toys", "seed": 0}, summary({"auc": 2}))
    assert "of" not in whole[0]
    made = Comparison("toys", 1, task, [Entry("ours", "ours", {0: records}),
                                        Entry("other", "other", {0: whole})])
    assert words in made.notes() and all("of" not in r for r in made.records())
    assert not any("Means are over" in note for note in Comparison(
        "toys", 1, task, [Entry("other", "other", {0: whole})]).notes())
