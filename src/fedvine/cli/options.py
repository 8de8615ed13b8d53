"""The options that several commands have, each defined once.

A command that runs an experiment takes the options about its data by name for its help alone; their
values come from ``typer.Context.params`` by :func:`values`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fedvine.cli import completion
from fedvine.core.errors import FedvineError
from fedvine.core.names import names_in

_OF = "Column of a table: "
_COLUMNS = ("src", "dst", "time", "client", "edges", "node", "label", "undirected", "time_format",
            "bipartite", "sure", "missing", "key", "database", "append_only", "users", "items",
            "weight", "features")


def _one_of(option: str, kinds: tuple[str, ...], file: Path | None) -> Path | None:
    if file is not None and file.suffix.lower() not in kinds:
        raise FedvineError(f"{file} ends in none of {', '.join(kinds)}; name for example "
                           f"{file.with_suffix(kinds[0])} with {option}.")
    return _page(file)


def _picture(file: Path | None) -> Path | None:
    return _one_of("--plot", (".png", ".pdf", ".svg"), file)


def _table(file: Path | None) -> Path | None:
    return _one_of("--table", (".tex", ".csv", ".md"), file)


def _page(file: Path | None) -> Path | None:
    if file is not None:
        from fedvine.results import frozen
        frozen.check(file)
    return file


# -- the data, and its owners ----------------------------------------------------------------------
Data = Annotated[str | None, typer.Option(
    autocompletion=completion.datasets,
    help="A data set's name, a CSV or Parquet file, or an SQL query.")]
Src = Annotated[str | None, typer.Option(help=f"{_OF}users.")]
Dst = Annotated[str | None, typer.Option(help=f"{_OF}items.")]
Time = Annotated[str | None, typer.Option(help=f"{_OF}times.")]
TimeFormat = Annotated[str | None, typer.Option(
    help="How the times of a table are written, such as '%d.%m.%Y %H:%M'.")]
Client = Annotated[str | None, typer.Option(help=f"{_OF}clients, if it has one.")]
Edges = Annotated[str | None, typer.Option(
    help="A second table, of edges, where --data is a table of nodes with classes.")]
Node = Annotated[str | None, typer.Option(help="Column of a table of nodes: ids.")]
Label = Annotated[str | None, typer.Option(help="Column of a table of nodes: classes.")]
Users = Annotated[str | None, typer.Option(
    help="A table of users (of all nodes, where they are of one kind), or a query: a key column, "
    "called as --src is or the first one, and columns of numbers and categories.")]
Items = Annotated[str | None, typer.Option(
    help="A table of items, likewise; its key column is called as --dst is, or the first one.")]
Weight = Annotated[str | None, typer.Option(
    help=f"{_OF}a number for each edge, from which methods learn, such as a rating; it may be "
    "negative.")]
Features = Annotated[str | None, typer.Option(
    help="Columns of a table, with commas between them: what is known of each edge; numbers, and "
    "text as categories.")]
Bipartite = Annotated[str | None, typer.Option(
    metavar="yes|no", help="Whether users and items are of two kinds [default: yes].")]
Sure = Annotated[bool | None, typer.Option(
    "--sure", help="Columns and times are meant as they are, also where a question is asked.")]
Missing = Annotated[str | None, typer.Option(
    help="Words, with commas between them, whose cells count as empty, such as NA,unknown.")]
Key = Annotated[str | None, typer.Option(
    help=f"{_OF}what errors name a row by, such as the number of a sale.")]
Database = Annotated[str | None, typer.Option(
    help="Where queries of --data, --users and --items run: sqlite:FILE or postgres://USER@HOST/NAME.")]
AppendOnly = Annotated[str | None, typer.Option(
    metavar="yes|DURATION", help="Rows are only added, and the same command later reads new ones "
    "alone; of a query also those that came late by up to this time.")]
Undirected = Annotated[bool | None, typer.Option(
    "--undirected", help="Edges have no direction, and nodes are of one kind.")]
Stages = Annotated[str | None, typer.Option(
    help="A duration such as 30d, or a number of edges; of a labelled graph, of classes a task "
    "[default: the data set's; of own tables all].")]
Open = Annotated[bool | None, typer.Option(
    "--open", help="The table grows: rows after the last whole stage wait, and the same command "
    "later learns the stages that are whole by then.")]
Split = Annotated[str | None, typer.Option(
    autocompletion=completion.partitions,
    help="Who owns what: a column, or a partition such as hash.")]
Clients = Annotated[str | None, typer.Option(
    help="Only these clients, with commas between them; a name with a comma stands in double "
    "quotes: '\"A, B\",C'.")]
K = Annotated[int | None, typer.Option(help="Number of clients of a partition.")]

# -- where a run is computed -----------------------------------------------------------------------
Engine = Annotated[str | None, typer.Option(
    metavar="local|ray", help="Where the clients are: in this process, or on the workers of a Ray "
    'cluster, which needs pip install "fedvine[ray]"; scores are the same [default: local].')]
Workers = Annotated[int | None, typer.Option(
    help="Processes of ray [default: one a processor].")]
Address = Annotated[str | None, typer.Option(
    help="A Ray cluster to join, such as 10.0.0.1:6379, or auto for the one that runs on this "
    "machine [default: a new one on this machine].")]

# -- runs that are set side by side ----------------------------------------------------------------
Folder = Annotated[Path, typer.Option(
    "--folder", help="Where runs are made; finished cells are kept in docs/results/cells if that "
    "is here and no folder is named, else in kept below it.")]
Budget = Annotated[str | None, typer.Option(
    help="Processor time that the runs of this call may take, such as 60m; then nothing more is "
    "started, and the rest goes on next time.")]
Seeds = Annotated[int | None, typer.Option(
    min=1, help="How many seeds [default: 5, and 3 where a run takes over two minutes].")]
Jobs = Annotated[int, typer.Option(min=1, help="Runs at a time.")]
Markdown = Annotated[Path | None, typer.Option(
    callback=_page, help="Write the tables to this file; - for the terminal.")]
Json = Annotated[Path | None, typer.Option(help="Write the scores to this file.")]
Plot = Annotated[Path | None, typer.Option(
    callback=_picture,
    help="Draw a picture into this .png, .pdf or .svg file.")]
Table = Annotated[Path | None, typer.Option(
    callback=_table,
    help="Write the tables to this .tex, .csv or .md file.")]


def values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the experiment's values in a command's options, table by table.

    ``given`` are the options by name (``typer.Context.params``); an option that a command does not
    have, or that is not given, is None, as :func:`fedvine.experiments.command.from_command`
    takes it.
    """
    stages, clients = given["stages"], given["clients"]
    return {"data": {"source": given["data"], **{name: given.get(name) for name in _COLUMNS}},
            "split": {"by": given["split"], "k": given["k"],
                      "clients": None if clients is None else names_in(clients)},
            "stages": int(stages) if stages and stages.isdecimal() else stages,
            "open_end": given.get("open_end"),
            **{name: given.get(name) for name in (
                "seed", "threads", "engine", "workers", "address")}}


def seconds_of(text: str) -> float:
    """Return the seconds of ``--budget`` and ``--cap``, such as ``90s``, ``60m`` or ``1.5h``.

    Raises :class:`FedvineError` for anything else.
    """
    from fedvine.core.units import duration
    found = duration(text)
    if found is None:
        raise FedvineError(f"{text!r} is no duration; write for example 90s, 60m or 1.5h.")
    return found


def console(file: Any = None) -> Any:
    """Return a console that prints names as they are, to ``file`` or to stdout."""
    from fedvine.core.text import Terminal
    return Terminal(file)


def tell(line: str) -> None:
    """Print a line about the progress to stderr."""
    from fedvine.core.text import shown
    print(shown(line), file=sys.stderr, flush=True)
