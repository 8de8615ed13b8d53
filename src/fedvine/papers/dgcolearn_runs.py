"""DG-CoLearn on graphs that grow: Figure 5, Figure 14 (Appendix G), Tables 9 and 10 (Appendix E.7).

- Figure 5 sets the exchange of what changed beside that of all border nodes. The bytes are those of
  messages, sums and their gradients over all passes of a snapshot, as the run's report has them
  (``passes``). "full" is what the same passes would have moved, had all border nodes taken part in
  each; messages that are features count there once a snapshot.
- Figure 14 shows what methods forget from snapshot to snapshot, by the measure of
  :mod:`fedvine.tasks.snapshot_classification`. The paper shows it on Reddit, for DG-CoLearn,
  DyGRAIN, TWP and ER-GNN, without numbers.
- Tables 9 and 10 show what large graphs cost. The paper's data are ``tgbn-reddit`` and
  ``tgbl-coin``, of 27 and 23 million edges. Generated graphs of a size that a small machine carries
  stand beside them under their own name.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fedvine.experiments.experiment import Experiment
from fedvine.experiments.prepare import show
from fedvine.methods._dgcolearn.placement import classes_of, first_cut, known_graph
from fedvine.papers import dgcolearn
from fedvine.papers.published import PaperTable, numbers
from fedvine.papers.study import Found, Panel, Study
from fedvine.partitions import _graph
from fedvine.results.cells import Job
from fedvine.results.tables import Table, TableSet, spread
from fedvine.tasks.link_prediction import LinkPrediction

# -- Figure 5: the exchange of what changed ------------------------------------------------------
GROWING = ("uci", "bitcoin_otc")
MORE_GROWING = ("as733", "wikipedia")       # where --only names them
INCREMENTAL = {"name": "dgcolearn", "scope": "changed", "window": "all", "rounds": 3}
BOUNDS: dict[str, dict[str, Any]] = {"exact": {}, "bounded": {"neighbours": 16, "stale": 100}}
KEYS = {"bytes": "MB a snapshot"}


def incremental_run(data: str, fields: dict[str, Any]) -> Experiment:
    """Build the experiment of Figure 5 with these fields of the method."""
    return Experiment.model_validate({"data": data, "method": INCREMENTAL | fields,
                                      "split": {"by": "hash", "k": 5}})


def figure5() -> Study:
    """Show the bytes of each snapshot's exchange, incremental and full."""
    return Study("DG-CoLearn, Figure 5: incremental and full exchange", [
        Panel(d, lambda _, d=d: {line: incremental_run(d, fields)
                                 for line, fields in BOUNDS.items()},
              extra=d in MORE_GROWING) for d in (*GROWING, *MORE_GROWING)], _figure5)


def _figure5(found: Found) -> TableSet:
    names, values = [p.name for p in found.panels], dict[tuple[str, str, str], np.ndarray]()
    records, grids, said = list[dict[str, Any]](), list[Table](), list[str]()
    for d in names:
        rows = []
        for line in BOUNDS:
            every = [_passes(cell.summary["report"]["passes"]) for cell in found.finished(d, line)]
            if not every:
                continue
            seeds = [cell.experiment.seed for cell in found.finished(d, line)]
            values["bytes", d, line] = np.array([p["bytes"] / 1e6 for p in every])
            if line == "exact":
                values["bytes", d, "full"] = np.array([p["bytes_full"] / 1e6 for p in every])
            moved, full = ([p[k].sum() for p in every] for k in ("bytes", "bytes_full"))
            most = [(p["bytes_full"] / np.maximum(p["bytes"], 1)).max() for p in every]
            rows.append([line, *(spread((b / 1e6 for b in each), 2) for each in (moved, full)),
                         spread((f / m for f, m in zip(full, moved, strict=True)), 2),
                         spread(most, 1), spread((p["changed"] / p["nodes"]).mean()
                                                 for p in every)])
            records += [{"data": d, "line": line, "seed": seed,
                         **{k: v.tolist() for k, v in p.items()}}
                        for seed, p in zip(seeds, every, strict=True)]
            said.append(f"Ours, {d}, {line}: the full exchange moves "
                        f"{np.mean(full) / np.mean(moved):.1f} times as many bytes.")
        grids.append(Table(f"{d}: a whole run", [
            "rows", "incremental (MB)", "full (MB)", "full / incremental", "most in a snapshot",
            "nodes in the set"], rows or [["-"] * 6]))
    return TableSet(grids, [
        "The paper: over its six data sets the incremental exchange communicates up to 5.9 times "
        "faster than the full one, and computes up to 6.3 times faster; ours are bytes.", *said,
        "Bytes are of messages, sums and their gradients, without the model and rows of pairs. "
        "Those of the full exchange are counted in the same passes: what they would have moved had "
        "all border nodes sent and received. \"bounded\" reads the 16 newest neighbours and "
        "computes every state once in a hundred snapshots. "
        "Edges stay from when they come (window = all), so the graph grows, and two edges from "
        "those of a stage are most of it: what is saved are messages and sums that did not change "
        "since the pass before. Seconds of both are in results/dynamic.md.",
        *found.seeds, *found.gaps], records,
        dgcolearn.curves(names, ["full", *BOUNDS], KEYS, values, {},
                        "DG-CoLearn, Figure 5: bytes of a snapshot's exchange")
        if values else None)


