"""Completion in a shell: the names that may stand next, and the command that prints the script.

The script asks ``fedvine`` itself at every press of the key, so names are found without importing
methods or data sets.
"""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated

import typer

ASKED = "_FEDVINE_COMPLETE"     # set by the script: fedvine is to print names, and runs nothing


class Shell(StrEnum):
    """The shells that there is a script for."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def prepare() -> None:
    """Let typer answer a shell's question, if the process was started for one."""
    if ASKED in os.environ:
        from typer.completion import completion_init  # pyright: ignore[reportPrivateImportUsage]
        completion_init()


def completion(shell: Annotated[Shell, typer.Argument(help="The shell that is to complete.")]
               ) -> None:
    """Print the script that completes commands, options and names in a shell."""
    from typer.completion import (
        get_completion_script,  # pyright: ignore[reportPrivateImportUsage]
    )
    print(get_completion_script(prog_name="fedvine", complete_var=ASKED, shell=shell.value))


# -- names for a parameter; typer keeps those that begin with the word typed so far ---------------
def methods() -> list[str]:
    """List the methods."""
    from fedvine.core import registry
    return registry.names("methods")


def runnable() -> list[str]:
    """List the methods, and ``auto``."""
    return ["auto", *methods()]


def datasets() -> list[str]:
    """List the data sets."""
    from fedvine.core import registry
    return registry.names("datasets")


def partitions() -> list[str]:
    """List the partitions."""
    from fedvine.core import registry
    return registry.names("partitions")


def pages() -> list[str]:
    """List the tables and figures of papers, and ``all``."""
    from fedvine.papers import reproduce
    return [reproduce.ALL, *reproduce.names()]


def tunable() -> list[str]:
    """List the methods, and the papers' tables."""
    from fedvine.papers import published
    return [*methods(), *published.names()]


def shown() -> list[str]:
    """List all that ``fedvine show`` explains by name."""
    return [*methods(), *datasets(), *partitions()]
