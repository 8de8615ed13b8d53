"""LANDER (Tran et al. 2024): TARGET with an anchor for each class, made of the class's name.

Minh-Tuan Tran, Trung Le, Xuan-May Le, Mehrtash Harandi, Dinh Phung: *Text-Enhanced Data-free
Approach for Federated Class-Incremental Learning*, CVPR 2024. Its abstract, summaries and the
authors' code could be had, not the equations. What :mod:`fedvine.rivals.target` says of the
server's part and of images holds here too. A linear layer maps embeddings to the space of the
anchors e_c; f_i is node i's row there. A client minimises

    a_cur (CE + anchoring * L_bound) + a_pre (CE_T + mean (f - f_teacher)^2)                (a)
    L_bound = mean over nodes of max(0, mean_j (f_ij - e_yj)^2 - radius)                    (b)
    a_cur = current (1 + 1 / u) / v,  a_pre = distillation u v                              (c)
    u = log2(classes / 2 + 1),  v = sqrt(old classes / classes)

where CE and CE_T are those of TARGET's (b), and L_bound is in the generator's loss, too. The
generator makes a node of the anchor of its class by a layer of random weights, drawn anew for each
batch. Nodes of the same class have different such layers. Mean and deviation of the features are
learned with the generator, so clients do not send theirs.

**Anchors**: the paper embeds "a photo of a dog" by a pretrained language model. Here an anchor is
made of hashed n-grams, the sum of a random vector for each group of 2 to 4 letters of the name,
drawn by the group's hash (:func:`anchor`): names that share letters have near anchors, their
meaning does not count, and classes named by numbers have anchors with no relation. All are scaled
to a norm of 10 at 512 numbers, about that of the paper's model, as its radius depends on it.

**What the server learns**: beside the models, which classes each client has, their names, and the
mean and variance of the hidden values.

What they leave open, or what is done otherwise here:

- sizes are TARGET's; the code has 40 batches of 256 with 40 steps each, after 10 that are not kept
- (b) bounds each node; the code bounds the mean over a batch
- ``classes`` in (c) are the old ones and the client's own
- the code normalises a batch of anchors before the generator; here they are scaled to entries with
  a mean square of 1
- the code returns to the global model of the round with the least training loss; here the last one
  stays
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fedvine.core.expect import Several, Text
from fedvine.core.method import Client, Field, Server, World, on_client
from fedvine.core.rng import torch_rng
from fedvine.nn import gat
from fedvine.nn.gat import Gat, Inputs, dropped, glorot
from fedvine.rivals._synthesis import Rows, alone
from fedvine.rivals.target import Target, drawn

LONGEST = 200       # letters of a name that are sent


class AnchoredGat(Gat):
    """A GAT with a second output: rows [N, width] in the space of the anchors."""

    def __init__(self, features: int, hidden: int, classes: int, width: int, *, seed: int,
                 dropout: float) -> None:
        super().__init__(features, hidden, classes, seed=seed, dropout=dropout)
        self.mapping = nn.Parameter(glorot(hidden, width, torch_rng(seed, "mapping")))
        self.centre = nn.Parameter(torch.zeros(width))

    def both(self, graph: Inputs, draw: torch.Generator | None = None
             ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute logits [N, classes], and rows [N, width] without dropout."""
        h = self.embed(graph)
        scores = self.second(graph._replace(x=dropped(h, self.dropout, draw)))
        return scores, h @ self.mapping + self.centre


