"""Messages that the server has, and sums that clients have; those that changed alone travel.

A message of a node whose saved row did not change is the one that its client sent before, and a sum
over such messages is the one that its client got before. Both stay where they are. A sum that
changed travels whole: its difference takes as many bytes, and would add up rounding. Messages that
depend on weights (``short(layer)``) are never held.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from fedvine.methods._dgcolearn import blocks

TEMPORARY = 2 ** 31 - 1     # the clock of messages of this pass alone


def longer(values: np.ndarray, count: int, fill: float = 0) -> np.ndarray:
    """Return values with ``fill`` behind and room for more, of at least ``count`` rows."""
    if count <= len(values):
        return values
    more = np.full((count + count // 8 - len(values), *values.shape[1:]), fill, values.dtype)
    return np.concatenate([values, more])


class HeldLayer:
    """Messages and sums of one layer that are kept, by node; arrays may be longer than needed.

    - ``rows``: [N, m], the messages; ``has``: bool [N], whether they are those of the saved rows
    - ``changed``: int32 [N], the clock when the message changed last
    - ``given``: int32 [N], the clock when the client got the sum over its neighbours elsewhere; -1:
      it does not have it
    """

    def __init__(self) -> None:
        self.rows = np.zeros((0, 0), np.float32)
        self.has = np.zeros(0, bool)
        self.changed, self.given = (np.zeros(0, np.int32) for _ in range(2))

    def grow(self, count: int) -> None:
        """Let there be ``count`` nodes."""
        self.has, self.changed = longer(self.has, count), longer(self.changed, count)
        self.given, self.rows = longer(self.given, count, -1), longer(self.rows, count)

    def keep(self, nodes: np.ndarray, rows: np.ndarray) -> None:
        """Hold messages ``rows`` [n, m] of the saved rows of ``nodes``."""
        if self.rows.shape[1] != rows.shape[1]:
            self.rows = np.zeros((len(self.has), rows.shape[1]), rows.dtype)
        self.rows[nodes], self.has[nodes] = rows, True


class Held:
    """Messages and sums of all layers that the server and its clients keep.

    Args:
        layers: their number; 0: nothing is held, and all travels (while the library scores).
    """

    def __init__(self, layers: int = 0) -> None:
        self.layers = [HeldLayer() for _ in range(layers)]
        self.edges, self.clock = np.zeros(0, np.int32), 0

    def grow(self, count: int) -> None:
        """Let there be ``count`` nodes."""
        self.edges = longer(self.edges, count)
        for layer in self.layers:
            layer.grow(count)

    def forget(self) -> None:
        """Let everything travel again: a client was away, or has another subgraph."""
        for layer in self.layers:
            layer.has[:], layer.given[:] = False, -1

    def renew(self, nodes: np.ndarray, ends: np.ndarray) -> None:
        """Take note that features of ``nodes`` changed, and edges of the nodes ``ends``.

        A message may depend on its node's number of neighbours.
        """
        self.clock += 1
        self.edges[ends] = self.clock
        for layer, of in enumerate(self.layers):
            for changed in (ends,) if layer else (ends, nodes):
                of.has[changed], of.changed[changed] = False, self.clock

    def asked(self, layer: int, sent: np.ndarray, fresh: np.ndarray) -> np.ndarray:
        """Return positions of nodes ``sent`` whose messages must travel.

        These are the ``fresh`` ones, bool, and those that are not held.
        """
        if not self.layers:
            return np.arange(len(sent))
        return np.flatnonzero(fresh | ~self.layers[layer].has[sent])

    def take(self, layer: int, nodes: np.ndarray, asked: np.ndarray, sent: np.ndarray,
             keep: np.ndarray) -> np.ndarray:
        """Return all messages [n, m] of ``nodes``, given those ``sent`` of positions ``asked``.

        Others are held. Of those sent the ones to ``keep`` bool are held from now on.
        """
        if not self.layers:
            return sent
        of = self.layers[layer]
        of.keep(nodes[asked[keep]], sent[keep])
        if len(asked) == len(nodes):
            return sent
        rows = of.rows[nodes]
        rows[asked] = sent
        return rows

    def outdated(self, layer: int, border: np.ndarray, sent: np.ndarray, fresh: np.ndarray,
                 cross: blocks.Rows, saved: bool) -> np.ndarray:
        """Return positions of the nodes ``border`` whose sums must travel, and note that they do.

        ``cross`` are the edges from ``border`` to ``sent``; ``fresh`` bool: messages of rows that
        this pass computed, which are ``saved`` at its end, or hold for it alone.
        """
        if not self.layers:
            return np.arange(len(border))
        of = self.layers[layer]
        clock = of.changed[sent]
        clock[fresh] = self.clock if saved else TEMPORARY
        newest = np.maximum(_newest(*cross, clock), self.edges[border])
        found = np.flatnonzero(of.given[border] < newest)
        of.given[border[found]] = np.where(newest[found] == TEMPORARY, -1, self.clock)
        return found

    def begin(self, changed: np.ndarray) -> None:
        """Begin a pass whose rows of ``changed`` nodes are saved at its end."""
        for of in self.layers[1:]:
            of.has[changed], of.changed[changed] = False, self.clock

    def end(self, changed: np.ndarray, tells_states: Callable[[int], bool]) -> None:
        """End such a pass: messages that tell states are others from now on."""
        self.clock += 1
        for layer, of in enumerate(self.layers):
            if tells_states(layer):
                of.has[changed], of.changed[changed] = False, self.clock

    def renumber(self, number: np.ndarray, count: int) -> None:
        """Give node i the number ``number[i]``, of ``count`` nodes."""
        def moved(values: np.ndarray, fill: float = 0) -> np.ndarray:
            found = np.full((count, *values.shape[1:]), fill, values.dtype)
            many = min(len(values), len(number))
            found[number[:many]] = values[:many]
            return found
        self.edges = moved(self.edges)
        for of in self.layers:
            of.rows, of.has, of.changed = moved(of.rows), moved(of.has), moved(of.changed)
            of.given = moved(of.given, -1)

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps; of messages those that are held."""
        return {"edges": self.edges, "clock": self.clock, "layers": [
            {"rows": of.rows[np.flatnonzero(of.has)], "has": of.has, "changed": of.changed,
             "given": of.given} for of in self.layers]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        self.edges, self.clock = np.array(state["edges"]), state["clock"]
        for of, kept in zip(self.layers, state["layers"], strict=True):
            of.has, of.changed, of.given = (np.array(kept[k]) for k in ("has", "changed", "given"))
            of.keep(np.flatnonzero(of.has), np.asarray(kept["rows"]))


@njit(cache=True)
def _newest(pointers, columns, clock):
    """Return the largest clock of each row's columns, -1 without any."""
    found = np.full(len(pointers) - 1, -1, np.int32)
    for n in range(len(found)):
        for e in range(pointers[n], pointers[n + 1]):
            found[n] = max(found[n], clock[columns[e]])
    return found
