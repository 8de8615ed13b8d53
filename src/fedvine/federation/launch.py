"""The files and processes behind ``fedvine serve`` and ``fedvine join``."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from glob import has_magic
from pathlib import Path
from typing import Any

from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.core.settings import assignment, build, merged
from fedvine.data import handed
from fedvine.data.io.source import exists
from fedvine.federation import confine, roster, tied
from fedvine.federation.job_files import is_job
from fedvine.federation.kits import harden_again
from fedvine.federation.order import Order, SiteFile
from fedvine.federation.site_door import Door, SiteNews
from fedvine.federation.site_file import (
    NAME,
    checked_apart,
    checked_ledger,
    counter,
    known,
    read_site,
    write_site,
)
from fedvine.federation.site_flare import FOLDER, command, exposed, libraries
from fedvine.federation.spare import ONE_HEAP

STEADY = 60.0  # seconds within which a process that ends has failed to start
PAUSE = 60.0   # longest pause before a process is started again, in seconds
TIDY = 60.0     # seconds between two looks at logs and folders of jobs
Say = Callable[[str], None]
Started = tuple[list[str], dict[str, str], Path]


def read_order(file: Path, out: Path, settings: list[str] | None = None, *, opened: bool = True,
               **given: Any) -> Order:
    """Read the order from an experiment file (each site has ``[data]`` and ``[split]`` of its own).

    ``out`` is the run folder; ``settings`` are ``KEY=VALUE``, put over those of the file.
    ``opened``: open the server's own data once, so that errors show now; False: leave them out.
    ``given`` are keys of the order from the command line; None leaves a key as it is. Raises
    :class:`FedvineError` with the file and the key, for values that are not valid.
    """
    from fedvine.experiments.experiment import with_aggregate
    try:
        values = tomllib.loads(file.read_text("utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise FedvineError(f"{file} cannot be read as an experiment ({error}).") from error
    if isinstance(values.get("method"), str):
        values["method"] = {"name": values["method"]}
    values.pop("split", None)  # each site is a client
    if not (opened and _server_holds_graph(values)):
        values.pop("data", None)  # each site has its own
    changes = list(map(assignment, settings or []))
    for change in changes:
        values = merged(values, change)
    values = with_aggregate(values)
    values |= {"out": str(out.absolute())} | {k: v for k, v in given.items() if v is not None}
    order = build(Order, values, str(file))
    if opened and order.kind().server_holds_graph and order.data is not None:
        handed.check(order.data, file, {key for change in changes for key in change.get("data", ())
                                        if isinstance(change["data"], dict)})
        order.data.open()
    return order


def _server_holds_graph(values: dict[str, Any]) -> bool:
    method = values.get("method")
    name = method.get("name") if isinstance(method, dict) else None
    return bool(name) and registry.method(str(name)).server_holds_graph  # type: ignore[attr-defined]


def start(kit: Path, log: Path, mark: str, site: Callable[[], Started] | None = None
          ) -> subprocess.Popen[bytes]:
    """Start the kit's process (server or client); it ends when this process does.

    ``mark`` (``NAME=value``) is put into its environment: by it processes left over from an earlier
    command are found and ended first, and by it :func:`fedvine.federation.tied.stop` ends all of
    it. ``site`` returns the command, environment and folder of a site's
    (:func:`fedvine.federation.site_flare.command`); None: the hub's. Raises :class:`FedvineError`
    if ``kit`` is not a kit.
    """
    tied.sweep(mark)
    kit = kit.absolute()
    script = kit / "startup" / "sub_start.sh"
    if not script.exists():
        raise FedvineError(f"{kit} is no kit; fedvine kit pack or fedvine kit local makes one.")
    for stale in ("daemon_pid.fl", "pid.fl", "shutdown.fl", "restart.fl"):
        (kit / stale).unlink(missing_ok=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    command, env, place = (["bash", str(script), "--once"],
                           {**ONE_HEAP, **os.environ, "PATH": path}, kit) if site is None else (
        site())
    with open(log, "ab") as out:
        return tied.start(command, mark, env, place, out)


def last_line(log: Path) -> str:
    """Return the last line of a process's log: printable, 200 characters at most."""
    text = log.read_bytes()[-4000:].decode("utf-8", "replace") if log.exists() else ""
    said = [line for line in ("".join(c if c.isprintable() else " " for c in line).strip()
                              for line in text.splitlines()) if line]
    return said[-1][:200] if said else "it said nothing"


