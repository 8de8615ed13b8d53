"""GLFC (Dong et al. 2022): compensated gradients and an old model that a proxy server has chosen.

Jiahua Dong, Lixu Wang, Zhen Fang, Gan Sun, Shichao Xu, Xiao Wang, Qi Zhu: *Federated
Class-Incremental Learning*, CVPR 2022. Descriptions and the authors' code could be had, not the
equations. It was made for images; as POWER says, image networks are replaced by the GAT and by
POWER's encoder of gradients. A client minimises, over its task's labelled nodes and those that it
replays,

    compensation * L_GC + distillation * L_RD                                               (a)

- **L_GC**, class-aware gradient compensation: binary cross-entropy, node i weighted by
  abs(g_i) over the mean abs(g) of its group. g_i is the loss's derivative by its class's logit;
  the groups are new classes (the task's nodes) and old ones (replayed nodes)
- **L_RD**, relation distillation: binary cross-entropy with a target that is one-hot in the
  task's classes and the old model's probabilities in all others
- **the old model** is the best global one of the task before. The proxy server measures the global
  model of each round on prototypes: each client sends, when a task begins, for each of its classes
  the node nearest to the mean embedding, perturbed, as the gradients that it causes in a random
  network, from which the server reconstructs it

**What the server learns**: gradients of a single sample give it back by one division. So the server
has a node of each class of each client, as far as the perturbation leaves it.

What they leave open, or what is done otherwise here:

- clients are told when a task begins; in the paper they find out, by a jump of 1.2 in the entropy
  of the global model on their data
- tasks differ between clients, so "old" are all classes but those of the client's own task: the old
  model knows what other clients have learned
- without an old model, in the first task, the loss is L_GC, unweighted, as in the code
- losses are sums over nodes and classes, as everywhere here; the code has means. Both have
  lambda_1 = lambda_2 = 0.5
- nodes to replay are herded by normalised embeddings, as in iCaRL (Rebuffi et al. 2017), as many of
  each class as elsewhere; the code holds 2,000 images
- the perturbation is that of the code: ``perturb_steps`` of descent on a prototype's features
  towards its class; the noise on latent features that the paper describes is not in the code
- the closed form reconstructs one prototype exactly; the code takes the last 20 iterates of L-BFGS
- the best model is that of the task before; the code does not reset its best accuracy with a task
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch.nn import functional

from fedvine.aggregate.means import Mean
from fedvine.core import tree
from fedvine.core.method import At, Client, Field, Server, World, on_client
from fedvine.methods._power.equations import (
    by_class,
    encode,
    expected_gradients,
    largest,
    read_gradients,
    shared_encoder,
)
from fedvine.methods._power.remembering import Buffering
from fedvine.nn.gat import Inputs, features
from fedvine.rivals._synthesis import alone
from fedvine.rivals.ergnn import nearest_mean

bce = functional.binary_cross_entropy_with_logits


class Glfc(Buffering):
    """Replay with compensated gradients, and distillation from a chosen old global model."""

    name: ClassVar[str] = "glfc"
    revision: ClassVar[int] = 2         # slopes without cancellation; ties
    space: ClassVar[dict[str, Any]] = {"compensation": (0.1, 1.0), "distillation": (0.0, 1.0)}

    aggregate: Mean = Mean()  # type: ignore[assignment]
    criterion: Literal["binary-sum"] = Field(  # type: ignore[assignment]
        default="binary-sum", description="binary cross-entropy summed over nodes and classes")
    compensation: float = Field(default=0.5, gt=0, description="weight of L_GC, lambda_1")
    distillation: float = Field(default=0.5, ge=0, description="weight of L_RD, lambda_2; 0: none")
    perturb_steps: int = Field(default=50, ge=0, description="steps that perturb a prototype")
    perturb_rate: float = Field(default=0.1, gt=0, description="their learning rate")

    def start(self, world: World) -> Server:
        model = super().start(world).model
        return Server(model=model, best=model, accuracy=-1.0,   # of the best of this task, so far
                      x=torch.empty(0, world.facts["features"]),    # prototypes [V, F]
                      y=torch.empty(0, dtype=torch.int64))          # and the class of each, [V]

    def setup(self, client: Client) -> None:
        super().setup(client)
        client.old, client.has_old = tree.weights(client.model), False

    # -- the proxy server --------------------------------------------------------------------------
    def arrive(self, server, clients, at: At) -> None:
        """Send out the old model, and replace the prototypes by those of the new tasks."""
        encoder = shared_encoder(clients.world)
        sent = clients.call(self.meet, server.best if at.t else None,
                            expect=expected_gradients(encoder, clients.world.facts["classes"]))
        found = [read_gradients(encoder, gradients) for gradients in sent]
        server.x = torch.cat([server.x[:0], *(x for x, _ in found)])
        server.y = torch.cat([server.y[:0], *(y for _, y in found)])
        server.accuracy = -1.0

    def round(self, server, clients, at: At) -> None:
        super().round(server, clients, at)
        accuracy = self.accuracy(server, clients.world)
        if accuracy >= server.accuracy:
            server.best, server.accuracy = server.model, accuracy

    def accuracy(self, server: Server, world: World) -> float:
        """Compute the share of the prototypes that the global model classifies rightly."""
        net = tree.load(self.placed(world), server.model)
        with torch.no_grad():
            right = net(alone(server.x.to(self.where))).argmax(1).cpu() == server.y
        return float(right.float().mean()) if len(right) else 0.0

    @on_client
    def meet(self, client: Client, old: dict[str, torch.Tensor] | None) -> dict[str, torch.Tensor]:
        """Store the old model; send the gradients of perturbed prototypes of the task's classes."""
        if old is not None:
            client.old, client.has_old = old, True
        self.labelled(client)
        nodes = nearest_mean(functional.normalize(self.embedded(client, client.old)),
                             client.stage.y, 1)
        y = torch.from_numpy(client.stage.y[nodes])
        return encode(shared_encoder(client.world), self.perturbed(client, nodes, y), y)

    def perturbed(self, client: Client, nodes: np.ndarray, y: torch.Tensor) -> torch.Tensor:
        """Move the nodes' features, float32 [P, F], towards what the old model takes for ``y``."""
        net = tree.load(self.placed(client.world), client.old)
        x = features(client.stage.x[nodes])
        x = (x.to_dense() if x.layout == torch.sparse_csr else x).clone().float().to(
            self.where)
        truth = functional.one_hot(y, client.world.facts["classes"]).float().to(self.where)
        for _ in range(self.perturb_steps if len(y) else 0):
            x.requires_grad_()
            loss = bce(net(alone(x)), truth, reduction="none").mean(1).sum()
            slope, = torch.autograd.grad(loss, x)
            x = (x - self.perturb_rate * slope).detach()
        return x.cpu()

    # -- local training ----------------------------------------------------------------------------
    def choose(self, client: Client, model) -> np.ndarray:
        """Select nodes of each class by herding, int64 [B]."""
        return herded(functional.normalize(self.embedded(client)), client.stage.y, self.per_class)

    def loss(self, client: Client, draw: torch.Generator) -> torch.Tensor | None:
        """Compute Eq. (a), a scalar; None without nodes."""
        graph, nodes, new = self.labelled(client)
        kept = torch.from_numpy(client.kept_y).to(self.where)
        if not len(new) + len(kept):
            return None
        if len(kept):
            graph, _ = self.replayed(client)
            nodes = torch.cat([nodes, torch.arange(
                len(graph.x) - len(kept), len(graph.x), device=self.where)])
        scores = client.model(graph, draw)[nodes]
        truth = functional.one_hot(torch.cat([new, kept]), scores.shape[1]).to(scores)
        weight = slope_weights(scores.detach(), truth, len(new))
        compensated = (weight[:, None] * bce(scores, truth, reduction="none")).sum()    # L_GC
        if not client.has_old or not self.distillation:
            return compensated
        others = torch.ones(scores.shape[1], dtype=torch.bool, device=self.where)
        others[new] = False
        target = torch.where(others, self.remembered(client, graph)[nodes], truth)
        distilled = bce(scores, target, reduction="sum")                                # L_RD
        return self.compensation * compensated + self.distillation * distilled          # (a)

    def remembered(self, client: Client, graph: Inputs) -> torch.Tensor:
        """Return the old model's probabilities [N, classes] of all nodes, computed once a task."""
        if "remembered" not in client.cache:
            net = tree.load(self.placed(client.world), client.old)
            with torch.no_grad():
                client.cache["remembered"] = net(graph).sigmoid()
        return client.cache["remembered"]


