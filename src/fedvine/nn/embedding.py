"""Embeddings of nodes that appear over time: the server's table, and a client's side of it.

The server finds a row by a 64-bit key (a hash of the node's id, keyed where institutions must not
see each other's ids), never by the id. A client knows its nodes by local ids. Its request names a
row by the row's number (4 bytes) once the client knows it, before that by the key (8 bytes). In
these messages "rows" are row numbers::

    client  :meth:`ClientEmbedding.request`   {"rows": int32 [a], "keys": uint64 [b]}
    server  :meth:`EmbeddingTable.fetch`      {"values": float32 [a + b, width], "rows": int32 [b]}
    client  :meth:`ClientEmbedding.receive`   values in the client's own order
    client  :meth:`ClientEmbedding.update`    differences float32 [a + b, width], after training
    server  :meth:`EmbeddingTable.add_`       adds them to the rows
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fedvine.core.errors import FedvineError
from fedvine.core.lookup import find
from fedvine.core.rng import hashed_uniform
from fedvine.data.ids import Ids
from fedvine.nn.sparse import adam, add_rows


class EmbeddingTable:
    """The server's rows, by number; they start uniform in +-``scale`` by a hash of (seed, key)."""

    def __init__(self, seed: int, width: int, scale: float) -> None:
        self.seed, self.width, self.scale = seed, width, scale
        self.keys = np.empty(0, np.uint64)          # by row number
        self._sorted = np.empty(0, np.uint64)       # keys, ascending
        self._order = np.empty(0, np.int32)         # their row numbers
        self._values = torch.empty((0, width))      # grows by doubling

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def values(self) -> torch.Tensor:
        """Return all rows [len, width], a view."""
        return self._values[:len(self)]

    def fetch(self, request: dict[str, np.ndarray], new_rows: bool) -> tuple[
            dict[str, Any], np.ndarray]:
        """Return the answer to a client's request, and the numbers of its rows in the same order.

        With ``new_rows`` (training) a key never seen gets a row; else (forecasts) the answer has
        its first value, and no row is made. Raises :class:`FedvineError` for unknown numbers.
        """
        new = self.numbers(request["keys"]) if new_rows else np.empty(0, np.int32)
        values = torch.cat([self.take(request["rows"]),
                            self.take(new) if new_rows else self.peek(request["keys"])])
        return {"values": values, "rows": new}, np.concatenate([request["rows"], new])

    def numbers(self, keys: np.ndarray) -> np.ndarray:
        """Return row numbers (int32) of uint64 ``keys``; keys never seen get the next free rows."""
        numbers = self.find(keys)
        if (numbers < 0).any():
            new, first = np.unique(keys[numbers < 0], return_index=True)
            self._append(new[np.argsort(first, kind="stable")])  # in order of appearance
            numbers = self.find(keys)
        return numbers

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Return row numbers (int32) of uint64 ``keys``, -1 where a key has no row."""
        at, numbers = find(self._sorted, keys), np.full(len(keys), -1, np.int32)
        numbers[at >= 0] = self._order[at[at >= 0]]
        return numbers

    def take(self, numbers: np.ndarray) -> torch.Tensor:
        """Return a copy of the rows [n, width]; raises :class:`FedvineError` for unknown ones."""
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(self):
            raise FedvineError("A client asked for a row that the server has not handed out.")
        return self._values.index_select(0, torch.from_numpy(numbers.astype(np.int64)))

    def peek(self, keys: np.ndarray) -> torch.Tensor:
        """Return values by key [n, width]; a key without a row gets its first value, but no row."""
        numbers = self.find(keys)
        values = torch.from_numpy(self._first(keys))
        known = np.flatnonzero(numbers >= 0)
        values[torch.from_numpy(known)] = self.take(numbers[known])
        return values

    def add_(self, numbers: np.ndarray, difference: torch.Tensor, scale: float | np.ndarray = 1.0
             ) -> None:
        """Add ``scale * difference`` [n, width] to the rows ``numbers`` [n], in place.

        ``scale`` is one number or one a row [n]. Raises :class:`FedvineError` for unknown rows.
        """
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(self):
            raise FedvineError("A change is for a row that the server has not handed out.")
        add_rows(self._values.numpy(), numbers, difference.numpy(),
                 np.atleast_1d(np.asarray(scale, np.float32)))

    def _append(self, keys: np.ndarray) -> None:
        start, stop = len(self), len(self) + len(keys)
        if stop > len(self._values):
            grown = torch.empty((max(stop, 2 * len(self._values)), self.width))
            grown[:start] = self._values[:start]
            self._values = grown
        self._values[start:stop] = torch.from_numpy(self._first(keys))
        self.keys = np.concatenate([self.keys, keys])
        order = np.argsort(keys)
        at = np.searchsorted(self._sorted, keys[order])
        self._sorted = np.insert(self._sorted, at, keys[order])
        self._order = np.insert(self._order, at, (start + order).astype(np.int32))

    def _first(self, keys: np.ndarray) -> np.ndarray:
        return hashed_uniform(self.seed, keys, self.width) * np.float32(self.scale)

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps; arrays are views."""
        return {"keys": self.keys, "values": self.values}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore from the result of :meth:`state_dict`."""
        self.keys = np.array(state["keys"])
        self._order = np.argsort(self.keys).astype(np.int32)
        self._sorted = self.keys[self._order]
        self._values = state["values"].clone()


class ClientEmbedding:
    """A client's side of a table: by local id the number of a node's row at the server.

    With ``local`` no row is shared, and all values are here. ``seed`` and ``scale`` are those of
    the server's table: a row starts the same everywhere. ``optimizer`` is the kind of
    :class:`RowOptimizer`, "adam" or "sgd".
    """

    def __init__(self, width: int, seed: int, scale: float, optimizer: str = "adam",
                 local: bool = False) -> None:
        self.width, self.seed, self.scale, self.local = width, seed, scale, local
        self.number = np.empty(0, np.int32)     # of the row at the server, by local id; -1 unknown
        self.values = torch.empty(0, width)     # with ``local``: rows by local id
        self.optimizer = RowOptimizer(width, optimizer)

    def request(self, ids: np.ndarray, names: Ids) -> dict[str, np.ndarray]:
        """Return the request for the rows of local ``ids`` int64 [n]; with ``local`` for none.

        "rows" are the row numbers that are known, int32 [a]; "keys" those of the other nodes,
        uint64 [b].
        """
        self._grow(int(ids.max(initial=-1)) + 1, names)
        ids = ids[:0] if self.local else ids
        number = self.number[ids]
        known = number >= 0
        return {"rows": number[known], "keys": names.keys(ids[~known])}

    def receive(self, ids: np.ndarray, answer: dict[str, Any]) -> torch.Tensor:
        """Return values [n, width] of ``ids``, from the server's answer or from here.

        The row numbers that come with the answer are stored. The values may be the answer's own
        memory: write to a copy. Raises :class:`FedvineError` where the answer has more or fewer
        rows than were requested.
        """
        if self.local:
            return self.values[torch.from_numpy(ids)]
        if len(answer["values"]) != len(ids):
            raise FedvineError(f"The server sent {len(answer['values'])} rows where {len(ids)} "
                               "were asked for.")
        unknown = self.number[ids] < 0
        if not unknown.any():
            return answer["values"]     # already in this order
        order = np.concatenate([np.flatnonzero(~unknown), np.flatnonzero(unknown)])
        values = torch.empty(len(ids), self.width)
        values[torch.from_numpy(order)] = answer["values"]
        if len(answer["rows"]):
            self.number[ids[unknown]] = answer["rows"]
        return values

    def update(self, ids: np.ndarray, difference: torch.Tensor,
               answer: dict[str, Any] | None = None) -> torch.Tensor:
        """Return the difference [n, width] of ``ids`` in the order of the server's ``answer``.

        First come the rows requested by number, then those requested by key. With ``local`` it is
        added here, and none is returned.
        """
        if self.local:
            self.values[torch.from_numpy(ids)] += difference
            return difference[:0]
        if answer is None or not len(answer["rows"]):
            return difference
        new = find(np.sort(answer["rows"]), self.number[ids]) >= 0
        return difference[torch.from_numpy(np.argsort(new, kind="stable"))]

    def _grow(self, need: int, names: Ids) -> None:
        """Have a number, and with ``local`` first values, for local ids up to ``need`` - 1."""
        more = need - len(self.number)
        if more <= 0:
            return
        if self.local:
            keys = names.keys(np.arange(len(self.number), need))
            first = hashed_uniform(self.seed, keys, self.width) * np.float32(self.scale)
            self.values = torch.cat([self.values, torch.from_numpy(first)])
        self.number = np.concatenate([self.number, np.full(more, -1, np.int32)])

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps; arrays are views."""
        return {"number": self.number, "values": self.values, **self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore from the result of :meth:`state_dict`."""
        self.number, self.values = state["number"].copy(), state["values"].clone()
        self.optimizer.load_state_dict(state)


class RowOptimizer:
    """Adam (Kingma and Ba 2015) or plain SGD for single rows.

    With ``kind = "adam"`` a row has moments and a count of steps of its own, for as long as it is
    ``held``; a row that a step does not name does not move.
    """

    def __init__(self, width: int, kind: str = "adam") -> None:
        self.width, self.kind = width, kind
        self.held = np.empty(0, np.int64)           # local ids of rows, ascending
        self.moments = torch.zeros(2, 0, width)     # m and v of those
        self.steps = torch.zeros(0)                 # steps that each of those has taken

    def hold(self, ids: np.ndarray) -> None:
        """Hold exactly the rows ``ids`` (int64 [n], ascending); drop the moments of others."""
        at = find(self.held, ids)
        kept = np.flatnonzero(at >= 0)
        moments = self.moments.new_zeros(2, len(ids), self.width)
        steps = self.steps.new_zeros(len(ids))
        moments[:, kept], steps[kept] = self.moments[:, at[kept]], self.steps[at[kept]]
        self.held, self.moments, self.steps = ids, moments, steps

    def step(self, ids: np.ndarray, values: torch.Tensor, at: np.ndarray, gradient: torch.Tensor,
             learning_rate: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
             ) -> None:
        """Take one step on ``values`` float32 [., width], in place.

        Row ``at[n]`` is that of held id ``ids[n]`` and has ``gradient[n]`` [width]; each is named
        once. Moments move to the device of ``values``, where the step is made.
        """
        if self.kind == "sgd":
            rows = torch.from_numpy(at).to(values.device)
            values.index_add_(0, rows, gradient, alpha=-learning_rate)
            return
        if values.device != self.moments.device:
            self.moments, self.steps = (x.to(values.device) for x in (self.moments, self.steps))
        if values.device.type != "cpu":
            self._step(ids, values, at, gradient, learning_rate, *betas, eps)
            return
        adam(values.numpy(), at, gradient.contiguous().numpy(), np.searchsorted(self.held, ids),
             self.moments[0].numpy(), self.moments[1].numpy(), self.steps.numpy(), learning_rate,
             *betas, eps)

    def _step(self, ids: np.ndarray, values: torch.Tensor, at: np.ndarray, gradient: torch.Tensor,
              rate: float, beta1: float, beta2: float, eps: float) -> None:
        """Take the step of :func:`fedvine.nn.sparse.adam` by torch."""
        rows, own = (torch.from_numpy(x).to(values.device)
                     for x in (at, np.searchsorted(self.held, ids)))
        steps = self.steps.index_select(0, own) + 1
        m = self.moments[0].index_select(0, own).lerp_(gradient, 1 - beta1)
        v = self.moments[1].index_select(0, own).mul_(beta2).addcmul_(gradient, gradient,
                                                                      value=1 - beta2)
        self.steps[own], self.moments[0, own], self.moments[1, own] = steps, m, v
        first, second = ((a / (1 - b ** steps.double())).float()[:, None]
                         for a, b in ((rate, beta1), (1.0, beta2)))
        values.index_add_(0, rows, first * m / ((v * second).sqrt() + eps), alpha=-1)

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps; arrays are views."""
        return {"held": self.held, "moments": self.moments, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore from the result of :meth:`state_dict`."""
        self.held = state["held"].copy()
        self.moments, self.steps = state["moments"].clone(), state["steps"].clone()
