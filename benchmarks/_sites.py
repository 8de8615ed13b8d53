"""Federations of 5, 10 and 20 sites on one machine: memory, seconds and bytes, with their slopes.

    scripts/bench sites [--out docs/results/sites.md] [--stages 4] [N ...]

Every site is what it is in life: ``fedvine join`` with NVIDIA FLARE's processes and a process of
its own, mutual TLS, a roster and secure sums. Flights are dealt to the sites by the aircraft, and
``fedlink_plus`` learns them by sums. Memory is what Linux calls PSS, pages that processes share
counted once in all: of a site the most of its processes together, at rest (before a job) and in a
job, the mean over sites. Seconds are of calls on as few cores as this machine has.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from benchmarks._kill9_federation import Federation
from fedvine.core.files import atomic
from fedvine.datasets import flights
from fedvine.federation.demo import links

COUNTS, STAGES, DAY = (5, 10, 20), 4, 86_400.0
PATIENCE = 1_500.0      # seconds, for a federation
EXPERIMENT = """\
stages = "{days}d"
deadline = 300.0
silence = 60.0
forecasts = 0
travelled = false
[protocol]
negatives = 20
positives = 300
[method]
name = "fedlink_plus"
share = "sums"
[aggregate]
secure = true
"""


def tables(folder: Path, sites: int, stages: int) -> dict[str, list[str]]:
    """Write the sites' tables of so many months; return the options of ``fedvine join`` by site."""
    stream = flights.load()
    t = np.asarray(stream.t)
    upto = int(np.searchsorted(t, t[0] + 30 * DAY * stages, side="right"))
    lines = np.array([f"{stream.src_ids[u]},{stream.dst_ids[i]},{at}\n" for u, i, at in zip(
        stream.src[:upto].tolist(), stream.dst[:upto].tolist(), t[:upto].tolist(), strict=True)])
    owner, options = np.asarray(stream.src)[:upto] % sites, {}
    for n in range(sites):
        file = folder / f"site-{n}.csv"
        file.write_text("tailnum,dest,time\n" + "".join(lines[owner == n]))
        options[file.stem] = links(file)
    return options


def memory(kits: Path) -> dict[str, float]:
    """Return the PSS of all processes by the kit that they are for, in MB."""
    found: dict[str, float] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, StopIteration):
            whose = next(v[12:] for v in (entry / "environ").read_bytes().decode().split("\0")
                         if v.startswith(f"FEDVINE_FOR={kits}"))
            lines = (entry / "smaps_rollup").read_text().splitlines()
            pss = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
            name = Path(whose).name if Path(whose) != kits else "hub"
            found[name] = found.get(name, 0.0) + pss / 1e3
    return found


def measured(sites: int, stages: int) -> dict[str, Any]:
    """Carry out a federation of so many sites; return what it took."""
    with tempfile.TemporaryDirectory() as name:
        folder, most = Path(name), dict[str, float]()
        options = tables(folder, sites, stages)
        made = Federation(folder, EXPERIMENT.format(days=30), options)
        try:
            began, rest, whole = time.monotonic(), {}, 0.0
            process = made.serve(folder / "out")
            while process.poll() is None and time.monotonic() < began + PATIENCE:
                now = memory(folder / "kits")
                if not (folder / "out" / "messages.jsonl").exists() and len(now) > sites:
                    rest = now
                whole = max(whole, sum(now.values()))
                most = {kit: max(most.get(kit, 0.0), now.get(kit, 0.0)) for kit in {*most, *now}}
                time.sleep(2.0)
            if process.poll() != 0:
                raise RuntimeError((folder / "serve.log").read_text()[-2000:])
            spent = time.monotonic() - began
        finally:
            made.stop()
        calls = [json.loads(line) for line in (folder / "out" / "messages.jsonl").read_text()
                 .splitlines()]
        summary = json.loads((folder / "out" / "summary.json").read_text())
    first = min(call["t"] for call in calls)
    later = [call for call in calls if call["t"] > first]
    shares = [c["up"] for c in later if c["function"] == "sum_shares"]
    return {"share": median(shares) / sites ** 2, "sites": sites,
            "rest": mean(mb for kit, mb in rest.items() if kit != "hub"),
            "job": mean(mb for kit, mb in most.items() if kit != "hub"), "hub": most["hub"],
            "all": whole, "call": median(c["seconds"] for c in later), "calls": len(later) / (
                len({c["t"] for c in later})), "run": spent,
            "bytes": (summary["bytes_up"] + summary["bytes_down"]) / sites / stages / 1e6}


