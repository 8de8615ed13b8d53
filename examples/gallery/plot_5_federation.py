"""
A federation on one laptop
==========================

The same run as real processes: a server and two sites with keys, certificates and mutual TLS, each
site with a table of its own. It needs the extra ``flare``.
"""

# %%
# Two hospitals' tables, made up, each in a folder that only its own site reads.

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

folder = Path(tempfile.mkdtemp())
draw = np.random.default_rng(0)
for name in ("north", "south"):
    rows = 1500
    patient = draw.integers(0, 60, rows)
    pd.DataFrame({"patient": [f"{name[0]}{p}" for p in patient],
                  "ward": [f"w{w}" for w in (patient + draw.integers(0, 3, rows)) % 12],
                  "at": np.sort(draw.integers(0, 86_400 * 60, rows))}
                 ).to_csv(folder / f"{name}.csv", index=False)
(folder / "experiment.toml").write_text('method = "fedlink_plus"\nstages = "10d"\n')


def fedvine(*arguments, **more):
    """Return a process of the command ``fedvine``."""
    return subprocess.Popen([sys.executable, "-m", "fedvine", *arguments], cwd=folder, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            env={**os.environ, "COLUMNS": "100"}, **more)


# %%
# One person makes all keys here. In earnest each site makes its own and the hub signs it, in four
# steps (the how-to on real machines).

print(fedvine("kit", "local", "kits", "--clients", "north,south").communicate()[0])

# %%
# Two sites and the server, as they would be on three machines. What travels are counts and
# derivatives of some sixty weights; ``--dry-run`` of ``fedvine join`` lists the messages
# beforehand. These sites have no policy, which ``--any-method`` says; in earnest ``--policy``
# writes one.

sites = [fedvine("join", f"kits/{name}", "--data", f"{name}.csv", "--src", "patient",
                 "--dst", "ward", "--time", "at", "--any-method") for name in ("north", "south")]
server = fedvine("serve", "experiment.toml", "--kit", "kits", "--clients", "2", "--out", "run")
print(server.communicate()[0][-1500:])
for site in sites:
    site.terminate()
    site.communicate()

# %%
# Forecasts stay at the sites.

print(fedvine("predict", "kits/north", "--user", "n7", "--top", "3").communicate()[0])
