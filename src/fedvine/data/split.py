"""Ownership: a split turns one stream into the parts of the clients.

A part is a stream (or a labelled graph) of its own with its own dense ids and dictionary, exactly
as if an institution had read its own table. It holds nothing of other parts, apart from
``first_seen_elsewhere``, which scoring alone uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvine.core import registry
from fedvine.core.errors import FedvineError, near
from fedvine.core.lookup import places

if TYPE_CHECKING:
    from fedvine.data.stream import EventStream


class LazyParts(Mapping[str, "EventStream"]):
    """Parts by client name that are cut when the first of them is read.

    A method whose server holds the graph reads none, and a long stream is not copied for it.
    """

    def __init__(self, names: list[str], cut: Callable[[], dict[str, EventStream]]) -> None:
        self.names, self._cut, self._found = names, cut, dict[str, "EventStream"]()

    def __getitem__(self, name: str) -> EventStream:
        if name not in self.names:
            raise KeyError(name)
        self._found = self._found or self._cut()
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Split:
    """Parts by client name, and the stream, or the labelled graph, that they came from.

    Where a partition made the split, ``owner`` is the position in ``names`` of the client of each
    item (node, where all are of one kind), int32, and ``seed`` the partition's; else it is None.
    """

    parts: Mapping[str, Any]
    stream: Any
    by: str
    owner: np.ndarray | None = None
    names: tuple[str, ...] = ()
    seed: int = 0

    def __iter__(self):
        return iter(self.parts)

    def only(self, names: list[str]) -> Split:
        """Return the same split with these clients alone.

        ``first_seen_elsewhere`` of their parts still counts all clients.
        """
        for name in names:
            if name not in self.parts:
                known = [_quoted(n) for n in self.parts]
                comma = next((n for n in known if "," in n), None)
                raise FedvineError(f'{self.stream.name} has no client "{name}"'
                                   f"{near(name, self.parts)}; it has {', '.join(known[:8])}"
                                   f"{' and others' if len(known) > 8 else ''}" + (
                    "." if comma is None else "; in --clients a name with a comma stands in "
                    f"double quotes, as in --clients '{comma}'."))
        return replace(self, parts={n: self.parts[n] for n in names})

    def report(self) -> dict[str, Any]:
        """Count what each client has, and measure the balance: ``balance`` of the data."""
        return {"by": self.by, **self.stream.balance(self.parts)}


def dealt(data: Any, by: str, k: int, seed: int, columns: Sequence[str], count: tuple[int, str],
          function: str) -> tuple[np.ndarray, list[str]]:
    """Return the client of each node by a partition's ``function``, int, and the clients' names.

    ``columns`` are those by which ``data`` could be split instead, ``count`` how many nodes (or
    items) there are, and what they are. Raises :class:`FedvineError` as :func:`split` does.
    """
    if by not in registry.names("partitions"):
        known = [*columns, *registry.names("partitions")]
        raise FedvineError(f'{data.name} has no column "{by}" to split by, and there is no '
                           f"partition of that name{near(by, known)}; it can be split by "
                           f"{', '.join(known)}.")
    if not 1 <= k <= count[0]:
        raise FedvineError(f"{data.name} has {count[0]} {count[1]}; it cannot be split among {k} "
                           f"clients; k (--k) is from 1 to {count[0]}.")
    deal = getattr(registry.find("partitions", by), function, None)
    if deal is None:
        raise FedvineError(f'The partition "{by}" does not deal the {count[1]} of {data.name}; '
                           "louvain deals those of streams and those of labelled graphs.")
    return (np.asarray(deal(data, k, seed)),
            [f"client-{i + 1:0{len(str(k))}d}" for i in range(k)])


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
        owner_of, owner = None, stream.codes[by]
        names = [str(c) for c in stream.categories[by]]
    else:
        owner_of, names = dealt(stream, by, k, seed, list(stream.codes), (stream.num_dst, "items"),
                                "partition")
        owner = owner_of[owning_node(stream)]
    found = LazyParts(sorted(names), lambda: parts(stream, np.asarray(owner), names, owner_of))
    whole = Split(found, stream, by, owner_of, tuple(names), seed)
    return whole.only(clients) if clients else whole


def _quoted(name: str) -> str:
    """Return a client's name as ``--clients`` reads it: in double quotes where it has a comma."""
    return '"{}"'.format(name.replace('"', '""')) if "," in name else name


def owning_node(stream: EventStream) -> np.ndarray:
    """Return the node int32 [E] whose client owns an edge."""
    src, dst = np.asarray(stream.src), np.asarray(stream.dst)
    if stream.directed:
        return dst if stream.bipartite else src
    return np.where((src ^ dst) & 1, np.maximum(src, dst), np.minimum(src, dst))


