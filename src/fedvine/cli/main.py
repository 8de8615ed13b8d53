"""The command line. Each command is a few lines; the work is done in the other rooms.

Nothing heavy is imported before a command needs it, so that help and typing errors are quick.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fedvine.cli import compare, completion, site
from fedvine.cli import federation as federation_cli
from fedvine.cli import nights as nightly
from fedvine.cli import run as running
from fedvine.cli.options import console, over
from fedvine.core.errors import FedvineError, HandedOver

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
                  rich_markup_mode=None, context_settings={"max_content_width": 100},
                  help="Federated learning on graphs that grow.",
                  epilog="Errors are one sentence; --debug, anywhere, adds where they came from. "
                  "--open-data, anywhere, opens data outside of the folder of an experiment or run "
                  "from somebody else; --log json, anywhere, lets a command say all as JSON "
                  "lines. Exit codes: 0; 2 an error; 3 a gate is closed; 4 a question that nobody "
                  "answered; 130 stopped; 1 not foreseen.")


def main(arguments: list[str] | None = None) -> None:
    """Run the command ``fedvine`` and exit.

    Exit codes: 0; 2 for an error of the command, its files or the disk (one sentence on stderr); 3
    for a night that the gate did not let in; 4 for a question that nobody was there to answer; 1
    for an error that is not foreseen; 130 if stopped.
    """
    given = _logged(list(sys.argv[1:] if arguments is None else arguments))
    debug, openly = "--debug" in given, "--open-data" in given
    completion.prepare()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _notice
            code = _called([a for a in given if a not in ("--debug", "--open-data")], openly)
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()  # type: ignore[attr-defined]
            sys.exit(2)
        if type(error).__name__ == "Abort":         # Ctrl-C at a question
            sys.exit(130)
        if debug:
            raise
        text, code = _sentence(error)
        print("Error:", _printable(text), file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _logged(given: list[str]) -> list[str]:
    """Return the arguments without ``--log json``, which turns what is said into JSON lines."""
    at, count = next(((i, n) for i in range(len(given)) for n in (1, 2)
                      if given[i:i + n] in (["--log=json"], ["--log", "json"])), (0, 0))
    if not count:
        return given
    from fedvine.cli.log import STAY, JsonLines
    left = given[:at] + given[at + count:]
    sys.stderr = JsonLines(sys.stderr)  # type: ignore[assignment]
    if left[:1] and left[0] in STAY:
        sys.stdout = JsonLines(sys.stdout)  # type: ignore[assignment]
    return left


def _called(given: list[str], openly: bool) -> Any:
    """Carry out a command; data that a file from elsewhere names need a person's word."""
    while True:
        try:
            return app(given, prog_name="fedvine", standalone_mode=False)
        except HandedOver as error:
            if not (openly or (sys.stdin.isatty() and sys.stderr.isatty() and typer.confirm(
                    f"{_printable(str(error))}\nOpen them, now and from now on?", err=True))):
                raise
            error.remember()


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def _notice(message: Warning | str, *where: Any) -> None:
    """Print a warning's sentence to stderr, without the place in the code it comes from."""
    print("Note:", message, file=sys.stderr)


def _sentence(error: Exception) -> tuple[str, int]:
    """Return an error as one sentence, and the exit code."""
    if isinstance(error, FedvineError):
        return str(error), error.code
    if hasattr(error, "format_message"):  # typer's own: an unknown option, a bad value
        return f"{error.format_message().rstrip('.')}.", 2  # type: ignore[attr-defined]
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename} cannot be used ({error.strerror}).", 2
    return (f"{type(error).__name__}: {error} (not foreseen; the same command with --debug shows "
            "where)"), 1


@app.callback(invoke_without_command=True)
def _top(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
         ) -> None:
    if version:
        import fedvine
        print(fedvine.__version__)
        raise typer.Exit


@app.command("list")
def list_() -> None:
    """Show the methods, data sets and partitions that there are."""
    from rich.table import Table

    from fedvine.core import registry
    for room in ("methods", "datasets", "partitions"):
        table = Table(room, "", box=None, show_header=True)
        for name, line in registry.first_lines(room).items():
            table.add_row(name, line)
        console().print(table, "")


@app.command()
def show(name: Annotated[str, typer.Argument(
        autocompletion=completion.shown,
        help="A method, a data set, a partition, a Python file with a method, an experiment's TOML "
        "file or a run folder.")]
         ) -> None:
    """Explain one thing: a method's fields, a data set's size, an experiment in full."""
    from fedvine.cli.catalogue import described
    for part in described(name):
        console().print(part, highlight=False, soft_wrap=isinstance(part, str))


for _one in (running.run, nightly.nights, nightly.rollback, nightly.unit, nightly.metrics,
             nightly.erase):
    app.command()(_one)


