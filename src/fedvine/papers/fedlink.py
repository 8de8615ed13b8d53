"""FedLink's figures: what a score costs, thinned data, rounds, buffers; and what they share.

What Table 1 runs is taken from its file, so that cells are shared with it; the tables C.2 and C.3
share theirs in turn. Where nothing else is said it is FedLink as in Table 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fedvine.core.text import drawn
from fedvine.experiments.experiment import Experiment
from fedvine.papers.published import PaperTable
from fedvine.papers.study import Found, Panel, Study
from fedvine.results import pictures
from fedvine.results.entry import Entry
from fedvine.results.pictures import COLOURS, MARKS
from fedvine.results.tables import Table, TableSet, spread

SHARES = (1.0, 0.5, 0.25, 0.02)
ROUNDS = (1, 2, 5, 10, 20, 40)
THINNED = ("STFL", "Local", "4D-FED-GNN+", "FedLink", "EdgeBank", "Popularity",
           "Popularity, all clients", "Recency", "Frequency")


def table1(experiment: str, row: str = "FedLink", share: float = 1.0) -> Experiment:
    """Build a cell of Table 1, with seed 0, on this share of its edges."""
    table = PaperTable.named("fedlink-table1")
    setting = next(e for e in table.experiment if e.id == experiment)
    made = table.build(setting, next(r for r in table.row if r.name == row))
    return made if share == 1 else made.updated({"data": {"share": share}})


def with_method(first: Experiment, **fields: Any) -> Experiment:
    """Set these fields of the experiment's method; with ``name`` another method takes its place."""
    if "name" in fields:
        return Experiment.model_validate({**first.model_dump(exclude_unset=True),
                                          "method": fields})
    return first.updated({"method": fields})


def group(number: str, lines: Callable[[Experiment], Mapping[Any, Experiment]], name: str = "",
          share: float = 1.0) -> Panel:
    """Make the panel of a group of Table C.2 (1 to 3 are Table 1's experiments).

    ``lines`` gets FedLink's experiment; the panel is about the group's clients, in its order.
    """
    clients = next(e.clients for e in PaperTable.named("fedlink-tablec2").experiment
                   if e.id == number)
    return Panel(name or f"Foursquare {' '.join(clients)}",
                 lambda _: lines(table1(number, share=share)), about=clients)


def clients_of(found: Found, panel: Panel) -> list[str]:
    """Return the clients of a panel, in the paper's order or that of the runs."""
    return panel.about or list(dict.fromkeys(
        c for e in found.entries(panel.name).values() for c in e.clients))


def by_client(found: Found, panel: Panel, head: str, title: str, names: dict[Any, str],
              more: dict[str, Callable[[Entry], str]] | None = None) -> Table:
    """Show AUC by client, their mean, AUC of new pairs, and more columns; a row a line."""
    clients, more = clients_of(found, panel), more or {}
    return Table(f"{panel.name}: {title}", [head, *clients, "mean", "AUC new", *more], [
        [names[line], *(e.text("auc", c) for c in clients), e.text("auc"), e.text("auc_new"),
         *(show(e) for show in more.values())]
        for line, e in found.entries(panel.name).items() if line in names])


def draw_clients(axes: Any, found: Found, panel: Panel, values: Sequence[int]) -> None:
    """Draw AUC over the lines ``values``: a line for each client, and their mean."""
    entries, clients = found.entries(panel.name), clients_of(found, panel)

    def points(client: str | None) -> list[tuple[int, list[float | None]]]:
        return [(v, [entries[v].estimate("auc", client)[0]]) for v in values if v in entries]

    for client, colour in zip(clients if len(clients) <= len(COLOURS) else (), COLOURS,
                              strict=False):
        pictures.line(axes, points(client), color=colour, linewidth=1, marker=".",
                        label=drawn(client))
    pictures.line(axes, points(None), label="mean", **pictures.MEAN)


def number(value: float | None, digits: int) -> str:
    """Write a number with so many digits, ``-`` for None."""
    return "-" if value is None else f"{value:.{digits}f}"


def megabytes(value: float | None) -> str:
    """Write bytes as megabytes, ``-`` for None."""
    return "-" if value is None else f"{value / 1e6:.0f}"


