"""The commands that set runs side by side: compare and reproduce."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fedvine.cli.options import seconds_of
from fedvine.core.errors import FedvineError

_OF = "Column of a table: "
_CELLS = Annotated[Path, typer.Option(
    "--folder", help="Where runs are made; finished cells are kept in docs/results/cells if that "
    "is here and no folder is named, else in kept below it.")]
_BUDGET = Annotated[str | None, typer.Option(
    help="Time after which nothing more is started, such as 60m; the rest goes on next time.")]
_SEEDS = Annotated[int | None, typer.Option(
    min=1, help="How many seeds [default: 5, and 3 where a run takes over two minutes].")]
_JOBS = Annotated[int, typer.Option(min=1, help="Runs at a time.")]
_MARKDOWN = Annotated[Path | None, typer.Option(
    help="Write the tables to this file; - for the terminal.")]
_JSON = Annotated[Path | None, typer.Option(help="Write the scores to this file.")]


def compare(
    methods: Annotated[list[str], typer.Argument(
        metavar="METHOD[:KEY=VALUE]...", help="Methods' names or experiments' files, each with "
        "settings of its own if need be, such as fedlink:capacity=1000:rounds=5.")],
    data: Annotated[str | None, typer.Option(
        help="A data set's name, a CSV or Parquet file, or an SQL query.")] = None,
    src: Annotated[str | None, typer.Option(help=f"{_OF}users.")] = None,
    dst: Annotated[str | None, typer.Option(help=f"{_OF}items.")] = None,
    time: Annotated[str | None, typer.Option(help=f"{_OF}times.")] = None,
    time_format: Annotated[str | None, typer.Option(
        help="How the times of a table are written, such as '%d.%m.%Y %H:%M'.")] = None,
    client: Annotated[str | None, typer.Option(help=f"{_OF}clients, if it has one.")] = None,
    edges: Annotated[str | None, typer.Option(
        help="A second table, of edges, where --data is a table of nodes with classes.")] = None,
    node: Annotated[str | None, typer.Option(help="Column of a table of nodes: ids.")] = None,
    label: Annotated[str | None, typer.Option(help="Column of a table of nodes: classes.")] = None,
    bipartite: Annotated[str | None, typer.Option(
        metavar="yes|no", help="Whether users and items are of two kinds [default: yes].")] = None,
    sure: Annotated[bool | None, typer.Option(
        "--sure", help="The columns are meant as named, also where a question is asked.")] = None,
    undirected: Annotated[bool | None, typer.Option(
        "--undirected", help="Edges have no direction, and nodes are of one kind.")] = None,
    stages: Annotated[str | None, typer.Option(
        help="A duration such as 30d, or a number of edges; of a labelled graph, of classes a "
        "task.")] = None,
    split: Annotated[str | None, typer.Option(
        help="Who owns what: a column, or a partition such as hash.")] = None,
    clients: Annotated[str | None, typer.Option(
        help="Only these clients, with commas between them.")] = None,
    k: Annotated[int | None, typer.Option(help="Number of clients of a partition.")] = None,
    seed: Annotated[int | None, typer.Option(help="The first seed.")] = None,
    seeds: _SEEDS = None,
    partitions: Annotated[int | None, typer.Option(
        min=1, help="Run each seed on so many partitions of a labelled graph.")] = None,
    settings: Annotated[list[str] | None, typer.Option(
        "--set", metavar="KEY=VALUE", help="Any key of all the experiments; may be given several "
        "times.")] = None,
    budget: _BUDGET = None,
    jobs: _JOBS = 1,
    folder: _CELLS = Path("runs/cells"),
    plot: Annotated[Path | None, typer.Option(help="Draw a picture into this .png file.")] = None,
    markdown: _MARKDOWN = None,
    json: _JSON = None,
) -> None:
    """Compare methods on the same data and seeds: scores with intervals, paired tests, costs."""
    from fedvine.results import compare as comparing
    options: dict[str, Any] = {
        "data": {"source": data, "src": src, "dst": dst, "time": time, "client": client,
                 "edges": edges, "node": node, "label": label, "undirected": undirected,
                 "time_format": time_format, "bipartite": bipartite, "sure": sure},
        "split": {"by": split, "k": k, "clients": clients.split(",") if clients else None},
        "stages": int(stages) if stages and stages.isdigit() else stages, "seed": seed}
    wanted = comparing.experiments(methods, options, settings or [])
    table = wanted[0].data
    for note in table.open().notes if not (table.edges or table.dataset) else ():
        _tell(f"Note: {note}")
    found = comparing.compare(wanted, seeds, folder, jobs=jobs, tell=_tell,
                              partitions=partitions,
                              budget=seconds_of(budget) if budget else None)
    _show(found.sheet(), markdown, json)
    if plot:
        from fedvine.results.chart import chart
        chart(found, plot)


def reproduce(
    name: Annotated[str, typer.Argument(
        help="A paper's table or figure, such as fedlink-table1; tgb-wiki; or all.")],
    only: Annotated[str | None, typer.Option(
        help="Only these experiments: numbers or parts of their names, with commas.")] = None,
    seeds: _SEEDS = None,
    budget: _BUDGET = None,
    cap: Annotated[str, typer.Option(help="CPU time that all runs of a page may take.")] = "60m",
    jobs: _JOBS = 1,
    folder: _CELLS = Path("runs/cells"),
    plot: Annotated[Path | None, typer.Option(
        help="Draw a figure into this .png file.")] = None,
    markdown: _MARKDOWN = None,
    json: _JSON = None,
) -> None:
    """Show our numbers beside a paper's; the runs are kept, so the next time is quick.

    With all, --markdown names a folder into which every page and picture is written.
    """
    from fedvine.papers import reproduce as reproducing
    options: dict[str, Any] = {"seeds": seeds, "jobs": jobs, "folder": folder, "tell": _tell,
                               "budget": seconds_of(budget) if budget else None,
                               "cap": seconds_of(cap)}
    if name == reproducing.ALL:
        if only or json or plot or str(markdown) == "-":
            raise FedvineError("--only, --json and --plot belong to one page; with all give "
                               "--markdown FOLDER.")
        _pages(reproducing.reproduce_all(**options), markdown)
        return
    _show(reproducing.reproduce(name, only=only, **options), markdown, json, plot)


def _pages(found: dict[str, Any], folder: Path | None) -> None:
    """A line a page; with a folder pages and pictures go there."""
    for name, sheet in found.items():
        if isinstance(sheet, str):
            print(f"{name}: {sheet}")
            continue
        if folder is not None and sheet.records:
            sheet.write(markdown=folder / f"{name}.md",
                        plot=folder / f"{name}.png" if sheet.picture else None)
        print(f"{name}: {sheet.notes[:2][-1]}")


def _tell(line: str) -> None:
    from fedvine.core.text import shown
    print(shown(line), file=sys.stderr, flush=True)


def _show(sheet: Any, markdown: Path | None, json: Path | None, plot: Path | None = None) -> None:
    if str(markdown) == "-":
        print(sheet.markdown(), end="")
        markdown = None
    else:
        from fedvine.core.text import Terminal
        sheet.show(Terminal())
    sheet.write(markdown=markdown, json=json, plot=plot)