def _passes(snapshots: list[dict[str, float]]) -> dict[str, np.ndarray]:
    """Return the facts of the snapshots that had passes, as columns."""
    there = [s for s in snapshots if s["passes"]]
    return {key: np.array([s[key] for s in there]) for key in there[0]}


# -- Figure 14: forgetting -----------------------------------------------------------------------
TITLE = "DG-CoLearn, Figure 14: forgetting by snapshot"
FORGETTING: dict[str, tuple[str, dict[str, Any]]] = {       # rows of Table 2, and more settings
    "DG-CoLearn": ("Option 3, the authors' choice", {}),
    "DG-CoLearn, changed rows": ("Option 3, the authors' choice", {"scope": "changed"}),
    "DyGRAIN": ("DyGRAIN", {}), "TWP": ("TWP", {}), "ER-GNN": ("ER-GNN", {}),
    "nothing kept": ("one machine, nothing kept", {})}


def forgetting_run(data: str, line: str) -> Experiment:
    """Build the experiment of a line of Figure 14: its row in Table 2, before any search."""
    table, (name, more) = PaperTable.named("dgcolearn-table2"), FORGETTING[line]
    setting = next(e for e in table.every if e.settings["data"]["source"] == data)
    made = table.plain(setting, next(row for row in table.row if row.name == name))
    return made.updated({"protocol": {"forgetting": True}, "method": more})


def figure14() -> Study:
    """Show forgetting by snapshot, and F1 two snapshots ahead beside it."""
    return Study(TITLE, [Panel(d, lambda _, d=d: {
        line: forgetting_run(d, line) for line in FORGETTING},
        extra=d in dgcolearn.MORE) for d in (*dgcolearn.DATA, *dgcolearn.MORE)], _figure14)


def _figure14(found: Found) -> TableSet:
    names = [p.name for p in found.panels]
    grids, records, curves = [], [], {}
    for d in names:
        rows = []
        for line in FORGETTING:
            cells = [c for c in found.finished(d, line) if c.log("forgetting")]
            if not cells:
                continue
            lost = [c.log("forgetting") for c in cells]
            tests = [c.summary["scores"]["test"]["mean"] for c in cells]
            T = min(map(len, lost))
            curves["forgetting", d, line] = np.array([values[:T] for values in lost])
            rows.append([line, spread(values[-1] for values in lost),
                         spread(float(np.mean(values)) for values in lost),
                         *(spread(t[k] for t in tests) for k in ("f1_micro", "f1_macro"))])
            records += [{"data": d, "line": line, "seed": c.experiment.seed, "forgetting": values,
                         **{k: t[k] for k in ("f1_micro", "f1_macro")}}
                        for c, values, t in zip(cells, lost, tests, strict=True)]
        grids.append(Table(d, ["method", "forgetting, last", "forgetting, mean", "F1 micro",
                               "F1 macro"], rows))
    return TableSet(grids, [
        "The paper: DyGRAIN, TWP and ER-GNN have positive forgetting on Reddit, DG-CoLearn "
        "negative: later snapshots make it better on earlier ones. It prints no numbers.",
        "Forgetting after snapshot k is the mean over the snapshots j before it of the best "
        "accuracy on j since j was learned, less the accuracy on j after k. j is asked about on "
        "its own edges, of nodes that were set aside, by the weights and states after k. Below 0 "
        "later snapshots made the model better on earlier ones.",
        "DG-CoLearn is the authors' choice, on five clients: local epochs, one exchange a "
        "snapshot (ours, of sums before each layer); and the same with rows within two edges of a "
        "change computed anew alone. The rivals have one machine with the whole graph and no "
        "states; \"nothing kept\" is that machine without any of them. All have three epochs a "
        "round and GCN, SAGE on flights. F1 is two snapshots ahead.",
        *found.seeds, *found.gaps], records,
        dgcolearn.curves(names, list(FORGETTING), {"forgetting": "forgetting"}, curves, {}, TITLE,
                        first=2, floor=None) if records else None)


# -- Tables 9 and 10: large graphs ---------------------------------------------------------------
SEEDS = 5
PRINTED = "dgcolearn_table9_10_scale.csv"
MEASURES = {"training_time_s": "training (s)", "partition_time_s": "partition (s)",
            "cut_edge_ratio_percent": "cut (%)", "exchange_time_s": "exchange (s)", "f1": "F1"}