# -- Figure 3: what a score costs --------------------------------------------------------------
COSTS = {"seconds of a round": ("seconds_round", 1.0),
         "peak memory, MB": ("peak_memory_bytes", 1e6)}


def figure3() -> Study:
    """Show seconds of a round, and memory, against AUC: Table 1's cells."""
    table = PaperTable.named("fedlink-table1")
    return Study("FedLink, Figure 3", [
        Panel(f"{e.id}: {e.name}", partial(table.cells, e), e.id) for e in table.experiment
        if "not of the paper" not in e.name], _figure3)


def _figure3(found: Found) -> TableSet:
    grids = [Table(p.name, ["method", "AUC", "AUC new", "s/round", "memory (MB)"], [
        [line, e.text("auc"), e.text("auc_new"),
         number(e.cost("seconds_round"), 3), megabytes(e.cost("peak_memory_bytes"))]
        for line, e in found.entries(p.name).items()]) for p in found.panels]
    return TableSet(grids, [
        "The paper: FedLink has the accuracy of the best at far less memory and time (3.41 times "
        "less memory than STFL and Feddy).",
        "The cells are Table 1's. Seconds are the median round on a CPU with one thread, all "
        "clients one after another; memory is the peak of the whole process, of which libraries "
        "are most. Rules without a model have no rounds; their scores are the lines.",
        *found.seeds, *found.gaps], found.records,
        _draw_costs(found) if found.records else None)


def _draw_costs(found: Found) -> pictures.Drawing:
    lines = list(dict.fromkeys(line for _, line in found.cells))
    drawing, plots = pictures.plots([p.name for p in found.panels], len(COSTS))
    for row, (label, (key, unit)) in zip(plots, COSTS.items(), strict=True):
        for axes, panel in zip(row, found.panels, strict=True):
            for i, line in enumerate(lines):
                colour, mark = COLOURS[i % len(COLOURS)], MARKS[i % len(MARKS)]
                entry = found.entry(panel.name, line)
                (auc, _), cost = entry.estimate("auc"), entry.cost(key)
                if auc is not None and entry.cost("seconds_round") is None:     # without rounds
                    axes.axhline(auc, color=colour, linewidth=1.2, label=line,
                                 linestyle=(":", "--", "-.")[i % 3])
                elif auc is not None and cost is not None:
                    axes.plot(cost / unit, auc, mark, color=colour, markersize=8, label=line)
            axes.set_xlabel(label)
            axes.grid(axis="x", color=pictures.FAINT, linewidth=0.8)
        row[0].set_ylabel("AUC")
    pictures.legend(drawing, plots[0][0])
    return pictures.Drawing(drawing, "FedLink, Figure 3")


# -- Figures 4 and C.5: thinned data -----------------------------------------------------------
def figure4() -> Study:
    """Show AUC, seconds and memory by the share of the edges that is kept."""
    return Study("FedLink, Figures 4 and C.5", [group(g, lambda _, g=g: {
        (m, s): table1(g, m, s) for m in THINNED for s in SHARES}) for g in "13"], _figure4)


def _figure4(found: Found) -> TableSet:
    shows: dict[str, Callable[[Entry], str]] = {
        "AUC": lambda e: e.text("auc"),
        "AUC new": lambda e: e.text("auc_new"),
        "seconds of a round": lambda e: number(e.cost("seconds_round"), 4),
        "memory (MB)": lambda e: megabytes(e.cost("peak_memory_bytes"))}
    grids = [Table(f"{p.name}: {what}", ["method", *(f"{100 * s:g} %" for s in SHARES)], [
        [m, *(show(found.entry(p.name, (m, s))) for s in SHARES)] for m in THINNED])
        for p in found.panels for what, show in shows.items()]
    return TableSet(grids, [
        "The paper: with half of the data AUC stays about what it was, with less memory and time.",
        "The cells are those of Tables 1 and C.3, and 25 % and 2 % of the first five countries. A "
        "check-in is kept or not before anything else: what is learned and what is scored are "
        "thinned, and rarer repeats alone make AUC harder. 2 % are a few hundred edges, with which "
        "little can be told apart. Memory is the whole process, of which libraries are most.",
        *found.seeds, *found.gaps], found.records, _draw_shares(found) if found.records else None)


