"""The commands that set runs side by side: compare and reproduce."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedvine.cli import completion, options
from fedvine.cli.stopping import stopped_as_by_ctrl_c
from fedvine.core.errors import FedvineError


def compare(
    context: typer.Context,
    methods: Annotated[list[str], typer.Argument(
        metavar="METHOD[:KEY=VALUE]...", autocompletion=completion.methods,
        help="Methods' names or experiments' files, each with settings of its own if need be, "
        "such as fedlink:capacity=1000:rounds=5.")],
    data: options.Data = None,
    src: options.Src = None,
    dst: options.Dst = None,
    time: options.Time = None,
    time_format: options.TimeFormat = None,
    client: options.Client = None,
    edges: options.Edges = None,
    users: options.Users = None,
    items: options.Items = None,
    weight: options.Weight = None,
    features: options.Features = None,
    node: options.Node = None,
    label: options.Label = None,
    bipartite: options.Bipartite = None,
    sure: options.Sure = None,
    missing: options.Missing = None,
    key: options.Key = None,
    database: options.Database = None,
    undirected: options.Undirected = None,
    stages: options.Stages = None,
    split: options.Split = None,
    clients: options.Clients = None,
    k: options.K = None,
    seed: Annotated[int | None, typer.Option(help="The first seed.")] = None,
    seeds: options.Seeds = None,
    partitions: Annotated[int | None, typer.Option(
        min=1, help="Run each seed on so many partitions of a labelled graph.")] = None,
    settings: Annotated[list[str] | None, typer.Option(
        "--set", metavar="KEY=VALUE", help="Any key of all the experiments; may be given several "
        "times.")] = None,
    budget: options.Budget = None,
    jobs: options.Jobs = 1,
    folder: options.Folder = Path("runs/cells"),
    plot: options.Plot = None,
    markdown: options.Markdown = None,
    json: options.Json = None,
) -> None:
    """Compare methods on the same data and seeds: scores with intervals, paired tests, costs."""
    from fedvine.results import compare as comparing
    stopped_as_by_ctrl_c()
    wanted = comparing.experiments(methods, options.values(context.params), settings or [])
    table = wanted[0].data
    if not table.edges and (table.weight or table.features or not table.dataset):
        from fedvine.experiments.prepare import unused
        stream = table.open()
        notes = [note for one in wanted for note in unused(one.method, stream.edge_columns)]
        for note in (*(() if table.dataset else stream.notes), *notes):
            options.tell(f"Note: {note}")
    found = comparing.compare(wanted, seeds, folder, jobs=jobs, tell=options.tell,
                              partitions=partitions,
                              budget=options.seconds_of(budget) if budget else None)
    _show(found.sheet(), markdown, json)
    if plot:
        from fedvine.results.chart import chart
        chart(found, plot)


def reproduce(
    name: Annotated[str, typer.Argument(
        autocompletion=completion.pages,
        help="A paper's table or figure, such as fedlink-table1; tgb-wiki; or all.")],
    only: Annotated[str | None, typer.Option(
        help="Only these experiments: numbers or parts of their names, with commas.")] = None,
    seeds: options.Seeds = None,
    budget: options.Budget = None,
    cap: Annotated[str, typer.Option(help="CPU time that all runs of a page may take.")] = "60m",
    jobs: options.Jobs = 1,
    folder: options.Folder = Path("runs/cells"),
    plot: options.Plot = None,
    markdown: options.Markdown = None,
    json: options.Json = None,
    check: Annotated[bool, typer.Option(
        "--check", help="Run nothing; fail if a row of a paper's table is not built, not tuned, or "
        "has too few seeds.")] = False,
) -> None:
    """Show our numbers beside a paper's; the runs are kept, so the next time is quick.

    With all, --markdown names a folder into which every page and picture is written.
    """
    from fedvine.papers import reproduce as reproducing
    if check:
        lines = reproducing.lacks(name, only=only, seeds=seeds, folder=folder)
        typer.echo("\n".join(lines) or f"{name} is complete.")
        if lines:
            raise typer.Exit(1)
        return
    how: dict[str, Any] = {"seeds": seeds, "jobs": jobs, "folder": folder, "tell": options.tell,
                               "budget": options.seconds_of(budget) if budget else None,
                               "cap": options.seconds_of(cap)}
    stopped_as_by_ctrl_c()
    if name == reproducing.ALL:
        if only or json or plot or str(markdown) == "-":
            raise FedvineError("--only, --json and --plot belong to one page; with all give "
                               "--markdown FOLDER.")
        _pages(reproducing.reproduce_all(**how), markdown)
        return
    _show(reproducing.reproduce(name, only=only, **how), markdown, json, plot)


def _pages(found: dict[str, Any], folder: Path | None) -> None:
    """Print a line a page; write pages and pictures into ``folder`` if it is given."""
    for name, sheet in found.items():
        if isinstance(sheet, str):
            print(f"{name}: {sheet}")
            continue
        if folder is not None and sheet.records:
            sheet.write(markdown=folder / f"{name}.md",
                        plot=folder / f"{name}.png" if sheet.picture else None)
        print(f"{name}: {sheet.notes[:2][-1]}")


def _show(sheet: Any, markdown: Path | None, json: Path | None, plot: Path | None = None) -> None:
    if str(markdown) == "-":
        print(sheet.markdown(), end="")
        markdown = None
    else:
        from fedvine.core.text import Terminal
        sheet.show(Terminal())
    sheet.write(markdown=markdown, json=json, plot=plot)
