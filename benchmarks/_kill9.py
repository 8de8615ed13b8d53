"""``python -m benchmarks._kill9 [KILLS] [ARGUMENTS of fedvine run]``: kill -9, resume, compare."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fedvine.rng import rng

RUN = ["fedlink", "--data", "flights"]


def start(out: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
    """``fedvine run ... --out OUT`` as a process."""
    return subprocess.Popen([sys.executable, "-m", "fedvine", "run", *arguments, "--out", str(out)],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main(kills: int, arguments: list[str]) -> bool:
    """Print each kill and whether the scores are identical in the end."""
    draw = rng(int(time.time()), "kill9")
    with tempfile.TemporaryDirectory() as folder:
        whole, killed = Path(folder) / "whole", Path(folder) / "killed"
        began = time.monotonic()
        start(whole, arguments).wait()
        length = time.monotonic() - began
        print(f"undisturbed: {length:.1f} s")
        done = 0
        while done < kills:
            process = start(killed, arguments)
            # Mostly short of a stage, sometimes several: so that kills fall everywhere.
            moment = float(draw.uniform(0.3, 2.0 + length / 5))
            try:
                process.wait(moment)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                done += 1
                saves = sorted(p.name for p in (killed / "saves").glob("[0-9]*"))
                print(f"kill {done:2} after {moment:4.1f} s; last save "
                      f"{saves[-1] if saves else 'none'}", flush=True)
                continue
            if done < kills:  # it got to its end: begin once more, the rest of the kills
                print("reached its end; from the start again")
                subprocess.run(["rm", "-r", str(killed)], check=True)
        start(killed, arguments).wait()
        a, b = (json.loads((f / "summary.json").read_text())["scores"] for f in (whole, killed))
        lines = [(f / "metrics.jsonl").read_text() for f in (whole, killed)]
        print("scores identical" if a == b else "SCORES DIFFER",
              "and metrics.jsonl identical" if lines[0] == lines[1] else "METRICS DIFFER")
        return a == b and lines[0] == lines[1]


if __name__ == "__main__":
    given = sys.argv[1:]
    count = int(given.pop(0)) if given and given[0].isdigit() else 20
    sys.exit(0 if main(count, given or RUN) else 1)
