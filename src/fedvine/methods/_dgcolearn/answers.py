"""Scores of DG-CoLearn for the server's queries; what a score needs happens on copies."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

from fedvine.core.method import At, Server
from fedvine.data.dynamic_snapshot import DynamicSnapshot
from fedvine.methods._dgcolearn.renumber import renumber

BLOCK = 1 << 13     # pairs that are scored at a time


def ahead(server: Server, deep: bool) -> Server:
    """Return a copy of the server's memory, to go on with while the library scores.

    ``deep``: a stage may arrive.
    """
    found = type(server)(**vars(server))
    found.cache, found.first = {}, None
    written = isinstance(server.snapshot, DynamicSnapshot)      # arrays are written in place
    for name in ("snapshot", "placement", "border", "volumes", "means"):
        if name in vars(server):
            alone = deep and (written or name == "snapshot")
            setattr(found, name, (copy.deepcopy if alone else copy.copy)(vars(server)[name]))
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
    found = method.exchange_in(clients.world).rows_of(server, clients, np.stack(ends))
    return {"scores": scored(server, *found), "across": (a != b) & (a >= 0) & (b >= 0)}


def classes(method: Any, server: Server, clients, at: At) -> dict[str, np.ndarray]:
    """Return the scores [Q, classes] of queried nodes, and the client of each.

    The graph goes on to the snapshot of the query; the model stays.
    """
    server = ahead(server, deep=True)
    queries = server.queries
    for i, (stage, past) in enumerate(queries.ahead):
        if i:                                   # states of the snapshot between
            method.exchange_in(clients.world).commit(server, clients)
        server.stage, server.past = stage, past
        method.arrive(server, clients, at)
    found = method.exchange_in(clients.world).rows_of(server, clients, queries.nodes[None])
    return {"scores": scored(server, *found),
            "client": np.asarray(clients.names)[server.placement.part[queries.nodes]]}


def scored(server: Server, rows: torch.Tensor, at: np.ndarray) -> np.ndarray:
    """Return the model's scores of the ``rows`` [., hidden] of nodes, or of pairs of them.

    ``at`` has their positions, [1, Q] or [2, Q]. Blocks of them fit a cache.
    """
    with torch.no_grad():
        return torch.cat([server.net.score(*(rows[n[i:i + BLOCK]] for n in at))
                          for i in range(0, max(at.shape[1], 1), BLOCK)]).numpy()
