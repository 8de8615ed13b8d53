"""The model card of an export: data, clients, protocol, scores, who learned what, privacy."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.experiments.run import Run
from fedvine.experiments.run_files import read_experiment, read_lines
from fedvine.results.entry import score
from fedvine.results.exported.models import Exported
from fedvine.results.tables import FEW_SEEDS


def card(run: Run, found: Exported) -> str:
    """Return the card of a finished run in Markdown."""
    assert run.folder is not None and run.summary is not None
    known, summary = read_experiment(run.folder.path), run.summary
    data = known["data"]
    lines = [f"# {run.method.name} on {data['name']}", "", _first(type(run.method)), "",
             "## How to load it", "", found.how,
             *(["`load.py` beside this file computes it without fedvine."] if found.script else []),
             "", "## Data", "",
             f"{data['name']}: {data.get('edges', len(run.ready.stream)):,} "
             f"{run.protocol.unit}, split by {known.get('split', {}).get('by') or 'hand'}. "
             f"Stages: {summary['stages']}, all learned.", "",
             *_table(("client", run.protocol.unit), (
                 (name, f"{count:,}") for name, count in sorted(summary["sizes"].items()))),
             "", "## Protocol", "",
             f"Seed {run.ready.world.seed}. " + run.protocol.questions(), "",
             *_table(("setting", "value"), ((k, str(v)) for k, v in
                                            run.protocol.model_dump().items() if v is not None)),
             "", "Fields of the method:", "",
             *_table(("field", "value"), ((k, str(v)) for k, v in
                                          run.method.model_dump().items() if v is not None)),
             "", "## Scores", "", *_scores(run), "", "## Who learned what", "", *_told(run),
             "", "## Privacy spent", "", *_privacy(summary), "", "## Licence", "", *_licence(data)]
    return "\n".join(lines) + "\n"


def intervals(lines: list[dict[str, Any]], keys: list[str]
              ) -> dict[str, tuple[float, tuple[float, float] | None, int]]:
    """Return the mean of each score over stages and clients, its 95 % interval, and their number.

    The interval is 1.96 standard errors to both sides, as far as the score can go (0 to 1, or to
    100 where it is in percent). It is None of fewer than
    :data:`fedvine.results.tables.FEW_SEEDS` scores.
    """
    found = {}
    for key in keys:
        values = [line["scores"][key] for line in lines if key in line["scores"]]
        if not values:
            continue
        mean, interval = float(np.mean(values)), None
        if len(values) >= FEW_SEEDS:
            half = 1.96 * float(np.std(values, ddof=1)) / len(values) ** 0.5
            interval = mean - half, mean + half
            shown = score(key)
            top = 100 if shown.unit == "%" else 1
            if not shown.falling and min(values) >= 0 and max(values) <= top:
                interval = max(0.0, interval[0]), min(float(top), interval[1])
        found[key] = mean, interval, len(values)
    return found


def _scores(run: Run) -> Iterator[str]:
    """Yield the scores of the test period, over clients and by client, and their intervals."""
    assert run.folder is not None and run.summary is not None
    test, task = run.summary["scores"]["test"], run.protocol
    if not test["client"]:
        yield "Nothing was scored: there is no test period."
        return
    keys = [key for key in test["mean"] if isinstance(test["mean"][key], int | float)]
    yield f"Test period, {task.mean_over.removeprefix('test period, ')}:"
    yield ""
    yield from _table(("client", *keys), ((name, *(
        f"{values[key]:.4f}" if key in values else "-" for key in keys))
        for name, values in [*test["client"].items(), ("mean", test["mean"])]))
    if "final" in run.summary:
        nodes = run.summary["final"]["nodes"]
        yield ""
        yield ("These are the scores of the model before it was fitted once more on all "
               f"{nodes:,} labelled nodes; the model in this folder is the one after that.")
    lines = read_lines(run.folder.path, "metrics.jsonl")
    lines = [line for line in lines if line["period"] == "test"]
    last = max(line["t"] for line in lines)
    if task.data == "graph":        # tasks are scored again after each stage: the last counts
        lines = [line for line in lines if line["t"] == last]
    every = sorted({key for line in lines for key in line["scores"]})
    yield from ("", "Mean over n scores, one a stage and client, with its 95 % interval "
                f"(1.96 standard errors) where n is at least {FEW_SEEDS}:", "")
    yield from _table(("score", "mean", "interval", "n"), (
        (key, f"{mean:.4f}", "-" if ends is None else f"{ends[0]:.4f} to {ends[1]:.4f}", str(n))
        for key, (mean, ends, n) in intervals(lines, every).items()))


def _told(run: Run) -> Iterator[str]:
    """Yield who saw the graph, and what travelled by function."""
    assert run.summary is not None
    held = run.method.server_holds_graph
    yield ("The server held the whole graph and sent each client its part." if held else
           "Each client saw its own data alone. The server saw what the functions below returned, "
           "and each client what they sent to it.")
    by = run.costs.bytes["by"]
    yield ""
    yield from _table(("function", "calls", "bytes to clients", "bytes to the server", "what"), (
        (name, f"{one['calls']:,}", f"{one['down']:,}", f"{one['up']:,}",
         _first(getattr(type(run.method), name, None))) for name, one in sorted(by.items())))
    yield from ("", "This folder itself holds what the model knows of each client: names of nodes, "
                "and what is in the files under `clients`. Give it only to those who may see that.")


def _privacy(summary: Mapping[str, Any]) -> Iterator[str]:
    spent = summary.get("privacy")
    if not spent:
        yield "No noise was added: there is no bound on what an answer reveals of an edge or node."
        return
    yield from _table(("quantity", "value"), ((k, str(v)) for k, v in spent.items()))


def _licence(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield where the licence of the data is stated; fedvine's own does not cover a model."""
    try:
        text = inspect.getdoc(registry.find("datasets", str(data["name"]))) or ""
    except FedvineError:
        text = ""
    yield (f"The data set, in its own words: {' '.join(text.split())}" if text else
           "The data are the run owner's own: their terms hold for this model.")
    yield "`load.py` is part of fedvine, Apache-2.0."


def _first(thing: Any) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def _table(head: tuple[str, ...], rows: Any) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ")
                                for cell in row) + " |"
