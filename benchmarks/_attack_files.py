"""Attacks by files, names and commands, without other machines: D6, D8 to D10, D12, and sums."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks import _poisoning
from benchmarks._attacker import tell
from fedvine.cli import main as cli
from fedvine.core.errors import FedvineError
from fedvine.data.spec import Data
from fedvine.engines.remote import Refusal
from fedvine.federation.launch import join_unit
from fedvine.federation.site import same_table
from fedvine.federation.site_table import SiteTable

NAMES = ["[/red]", r"$\frac{$", "<script>alert(1)</script>", '=HYPERLINK("x","y")', "esc\x1b[2J"]
DAMAGES: list[tuple[str, str, Callable[[bytes], bytes]]] = [
    ("a position.json with t = 1e9", "position.json",
     lambda old: json.dumps({**json.loads(old), "t": 10 ** 9}).encode()),
    ("a save with one bit changed", "server.safetensors",
     lambda old: old[:-1] + bytes([old[-1] ^ 1]))]
NONE = "none: no site is asked"
TINY = ["--set", "method.rounds=1", "--set", "method.width=4", "--set", "method.capacity=20"]


def command(*given: object) -> tuple[int, str]:
    """Carry out a command line; return its code, and what it said."""
    out = io.StringIO()
    with contextlib.redirect_stderr(out), contextlib.redirect_stdout(out):
        try:
            cli.main([str(a) for a in given])
            code = 0
        except SystemExit as stopped:
            code = int(stopped.code or 0)
    return code, " ".join(out.getvalue().split())


def refused(finding: str, what: str, *given: object, unless: Path | None = None) -> None:
    """Write down a command that must end in a sentence, and not make the file ``unless``."""
    code, said = command(*given)
    tell(finding, what, "a person", said, code == 2 and "Traceback" not in said and not (
        unless and unless.exists()), NONE)


def attack(folder: Path) -> None:
    """Try all of it in an empty ``folder``."""
    table = folder / "table.csv"
    with open(table, "w", newline="") as file:
        csv.writer(file).writerows([["src", "dst", "time", "site"], *(
            [NAMES[i % 5], NAMES[i * i % 5] + str(i % 3), 1000 + 10 * i, NAMES[i % 3]]
            for i in range(120))])
    run = ["run", "fedlink", "--data", table, "--client", "site", *TINY, "--out"]
    named(folder, run)
    copied(folder, run)
    for number, (what, name, change) in enumerate(DAMAGES):
        command(*run, place := folder / f"damaged-{number}")
        (place / "summary.json").unlink()
        for file in place.glob(f"saves/[0-9]*/{name}"):
            file.write_bytes(change(file.read_bytes()))
        refused("D12", what, *run, place)
    precious, link = folder / "precious", folder / "linked"
    precious.write_text("mine")
    link.mkdir()
    (link / ".lock").symlink_to(precious)
    refused("D12", "a .lock that is a link to another file", *run, link)
    tell("D12", "the same: the file that the link names", "a person",
         f"holds {precious.read_text()!r} as before", precious.read_text() == "mine", NONE)
    refused("D12", "kit local with a client called server", "kit", "local", folder / "new",
            "--clients", "server,ok", unless=folder / "new")
    try:
        answer, held = join_unit(folder, "me\nExecStartPre=/bin/evil"), False
    except FedvineError as error:
        answer, held = str(error), True
    tell("D12", "kit systemd --user with a line of its own in it", "a person", answer, held, NONE)
    tables(folder)
    poisoned()


def named(folder: Path, run: list[object]) -> None:
    """Use names that act as markup, mathematics, tags, formulas and terminal codes."""
    code, said = command(*run, folder / "named")
    page = folder / "page.html"
    reported, _ = command("report", folder / "named", "--out", page)
    text = page.read_text() if page.exists() else "<script"
    tell("D12", "clients and items called [/red], $\\frac{$, <script>, =HYPERLINK(), ESC[2J",
         "a person", "the run ends, its report has no tag of theirs" if not code else said,
         code == reported == 0 and text.count("<script") == 2 and "\x1b" not in said, NONE)
    mode = stat.S_IMODE((folder / "named").stat().st_mode)
    tell("D12", "another user of the machine reads a run folder", "a person",
         f"mode of the folder {mode:o}", mode & 0o077 == 0, NONE)
    who = folder / "forecasts.csv"
    code, said = command("predict", folder / "named", "--all", "--out", who)
    cells = [cell for row in csv.reader(io.StringIO(who.read_text())) for cell in row] if (
        who.exists()) else ["="]
    tell("D12", "a formula in a table of forecasts", "a person", said if code else
         "no cell begins with =", not any(cell[:1] == "=" for cell in cells), NONE)


def copied(folder: Path, run: list[object]) -> None:
    """Let a run folder's experiment name another file, or SQL that writes one (D9)."""
    stolen = folder / "stolen.csv"
    for what, source in (
            ("SQL that writes a file (COPY)", f"COPY (SELECT 1) TO '{stolen}'"),
            ("SQL that reads any file (read_text)",
             f"SELECT content AS src, 1 AS dst, 2 AS time FROM read_text('{folder}/precious')"),
            ("SQL of two statements", f"SELECT * FROM '{folder}/table.csv'; "
                                      f"COPY (SELECT 1) TO '{stolen}'")):
        refused("D9", f"an experiment whose table is {what}", "run", "fedlink", "--data", source,
                *TINY, "--out", folder / "sql", unless=stolen)
    command(*run, folder / "good")
    file = folder / "good" / "experiment.toml"
    file.write_text(file.read_text().replace(
        str(folder / "table.csv"), f"COPY (SELECT 1) TO '{stolen}'"))
    shutil.rmtree(folder / "good" / "data")     # what the run kept of its table
    refused("D9", "fedvine predict on a run folder whose experiment has such SQL", "predict",
            folder / "good", "--client", NAMES[0], "--user", NAMES[0], unless=stolen)
    place = folder / "t=9"
    place.mkdir()
    (place / "a[1]*.csv").write_text("src,dst,time\nu,v,1\n")
    found = Data(source=str(place / "a[1]*.csv")).open()
    tell("D9", "a file's name that is a pattern, in a folder called t=9", "a person",
         f"{len(found)} row, of that file alone", len(found) == 1, NONE)


