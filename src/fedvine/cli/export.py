"""The command that writes a run's model as plain files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


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
