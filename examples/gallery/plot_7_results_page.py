"""
Reading a results page
======================

Every number of a results page is made from kept cells: one line of JSON a finished run, with its
settings and a digest of its data. So a page can be checked, and drawn anew, without a run.
"""

# %%
# The cells lie beside the pages. A line has the method, the seed, all settings, scores and costs.

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

here = Path.cwd()
cells = next(folder / "docs/results/cells" for folder in (here, *here.parents)
             if (folder / "docs/results/cells").is_dir())
lines = [json.loads(line) for line in (cells / "flights.jsonl").read_text().splitlines()]
print(f"{len(lines)} runs on flights; methods: {', '.join(sorted({c['method'] for c in lines}))}")

# %%
# Runs with fresh seeds (3 to 7) and the protocol of the page on forecasts: the newest of each
# method and seed that stands for the settings which ship.

def fits(cell):
    run, protocol = cell["settings"].get("run", {}), cell["settings"]["protocol"]
    return (cell["seed"] in range(3, 8) and run.get("stages") == "30d"
            and protocol.get("positives") == 2000 and not protocol.get("cold")
            and not cell["settings"]["data"].get("options"))

newest = {}
for cell in sorted(filter(fits, lines), key=lambda cell: cell["made"]):
    newest[cell["method"], cell["seed"]] = cell["summary"]["scores"]["test"]["mean"]
methods = sorted({method for method, _ in newest},
                 key=lambda m: np.mean([s["auc_new"] for (k, _), s in newest.items() if k == m]))

# %%
# The interval of a row is that of its mean over seeds. Two rows with overlapping intervals may
# still differ clearly, seed by seed: the pages compare paired differences, and mark with a dagger
# what does not clearly beat a method without a model.

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for row, method in enumerate(methods):
    values = [s["auc_new"] for (k, _), s in newest.items() if k == method]
    axes.plot(values, [row] * len(values), "o", alpha=0.4)
    axes.plot(np.mean(values), row, "k|", markersize=14)
axes.set(yticks=range(len(methods)), yticklabels=methods, xlabel="AUC of new pairs, one dot a seed")
plt.show()
