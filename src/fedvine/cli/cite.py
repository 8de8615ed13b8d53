"""The command that prints what to cite."""

from __future__ import annotations

from typing import Annotated

import typer

from fedvine.cli import completion


def cite(
    methods: Annotated[list[str] | None, typer.Argument(
        metavar="[METHOD]...", autocompletion=completion.methods, help="Methods' names.")] = None,
) -> None:
    """Print BibTeX of the methods' papers and of fedvine."""
    from fedvine.results import cite as citing
    print(citing.cite(methods or []))
