"""DyGRAIN (Kim, Yun and Kang, IJCAI 2022): incremental learning of what a snapshot changed.

A rival in DG-CoLearn's Appendix G. Its abstract and a summary could be had, not the equations, and
there is no public code. It learns new nodes, old ones whose receptive fields the new inputs changed
much (*influence propagation*), and distils what old nodes knew that are likely to be forgotten,
found "by estimating loss discrepancy", with their true classes (*knowledge distillation with
truth*). One machine has the whole graph. In snapshot t it minimises here::

    L_N + retain [truth L_V + (1 - truth) KL_V]                                             (a)

- N are the labelled nodes that are new, and the share ``influenced`` of the old labelled ones that
  the snapshot changed most, with the normalised adjacency S (loops included) and features X of the
  snapshots, k the number of layers (layers as SGC has them, without weights)::

      change_v = |(S_t^k X_t)_v - (S_(t-1)^k X_(t-1))_v|_2                                  (b)

- V is the share ``vulnerable`` of the other old labelled nodes, those whose loss a step on N's
  would raise most::

      risk_v = l(v; theta - eta grad L_N(theta)) - l(v; theta)                              (c)

  as maximally interfered retrieval has it (Aljundi et al., NeurIPS 2019)
- L are mean cross-entropies, KL_V is the mean divergence of the model's classes from those that the
  former model has for the same nodes, on the snapshot as it is when it begins

What was left open and was chosen: (b), (c), the shares, that N and V are chosen once, before a
snapshot's first step, and ``eta``, which is the learning rate. Other old nodes are in no loss.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import torch
from torch.nn.functional import cross_entropy, kl_div

from fedvine.core import tree
from fedvine.core.method import Client, Field, on_client
from fedvine.rivals._one_by_one import OneByOne


class DyGrain(OneByOne):
    """New and influenced nodes are learned, vulnerable ones distilled with their classes."""

    name: ClassVar[str] = "dygrain"
    space: ClassVar[dict[str, Any]] = {"influenced": (0.05, 0.5), "vulnerable": (0.05, 0.5),
                                       "retain": (0.1, 10.0, "log")}

    influenced: float = Field(default=0.2, ge=0, le=1, description="share of the old labelled "
                              "nodes that are learned again, those that changed most")
    vulnerable: float = Field(default=0.2, ge=0, le=1, description="share of the other old "
                              "labelled nodes that are distilled, those at the largest risk")
    retain: float = Field(default=1.0, ge=0, description="weight of the distillation")
    truth: float = Field(default=0.5, ge=0, le=1, description="share of the true classes in the "
                         "distillation, beside the former model's")

    def setup(self, client: Client) -> None:
        super().setup(client)
        dtype, classes = getattr(torch, self.precision), client.world.facts["classes"]
        client.smoothed = torch.empty(0, self.width(client.world), dtype=dtype)     # S^k X
        client.chosen = -1                                  # the stage that these are of:
        client.learned = np.empty(0, np.int64)              # places of N
        client.distilled = np.empty(0, np.int64)            # places of V
        client.taught = torch.empty(0, classes, dtype=dtype)        # the former model's scores of V

    @on_client
    def train(self, client: Client, model: Any, epochs: int, own: tuple[np.ndarray, np.ndarray]
              ) -> None:
        """Train as dgcolearn does; choose N and V before a snapshot's first step."""
        if client.chosen != client.place[0]:
            tree.load(client.net, model)
            self.choose(client, own[0][0], own[1])
            client.chosen = client.place[0]
        super().train(client, model, epochs, own)

    def choose(self, client: Client, places: np.ndarray, labels: np.ndarray) -> None:
        """Choose N and V among labelled nodes [P], and keep what the former model says of V."""
        old = places < len(client.smoothed)
        now = self.smooth(client)[:len(client.smoothed)].cpu()
        change = (now - client.smoothed).norm(dim=1)                                        # (b)
        before = places[old]
        moved = before[top(change[torch.from_numpy(before)].numpy(), self.influenced)]
        client.learned = np.concatenate([places[~old], moved])
        rest = ~np.isin(places, client.learned)
        risk = self.risk(client, places, labels)[rest]
        client.distilled = places[rest][top(risk, self.vulnerable)]
        with torch.no_grad():
            client.taught = client.net.score(
                self.by_layer(client)[-1][torch.from_numpy(client.distilled)]).cpu()

    def smooth(self, client: Client) -> torch.Tensor:
        """Compute S^k X, [n, F], of the newest snapshot."""
        part, x = self.part_of(client), self.inputs(client)
        root = (self.aggregated(client, np.arange(len(x))) + 1).sqrt()[:, None]
        for _ in range(self.layers):
            said = x / root
            x = (said + part.add_neighbours(said)) / root
        return x

    def risk(self, client: Client, places: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Compute (c) of labelled nodes [P]; 0 where N is empty."""
        at, y = torch.from_numpy(places), torch.from_numpy(labels).long().to(self.where)
        learned = torch.from_numpy(np.isin(places, client.learned))
        if not learned.any():
            return np.zeros(len(places))
        weights, each = tree.weights(client.net), self.losses(client, at, y)
        slopes = torch.autograd.grad(each[learned].mean(), list(client.net.parameters()),
                                     materialize_grads=True)
        with torch.no_grad():
            for p, g in zip(client.net.parameters(), slopes, strict=True):
                p -= self.learning_rate * g
            found = self.losses(client, at, y) - each
            tree.load(client.net, weights)
        return found.detach().cpu().numpy()

    def losses(self, client: Client, at: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Compute the cross-entropies [P] of nodes ``at`` of classes ``y``."""
        return cross_entropy(client.net.score(self.by_layer(client)[-1][at]), y, reduction="none")

    def loss(self, client: Client, rows: torch.Tensor, ends: list[torch.Tensor],
             labels: np.ndarray) -> torch.Tensor:
        """Compute (a), a scalar."""
        places = ends[0].numpy()
        new, kept = (np.flatnonzero(np.isin(places, some))
                     for some in (client.learned, client.distilled))
        found = super().loss(client, rows, [ends[0][torch.from_numpy(new)]], labels[new])
        if self.retain and len(kept):
            at = torch.from_numpy(client.distilled)
            known = dict(zip(places.tolist(), labels.tolist(), strict=True))
            y = torch.tensor([known[p] for p in client.distilled.tolist()], device=self.where)
            scores = client.net.score(rows[at])
            apart = kl_div(scores.log_softmax(1), client.taught.to(scores).log_softmax(1),
                           log_target=True, reduction="batchmean")
            found = found + self.retain * (self.truth * cross_entropy(scores, y)
                                           + (1 - self.truth) * apart)                  # (a)
        return found

    @on_client
    def store(self, client: Client, own: tuple[np.ndarray, np.ndarray]) -> None:
        """Keep the smoothed features of the snapshot, which its nodes are compared with later."""
        client.smoothed = self.smooth(client).cpu()


def top(score: np.ndarray, share: float) -> np.ndarray:
    """Return the positions of the ``share`` (rounded up) of the largest scores, ascending."""
    return np.sort(np.argsort(-score, kind="stable")[:math.ceil(share * len(score))])
