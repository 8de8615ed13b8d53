"""
Labels of nodes, class by class
===============================

Banks know the kind of some of their accounts. New kinds turn up as time goes on, and a model that
learns them must not forget the old ones.
"""

# %%
# A graph of accounts, made up: neighbours are mostly of one kind, and features say a little.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import fedvine as fv
from fedvine.data.graph import Graph
from fedvine.tasks.task_plan import by_task

draw = np.random.default_rng(0)
kinds, accounts = 6, 900
y = draw.integers(0, kinds, accounts)
x = draw.normal(size=(accounts, 16)) + 0.6 * draw.normal(size=(kinds, 16))[y]
ends = draw.integers(0, accounts, (2, 12_000))
kept = (y[ends[0]] == y[ends[1]]) | (draw.random(ends.shape[1]) < 0.03)
graph = Graph.make(x.astype(np.float32), ends[:, kept], y,
                   classes=["shop", "person", "charity", "exchange", "mule", "fund"])
print(f"{len(graph)} accounts, {graph.edges.shape[1]} edges, {kinds} kinds")

# %%
# Three banks; two kinds a task, in an order of each bank's own. ``power_plus`` has a closed form
# that follows from sums, so it forgets nothing; FedAvg is what happens without any care.

folder = Path(tempfile.mkdtemp())
banks, tasks = graph.split(by="louvain", k=3), by_task(graph, 2)
runs = {}
for method in (fv.PowerPlus(rounds=10), fv.Power(rounds=10), fv.FedAvg(rounds=10)):
    runs[method.name] = fv.run(method, banks, tasks, out=folder / method.name).finish()

figure, axes = plt.subplots(1, 3, figsize=(8, 2.6), layout="constrained", sharey=True)
for ax, (name, run) in zip(axes, runs.items(), strict=True):
    found = run.scores["test"]["mean"]
    ax.bar(["AM", "FM"], [found["am"], found["fm"]])
    ax.set(title=name, ylim=(-10, 100))
axes[0].set_ylabel("percent")
plt.show()

# %%
# AM is the mean accuracy on all tasks after the last one, FM what was forgotten. The labels of
# all accounts, with the probability that the method gives them:

found = fv.open_run(folder / "power_plus").labels().to_pandas()
print(found[["client", "node", "label", "probability", "given"]].head(5).to_string(index=False))
