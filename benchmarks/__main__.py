"""``python -m benchmarks NAME... [--json FILE] [--markdown FILE]``; "all" is all of them.

The page of --markdown has a table for each, with what it says of itself.

Commands with arguments of their own, one at a time: ``kill9``, ``kill9-federation``,
``kill9-secure``, ``attack``, ``mutants``, ``odd-streams``, ``dynamic``, ``living --kill``,
``living --federation``, ``contract-tls``, ``soak``, ``backbones``,
``scale``, ``ray``, ``gpu``, ``gate``, ``fortnight``, ``sites``,
``millions``.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import pkgutil
import platform
import re
import runpy
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import torch

from fedvine.core.files import atomic

COMMANDS = {"kill9": "_kill9", "kill9-federation": "_kill9_federation",
            "kill9-secure": "_kill9_secure", "attack": "_attack",
            "mutants": "_mutants", "odd-streams": "_odd_streams", "dynamic": "_dynamic",
            "living --kill": "_living_kill", "living --federation": "_living_federation",
            "contract-tls": "_contract_tls", "soak": "_soak",
            "poisoning": "_poisoning", "backbones": "_backbones",
            "scale": "_scale", "ray": "_ray", "gpu": "_gpu",
            "gate": "_gate", "fortnight": "_fortnight", "sites": "_sites",
            "millions": "_millions"}


def main() -> None:
    """Print one line a figure: ours, the obvious way, the ratio, the floor."""
    for words in (1, 2):
        if found := COMMANDS.get(" ".join(sys.argv[1:1 + words])):
            del sys.argv[1:1 + words]
            runpy.run_module(f"benchmarks.{found}", run_name="__main__")
            return
    names = sorted(m.name for m in pkgutil.iter_modules([str(Path(__file__).parent)])
                   if m.name[0] != "_")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument("--json", type=Path, help="write the figures to FILE")
    parser.add_argument("--markdown", type=Path, help="write a page to FILE")
    parser.add_argument("--again", action="store_true", help="take what is in --json as measured")
    given = parser.parse_args()
    if given.names in (["all"], []):
        given.names = names
    unknown = set(given.names) - set(names)
    if unknown:
        parser.error(f"no benchmark is called {sorted(unknown)[0]}; there are {', '.join(names)}")
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    if given.again and given.json and given.json.exists():
        rows = json.loads(given.json.read_text())
    measured = {row["of"] for row in rows}
    print(f"{'what':58} {'ours':>10} {'other':>10} {'ratio':>7} {'floor':>10}")
    for name in given.names:
        began, had = time.perf_counter(), len(rows)
        for row in () if name in measured else importlib.import_module(
                f"benchmarks.{name}").measure():
            rows.append({"of": name, **row})
            print(f"{row['name']:58} {row['ours']:10.4f} {row['other']:10.4f} "
                  f"{row['ratio']:7.3f} {row['floor']:10.4f}", flush=True)
        for row in rows[had:]:
            row["took"] = time.perf_counter() - began
        if given.json:
            given.json.write_text(json.dumps(rows, indent=1))
    if given.markdown:
        write_page(given.markdown, rows)


def write_page(file: Path, rows: list[dict[str, Any]]) -> None:
    """Write the page of figures: a table for each benchmark, below its own words."""
    took = {row["of"]: row["took"] for row in rows}
    lines = ["# What it costs, measured", "", "<!-- slow `scripts/bench`: an hour in all -->", "",
             *textwrap.wrap(
        f"By `scripts/bench all --markdown docs/performance.md`, on {_machine()}, one thread "
        f"unless a line says otherwise, {sum(took.values()) / 60:.0f} minutes in all. A ratio is "
        "ours over the other; on another machine compare ratios, not seconds. More pages that take "
        "longer: [sites](results/sites.md), [27](results/millions.md) and [100 million "
        "edges](results/millions-100.md), [updates of DG-CoLearn](results/dynamic.md).", 120), ""]
    for name, seconds in took.items():
        words = re.sub(r":\w+:`~?([^`]*)`", r"``\1``",
                       inspect.getdoc(importlib.import_module(f"benchmarks.{name}")) or "")
        lines += [f"## {name}", "", words.replace("``", "`"), "",
                  f"`scripts/bench {name}` takes {seconds:,.0f} s.", "",
                  "| | ours | other | ours / other | floor | goal |",
                  "|---|---:|---:|---:|---:|---|"]
        lines += [f"| {row['name']} | {_short(row['ours'])} | {_short(row['other'])} | "
                  f"{_short(row['ratio'])} | {_short(row['floor'])} | {row.get('goal', '')} |"
                  for row in rows if row["of"] == name]
        lines.append("")
    with atomic(file, "w") as out:
        out.write("\n".join(lines).rstrip() + "\n")


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" if value else ""


def _machine() -> str:
    """Return the processor's name and how many there are."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    found = re.search(r"model name\s*: (.*)", text)
    return f"{os.cpu_count()} processors ({found[1] if found else platform.machine()})"


if __name__ == "__main__":
    main()