class FromAnchors(nn.Module):
    """LANDER's generator: from anchors [S, width] of the classes, by layers of random weights."""

    def __init__(self, anchors: torch.Tensor, noise: int, features: int, learning_rate: float,
                 draw: torch.Generator) -> None:
        super().__init__()
        self.noise, self.learning_rate = noise, learning_rate
        self.anchors = anchors / anchors.square().mean(1, keepdim=True).sqrt()
        self.rows = Rows(noise, 2 * noise, features, draw).to(anchors.device)
        self.mean = nn.Parameter(anchors.new_zeros(features))
        self.deviation = nn.Parameter(anchors.new_ones(features))
        self.layers = torch.empty(0)

    def begin(self, y: torch.Tensor, draw: torch.Generator) -> list[dict[str, Any]]:
        """Begin a batch for ``y``, all classes in turn; return the parameters for Adam."""
        count, width = self.anchors.shape
        self.layers = torch.randn(len(y) // count, width, self.noise,
                                  generator=draw).to(y.device).requires_grad_()
        return [{"params": [*self.rows.parameters(), self.layers], "lr": self.learning_rate},
                {"params": [self.mean, self.deviation], "lr": 0.01}]

    def forward(self) -> torch.Tensor:
        """Compute the rows float32 [B, F]: of each layer one for each class."""
        codes = torch.einsum("se,gek->gsk", self.anchors, self.layers).flatten(0, 1)
        return self.rows(codes, self.mean, self.deviation)


