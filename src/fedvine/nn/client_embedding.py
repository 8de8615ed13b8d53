"""A client's side of an embedding table: the server's row of each node, and the rows' moments.

Only rows that the client's buffers touch need to move, and only those have optimiser moments: the
moments of a row exist while a buffer holds the row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fedvine.core import tree
from fedvine.core.errors import FedvineError
from fedvine.core.lookup import find
from fedvine.core.rng import hashed_uniform
from fedvine.data.ids import Ids
from fedvine.nn import kernels
from fedvine.nn.embedding import EmbeddingTable


class ClientEmbedding:
    """The embeddings of one side (users or items) at one client.

    Single rows may be kept at the client: :meth:`adopt` takes them, :meth:`share` gives them up.

    Args:
        width: numbers a row.
        seed: of the server's table, so that a row starts the same everywhere.
        scale: of the server's table, likewise.
        home: keep all rows at this client, shared with no one.
    """

    def __init__(self, width: int, seed: int, scale: float, home: bool = False) -> None:
        self.width, self.seed, self.scale, self.home = width, seed, scale, home
        self.number = np.empty(0, np.int32)      # server row by local id, -1 unknown
        self.own = np.empty(0, bool)             # whether a row's value is kept here, by local id
        self.values = torch.empty(0, width)      # by local id, of those; empty: none was ever
        self.held = np.empty(0, np.int64)        # local ids that a buffer holds, ascending
        self.moments = torch.zeros(2, 0, width)  # Adam's m and v of those
        self.steps = torch.zeros(0)              # steps of each of those

    def hold(self, ids: np.ndarray) -> None:
        """Set the rows that the buffers hold to exactly ``ids`` (ascending); drop other moments."""
        at = find(self.held, ids)
        kept = np.flatnonzero(at >= 0)
        moments, steps = torch.zeros(2, len(ids), self.width), torch.zeros(len(ids))
        moments[:, kept], steps[kept] = self.moments[:, at[kept]], self.steps[at[kept]]
        self.held, self.moments, self.steps = ids, moments, steps

    def ask(self, ids: np.ndarray, names: Ids) -> dict[str, np.ndarray]:
        """Return the request for rows of local ``ids``: known row numbers, and keys of the others.

        ``rows`` is int32, ``keys`` uint64; rows kept at the client are left out.
        """
        self._grow(int(ids.max(initial=-1)) + 1)
        if self.home:
            self._root(len(self.number), names)
        if len(self.values):
            ids = ids[~self.own[ids]]
        number = self.number[ids]
        known = number >= 0
        return {"rows": number[known], "keys": names.keys(ids[~known])}

    def take(self, ids: np.ndarray, sent: dict[str, Any]) -> torch.Tensor:
        """Return the values float32 [n, width] of ``ids`` from the server's answer to :meth:`ask`.

        Rows kept at the client are added. Row numbers that came with the answer are remembered. The
        values may be the answer's own memory: write to a copy. Raises :class:`FedvineError` for an
        answer with another number of rows.
        """
        unknown = self.number[ids] < 0
        if (not len(self.values) and sent["values"].shape == (len(ids), self.width)
                and not unknown.any()):
            return sent["values"]       # all come from the server, in this order
        own = self.own[ids]
        if own.all():
            return self.values[torch.from_numpy(ids)]
        unknown, away = unknown & ~own, np.flatnonzero(~own)
        order = np.concatenate([away[~unknown[away]], away[unknown[away]]])
        if len(sent["values"]) != len(away):
            raise FedvineError(f"The server sent {len(sent['values'])} rows where {len(away)} were "
                               "asked for.")
        values = torch.empty(len(ids), self.width)
        values[torch.from_numpy(order)] = sent["values"]
        if own.any():
            values[torch.from_numpy(own)] = self.values[torch.from_numpy(ids[own])]
        if len(sent["rows"]):
            self.number[ids[unknown]] = sent["rows"]
        return values

    def give(self, ids: np.ndarray, change: torch.Tensor, sent: dict[str, Any] | None = None
             ) -> torch.Tensor:
        """Return the part of a change [n, width] of ``ids`` that goes to the server.

        Rows kept at the client are changed in place. The others are in the order of the server's
        answer ``sent``: known rows first, new ones last.
        """
        if len(self.values) and (own := self.own[ids]).any():
            mine = torch.from_numpy(own)
            self.values[torch.from_numpy(ids[own])] += change[mine]
            ids, change = ids[~own], change[~mine]
        if sent is None or not len(sent["rows"]):
            return change
        fresh = find(np.sort(sent["rows"]), self.number[ids]) >= 0
        return change[torch.from_numpy(np.argsort(fresh, kind="stable"))]

    # -- single rows kept at the client ----------------------------------------------------------
    def adopt(self, start: int, stop: int, names: Ids) -> None:
        """Keep the rows of local ids ``start`` to ``stop - 1`` at the client from now on."""
        self._grow(stop)
        self._root(stop, names)
        self.own[start:stop] = True

    def share(self, told: np.ndarray, asked: np.ndarray, names: Ids) -> torch.Tensor:
        """Keep these rows at the server from now on; return the changes of those ``asked`` for.

        A change [n, width] is the value learned here minus the first value. ``told`` are the local
        ids whose rows move without one.
        """
        self.own[told] = self.own[asked] = False
        return self.values[torch.from_numpy(asked.astype(np.int64))] - self._first(asked, names)

    def _root(self, stop: int, names: Ids) -> None:
        """Make the first values of all rows up to ``stop``."""
        if stop > len(self.values):
            fresh = self._first(np.arange(len(self.values), stop), names)
            self.values = torch.cat([self.values, fresh])

    def _first(self, ids: np.ndarray, names: Ids) -> torch.Tensor:
        return torch.from_numpy(hashed_uniform(self.seed, names.keys(ids), self.width)
                                * np.float32(self.scale))

    def step(self, ids: np.ndarray, values: torch.Tensor, at: np.ndarray, gradient: torch.Tensor,
             rate: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8) -> None:
        """Make one row-wise Adam step (Kingma and Ba 2015), in place.

        ``ids[n]`` is row at[n] of ``values`` float32 [., width] and has ``gradient[n]``. Each row
        counts its own steps for the bias correction; other rows do not move.
        """
        kernels.adam(values.numpy(), at, gradient.contiguous().numpy(),
                     np.searchsorted(self.held, ids), self.moments[0].numpy(),
                     self.moments[1].numpy(), self.steps.numpy(), rate, *betas, eps)

    def _grow(self, need: int) -> None:
        more = need - len(self.number)
        if more > 0:
            self.number = np.concatenate([self.number, np.full(more, -1, np.int32)])
            self.own = np.concatenate([self.own, np.full(more, self.home)])

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a save."""
        return {n: getattr(self, n) for n in ("number", "own", "values", "held", "moments",
                                              "steps")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state of :meth:`state_dict`."""
        for name, value in state.items():
            setattr(self, name, value.copy() if isinstance(value, np.ndarray) else value.clone())


def hand_out(table: EmbeddingTable, asked: dict[str, np.ndarray], grow: bool) -> tuple[
        dict[str, Any], np.ndarray]:
    """Return the server's answer to :meth:`ClientEmbedding.ask`, and its row numbers in order.

    In training (``grow``) new keys get rows; while scoring they get first values and no row.
    """
    fresh = table.rows(asked["keys"]) if grow else np.empty(0, np.int32)
    values = torch.cat([table.take(asked["rows"]),
                        table.take(fresh) if grow else table.peek(asked["keys"])])
    return {"values": values, "rows": fresh}, np.concatenate([asked["rows"], fresh])


class Sum:
    """Sum of the differences of the clients that answer, one at a time; only touched rows.

    A difference is ``{"model": tree (optional), side: rows [n, width], ...}``.
    """

    def __init__(self, model: tree.Tree) -> None:
        self.count, self.model = 0, tree.map_tree(torch.zeros_like, model)
        self.parts: dict[str, list[tuple[np.ndarray, torch.Tensor]]] = {}

    def add(self, rows: dict[str, np.ndarray], delta: dict[str, Any]) -> None:
        """Add one client's differences; ``rows`` are the numbers of the rows they belong to."""
        self.count += 1
        if "model" in delta:
            tree.map_tree(torch.Tensor.add_, self.model, delta["model"])
        for side, numbers in rows.items():
            if len(delta[side]):
                self.parts.setdefault(side, []).append((numbers, delta[side].clone()))

    def apply(self, model: tree.Tree, tables: dict[str, EmbeddingTable], by: str) -> tree.Tree:
        """Return the new model, W + (1/K) sum of differences; change the tables' rows in place.

        ``by="clients"`` divides a row's sum by K, ``"touching"`` by the number of clients that
        touched the row.
        """
        if not self.count:
            return model
        for side, parts in self.parts.items():
            counts = np.zeros(len(tables[side]), np.int32)
            for rows, _ in parts:
                counts[rows] += 1
            for rows, delta in parts:
                if by == "clients":
                    tables[side].add_(rows, delta, 1 / self.count)
                else:
                    tables[side].add_(rows, delta, np.float32(1) / counts[rows].astype(np.float32))
        return tree.add(model, self.model, 1 / self.count)
