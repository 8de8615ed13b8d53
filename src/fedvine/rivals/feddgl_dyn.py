"""FedDglDyn: FedDGL (Xie et al., ACML 2024) on classes of a dynamic graph, as its paper has it.

A rival in DG-CoLearn's Table 2; :mod:`fedvine.rivals.feddgl` is FedLink's version for links. Its
abstract and the authors' code could be had. With the rows z of width d of the last layer, client i
minimises, on its labelled nodes of the snapshot::

    cross-entropy + distil / (|S| d) sum_{n in S} |z_n - z_n(teacher)|^2                    (a)
                  + pull / (|J| d) sum_{j in J} |C_ij - P_j|^2                              (b)

- *global knowledge distillation* (a): the teacher is the average of all clients' models that the
  former snapshot ended with, on the newest snapshot. S is a share of the nodes that were there
  before, those whose rows by the teacher the new snapshot moves most; FedLink says a tenth
- *global prototypes* (b): clients send their prototypes C_ij, the means of their rows by class, and
  are pulled to P_j
- *contrastive learning of prototypes at the server*: P = net(embedding of j) is trained so that
  every C_ij is nearer to its own P_j than to others by a margin (:func:`contrasted`)::

      minimise sum_ij -log softmax_j'(-|C_ij - P_j'| - margin [j' = j]) at j                (c)

  with the margin ``max_j min_j' |C_j - C_j'|`` of the mean prototypes, at most 100
- *personalised aggregation by the likeness of prototypes*: client i goes on with
  (1 - w_i) x_mean + w_i x_i, where w_i is the softmax over clients of cos(C_i, P) / 2       (d)

So each client has a model of its own, which answers for its nodes.

What the texts leave open, or the code does otherwise, and what was chosen. In the code both terms
are numbers without gradients and the first has weight 0, so they do nothing; its distance (a) is of
means by class on the training nodes. Here they have gradients, and 0.1 each, the code's weight of
the second. The cosine is over the classes that client i has, where the code needs all. (c) is
learned on all prototypes at once, in place of batches of ten, by Adam for ``contrast`` steps,
and goes on in the next round. The mean of models is weighted by labelled nodes, as for
:mod:`fedvine.methods.fedavg_dyn`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch.nn.functional import cosine_similarity, cross_entropy, one_hot

from fedvine.aggregate.means import Means
from fedvine.core import tree
from fedvine.core.expect import Tensor
from fedvine.core.method import At, Client, Field, Server, World, on_client
from fedvine.core.rng import torch_rng
from fedvine.methods.fedavg_dyn import FedAvgDyn
from fedvine.rivals._own_models import OwnModelsMixin, class_sums, distance, means
from fedvine.rivals.feddgl import moved_most

MOST = 100.0        # largest margin of (c), margin_threthold of the authors' code


class FedDglDyn(OwnModelsMixin, FedAvgDyn):
    """Local training held to the former global model and to contrasted prototypes of classes."""

    name: ClassVar[str] = "feddgl_dyn"
    aggregate: Means = Means()  # type: ignore[assignment]
    space: ClassVar[dict[str, Any]] = {"distil": (0.01, 1.0, "log"), "pull": (0.01, 1.0, "log")}

    target: Literal["classes"] = Field(  # type: ignore[assignment]
        default="classes", description="what is predicted: nodes' classes; feddgl is for links")
    distil: float = Field(default=0.1, ge=0, description="weight of the distillation over time")
    pull: float = Field(default=0.1, ge=0, description="weight of the pull to the prototypes")
    sensitive: float = Field(default=0.1, ge=0, le=1, description="share of the nodes known from "
                             "before the stage that are distilled, those that moved most")
    contrast: int = Field(default=100, ge=0, description="steps a round in which the server learns "
                          "its prototypes; 0: they are the means over all clients' nodes")
    personal: bool = Field(default=True, description="clients keep a share of their own model, by "
                           "the likeness of prototypes; false: all go on with the mean model")

    def start(self, world: World) -> Server:
        server = super().start(world)
        like = {"dtype": getattr(torch, self.precision)}
        C = world.facts["classes"]
        server.prototypes = torch.full((C, self.hidden), torch.nan, **like)     # NaN: not met yet
        server.proto_net = Prototypes(C, self.hidden, world.seed).to(**like)
        server.proto_optimizer = torch.optim.Adam(server.proto_net.parameters(), lr=0.01)
        return server

    def setup(self, client: Client) -> None:
        super().setup(client)
        client.teacher = tree.weights(client.net)       # the mean model of the former snapshot
        client.known = np.empty((2, 0), np.int64)       # edges of the former snapshot
        client.taught = {"places": np.empty(0, np.int64),
                         "rows": torch.empty(0, self.hidden, dtype=getattr(torch, self.precision))}

    # -- a round ----------------------------------------------------------------------------------
    def local_epochs(self, server, clients, ends, labels, at: At) -> None:
        """Let clients train, learn the prototypes, and mix each client's model with the mean."""
        server.placement.send(self, server, clients)
        own, C = server.placement.targets_by_client(ends, labels), clients.world.facts["classes"]
        weights = tree.weights(server.net)
        sent = clients.call(self.learn, server.prototypes, self.epochs, at.first and at.t > 0,
                            per_client=own, only=server.events.ready(server), expect={
                                "model": weights,
                                "classes": Tensor(self.precision, (C, self.hidden + 1))})
        replies = dict(sent.items())
        sizes = [len(own[n][1]) for n in replies]
        if not sum(sizes):
            return
        mean = tree.mean((r["model"] for r in replies.values()), sizes)
        protos = {n: means(r["classes"], torch.full_like(server.prototypes, torch.nan))
                  for n, r in replies.items()}
        server.prototypes = self.learned_prototypes(
            server, [r["classes"] for r in replies.values()], list(protos.values()))
        tree.load(server.net, mean)
        share = likeness(list(protos.values()), server.prototypes) if self.personal else [
            0.0] * len(protos)
        clients.call(self.mix, mean, at.last, per_client=dict(zip(protos, share, strict=True)),
                     expect=None)

    def learned_prototypes(self, server, sums: list[torch.Tensor], protos: list[torch.Tensor]
                           ) -> torch.Tensor:
        """Return the server's prototypes P [C, d], NaN for classes that no client has met."""
        mean = means(torch.stack(sums).sum(0), server.prototypes)
        if not self.contrast:
            return mean
        stacked = torch.cat(protos)
        y = torch.arange(len(mean)).repeat(len(protos))
        met = ~stacked.isnan().any(1)
        for _ in range(self.contrast):
            loss = contrasted(stacked[met], y[met], server.proto_net(), margin(mean))
            server.proto_optimizer.zero_grad()
            loss.backward()
            server.proto_optimizer.step()
        return torch.where(mean.isnan(), mean, server.proto_net().detach())

    # -- at a client ------------------------------------------------------------------------------
    @on_client
    def learn(self, client: Client, prototypes: torch.Tensor, epochs: int, teaches: bool,
              own: tuple[np.ndarray, np.ndarray]) -> dict[str, Any]:
        """Train for ``epochs``.

        Down: prototypes [C, hidden], whether a snapshot is new, and places int64 [1, P] of own
        nodes with their classes [P]. Up: the model, and sums of rows by class with their numbers
        [C, hidden + 1].
        """
        if teaches and self.distil:
            self.teach(client)
        client.cache["prototypes"] = prototypes.to(self.where)
        self.train(client, None, epochs, own)
        with torch.no_grad():
            rows = self.alone(client, False)[torch.from_numpy(own[0][0])]
            sums = class_sums(rows, torch.from_numpy(own[1]).long().to(self.where),
                              len(prototypes))
        return {"model": tree.weights(client.net), "classes": sums}

    def teach(self, client: Client) -> None:
        """Choose sensitive nodes, and keep the teacher's rows of them on the newest snapshot."""
        part, own = self.part_of(client), tree.weights(client.net)
        tree.load(client.net, client.teacher)
        now, ends = self.alone(client, False).cpu(), part.ends
        part.ends = client.known                    # the snapshot before, without the new edges
        then = self.alone(client, False).cpu()
        part.ends = ends
        tree.load(client.net, own)
        old = np.unique(client.known)
        chosen = moved_most(then, now, old, self.sensitive)
        client.taught = {"places": chosen, "rows": now[torch.from_numpy(chosen)].clone()}

    def loss(self, client: Client, rows: torch.Tensor, ends: list[torch.Tensor],
             labels: np.ndarray) -> torch.Tensor:
        """Compute the cross-entropy with (a) and (b), a scalar."""
        found, prototypes = super().loss(client, rows, ends, labels), client.cache["prototypes"]
        if self.distil and len(client.taught["places"]):
            taught = client.taught["rows"].to(rows)
            off = rows[torch.from_numpy(client.taught["places"])] - taught
            found = found + self.distil * off.square().mean()                           # (a)
        y = torch.from_numpy(labels).long().to(self.where)
        sums = class_sums(rows[ends[0]], y, len(prototypes))
        return found + self.pull * distance(sums, prototypes)                           # (b)

    @on_client
    def mix(self, client: Client, mean: Any, last: bool, share: float) -> None:
        """Compute (d). Down: the mean model, whether the snapshot ends, and w of this client."""
        own = tree.weights(client.net)
        tree.load(client.net, tree.map_tree(lambda a, b: (1 - share) * a + share * b, mean, own))
        if last:
            client.teacher, client.known = mean, self.part_of(client).ends
            empty = client.taught["rows"][:0].clone()
            client.taught = {"places": np.empty(0, np.int64), "rows": empty}