def page(rows: list[dict[str, Any]], stages: int) -> str:
    """Return the page: what was measured, a line through it, and what follows for many."""
    size = np.array([row["sites"] for row in rows], float)

    def line(key: str) -> tuple[float, float]:
        slope, start = np.polyfit(size, [row[key] for row in rows], 1)
        return float(slope), float(start)

    def at(key: str, sites: float) -> float:
        slope, start = line(key)
        return start + slope * sites

    heads = {"rest": "site at rest, MB", "job": "site in a job, MB", "hub": "hub, MB",
             "all": "all, MB", "call": "a call, s", "calls": "calls a stage",
             "bytes": "MB a site and stage"}
    table = ["| sites | " + " | ".join(heads.values()) + " |", "|---:" * (len(heads) + 1) + "|"]
    form = {"call": "{:.2f}", "bytes": "{:.2f}"}
    for row in rows:
        table.append(f"| {row['sites']} | " + " | ".join(
            form.get(key, "{:,.0f}").format(row[key]) for key in heads) + " |")
    table.append("| *one more* | " + " | ".join(
        f"{round(line(key)[0], 3):+g}" for key in heads) + " |")
    share, many, edges, group = rows[-1]["share"], 10_000, 1e9, 100
    parts = ["# Many sites: measured, and what follows", f"""
        Made by `scripts/bench sites --out docs/results/sites.md`: federations on one machine of
        {os.cpu_count()} processors, flights of {stages} months dealt to the sites by the aircraft,
        `fedlink_plus` with `share = "sums"` under secure sums, every site with all of its
        processes. Memory is PSS. The last row is the slope of a line through the others.""",
             "\n".join(table), f"""
        **Fifty sites**, by these lines: {at("all", 50) / 1e3:.0f} GB on one machine, of which the
        hub has {at("hub", 50) / 1e3:.1f}; a call takes {at("call", 50):.1f} s where
        {os.cpu_count()} processors compute for all, so a stage
        {at("call", 50) * at("calls", 50):.0f} s. On machines of their own only the hub's
        part of a call grows.""", f"""
        **{many:,} sites and 10^{np.log10(edges):.0f} edges**, by arithmetic. A site has
        {edges / many:,.0f} edges, less than a client of [four cities](../performance.md), so its
        own work is seconds a stage, and its memory that of the table. The hub's part does not scale
        this way: {at("hub", many) / 1e3:,.0f} GB by the line above,
        {many * rows[-1]["bytes"] / 1e3:,.1f} GB a stage through one machine. In each secure sum
        every site sends every other a share of {share:.0f} bytes: {share * many / 1e6:.1f} MB up
        and as much down for a site, {share * many ** 2 / 1e9:.0f} GB through the hub. So it needs
        groups: {group} hubs of {group} sites each, which open their own sums and add them up under
        one more hub. Then a hub forwards {share * group ** 2 / 1e6:.1f} MB of shares a sum, has
        {at("hub", group) / 1e3:.1f} GB of memory, and no sum is of fewer than {group} sites. That
        is not built."""]
    return "\n\n".join(part if part[0] in "#|" else textwrap.fill(" ".join(part.split()), 100)
                       for part in parts) + "\n"


def main() -> bool:
    """Print a line a federation, and write the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("counts", type=int, nargs="*", default=COUNTS, metavar="N")
    parser.add_argument("--stages", type=int, default=STAGES, help="months of flights")
    parser.add_argument("--out", type=Path, help="write the page to FILE")
    given = parser.parse_args()
    rows = []
    for count in given.counts:
        rows.append(measured(count, given.stages))
        print(json.dumps({key: round(value, 3) for key, value in rows[-1].items()}), flush=True)
    if given.out:
        with atomic(given.out, "w") as out:
            out.write(page(rows, given.stages))
    return True


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