def slope_weights(scores: torch.Tensor, truth: torch.Tensor, new: int) -> torch.Tensor:
    """Compute the weights [B] of L_GC: |g_i| over its mean among new, or among old nodes.

    ``scores`` [B, C] are logits, ``truth`` [B, C] is one-hot; the first ``new`` rows are of new
    classes. Without old nodes all weigh 1.
    """
    slopes = (-(scores * truth).sum(1)).sigmoid()   # 1 - sigmoid, which would lose its digits
    if new == len(slopes):
        return torch.ones_like(slopes)
    groups = (slopes[:new], slopes[new:])
    return torch.cat([g / g.mean().clamp(min=1e-12) if len(g) else g for g in groups])


def herded(h: torch.Tensor, y: np.ndarray, per_class: int) -> np.ndarray:
    """Select nodes of each class one by one, so that their mean stays nearest to the class's.

    ``h`` [N, d] are embeddings, ``y`` int [N] classes, -1 for none; the result is that of
    :func:`fedvine.methods._power.equations.select`.
    """
    def best(nodes: np.ndarray) -> np.ndarray:
        rows = h[torch.from_numpy(nodes)].detach().double()
        mean, total, chosen = rows.mean(0), torch.zeros_like(rows[0]), []
        for count in range(1, min(per_class, len(nodes)) + 1):
            far = ((total + rows) / count - mean).norm(dim=1)
            far[chosen] = torch.inf
            chosen.append(int(largest(-far.cpu().numpy(), 1)[0]))
            total = total + rows[chosen[-1]]
        return np.array(chosen, np.int64)
    return by_class(y, best)
