"""FedDGL (Xie et al. 2024) on links: distillation over time, and prototypes shared by all.

The origin classifies nodes of graphs that change. FedLink (Section 4.1, Appendix C.1) carries it
over as "dynamic FL with distillation and prototype regularization" on the full history, which
"selectively processes 10% of nodes as sensitive information for temporal knowledge distillation".
So it is STFL whose loss has two more terms (:meth:`Lesson.terms`), z being embeddings of width d::

    loss + distil / (|S| d) sum_{n in S} |z_n - z_n(teacher)|^2
         + pull / (|C| d) sum_{c in C} |mean_{n in c} z_n - prototype_c|^2

- *global knowledge distillation*: the teacher is the model that the former stage ended with. A
  stage's first round brings it anyway, so its embeddings are made there, before the first step,
  on the graph with the new edges (:meth:`FedDGL.teach`), and kept for the stage
- *sensitive nodes*: S is a tenth of the nodes that had edges before the stage: those whose
  embedding by the teacher the stage's edges move most (:func:`moved_most`)
- *global prototypes*: clients send sums and counts of their embeddings by class, the server
  divides (:meth:`FedDGL.round`), and every client's own means are pulled to the result

What the texts leave open, and what was chosen. Links have no classes, and the public code leaves
prototypes out for them: a class here is a side (user or item) at a level of activity, the power of
two of a node's number of edges at the client, which means the same everywhere. How sensitive nodes
are found is not said; new nodes are none, as the teacher does not know them. Of the weights, the
public code has 0.1 for prototypes and 0 for distillation (and neither term carries a gradient in
it); 0.1 for both here. Left out: contrastive learning of prototypes at the server, and mixing each
client's own model in by the likeness of prototypes, since one model is scored. FedLink's Table 1
gives FedDGL a third of STFL's memory, which does not go with a full history.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from fedvine.core import tree
from fedvine.core.method import At, Client, Field, Server, World, on_client
from fedvine.methods._fedlink import inputs
from fedvine.methods._fedlink.edges import edges
from fedvine.methods._fedlink.rows import SIDES, Batch, Differences, Touched, fetch
from fedvine.methods.stfl import STFL
from fedvine.nn.sage import Bipartite, BipartiteSage


class FedDGL(STFL):
    """Full-history training, held to the former global model and to global prototypes."""

    name: ClassVar[str] = "feddgl"
    space: ClassVar[dict[str, Any]] = {"distil": (0.01, 1.0, "log"), "pull": (0.01, 1.0, "log")}

    distil: float = Field(default=0.1, ge=0, description="weight of the distillation over time")
    pull: float = Field(default=0.1, ge=0, description="weight of the pull to the prototypes")
    sensitive: float = Field(default=0.1, ge=0, le=1, description="share of the nodes known from "
                             "before the stage that are distilled, those that moved most")
    levels: int = Field(default=8, ge=1, description="levels of activity, which make the classes: "
                        "1, 2-3, 4-7, ... edges, the last without an end")

    def start(self, world: World) -> Server:
        server = super().start(world)
        server.prototypes = torch.zeros(2, self.levels, self.width)  # 0: nobody has met the class
        return server

    def encoder(self, seed: int) -> Pupil:
        """Return the encoder, which keeps the embeddings that it made last."""
        return Pupil(self.width, seed=seed)

    def setup(self, client: Client) -> None:
        super().setup(client)
        self.keep(client)

    def keep(self, client: Client) -> None:
        """Keep all edges; drop the teacher's embeddings, which were those of the stage before."""
        client.taught = {side: {"ids": np.empty(0, np.int64), "values": torch.empty(0, self.width)}
                         for side in SIDES}

    def round(self, server, clients, at: At) -> None:
        rows = fetch(server, clients, self.choose, new_rows=True, only=server.joining)
        delta = Differences(server, rows, self.shared(server), self.aggregate, clients)
        classes, met = torch.zeros(2, self.levels, self.width + 1), list[dict[str, torch.Tensor]]()

        def add(name: str, change: dict[str, Any]) -> None:
            delta.add(name, change)
            met.append({"classes": change["classes"].clone()})

        clients.call(self.learn, self.shared(server), server.prototypes, at.first and at.t > 0,
                     per_client=rows.send, fold=add,
                     expect=lambda name: delta.expected(name) | {"classes": classes})
        K = max(delta.count, 1)     # W^(r+1) = W^(r) + (1/K) sum_k Delta_k, as FedLink
        server.model = tree.add(server.model, delta.model, 1 / K)
        for side, numbers, difference, touching in delta.rows():
            by = touching if self.divide == "touching" else K
            getattr(server, side).add_(numbers, difference, 1 / by)
        for one in self.aggregate.bounded(met):
            classes.add_(one["classes"])
        known = classes[:, :, -1] > 0
        server.prototypes[known] = classes[known][:, :-1] / classes[known][:, -1:]

    @on_client
    def learn(self, client: Client, model: Any, prototypes: torch.Tensor, teaches: bool,
              sent: dict[str, Any]) -> dict[str, Any]:
        """Take L local steps; return differences, sums and counts by class [2, levels, d + 1].

        The embeddings of the last step's forward pass are summed.
        """
        client.cache["lesson"], client.model.made = (prototypes, teaches), None
        delta = self.train(client, model, sent)
        delta["classes"] = torch.zeros(2, self.levels, self.width + 1)
        if client.model.made is not None:
            with torch.no_grad():
                delta["classes"] = client.model.lesson.sums(client.model.made).cpu()
            client.model.made = None
        return delta

    def step(self, client: Client, batch: Batch, touched: Touched,
             now: dict[str, torch.Tensor], draw: np.random.Generator) -> None:
        """Take a step of FedLink; before a round's first one, prepare the two terms of the loss."""
        if "lesson" in client.cache:
            prototypes, teaches = client.cache.pop("lesson")
            if teaches and self.distil:
                self.teach(client, batch, now)
            client.model.lesson = self.lesson(client, batch, prototypes)
        super().step(client, batch, touched, now, draw)

    def teach(self, client: Client, batch: Batch, now: dict[str, torch.Tensor]) -> None:
        """Choose sensitive nodes; keep the former model's embeddings of them with new edges."""
        ends = edges(client.past)
        known = len(ends[0]) - len(edges(client.stage)[0])
        old = [np.searchsorted(getattr(batch, side), x[:known])
               for side, x in zip(SIDES, ends, strict=True)]
        before = Bipartite(old[0], old[1], len(batch.users), len(batch.items)).to(self.where)
        with torch.no_grad():       # a batch is all edges, so its rows are ``now``
            users, items = inputs.joined(client, client.model, batch, now).values()
            then = client.model(users, items, before, before.weight)
            today = client.model(users, items, batch.graph, batch.graph.weight)
        for i, side in enumerate(SIDES):
            chosen = moved_most(then[i].cpu(), today[i].cpu(), np.unique(old[i]), self.sensitive)
            client.taught[side] = {"ids": getattr(batch, side)[chosen],
                                   "values": today[i].cpu()[torch.from_numpy(chosen)]}

    def lesson(self, client: Client, batch: Batch, prototypes: torch.Tensor) -> Lesson:
        """Return what the two terms of the loss need in this round."""
        def tensors(parts: Any) -> list[torch.Tensor]:
            return [torch.as_tensor(x).to(self.where) for x in parts]

        ends = batch.graph.src, batch.graph.dst
        edges_each = [np.bincount(at.cpu().numpy(), batch.graph.count) for at in ends]
        return Lesson(
            tensors(np.searchsorted(getattr(batch, s), client.taught[s]["ids"]) for s in SIDES),
            tensors(client.taught[s]["values"] for s in SIDES),
            tensors(np.minimum(np.frexp(n)[1] - 1, self.levels - 1).astype(np.int64)
                    for n in edges_each),  # the power of two
            tensors(prototypes))

    def loss(self, client: Client, users: torch.Tensor, items: torch.Tensor,
             graph: Bipartite, draw: np.random.Generator) -> torch.Tensor:
        """Return FedLink's loss and the two terms."""
        loss, model = super().loss(client, users, items, graph, draw), client.model
        return loss + model.lesson.terms(model.made, self.distil, self.pull)