class Prototypes(torch.nn.Module):
    """P [C, d]: an embedding a class, and two layers, whose weights start from the seed."""

    def __init__(self, classes: int, width: int, seed: int) -> None:
        super().__init__()
        draw = torch_rng(seed, "feddgl", "prototypes")
        half = width ** -0.5
        self.rows = torch.nn.Parameter(torch.randn(classes, width, generator=draw))
        for name in ("middle", "out"):
            self.register_parameter(name, torch.nn.Parameter(
                torch.empty(width, width).uniform_(-half, half, generator=draw)))
            self.register_parameter(f"{name}_bias", torch.nn.Parameter(torch.zeros(width)))

    def forward(self) -> torch.Tensor:
        """Compute P [C, d]."""
        hidden = (self.rows @ self.get_parameter("middle") + self.get_parameter("middle_bias")
                  ).relu()
        return hidden @ self.get_parameter("out") + self.get_parameter("out_bias")


def margin(mean: torch.Tensor) -> float:
    """Return the margin of (c), ``max_j min_j' |C_j - C_j'|`` of mean prototypes [C, d].

    NaN rows are left out; it is 0 for fewer than two classes.
    """
    met = mean[~mean.isnan().any(1)]
    if len(met) < 2:
        return 0.0
    apart = torch.cdist(met, met)
    apart.fill_diagonal_(torch.inf)
    return min(float(apart.min(1).values.max()), MOST)


def contrasted(protos: torch.Tensor, y: torch.Tensor, made: torch.Tensor, gap: float
               ) -> torch.Tensor:
    """Compute the mean of (c) over prototypes [n, d] of classes ``y`` [n]; ``made`` is P [C, d]."""
    apart = (protos[:, None] - made).square().sum(2).clamp(min=1e-12).sqrt()
    return cross_entropy(-(apart + gap * one_hot(y, len(made))), y)


def likeness(protos: list[torch.Tensor], made: torch.Tensor) -> list[float]:
    """Return w of (d) for each client's prototypes [C, d]; NaN rows are of classes it lacks."""
    cosines = [cosine_similarity(p.nan_to_num().flatten(), torch.where(
        p.isnan(), 0.0, made).nan_to_num().flatten(), dim=0) for p in protos]
    return (torch.stack(cosines) / 2).softmax(0).tolist()
