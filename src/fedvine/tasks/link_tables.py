"""Build tables of link prediction: what was asked, among which candidates, and the scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fedvine.data.dates import moment
from fedvine.tasks import link_measures
from fedvine.tasks.link_measures import counted
from fedvine.tasks.shown import Axis, Group, Rows, Score, Shown

LEAST = 30      # queries of a client in a period, with which its score counts in a mean of clients
_SUBSETS = {"_new": "new", "": "all", "_travelled": "travelled", "_arrived": "arrived",
            "_cold": "cold"}
_OF = {"n": "all pairs", "n_new": "new pairs", "n_travelled": "users who travelled",
       "n_arrived": "users who arrived", "n_across": "pairs across clients", "n_cold": "cold items",
       "n_users": "lists", "n_users_new": "lists of new items"}
_MEASURES = {"AUC": "auc", "AP": "ap", "MRR": "mrr"}
_OF_LISTS = {"NDCG": "ndcg", "hit": "hit", "recall": "recall"}
_WHERE = {"known": "items known at the client before the stage",
          "catalogue": "items known at the client or listed in the table of items before the stage",
          "dataset": "all items of the data, also later ones (TGB's rule)",
          "roland": "items known at the client by the end of the stage (ROLAND's rule, by which an "
          "item that nobody met before it is nearly always right)"}


def negatives(task: Any) -> str:
    """Return the sentence on candidates and negatives."""
    where = _WHERE[task.candidates]
    if task.lead > 1:
        where = where.replace("before the stage",
                              f"when it is forecast, {task.lead} stages ahead")
    many = "all" if task.negatives == "all" else f"{task.negatives:,}"
    met = f", {task.historical:.0%} of them met before" if task.historical and many != "all" else ""
    return (f"Candidates are {where}. Negatives are candidates that the user does not meet in the "
            "stage, each at most once, and for new pairs those that the user has never met: one "
            f"for AUC and AP, {many} for MRR{met}.")


class LinkShown(Shown):
    """What is shown of link prediction; a ``task`` is :class:`LinkPrediction`."""

    @property
    def score_keys(self) -> frozenset[str]:
        """Return the keys of all scores, of all subsets; see :mod:`fedvine.tasks.link_measures`."""
        plain = ("auc", "auc_within", "ap", "mrr", "hits_sampled", "auc_historical",
                 "auc_inductive")
        ends = ("", *(f"_{subset}" for subset in link_measures.SUBSETS[1:]))
        return frozenset([*self.scores, *(key + end for key in plain for end in ends)])

    def name_of(self, task: Any, key: str) -> str:
        """Return the name of a score, with the k of its lists."""
        return super().name_of(task, key).replace("@k", f"@{task.k}")

    def questions(self, task: Any, partitions: bool = False, drawn: bool = True) -> str:
        """Return the sentences under a comparison: what is asked."""
        return " ".join([
            negatives(task), "Historical ones are pairs met before, inductive ones pairs first met "
            "since validation began.",
            *([] if task.ranking is False else [
                f"k is {task.k}: lists hold the {task.k} likeliest of all candidates."]),
            *([] if task.asked == "graph" else [
                "Methods whose server holds the graph are asked each client's own pairs."]),
            *([] if task.step is None else [
                "Clients let their own new events into their state after "
                f"{'each' if task.step == 1 else f'every {task.step:,}'} of them, before any round "
                "learned them."])])

    def footnote(self, task: Any) -> str:
        """Return the sentence under a picture: the negatives of AUC and of MRR."""
        many = "all" if task.negatives == "all" else f"{task.negatives:,}"
        return f"Negatives that a positive is asked among: one for AUC, {many} for MRR."

    def partial(self, found: Mapping[str, tuple[int, int]]) -> str:
        """Return the sentence on means that are not over all clients; empty where all are.

        ``found`` has by key of a score the number of clients in the mean, and of those with it.
        """
        by = {counted(key): (of, total) for key, (of, total) in found.items() if of < total}
        few = [f"{of} of {total} for {_OF[key]}" for key, (of, total) in by.items() if of]
        none = [_OF[key] for key, (of, _) in by.items() if not of]
        return " ".join([
            *([f"Means are over clients with at least {LEAST} queries: {', '.join(few)}."]
              if few else []),
            *([f"No client has {LEAST} queries for {', '.join(none)}: means are over all queries."]
              if none else [])])

    def tables(self, task: Any, summary: Mapping[str, Any]) -> list[str | Rows]:
        """Return scores by client: new and all pairs, travelled, arrived and cold ones, and lists.

        ``n`` is the number of positives, or of users; sentences say what was not asked.
        """
        found = summary["scores"]["test"]
        live = summary["scores"].get("live", {"client": {}})
        if not (found["client"] or live["client"]):
            return [_unscored(summary)]
        made: list[str | Rows] = []
        for period, title in ((found, "Scores of the test period"),
                              (live, "Scores of the stages since then, each scored before it was "
                                     "learned")):
            if period["client"]:
                made += [f"{title}{'.' if made else f', for n positives. {negatives(task)}'}",
                         *_by_client(period, _MEASURES, (("_new", ""), ("_travelled", "_arrived"),
                                                         ("_cold",))),
                         *([said] if (said := self._left_out(task, period)) else []),
                         *_lists(task, period)]
        if (said := found.get("chances")) is not None:
            made += _chances(said)
        if (loops := summary.get("self_loops_left_out")) is not None:
            made.append("Edges have no direction: each is asked from both of its ends, and n "
                        "counts both." + _without_loops(loops))
        return made

    def _left_out(self, task: Any, found: Mapping[str, Any]) -> str:
        """Return the sentences on what was not asked, on fewer negatives, and on partial means."""
        total = _total(found)
        unknown, unasked, few, n = (
            total.get(k, 0) for k in ("n_unknown", "n_unasked", "n_few", "n"))
        reasons = [text for count, text in (
            (unknown, f"{unknown:,} whose item is no candidate"),
            (unasked, f"{unasked:,} without a negative")) if count]
        said = [*([f"Positives not asked: {', '.join(reasons)}."] if reasons else []),
                *([f"{f'All {n:,}' if few == n else f'{few:,} of {n:,}'} positives had fewer than "
                   f"{task.negatives:,} possible negatives: all of them were used."]
                  if few else []),
                self.partial({key: (of, sum(key in scores for scores in found["client"].values()))
                         for key, of in found.get("of", {}).items()})]
        return " ".join(text for text in said if text)

def _lists(task: Any, found: Mapping[str, Any]) -> Iterator[str | Rows]:
    """Yield the sentence on lists and their table, where lists were measured."""
    if "ndcg" not in found["mean"]:
        return
    held = "".join(f" {100 * found['mean'][key]:.1f} % of the {what}." for key, what in (
        ("coverage", "candidates are in any list"), ("no_list", "users have no list, and count 0"))
        if key in found["mean"])
    yield (f"Lists of the {task.k} likeliest of all candidates, for n users with an edge in the "
           f"stage; new: of items that the user has never met.{held}")
    yield from _by_client(found, _OF_LISTS, (("_new", ""),), "n_users")


def _chances(found: Mapping[str, Any]) -> list[str | Rows]:
    """Return how what lists said fits what was met, by tenths of probability."""
    worse = found["loss"] > found["loss_places"]
    return ["Probability that a listed item is met in the next stage: log loss "
            f"{found['loss']:.4f}; of the rate of each place in the list "
            f"{found['loss_places']:.4f}{', which is better: do not go by them' if worse else ''}. "
            "Of n listed items, the mean of what was said and the share that was met:",
            Rows(["said", "n", "mean said", "share met"], [
                [f"{i / 10:.1f} to {(i + 1) / 10:.1f}", f"{n:,.0f}", f"{said / n:.3f}",
                 f"{met / n:.3f}"] for i, (n, said, met) in enumerate(found["bins"]) if n])]


def _by_client(found: Mapping[str, Any], measures: Mapping[str, str],
               subsets: Sequence[Sequence[str]], count: str = "n") -> Iterator[Rows]:
    """Yield a table for each of the groups of subsets that has queries, with a row a client."""
    names, total = list(found["client"]), _total(found)
    for group in subsets:
        ends = [end for end in group if total.get(f"{count}{end}")]
        if not ends:
            continue

        def cells(scores: Mapping[str, float], n: Mapping[str, int],
                  ends: Sequence[str] = tuple(ends)) -> list[str]:
            return [text for end in ends for text in (
                f"{n.get(f'{count}{end}', 0):,}",
                *(f"{scores[f'{k}{end}']:.3f}" if f"{k}{end}" in scores else "-"
                  for k in measures.values()))]

        yield Rows(["client", *(c for end in ends for c in (f" n {_SUBSETS[end]}", *measures))],
                   [*([name, *cells(found["client"][name], found["n"][name])] for name in names),
                    ["mean, sum", *cells(found["mean"], total)]], total=True)


def _total(found: Mapping[str, Any]) -> dict[str, int]:
    """Return the counts of a period over all scored clients."""
    counts = [found["n"][name] for name in found["client"]]
    return {key: sum(n.get(key, 0) for n in counts) for key in {k: 0 for n in counts for k in n}}


def _unscored(summary: Mapping[str, Any]) -> str:
    """Return the sentence of a run without scores: why, and what stages and times it has."""
    known = summary.get("unscored", {})     # earlier runs do not have it
    step, times = known.get("step"), known.get("times")
    if times and np.nextafter(times[0], np.inf) >= times[1]:
        only = sum(summary.get("sizes", {}).values()) == 1
        return ("Nothing was scored: " + ("there is one edge, at" if only else "all edges are at")
                + f" the time {moment(times[0], summary.get('dates', False))}, and a forecast is "
                "scored on later edges; add rows of later times, or name another column with "
                "--time.")
    if step == 1:
        return ("Nothing was scored: the test period holds no stage that has one before it, and no "
                "stage is shorter than one edge; add rows of later times.")
    wanted = ("shorter stages" if step is None else f"stages of fewer than {step:,} edges"
              if isinstance(step, int) else f"stages shorter than {step}")
    dates = summary.get("dates", False)
    span = "" if not times else " (times go from {} to {}{})".format(
        *(moment(t, dates) for t in times),
        "" if dates or isinstance(step, int) else ", which count as seconds")
    return ("Nothing was scored: the test period holds no stage that has one before it; choose "
            f"{wanted}{span}.")


def _without_loops(count: int) -> str:
    """Return the sentence on edges from a node to itself; empty where there are none."""
    if not count:
        return ""
    edges = "1 edge from a node to itself is" if count == 1 else (
        f"{count:,} edges from a node to itself are")
    return f" {edges} left out of the stream."


SHOWN = LinkShown(
    scores={
        "auc_new": Score("AUC new"), "mrr_new": Score("MRR new"), "auc": Score("AUC all"),
        "mrr": Score("MRR all"), "ndcg_new": Score("NDCG@k new"), "ndcg": Score("NDCG@k all"),
        "hit": Score("hit@k"), "hit_new": Score("hit@k new"), "recall": Score("recall@k"),
        "recall_new": Score("recall@k new"), "map": Score("MAP@k"), "map_new": Score("MAP@k new"),
        "coverage": Score("coverage"), "novelty": Score("novelty, bits"),
        "no_list": Score("without a list", falling=True),
        "auc_within_new": Score("AUC within users, new"), "auc_within": Score("AUC within users"),
        "ap": Score("AP all"), "auc_historical": Score("AUC hist."),
        "auc_inductive": Score("AUC induct."), "auc_travelled": Score("AUC travelled"),
        "auc_arrived": Score("AUC arrived"), "auc_across": Score("AUC across"),
        "ap_across": Score("AP across"), "ap_nodes_across": Score("AP across, any nodes"),
        "auc_cold": Score("AUC cold"), "mrr_cold": Score("MRR cold"),
        "accuracy": Score("accuracy")},
    main=("auc_new", "mrr_new", "auc", "mrr"),
    more=(
        Group("Lists of all candidates, for users with an edge in the stage",
              ("ndcg_new", "ndcg", "hit_new", "hit", "recall_new", "recall", "map_new", "map")),
        Group("What the lists hold", ("coverage", "novelty", "no_list")),
        Group("AUC within users: one's own negatives alone", ("auc_within_new", "auc_within")),
        Group("Average precision; historical and inductive negatives",
              ("ap", "auc_historical", "auc_inductive")),
        Group("Users who travelled, and those who just arrived", ("auc_travelled", "auc_arrived")),
        Group("Pairs whose ends are at two clients",
              ("auc_across", "ap_across", "ap_nodes_across")),
        Group("Items of the table that did not have an edge", ("auc_cold", "mrr_cold"))),
    by_client=("auc_new", "auc"),
    chosen_by="auc",
    tried=("popularity", "popularity:share=all", "recency", "frequency", "edgebank",
           "fedlink_plus", "fedlink"),
    judged_by=("auc_new", "On new pairs (AUC)"),
    simple=("edgebank", "frequency", "popularity", "recency"),
    mean_over="test period, mean over clients",
    axes=(
        Axis("AUC", (("auc_new", "new pairs"), ("auc", "all pairs")), 0.5),
        Axis("MRR", (("mrr_new", "new pairs"), ("mrr", "all pairs")))),
    ranked_by=("auc_new", "auc"))
