"""Write a finished run's model as plain files that need no fedvine, with a model card.

- ``README.md``: the model card
- ``load.py``: loads the files and scores, without fedvine
- ``model.safetensors``: arrays that all clients share, by readable names
- ``clients/<name>/arrays.safetensors``: a client's own
- ``clients/<name>/*.parquet``: names of nodes with their embeddings, or of pairs
- ``about.json``: method, fields, clients, classes, and the part of ``load.py`` that scores
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from safetensors.numpy import save_file

from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic_folder, file_name
from fedvine.experiments.reopened import reopened
from fedvine.experiments.run import Run
from fedvine.experiments.run_files import read_experiment, read_lines
from fedvine.results.entry import score
from fedvine.results.models import KINDS, Exported, plain
from fedvine.results.tables import FEW_SEEDS


# -- the model card of an export: data, clients, protocol, scores, who learned what, privacy -------
def _card(run: Run, found: Exported) -> str:
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
             f"Seed {run.ready.world.seed}. " + run.protocol.shown.questions(run.protocol), "",
             *_table(("setting", "value"), ((k, str(v)) for k, v in
                                            run.protocol.model_dump().items() if v is not None)),
             "", "Fields of the method:", "",
             *_table(("field", "value"), ((k, str(v)) for k, v in
                                          run.method.model_dump().items() if v is not None)),
             "", "## Scores", "", *_scores(run), "", "## Who learned what", "", *_told(run),
             "", "## Privacy spent", "", *_privacy(summary), "", "## Licence", "",
             *_licence(data, found.script)]
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
    yield f"Test period, {task.shown.mean_over.removeprefix('test period, ')}:"
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


def _licence(data: Mapping[str, Any], script: str) -> Iterator[str]:
    """Yield where the licence of the data is stated; fedvine's own does not cover a model."""
    try:
        source = str(data["experiment"]["data"]["source"])      # a file's name says nothing
        text = inspect.getdoc(registry.find("datasets", source)) or ""
    except (FedvineError, KeyError):
        text = ""
    yield (f"The data set, in its own words: {' '.join(text.split())}" if text else
           "The data are the run owner's own: their terms hold for this model.")
    if script:
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


TOP = 100       # likeliest items of each user whose features are written


def export(folder: str | os.PathLike[str], out: str | os.PathLike[str], top: int = TOP,
           say: Callable[[str], object] = lambda text: None) -> Exported:
    """Write the model of the run in ``folder`` to the folder ``out``; return what was written.

    The run is finished, or goes on with its table; ``out`` is not there yet, or empty. ``top``: for
    fedlink_plus, likeliest items of each user whose features are written; ``say`` is told how far
    it is. Tables of pairs are written a block of users at a time. Raises :class:`FedvineError` if
    the folder is not that of a run that learned a stage, or ``out`` has other files.
    """
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FedvineError(f"{out} is there already; choose another folder with --out.")
    run = reopened(folder)
    if run.summary is None:
        raise FedvineError(f"The run in {folder} is not finished; give its command again, it goes "
                           "on.")
    found = of_run(run, top)
    with atomic_folder(out) as work:
        _write(work, found, run, say)
    return found


def of_run(run: Run, top: int = TOP) -> Exported:
    """Return what an export of a finished run has; of other methods the arrays of all memories."""
    run = run.final or run      # of which the model answers
    for answers_so, exported in KINDS:
        if answers_so(run.method):
            return exported(run, top)
    server, _ = run.at_the_end()
    made = Exported("", f"fedvine has no script that computes answers of {run.method.name} without "
                    "fedvine: these are the arrays of its memory.", plain(vars(server)))
    workers = run.clients.workers  # type: ignore[attr-defined]
    for name, worker in workers.items():
        made.clients[name] = plain({
            key: value for key, value in vars(worker.client).items()
            if key not in worker.client.given})
    return made


def _write(out: Path, found: Exported, run: Run, say: Callable[[str], object]) -> None:
    _arrays(out / "model.safetensors", found.model)
    folders = {name: file_name(name) for name in sorted({*found.clients, *found.tables})}
    for name, place in folders.items():
        folder = out / "clients" / place
        folder.mkdir(parents=True)
        if name in found.clients:
            _arrays(folder / "arrays.safetensors", found.clients[name])
        for table, rows in found.tables.get(name, {}).items():
            count, writer = 0, None
            pieces: Any = [rows] if isinstance(rows, pa.Table) else rows
            for piece in pieces:
                writer = writer or parquet.ParquetWriter(folder / f"{table}.parquet", piece.schema)
                writer.write_table(piece)
                count += len(piece)
                say(f"{name}: {count:,} {table}")
            if writer is not None:
                writer.close()
    about = {"script": found.script, "method": run.method.name,
             "fields": run.method.model_dump(mode="json"), "clients": sorted(run.parts),
             "folders": folders,
             "directed": all(getattr(p, "directed", True) for p in run.parts.values()),
             "classes": list(getattr(next(iter(run.parts.values()), None), "classes", ()))}
    (out / "about.json").write_text(json.dumps(about, indent=1) + "\n")
    if found.script:
        shutil.copyfile(Path(__file__).with_name("load.py"), out / "load.py")
    (out / "README.md").write_text(_card(run, found), "utf-8")


def _arrays(file: Path, arrays: Mapping[str, Any]) -> None:
    save_file({name: np.ascontiguousarray(value) for name, value in arrays.items()}, file)
