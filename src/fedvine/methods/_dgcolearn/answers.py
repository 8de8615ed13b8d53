"""Scores of DG-CoLearn for the server's queries; what a score needs happens on copies."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

from fedvine.core.method import At, Server
from fedvine.methods._dgcolearn.renumber import renumber

BLOCK = 1 << 13     # pairs that are scored at a time


def ahead(server: Server) -> Server:
    """Return a copy of the server's memory, to go on with while the library scores."""
    found = type(server)(**vars(server))
    found.snapshot, found.cache, found.first = copy.deepcopy(server.snapshot), {}, None
    found.placement, found.border = copy.copy(server.placement), copy.copy(server.border)
    return found


def links(method: Any, server: Server, clients, at: At) -> dict[str, np.ndarray]:
    """Return the scores [Q] of queried pairs by the newest rows, 0 for nodes never seen.

    Beside ``scores`` there is ``across``, bool [Q]: whether a pair's ends are at two clients.
    """
    server = ahead(server)
    renumber(server, server.stage)
    rows, _ = method.exchange_in(clients.world).forward(server, clients)
    shift = server.stage.num_src if server.stage.bipartite else 0
    ends = server.queries.src, server.queries.dst + shift
    a, b = (server.placement.part[e] for e in ends)
    return {"scores": scored(server, rows, ends), "across": (a != b) & (a >= 0) & (b >= 0)}


def classes(method: Any, server: Server, clients, at: At) -> dict[str, np.ndarray]:
    """Return the scores [Q, classes] of queried nodes, and the client of each.

    The graph goes on to the snapshot of the query; the model stays.
    """
    server = ahead(server)
    queries = server.queries
    for i, (stage, past) in enumerate(queries.ahead):
        if i:                                   # states of the snapshot between
            method.exchange_in(clients.world).forward(server, clients, commit=True)
        server.stage, server.past = stage, past
        method.arrive(server, clients, at)
    rows, _ = method.exchange_in(clients.world).forward(server, clients)
    return {"scores": scored(server, rows, (queries.nodes,)),
            "client": np.asarray(clients.names)[server.placement.part[queries.nodes]]}


def scored(server: Server, rows: torch.Tensor, ends: tuple[np.ndarray, ...]) -> np.ndarray:
    """Return the model's scores of nodes, or of pairs of them, in blocks that fit a cache."""
    rows = torch.cat([rows, rows.new_zeros(1, rows.shape[1])])
    number = [server.placement.rows()[e] for e in ends]
    with torch.no_grad():
        return torch.cat([server.net.score(*(rows[n[i:i + BLOCK]] for n in number))
                          for i in range(0, max(len(number[0]), 1), BLOCK)]).numpy()
