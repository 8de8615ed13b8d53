"""Batches, rows that travel, and sums of differences, in the order of FedLink's box.

The graph that a step draws from the buffers, the rows of the embeddings that this graph touches,
and the sum of the clients' differences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from fedvine.aggregate.means import Means
from fedvine.aggregate.rules import krum, merged, merged_rows
from fedvine.core import tree
from fedvine.core.clients import Clients
from fedvine.core.errors import Refused
from fedvine.core.expect import Array, check
from fedvine.core.method import Client, Server
from fedvine.data.ids import Ids
from fedvine.methods._fedlink.edges import EdgeBuffers
from fedvine.nn.embedding import EmbeddingTable
from fedvine.nn.sage import Bipartite

SIDES = ("users", "items")      # the embeddings I and J: an EmbeddingTable each at the server
MOST_KEYS = 1 << 26             # bytes of keys that a client may send at a time


# -- what a step draws -----------------------------------------------------------------------------
class Batch(NamedTuple):
    """Edges ready to train on: their nodes (local ids int64, ascending) and their graph."""

    users: np.ndarray
    items: np.ndarray
    graph: Bipartite


def make_batch(src: np.ndarray, dst: np.ndarray, device: torch.device) -> Batch:
    """Relabel edges [n] to their own nodes, and merge repeated pairs."""
    users, u = np.unique(src, return_inverse=True)
    items, i = np.unique(dst, return_inverse=True)
    return Batch(users.astype(np.int64), items.astype(np.int64),
                 Bipartite(u, i, len(users), len(items)).to(device))


def draw_batch(kept: EdgeBuffers, how: str, draw: np.random.Generator, cache: dict[Any, Any],
               device: torch.device, turn: int = 0) -> Batch:
    """Draw what a step trains on; ``cache`` keeps the batches of buffers until new edges come.

    ``how`` is "buffer": one buffer G^s, all alike; "newest": half the time the newest buffer, else
    one of all; "cyclic": that of step ``turn`` (from 0) in their order, the oldest first and again
    from the oldest after the newest; or "uniform": C single edges, drawn evenly. Buffer 0 is the
    newest.
    """
    count, C = len(kept), kept.C
    if how == "uniform":
        src, dst = kept.last(0, count)
        chosen = np.sort(draw.choice(count, min(C, count), replace=False))
        return make_batch(src[chosen], dst[chosen], device)
    many = max(-(-count // C), 1)
    s = many - 1 - turn % many if how == "cyclic" else int(draw.integers(0, many))
    if how == "newest" and draw.random() < 0.5:
        s = 0
    name = (kept.seen, s)
    if name not in cache:
        for old in [k for k in cache if isinstance(k, tuple) and k[0] != name[0]]:
            del cache[old]
        cache[name] = make_batch(*kept.last(s * C, (s + 1) * C), device)
    return cache[name]


# -- rows that travel ------------------------------------------------------------------------------
class Touched(NamedTuple):
    """Nodes (local ids int64, ascending) whose rows a round or a forecast needs."""

    users: np.ndarray
    items: np.ndarray


def touched_by(batches: list[Batch]) -> Touched:
    """Return the nodes of several batches; the same batch may be there several times."""
    several = list({id(b): b for b in batches}.values())
    return Touched(*(union([getattr(b, side) for b in several]) for side in SIDES))


def ends(*several: tuple[np.ndarray, np.ndarray]) -> Touched:
    """Return the nodes of several (users, items), local ids in any order."""
    found = []
    for side in zip(*several, strict=True):
        there = np.zeros(1 + max(int(ids.max(initial=-1)) for ids in side), bool)
        for ids in side:
            there[ids] = True
        found.append(np.flatnonzero(there))
    return Touched(*found)


def rows_of(nodes: Touched, known: Touched, rows: dict[str, torch.Tensor]
            ) -> dict[str, torch.Tensor]:
    """Return the rows of ``nodes`` among those of ``known`` nodes, by side, float32 [n, d]."""
    return {side: rows[side] if len(some) == len(every) else
            rows[side].index_select(0, torch.from_numpy(np.searchsorted(every, some)))
            for side, some, every in zip(SIDES, nodes, known, strict=True)}


def graph_of(nodes: Touched, src: np.ndarray, dst: np.ndarray, device: torch.device) -> Bipartite:
    """Return the graph of edges [n] over ``nodes``, which may be more than their ends."""
    u, i = (_places(known)[ids] for known, ids in zip(nodes, (src, dst), strict=True))
    return Bipartite(u, i, len(nodes.users), len(nodes.items)).to(device)


def _places(known: np.ndarray) -> np.ndarray:
    """Return the place of each local id among ``known`` ones, int64, by id."""
    place = np.empty(1 + int(known.max(initial=-1)), np.int64)
    place[known] = np.arange(len(known))
    return place


def union(several: list[np.ndarray]) -> np.ndarray:
    """Return the union of ascending arrays, ascending; they are merged, not sorted anew."""
    if len(several) == 1:
        return several[0]
    merged = np.sort(np.concatenate(several), kind="stable")
    return merged[np.concatenate([[True], merged[1:] != merged[:-1]])] if len(merged) else merged


def ids_of(client: Client, side: str) -> Ids:
    """Return the ids of a client's users or items, by local id."""
    return client.past.src_ids if side == "users" else client.past.dst_ids


def request(client: Client, nodes: Touched) -> dict[str, Any]:
    """Return a client's request for the rows of ``nodes``, by side."""
    return {side: getattr(client, side).request(getattr(nodes, side), ids_of(client, side))
            for side in SIDES}


