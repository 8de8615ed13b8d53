"""
A model that lives
==================

Tables grow. A run that is opened goes on when its table has new rows: it learns the stages that are
whole by then, each scored before it is learned, at the cost of what is new.
"""

# %%
# Sixty days are there on the first evening.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fedvine as fv

folder = Path(tempfile.mkdtemp())
draw = np.random.default_rng(1)
rows = 6000
days = np.sort(draw.random(rows) * 90)
user = draw.integers(0, 60, rows)
item = (user * 3 + draw.integers(0, 6, rows) + np.where(days > 72, 40, 0)) % 90
table = pd.DataFrame({"user": [f"u{u}" for u in user], "item": [f"i{i}" for i in item],
                      "at": days * 86_400, "site": np.where(user % 2, "north", "south")})
table[table["at"] < 60 * 86_400].to_csv(folder / "edges.csv", index=False)

experiment = fv.Experiment.model_validate({
    "method": {"name": "fedlink_plus"}, "stages": "5d", "open_end": True,
    "data": {"source": str(folder / "edges.csv"), "src": "user", "dst": "item", "time": "at",
             "client": "site"}})

# %%
# The same call every evening reads the table, learns what is whole, and leaves what it learned
# before as it is. (``fv.follow``, and ``--follow`` on the command line, call themselves until
# they are stopped.)

measured = {}
for evening in (60, 65, 70, 75, 80, 85, 90):
    table[table["at"] < evening * 86_400].to_csv(folder / "edges.csv", index=False)
    run = experiment.run(folder / "run")
    for stage in run:
        for t, by_client in stage.found.items():
            measured[t] = np.mean([found["scores"]["auc"] for found in by_client.values()])
    print(f"day {evening}: stages scored so far: {len(measured)}")

# %%
# After day 72 tastes change. The scores say so on the next evening, and recover as the new days
# are learned.

figure, axes = plt.subplots(figsize=(6, 2.5), layout="constrained")
axes.plot([5 * (t + 1) for t in measured], list(measured.values()), marker="o")
axes.axvline(72, color="grey", linewidth=1)
axes.set(xlabel="day", ylabel="AUC, next stage")
plt.show()

# %%
# Tomorrow's forecasts of everybody, for the shop next door that wants a file.

fv.Forecasts(run).every(3, folder / "forecasts.csv")
print(pd.read_csv(folder / "forecasts.csv").head(6).to_string(index=False))