def tables(folder: Path) -> None:
    """Change a site's table under a run (D6); subtract two sums of its columns."""
    def read(rows: range) -> Data:
        (folder / "edges.csv").write_text("src,dst,time\n" + "".join(
            f"u{i},v,{i}\n" for i in rows))
        (folder / "users.csv").write_text("user,age\n" + "".join(f"u{i},{i}\n" for i in rows))
        return Data(source=str(folder / "edges.csv"), users=str(folder / "users.csv"))

    def tried(finding: str, what: str, ask: Callable[[], object]) -> None:
        try:
            ask()
            tell(finding, what, "a site", "ANSWERED", False)
        except Refusal as error:
            tell(finding, what, "a site", str(error), True, f"code {error.sent[0]}")

    same_table(read(range(20)).open(), folder / "known.json")
    tried("D6", "a run goes on after a site's table was changed",
          lambda: same_table(read(range(1, 21)).open(), folder / "known.json"))
    site = SiteTable(read(range(40)).open, grain=10, given=folder / "sums.json")
    first = site.tables(20.5)
    again = site.tables(21.5)
    tell("own 9", "sums of columns up to one time and up to the next, for one row's value",
         "a site", "the same sums again" if again == first else "OTHERS", again == first,
         "its sums.json")


def poisoned() -> None:
    """Let one of five clients send -1000 times its change (D10)."""
    torch.set_num_threads(1)
    attack = _poisoning.ATTACKS[1]
    clean, none, median = (_poisoning.score("fedlink", 5, 1, what, rule) for what, rule in (
        ("nothing", "mean"), (attack, "mean"), (attack, "median")))
    tell("D10", f"one of five clients of fedlink: {attack}", "the others",
         f"their AUC is {clean:.3f} undisturbed, {none:.3f} with the plain mean, and {median:.3f} "
         'with aggregate.rule = "median"', bool(np.isfinite(median)) and median > clean - 0.05,
         "fedvine status names the norm")
