"""The command that attacks the record of an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedvine.cli import options


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
