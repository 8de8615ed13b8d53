"""Pages on ``fedlink_plus``: rivals, what sharing costs, what parts are worth; on ``refresh``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.core.units import seconds, size
from fedvine.experiments.experiment import Experiment
from fedvine.methods._fedlink_plus.features import PARTS
from fedvine.papers import trees
from fedvine.papers.study import Found, Panel, Study, best_rival, experiments
from fedvine.results import pictures
from fedvine.results.cells import Job, without_folders
from fedvine.results.comparison import COSTS
from fedvine.results.entry import Entry
from fedvine.results.tables import Table, TableSet, spread
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.tasks.metrics import paired

DATA = {"flights": "flights", "wikipedia": "Wikipedia", "foursquare": "Foursquare", "uci": "UCI",
        "bitcoin_otc": "Bitcoin-OTC"}
SCORES = {"auc_new": "AUC new", "mrr_new": "MRR new", "auc": "AUC", "mrr": "MRR"}
SEEDS = 3
METHOD = "fedlink_plus"
TASK = LinkPrediction()

RIVALS = ("fedlink", "stfl", "fedlink_minibatch", "edgebank", "frequency", "popularity",
          "recency")
#: The row of a model that no federation could have, see :mod:`fedvine.papers.trees`.
POOLED = "pooled LightGBM"
#: Seeds that were never looked at while the method was built.
FRESH, RUNS = 3, 5
MORE = {"four_cities": "four cities", "as733": "AS-733"}
#: Panels of other splits than the data set's; of few large and many small clients both means.
SHOP: dict[str, dict[str, Any]] = {
    "Online Retail": {"data": "retail", "split": {"by": "hash", "k": 1}},
    "Online Retail, by country": {"data": "retail"},
    "generated shop": {"data": "generated_shop"}}
#: Buffers that hold at most 20 % of the largest client's history.
BUFFERS: dict[str, dict[str, Any]] = {"wikipedia": {"capacity": 3200, "buffers": 2},
                                      "foursquare": {"capacity": 1600, "buffers": 2},
                                      "four_cities": {"capacity": 52640}}

#: README's table: data sets, methods and scores.
README = {**DATA, "as733": "AS-733"}
SHOWN = ("fedlink_plus", "fedlink", "stfl", "popularity", "recency", "frequency", "edgebank")
SIX = SCORES | {"ndcg_new": "NDCG@10 new", "ndcg": "NDCG@10"}
LISTS = {"auc_new": "AUC new", "mrr_new": "MRR new", "ndcg_new": "NDCG@10 new", "ndcg": "NDCG@10"}

SHARING: dict[str, dict[str, Any]] = {
    "rows": {},
    "sums": {"share": "sums"},
    "none": {"share": "none", "aggregate": {"secure": True}},
    **{f"none, noise {z}": {"share": "none", "aggregate": {"noise": z}} for z in (1, 3, 10)},
    "sums, noise 3": {"share": "sums", "aggregate": {"noise": 3}}}
MANY = {"uci": "UCI, 30 clients", "foursquare": "Foursquare, 30 clients"}

#: These data sets have no tables of users and items.
WITHOUT: dict[str, dict[str, Any]] = {
    "all of it": {},
    **{f"without {part}": {"without": [part]} for part in PARTS if part != "tables"},
    "no self-check (check = false)": {"check": False},
    "no rows travel (share = none)": {"share": "none"},
    "new = 1": {"new": 1.0}, "new = 3": {"new": 3.0},
    "fade = 0.7": {"fade": 0.7}, "fade = 1": {"fade": 1.0},
    "near = 32": {"near": 32}}


def lines(data: str, settings: Mapping[str, dict[str, Any]], **more: Any
          ) -> Callable[[str | Path], Mapping[Any, Experiment]]:
    """Return the experiments of a panel by line; ``more`` are tables of all experiments."""
    return lambda _: experiments({line: {"data": data, "method": {"name": METHOD, **fields}, **more}
                                  for line, fields in settings.items()})


def readme() -> Study:
    """Set ``fedlink_plus`` beside FedLink, STFL and the simple rules, lists too, on fresh seeds."""
    def panel(data: str, name: str) -> Panel:
        return Panel(name, lambda _: experiments({
            m: {"data": data, "method": {"name": m}, "protocol": {"ranking": True}}
            for m in SHOWN}), id=data, first=FRESH, seeds=SEEDS)
    return Study("Forecasts, README's table", [
        panel(data, name) for data, name in README.items()], _readme)


def _readme(found: Found) -> TableSet:
    panels = [p.name for p in found.panels]
    table = Table(" / ".join(LISTS.values()) + ", mean over seeds", ["method", *panels], [
        [m, *(_scores(found.entry(p, m), LISTS) for p in panels)] for m in SHOWN])
    grids = [Table(f"{p}, test period", [
        "method", *LISTS.values(), "AUC", "MRR", "hit@10", "moved", "CPU s"], [
            [m, *(e.text(key) for key in (*LISTS, "auc", "mrr", "hit")), _text(_moved(e), size),
             _text(e.cost("seconds_cpu"), seconds)]
            for m in SHOWN if (e := found.entry(p, m)).records]) for p in panels]
    return TableSet([table, *grids], [
        TASK.shown.questions(TASK),
        f"Seeds {FRESH} to {FRESH + SEEDS - 1}. All settings are defaults. UCI, Bitcoin-OTC and "
        "AS-733 are cut into five clients by Louvain. CPU seconds were measured while other work "
        "ran.", *found.seeds, *found.gaps], found.records, _draw(found))


def _draw(found: Found) -> pictures.Drawing:
    """Draw the mean scores of each method, a row for each data set."""
    names = [p.name for p in found.panels]
    drawing, (plots,) = pictures.plots([LISTS["mrr_new"], LISTS["ndcg"]], width=3.9, sharey=True)
    for axes, key in zip(plots, ("mrr_new", "ndcg"), strict=True):
        for m, colour in zip(SHOWN, (pictures.PURPLE, *pictures.COLOURS), strict=False):
            means = [found.entry(p, m).estimate(key)[0] for p in names]
            axes.plot(means, range(len(names)), "o", color=colour, label=m, alpha=0.9,
                      markersize=9 if m == METHOD else 6)
        pictures.names_on_y(axes)
        axes.set_yticks(range(len(names)), names)
        axes.set_xlim(0, None)
    plots[0].invert_yaxis()
    pictures.legend(drawing, plots[0])
    return pictures.Drawing(drawing, "Forecasts of links: fedlink_plus, FedLink, and simple rules")


def beside_rivals() -> Study:
    """Set ``fedlink_plus`` beside its rivals, on fresh seeds."""
    def panel(name: str, data: str, **more: Any) -> Panel:
        without = ["stfl"] if data == "four_cities" else []     # it has no buffers
        plain = (*TASK.shown.simple, *without)
        fields = {m: BUFFERS.get(data, {}) if m not in plain else {} for m in RIVALS}
        return Panel(name, lambda _: experiments({
            m: {"data": data, "method": {"name": m, **own}, "protocol": {"ranking": True}, **more}
            for m, own in {METHOD: {}, **fields}.items()}), id=f"{data}{'-1' * bool(more)}",
            first=FRESH, seeds=RUNS)
    return Study("fedlink_plus beside its rivals", [
        *(panel(name, data) for data, name in (DATA | MORE).items()),
        *(panel(name, **settings) for name, settings in SHOP.items())], _beside_rivals)


def _with_trees(found: Found) -> tuple[Found, dict[str, list[dict[str, Any]]], list[str]]:
    """Add the row of LightGBM, kept with the cells of popularity, which ask the same queries.

    Returns also its measurements by panel, and the sentences on panels without. Where cells of the
    page itself are still left, or the budget is spent, nothing is computed.
    """
    entries, of, gaps, began = {}, {}, [], time.process_time()
    for panel in (p.name for p in found.panels):
        cells = found.finished(panel, "popularity")
        try:
            of[panel] = [c.measured("pooled trees", lambda c: trees.pooled(c.experiment))
                         for c in cells
                         if "pooled trees" in (c.line or {}).get("measured", {}) or not (
                             found.left or found.budget.spent(time.process_time() - began))]
            if len(of[panel]) < len(cells):
                gaps.append(f"{POOLED} was run on {len(of[panel])} of {len(cells)} seeds of "
                            f"{panel}, the budget was spent; the same command goes on.")
        except FedvineError as error:
            gaps.append(f"{POOLED} was not run on {panel}: {without_folders(str(error))}")
            of[panel] = []
        entries[panel, POOLED] = Entry(POOLED, POOLED, {c.experiment.seed: [
            {"method": POOLED, "data": c.data, "seed": c.experiment.seed, "client": None,
             "scores": one["mean"], **dict.fromkeys(COSTS), "seconds_cpu": one["seconds_cpu"]}]
            for c, one in zip(cells, of[panel], strict=False)})
    return replace(found, more=entries), of, gaps


def _beside_rivals(found: Found) -> TableSet:
    found, over_all_rows, gaps = _with_trees(found)
    panels = [p.name for p in found.panels]
    short = Table("AUC of new pairs / AUC / MRR of all pairs, mean over seeds", [
        "method", *panels, f"moved, {panels[0]}", f"CPU s, {panels[0]}"], [
            [m, *(_scores(found.entry(p, m), ("auc_new", "auc", "mrr")) for p in panels),
             _text(_moved(found.entry(panels[0], m)), size),
             _text(found.entry(panels[0], m).cost("seconds_cpu"), seconds)]
            for m in (METHOD, *RIVALS, POOLED)]) if panels else None
    grids = [Table(f"{p}, test period, mean over clients",
                   ["method", *SIX.values(), "moved", "CPU s", "peak memory"],
                   [[m, *(e.text(key) for key in SIX), _text(_moved(e), size),
                     _text(e.cost("seconds_cpu"), seconds),
                     _text(e.cost("peak_memory_bytes"), size)]
                    for m in (METHOD, *RIVALS, POOLED) if (e := found.entry(p, m)).records] + [
                        [f"{METHOD} less the best rival", *(_ahead(found, p, key)
                                                            for key in SIX), "", "", ""]])
             for p in panels]
    grids += [Table(f"{p}, test period, mean over all queries", ["method", *SIX.values()], [
        [m, *(spread(one["mean_edges"][key] for one in made) for key in SIX)]
        for m in (METHOD, *RIVALS, POOLED) if (made := over_all_rows[p] if m == POOLED else [
            c.summary["scores"]["test"] for c in found.finished(p, m)])])
        for p in panels if p == "Online Retail, by country"]
    return TableSet([*([short] if short else []), *grids], [
        TASK.shown.questions(TASK),
        f"Seeds {FRESH} to {FRESH + RUNS - 1}, which were not used while the method was built. The "
        "last line of a table is the mean of the paired differences to the rival that is best in "
        "that column, and its 95 % interval.",
        "All settings are defaults, but FedLink's family has buffers that hold at most 20 % of the "
        "largest client's history on Wikipedia and Foursquare (`capacity=3200`, `capacity=1600`, "
        "`buffers=2`), and four buffers of a tenth each on four cities (`capacity=52640`). "
        "Wikipedia, UCI, Bitcoin-OTC and AS-733 are cut into five clients by Louvain. CPU seconds "
        "were measured while other work ran.",
        f"{POOLED} has all clients' rows in one place, which no federation could have: twenty "
        "plain features of a pair, trained anew for each stage. Its CPU seconds are those of the "
        "test period alone.", *found.seeds, *found.gaps, *gaps], found.records)


def _ahead(found: Found, panel: str, key: str) -> str:
    """Return the text of the paired difference to the best rival in a column."""
    if (rival := best_rival(found, panel, METHOD, (*RIVALS, POOLED), key)) is None:
        return "-"
    best, *values = rival
    mean, half, _ = paired(*values)
    return f"{mean:+.3f} ±{half:.3f} {best}" if half == half else f"{mean:+.3f} {best}"


def _text(value: float | None, shown: Callable[[float], str]) -> str:
    return "-" if value is None else shown(value)


def _moved(entry: Entry) -> float | None:
    """Return the bytes of a run in both directions, mean over seeds."""
    up, down = entry.cost("bytes_up"), entry.cost("bytes_down")
    return None if up is None or down is None else up + down


def _scores(entry: Entry, keys: Iterable[str]) -> str:
    return " / ".join(_text(entry.estimate(key)[0], lambda v: f"{v:.3f}".removeprefix("0"))
                      for key in keys)


def sharing() -> Study:
    """Set scores, epsilon, bytes and calls of the ways of sharing beside each other."""
    # The scores are the same without masks, which cost much among many; noise relies on them.
    plain = {line: fields if "noise" in line else {**fields, "aggregate": {"secure": False}}
             for line, fields in SHARING.items()}
    return Study("fedlink_plus, what sharing costs", [
        *(Panel(name, lines(data, SHARING), id=data, seeds=SEEDS) for data, name in DATA.items()),
        *(Panel(name, lines(data, plain, split={"by": "hash", "k": 30}), seeds=SEEDS)
          for data, name in MANY.items())], _sharing)


def _sharing(found: Found) -> TableSet:
    grids = [Table(f"{panel.name}, test period, mean over clients", [
        "share", *SCORES.values(), "epsilon", "moved in a stage", "calls in a stage"], [
            [line, *scores(found.finished(panel.name, line), "test"),
             *_costs(found.finished(panel.name, line))] for line in SHARING])
        for panel in found.panels]
    return TableSet(grids, [
        "rows: clients exchange what they count of users and items that they both know. sums: "
        "secure sums of derivatives and of counts of items. none: secure sums of derivatives "
        "alone. Noise is the multiplier z: the deviation of the noise in a sum, in units of the "
        "bound on one client. Epsilon (delta = 1e-5) is for all that one client sends in the run, "
        "as if it had no edge; it grows with the number of stages.",
        "With noise the method has fewer features and one step a stage, which saves bytes and "
        "calls. Noise is as large as the bound on one client, however many there are: among few "
        "clients the weights stay near the prior rule that they are drawn to, and among many they "
        "come near those without noise. Counts of items with noise spend as much as the "
        "derivatives.",
        "Bytes are those of both directions, with all clients and the scoring; a call goes to all "
        "clients. In the panels of 30 clients users are divided by hash, and lines without noise "
        "have no masks (aggregate.secure = false): scores are the same, bytes and calls are fewer.",
        *found.seeds, *found.gaps], found.records)


def ablations() -> Study:
    """Set scores of ``fedlink_plus`` beside those without one of its parts."""
    return Study("fedlink_plus, what each part is worth", [
        Panel(name, lines(data, WITHOUT), id=data, seeds=SEEDS) for data, name in DATA.items()],
        _ablations)


def _ablations(found: Found) -> TableSet:
    grids = [Table(panel.name, ["", *(f"{name}, {period}" for period in ("validation", "test")
                                      for name in SCORES.values())], [
        [line, *(text for period in ("val", "test")
                 for text in scores(found.finished(panel.name, line), period))]
        for line in WITHOUT]) for panel in found.panels]
    return TableSet(grids, [
        "Settings were chosen on the validation period alone, and most of them on flights, "
        "Wikipedia and Foursquare; the test period is shown beside it and was not used.",
        "Where a [part](../reference-fedlink-plus.md#features-of-a-pair) is left out its features "
        "have no weight. Parts can stand in for each other: none is worth as little as a line says "
        "once another one is gone. turned is there for nodes of one kind, elsewhere where clients "
        "share users.",
        *found.seeds, *found.gaps], found.records)


def scores(cells: Iterable[Job], period: str) -> list[str]:
    """Return the texts of the four scores in a period ("val" or "test")."""
    means = [c.summary["scores"][period]["mean"] for c in cells]
    return [spread(m[key] for m in means if m.get(key) is not None) for key in SCORES]


def _costs(cells: list[Job]) -> list[str]:
    """Return the texts of epsilon, and of bytes and calls in a stage, mean over seeds."""
    if not cells:
        return ["-", "-", "-"]
    found = [c.summary for c in cells]
    stages = sum(s["stages"] for s in found)
    epsilon = found[0].get("privacy", {}).get("epsilon")
    return ["-" if epsilon is None else f"{epsilon:.1f}",
            size(sum(s["bytes_up"] + s["bytes_down"] for s in found) / stages),
            f"{sum(s['calls'] for s in found) / stages:.0f}"]


# -- how often a client's own new events enter its state -----------------------------------------
# No table of a paper: it says what an answer gains from events that no round has learned yet
# (:mod:`fedvine.core.refresh`), and at what cost.
STEPS: tuple[str | int, ...] = ("stage", 200, "event")
COUNTS, LEARNED = ("edgebank", "recency", "frequency", "popularity"), ("fedlink",)
PAIRS = (("all pairs", (("MRR", "mrr"), ("AUC", "auc"))),
          ("pairs not met before the stage", (("MRR", "mrr_new"), ("AUC", "auc_new"))))


def refreshed() -> Study:
    """Show scores by how often events enter; FedLink has one seed, as its runs are longer."""
    def of(methods: tuple[str, ...]) -> Callable[[str | Path], Mapping[Any, Experiment]]:
        return lambda _: experiments({
            (name, step): {"data": "wikipedia", "method": name, "protocol": {"refresh": step}}
            for name in methods for step in STEPS})

    return Study("Refresh", [Panel("counts", of(COUNTS)),
                             Panel("FedLink", of(LEARNED), seeds=1)], _refreshed)


def _refreshed(found: Found) -> TableSet:
    rows = [(panel.name, name) for panel in found.panels
            for name in (LEARNED if panel.name == "FedLink" else COUNTS)]
    grids = [Table(f"wikipedia, {pairs}", ["method", *(
        f"{title}, {step}" for title, _ in keys for step in STEPS)], [
            [name, *(found.entry(panel, (name, step)).text(key) for _, key in keys
                     for step in STEPS)] for panel, name in rows]) for pairs, keys in PAIRS]
    grids.append(Table("CPU seconds of a run", ["method", *map(str, STEPS)], [
        [name, *(_text(found.entry(panel, (name, step)).cost("seconds_cpu"), lambda v: f"{v:.1f}")
                 for step in STEPS)] for panel, name in rows]))
    return TableSet(grids, [
        "Test period, mean over five clients, stages of three days. Columns are the values of "
        "protocol.refresh. With stage a client answers from what was learned by the end of the "
        "last stage; with 200 and event its own events of the scored stage enter its local state "
        "after every 200 of them, or after each, and a query sees those strictly before it. No "
        "round takes place and nothing more travels but rows of the nodes in these events.",
        "The queries are the same in all columns: a pair that was first met within the stage is "
        "counted as not met before at each of its events, though with 200 and event the client has "
        "met it by the second.", *found.seeds, *found.gaps], found.records)


#: Of labels, in the setting with all edges of a client.
LABELS = {"cora": "Cora", "citeseer": "CiteSeer", "computers": "Computers", "squirrel": "Squirrel",
          "digits": "digits"}
LISTED = 200        # users of a client and stage whose lists say probabilities


def reliable() -> Study:
    """Set what probabilities of forecasts and of labels say beside how often it came true."""
    links = {**README, "generated_shop": "the generated shop"}
    return Study("Reliability", [
        *(Panel(name, lambda _, data=data: experiments({m: {
            "data": data, "method": {"name": m}, "protocol": {"chances": LISTED}}
            for m in (METHOD, "frequency")}), id=data, first=FRESH, seeds=SEEDS)
          for data, name in links.items()),
        *(Panel(name, lambda _, data=data: experiments({m: {
            "data": data, "method": {"name": m}, "tasks": {"keep_inter_task_edges": True}}
            for m in ("power_plus", "hop_ral")}), id=data, first=FRESH, seeds=SEEDS)
          for data, name in LABELS.items())], _reliable)


def _tenths(found: Found, panel: str, line: str) -> tuple[np.ndarray, list[Mapping[str, Any]]]:
    """Return by tenth of probability n, the sum of what was said, and what came true, [10, 3]."""
    tests = [c.summary["scores"]["test"] for c in found.finished(panel, line)]
    held = [t.get("chances") or t for t in tests]
    return sum((np.array(h["bins"]) for h in held if "bins" in h), np.zeros((10, 3))), held


def _reliable(found: Found) -> TableSet:
    rows: dict[str, list[list[str]]] = {"links": [], "labels": []}
    drawing, (axes,) = pictures.plots(["lists of fedlink_plus", "labels of power_plus"], width=4.2)
    colours = [0, 0]
    for panel in found.panels:
        for line in panel.lines(found.folder):
            bins, held = _tenths(found, panel.name, line)
            if not bins.any():
                continue
            n, said, came = bins[bins[:, 0] > 0].T
            gap = np.abs(said - came) / n
            kind = "links" if any("loss" in h for h in held) else "labels"
            place = int(kind == "labels")
            name, mean, share = f"{panel.name}, {line}", said / n, came / n
            if line in (METHOD, "power_plus"):
                many = n >= 100
                axes[place].plot(mean[many], share[many], "o-", markersize=4, label=panel.name,
                                 color=pictures.COLOURS[colours[place] % len(pictures.COLOURS)])
                colours[place] += 1
            worst = int(np.argmax(gap * (n >= 100)))
            more = ([f"{np.mean([h[key] for h in held if key in h]):.4f}"
                     for key in ("loss", "loss_places")] if kind == "links" else [])
            rows[kind].append([name, f"{n.sum():,.0f}", f"{(gap * n).sum() / n.sum():.3f}",
                               f"{gap[worst]:.3f} at {mean[worst]:.2f}", *more])
    for plot in axes:
        plot.plot([0, 1], [0, 1], color=pictures.GREY, linewidth=1)
        plot.set_xlabel("mean probability")
        plot.set_ylabel("share that came true")
        plot.legend(fontsize=7, frameon=False)
    head = ["data", "n", "mean gap", "largest gap, of tenths with 100"]
    tables = [Table("Lists: the pair is met in the next stage", [
        *head, "log loss", "of the rate of each place"], rows["links"]),
        Table("Labels of test nodes after the last task: the likeliest class is right", head,
              rows["labels"])]
    return TableSet([t for t in tables if t.rows], [
        "A gap is |mean of what was said - share that came true| in a tenth of probability; the "
        "mean one is weighted by the number of pairs or nodes (of labels it is the expected "
        f"calibration error). Lists of 10 items of up to {LISTED} users a client and stage, whether"
        " they come or not, in the test period; the probabilities of a stage were learned from the "
        "stages before it, so they fall behind where users become busier or quieter. Lines have "
        "lists of their own, and one with fewer items that are met has a lower log loss; compare "
        "it with that of the same list's places. The picture has tenths with 100 and more.",
        *found.seeds, *found.gaps], found.records,
        pictures.Drawing(drawing, "What probabilities say, and what came true"))


STUDIES: dict[str, Callable[[], Study]] = {
    "reliability": reliable,
    "forecasts": beside_rivals, "forecasts-readme": readme, "forecasts-sharing": sharing,
    "forecasts-ablations": ablations, "refresh": refreshed}