@app.command()
def predict(
    folder: Annotated[Path, typer.Argument(metavar="RUN|KIT", help="The folder of a run, finished "
                                           "or not; at a site of a federation, its kit.")],
    client: Annotated[str | None, typer.Option(help="Where the user is (not for a KIT).")] = None,
    user: Annotated[str | None, typer.Option(
        help="Whose likeliest items to show; with --labels the node to show.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many items a user, or labels.")] = 5,
    everyone: Annotated[bool, typer.Option(
        "--all", help="All users of all clients, into --out.")] = False,
    pairs: Annotated[Path | None, typer.Option(
        help="Score the pairs of a CSV or Parquet file with columns client, user and item, "
        "into --out.")] = None,
    labels: Annotated[bool, typer.Option(
        "--labels", help="Labels of nodes with probabilities, nodes without a class first: the "
        "first --top, or all into --out.")] = False,
    alerts: Annotated[int | None, typer.Option(
        min=1, help="With --labels: so many alerts, to nodes without a class that most probably "
        "have a rare one.")] = None,
    precision: Annotated[float | None, typer.Option(
        min=0, max=1, help="With --labels: alerts of which this share is expected to be right; "
        "else those of the best F1.")] = None,
    at: Annotated[str | None, typer.Option(
        metavar="TIME", help="As of a time after the learned stages (a date, in the run's time "
        "zone, or a number): each client's own events before it count.")] = None,
    out: Annotated[str | None, typer.Option(
        metavar="FILE|DATABASE/TABLE", help="A .csv, .jsonl or .parquet file to write, or a table "
        "of a database: sqlite:FILE/TABLE, postgres://USER@HOST/NAME/TABLE.")] = None,
    new_only: Annotated[bool, typer.Option(
        "--new-only", help="With --all: only items that the user has not met.")] = False,
    items: Annotated[Path | None, typer.Option(
        help="With --all: only the items of this file, in its column item.")] = None,
    exclude: Annotated[Path | None, typer.Option(
        help="With --all: none of the pairs of this file, in its columns client, user and item.")
    ] = None,
    cap: Annotated[str | None, typer.Option(
        metavar="COLUMN=N", help="With --all: at most N items of a list with the same category, in "
        "a column of the table of items.")] = None,
    jobs: Annotated[int | None, typer.Option(
        min=1, help="With --all: processes, each with the run in memory [default: 1].")] = None,
    method: Annotated[Path | None, typer.Option(
        help="The Python file of the run's method, where it was run elsewhere; it is carried out."
    )] = None,
) -> None:
    """Forecast: a user's likeliest items, everybody's, scores of given pairs, labels of nodes."""
    if not labels and (alerts, precision) != (None, None):
        raise FedvineError("--alerts and --precision belong to --labels.")
    from fedvine.federation import site_saves
    if site_saves.there(folder) and not (pairs or at) and client in (None, "all"):
        if labels or everyone:
            _kept(folder, user, top, out, labels, alerts, precision)
            return
        if user and out is None:
            _show(site_saves.kept(folder, user, top))
            return
    one = client is not None and user is not None and not labels
    if one + everyone + (pairs is not None) + labels != 1 or (
            not (one or labels) and (client or user)):
        raise FedvineError("Say one of: --client and --user, --all, --pairs, or --labels.")
    if one and out is not None:
        raise FedvineError("--out belongs to --all or --pairs; one user's items are shown.")
    if not everyone and (new_only, items, exclude, cap) != (False, None, None, None):
        raise FedvineError("--new-only, --items, --exclude and --cap belong to --all.")
    if not everyone and jobs is not None:
        raise FedvineError("--jobs belongs to --all.")
    if (everyone or pairs) and out is None:
        raise FedvineError("Say with --out which .csv or .parquet file to write.")
    if at is not None and (labels or (folder / "fedvine.json").exists()):
        raise FedvineError("--at belongs to forecasts of links of a run in this process.")
    if method:
        from fedvine.core import registry
        registry.from_file(method)
    if labels:
        _labels(folder, client, user, top, out, alerts, precision)
        return
    from fedvine.data.dates import time_of
    from fedvine.experiments.reopened import forecasts_of
    from fedvine.experiments.run_folder import read_experiment, zone
    when = None if at is None else time_of(at, zone(read_experiment(folder)))
    found = forecasts_of(folder, when)
    if at is None:
        _as_of(found.run)
    if everyone:
        from fedvine.data.io.target import Place, is_table
        from fedvine.experiments.answers import Wanted
        wanted = Wanted.read(new_only, items, exclude, cap)
        if is_table(out or ""):
            place = Place.of(out or "")
            running.note(f"The table {place.name} of {place.database} is made anew.")
        from fedvine.experiments.all_users import every
        rows = every(folder, found, when, top, out or "", wanted, jobs or 1, _progress)
        print(f"{rows:,} rows in {out}")
    elif pairs:
        rows, scored = found.pairs(pairs, out or "")
        print(f"{rows:,} rows in {out}" + ("" if rows == scored else f"; {rows - scored:,} have no "
              "score, since their client has never seen the user or the item"))
    else:
        assert client is not None and user is not None
        best = found.top(client, user, top)
        _show(best, found.why(client, user, [one.item for one in best]))
        homes = found.homes(user)
        if client not in homes:
            where = ", ".join(homes) or "no client, but from the table of users"
            console().print(f"{client} has no edge of {user} yet; known at {where}.",
                             highlight=False, soft_wrap=True)


