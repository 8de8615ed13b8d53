"""``scripts/bench living --kill [KILLS] [ARGUMENTS of fedvine run]``: kill -9 in nights, go on.

The nights of :mod:`benchmarks.living`, once undisturbed and once with kills at drawn moments, from
the start of the process to its end: while the table is read, while its new rows are kept, in calls,
saves and scores. After a kill the same command is given again. After the last night scores and
metrics are compared; the nights begin again until there were as many kills.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks._kill9 import difference
from benchmarks.living import ENDS, Table, carried_out, command, own_cache
from fedvine.core.rng import rng


def main(kills: int, more: list[str]) -> bool:
    """Print each kill and whether all runs are identical to the undisturbed one."""
    table, seed, done, turn, same = Table(), time.time_ns(), 0, 0, True
    draw = rng(seed, "living", "kill")
    with own_cache() as folder:
        lengths: list[float] = []
        files = [folder / f"flights-{i}.csv" for i in range(len(ENDS))]
        for file, end in zip(files, ENDS, strict=True):
            table.write(file, end)
        now = folder / "flights.csv"

        def night(number: int, out: Path) -> list[str]:
            now.unlink(missing_ok=True)
            now.hardlink_to(files[number])
            return command("fedlink", now, out, "--open", *more)

        for i in range(len(ENDS)):
            began = time.monotonic()
            carried_out(night(i, folder / "whole"))
            lengths.append(time.monotonic() - began)
        print(f"undisturbed: {', '.join(f'{s:.0f}' for s in lengths)} s; moments are drawn from "
              f"{seed}", flush=True)
        while done < kills:
            turn += 1
            out = folder / f"killed-{turn}"
            for i in range(len(ENDS)):
                length = min(lengths[i:]) if i else lengths[0]
                left = -(-kills // len(ENDS))       # kills of one night at most
                words = night(i, out)
                while True:
                    process = subprocess.Popen(words, stdout=subprocess.DEVNULL,
                                               stderr=subprocess.PIPE)
                    moment = float(draw.uniform(0.0, length))
                    try:
                        _, said = process.communicate(
                            timeout=moment if left and done < kills else None)
                    except subprocess.TimeoutExpired:
                        process.send_signal(signal.SIGKILL)
                        process.communicate()
                        done, left = done + 1, left - 1
                        saves = sorted(p.name for p in (out / "saves").glob("[0-9]*"))
                        print(f"kill {done:2} in night {i} after {moment:4.1f} of {length:.1f} s; "
                              f"last save {saves[-1] if saves else 'none'}", flush=True)
                        continue
                    if process.returncode:
                        sys.exit(f"night {i} ended with exit code {process.returncode}: "
                                 f"{said.decode()}")
                    break
            found = difference(folder / "whole", out)
            same = same and not found
            print(f"all nights are over: {found or 'scores and metrics.jsonl identical'}",
                  flush=True)
    print("identical" if same else "DIFFERENT")
    return same


if __name__ == "__main__":
    given = sys.argv[1:]
    count = int(given.pop(0)) if given and given[0].isdigit() else 20
    sys.exit(0 if main(count, given) else 1)
