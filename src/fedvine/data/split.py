"""Ownership: a split turns one stream into the parts of the clients.

A part is a stream of its own with its own dense ids and dictionary, exactly as if an institution
had read its own table. It holds nothing of other parts, apart from ``first_seen_elsewhere``,
which scoring alone uses.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvine.core import registry
from fedvine.core.errors import FedvineError, near
from fedvine.core.files import atomic

if TYPE_CHECKING:
    from fedvine.data.stream import EventStream


@dataclass(frozen=True)
class Split:
    """Parts by client name, and the stream they came from."""

    parts: Mapping[str, EventStream]
    stream: EventStream
    by: str

    def __iter__(self):
        return iter(self.parts)

    def only(self, names: list[str]) -> Split:
        """Return the same split with these clients alone.

        ``first_seen_elsewhere`` of their parts still counts all clients.
        """
        for name in names:
            if name not in self.parts:
                raise FedvineError(f'{self.stream.name} has no client "{name}"'
                                   f"{near(name, self.parts)}.")
        return Split({n: self.parts[n] for n in names}, self.stream, self.by)

    def report(self) -> dict[str, Any]:
        """Count edges, users and items of each client, and users that several clients have.

        ``cov`` is the coefficient of variation of the edges; ``dropped`` counts edges of the stream
        that are in no part, such as self-loops where edges do not have a direction. An edge that a
        part holds in both directions counts once.
        """
        many = {n: len(p) // (1 + p.mirrored) for n, p in self.parts.items()}
        edges = np.array(list(many.values()), float)
        shared = {n: 0 if p.first_seen_elsewhere is None else
                  int(np.isfinite(p.first_seen_elsewhere).sum()) for n, p in self.parts.items()}
        return {"by": self.by, "clients": {n: {
                    "edges": many[n], "users": p.num_src, "items": p.num_dst,
                    "shared_users": shared[n]} for n, p in self.parts.items()},
                "cov": float(edges.std() / edges.mean()) if edges.sum() else 0.0,
                "shared_user_places": sum(shared.values()),
                "dropped": len(self.stream) - int(edges.sum())}

    def write(self, folder: str | os.PathLike[str]) -> Split:
        """Write every part as a stream under ``folder``; return the split opened from there."""
        folder = Path(folder)
        opened = {n: p.write(folder / f"part-{i}") for i, (n, p) in enumerate(self.parts.items())}
        with atomic(folder / "split.json", "w") as file:
            json.dump({"by": self.by, "clients": list(opened)}, file)
        return Split(opened, self.stream, self.by)

    @staticmethod
    def open(folder: str | os.PathLike[str], stream: EventStream) -> Split:
        """Open the split that :meth:`write` wrote."""
        folder = Path(folder)
        meta = json.loads((folder / "split.json").read_text())
        return Split({n: type(stream).open(folder / f"part-{i}")
                      for i, n in enumerate(meta["clients"])}, stream, meta["by"])


def split(stream: EventStream, by: str, *, k: int = 5, seed: int = 0,
          clients: list[str] | None = None) -> Split:
    """Split a stream among clients.

    A partition assigns the items of a bipartite stream, or the nodes of another, to ``k`` clients;
    an edge belongs to the client of its item (its source, where all nodes are of one kind). Where
    edges do not have a direction an edge belongs to the client of one of its ends, the same one for
    (u, v) and (v, u), and the part holds it in both directions. No edge is dropped, except for
    self-loops where edges do not have a direction.

    Args:
        stream: the whole stream.
        by: a categorical column of the stream (each edge goes to the client it names) or the name
            of a partition (``"hash"``, ``"louvain"``, ...).
        k: number of clients of a partition.
        seed: of a partition.
        clients: keep only these; None: all.

    Returns:
        The parts by client name.

    Raises:
        FedvineError: for an unknown column or partition, a ``k`` that is not in 1..items, or an
            unknown client.
    """
    if by in stream.codes:
        owner, names = stream.codes[by], [str(c) for c in stream.categories[by]]
    else:
        if by not in registry.names("partitions"):
            known = [*stream.codes, *registry.names("partitions")]
            raise FedvineError(f'{stream.name} has no column "{by}" to split by, and there is no '
                               f"partition of that name{near(by, known)}; it can be split by "
                               f"{', '.join(known)}.")
        if not 1 <= k <= stream.num_dst:
            raise FedvineError(f"{stream.name} has {stream.num_dst} items; it cannot be split "
                               f"among {k} clients.")
        module = registry.find("partitions", by)
        if not hasattr(module, "partition"):
            raise FedvineError(f'The partition "{by}" deals nodes of a labelled graph, and '
                               f"{stream.name} is a stream of edges; louvain deals both.")
        owner_of = module.partition(stream, k, seed)
        owner = owner_of[_owning_node(stream)]
        names = [f"client-{i + 1:0{len(str(k))}d}" for i in range(k)]
    whole = Split(parts(stream, np.asarray(owner), names), stream, by)
    return whole.only(clients) if clients else whole


def _owning_node(stream: EventStream) -> np.ndarray:
    """Return the node int32 [E] whose client owns an edge."""
    src, dst = np.asarray(stream.src), np.asarray(stream.dst)
    if stream.directed:
        return dst if stream.bipartite else src
    return np.where((src ^ dst) & 1, np.maximum(src, dst), np.minimum(src, dst))


def parts(stream: EventStream, owner: np.ndarray, names: list[str]) -> dict[str, EventStream]:
    """Cut one part a name, in order of names; ``owner`` int [E] holds positions in ``names``."""
    if not (stream.directed or stream.mirrored):
        owner = np.repeat(owner[np.asarray(stream.src) != stream.dst], 2)
        stream = stream.both_ways()
    first = _first_elsewhere(stream, owner)
    found = {}
    for k, name in sorted(enumerate(names), key=lambda pair: pair[1]):
        part = stream.take(np.flatnonzero(owner == k))
        if part.bipartite:
            (src, users), (dst, items) = _relabel(part.src), _relabel(part.dst)
        else:
            both, users = _relabel(np.stack([part.src, part.dst], 1).reshape(-1))
            src, dst, items = both[0::2].copy(), both[1::2].copy(), users
        found[name] = type(stream)(
            src, dst, part.t, stream.src_ids.take(users),
            stream.dst_ids.take(items) if part.bipartite else None, weight=part.weight,
            features=part.features, label=part.label, deleted=part.deleted,
            first_seen_elsewhere=first(users, k), directed=stream.directed,
            mirrored=stream.mirrored, name=f"{stream.name}/{name}",
            nodes=None if stream.nodes is None else stream.nodes.of(users))
    return found


def _relabel(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return dense numbers in order of first appearance, and the old number of each new one."""
    old, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(old), np.int32)
    rank[order] = np.arange(len(old), dtype=np.int32)
    return rank[inverse], old[order]


def _first_elsewhere(stream: EventStream, owner: np.ndarray):
    """Return ``f(users, k)``, the times when users were first seen at a client other than ``k``."""
    width = int(owner.max(initial=0)) + 1
    pair, first = np.unique(stream.src.astype(np.int64) * width + owner, return_index=True)
    user, client, time = pair // width, pair % width, np.asarray(stream.t)[first].astype(float)
    order = np.lexsort((time, user))
    user, client, time = user[order], client[order], time[order]
    starts = np.flatnonzero(np.diff(user, prepend=-1))
    first_client = np.full(stream.num_src, -1)
    earliest, second = (np.full(stream.num_src, np.inf) for _ in range(2))
    first_client[user[starts]], earliest[user[starts]] = client[starts], time[starts]
    more = starts[np.append(starts[1:], len(user)) - starts > 1] + 1
    second[user[more]] = time[more]
    return lambda users, k: np.where(first_client[users] == k, second[users], earliest[users])
