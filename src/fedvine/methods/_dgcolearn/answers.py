"""Scores of DG-CoLearn for the server's queries; what a score needs happens on copies."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

from fedvine.core.errors import FedvineError
from fedvine.core.method import At, Server
from fedvine.data.snapshot import DynamicSnapshot, Snapshot
from fedvine.data.stream import EventStream
from fedvine.methods._dgcolearn.renumber import renumber

BLOCK = 1 << 13     # pairs that are scored at a time


def ahead(server: Server, deep: bool) -> Server:
    """Return a copy of the server's memory, to go on with while the library scores.

    ``deep``: a stage may arrive.
    """
    found = type(server)(**vars(server))
    found.cache, found.first = {}, None
    written = isinstance(server.snapshot, DynamicSnapshot)      # arrays are written in place
    if written:
        found.border = server.border.ahead()
    for name in ("snapshot", "placement", "border", "volumes", "means", "recent", "lists"):
        if name in vars(found):
            alone = deep and (written or name == "snapshot")
            setattr(found, name, (copy.deepcopy if alone else copy.copy)(vars(found)[name]))
    return found


def links(method: Any, server: Server, clients, at: At) -> dict[str, np.ndarray]:
    """Return the scores [Q] of queried pairs by the newest rows, 0 for nodes never seen.

    Beside ``scores`` there is ``across``, bool [Q]: whether a pair's ends are at two clients.
    """
    server = ahead(server, deep=False)
    renumber(server, server.stage)
    shift = server.stage.num_src if server.stage.bipartite else 0
    ends = server.queries.src, server.queries.dst + shift
    a, b = (server.placement.part[e] for e in ends)
    scores = method.exchange_in(clients.world).scores(server, clients, np.stack(ends))
    return {"scores": scores, "across": (a != b) & (a >= 0) & (b >= 0)}


def classes(method: Any, server: Server, clients, at: At) -> dict[str, np.ndarray]:
    """Return the scores [Q, classes] of queried nodes, and the client of each.

    The graph goes on to the snapshot of the query, or back to it; the model and its states stay.
    Raises :class:`FedvineError` for a stage that was learned, where rows that did not change are
    skipped.
    """
    server = ahead(server, deep=True)
    queries = server.queries
    if queries.again:
        back(method, server, queries.again)
    for i, (stage, past) in enumerate(queries.ahead):
        if i:                                   # states of the snapshot between
            method.exchange_in(clients.world).commit(server, clients)
        server.stage, server.past = stage, past
        method.arrive(server, clients, at)
    return {"scores": method.class_scores(server, clients, queries.nodes),
            "client": np.asarray(clients.names)[server.placement.part[queries.nodes]]}


def back(method: Any, server: Server, stages: list[EventStream]) -> None:
    """Let messages go over the snapshot that these stages ended with."""
    if method.follows:
        raise FedvineError("protocol.forgetting asks about whole snapshots that were learned, and "
                           "with scope=changed there are only the rows that changed; choose "
                           "scope=snapshot.")
    if server.net.timed:
        raise FedvineError("protocol.forgetting asks about earlier snapshots, whose times tgn no "
                           "longer has; choose another backbone.")
    snapshot, owner = Snapshot(server.snapshot.window), server.placement.owner
    for stage in stages:
        snapshot.advance(stage)
    server.active, server.joined = np.ones(len(owner), bool), []
    server.border.update(snapshot.edges, owner)


def scored(server: Server, rows: torch.Tensor, at: np.ndarray) -> np.ndarray:
    """Return the model's scores of the ``rows`` [., hidden] of nodes, or of pairs of them.

    ``at`` has their positions, [1, Q] or [2, Q]. Blocks of them fit a cache.
    """
    with torch.no_grad():
        rows = rows.to(next(server.net.parameters()))
        return torch.cat([server.net.score(*(rows[n[i:i + BLOCK]] for n in at))
                          for i in range(0, max(at.shape[1], 1), BLOCK)]).cpu().numpy()
