"""``python -m benchmarks NAME... [--json FILE]``; without a name, all of them.

Commands with arguments of their own, one at a time: ``kill9``, ``kill9-federation``,
``kill9-secure``, ``attack``, ``mutants``, ``odd-streams``, ``dynamic``, ``living --kill``,
``living --federation``, ``contract-tls``, ``soak``, ``backbones``,
``scale``, ``ray``, ``gpu``, ``gate``, ``fortnight``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import runpy
import sys
from pathlib import Path

import torch

COMMANDS = {"kill9": "_kill9", "kill9-federation": "_kill9_federation",
            "kill9-secure": "_kill9_secure", "attack": "_attack",
            "mutants": "_mutants", "odd-streams": "_odd_streams", "dynamic": "_dynamic",
            "living --kill": "_living_kill", "living --federation": "_living_federation",
            "contract-tls": "_contract_tls", "soak": "_soak",
            "poisoning": "_poisoning", "backbones": "_backbones",
            "scale": "_scale", "ray": "_ray", "gpu": "_gpu",
            "gate": "_gate", "fortnight": "_fortnight"}


def main() -> None:
    """Print one line a figure: ours, the obvious way, the ratio, the floor."""
    for words in (1, 2):
        if found := COMMANDS.get(" ".join(sys.argv[1:1 + words])):
            del sys.argv[1:1 + words]
            runpy.run_module(f"benchmarks.{found}", run_name="__main__")
            return
    names = [m.name for m in pkgutil.iter_modules([str(Path(__file__).parent)])
             if m.name[0] != "_"]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument("--json", type=Path, help="write the figures to FILE")
    given = parser.parse_args()
    unknown = set(given.names) - set(names)
    if unknown:
        parser.error(f"no benchmark is called {sorted(unknown)[0]}; there are {', '.join(names)}")
    torch.set_num_threads(1)
    rows = []
    print(f"{'what':58} {'ours':>10} {'other':>10} {'ratio':>7} {'floor':>10}")
    for name in given.names or names:
        for row in importlib.import_module(f"benchmarks.{name}").measure():
            rows.append(row)
            print(f"{row['name']:58} {row['ours']:10.4f} {row['other']:10.4f} "
                  f"{row['ratio']:7.3f} {row['floor']:10.4f}", flush=True)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
