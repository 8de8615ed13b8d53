"""
A table of your own
===================

A table with a row for each edge is all that is needed: columns of users, items and times, and the
column of the client that owns the row.
"""

# %%
# Three towns, each with shops and customers, made up; the table could as well be a CSV or Parquet
# file, a folder of them, or a query (``fv.read``).

import numpy as np
import pandas as pd

import fedvine as fv

draw = np.random.default_rng(0)
rows = 4000
town = draw.integers(0, 3, rows)
customer = draw.integers(0, 80, rows) + 80 * town
taste = (customer % 4 + draw.integers(0, 2, rows) * (draw.random(rows) < 0.3)) % 4
table = pd.DataFrame({
    "customer": [f"c{c}" for c in customer],
    "product": [f"p{p}" for p in taste * 10 + draw.integers(0, 10, rows)],
    "town": np.array(["ayr", "bath", "cork"])[town],
    "at": np.datetime64("2026-01-01", "s") + np.sort(draw.integers(0, 86_400 * 90, rows)),
})
print(table.tail(3).to_string(index=False))

# %%
# What is odd in a table is said before anything is computed: unused columns, repeated rows, times
# that look like amounts. Here nothing is.

stream = fv.from_frame(table, src="customer", dst="product", time="at", client="town")
towns = stream.split(by="town")
weeks = stream.by_time("7d")
print(f"{len(weeks)} weeks; edges of each town:",
      {name: len(part) for name, part in towns.parts.items()})

# %%
# The first weeks are learned, then come validation and test. Each town answers with its own
# numbers.

run = fv.run(fv.FedLinkPlus(), towns, weeks, seed=0).finish()
shown = pd.DataFrame({name: {key: of[key] for key in ("auc", "auc_new", "mrr")}
                      for name, of in run.scores["test"]["client"].items()}).T
print(shown.round(3).to_string())

# %%
# The bytes that moved, and the seconds that were computed, are counted as if all towns were on
# machines of their own.

print({key: run.summary[key] for key in ("bytes_up", "bytes_down") if key in run.summary})
