"""The options that several commands have, each defined once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from fedvine.cli import completion
from fedvine.core.errors import FedvineError
from fedvine.core.units import names_in


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


# -- the data, their owners, and where a run is computed -------------------------------------------
Values = dict[str, Any]     # an experiment's values, table by table; None where one is not given
_OF = "Column of a table: "


def _option(text: str, flag: str = "", kind: Any = str, **more: Any) -> tuple[str, Any, Any]:
    return flag, kind, partial(typer.Option, help=text, **more)


#: The keys of an experiment that are options, each with its text and, where it is not the key's
#: last part, its name. It stands here, as models of experiments take a second to import.
_OPTIONS = {
    "name": _option("What the run is called where runs are shown [default: as its data]."),
    "data.source": _option("A data set's name, a CSV or Parquet file, or an SQL query.", "--data",
                           autocompletion=completion.datasets),
    "data.src": _option(f"{_OF}users."),
    "data.dst": _option(f"{_OF}items."),
    "data.time": _option(f"{_OF}times."),
    "data.time_format": _option(
        "How the times of a table are written, such as '%d.%m.%Y %H:%M'."),
    "data.timezone": _option(
        "The zone, such as Europe/Berlin, of times that name none, of stages that begin at a time "
        "of day, and in which times are shown [default: UTC].", metavar="ZONE"),
    "data.client": _option(f"{_OF}clients, if it has one."),
    "data.edges": _option(
        "A second table, of edges, where --data is a table of nodes with classes."),
    "data.users": _option(
        "A table of users (of all nodes, where they are of one kind), or a query: a key column, "
        "called as --src is or the first one, and columns of numbers and categories."),
    "data.items": _option(
        "A table of items, likewise; its key column is called as --dst is, or the first one."),
    "data.weight": _option(
        f"{_OF}a number for each edge, from which methods learn, such as a rating; it may be "
        "negative."),
    "data.features": _option(
        "Columns of a table, with commas between them: what is known of each edge; numbers, and "
        "text as categories."),
    "data.node": _option("Column of a table of nodes: ids."),
    "data.label": _option("Column of a table of nodes: classes."),
    "data.bipartite": _option("Whether users and items are of two kinds [default: yes].",
                              metavar="yes|no"),
    "data.sure": _option(
        "Columns and times are meant as they are, also where a question is asked.", kind=bool),
    "data.missing": _option(
        "Words, with commas between them, whose cells count as empty, such as NA,unknown."),
    "data.key": _option(f"{_OF}what errors name a row by, such as the number of a sale."),
    "data.database": _option(
        "Where queries of --data, --users and --items run: sqlite:FILE or "
        "postgres://USER@HOST/NAME."),
    "data.append_only": _option(
        "Rows are only added, and the same command later reads new ones alone; of a query also "
        "those that came late by up to this time.", metavar="yes|DURATION"),
    "data.undirected": _option("Edges have no direction, and nodes are of one kind.", kind=bool),
    "stages": _option(
        "A duration such as 30d, 1w or 1mo, or a number of edges; of a labelled graph, of classes "
        "a task, or batches [default: the data set's; of own tables all]."),
    "origin": _option(
        "The time of day at which stages of days, weeks or months begin, such as 00:00 [default: "
        "that of the first event; with --timezone, and for months, 00:00].", metavar="HH:MM"),
    "open_end": _option(
        "The table grows: rows after the last whole stage wait, and the same command later learns "
        "the stages that are whole by then.", "--open", bool),
    "split.by": _option("Who owns what: a column, or a partition such as hash.", "--split",
                        autocompletion=completion.partitions),
    "split.clients": _option(
        "Only these clients, with commas between them; a name with a comma stands in double "
        "quotes: '\"A, B\",C'."),
    "split.k": _option("Number of clients of a partition.", kind=int),
    "seed": _option("All randomness comes from it.", kind=int),
    "threads": _option("Threads of torch.", kind=int),
    "device": _option(
        "Where tensors are computed: on a GPU where torch finds one, never, or always [default: "
        "auto].", metavar="auto|cpu|cuda"),
    "engine": _option(
        "Where the clients are: in this process, or on the workers of a Ray cluster, which needs "
        'pip install "fedvine[ray]"; scores are the same [default: local].', metavar="local|ray"),
    "workers": _option(
        "Clients that compute at a time: threads, or processes of ray; auto: one a processor "
        "[default: 1; of ray auto].", metavar="N|auto"),
    "address": _option(
        "A Ray cluster to join, such as 10.0.0.1:6379, or auto for the one that runs on this "
        "machine [default: a new one on this machine]."),
}
#: Those of one run, which commands that set runs side by side leave out.
OF_A_RUN = ("name", "data.append_only", "open_end", "seed", "threads", "engine", "workers",
            "address")
#: Those that a site of a federation does not choose.
NOT_OF_A_SITE = ("name", "data.client", "data.append_only", "stages", "origin", "open_end",
                 "split.by", "split.clients", "split.k", "seed", "engine", "workers", "address")


def data_options(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of an experiment except ``without``, as parameter ``values``."""
    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        names = {key.replace(".", "_"): key for key in _OPTIONS if key not in without}

        def carry_out(**given: Any) -> None:
            found = {names[name]: given.pop(name) for name in names}
            command(values=_tables(found), **given)

        parameters = list[Parameter]()
        for own in signature(command, eval_str=True).parameters.values():
            parameters += ([_parameter(*of) for of in names.items()] if own.name == "values"
                           else [own.replace(kind=Parameter.KEYWORD_ONLY)])
        carry_out.__name__, carry_out.__doc__ = command.__name__, command.__doc__
        carry_out.__signature__ = Signature(parameters)     # type: ignore[attr-defined]
        carry_out.__annotations__ = {one.name: one.annotation for one in parameters}
        return carry_out
    return with_options


def _parameter(name: str, key: str) -> Parameter:
    """Return the parameter of a key, not given by default."""
    flag, kind, made = _OPTIONS[key]
    flag = flag or f"--{key.rpartition('.')[2].replace('_', '-')}"
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None,
                     annotation=Annotated[kind | None, made(flag)])


def _tables(found: dict[str, Any]) -> Values:
    """Return options by key as tables, with numbers and lists where a text may stand for them."""
    made: Values = {}
    for key, value in found.items():
        table, _, name = key.rpartition(".")
        if key in ("stages", "workers") and value and value.isdecimal():
            value = int(value)
        elif key == "split.clients" and value is not None:
            value = names_in(value)
        (made.setdefault(table, {}) if table else made)[name] = value
    return made


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


def seconds_of(text: str) -> float:
    """Return the seconds of a text such as ``90s``, ``60m`` or ``1.5h``; raise for others."""
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


def over(line: str, last: bool = False) -> None:
    """Print a line about the progress over the one before, where a person looks."""
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="\n" * last, file=sys.stderr, flush=True)
