"""A site's own file, ``<kit>/site.toml``: its table, its shared key, its policy."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomlkit

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic
from fedvine.core.ledger import Ledger
from fedvine.core.settings import build
from fedvine.data.graph import Graph
from fedvine.data.io.look import Look
from fedvine.data.stream import EventStream
from fedvine.federation.order import SiteFile
from fedvine.federation.policy import SAFE, Policy, shown

NAME, MEMORY = "site.toml", "memory"   # in a kit
LEDGER = "noise.jsonl"      # in its memory: releases of all runs on this site's table
LOCK = ".lock"      # there
Checked = Callable[[dict[str, Any]], SiteFile]


@contextmanager
def locked(memory: Path) -> Iterator[None]:
    """Hold a site's memory alone; raise :class:`FedvineError` where another process holds it."""
    memory.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(memory / LOCK, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise FedvineError(f"Another job is at work with {memory}; one at a time.") from error
    finally:
        os.close(handle)


def read_site(kit: Path) -> SiteFile:
    """Return what a site's file says; raises :class:`FedvineError` with the file and the key."""
    try:
        values = tomllib.loads((kit / NAME).read_text("utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise FedvineError(f"{kit}/{NAME} cannot be read ({error}); fedvine join writes "
                           "it.") from error
    return build(SiteFile, values, str(kit / NAME))


def checked_site(values: dict[str, Any]) -> SiteFile:
    """Return the file of these values; data and methods are opened once so that errors show now."""
    found = build(SiteFile, values, "the arguments of fedvine join")
    if found.policy is not None:
        found.policy.installed()
    if found.data is not None and not len(found.data.open()):
        raise FedvineError(f"{found.data.source} has no rows.")
    return found


def checked_apart(values: dict[str, Any]) -> SiteFile:
    """Do as :func:`checked_site`, in another process: a site's command that lasts stays small."""
    found = build(SiteFile, values, "the arguments of fedvine join")
    done = subprocess.run([sys.executable, "-m", __name__], input=found.model_dump_json(),
                          text=True, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise FedvineError(done.stdout.strip() or "The table could not be opened.")
    return found


def with_kept(kit: Path, said: dict[str, Any]) -> dict[str, Any]:
    """Return ``said`` and what the site's file, if there is one, says besides.

    A table that is said replaces the old one, and with it what was said of its classes.
    """
    if not (kit / NAME).exists():
        return said
    old = {"data", "open_classes"} if "data" in said else set[str]()
    return read_site(kit).model_dump(exclude=old, exclude_none=True, exclude_defaults=True) | said


def known(found: SiteFile) -> list[str]:
    """Return what a site's people are told before it takes part: its policy, who can read names."""
    lines = shown(found.policy)
    if found.data is not None and found.secret == SiteFile.model_fields["secret"].default:
        lines.append("this site has no secret, so names travel under a key that everybody knows, "
                     "and the hub can test guesses; fedvine join KIT --secret FILE names one")
    return lines


def has_policy(kit: Path) -> bool:
    """Return whether a site's file says what a run may do there."""
    return (kit / NAME).exists() and read_site(kit).policy is not None


def write_site(kit: Path, values: dict[str, Any], checked: Checked = checked_site) -> SiteFile:
    """Write a site's file with these values; a policy that it has stays as it is."""
    found = checked(values)
    has = has_policy(kit)
    text = tomlkit.dumps(found.model_dump(exclude={"policy"} if has else None, exclude_none=True,
                                          exclude_defaults=True))
    if has:
        text += "\n" + _policy(kit)
    return _write(kit, text)


def write_policy(kit: Path) -> str:
    """Add :data:`fedvine.federation.policy.SAFE` to a file without a policy; return its policy."""
    if read_site(kit).policy is None:
        _write(kit, (kit / NAME).read_text("utf-8").rstrip() + "\n\n" + SAFE)
    return _policy(kit)


def _policy(kit: Path) -> str:
    """Return the text of a file's policy, comments included."""
    return tomlkit.dumps({"policy": tomlkit.parse((kit / NAME).read_text("utf-8"))["policy"]})


def counter(kit: Path) -> Path:
    """Return the file beside a kit that knows how long its ledger is."""
    return kit.parent / f".{kit.name}.spent"


def checked_ledger(kit: Path, name: str, policy: Policy | None, restored: bool) -> None:
    """Raise unless the ledger is the one that its counter knows; ``restored``: go on with it."""
    Ledger(kit / MEMORY / LEDGER, name, counter=counter(kit), restored=restored,
           **({} if policy is None else {"limit": policy.epsilon, "delta": policy.delta}))


def opener(found: SiteFile) -> Callable[..., EventStream | Graph]:
    """Return the function that opens a site's table, with the shared key of its names."""
    def open_part(look: Look | None = None) -> EventStream | Graph:
        if found.data is None:
            raise FedvineError("This site has no table; name it once with fedvine join --data.")
        part = found.data.open(look)
        for ids in [part.ids] if isinstance(part, Graph) else [part.src_ids, part.dst_ids]:
            if ids is None:
                raise FedvineError(f"{part.name} does not name its nodes; name tables of your own.")
            ids.secret = found.secret.encode()
        return part

    return open_part


def _write(kit: Path, text: str) -> SiteFile:
    found = build(SiteFile, tomllib.loads(text), str(kit / NAME))
    with atomic(kit / NAME, "w") as file:
        Path(file.name).chmod(0o600)
        file.write(text.lstrip())
    return found


def main() -> None:
    """Open the table of the values that come in; print what is wrong with it."""
    try:
        checked_site(json.loads(sys.stdin.read()))
    except FedvineError as error:
        print(error)
        sys.exit(2)


if __name__ == "__main__":
    main()
