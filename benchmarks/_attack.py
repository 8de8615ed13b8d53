"""``scripts/attack``: a malicious site and a malicious hub, with valid kits, as real processes.

Four institutions carry out a run of flights with secure sums and safe policies. Then the same run
again with a hub that has fedvine's code changed (:mod:`benchmarks._attack_hub`,
:mod:`benchmarks._attack_sums`), that speaks FLARE to the sites and has code of its own in FLARE's
processes of one (:mod:`benchmarks._attack_flare`), and with a site that helps it; and with an
honest hub, a site with code of its own (:mod:`benchmarks._attack_site`), another user of a site's
machine, and certificates of any role. Both must end with the scores of the first. In a last run a
kit is withdrawn. What needs no other machine is tried in this process
(:mod:`benchmarks._attack_files`). Exit status 1 where anything was won.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

from benchmarks import _attack_files, _attack_flare, _attack_kits
from benchmarks._attack_flare import INSIDE
from benchmarks._attack_kits import World, environment
from benchmarks._attacker import EVE, NOTES, PHASE, VICTIM, spoilt, told
from benchmarks._kill9_federation import outcome
from fedvine.core.files import atomic
from fedvine.federation import tied

TITLES = {
    "D1": "another site, or nobody, in the place of the server",
    "D2": "a hub that asks for what a site did not agree to",
    "D3": "noise that can be drawn again", "D4": "openings of secure sums",
    "D5": "a kit that was withdrawn", "D6": "runs of one name, a table that changed",
    "D7": "false answers that end a run", "D8": "errors that tell what is in a table",
    "D9": "SQL and names of files in run folders", "D10": "poisoned updates",
    "D11": "processes that stay", "D12": "links, names, permissions, saves",
    "own 1": "a huge answer", "own 2": "messages that fill the memory",
    "own 3": "terminal codes, tags and formulas in errors and names",
    "own 4": "impossible scores and counts", "own 5": "names that are paths, other files, other "
    "runs", "own 6": "functions that give rows and reasons away under a safe policy",
    "own 7": "a second certificate for a site, minted by the hub",
    "F1": "FLARE's administrative messages, from a hub", "F2": "FLARE's jobs with code, from a hub",
    "F3": "FLARE's diagnostics, and messages inside of messages, from a hub",
    "F4": "code of the attacker's in FLARE's processes at a site",
    "F5": "operators' sessions for a site's kit, and for any role that the authority certifies",
    "F6": "another user of a site's machine",
    "own 8": "a site under another one's name", "own 9": "one row's value as a difference of sums",
    "own 10": "one site's part as a difference of sums"}


def runs(world: World, code: Path, began: float) -> bool:
    """Carry out the run undisturbed, with a malicious hub, and with a malicious site.

    Returns whether all ended alike.
    """
    kits, same = world.folder / "kits", True
    if world.serve(world.folder / "whole" / "out").wait():
        sys.exit((world.folder / "serve.log").read_text()[-3000:])
    whole = outcome(world.folder / "whole" / "out")
    say(began, "a run without an attack: done")
    path = os.pathsep.join([str(code), str(Path(__file__).parents[1])])
    for phase, who in (("hub", "a malicious hub, its code in place of its gate and in "
                        f"{INSIDE}'s FLARE processes, and {EVE} helps it"),
                       ("site", f"a malicious site, {EVE}")):
        for name in (EVE, INSIDE):
            tied.stop(world.clients[name], f"FEDVINE_FOR={kits / name}")
        (world.folder / "serve.log").unlink()
        with environment(PYTHONPATH=path, ATTACK_PORT=str(world.admin_port), **{PHASE: phase}):
            for name in (EVE, INSIDE):
                world.clients[name] = world.join(name)
            if phase == "hub":
                process = world.serve(world.folder / phase / "out")
        if phase == "site":         # the hub is an honest one
            process = world.serve(world.folder / phase / "out")
            _attack_kits.sign(world.folder / "serve.log", "waiting", "job starts")
            _attack_kits.a_second_serve(world)
            _attack_flare.a_sites_kit(world, EVE)
            _attack_flare.any_role(world)
            _attack_flare.another_user(world, VICTIM)
            _attack_kits.under_a_false_name(world)
        ended = process.wait()
        if phase == "hub":
            _attack_flare.evidence(world)
        equal = ended == 0 and outcome(world.folder / phase / "out") == whole
        breaks = (world.folder / "serve.log").read_text().count("ended early")
        same = same and equal and not breaks
        say(began, f"the run with {who}: {'the very same scores' if equal else 'DIFFERENT'}"
            f"{f' (exit {ended})' if ended else ''}, {breaks} breaks of its job")
        if not equal:
            print((world.folder / "serve.log").read_text()[-3000:])
    _attack_kits.a_terminated_join(world, EVE)
    world.clients[EVE] = world.join(EVE)
    _attack_kits.a_withdrawn_kit(world)
    say(began, "the run in which a kit is withdrawn: done")
    return same


def evidence(found: list[dict[str, Any]], log: str) -> list[dict[str, Any]]:
    """Put the lines of the hub's log in their places; without one an attempt did not hold."""
    refused = [line for line in log.splitlines() if line.endswith("; refused")]
    again = [line for line in log.splitlines() if "a round is played again" in line]
    for one in found:
        if one["shown"] == "gate":
            at = next((i for i, line in enumerate(refused) if f"to {one['to']}" in line), None)
            one["shown"] = "hub's log: " + (refused.pop(at)[-160:] if at is not None else
                                            "no line, it went no further than FLARE")
        elif one["shown"] == "messages":
            lines = [line for line in again if f"({one['answer']})" in line]
            one["held"] = bool(lines)
            if lines:
                one["answer"] = lines[0].split("again: ")[1]
                one["shown"] = "hub's log: " + lines[0][:160]
    return found


