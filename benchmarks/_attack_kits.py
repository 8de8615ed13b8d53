"""The federation that is attacked, and attacks by kits and processes: D5, D11, and false names."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from benchmarks._attack_sums import MINTED, OTHER, THIRD
from benchmarks._attacker import EVE, tell
from benchmarks._kill9_federation import Federation
from fedvine.federation import certificates, launch, roster, site_flare, tied
from fedvine.federation import kits as kits
from fedvine.federation.account import FOLDER, Account
from fedvine.federation.demo import tables
from fedvine.federation.site_file import MEMORY, write_policy, write_site

EXPERIMENT = """\
stages = "90d"
deadline = 120.0
silence = 20.0
save_every = 0.0
travelled = false
forecasts = 0
[protocol]
negatives = 20
positives = 200
[method]
name = "fedlink_private"
capacity = 300
buffers = 2
width = 8
rounds = 4
[aggregate]
grain = 10
"""
PATIENCE = 60.0     # seconds to wait for a sign


class World(Federation):
    """Four sites with a roster and safe policies, a hub with its own authority; a second kit."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.server = folder, None
        port, admin_port = kits.free_ports(2)
        self.admin_port = admin_port
        made = kits.init(folder / "kits", "fedvine", "localhost", port, admin_port)
        expected = kits.fingerprint(made["server"])
        data = folder / "data"
        data.mkdir()
        flown = tables(data)
        rows, odd = parquet.read_table(flown[EVE]), folder / "data" / f"{THIRD}.parquet"
        parquet.write_table(rows.take(pa.array(range(0, len(rows), 2))), odd)
        flown[THIRD] = odd
        # A malicious site does not confine its own processes.
        self.made = {name: ["--unconfined"] if name == EVE else list[str]() for name in flown}

        def site(kit: Path, name: str, replace: str | None = None) -> None:
            asked = kits.request(folder / f"{kit.name}-request", name, "fedvine")
            kits.pack(kits.approve(folder / "kits", asked, replace),
                      folder / f"{kit.name}-request", kit, expected)

        with ThreadPoolExecutor(2) as threads:
            for done in [threads.submit(site, folder / "kits" / name, name) for name in flown]:
                done.result()
        site(folder / MINTED, OTHER, OTHER)     # its answer takes the place of the true one
        roster.together(folder / "kits" / name for name in flown)
        for name, table in flown.items():
            kit = folder / "kits" / name
            write_site(kit, {"data": {"source": str(table), "src": "tailnum", "dst": "dest",
                                      "time": "time"}, "secret": "of the sites alone"})
            write_policy(kit)
            policy = (kit / "site.toml").read_text()
            (kit / "site.toml").write_text(re.sub(
                r'(share = \["sums", "none"\]\n)', r'\1"aggregate.noise" = {least = 1.0}\n',
                policy))
        (folder / "experiment.toml").write_text(EXPERIMENT)
        self.clients = {name: self.join(name) for name in flown}

    def log(self) -> str:
        """Return the logs of the hub's processes, of all its jobs."""
        return "\n".join(file.read_text("utf-8", "replace") for file in sorted(
            (self.folder / "kits" / "server").rglob("log.txt")))


@contextlib.contextmanager
def environment(**values: str) -> Iterator[None]:
    """Set variables of the environment for a while."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def sign(log: Path | World, *words: str) -> str:
    """Wait for a line with one of the ``words``; return it, or an empty text."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        text = log.log() if isinstance(log, World) else (
            log.read_text("utf-8", "replace") if log.exists() else "")
        for line in text.splitlines():
            if any(word in line for word in words):
                return line[-300:]
        time.sleep(0.5)
    return ""


