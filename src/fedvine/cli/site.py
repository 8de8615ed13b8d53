"""The commands at a site of a real federation: join, account."""

from __future__ import annotations

import contextlib
import enum
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from fedvine.cli import options
from fedvine.cli.run import stopped_as_by_ctrl_c
from fedvine.core.errors import FedvineError


@contextlib.contextmanager
def private() -> Iterator[None]:
    """Let files that are made be readable by their user alone."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S %Z')}  {text}", flush=True)


class Side(enum.StrEnum):
    """A half of a site."""

    own = "own"
    flare = "flare"


@private()
@options.data_options(*options.NOT_OF_A_SITE)
def join(
    folder: Annotated[Path, typer.Argument(metavar="KIT", help="This site's kit.")],
    values: options.Values,
    open_classes: Annotated[bool, typer.Option(
        "--open-classes", help="The hub may read the names of the classes.")] = False,
    secret: Annotated[Path | None, typer.Option(
        help="A file with the key that all sites share; the server must not have it.")] = None,
    roster: Annotated[Path | None, typer.Option(
        help="A file with the fingerprints of all sites, for secure sums.")] = None,
    confirmed: Annotated[bool, typer.Option(
        "--confirmed", help="People at all sites read out its fingerprints.")] = False,
    policy: Annotated[bool, typer.Option(
        "--policy", help="Write a policy with safe defaults into the kit's site.toml, show it, and "
        "end: nothing is sent.")] = False,
    any_method: Annotated[bool, typer.Option(
        "--any-method", help="Take part without a policy: a run may do whatever an installed "
        "method does.")] = False,
    unconfined: Annotated[bool, typer.Option(
        "--unconfined", help="Let FLARE's processes read what this user reads: a system that "
        "cannot confine them, or containers that do.")] = False,
    only: Annotated[Side | None, typer.Option(
        help="Run one half here, the site's own or FLARE's, and the other one elsewhere; with "
        "--socket.")] = None,
    socket: Annotated[Path | None, typer.Option(
        help="The file of the socket between the two halves.")] = None,
    restored: Annotated[bool, typer.Option(
        "--restored", help="Go on with a kit from a backup: what may have been spent meanwhile "
        "counts as spent.")] = False,
    experiment: Annotated[Path | None, typer.Option(
        "--dry-run", metavar="EXPERIMENT.toml", help="Show every message that a run of this "
        "experiment would send, with sizes, and what the server learns; nothing is sent.")] = None,
) -> None:
    """Take part in a federation with a local table, which stays here."""
    from fedvine.federation import confine
    if (only is None) != (socket is None):
        raise FedvineError("--only and --socket belong together: two commands that share a socket.")
    if only == Side.flare and socket is not None:
        from fedvine.federation.launch import carry_flare
        stopped_as_by_ctrl_c()
        carry_flare(folder, _say, socket, not unconfined and bool(confine.abi()))
        return
    from fedvine.federation import launch, site_file
    if roster is not None:
        confirm_roster(folder, roster, confirmed)
    columns = {key: value for key, value in values["data"].items() if value}
    said: dict[str, Any] = {}
    if "source" in columns:
        said["data"] = columns
    elif columns:
        raise FedvineError(f"--{next(iter(columns)).replace('_', '-')} belongs to --data; name the "
                           "table, too.")
    if secret is not None:
        said["secret"] = _secret(secret)
    said |= {key: value for key, value in (
        ("threads", values["threads"]), ("device", values["device"]),
        ("open_classes", open_classes), ("any_method", any_method)) if value}
    written = None      # the file as it is
    if said or not (folder / "site.toml").exists():
        written = site_file.with_kept(folder, said)
        if "data" not in written:
            _say("no --data: this site has no table, as where the server holds the graph")
    if experiment is not None:
        found = site_file.read_site(folder) if written is None else site_file.checked_site(written)
        _show_dry_run(folder, found, experiment)
    elif policy:
        with launch.alone(folder, "join"):
            if written is not None:
                site_file.write_site(folder, written)
            print(site_file.write_policy(folder))
        print(f"Nothing was sent. Change {folder}/site.toml as you like, then: fedvine join "
              f"{folder}")
    else:
        found = written if written is not None else site_file.read_site(folder).model_dump()
        if not found.get("any_method") and not site_file.has_policy(folder):
            _agreed("This site has no policy, so a run may do whatever an installed method does. "
                    "Take part so?", f"fedvine join {folder} --policy writes one, with safe "
                    "defaults; --any-method says that none is wanted")
            written = site_file.with_kept(folder, {**said, "any_method": True})
        if not (unconfined or only or confine.abi()):
            _agreed("This system cannot confine FLARE's processes (it has no Landlock), so code "
                    "that runs in them could read all that this user reads. Take part so?",
                    "--unconfined says that containers, or a user of their own, confine them")
            unconfined = True
        stopped_as_by_ctrl_c()
        launch.join(folder, _say, values=written, confined=not unconfined, restored=restored,
                    apart=socket)


def confirm_roster(kit: Path, file: Path, confirmed: bool) -> None:
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


def _agreed(question: str, otherwise: str) -> None:
    """Ask a person; raise :class:`FedvineError` without one, or for another answer than yes."""
    if not sys.stdin.isatty():
        raise FedvineError(f"{question} Nobody is at a terminal to answer: {otherwise}.")
    if not typer.confirm(question):
        raise FedvineError(f"Nothing was sent; {otherwise}.")


def account(
    folder: Annotated[Path, typer.Argument(metavar="KIT", help="This site's kit.")],
    lines: Annotated[bool, typer.Option(
        "--lines", help="Every line that is kept, one a request, as JSON.")] = False,
) -> None:
    """Sum up what has left this site, by run and function, and what was refused (site)."""
    import json

    from rich.table import Table

    from fedvine.core.text import Terminal, shown
    from fedvine.core.units import size
    from fedvine.federation.account import FOLDER, Account
    from fedvine.federation.erasures import Erasures
    from fedvine.federation.site_file import MEMORY
    kept = Account(folder / MEMORY / FOLDER)
    if lines:
        for line in kept.lines():
            print(json.dumps(line))
        return
    sums = kept.sums()
    if not sums:
        raise FedvineError(f"{folder} has no account: no request of a server has come here.")
    table = Table("run", "function", "what left", box=None)
    for column in ("requests", "in", "out"):
        table.add_column(column, justify="right")
    table.add_column("until (UTC)")
    for one in sums:
        table.add_row(one["run"], one["function"], one["kind"], f"{one['requests']:,}",
                      size(one["in"]), size(one["out"]), one["to"][:19].replace("T", " "))
    Terminal(width=max(100, Terminal().width)).print(table)
    print(f"{sum(one['requests'] for one in sums):,} requests, "
          f"{size(sum(one['out'] for one in sums))} left since "
          f"{min(one['from'] for one in sums)[:19].replace('T', ' ')}")
    stays = [line["stays"] for line in kept.lines() if "stays" in line]
    if stays:
        print(f"{len(stays):,} answers to sums left out what is of too few, {max(stays):,} edges "
              "or nodes at most; it counts later, when there are enough.")
    for one in kept.refused().values():
        print(shown(f"{one['count']:,} x refused: {one['why']}"))
    for text in Erasures(folder / MEMORY).sentences():
        print(shown(text))


def _show_dry_run(folder: Path, found: Any, experiment: Path) -> None:
    from rich.table import Table

    from fedvine.core.text import Terminal
    from fedvine.core.units import size
    from fedvine.federation.dry_run import OTHERS, dry_run
    from fedvine.federation.site_file import known
    for line in known(found):
        print(line)
    sent, why = dry_run(folder.absolute().name, found, experiment)
    table = Table("message", "what leaves", box=None)
    for column in ("messages", "bytes, all", "largest"):
        table.add_column(column, justify="right")
    table.add_column("what the server learns", overflow="fold")
    for one in sent:
        table.add_row(one.function, one.kind, f"{one.count:,}", size(one.all), size(one.largest),
                      one.learns)
    Terminal(width=max(120, Terminal().width)).print(table)
    print(f"In all {size(sum(one.all for one in sent))}. Nothing was sent: the run was carried "
          f"out here, with {OTHERS} more sites that have this site's own table, so that as many "
          "users and items as possible are known to several sites.")
    if why:
        print(f"The run would end here: {why}")


def _secret(file: Path) -> str:
    try:
        text = file.read_text("utf-8").strip()
    except OSError as error:
        raise FedvineError(f"{file} cannot be read ({error.strerror}).") from error
    if len(text) < 16:
        raise FedvineError(f"{file} holds a key of {len(text)} characters; use 16 or more.")
    return text