def _progress(done: int, users: int) -> None:
    """Show how many users have their list."""
    over(f"{done:,} of {users:,} users", done == users)


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of finished "
                                                  "runs, also of a federation.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
) -> None:
    """Write one HTML page about finished runs, with tables and pictures; compare several."""
    from fedvine.results.report import report as write
    print(f"Written to {write(folders, out)}")


def _labels(folder: Path, client: str | None, node: str | None, top: int, out: str | None,
            alerts: int | None, precision: float | None) -> None:
    """Write all labels of a run to ``out``, or show the first ``top``."""
    from fedvine.experiments.answers import Labels
    from fedvine.experiments.forecasts import Forecasts
    from fedvine.experiments.reopened import reopened
    made = reopened(folder)
    _as_of(made)
    found = Labels(made).table(None if node is None else [node], client, alerts, precision)
    if out is not None:
        from fedvine.experiments.answers import write_tables
        print(f"{write_tables(out, iter([found])):,} rows in {out}")
        Forecasts(made).note(out, 0)
        return
    _show_labels(found, top)


def _kept(folder: Path, node: str | None, top: int, out: str | None, labels: bool,
          *how: Any) -> None:
    """Write what a federation's run left in ``folder`` to ``out``, or show labels."""
    from fedvine.federation import site_saves
    if out is not None and node is None:
        count = site_saves.write(folder, Path(out), top, "labels" if labels else None, *how)
        print(f"{count:,} rows in {out}")
    elif labels and out is None:
        _show_labels(site_saves.labels(folder, node, *how), top)
    else:
        raise FedvineError("Say with --out which .csv or .parquet file to write, and leave out "
                           "--user.")


def _show_labels(found: Any, top: int) -> None:
    from rich.table import Column, Table
    columns = ["client", "node", "label", "probability", "given"]
    if "alert" in found.column_names:       # nodes without a class that are alerts come first
        columns.append("alert")
        rest = [not row["alert"] or row["given"] for row in found.to_pylist()]
        found = found.take(sorted(range(len(rest)), key=lambda i: bool(rest[i])))
    table = Table(*(Column(name, overflow="fold") for name in columns), box=None)
    for row in found.slice(0, top).to_pylist():
        table.add_row(*(f"{v:.3f}" if isinstance(v := row[c], float) else v or "" for c in columns))
    console().print(table)
    if len(found) > top:
        print(f"{len(found) - top:,} more; --out FILE writes all.")


def _as_of(made: Any) -> None:
    if made.final is not None:
        from fedvine.tasks.class_incremental import said_of
        print(said_of(made.summary["final"]), file=sys.stderr)
    if made.summary is None:
        print(f"Note: the run is not finished; this is as of stage {made.learned + 1} of "
              f"{len(made.plan)}{made.learned_to and f' ({made.learned_to})'}.", file=sys.stderr)
    elif made.learned_to:
        print(f"As of {made.learned_to}, the end of what was learned.", file=sys.stderr)


def _show(forecasts: list[Any], why: Sequence[str] = ()) -> None:
    from rich.table import Column, Table
    likely = any(one.probability is not None for one in forecasts)
    table = Table(Column("item", overflow="fold"), "score", *["probability"] * likely, "",
                  *([Column("why", overflow="fold")] if why else []), box=None)
    for n, (item, score, known, p) in enumerate(forecasts):
        table.add_row(item, f"{score:.4g}", *["" if p is None else f"{p:.3f}"] * likely,
                      "known" if known else "new", *why[n:n + 1])
    console().print(table)


@app.command("app")
def page(
    runs: Annotated[list[Path], typer.Argument(
        metavar="RUN...", help="Folders of runs, finished or still learning, or folders with runs "
        "in them.")],
    host: Annotated[str, typer.Option(
        help="The address to listen on; the page's address, with a token, is printed.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for any that is free.")
                    ] = 8765,
    token: Annotated[Path | None, typer.Option(
        help="A file with the token, for a monitor that reads /metrics [default: one is drawn].")
    ] = None,
    method: Annotated[Path | None, typer.Option(
        help="The Python file of the runs' method, where they were run elsewhere; it is carried "
        "out.")] = None,
) -> None:
    """Show runs on a local page while they learn, and ask their models; Ctrl-C ends it."""
    from fedvine.app.serving import serve
    if method:
        from fedvine.core import registry
        registry.from_file(method)
    try:
        word = None if token is None else token.read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise FedvineError(f"{token} cannot be read ({error}).") from error
    if word is not None and not re.fullmatch(r"[\w-]{20,}", word):
        raise FedvineError(f"{token} has no token: at least 20 letters, digits, _ and -.")
    serve(runs, host, port, lambda text: print(text, flush=True), word)


for _one in (compare.cells, compare.cite, compare.compare, compare.reproduce, compare.tune,
             compare.audit, compare.export, compare.explain, federation_cli.serve,
             federation_cli.match, site.join, site.account, federation_cli.status,
             completion.completion):
    app.command()(_one)
app.add_typer(federation_cli.kit, name="kit")
