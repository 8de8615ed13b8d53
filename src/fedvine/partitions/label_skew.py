"""Label skew: the nodes of each class go to clients in shares drawn from a Dirichlet distribution.

The definition of Yurochkin et al. (2019) and, with the same alpha of 0.5, of NIID-Bench (Li et al.
2022): shares p ~ Dir(alpha, ..., alpha) over the clients, drawn anew for each class. Edges are not
used, and clients differ in size too. For graphs only: a stream does not have labels of nodes.
"""

from __future__ import annotations

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.core.rng import rng
from fedvine.data.graph import Graph
from fedvine.partitions._graph import spread


def partition_nodes(graph: Graph, k: int, seed: int, alpha: float = 0.5) -> np.ndarray:
    """Assign each node to a client, int32 [N] in 0..k-1.

    With a smaller ``alpha`` > 0 fewer clients share a class; a very large one is an even split.
    Nodes of unknown class go to the clients with the fewest nodes; a client that gets no node takes
    one from the largest. Raises :class:`FedvineError` if ``alpha`` is not above 0 and finite.
    """
    if not 0 < alpha < np.inf:
        raise FedvineError(f"Label skew needs an alpha above 0, such as 0.5; it is {alpha}.")
    owner = np.full(len(graph), -1, np.int32)
    for label in np.unique(graph.y[graph.y >= 0]):
        draw = rng("label_skew", seed, int(label))
        members = draw.permutation(np.flatnonzero(graph.y == label))
        cuts = np.rint(np.cumsum(draw.dirichlet(np.full(k, alpha))) * len(members)).astype(int)
        for client, piece in enumerate(np.split(members, cuts[:-1])):
            owner[piece] = client
    return spread(owner, k)