# -- beside a run ------------------------------------------------------------------------------
def under_a_false_name(world: World) -> None:
    """Start a client with a site's kit that says it is another site."""
    kit = world.folder / "false" / OTHER
    for part in ("startup", "local"):
        shutil.copytree(world.folder / "kits" / EVE / part, kit / part)
    for file in ("fed_client.json", "sub_start.sh"):
        path = kit / "startup" / file
        path.write_text(path.read_text().replace(EVE, OTHER))
    mark = f"FEDVINE_FOR={kit}"
    process = launch.start(kit, world.folder / "false.log", mark, lambda: site_flare.command(
        kit, world.folder / "none", False))
    line = sign(world, "but claimed endpoint", "failed to verify client identity")
    tied.stop(process, mark)
    tell("own 8", f"a site registers under another one's name ({OTHER}) with its own kit",
         "the hub", line or "no sign of it", bool(line), f"hub's log: {line}")


def a_second_serve(world: World) -> None:
    """Give ``fedvine serve`` for a hub that is at work."""
    done = subprocess.run(
        [sys.executable, "-m", "fedvine", "serve", str(world.folder / "experiment.toml"), "--kit",
         str(world.folder / "kits"), "--clients", "4", "--out", str(world.folder / "second")],
        capture_output=True, text=True, timeout=5 * PATIENCE, check=False)
    said = " ".join((done.stderr or done.stdout).split())
    tell("D11", "a second fedvine serve for the same hub, which used to end the first one",
         "the hub", said, done.returncode == 2 and "Another fedvine serve" in said,
         "none: it ended before it sent anything, and no process is left")


def a_terminated_join(world: World, name: str) -> None:
    """Send SIGTERM to ``fedvine join``, and count what is left."""
    kit, left = world.folder / "kits" / name, [0]
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if words[1:5] == [b"-m", b"fedvine", b"join", str(kit).encode()]:
                os.kill(int(entry.name), signal.SIGTERM)
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and (left := tied._marked(f"FEDVINE_SITE={kit}")):
        time.sleep(0.5)
    world.clients[name].wait()      # it ends all that has its mark, so a new one comes after it
    tell("D11", "SIGTERM to fedvine join, whose FLARE client used to go on", name,
         f"{len(left)} of its processes are left", not left, "none: nothing is sent")


# -- a run of its own ----------------------------------------------------------------------------
def a_withdrawn_kit(world: World) -> None:
    """Withdraw a kit while its site works; its kit, "stolen", goes on trying (D5)."""
    # Without masks: its site was in all sums of these rows, so there are none without it.
    longer = EXPERIMENT.partition("[aggregate]")[0].replace("rounds = 4", "rounds = 40").replace(
        "fedlink_private", "local")
    (world.folder / "experiment.toml").write_text(f"quorum = 0.7\n{longer}")
    out, account = world.folder / "last", Account(world.folder / "kits" / EVE / MEMORY / FOLDER)
    process = world.serve(out)
    until = time.monotonic() + 5 * PATIENCE
    while process.poll() is None and time.monotonic() < until and not list(
            out.glob("saves/00000[1-9]*")):
        time.sleep(0.1)
    before = requests(account)
    certificates.withdraw(world.folder / "kits", EVE)
    after = requests(account)
    while process.poll() is None and not certificates.withdraw(world.folder / "kits", EVE):
        time.sleep(1.0)                         # the running server must hear of it, too
    world.leave(EVE)
    world.clients[EVE] = world.join(EVE)
    again, line = None, sign(world, "Reject disabled client")
    if not line:        # on a busy machine the run may end before the kit is tried
        process.wait()
        again, line = world.serve(world.folder / "later"), sign(world, "Reject disabled client")
    tell("D5", "a stolen kit registers again after it was withdrawn", "the hub",
         line or "no sign of it", bool(line), f"hub's log: {line}")
    code, without = process.wait(), [
        line for line in (out / "messages.jsonl").read_text().splitlines()
        if EVE in json.loads(line)["missing"]]
    more = requests(account) - after
    tell("D5", "a site whose kit was withdrawn answers to the end of the running job", EVE,
         f"{after - before} of its answers came while the hub wrote it down, {more} after; the run "
         f"went on without it for {len(without)} calls (exit {code})",
         code == 0 and more <= 2 < len(without), f"messages.jsonl: {(without or ['no line'])[0]}")
    if again is not None:
        again.wait()


def requests(account: Account) -> int:
    """Return the number of requests in an account."""
    return sum(line["requests"] for line in account.sums())