class Lesson(NamedTuple):
    """Targets of the distillation in a round's steps; lists are of users and of items.

    Sensitive nodes ``at`` [n] and the teacher's embeddings of them ``taught`` [n, d]; the level
    of every node; prototypes [levels, d].
    """

    at: list[torch.Tensor]
    taught: list[torch.Tensor]
    level: list[torch.Tensor]
    prototypes: list[torch.Tensor]

    def terms(self, made: Any, distil: float, pull: float) -> torch.Tensor:
        """Return the two terms for embeddings ``made`` of users, items; 0 where none applies."""
        total = made[0].new_zeros(())
        if distil and any(map(len, self.at)):
            off = torch.cat([z.index_select(0, at) - taught for z, at, taught in
                             zip(made, self.at, self.taught, strict=True)])
            total = total + distil * off.square().mean()
        if pull:
            own, prototypes = self.sums(made), torch.stack(self.prototypes)
            both = (own[:, :, -1] > 0) & prototypes.any(2)
            if both.any():
                off = own[both][:, :-1] / own[both][:, -1:] - prototypes[both]
                total = total + pull * off.square().mean()
        return total

    def sums(self, made: Any) -> torch.Tensor:
        """Sum embeddings by side and level; the last column counts [2, levels, d + 1]."""
        return torch.stack([z.new_zeros(len(p), z.shape[1] + 1).index_add_(
            0, level, torch.nn.functional.pad(z, (0, 1), value=1.0))
            for z, level, p in zip(made, self.level, self.prototypes, strict=True)])


class Pupil(BipartiteSage):
    """The encoder; remembers what it made last and what it is held to (neither is saved)."""

    made: Any = None
    lesson: Any = None

    def forward(self, users: torch.Tensor, items: torch.Tensor, graph: Bipartite,
                weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.made = super().forward(users, items, graph, weight)
        return self.made


def moved_most(then: torch.Tensor, today: torch.Tensor, known: np.ndarray,
               share: float) -> np.ndarray:
    """Return the ``share`` (rounded up) of nodes ``known`` whose embeddings moved most.

    Ascending node numbers; of nodes that moved equally far the first are taken.
    """
    far = (today - then).square().sum(1).numpy()[known]
    return np.sort(known[np.argsort(-far, kind="stable")[:math.ceil(share * len(known))]])
