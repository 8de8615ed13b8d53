"""Amounts, times and kinds of a labelled graph's edges, as features of their nodes.

A table of edges may say more of each edge than its two ends. A node gets, of the edges that leave
it and of those that enter it, each apart:

- the logarithm of 1 + their number
- of each column of numbers, with s(v) = sign(v) log(1 + ``|v|``): mean and deviation of s, and s of
  the sum
- of the column of times: mean and deviation of log(1 + the time since the edge before); of dates
  also means of sine and cosine of the time of day
- of each column of categories the shares of :data:`SHARES` groups, by the category's hash

Before a run each client sums these over the nodes that it begins with, and their squares
(:func:`fedvine.data.node_features.sums`). From then on a feature is given less its mean over all
clients, over its deviation, at most :data:`~fedvine.data.node_data.FAR` in size.

Every edge counts, also repeated ones, loops, and those whose other end is a node of somebody else
and not in the table of nodes: of these nothing but the values is kept. No sum depends on the order
of rows. Of a graph that grows, features are those of the edges that had come by a block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedvine.data.node_data import FAR
from fedvine.data.stream import CATEGORY, NUMBER

TIME, DATE = "time", "date"     # kinds of a column beside NUMBER and CATEGORY
SHARES = 8
DAY = 86_400.0
_NAMES = {NUMBER: ("mean", "deviation", "sum"), TIME: ("mean gap", "deviation of gaps"),
          DATE: ("mean gap", "deviation of gaps", "time of day (sine)", "time of day (cosine)"),
          CATEGORY: tuple(f"group {i}" for i in range(SHARES))}
_SIDES = "out", "in"


@dataclass(frozen=True, eq=False)
class EdgeRows:
    """The R rows of a table of edges.

    - ``src``, ``dst``: int32 [R], numbers of nodes, -1 for one that is not in the graph
    - ``values``: float64 [R, C]; of categories a hash, -1 where empty
    - ``kinds``: of each column, by its name: NUMBER, CATEGORY, TIME, or DATE (seconds since 1970);
      at most one is of times
    - ``came``: int32 [R], the block in which a row came, of a graph that grows
    - ``scale``: means and deviations of the features, float64 [2, W], where they are known
    """

    src: np.ndarray
    dst: np.ndarray
    values: np.ndarray
    kinds: dict[str, str]
    came: np.ndarray | None = None
    scale: np.ndarray | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.src)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features, in their order."""
        return tuple(name for side in _SIDES for name in (f"{side}: number", *(
            f"{side} {column}: {what}" for column, kind in self.kinds.items()
            for what in _NAMES[kind])))

    def features(self, nodes: int) -> np.ndarray:
        """Return the features of ``nodes`` nodes, float32 [nodes, len(names)]."""
        x = np.concatenate([self._of(self.src, nodes), self._of(self.dst, nodes)], 1)
        if self.scale is not None:
            mean, deviation = self.scale
            x = np.clip((x - mean) / np.where(deviation > 0, deviation, np.inf), -FAR, FAR)
        return x.astype(np.float32)

    def _of(self, end: np.ndarray, nodes: int) -> np.ndarray:
        kinds = list(self.kinds.values())
        # By node, then time, then all other values, so that equal rows give equal sums.
        keys = sorted(range(len(kinds)), key=lambda j: kinds[j] in (TIME, DATE))
        order = np.lexsort((*(self.values[:, j] for j in keys), end))
        order = order[end[order] >= 0]
        node, values = end[order], self.values[order]
        count = np.bincount(node, minlength=nodes)
        found = [np.log1p(count)]
        for j, kind in enumerate(kinds):
            v = values[:, j]
            if kind == NUMBER:
                found += [*_moments(node, _log(v), nodes),
                          _log(np.bincount(node, v, minlength=nodes))]
            elif kind == CATEGORY:
                some = v >= 0
                share = np.zeros((nodes, SHARES))
                np.add.at(share, (node[some], v[some].astype(np.int64) % SHARES), 1)
                found += list((share / np.maximum(count, 1)[:, None]).T)
            else:
                follows = node[1:] == node[:-1]
                found += _moments(node[1:][follows], np.log1p(np.diff(v)[follows]), nodes)
                if kind == DATE:
                    turn = 2 * np.pi * (v % DAY) / DAY
                    found += [_moments(node, wave(turn), nodes)[0] for wave in (np.sin, np.cos)]
        return np.stack(found, 1)

    def of(self, number: np.ndarray) -> EdgeRows:
        """Return the rows with an end that stays; ``number`` int [N] has new numbers, -1: none."""
        number = np.append(number, -1)      # also for -1
        src, dst = number[self.src], number[self.dst]
        stay = (src >= 0) | (dst >= 0)
        return replace(self.taken(stay), src=src[stay].astype(np.int32),
                       dst=dst[stay].astype(np.int32))

    def taken(self, rows: np.ndarray) -> EdgeRows:
        """Return these rows, a mask or places."""
        return replace(self, src=self.src[rows], dst=self.dst[rows], values=self.values[rows],
                       came=None if self.came is None else self.came[rows])

    def begun(self, block: int) -> EdgeRows:
        """Return all rows as come in this block."""
        return replace(self, came=np.full(len(self), block, np.int32))

    def until(self, block: int) -> EdgeRows:
        """Return the rows that had come by a block."""
        assert self.came is not None
        return self.taken(self.came <= block)


def place(feature: int) -> str:
    """Return what a feature is called where names of columns do not leave a client."""
    return f"{feature:05d}"


def _log(v: np.ndarray) -> np.ndarray:
    return np.sign(v) * np.log1p(np.abs(v))


def _moments(node: np.ndarray, v: np.ndarray, nodes: int) -> list[np.ndarray]:
    """Return mean and deviation of the values of each node, 0 without any."""
    count = np.maximum(np.bincount(node, minlength=nodes), 1)
    mean = np.bincount(node, v, minlength=nodes) / count
    apart = np.bincount(node, np.square(v - mean[node]), minlength=nodes) / count
    return [mean, np.sqrt(apart)]