def receive(client: Client, nodes: Touched, sent: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return the rows of ``nodes`` by side, float32 [n, d]; they may be the message's memory."""
    return {side: getattr(client, side).receive(getattr(nodes, side), sent[side]) for side in SIDES}


@dataclass(frozen=True)
class Request:
    """State a client's request for rows of a ``table``: each row once, by number or by key.

    A row that counted several times would be several clients' where updates are averaged.
    """

    table: EmbeddingTable

    def check(self, value: Any, where: str, sizes: dict[str, int]) -> None:
        """Raise :class:`Refused` unless ``value`` is such a request."""
        count = len(self.table)     # on the wire row numbers are called "rows"
        check(value, {"rows": Array("int32", (None,), low=0, high=count - 1, keys="unique"),
                      "keys": Array("uint64", (None,), most=MOST_KEYS, keys="unique")},
              where, sizes)
        numbers = self.table.find(value["keys"])
        if np.isin(numbers[numbers >= 0], value["rows"]).any():
            raise Refused(f"{where} asks for a row by its number and by its key")


class Rows(NamedTuple):
    """Rows that travel, by client and side: the message to ``send``, and the row ``numbers``."""

    send: dict[str, dict[str, Any]]         # {client: {side: the table's answer}}
    numbers: dict[str, dict[str, np.ndarray]]   # {client: {side: int32 [n]}}


def fetch(server: Server, clients: Clients, function: Any, new_rows: bool,
          only: Iterable[str] | None = None) -> Rows:
    """Call a client function that returns a :func:`request`; return the rows requested.

    With ``new_rows`` (training) a key that the server does not know gets a row.
    """
    expected = {side: Request(getattr(server, side)) for side in SIDES}
    rows = Rows({}, {})
    for name, asked in clients.call(function, only=only, expect=expected).items():
        found = {side: getattr(server, side).fetch(asked[side], new_rows) for side in SIDES}
        rows.send[name] = {side: answer for side, (answer, _) in found.items()}
        rows.numbers[name] = {side: numbers for side, (_, numbers) in found.items()}
    return rows


class Differences:
    """The differences Delta_k of the clients, taken in as they arrive.

    Differences of w are summed as they arrive (``model``), those of rows kept one by one and scaled
    when added (:meth:`rows`), since each client touches other rows. ``count`` clients have answered
    in this round. ``shared`` are the weights that clients received, or None. With a rule for false
    updates (``aggregate.rule``) differences of w are kept one by one too, and both are K times (as
    many times as clients touched a row) what the rule makes of them, in place of sums.
    """

    def __init__(self, server: Server, rows: Rows, shared: tree.Tree | None, aggregate: Means,
                 clients: Clients) -> None:
        self.count, self._sum = 0, tree.map_tree(torch.zeros_like, server.model)
        self._aggregate, self._clients = aggregate, clients
        self._norms: dict[str, float] = {}
        self._each: dict[str, torch.Tensor] = {}        # with a rule: differences of w, flat
        self._numbers, self._like = rows.numbers, {} if shared is None else {"model": shared}
        self._row = torch.empty(1, 1).expand(1, server.users.width)
        self._parts: dict[str, dict[str, tuple[np.ndarray, torch.Tensor]]] = {
            side: {} for side in SIDES}

    def expected(self, name: str) -> dict[str, Any]:
        """State the names, shapes and dtypes of a client's differences; others are refused."""
        return {side: self._row.expand(len(numbers), -1)
                for side, numbers in self._numbers[name].items()} | self._like

    def add(self, name: str, delta: dict[str, Any]) -> None:
        """Take in client ``name``: differences {side: float32 [n, d], "model": tree, if shared}."""
        self.count += 1
        if "model" in delta:
            flat = tree.flattened(delta["model"])
            self._norms[name] = float(flat.double().norm())
            if self._aggregate.by == "mean":
                tree.map_tree(torch.Tensor.add_, self._sum, delta["model"])
            else:
                self._each[name] = flat
        for side, numbers in self._numbers[name].items():
            if len(delta[side]):
                self._parts[side][name] = (numbers, delta[side].clone())

    @property
    def model(self) -> tree.Tree:
        """Return the sum of the differences of w, or K times their average by the rule."""
        self._clients.measured(self._norms)
        if not self._each:
            return self._sum
        rule = self._aggregate.rule_for(self._clients, len(self._each))
        found = merged(torch.stack(list(self._each.values())), rule, self._aggregate.bears)
        return tree.unflattened(found * self.count, self._sum)

    def rows(self) -> Iterator[tuple[str, np.ndarray, torch.Tensor, np.ndarray]]:
        """Yield (side, row numbers, their differences, touching), one client at a time.

        Numbers are int32 [n], differences float32 [n, d], and touching float32 [n] counts the
        clients that touched each row in this round.
        """
        f = self._aggregate.bears
        rule = "mean" if self._aggregate.by == "mean" else self._aggregate.rule_for(
            self._clients, len(self._numbers) if not self._each else len(self._each))
        scores = (dict(zip(self._each, krum(torch.stack(list(self._each.values())), f).tolist(),
                           strict=True)) if rule == "krum" else {})
        for side, parts in self._parts.items():
            if parts and rule != "mean":
                numbers, difference, touching = merged_rows(parts, rule, f, scores)
                count = touching.astype(np.float32)
                yield side, numbers, difference * torch.from_numpy(count)[:, None], count
            elif parts:
                touching = np.bincount(np.concatenate([numbers for numbers, _ in parts.values()]))
                for numbers, difference in parts.values():
                    yield side, numbers, difference, touching[numbers].astype(np.float32)