@contextlib.contextmanager
def alone(kit: Path, command: str) -> Iterator[None]:
    """Lock the kit while this lasts; raise :class:`FedvineError` if another ``command`` uses it."""
    if not (kit / "startup").is_dir():
        raise FedvineError(f"{kit} is no kit; fedvine kit pack or fedvine kit local makes one.")
    with contextlib.suppress(OSError):
        kit.chmod(0o700)
    try:
        handle = os.open(kit / ".lock", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise FedvineError(f"{kit}/.lock cannot be used ({error.strerror}); delete it, or make the "
                           "kit's folder writable.") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise FedvineError(f"Another fedvine {command} is at work with {kit}; wait for it, or end "
                           "it first.") from error
    finally:
        os.close(handle)


def at_work(kit: Path) -> bool:
    """Return whether a command is at work with the kit, see :func:`alone`."""
    try:
        handle = os.open(kit / ".lock", os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(handle)


def join(kit: Path, say: Say, values: dict[str, Any] | None = None, confined: bool = True,
         restored: bool = False, apart: Path | None = None) -> None:
    """Keep this site's client running until Ctrl-C.

    ``values`` are those of :func:`fedvine.federation.site_file.write_site`, None if it was written
    before. The policy is said before anything is sent, and then what :class:`SiteNews` has.
    ``confined``: FLARE's processes may read, write and reach what they need alone. ``restored``:
    the kit's ledger is from a backup, and its owner wants to go on. ``apart``: the socket's file,
    where :func:`carry_flare` runs elsewhere; None: FLARE's process is started here.
    """
    kit = kit.absolute()
    mark, log = f"FEDVINE_SITE={kit}", kit / "client.log"
    with alone(kit, "join"):
        found = read_site(kit) if values is None else write_site(kit, values, checked_apart)
        if values is None and found.policy is not None:
            checked_apart(found.model_dump(include={"policy"}))
        harden_again(kit)
        for line in (*known(found), *(seen(kit, found, confined) if apart is None else ())):
            say(line)
        name = roster.site_name(kit)
        checked_ledger(kit, name, found.policy, restored)
        with Door(kit, name, mark, log, apart) as door:
            kept = None if apart else Kept(kit, "client", mark, say, log,
                                           lambda: command(kit, door.at, confined))
            news = SiteNews(kit, say, lambda: door.works)
            say(f"joining as {name}; Ctrl-C leaves")
            _until_ctrl_c(say, kept, news)


def carry_flare(kit: Path, say: Say, socket: Path, confined: bool) -> None:
    """Keep FLARE's process of a site running until Ctrl-C, for a site at a ``socket``.

    ``kit`` needs ``startup``, ``local`` and ``fedvine.json`` alone.
    """
    kit = kit.absolute()
    with alone(kit, "join"):
        harden_again(kit)
        say(f"FLARE's process of {roster.site_name(kit)}; the site itself is at {socket}"
            + ("" if confined else "; this system does not confine it any further"))
        kept = Kept(kit, "client", f"FEDVINE_FLARE={kit}", say, kit / "client.log",
                    lambda: command(kit, socket, confined))
        _until_ctrl_c(say, kept, None)


def _until_ctrl_c(say: Say, kept: Kept | None, news: SiteNews | None) -> None:
    try:
        while True:
            if kept:
                kept.look()
                kept.tidy()
            time.sleep(0.5)
            if news:
                news.look()
    except KeyboardInterrupt:
        say("left")
    finally:
        if kept:
            kept.stop()


def seen(kit: Path, found: SiteFile, confined: bool) -> Iterator[str]:
    """Yield what a site's people must know of what FLARE's processes may read.

    Raises :class:`FedvineError` where these could read the kit or the table itself.
    """
    if not confined:
        yield ("FLARE's processes are not confined here: code that runs in them could read all "
               "that this user reads")
        return
    tables = [] if found.data is None else [found.data.source, found.data.edges, found.data.users,
                                            found.data.items]
    for path in [kit, *(Path(text) for text in tables if text and exists(text))]:
        if place := exposed(path):
            raise FedvineError(f"{path} lies in {place}, where FLARE's processes may read, as it "
                               "has programs or libraries; move one of the two.")
    if confine.abi() < confine.NETWORK:
        yield ("this kernel confines files alone: code that runs in FLARE's processes could "
               "connect elsewhere")


class Kept:
    """A kit's process that is started again when it ends.

    The pauses before it grow while it ends within :data:`STEADY` seconds. ``failures`` counts the
    times that it ended so soon. ``who`` is "server" or "client", the name of the process and its
    log; ``mark`` and ``site`` are as in :func:`start`; ``log`` None: in the kit.
    """

    def __init__(self, kit: Path, who: str, mark: str, say: Say, log: Path | None = None,
                 site: Callable[[], Started] | None = None) -> None:
        self.kit, self.who, self.mark, self.say = kit, who, mark, say
        self.log, self.site = log or kit / f"{who}.log", site
        self.process: subprocess.Popen[bytes] | None = None
        self.failures, self._began, self._again, self._tidied = 0, 0.0, 0.0, 0.0

    @property
    def runs(self) -> bool:
        """Return whether it runs."""
        return self.process is not None and self.process.poll() is None

    def look(self) -> bool:
        """Start the process if it does not run and its pause is over; return whether it did so."""
        now = time.monotonic()
        if self.runs or now < self._again:
            return False
        if self.process is not None and not self._again:
            self.failures = self.failures + 1 if now - self._began < STEADY else 1
            pause = min(2.0 ** (self.failures - 1), PAUSE)
            self._again = now + pause
            self.say(f"the {self.who}'s process ended ({last_line(self.log)}); starting it "
                     f"again in {pause:.0f} s, see {self.log}")
            return False
        self._began, self._again = now, 0.0
        with contextlib.suppress(OSError):      # of a server that was killed; it does not run now
            drop_jobs(self.kit / "store" / "jobs")
        self.process = start(self.kit, self.log, self.mark, self.site)
        return True

    def tidy(self) -> None:
        """Bound its logs and the folders of old jobs, now and then."""
        if time.monotonic() - self._tidied > TIDY:
            self._tidied = time.monotonic()
            tidy(self.kit if self.site is None else self.kit / FOLDER, self.log, None if
                 self.site is None else 1)

    def stop(self) -> None:
        """End it and all that it started; :meth:`look` starts it anew, at once."""
        if self.process is not None:
            tied.stop(self.process, self.mark)
            self.process, self._again = None, 0.0


# -- bounds of what processes leave in a kit: their logs, and folders of old jobs ------------------
# FLARE bounds its own ``log*`` files. It does not bound what a process prints, its ``audit.log``,
# and the folder that every job leaves.
MOST = 8_000_000    # bytes of a log; as many of what was there before are kept beside it
JOBS = 10           # the newest jobs whose folders stay


def tidy(kit: Path, log: Path, keep: int | None = None) -> None:
    """Bound ``log`` and a kit's audit; drop job folders but the newest ``keep`` (None: JOBS)."""
    with contextlib.suppress(OSError):      # a full disk, say, is no reason to end a run
        for file in (log, kit / "audit.log"):
            trim(file)
        drop_jobs(kit, JOBS if keep is None else keep)


def trim(file: Path, most: int = MOST) -> None:
    """Move what a file of more than ``most`` bytes has to ``<file>.1``, and empty it.

    The file stays the same one: who writes to it appends, and goes on at its start.
    """
    if file.exists() and file.stat().st_size > most:
        shutil.copyfile(file, file.with_name(f"{file.name}.1"))
        os.truncate(file, 0)


def drop_jobs(folder: Path, keep: int = JOBS) -> None:
    """Remove the folders of jobs except for the ``keep`` newest ones, that of a running job too."""
    found = [f for f in folder.iterdir() if f.is_dir() and is_job(f.name)]
    for old in sorted(found, key=lambda f: f.stat().st_mtime)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)


# -- systemd units for the long-running commands of a federation -----------------------------------
HOMES = ("/home", "/root", "/run/user")
_UNIT = """\
[Unit]
Description={what}
Wants=network-online.target
After=network-online.target

[Service]
User={user}
WorkingDirectory={folder}
ExecStart={command}
Restart={restart}
RestartSec=15
SuccessExitStatus=130 143
KillMode=control-group
TimeoutStopSec=60
Environment=OMP_NUM_THREADS=1
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths={writable}
{homes}PrivateTmp=yes
PrivateDevices=yes
ProtectProc=invisible
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictSUIDSGID=yes
UMask=0077

[Install]
WantedBy=multi-user.target
"""


def join_unit(kit: Path, user: str) -> str:
    """Return the unit of a site: ``fedvine join``, again whenever it ends.

    It may write in the kit and the counter beside it, which is made if it is not there. It sees no
    home but what it needs of one: the kit, the table, the interpreter and its libraries.
    """
    kit = kit.absolute()
    counted = counter(kit)
    if kit.exists() and not counted.exists():
        counted.touch(0o600)
        with contextlib.suppress(OSError, LookupError):     # root prints it for somebody else
            shutil.chown(counted, user)
    tables = _tables(kit)
    kept = "".join(f"ReadOnlyPaths={_named(path, '-')}\n" for path in tables)
    return _unit("fedvine: a site of a federation", user, kit, f"join {_named(kit)}", "always",
                 kept + _homes(kit, tables), kit, counted)


def _tables(kit: Path) -> list[Path]:
    """Return the files and folders of a site's tables; of a pattern the folder that holds it."""
    data = (read_site(kit) if (kit / NAME).exists() else SiteFile()).data
    named = [] if data is None else [data.source, data.edges, data.users, data.items]
    found = [Path(text).absolute() for text in named if text and exists(text)]
    return [next(part for part in (path, *path.parents) if path.exists() or not has_magic(
        str(part))) for path in found]


def _homes(kit: Path, tables: list[Path]) -> str:
    """Return the lines on home folders: all are hidden except for the paths that the site needs.

    Of a table that is a file its folder is shown, unless that is somebody's home: a new file that
    is put in its place would not be seen else.
    """
    shown = [path.parent if path.is_file() and len(path.parents) > 3 else path for path in tables]
    needed = [Path(sys.executable).parent, *map(Path, libraries()), *shown]
    inside = [path for path in needed if any(path.is_relative_to(home) for home in HOMES)]
    if not inside and not any(kit.is_relative_to(home) for home in HOMES):
        return "ProtectHome=yes\n"
    return "ProtectHome=tmpfs\n" + "".join(
        f"BindReadOnlyPaths={_named(path)}\n" for path in dict.fromkeys(inside)) + (
        f"BindPaths={_named(kit)} {_named(counter(kit))}\n")


def serve_unit(hub: Path, user: str, experiment: Path, clients: int, out: Path) -> str:
    """Return the unit of the hub: ``fedvine serve`` until the run ends, also over restarts."""
    hub, out = hub.absolute(), out.absolute()
    return _unit("fedvine: the server of a federation", user, hub,
                 f"serve {_named(experiment)} --kit {_named(hub)} --clients {clients} "
                 f"--out {_named(out)}",
                 "on-failure", "ProtectHome=read-only\n", hub, out.parent)


def _named(path: Path, before: str = "") -> str:
    """Return a path in a unit's syntax; raises :class:`FedvineError` where there is none.

    With ``before`` "-" it need not be there when the unit starts.
    """
    text = str(path.absolute())
    if not text.isprintable() or '"' in text or "\\" in text:
        raise FedvineError(f"{text!r} cannot be named in a unit; move it to a plainer path.")
    text = before + text.replace("%", "%%")
    return f'"{text}"' if " " in text else text


def _unit(what: str, user: str, folder: Path, arguments: str, restart: str, homes: str,
          *writable: Path) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", user):
        raise FedvineError(f"{user!r} is no user's name; give a plain one with --user.")
    program = _named(Path(sys.executable).with_name("fedvine"))
    return _UNIT.format(what=what, user=user, folder=_named(folder).strip('"'),
                        command=f"{program} {arguments}", restart=restart, homes=homes,
                        writable=" ".join(map(_named, writable)))
