"""
First forecasts
===============

Three regions keep their own edges of users and items. One small model is learned from sums over the
regions, and forecasts which items a user will meet next.
"""

# %%
# A stream is edges with times. This one is drawn from a model of users with changing tastes, who
# travel among regions; ``fv.read`` opens a table of your own in the same way.

import matplotlib.pyplot as plt

import fedvine as fv

stream = fv.load("synthetic")
print(f"{len(stream)} edges of {stream.num_src} users and {stream.num_dst} items")

# %%
# Each edge lies at its region, and no region sees another one's edges. Time is cut into stages: a
# model that has learned the stages up to t is asked about stage t + 1.

regions = stream.split(by="region")
stages = stream.by_count(len(stream) // 10)
run = fv.run(fv.FedLinkPlus(), regions, stages, seed=0).finish()
scores = run.scores["test"]
print({client: round(of["auc"], 3) for client, of in scores["client"].items()})

# %%
# A score says little alone. Popularity knows no user, and EdgeBank says that old pairs come
# again.

rivals = {"fedlink_plus": run}
for method in (fv.Popularity(), fv.Recency(), fv.EdgeBank()):
    rivals[method.name] = fv.run(method, regions, stages, seed=0).finish()

figure, axes = plt.subplots(figsize=(6, 2.5), layout="constrained")
values = [rival.scores["test"]["mean"]["auc_new"] for rival in rivals.values()]
axes.barh(list(rivals), values)
axes.axvline(0.5, color="grey", linewidth=1)
axes.set(xlim=(0.3, 1), xlabel="AUC of pairs that did not meet before")
plt.show()

# %%
# What a user of a region will likely meet next, and whether the two have met.

client, part = next(iter(regions.parts.items()))
user = part.src_ids[int(part.src[-1])]
for forecast in run.predict(client, user, top=5):
    print(f"{forecast.item:>8}  {forecast.score:7.3f}  {'met' if forecast.known else 'new'}")
