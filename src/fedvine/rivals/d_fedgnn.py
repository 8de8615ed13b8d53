"""D-FedGNN: clients of a dynamic graph average their models with neighbours, without a server.

Yang Pei, Renxin Mao, Yang Liu, Chaoran Chen, Shifeng Xu, Feng Qiang, Blake Elias Tech:
*Decentralized Federated Graph Neural Networks*, FL-IJCAI 2021, here on snapshots, a rival in
DG-CoLearn's Table 2. Its abstract could be had: it trains by decentralised parallel stochastic
gradient descent (Lian et al., NIPS 2017) "in a peer-to-peer network structure". With the model x_i
of client i, its loss F_i and a symmetric matrix W of weights whose rows sum to 1::

    x_i <- sum_j W_ij (x_j - gamma grad F_j(x_j))                                           (a)

W_ij is above 0 only for i's neighbours j and for i itself. Here W has Metropolis weights, which
are 1/3 on a ring of three clients or more::

    W_ij = 1 / (1 + max(d_i, d_j)),   W_ii = 1 - sum_j W_ij,   d_i neighbours of i          (b)

**Who talks to whom.** The server of the library carries messages alone: a client sends its model
(``trained``), the server passes it on to the client's neighbours, and each client computes (a) for
itself (``mix``). The line of ``mix`` in ``messages.jsonl`` has the neighbours under ``heard``, by
client. No model is kept at the server, and each client's nodes are named by its own model. The
bytes are those of this relay: a model goes up once, and down once for each neighbour.

What the abstract leaves open, and what was chosen:

- the topology: a ring in the order of names, as in the code beside FedDGL; or in each round another
  ring at random; or all with all, which makes all models equal. Where clients are away the ring
  closes without them
- E local epochs of Adam in place of one step of (a); Adam's moments stay at home
- the local model: a GCN without a state, as in that code; ``backbone`` and ``temporal`` have others
- left out: the Diffie-Hellman exchange of keys, which hides a client's model from its neighbours.
  Here the server and a client's neighbours see its model
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from fedvine.aggregate.means import Means
from fedvine.core import tree
from fedvine.core.method import At, Client, Field, on_client
from fedvine.core.rng import rng
from fedvine.methods.fedavg_dyn import FedAvgDyn
from fedvine.nn.backbones import Backbone
from fedvine.rivals._own_models import OwnModelsMixin


class DFedGnn(OwnModelsMixin, FedAvgDyn):
    """Own models at all clients, averaged with those of neighbours in a ring."""

    name: ClassVar[str] = "d_fedgnn"
    aggregate: Means = Means()  # type: ignore[assignment]

    target: Literal["classes"] = Field(  # type: ignore[assignment]
        default="classes", description="what is predicted: nodes' classes; a pair across clients "
        "would have two models")
    backbone: Backbone = Field(
        default="gcn", description="the local model: one of fedavg_dyn's")
    temporal: Literal["gru", "mlp", "average", "none"] = Field(
        default="none", description="update of states, as dgcolearn's")
    topology: Literal["ring", "random", "full"] = Field(
        default="ring", description="who talks to whom: each with the two beside it by name; in "
        "each round with two others, in a ring at random; or all with all")

    def local_epochs(self, server, clients, ends, labels, at: At) -> None:
        """Let clients train by themselves, and average with their neighbours."""
        server.placement.send(self, server, clients)
        own, weights = server.placement.targets_by_client(ends, labels), tree.weights(server.net)
        present = clients.call(self.train, None, self.epochs, per_client=own,
                               only=server.events.ready(server), expect=None).names
        sent = clients.call(self.trained, only=present, expect=weights)
        draw = rng(clients.world.seed, "gossip", at.t, at.r)
        talks = neighbours(sent.names, self.topology, draw)
        clients.call(self.mix, per_client={name: (
            [sent[other] for other in others], [weight(talks, name, other) for other in others])
            for name, others in talks.items()}, expect=None)
        clients.log[-1]["heard"] = talks

    @on_client
    def mix(self, client: Client, heard: tuple[list[Any], list[float]]) -> None:
        """Compute (a). Down: the neighbours' models, and their weights W_ij."""
        models, weights = heard
        own = tree.map_tree(lambda w: (1 - sum(weights)) * w, tree.weights(client.net))
        for model, w in zip(models, weights, strict=True):
            own = tree.add(own, model, w)
        tree.load(client.net, own)


def neighbours(names: Sequence[str], topology: str, draw: np.random.Generator
               ) -> dict[str, list[str]]:
    """Return the neighbours of each client, sorted; the relation is symmetric.

    ``names`` are sorted; with the ``topology`` "random" the ring is in the order that ``draw``
    gives.
    """
    if topology == "full":
        return {n: [m for m in names if m != n] for n in names}
    order = list(names) if topology == "ring" else [
        names[int(i)] for i in draw.permutation(len(names))]
    found = {n: sorted({order[i - 1], order[(i + 1) % len(order)]} - {n})
             for i, n in enumerate(order)}
    return {n: found[n] for n in names}


def weight(talks: dict[str, list[str]], one: str, other: str) -> float:
    """Return the weight W_ij of a neighbour's model, (b)."""
    return 1 / (1 + max(len(talks[one]), len(talks[other])))
