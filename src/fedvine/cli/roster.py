"""A site's roster on the command line: print the own fingerprint, confirm those of all sites."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedvine.core.errors import FedvineError


def fingerprint(folder: Annotated[Path, typer.Argument(metavar="KIT", help="This site's kit.")]
                ) -> None:
    """Print this site's line of the roster: its name and its key's fingerprint (site)."""
    from fedvine.federation.roster import own_line
    print(own_line(folder))
    print("Read it out to a person at every other site, by telephone or face to face, and write "
          "down theirs; not through the hub.\nA text file with one such line for every site, this "
          "one too, is the roster: fedvine join KIT --roster FILE", file=sys.stderr)


def confirm(kit: Path, file: Path, confirmed: bool) -> None:
    """Take the roster in ``file`` into the kit, once a person says that it was confirmed.

    ``confirmed``: the person has said so on the command line. Nothing is asked for a roster that
    the kit has already. Raises :class:`FedvineError` if it is not a roster with this kit's own
    line, or nobody confirms it.
    """
    from fedvine.federation.roster import checked, keep, kept, own_line
    found = checked(kit, file)
    if found == kept(kit):
        return
    own = own_line(kit).rsplit(None, 1)[0]
    print(f"The roster in {file}:", *(f"  {n}  {p}" + (" (this site)" if n == own else "")
                                      for n, p in sorted(found.items())), sep="\n")
    asked = ("Did a person at each of the other sites read this fingerprint out to you, in another "
             "way than through the hub?")
    if not confirmed:
        if not sys.stdin.isatty():
            raise FedvineError(f"{asked} Then say so with --confirmed, or answer at a terminal; "
                               "the kit keeps its roster as it was.")
        if not typer.confirm(asked):
            raise FedvineError("The roster was not confirmed; the kit keeps its roster as it was.")
    keep(kit, found)
    print(f"Kept in {kit}. Secure sums go by it from the next start of fedvine join.")