#: Client functions of the exchange, forward and backward.
EXCHANGED = {"join", "send_messages", "finish", "save_states", "backward", "first_layer"}

ALL = {"name": "dgcolearn", "window": "all"}
CHANGED = ALL | {"scope": "changed"}
NAMES = {"target": "classes"}
ANEW = "every row, cut anew"
CLASSES: dict[str, dict[str, Any]] = {
    "FedDGL": {"name": "feddgl_dyn", "window": "all"},
    "FedDGL, one model": {"name": "feddgl_dyn", "window": "all", "personal": False},
    ANEW: ALL | NAMES,
    "DG-CoLearn": CHANGED | NAMES,
    "commonest class": {"name": "common_dyn"}}
LINKS: dict[str, dict[str, Any]] = {
    ANEW: ALL,
    "DG-CoLearn": CHANGED,
    "DG-CoLearn, bounded": CHANGED | {"neighbours": 4, "stale": 100},
    "DG-CoLearn on TGN": ALL | {"backbone": "tgn"},
    "DG-CoLearn on DyGFormer, one round": ALL | {"backbone": "dygformer", "rounds": 1},
    **{name: {"name": name} for name in LinkPrediction.shown.simple}}
DRAWN: dict[str, Any] = {"source": "generated", "options": {
    "like": "bitcoin_otc", "edges": 400_000, "nodes": 12_800, "snapshots": 20}}
TITLES = {"tgbn_reddit": "tgbn-reddit", "tgbl_coin": "tgbl-coin", "generated": (
    "generated like bitcoin_otc, 400,000 edges, 12,800 nodes, 20 snapshots (not of the paper)")}


def scale_run(data: Any, method: dict[str, Any]) -> Experiment:
    """Build the experiment of a method on a data set: four clients; one that knows all links."""
    alone = method["name"] in LinkPrediction.shown.simple
    links = method in LINKS.values()
    return Experiment.model_validate({
        "data": data, "method": method, "split": {"by": "hash", "k": 1 if alone else 4},
        **({"protocol": {"candidates": "roland"}} if links else {})})


def table9() -> Study:
    """Show classes of nodes: seconds, cut, bytes and F1 of FedDGL and ours."""
    return _study("DG-CoLearn, Table 9", "tgbn_reddit", CLASSES, ("f1_micro", "f1_macro"))


def table10() -> Study:
    """Show links: seconds, cut, bytes and scores of full computing and ours."""
    return _study("DG-CoLearn, Table 10", "tgbl_coin", LINKS, ("auc", "mrr"))


def _study(title: str, real: str, lines: dict[str, dict[str, Any]], scores: tuple[str, ...]
           ) -> Study:
    data = {real: {"source": real}, "generated": DRAWN}
    return Study(title, [Panel(TITLES[name], lambda _, d=source: {
        line: scale_run(d, method) for line, method in lines.items()}, id=name, seeds=SEEDS)
        for name, source in data.items()], lambda found: _scale(found, lines, scores, real))


# -- what is measured ----------------------------------------------------------------------------
def costs(cell: Job) -> dict[str, float]:
    """Carry out a cell's run again, in memory; return seconds and bytes of its rounds.

    ``training`` are the clock's seconds in client functions, ``exchange`` those of rounds outside
    of them (packing, sums at the server), ``cpu`` those of the processor in rounds, and ``bytes``
    what the exchange moved, up and down.
    """
    found = dict.fromkeys(("cpu", "wall", "training", "bytes"), 0.0)
    last = np.zeros(3)

    def note(at: Any, clients: Any) -> None:
        now = np.array([time.process_time(), time.perf_counter(),
                        sum(its["seconds"] for its in clients.traffic.values())])
        if at.r:        # what came before the first round is the arrival, and scores
            for key, spent in zip(("cpu", "wall", "training"), now - last, strict=True):
                found[key] += float(spent)
            found["bytes"] += sum(call["down"] + call["up"] for call in clients.log if (
                call["t"], call["r"]) == (at.t, at.r) and call["function"] in EXCHANGED)
        last[:] = now

    cell.experiment.run(on_round=note).finish()
    return found | {"exchange": found["wall"] - found["training"]}


def cut_anew(cell: Job) -> dict[str, float]:
    """Cut every snapshot anew; return seconds (compiled before) and the mean cut."""
    method, world, plan, scorer = dgcolearn.opened(cell)
    cuts, K = list[float](), len(world.clients)
    for stages in (1, len(plan)):
        server, seconds, cuts = method.start(world), 0.0, []
        for t in range(stages):
            show(server, scorer, plan, t)
            server.snapshot.advance(server.stage)
            began = time.perf_counter()
            nodes, graph = known_graph(server.snapshot.known, server.snapshot.edges)
            part = first_cut(method.partition, graph, classes_of(server.stage, server.past)[nodes],
                             K, world.seed)
            seconds += time.perf_counter() - began
            cuts.append(_graph.quality(*graph, part, K)["cut"])
    return {"seconds": seconds, "cut": float(np.mean(cuts))}