def show(found: list[dict[str, Any]]) -> None:
    """Print each attempt, by finding."""
    for key, title in TITLES.items():
        print(f"\n{key}: {title}")
        for one in (line for line in found if line["finding"] == key):
            print(f"  {'refused' if one['held'] else 'WON    '} {one['what']} -> {one['to']}")
            for what, text in (("answer", one["answer"]), ("shown", one["shown"])):
                clean = "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
                print(textwrap.fill(clean, 110, initial_indent=f"    {what + ':':8}",
                                    subsequent_indent=" " * 12, max_lines=3))


def page(found: list[dict[str, Any]], scratch: str, said: str) -> str:
    """Return the page of docs/results: a line an attempt, without paths of ``scratch``."""
    def cell(text: str) -> str:
        text = re.sub(r"\.[0-9a-f]{8}-[0-9a-f-]{27}", ", its job", text.replace(scratch, ""))
        clean = "".join(c for c in " ".join(text.split()) if c.isprintable())
        return textwrap.shorten(clean, 160, placeholder=" ...").replace("|", "/").replace("<", "(")

    parts = ["# What attackers tried", "Made by `scripts/attack --out docs/results/attack.md`: a "
             "hub whose code was changed, helped by one site of four; a site with code of its own; "
             "another user of a site's machine; whoever certifies; files and run folders from "
             f"others. All are real processes with valid kits. {said} What this does not cover: "
             "[who sees what](../explanation-privacy.md)."]
    for key, title in TITLES.items():
        rows = dict.fromkeys(f"| {cell(one['what'])} | {cell(one['to'])} | {cell(one['answer'])} |"
                             for one in found if one["finding"] == key)
        parts.append(f"## {title[0].upper()}{title[1:]}\n\n| tried | against | answer |\n"
                     "|---|---|---|\n" + "\n".join(rows))
    return "\n\n".join(parts) + "\n"


def say(began: float, what: str) -> None:
    """Print how far it is."""
    print(f"{time.monotonic() - began:4.0f} s  {what}", flush=True)


def main(out: Path | None) -> bool:
    """Print what was tried, also to ``out``, and what became of it; return whether nothing was won.
    """
    began, good, log = time.monotonic(), False, ""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        notes = folder / "attempts.jsonl"
        with environment(**{NOTES: str(notes)}):
            (folder / "files").mkdir()
            _attack_files.attack(folder / "files")
            say(began, "files, names and commands: done")
            world = World(folder)
            say(began, "kits, rosters and policies of four sites: done")
            try:
                good = runs(world, spoilt(folder), began)
            finally:
                world.stop()
                log = world.log()
        found = evidence(told(notes), log)
    show(found)
    won = [line for line in found if not line["held"]]
    missing = [key for key in TITLES if key not in {line["finding"] for line in found}]
    print(f"\n{len(found)} attempts in {time.monotonic() - began:.0f} s, {len(won)} of them with "
          "an effect" + "".join(f"; {key} was not tried" for key in missing))
    if out:
        with atomic(out, "w") as file:
            file.write(page(found, name, f"{len(found)} attempts, {len(won)} with an effect."))
    good = good and not won and not missing
    print("nothing was had, and nothing ended" if good else "THE ATTACK HAD AN EFFECT")
    return good


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the page of docs/results to FILE")
    sys.exit(0 if main(parser.parse_args().out) else 1)
