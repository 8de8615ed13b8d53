"""The picture of a comparison: new pairs beside all pairs, and what a run costs."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

from fedvine.core.files import atomic
from fedvine.core.text import drawn
from fedvine.core.units import seconds, size
from fedvine.results.compare import RIVALS, Comparison, Entry
from fedvine.results.tables import FEW_SEEDS

# Okabe and Ito's colours, which colour-blind readers tell apart; the marks differ too.
_KINDS = (("_new", "new pairs", "#0072B2", "o", 0.11), ("", "all pairs", "#D55E00", "s", -0.11))
_GREY = "#B4B4B4"
PAIRS = {"node": {"am": "AM: accuracy after the last task, %",
                  "fm": "FM: forgotten since learned, %"},
         "label": {"accuracy": "accuracy, two stages ahead", "f1_macro": "macro F1"}}


def chart(found: Comparison, file: str | Path) -> None:
    """Write a PNG: AUC and MRR with 95 % intervals, seconds and bytes; best method on top.

    Methods are sorted by their AUC on new pairs. Only methods with a finished run are drawn.
    """
    from matplotlib.figure import Figure
    if found.protocol.get("task") in PAIRS:
        _two(found, file, PAIRS[found.protocol["task"]])
        return
    entries = sorted((e for e in found.entries if e.records), key=_order)
    figure = Figure(figsize=(11, 1.9 + 0.46 * len(entries)), layout="constrained", dpi=150)
    auc, mrr, time, moved = figure.subplots(
        1, 4, sharey=True, gridspec_kw={"width_ratios": [3, 3, 1.5, 1.9]})
    for axes, key, name in ((auc, "auc", "AUC"), (mrr, "mrr", "MRR")):
        _scores(axes, entries, key)
        axes.set_xlabel(name)
    auc.axvline(0.5, color=_GREY, linewidth=1, linestyle=":", zorder=0)
    auc.set_yticks(range(len(entries)), [drawn(e.label) for e in entries])
    for label, entry in zip(auc.get_yticklabels(), entries, strict=True):
        label.set_style("italic" if entry.method in RIVALS else "normal")
    auc.set_ylim(-0.6, len(entries) - 0.4)
    _bars(time, [e.cost("seconds_total") or 0 for e in entries], seconds)
    time.set_xlabel("time of a run")
    _bars(moved, [(e.cost("bytes_up") or 0) + (e.cost("bytes_down") or 0) for e in entries], size)
    moved.set_xlabel("sent, both directions")
    handles, names = auc.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower left", ncols=2, frameon=False, fontsize=9)
    many = found.protocol["negatives"]
    many = "all other" if many == "all" else f"{many:,} random"
    runs = f"{found.seeds} seed{'s' * (found.seeds > 1)}"
    figure.suptitle(f"{drawn(found.data)}: test scores, {runs}", fontweight="bold", fontsize=11,
                    x=0.01, ha="left")
    figure.text(0.995, 0.022, f"Negatives: one random item of the client for AUC, {many} ones for "
                "MRR." + _about(entries)
                + " Italic: without a model.", ha="right", fontsize=8, color="#404040")
    _write(figure, file)


def _two(found: Comparison, file: str | Path, pair: dict[str, str]) -> None:
    """Two scores with 95 % intervals; the method with the highest first one on top."""
    from matplotlib.figure import Figure
    entries = sorted((e for e in found.entries if e.records),
                     key=lambda e: e.estimate(next(iter(pair)))[0] or 0.0)
    figure = Figure(figsize=(9, 1.6 + 0.42 * len(entries)), layout="constrained", dpi=150)
    both = figure.subplots(1, 2, sharey=True)
    for axes, (key, name), colour in zip(both, pair.items(), ("#0072B2", "#D55E00"), strict=True):
        for y, entry in enumerate(entries):
            mean, _ = entry.estimate(key)
            if mean is not None:
                axes.errorbar(mean, y, xerr=_whisker(entry, key), fmt="o", color=colour,
                              capsize=3, markersize=6)
                _seeds(axes, entry, key, y, colour)
        axes.set_xlabel(name)
        axes.grid(axis="x", color="#E4E4E4", linewidth=0.8)
        _plain(axes)
    both[0].set_yticks(range(len(entries)), [drawn(e.label) for e in entries])
    figure.suptitle(f"{drawn(found.data)}: {found.seeds} seed{'s' * (found.seeds > 1)}",
                    fontweight="bold", fontsize=11, x=0.01, ha="left")
    _write(figure, file)


def _write(figure: Any, file: str | Path) -> None:
    drawn = BytesIO()
    figure.savefig(drawn, format="png", metadata={"Software": ""})
    with atomic(Path(file)) as handle:
        handle.write(drawn.getvalue())


def _order(entry: Entry) -> tuple[float, float]:
    return tuple(entry.estimate(k)[0] or 0.0 for k in ("auc_new", "auc"))  # type: ignore


def _scores(axes: Any, entries: list[Entry], key: str) -> None:
    for end, label, colour, mark, up in _KINDS:
        points = [(y, entry.estimate(key + end)[0], _whisker(entry, key + end))
                  for y, entry in enumerate(entries)]
        points = [point for point in points if point[1] is not None]
        for y, entry in enumerate(entries):
            _seeds(axes, entry, key + end, y + up, colour)
        if points:
            y, mean, half = zip(*points, strict=True)
            axes.errorbar(mean, [v + up for v in y], xerr=half, fmt=mark, color=colour, label=label,
                          markersize=6, capsize=3, linewidth=1.4, markerfacecolor=colour if end
                          else "white")
    _plain(axes)
    axes.grid(axis="x", color="#E4E4E4", linewidth=0.8)
    axes.margins(x=0.08)


def _about(entries: list[Entry]) -> str:
    """What the marks beside the means are."""
    counts = [len(e.records) for e in entries]
    said = ["whiskers: 95 % intervals"] if any(c >= FEW_SEEDS for c in counts) else []
    said += ["strokes: seeds"] if any(1 < c < FEW_SEEDS for c in counts) else []
    return f" {'; '.join(said).capitalize()}." if said else ""


def _whisker(entry: Entry, key: str) -> float:
    """Half width of the 95 % interval; 0 of few seeds, which are drawn one by one."""
    return entry.estimate(key)[1] if len(entry.values(key)) >= FEW_SEEDS else 0.0


def _seeds(axes: Any, entry: Entry, key: str, y: float, colour: str) -> None:
    """Each seed's value where there are few."""
    values = list(entry.values(key).values())
    if 1 < len(values) < FEW_SEEDS:
        axes.plot(values, [y] * len(values), "|", color=colour, markersize=9)


def _bars(axes: Any, values: list[float], show: Any) -> None:
    axes.barh(range(len(values)), values, height=0.5, color=_GREY)
    for y, value in enumerate(values):
        axes.annotate(show(value), (value, y), xytext=(4, 0), textcoords="offset points",
                      va="center", fontsize=8.5)
    axes.set_xlim(0, (max(values, default=0) or 1) * 1.6)
    axes.set_xticks([])
    _plain(axes)


def _plain(axes: Any) -> None:
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