def parts(stream: EventStream, owner: np.ndarray, names: list[str],
          owner_of: np.ndarray | None = None) -> dict[str, EventStream]:
    """Cut one part a name, in order of names; ``owner`` int [E] are positions in ``names``.

    Items of the table of items without an edge at a client come after the others in its part: all
    of them, or where a partition deals the items (``owner_of``, positions int) those of the client.
    """
    stream, owner = ends(stream, owner)
    seen = first_seen(stream, owner)
    found, rows = {}, places(owner, len(names))
    for k, name in sorted(enumerate(names), key=lambda pair: pair[1]):
        part = stream.take(rows[k])
        if part.bipartite:
            (src, users), (dst, items) = relabel(part.src), relabel(part.dst)
            items = np.append(items, listed(stream, items, k, owner_of))
        else:
            both, users = relabel(np.stack([part.src, part.dst], 1).reshape(-1))
            src, dst, items = both[0::2].copy(), both[1::2].copy(), users
        found[name] = type(stream)(
            src, dst, part.t, stream.src_ids.take(users),
            stream.dst_ids.take(items) if part.bipartite else None, weight=part.weight,
            features=part.features, edge_columns=stream.edge_columns, label=part.label,
            deleted=part.deleted, arrived=part.arrived,
            first_seen_elsewhere=elsewhere(seen, users, k),
            directed=stream.directed, mirrored=stream.mirrored, name=f"{stream.name}/{name}",
            nodes=None if stream.nodes is None else stream.nodes.of(users),
            src_table=None if stream.src_table is None else stream.src_table.take(users),
            dst_table=None if stream.dst_table is None else stream.dst_table.take(items))
        found[name].dates, found[name].whole = stream.dates, stream.whole
    return found


def listed(stream: EventStream, items: np.ndarray, client: int, owner_of: np.ndarray | None
           ) -> np.ndarray:
    """Return the items of the table of items, int64, that are not among ``items`` of a client."""
    if stream.dst_table is None:
        return np.empty(0, np.int64)
    mine = np.asarray(stream.dst_table.known).copy()
    if owner_of is not None:
        mine &= np.asarray(owner_of) == client
    mine[items] = False
    return np.flatnonzero(mine)


def ends(stream: EventStream, owner: np.ndarray) -> tuple[EventStream, np.ndarray]:
    """Return the stream with undirected edges in both directions, and ``owner`` int [E] with it."""
    if stream.directed or stream.mirrored:
        return stream, owner
    return stream.both_ways(), np.repeat(owner[np.asarray(stream.src) != stream.dst], 2)


def firsts(numbers: np.ndarray, many: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct ``numbers`` (0 to ``many`` - 1), ascending, and where each is first."""
    if many > 8 * len(numbers) + 1024:
        return np.unique(numbers, return_index=True)
    first = np.full(many, -1)       # one pass, where a sort would take ten times as long
    first[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)  # of equal ones the last is kept
    found = np.flatnonzero(first >= 0)
    return found.astype(numbers.dtype), first[found]


def relabel(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return dense numbers in order of first appearance, and the old number of each new one."""
    many = int(ids.max(initial=-1)) + 1
    old, first = firsts(ids, many)
    old = old[np.argsort(first, kind="stable")]
    rank = np.empty(many, np.int32)
    rank[old] = np.arange(len(old), dtype=np.int32)
    return rank[ids], old


def first_seen(stream: EventStream, owner: np.ndarray, before: np.ndarray | None = None
               ) -> np.ndarray:
    """Return where and when each user was first seen, float64 [num_src, 3], for :func:`elsewhere`.

    The columns: the client of the user's first event (-1: none), its time, and the time of the
    first event at any other client (infinity: none). ``before``: the result for earlier events, of
    as many users or fewer.
    """
    found = np.full((stream.num_src, 3), np.inf)
    found[:, 0] = -1
    if before is not None:
        found[:len(before)] = before
    width = int(owner.max(initial=0)) + 1
    pair, first = firsts(stream.src.astype(np.int64) * width + owner, stream.num_src * width)
    user, client, time = pair // width, pair % width, np.asarray(stream.order)[first].astype(float)
    order = np.lexsort((time, user))
    user, client, time = user[order], client[order], time[order]
    starts = np.flatnonzero(np.diff(user, prepend=-1))
    starts = starts[found[user[starts], 0] < 0]
    found[user[starts], 0], found[user[starts], 1] = client[starts], time[starts]
    away = client != found[user, 0]
    np.minimum.at(found[:, 2], user[away], time[away])
    return found


def elsewhere(seen: np.ndarray, users: np.ndarray, client: int) -> np.ndarray:
    """Return when ``users`` int [n] were first seen at another client than this one, float64."""
    return np.where(seen[users, 0] == client, seen[users, 2], seen[users, 1])
