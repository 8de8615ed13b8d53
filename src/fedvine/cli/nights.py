"""Commands on a run that goes on night by night: what it learned, the way back, its service."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedvine.cli import options
from fedvine.cli.run import note
from fedvine.core.errors import FedvineError


def nights(folder: Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder.")]
           ) -> None:
    """List the nights of a run that goes on: rows, stages, seconds, scores, refusals."""
    from rich.table import Table

    from fedvine.experiments import nights as kept
    table = Table("night, UTC", "stages so far", "rows so far", "seconds", "AUC", "MRR", "",
                  box=None)
    for line in kept.lines(folder):
        scores = line.get("scores", {})
        said = (f"{line['back']} taken back" if "back" in line else
                f"refused: {'; '.join(line['refused'])}" if "refused" in line else "")
        table.add_row(line["at"][:19].replace("T", " "),
                      *(f"{line[key]:,}" if key in line else "" for key in ("stages", "rows")),
                      str(line.get("seconds", "")),
                      *(f"{scores[key]:.3f}" if scores.get(key) is not None else "" for key in (
                          "auc", "mrr")), said)
    options.console().print(table)


def rollback(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder.")],
    nights: Annotated[int, typer.Option(min=1, help="How many nights.")] = 1,
) -> None:
    """Take back the last nights of a run: its rows, memory and scores are as before them."""
    from fedvine.experiments import nights as kept
    when = kept.back(folder, nights)[:16].replace("T", " ")
    first = "night" if nights == 1 else f"last {nights} nights that learned, the first"
    print(f"{folder} is as it was before the {first} of {when} UTC. Refused nights do not count.")


def erase(
    folder: Annotated[Path, typer.Argument(
        metavar="RUN|KIT", help="The run's folder, or a site's kit; a run alone: an erasure that "
        "was stopped is finished.")],
    user: Annotated[list[str] | None, typer.Option(help="A user; may be given several times.")
                    ] = None,
    item: Annotated[list[str] | None, typer.Option(help="An item.")] = None,
    node: Annotated[list[str] | None, typer.Option(
        help="A node, where nodes are of one kind.")] = None,
    client: Annotated[list[str] | None, typer.Option(help="A client, with all its rows.")] = None,
    users: Annotated[Path | None, typer.Option(help="A file with the name of a user a line.")
                     ] = None,
    exact: Annotated[bool, typer.Option(
        "--exact", help="Also unlearn: carry the run out again, where counting again would do."
    )] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    check: Annotated[Path | None, typer.Option(
        metavar="RECEIPT", help="Only say whether a receipt is as it was signed.")] = None,
) -> None:
    """Take persons out of a run, or of all that a site has: rows, names, and what was learned."""
    from fedvine.experiments import erase as erasing
    from fedvine.experiments.receipts import check_receipt
    if check:
        said = check_receipt(check)
        what = f"{said['rows']:,} rows" if "rows" in said else f"what {said['by']} had learned"
        print(f"Signed by the key {said['key'][:16]}...: {what} of {said['run']} went, "
              f"{said['done']}.")
        return
    try:
        more = users.read_text("utf-8-sig").splitlines() if users else []
    except (OSError, ValueError) as error:
        raise FedvineError(f"{users} cannot be read ({error}).") from error
    names = {"user": [*(user or []), *filter(None, map(str.strip, more))], "item": item or [],
             "node": node or [], "client": client or []}
    asked = any(names.values())
    if (folder / "fedvine.json").exists():
        _erase_at_a_site(folder, names, yes)
        return
    if asked:
        found = erasing.prepared(folder, names, exact)
        text = f"{found.rows:,} rows at {found.clients:,} clients are erased, and " + (
            "what is left is counted again; weights stay as they were learned (--exact learns them "
            "again)" if found.at_once else
            f"the run is carried out again from stage {found.stage + 1} of {found.stages}"
            + ("" if not found.seconds else f", in about {found.seconds:.0f} s")) + "."
        _agreed(text, yes)
    from fedvine.experiments import progress
    receipt = erasing.erase(folder, names if asked else None, exact, lambda made: progress.follow(
        made, options.console(sys.stderr)))
    print(f"Receipt: {receipt}")
    for file in erasing.still_named(folder, names) if asked else ():
        note(f"{file} still has a name that was erased; delete it, or write it again.")
    note(erasing.LATER)


def _agreed(text: str, yes: bool) -> None:
    """Say what will be erased; raise :class:`FedvineError` where nobody agrees."""
    if not yes and not (sys.stdin.isatty() and typer.confirm(f"{text} Go on?")):
        raise FedvineError(f"{text} Nothing is erased yet; give the command again with --yes.")
    print(text)


def _erase_at_a_site(kit: Path, names: dict[str, list[str]], yes: bool) -> None:
    from fedvine.experiments.erase import still_named
    from fedvine.federation import erasures
    if not any(names.values()):
        raise FedvineError(f"Say with --user, --item or --node whom to erase at {kit}.")
    found = erasures.concerned(kit, names)
    rows = sum(int(gone.rows.sum()) for _, gone in found.rows.values())
    _agreed(f"{rows:,} rows are erased here. The hub, and all sites, drop what they learned in "
            f"{', '.join(found.runs) or 'no run'}, and learn it again from the start when the hub "
            "next asks.", yes)
    print(f"Receipt: {erasures.erase(kit, names)}")
    for file in still_named(kit, names):
        note(f"{file} still has a name that was erased; delete it, or write it again.")
    note("The site's table has to lack the rows; rows that come back are those of a new person. "
         f"fedvine account {kit} says who has dropped what they learned.")


def metrics(folder: Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder.")]
            ) -> None:
    """Print numbers of a run for a monitor, as Prometheus reads them; no name is in them."""
    from fedvine.experiments.nights import metrics as text
    print(text(folder), end="")


def unit(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder.")],
    out: Annotated[Path, typer.Option(help="The folder for the files.")],
    at: Annotated[str, typer.Option(metavar="HH:MM", help="When a night begins.")] = "02:00",
    forecasts: Annotated[str | None, typer.Option(
        metavar="FILE|DATABASE/TABLE", help="A file, or a table of a database, for all users' "
        "likeliest items after each night.")] = None,
    notify: Annotated[str | None, typer.Option(
        metavar="COMMAND", help="The command that is told what became of a night.")] = None,
) -> None:
    """Write a systemd service and timer that learn a run's nights, and print a line for cron."""
    from fedvine.data import handed
    from fedvine.experiments.experiment import Experiment
    from fedvine.experiments.nights import unit as made
    handed.check(Experiment.of_run(folder).data, folder)    # a night cannot be asked: --open-data
    line = made(folder, out, at, forecasts, notify)
    print(f"Written to {out}: check the files, then copy the service and the timer "
          f"to ~/.config/systemd/user. For cron:\n{line}")
