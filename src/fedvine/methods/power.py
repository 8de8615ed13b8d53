"""POWER (Zhu, Hu and Wu, "Federated Continual Graph Learning", KDD 2025), Algorithm 1.

Clients replay experience nodes of earlier tasks, selected by local-global coverage. Once a task
each also sends its label distributions so far (its trajectory) and the prototypes of its classes,
encoded as gradients. The server reconstructs the prototypes, joins them to a graph, and trains the
averaged model on it towards the models of the clients that know each class best.

:meth:`Power.meet` and `execute` are C_Exec; :meth:`Power.round` is the loop's body with S_Exec.
"Line" means a line of the box, by the numbers of arXiv 2411.18919v3 (HTML). Eqs. (5) to (7) are in
`fedavg.py` and `_power/remembering.py`, (12) and (14) here, the others in `_power/equations.py`.

**What the server learns.** The gradients of one sample through a linear layer give the sample
back by one division. So the server has, exactly, every client's mean feature vector of each class;
of a class of one node these are the node's features. It also has label distributions, sizes and
models. ``min_count`` withholds small classes, ``clip`` with ``noise`` adds calibrated noise to a
mean. With ``aggregate.secure`` a prototype is the mean over the nodes of all clients, by secure
sums, and no client's own mean is sent; label distributions and models, which Eq. (14) needs one by
one, are sent as before.

Where the paper leaves it open, or its public code differs:

- the loss of a task is the sum of Eqs. (5) and (6), ``criterion = "binary-sum"``; the code takes
  means ("cross-entropy"). Of sums ``beta`` = 0.01 leaves a new task about a fifth of the loss, of
  means a hundredth. The paper searches beta; 0.01 is the code's, and the best in validation
- ``code_coverage``: one radius a class and greedy removal of covered nodes, as in the code; the
  paper has a radius a node and sums of coverages
- ``transfer``: Eq. (14) on the graph of Eq. (13) ("kl"), or as in the code, without a graph, the
  mean absolute difference of scores ("l1"), or none
- the server's epochs and learning rate are not stated
- ``reconstruction``: the closed form is exact and thousands of times faster than L-BFGS
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import model_validator

from fedvine.aggregate.class_means import Waiting, class_sums, protect
from fedvine.aggregate.noise import from_fixed, to_fixed
from fedvine.core import tree
from fedvine.core.clients import Clients
from fedvine.core.expect import Array, Maybe
from fedvine.core.method import At, Client, Field, Server, World, on_client
from fedvine.core.rng import torch_rng
from fedvine.core.state import enlarged, unsent
from fedvine.methods._power.equations import (
    Encoder,
    class_means,
    encode,
    expected_gradients,
    neighbours,
    read_gradients,
    select,
    shared_encoder,
)
from fedvine.methods._power.remembering import Replaying
from fedvine.nn.gat import Inputs


class Power(Replaying):
    """Experience replay at clients, prototypes and trajectory-aware transfer at the server."""

    name: ClassVar[str] = "power"
    revision: ClassVar[int] = 2         # transfer in float64; ties
    space: ClassVar[dict[str, Any]] = {  # with beta, what the paper and its code search
        "epsilon": [0.01, 0.1, 0.5], "phi": (0.0, 1.0), "server_epochs": [3, 5, 10]}

    alpha: float = Field(default=0.5, ge=0, le=1, description="weight of local against global "
                         "embeddings in coverage, alpha of Eq. (2); 1: local coverage alone")
    epsilon: float = Field(default=0.1, gt=0, description="threshold of coverage, Eq. (3)")
    code_coverage: bool = Field(default=False, description="coverage as in the authors' code")
    phi: float = Field(default=0.9, ge=0, le=1, description="decay of a trajectory a task, phi of "
                       "Eq. (12); 0: not cumulative, the last task alone")
    transfer: Literal["kl", "l1", "none"] = Field(
        default="kl", description="the server's transfer: Eqs. (13), (14), the code's, or none")
    near: int = Field(default=1, ge=0, description="neighbours of a prototype, k of Eq. (13)")
    server_epochs: int = Field(default=10, ge=0, description="epochs of transfer, E_g")
    server_learning_rate: float = Field(
        default=1e-3, gt=0, description="learning rate of transfer, Adam")
    reconstruction: Literal["closed-form", "lbfgs"] = Field(
        default="closed-form", description="how prototypes are read back, Eqs. (10), (11)")
    min_count: int = Field(default=1, ge=1, description="classes of fewer labelled nodes are not "
                           "sent as prototypes")
    clip: float | None = Field(default=None, gt=0, description="largest L2 norm of a node's "
                               "features in a prototype")
    noise: float = Field(default=0.0, ge=0, description="noise multiplier on prototypes, in units "
                         "of clip / count; needs clip")

    @model_validator(mode="after")
    def _noise_is_on_means(self) -> Self:
        if self.hides and self.noise:
            raise ValueError("noise is for prototypes of one client each; leave out "
                             "aggregate.secure")
        return self

    def noisy(self) -> bool:
        return self.noise > 0

    def start(self, world: World) -> Server:
        return Server(model=super().start(world).model,
                      trajectories={},                            # q^k float64 [C], by client name
                      x=torch.empty(0, world.facts["features"]),  # global buffer: prototypes [V, F]
                      y=torch.empty(0, dtype=torch.int64))        # and the class of each, [V]

    def setup(self, client: Client) -> None:
        super().setup(client)
        facts = client.world.facts
        client.trajectory = np.zeros(facts["classes"])           # q^k, float64 [C]
        client.told = True  # whether this q^k and all prototypes so far were sent to the server
        client.means = torch.empty(0, facts["features"])     # [P, F] prototypes not yet sent
        client.classes = torch.empty(0, dtype=torch.int64)   # [P] the class of each
        client.waiting = Waiting(facts["classes"], facts["features"])

    def grow(self, memory: Any, fresh: Any) -> None:
        super().grow(memory, fresh)
        if hasattr(memory, "trajectories"):         # of a class that is new: 0
            C = fresh.model["second.bias"].shape[0]
            memory.trajectories = {n: enlarged(q, np.zeros(C))
                                   for n, q in memory.trajectories.items()}

    # -- Algorithm 1 -----------------------------------------------------------------------------
    def arrive(self, server, clients, at: At) -> None:
        clients.call(self.meet, expect=None)
        if self.hides:
            self.add_prototypes(server, clients)

    @on_client
    def meet(self, client: Client) -> None:
        """Compute prototypes and trajectory of a new task, before its first round.

        Clients that are sampled in no round of the task compute them, too, since Eq. (12) is a sum
        over all tasks. :meth:`execute` sends them the next time the client is sampled.
        """
        y = client.stage.y
        counts = np.bincount(y[y >= 0], minlength=len(client.trajectory))
        means, labels = self.prototypes(client, counts)                                 # (8)
        client.means = torch.cat([client.means, means])
        client.classes, client.told = torch.cat([client.classes, labels]), False
        client.trajectory = self.phi * client.trajectory + counts / max(counts.sum(), 1)  # (12)

    @on_client
    def execute(self, client: Client, model: dict[str, torch.Tensor], last: bool
                ) -> dict[str, Any]:
        """Carry out C_Exec, lines 13 to 35 (`meet`: (8), (12)): train with replay, store, send.

        ``last`` is r = R. The box tests r = 1. Here it is the first round of the task in which the
        client is sampled. Prototypes of earlier tasks that were not sent, or did not come, are
        sent then, too.
        """
        self.receive(client, model)                                     # line 13
        for epoch in range(self.epochs):                                # lines 14-16
            self.step(client, epoch)                                    # (5), (6), (7)
        if last:                                                        # lines 17-23, r = R
            self.store(client, model)                                   # (2), (3), (4)
        first_upload = None
        met = None if client.told else {"means": client.means, "classes": client.classes}
        met = unsent(client, met, joined)
        if met is not None:                                             # lines 24-30, r = 1
            gradients = encode(self.encoder(client.world), met["means"], met["classes"])  # (9)
            first_upload = {"trajectory": client.trajectory, "gradients": gradients}
            client.told, client.means, client.classes = True, client.means[:0], client.classes[:0]
        return {"model": tree.weights(client.model),                    # lines 30, 32
                "size": len(self.labelled(client)[1]),                  # N_k
                "met": first_upload}   # q^k and gradients once a task, else None

    def round(self, server, clients, at: At) -> None:
        """Carry out round r of task t, lines 5 to 8: C_Exec at the sampled clients, then S_Exec."""
        sampled = clients.choose(self.fraction)
        mean, _, sent = clients.mean(                                   # lines 5-7
            self.execute, server.model, at.last, around=server.model, only=sampled, once=True,
            more={"met": Maybe(self.expected_upload(clients.world))})
        self.store_at_others(server, clients, at, sampled)              # lines 17-23, not sampled
        server.model = mean                                             # sum_k N_k / N Theta^k
        self.fill_buffer(server, sent, clients.world)                   # lines 39-48: (10), (11)
        if self.transfer != "none":
            self.transfer_knowledge(server, sent, clients.world)        # lines 49-51: (13), (14)

    def expected_upload(self, world: World) -> dict[str, Any]:
        """Return the schema of "met": q^k, of which each task adds at most 1, and gradients.

        A client that was away for some tasks sends the prototypes of all of them at once.
        """
        C = world.facts["classes"]
        return {"trajectory": Array("float64", (C,), low=0, high=world.stages),
                "gradients": expected_gradients(self.encoder(world), C * max(world.stages, 1))}

    def fill_buffer(self, server: Server, sent: Any, world: World) -> None:
        """Add reconstructed prototypes to the global buffer; replace trajectories that came."""
        for name, reply in sent.items():
            if (upload := reply["met"]) is None:
                continue
            server.trajectories = server.trajectories | {name: upload["trajectory"]}
            x, y = read_gradients(self.encoder(world), upload["gradients"],       # (10), (11)
                                self.reconstruction, torch_rng("lbfgs", len(server.y), name))
            server.x, server.y = torch.cat([server.x, x]), torch.cat([server.y, y])

    def transfer_knowledge(self, server: Server, sent: Any, world: World) -> None:
        """Train the global model for E_g epochs on the buffer graph, Eq. (14).

        Of each class it learns from the clients' models in proportion to their trajectories. It is
        computed in float64: a score that every neighbour of a node has alike changes no attention,
        so that its slope is 0 except for rounding, and Adam would make full steps of the rounding.
        """
        if not len(server.y) or not self.server_epochs:
            return
        near = self.near if self.transfer == "kl" else 0
        graph = buffer_graph(server.x.double().to(self.where), near)                # (13)
        unseen = np.zeros(world.facts["classes"])
        seen = torch.from_numpy(np.stack([server.trajectories.get(n, unseen)
                                          for n in sent.names]))
        share = (seen / seen.sum(0).clamp(min=1e-12))[:, server.y]                  # [K, V]
        share, net = share.to(self.where), self.net(world).double().to(self.where)
        with torch.no_grad():
            local = torch.stack([tree.load(net, m)(graph) for m in self.aggregate.bounded(
                sent.each("model"), server.model)])
        tree.load(net, server.model)
        optimizer = torch.optim.Adam(net.parameters(), lr=self.server_learning_rate)
        for _ in range(self.server_epochs):
            loss = divergence(net(graph), local, share, self.transfer)              # (14)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if all(p.isfinite().all() for p in net.parameters()):  # whatever a client has sent
            server.model = {n: p.float() for n, p in tree.weights(net).items()}

    # -- prototypes as secure sums (aggregate.secure) ----------------------------------------------
    def add_prototypes(self, server: Server, clients: Clients) -> None:
        """Add the means of the task's classes over all clients (8) to the global buffer.

        It then has one prototype a class and task, in place of one a client.
        """
        C, F = clients.world.facts["classes"], clients.world.facts["features"]
        total, _ = clients.sum(self.sums, length=C * (1 + F), once=True)
        counts, sums = np.split(from_fixed(total).reshape(C, 1 + F), [1], 1)
        there = np.flatnonzero(counts[:, 0].round() > 0)
        means = torch.from_numpy((sums[there] / counts[there]).astype(np.float32))
        server.x = torch.cat([server.x, means])
        server.y = torch.cat([server.y, torch.from_numpy(there)])

    @on_client(combined="sum")
    def sums(self, client: Client) -> np.ndarray:
        """Compute number and summed features of the nodes of each class, uint64 [C (1 + F)].

        Classes of fewer than ``min_count`` nodes are withheld.
        """
        y, C, waiting = client.stage.y, client.world.facts["classes"], client.waiting
        small = np.bincount(y[y >= 0], minlength=C) < self.min_count
        few = np.flatnonzero((y >= 0) & ~waiting.begin(client.place[0], y, self.aggregate.grain)[y])
        if self.aggregate.given(client) != "out":
            waiting.add(client.stage.x[few], y[few])
        y = np.where((y >= 0) & ~small[y] & waiting.sent[y], y, -1)
        sums, counts = class_sums(client.stage.x, y, C, self.clip)
        due = waiting.due()
        late, more = class_sums(waiting.x[due], waiting.y[due], C, self.clip)
        sums, counts = sums + late, counts + more
        sent = unsent(client, {"sums": to_fixed(np.column_stack([counts, sums]).ravel())})
        return sent["sums"]     # type: ignore[index]

    # -- parts -----------------------------------------------------------------------------------
    def choose(self, client: Client, model: dict[str, torch.Tensor]) -> np.ndarray:
        """Select experience nodes with maximum local-global coverage, int64 [B]."""
        _, nodes, y = self.labelled(client)
        h = self.embedded(client)[nodes]                                                # (2)
        others = self.embedded(client, model)[nodes] if self.alpha < 1 else None
        chosen = select(h, others, y.cpu().numpy(), self.per_class, alpha=self.alpha,   # (3), (4)
                        epsilon=self.epsilon, code=self.code_coverage)
        return nodes.cpu().numpy()[chosen]

    def prototypes(self, client: Client, counts: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the protected mean features [P, F] of the task's classes, and these int64 [P].

        ``counts`` int [classes] are the labelled nodes of each class.
        """
        clip, present = math.inf if self.clip is None else self.clip, np.flatnonzero(counts)
        if self.hides:                          # they are in the sums
            present = present[:0]
        means, _ = class_means(client.stage.x, client.stage.y, len(counts), clip)       # (8)
        kept, row = protect(means[present], torch.from_numpy(counts[present]), clip=clip,
                            min_count=self.min_count, noise=self.noise, client=client)
        return kept, torch.from_numpy(present)[row]

    def encoder(self, world: World) -> Encoder:
        """Draw the gradient-encoding network, the same at every client and at the server."""
        return shared_encoder(world)


def joined(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Return the prototypes of both uploads."""
    return {name: torch.cat([part, now[name]]) for name, part in before.items()}


def buffer_graph(x: torch.Tensor, near: int) -> Inputs:
    """Build the global buffer graph, Eq. (13), of prototypes [V, F]: nearest neighbours, loops."""
    loops = torch.arange(len(x), device=x.device).repeat(2, 1)
    src, dst = torch.cat([neighbours(x, near), loops], 1) if near else loops
    order = torch.argsort(dst, stable=True)
    return Inputs(x, src[order], dst[order])


def divergence(scores: torch.Tensor, local: torch.Tensor, share: torch.Tensor, how: str
               ) -> torch.Tensor:
    """Compute Eq. (14): sum over prototypes i, clients k of share[k, i] KL(global_i || local_ki).

    ``scores`` [V, C] are logits of the global model, ``local`` [K, V, C] of the clients', ``share``
    [K, V] the clients' weights. "l1" takes mean absolute differences, as the authors' code does.
    """
    if how == "l1":
        return (share * (scores - local).abs().mean(2)).sum()
    ours, theirs = scores.log_softmax(1), local.log_softmax(2)
    return (share * (ours.exp() * (ours - theirs)).sum(2)).sum()
