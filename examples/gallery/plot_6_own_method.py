"""
A method of your own
====================

A method is one class: its fields are constants, ``round`` shows one communication round, and
functions marked ``@on_client`` run where the data are. The library splits, calls, scores, counts
bytes and saves.
"""

# %%
# This one counts. Each client counts its edges to each item; the server gets the clients' totals
# and sends their mean back; a score is the count in units of it.

from typing import ClassVar

import numpy as np
import pandas as pd

import fedvine as fv
from fedvine.core import Number


class Often(fv.Method):
    """Score an item by its count at the client, in units of the clients' mean activity."""

    name: ClassVar[str] = "often"
    rounds: int = fv.Field(default=1, ge=1, description="communication rounds a stage")
    keep: float = fv.Field(default=0.5, ge=0, le=1, description="share of a count that stays when "
                           "a new stage arrives")

    def start(self, world):
        return fv.Server(mean=1.0)

    def setup(self, client):
        client.counts = np.zeros(0)

    def arrive(self, server, clients, at):
        clients.call(self.observe)

    def round(self, server, clients, at):
        sent = list(clients.call(self.activity, expect=Number(low=0)))
        server.mean = max(sum(sent) / max(len(sent), 1), 1.0)

    def answer(self, server, clients, at):
        return clients.call(self.predict, server.mean)

    @fv.on_client
    def observe(self, client):
        counts = np.bincount(client.stage.dst, minlength=len(client.counts)).astype(float)
        counts[:len(client.counts)] += self.keep * client.counts
        client.counts = counts

    @fv.on_client
    def activity(self, client):
        return float(client.counts.sum())

    @fv.on_client
    def predict(self, client, mean, queries):
        known = np.append(client.counts, 0.0)
        return known[np.minimum(queries.dst, len(client.counts))] / mean


# %%
# It is a method like any other at once: resumable, scored by the same protocol, and carried by a
# federation on real machines.

draw = np.random.default_rng(0)
rows = 5000
table = pd.DataFrame({"user": [f"u{u}" for u in draw.integers(0, 100, rows)],
                      "item": [f"i{i}" for i in np.minimum(draw.zipf(1.5, rows), 80)],
                      "at": np.arange(rows), "region": draw.choice(["north", "south"], rows)})
stream = fv.from_frame(table, src="user", dst="item", time="at", client="region")
regions, stages = stream.split(by="region"), stream.by_count(rows // 10)
for method in (Often(), Often(keep=1.0), fv.Popularity()):
    scores = fv.run(method, regions, stages, seed=0).finish().scores["test"]["mean"]
    print(f"{method!r:40.40}  AUC {scores['auc']:.3f}  of new pairs {scores['auc_new']:.3f}")

# %%
# ``fedvine.testing.check_method(Often)`` runs the contract suite: saves and resumes, bad replies,
# late clients, equal scores through bytes. It names the rule that a method breaks.
