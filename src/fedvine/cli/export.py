"""The commands that export a model, attack an experiment's record, and print what to cite."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedvine.cli import completion, options


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    out: Annotated[Path, typer.Option(help="A new folder.")],
    top: Annotated[int, typer.Option(min=0, help="For fedlink_plus: likeliest items of each user "
                                     "that can be scored, beside those it met.")] = 100,
) -> None:
    """Write a run's model as safetensors and Parquet, a script that loads them, and a card.

    The script needs no fedvine.
    """
    from fedvine.results import export as exporting
    found = exporting.export(run, out, top)
    print(f"Written to {out}: {'load.py, ' if found.script else ''}README.md, the model's arrays, "
          f"and those of {len({*found.clients, *found.tables})} clients.")
    if not found.script:
        print(found.how)


def audit(
    experiments: Annotated[list[Path], typer.Argument(
        metavar="EXPERIMENT...", help="TOML files of experiments; small ones, each is run some "
        "times.")],
    settings: Annotated[list[str] | None, typer.Option(
        "--set", metavar="KEY=VALUE", help="Put a value into each experiment.")] = None,
    markdown: Annotated[Path | None, typer.Option(
        help="A folder that gets audit.md.")] = None,
) -> None:
    """Run experiments, attack what the server received, and print what it could read."""
    from fedvine.experiments.command import from_command
    from fedvine.results import audit as auditing
    wanted = [from_command(str(file), {}, settings or [])[0] for file in experiments]
    done = [auditing.audit(one, file.stem, options.tell)
            for one, file in zip(wanted, experiments, strict=True)]
    for one in done:
        print(f"{one.name}: {one.method}", *auditing.table(one), "", sep="\n")
    if markdown is not None:
        command = " ".join(["fedvine audit", *map(str, experiments), *(
            f"--set {text}" for text in settings or []), f"--markdown {markdown}"])
        print(f"Written to {auditing.write_page(done, command, markdown)}")


def cite(
    methods: Annotated[list[str] | None, typer.Argument(
        metavar="[METHOD]...", autocompletion=completion.methods, help="Methods' names.")] = None,
) -> None:
    """Print BibTeX of the methods' papers and of fedvine."""
    from fedvine.results import cite as citing
    print(citing.cite(methods or []))