def _draw_shares(found: Found) -> pictures.Drawing:
    measures: dict[str, Callable[[Entry], float | None]] = {
        "AUC": lambda e: e.estimate("auc")[0],
        **{label: lambda e, key=key, unit=unit: None if (c := e.cost(key)) is None else c / unit
           for label, (key, unit) in COSTS.items()}}
    drawing, plots = pictures.plots([p.name for p in found.panels], len(measures))
    for row, (label, measure) in zip(plots, measures.items(), strict=True):
        for axes, panel in zip(row, found.panels, strict=True):
            for line, colour, mark in zip(THINNED, COLOURS, MARKS, strict=False):
                pictures.line(axes, [(x, [measure(found.entry(panel.name, (line, s)))])
                                       for x, s in enumerate(SHARES)],
                                color=colour, marker=mark, markersize=5, label=line)
            axes.set_xticks(range(len(SHARES)), [f"{100 * s:g} %" for s in SHARES])
        row[0].set_ylabel(label)
    for axes in plots[-1]:
        axes.set_xlabel("edges that are kept")
    pictures.legend(drawing, plots[0][0])
    return pictures.Drawing(drawing, "FedLink, Figures 4 and C.5")


# -- Figure C.4: rounds ------------------------------------------------------------------------
def figurec4() -> Study:
    """Show FedLink's AUC by the rounds of a stage."""
    return Study("FedLink, Figure C.4", [group(g, lambda first: {
        r: with_method(first, rounds=r) for r in ROUNDS}) for g in "12"], _figurec4)


def _figurec4(found: Found) -> TableSet:
    return TableSet([by_client(found, p, "rounds a stage", "AUC by client", {
        r: str(r) for r in ROUNDS}) for p in found.panels], [
        "The paper: AUC is stable after about 180 global rounds, and so many are trained "
        "(elsewhere it says 20).",
        "The paper trains once on all of its history; here each of the stages has so many rounds "
        "of 3 steps, and the next stage is scored by the model after the last of them.",
        *found.seeds, *found.gaps], found.records,
        _draw_rounds(found) if found.records else None)


def _draw_rounds(found: Found) -> pictures.Drawing:
    drawing, plots = pictures.plots([p.name for p in found.panels])
    for axes, panel in zip(plots[0], found.panels, strict=True):
        draw_clients(axes, found, panel, ROUNDS)
        pictures.log_ticks(axes, ROUNDS)
        axes.set_xlabel("rounds a stage")
        axes.legend(fontsize=7, frameon=False, ncols=2)
    plots[0][0].set_ylabel("AUC")
    return pictures.Drawing(drawing, "FedLink, Figure C.4")


# -- Figures 2 and C.3: buffers ------------------------------------------------------------------
# Foursquare and half of it as in the paper; the others so that ``capacity = "auto"`` is compared on
# more than one kind of data.
SMALL = (125, 250, 500, 1150, 2300, 4600, 9200)     # of Foursquare, whose US has 11,433 edges
LARGE = (250, 1000, 4000, 16000, 64000)
CITIES = (3200, 12800, 51200, 204800)               # of four cities, whose MY has 526,405
AUTO = "auto"


def figure2() -> Study:
    """Show AUC and memory by the capacity of a buffer, and with ``capacity = "auto"``."""
    def lines(values: Sequence[int]) -> Callable[[Experiment], dict[Any, Experiment]]:
        return lambda first: {c: with_method(first, capacity=c) for c in (*values, AUTO)}

    def plain(name: str, data: str, values: Sequence[int], **more: Any) -> Panel:
        return Panel(name, lambda _: lines(values)(Experiment.model_validate(
            {"data": data, "method": "fedlink", **more})))

    return Study("FedLink, Figures 2 and C.3", [
        group("1", lines(SMALL), "Foursquare"), group("1", lines(SMALL), "Foursquare 50 %", 0.5),
        *(plain(d, d, LARGE) for d in ("flights", "wikipedia", "synthetic")),
        plain("four cities", "four_cities", CITIES, stages="120d")], _figure2)