# -- the page ------------------------------------------------------------------------------------
def _scale(found: Found, lines: dict[str, dict[str, Any]], scores: tuple[str, ...], real: str
          ) -> TableSet:
    records = [_record(place, cell) for place in found.cells for cell in found.finished(*place)]
    keys = {"training": 1, "partition": 2, "cut": 1, "exchange": 2, "cpu": 1, "megabytes": 0,
            **dict.fromkeys(scores, 3)}
    grids = [Table(panel.name, ["method", "training (s)", "partition (s)", "cut (%)",
                                "exchange (s)", "rounds, CPU s", "exchange (MB)", *scores],
                   [[line, *(spread((r[key] for r in records if key in r and (
                       r["data"], r["line"]) == (panel.name, line)), digits)
                       for key, digits in keys.items())] for line in lines])
             for panel in found.panels]
    printed = [p for p in numbers(PRINTED) if p["dataset"] == TITLES[real]]
    measures = [m for m in MEASURES if any(p["measure"] == m for p in printed)]
    grids.append(Table(f"The paper, {TITLES[real]}", ["method", *(MEASURES[m] for m in measures)], [
        [method, *(next((p["value"] for p in printed if (p["method"], p["measure"]) == (
            method, m)), "-") for m in measures)]
        for method in dict.fromkeys(p["method"] for p in printed)]))
    return TableSet(grids, [
        "The paper has means of three runs on a GPU. Ours have four clients, one after the other "
        "in one process on one thread, ten rounds a snapshot; no edge is removed (window = all).",
        "Training are the clock's seconds in client functions, exchange those of rounds outside of "
        "them: packing, and sums at the server; both of a run without saves that was made for "
        "this. CPU seconds of rounds are those to compare where other work ran beside. Exchange "
        "(MB) are messages, sums and gradients, up and down, of training.",
        *([] if real != "tgbl_coin" else [
            '"bounded" reads the four newest neighbours of a node, and computes every state once '
            "in a hundred snapshots, in turn.",
            "Candidates are ROLAND's (candidates = roland): nodes known by the end of the scored "
            "stage. The rule has a leak: an item that nobody met before that stage is a candidate "
            "only because it is met in it, so that a rule that ranks unseen items first wins by "
            "it."]),
        f'"{ANEW}" computes all rows of every snapshot, and its partition is made from nothing for '
        "every snapshot, which is measured apart; ours places new nodes beside their neighbours. "
        "Every snapshot brings a twentieth of the edges, and two edges from these are nearly all "
        "nodes, so what is saved is not the share of rows but what a pass does with them; a "
        "stream that changes less: results/dynamic.md.",
        *([] if real == "tgbl_coin" else [
            "Classes are the communities of the nodes, which drift; the features are random. "
            "FedDGL trains on parts alone: its partition is ours, and no row is exchanged. It has "
            "a model for each client, which may know the few communities of its part; \"one "
            "model\" is without that."]),
        *([] if real != "tgbl_coin" else [
            "The paper has DyGFormer on this stream, whose lists leave nothing to skip (backbone = "
            "dygformer needs scope = snapshot): one of its rounds costs six times what ten of the "
            "default backbone do. The paper's full computing did not finish; ours does."]),
        *found.seeds, *found.gaps], records)


def _record(place: tuple[str, Any], cell: Job) -> dict[str, Any]:
    data, line = place
    report, means = cell.summary.get("report") or {}, cell.summary["scores"]["test"]["mean"]
    found = {"data": data, "line": line, "seed": cell.experiment.seed,
             **{k: means[k] for k in ("f1_micro", "f1_macro", "auc", "mrr") if k in means}}
    if "snapshots" not in report:
        return found
    spent = cell.measured("costs of rounds", costs)
    cut = {"seconds": report["seconds_partition"],
           "cut": float(np.mean([h["cut"] for h in report["snapshots"]]))}
    if line == ANEW:
        cut = cell.measured("cut anew", cut_anew)
    return found | {"training": spent["training"], "exchange": spent["exchange"],
                    "cpu": spent["cpu"], "megabytes": spent["bytes"] / 1e6,
                    "partition": cut["seconds"], "cut": 100 * cut["cut"]}


STUDIES: dict[str, Callable[[], Study]] = {
    "dgcolearn-figure5": figure5, "dgcolearn-figure14": figure14, "dgcolearn-table9": table9,
    "dgcolearn-table10": table10}
