"""``scripts/bench attack``: a malicious site with a valid kit, as real processes with mutual TLS.

Three institutions carry out a run of flights. LGA runs code of its own in place of fedvine's
(:mod:`benchmarks._attacker`): it answers the server, and meanwhile asks the two others for their
graphs and tells them to forget their memory, as the server would ask them (unsealed, with its own
seal, with seals that the server sent to it); then it sends FLARE's own commands that end jobs and
processes.
The run must end with the scores of one that nobody disturbed, without a break, and no request of
LGA's may be answered: first with the seals alone (the hub's gate taken out), then with both.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import fedvine as package
from benchmarks._kill9_federation import Federation, outcome
from fedvine.federation import tied
from fedvine.federation.demo import fedvine

EVE = "LGA"


def spoilt(folder: Path) -> Path:
    """A copy of fedvine in which the desk is the attacker's."""
    code = folder / "code"
    shutil.copytree(Path(package.__file__).parent, code / "fedvine",
                    ignore=shutil.ignore_patterns("__pycache__"))
    with open(code / "fedvine" / "federation" / "flare.py", "a") as file:
        file.write("\n\nif os.environ.get('FEDVINE_SITE', '').endswith('/" + EVE + "'):\n"
                   "    from benchmarks._attacker import Desk\n")
    return code


def without_gate(kits: Path) -> None:
    """Take the gate out of the hub's kit, so that the seals stand alone."""
    file = kits / "server" / "local" / "resources.json"
    resources = json.loads(file.read_text())
    resources["components"] = [c for c in resources["components"] if c["id"] != "gate"]
    file.write_text(json.dumps(resources))


def main() -> bool:
    """Print what was tried, what was answered, and whether the run was disturbed."""
    good = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        federation = Federation(folder)
        kits, log = folder / "kits", folder / "kits" / EVE / "attack.jsonl"
        settings = kits / "server" / "local" / "resources.json"
        kept = settings.read_text()
        try:
            began = time.monotonic()
            if federation.serve(folder / "whole" / "out").wait():
                sys.exit((folder / "serve.log").read_text()[-2000:])
            print(f"undisturbed: {time.monotonic() - began:.0f} s", flush=True)
            whole = outcome(folder / "whole" / "out")
            tied.stop(federation.clients[EVE], f"FEDVINE_FOR={kits / EVE}")
            path = os.pathsep.join([str(spoilt(folder)), str(Path(__file__).parents[1])])
            for gate in (False, True):
                settings.write_text(kept)
                if not gate:
                    without_gate(kits)
                log.unlink(missing_ok=True)
                (folder / "serve.log").unlink()
                with _environment(PYTHONPATH=path, **({"FEDVINE_ENDS": "1"} if gate else {})):
                    federation.clients[EVE] = fedvine(
                        "join", str(kits / EVE), kit=kits / EVE, log=folder / f"{EVE}.log")
                out = folder / ("both" if gate else "seals") / "out"
                code = federation.serve(out).wait()
                tied.stop(federation.clients[EVE], f"FEDVINE_FOR={kits / EVE}")
                tried = [json.loads(line) for line in log.read_text().splitlines()]
                answered = [t for t in tried if not t["answer"].startswith("refused")
                            and t["what"] != "task/report_job_failure"]  # heard, without effect
                breaks = (folder / "serve.log").read_text().count("ended early")
                same = code == 0 and outcome(out) == whole
                good = good and same and not breaks and not answered and len(tried) > 30
                print(f"{'seals and gate' if gate else 'seals alone'}: {len(tried)} requests and "
                      f"commands, {len(answered)} answered, {breaks} breaks of the run, scores "
                      f"{'identical' if same else f'DIFFERENT (exit {code})'}", flush=True)
                for one in answered if answered else tried if "-v" in sys.argv else []:
                    print(f"  {one['what']} to {one['to']}: {one['answer']}")
        finally:
            federation.stop()
    print("nothing was had, nothing ended" if good else "THE ATTACK HAD AN EFFECT")
    return good


class _environment:
    """Variables of the environment, for a while."""

    def __init__(self, **values: str) -> None:
        self.values, self.before = values, dict(os.environ)

    def __enter__(self) -> None:
        os.environ.update(self.values)

    def __exit__(self, *_: object) -> None:
        os.environ.clear()
        os.environ.update(self.before)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