class Lander(Target):
    """TARGET with embeddings and generated nodes near anchors that follow from classes' names."""

    name: ClassVar[str] = "lander"
    space: ClassVar[dict[str, Any]] = {"distillation": (0.05, 5.0, "log"), "among": ["open"],
                                       "anchoring": (0.5, 10.0, "log"),
                                       "radius": [0.005, 0.015, 0.05]}

    distillation: float = Field(default=0.4, ge=0, description="weight of what the teacher knows "
                                "in (c), alpha_pre; 0: none")
    current: float = Field(default=0.2, gt=0, description="weight of the new task in (c), "
                           "alpha_cur")
    anchoring: float = Field(default=5.0, ge=0, description="weight of the anchors, lambda_ltc")
    radius: float = Field(default=0.015, ge=0, description="mean squared distance from its anchor "
                          "that a node may have, r")
    anchor_width: int = Field(default=64, ge=1, description="numbers of an anchor")
    w_statistics: float = Field(default=1.0, ge=0, description="weight of L_stat of TARGET's (a)")

    @classmethod
    def tiny(cls) -> Self:
        return cls(**{**Target.tiny().model_dump(exclude_unset=True), "anchor_width": 3})

    def net(self, world: World) -> AnchoredGat:
        """Build the network, with the same first weights at the server and at every client."""
        return gat.named(AnchoredGat(
            world.facts["features"], self.hidden, world.facts["classes"], self.anchor_width,
            seed=world.seed, dropout=self.dropout), world)

    def start(self, world: World) -> Server:
        server = super().start(world)
        server.statistics = {"h": server.statistics["h"]}
        server.names = {}                                       # of classes, by their number
        return server

    # -- the server --------------------------------------------------------------------------------
    def more(self, server: Server) -> dict[str, Any]:
        """Return the schema of what :meth:`learn` sends."""
        return {**super().more(server), "names": Several(Text(LONGEST), len(server.seen))}

    def take(self, server: Server, reply: dict[str, Any]) -> None:
        """Note the classes that a client has, and their names."""
        super().take(server, reply)
        new = zip(map(str, np.flatnonzero(reply["classes"])), reply["names"], strict=False)
        server.names = {**server.names, **dict(new)}

    def anchors(self, server: Server, classes: torch.Tensor) -> torch.Tensor:
        """Return the anchors [n, width] of classes int64 [n] by the names that clients sent."""
        found = {c: anchor(server.names.get(str(c), ""), self.anchor_width)
                 for c in set(classes.tolist())}
        return torch.stack([found[c] for c in classes.tolist()]).to(classes.device)

    def maker(self, server: Server, seen: torch.Tensor, draw: torch.Generator) -> Any:
        """Build the generator."""
        features = server.model["first.weight"].shape[0]
        return FromAnchors(self.anchors(server, seen), self.noise, features,
                           self.generator_learning_rate, draw)

    def wanted(self, seen: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
        """Return the classes int64 [B] of a batch: all those learned so far, again and again."""
        return seen.repeat(max(self.batch // len(seen), 1))

    def price(self, server: Server, teacher: Any, student: Any, y: torch.Tensor,
              x: torch.Tensor) -> torch.Tensor:
        """Compute TARGET's Eq. (a) of rows ``x`` [B, F] with the bound (b), a scalar."""
        far = bound(teacher.both(alone(x))[1], self.anchors(server, y), self.radius)
        return super().price(server, teacher, student, y, x) + self.anchoring * far

    def apart(self, student: Any, teacher: Any, graph: Inputs) -> torch.Tensor:
        """Compute how far a student is from its teacher, a scalar."""
        f, truth = (net.both(graph)[1] for net in (student, teacher))
        return super().apart(student, teacher, graph) + self.anchoring * functional.mse_loss(
            f, truth.detach())

    # -- a client ----------------------------------------------------------------------------------
    @on_client
    def learn(self, client: Client, model: dict[str, torch.Tensor]) -> dict[str, Any]:
        """Train as FedAvg does; send statistics, classes and their names too."""
        sent = super().learn(client, model)
        return {**sent, "names": [str(client.stage.classes[c])[:LONGEST]
                                  for c in np.flatnonzero(sent["classes"])]}

    def measured(self, client: Client, classes: int) -> dict[str, torch.Tensor]:
        """Compute moments of hidden values; those of features are not sent."""
        return {"h": super().measured(client, classes)["h"]}

    def balance(self, client: Client) -> tuple[float, float]:
        """Compute the weights a_cur and a_pre, Eq. (c)."""
        old, y = client.old, self.labelled(client)[2].cpu().numpy()
        every = int((old | np.isin(np.arange(len(old)), y)).sum())
        u, v = math.log2(every / 2 + 1), math.sqrt(max(int(old.sum()), 1) / max(every, 1))
        return self.current * (1 + 1 / max(u, 1e-6)) / v, self.distillation * u * v         # (c)

    def new(self, client: Client, draw: torch.Generator) -> torch.Tensor | None:
        """Compute the first term of (a) without a_cur, a scalar; None without labelled nodes."""
        graph, nodes, y = self.labelled(client)
        if not len(y):
            return None
        scores, f = client.model.both(graph, draw)
        near = {c: anchor(str(client.stage.classes[c]), self.anchor_width)
                for c in set(y.tolist())}
        far = bound(f[nodes], torch.stack([near[c] for c in y.tolist()]).to(y.device),
                    self.radius)
        return self.entropy(client, scores[nodes], y) + self.anchoring * far

    def held(self, client: Client, draw: torch.Generator) -> torch.Tensor:
        """Compute the second term of (a) without a_pre over a draw of rows, a scalar."""
        chosen = drawn(torch.arange(len(client.rows)), self.batch, draw)
        scores, f = client.model.both(alone(client.rows[chosen].to(self.where)), draw)
        chosen = chosen.to(self.where)
        theirs, truth = self.taught(client)
        return self.softly(client, scores, theirs[chosen]) + functional.mse_loss(f, truth[chosen])

    def outputs(self, net: Any, graph: Inputs) -> Any:
        """Return what a teacher gives for nodes: scores [N, C] and rows [N, width]."""
        return net.both(graph)


def anchor(name: str, width: int) -> torch.Tensor:
    """Return the anchor [width] of a class's name, of norm 10 at 512 numbers."""
    text = f"<{name.lower()}>"
    groups = [text[i:i + n] for n in (2, 3, 4) for i in range(len(text) - n + 1)]
    total = torch.stack([torch.randn(width, generator=torch_rng("n-gram", g)) for g in groups])
    return functional.normalize(total.sum(0), dim=0) * 10 * math.sqrt(width / 512)


def bound(f: torch.Tensor, anchors: torch.Tensor, radius: float) -> torch.Tensor:
    """Compute Eq. (b) of rows [B, width] and the anchors [B, width] of their classes, a scalar."""
    return (functional.mse_loss(f, anchors, reduction="none").mean(1) - radius).relu().mean()