def _figure2(found: Found) -> TableSet:
    best = {p.name: _best_capacity(found, p.name) for p in found.panels}
    grids = []
    for p in found.panels:
        names = {c: f"{c:,}" + " *" * (c == best[p.name]) for c in _capacities(found, p.name)}
        grids.append(by_client(found, p, "edges of a buffer", "AUC by client", names | {
            AUTO: "auto (each client's own)"},
            {"memory (MB)": lambda e: megabytes(e.cost("peak_memory_bytes"))}))
    grids.append(Table("The best fixed capacity, and auto", [
        "data", "capacity", "AUC, best fixed", "AUC, auto", "difference", "difference in AUC new"],
        [_against(found, name, fixed) for name, fixed in best.items() if fixed is not None
         and AUTO in found.entries(name)]))
    return TableSet(grids, [
        "The paper: small buffers fail to hold the history of large regions, oversized ones exceed "
        "the data of small ones and lower AUC; AUC against capacity is concave, and memory grows "
        "with it (10k to 1M edges, of the US's 1,990,327).",
        "A client keeps four buffers of the capacity. * the best fixed capacity by mean AUC, "
        "chosen on the very scores that it is shown with, which flatters it beside auto.",
        "auto: each client chooses its own capacity, from its own edges alone. Differences are "
        "auto less the best fixed one, paired by seed. The rule it follows was found by looking at "
        "Foursquare, flights, Wikipedia and the synthetic stream as they are here; half of "
        "Foursquare and four cities were not looked at.",
        "Memory is the peak of the whole process, of which libraries are most; the largest of the "
        "seeds.", *found.seeds, *found.gaps],
        found.records, _draw_buffers(found, best) if found.records else None)


def _capacities(found: Found, name: str) -> list[int]:
    return [line for panel, line in found.cells if panel == name and isinstance(line, int)]


def _best_capacity(found: Found, name: str) -> int | None:
    means = {c: found.entry(name, c).estimate("auc")[0] for c in _capacities(found, name)}
    known = {c: m for c, m in means.items() if m is not None}
    return max(known, key=lambda c: known[c]) if known else None


def _against(found: Found, name: str, best: int) -> list[str]:
    fixed, auto = found.entry(name, best), found.entry(name, AUTO)

    def difference(key: str) -> str:
        mine, other = auto.values(key), fixed.values(key)
        both = sorted(mine.keys() & other.keys())
        return spread([mine[s] - other[s] for s in both], sign="+")
    return [name, f"{best:,}", *(e.text("auc") for e in (fixed, auto)),
            difference("auc"), difference("auc_new")]


def _draw_buffers(found: Found, best: Mapping[str, int | None]) -> pictures.Drawing:
    drawing, plots = pictures.plots([p.name for p in found.panels], 2)
    for (top, low), panel in zip(plots.T, found.panels, strict=True):
        name, marks, fixed = panel.name, _capacities(found, panel.name), best[panel.name]
        held = {c: None if (b := found.entry(name, c).cost("peak_memory_bytes")) is None
                else b / 1e6 for c in (*marks, AUTO)}
        draw_clients(top, found, panel, marks)
        pictures.line(low, [(c, [held[c]]) for c in marks], label="mean", **pictures.MEAN)
        for axes, value in ((top, found.entry(name, AUTO).estimate("auc")[0]), (low, held[AUTO])):
            if value is not None:
                axes.axhline(value, color=pictures.PURPLE, linewidth=1.4, linestyle="--",
                             label="auto, mean")
            pictures.log_ticks(axes, marks, fontsize=7, rotation=30)
            if fixed is not None:           # behind the best, as in the paper's figure
                axes.axvspan(fixed / 1.2, fixed * 1.2, color=pictures.SHADE, zorder=0,
                             linewidth=0)
        top.legend(fontsize=6, frameon=False, ncols=2)
        low.set_xlabel("edges of a buffer")
    plots[0][0].set_ylabel("AUC")
    plots[1][0].set_ylabel("peak memory, MB")
    return pictures.Drawing(drawing, "FedLink, Figures 2 and C.3")


STUDIES: dict[str, Callable[[], Study]] = {
    "fedlink-figure3": figure3, "fedlink-figure4": figure4, "fedlink-figurec5": figure4,
    "fedlink-figurec4": figurec4, "fedlink-figure2": figure2, "fedlink-figurec3": figure2}
