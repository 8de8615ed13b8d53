"""Beyond POWER: regression in closed form and class means of smoothed features beside the network.

A node is answered by three opinions, :mod:`fedvine.methods._power_plus.choice`, Eq. (d):

- **the closed form**: ridge regression on features that are averaged over neighbours
  (:mod:`fedvine.methods._power_plus.closed_form`). Its weights follow from sums over nodes, so they
  do not depend on the order of tasks nor on the cut into clients, and forget nothing. Where clients
  differ, each corrects them by the sums of its own nodes
  (:mod:`fedvine.methods._power_plus.own_sums`)
- **the rows**: cosines of a node and the classes' mean rows, which need fewer nodes
- **the network**, trained for some rounds on each task. Every client replays the mean features of
  all classes that its task does not have; the loss is the mean over classes. ``rounds=0`` leaves
  the network out

How much each counts, the penalty, averages of scores, and whether a node's own features stand
beside the averaged ones, is chosen after each task: the sums are made in ``folds``, each fold's
nodes are answered without it, and clients count right answers. So nothing is set by hand for a
data set, and where neighbours differ averages are left out.

**A task** has two sums when it begins, of features by class and of products, then ``rounds``, each
with a sum of models, and at its end the counts of right answers and of nodes by probability.
``aggregate.secure`` hides every client's part of all of them.

**What the server learns**: these sums over clients. Without masks it has each client's parts
and models too, and from the sums of a task of few nodes their rows can be computed: ``least``
withholds such tasks. ``clip`` and ``noise`` add calibrated noise to the class means at every
client. It is measured in one node's part, which is not bounded in products, nor where neighbours'
rows hold the node's features too, so noise needs ``width=0`` and ``hops=0``: the class means and
the network alone, with ``rows`` as their weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import PrivateAttr, model_validator
from scipy.sparse import issparse

from fedvine.aggregate.aggregate import participants
from fedvine.aggregate.class_means import class_sums, members
from fedvine.aggregate.noise import from_fixed, noised, to_fixed
from fedvine.core.clients import Clients
from fedvine.core.errors import FedvineError
from fedvine.core.expect import Array
from fedvine.core.method import At, Client, Counting, Field, Server, World, on_client
from fedvine.core.state import unsent
from fedvine.methods._power_plus import choice, own_sums, prior
from fedvine.methods._power_plus.propagation import means, smoothed, summed
from fedvine.nn.gat import Inputs, below
from fedvine.tasks import class_measures
from fedvine.tasks.class_incremental import NodeQueries


class PowerPlus(choice.Choosing):
    """Closed form and class means of smoothed features, and a network that replays the means."""

    name: ClassVar[str] = "power_plus"
    space: ClassVar[dict[str, Any]] = {"old": (0.5, 4.0, "log"), "hops": [2, 3]}

    criterion: Literal["cross-entropy"] = Field(  # type: ignore[assignment]
        default="cross-entropy", description="of a node; the loss is its mean over classes")
    old: float = Field(default=2.0, ge=0, description="weight of a replayed class in the loss; one "
                       "of the task weighs 1; 0: no replay")
    rows: float = Field(default=4.0, ge=0, description="without a closed form: weight of a node's "
                        "cosines with the rows (in units of their spread over classes) beside the "
                        "network's log probabilities; with it the weight is chosen; 0: none")
    clip: float | None = Field(default=None, gt=0, description="largest L2 norm of a node's "
                               "smoothed features in a class sum")
    noise: float = Field(default=0.0, ge=0, description="noise multiplier on a class's sum, in "
                         "units of clip; needs clip, width = 0 and hops = 0")

    @classmethod
    def tiny(cls) -> Self:
        return cls(rounds=2, epochs=2, hidden=4, width=24, expansion=3, hops=2)

    @model_validator(mode="after")
    def _sums_are_of_all(self) -> Self:
        if self.hides and self.fraction < 1:
            raise ValueError("secure sums are of all clients, as a sum of those that the server "
                             "names could be one client's; leave out fraction")
        return self

    @property
    def revision(self) -> int:  # type: ignore[override]
        """Return 9; 8 without a client's correction."""
        return 9 if self.corrects else 8

    # -- memory ------------------------------------------------------------------------------------
    _kept: dict[str, Any] | None = PrivateAttr(default=None)    # choices of a run that counts again

    def counting(self, stages: int, server: Mapping[str, Any] | None = None) -> Counting | None:
        if self.noisy():
            return None
        same = self.model_copy(update={"rounds": min(self.rounds, 1)})
        closed = (server or {}).get("closed") or {}
        same._kept = {name: closed[name] for name in choice.CHOSEN if name in closed}
        return Counting(same, ("model", "alone"), ("model", "optimizer", *choice.OF_CLIENT))

    def noisy(self) -> bool:
        return self.noise > 0

    def start(self, world: World) -> Server:
        C, F = world.facts["classes"], world.facts["features"]
        return Server(model=super().start(world).model, sums=torch.zeros(C, F),
                      counts=torch.zeros(C), alone={},
                      closed={**self.nothing(world), **(self._kept or {})} if self.width else {})

    def setup(self, client: Client) -> None:
        super().setup(client)
        facts = client.world.facts
        client.means = torch.zeros(facts["classes"], facts["features"])
        client.closed = {}

    def trials(self) -> list[choice.Trial]:
        """Return all ways to answer that are judged; the first is used without a choice."""
        return choice.trials(self.rows > 0, self.rounds > 0)

    # -- a task begins -----------------------------------------------------------------------------
    def arrive(self, server, clients, at: At) -> None:
        if self.noise and (self.width or self.hops):
            raise FedvineError("noise needs a bound on one node's part, which sums of products and "
                               "averages over neighbours do not have; set method.width and "
                               "method.hops to 0 too.")
        total, _ = clients.sum(self.classes, once=self.once,
                               length=server.sums.numel() + len(server.counts))
        self.add_classes(server, total)
        if self.width:
            if not vars(server).get("closed"):      # saved before there was a closed form
                server.closed = self.nothing(clients.world)
            self.add_products(server, clients)
            self.solve(server, clients.world)
            if not self.rounds:
                self.settle(server, clients)

    def add_classes(self, server: Server, total: np.ndarray) -> None:
        """Add sums of :meth:`classes` to those of the server."""
        found = torch.from_numpy(from_fixed(total).astype(np.float32))
        found = found.view(len(server.counts), -1)
        server.counts = server.counts + found[:, 0].round()
        server.sums = server.sums + found[:, 1:]

    @on_client(combined="sum")
    def classes(self, client: Client) -> dict[str, np.ndarray] | None:
        """Compute node counts [C] and summed smoothed features [C, F] of the task's classes.

        They are uint64 in fixed point, with sums of before that did not reach the server.
        """
        waiting = client.waiting
        if self.aggregate.grain == 1 and self.clip is None and not self.noise:
            y = self.shared(client)
            sums = summed(client.stage, self.hops, members(y, len(client.means)))
            counts = np.bincount(y[y >= 0], minlength=len(client.means))
            return unsent(client, {"counts": to_fixed(counts), "sums": to_fixed(sums)})
        x = smoothed(client.stage, self.hops)
        if self.aggregate.grain > 1:
            waiting.begin(client.place[0], client.stage.y, self.aggregate.grain)
            waiting.add(x[self.few(client)], client.stage.y[self.few(client)])
        sums, counts = class_sums(x, self.shared(client), len(client.means), self.clip)
        if (due := waiting.due()).any():
            late, more = class_sums(waiting.x[due], waiting.y[due], len(counts), self.clip)
            sums, counts = sums + late, counts + more
        fixed = to_fixed(sums)
        if self.noise:
            if self.clip is None:
                raise FedvineError("noise is measured in clip; set method.clip too.")
            fixed[counts > 0] = noised(client, sums[counts > 0], self.noise * self.clip, self.clip,
                                       participants=participants(client),
                                       charged=False)   # exact counts and models leave, too
        return unsent(client, {"counts": to_fixed(counts), "sums": fixed})

    # -- rounds ------------------------------------------------------------------------------------
    def round(self, server, clients, at: At) -> None:
        means = server.sums / server.counts.clamp(min=1)[:, None]
        closed = self.told(server) if at.first else None
        rows = means * (server.counts > 0)[:, None]
        server.model = clients.mean(self.learn, server.model, rows, closed, around=server.model,
                                    only=clients.choose(self.fraction)).value
        if at.last:
            self.add_late(server, clients)
            if self.width:
                self.settle(server, clients)

    def settle(self, server: Server, clients: Clients) -> None:
        """Choose a trial, or in a run that counts again answer by the one that was chosen."""
        if self._kept is None:
            self.choose(server, clients)
        else:
            server.closed["shares"] = prior.log_shares(np.asarray(server.counts, float))
            self.solve(server, clients.world)

    def add_late(self, server: Server, clients: Clients) -> None:
        """Add sums that did not come when the task began, of clients that are back."""
        sizes = server.sums.numel() + len(server.counts), self.length(clients.world)
        add = (self.classes, self.add_classes), (self.products, self.add_to_products)
        for size, (function, add_to) in zip(sizes, add, strict=True):
            for vector in clients.late(function, Array("uint64", (size,), most=8 * size)):
                if vector is not None:
                    add_to(server, vector)

    @on_client(combined="mean")
    def learn(self, client: Client, model: dict[str, torch.Tensor], means: torch.Tensor,
              closed: dict[str, Any] | None) -> dict[str, Any]:
        """Train E epochs from the global model; ``means`` float32 [C, F] are the rows to replay."""
        client.means = means
        client.closed = client.closed if closed is None else closed
        if self._kept is not None:
            return {"model": model, "size": 1}
        return self.train(client, model)

    def loss(self, client: Client, draw: torch.Generator) -> torch.Tensor | None:
        """Compute the cross-entropy: the mean within each class, then over classes and rows."""
        cross, (_, nodes, y) = torch.nn.functional.cross_entropy, self.labelled(client)
        if "seen" not in client.cache:
            client.cache["seen"] = torch.from_numpy(~self.unseen(client)).to(self.where)
        seen = client.cache["seen"][nodes]
        nodes, y = nodes[seen], y[seen]
        classes, of, count = torch.unique(y, return_inverse=True, return_counts=True)
        graph, others = self.with_rows(client, classes)
        scores = client.model(graph, draw)
        total = (cross(scores[nodes], y, reduction="none") / count[of]).sum()
        weight = len(classes) + self.old * len(others)
        if len(others):
            old = scores[len(scores) - len(others):]
            total = total + self.old * cross(old, others, reduction="sum")
        return total / weight if weight else None

    def with_rows(self, client: Client, classes: torch.Tensor) -> tuple[Inputs, torch.Tensor]:
        """Return the task's graph with the other classes' rows below it, and these classes."""
        kept = client.cache.get("rows")
        if kept is None or not torch.equal(kept[0], client.means):
            others = known(client.means) & (self.old > 0)
            others[classes.cpu()] = False
            graph, others = self.labelled(client)[0], others.nonzero()[:, 0]
            if len(others):
                graph = below(client.stage.x, graph, client.means[others].numpy())
            client.cache["rows"] = kept = client.means, graph, others.to(self.where)
        return kept[1], kept[2]

    # -- answers -----------------------------------------------------------------------------------
    def answer(self, server, clients, at: At):
        model = server.model if self.answers == "global" and self.rounds else None
        return clients.call(self.predict, {"network": model, "closed": self.told(server),
                                           "held back": self.held_back(server)})

    def now(self, client: Client, queries: NodeQueries) -> torch.Tensor:
        return self.predict(client, {"network": None, "closed": client.closed}, queries)

    @on_client
    def predict(self, client: Client, model: Any, queries: NodeQueries) -> torch.Tensor:
        """Compute scores [Q, classes] by Eq. (d); without a closed form by network and rows."""
        graph, nodes, closed = queries.graph, queries.nodes, model["closed"]
        client.cache["held back"] = model.get("held back")
        if not closed:
            return self.by_rows(client, model["network"], queries)
        trial = choice.Trial(*closed["trial"])
        h = self.form(client.world).rows(graph, closed["order"], closed["scale"])
        W, rows, alone = self.weight(client, closed["weight"]), closed["rows"], client.alone
        if alone:
            W, rows = own_sums.alone(self.own(client), range(self.folds), len(W), len(rows))
        found, alike = choice.opinions(h, means(graph), W, rows, trial.steps)
        found = found + trial.rows * alike
        if trial.net and not alone:
            found = found + trial.net * self.network(client, model["network"], graph)       # (d)
        return torch.from_numpy(prior.levelled(
            found[nodes], prior.Level(*closed["level"]), closed["shares"]).astype(np.float32))

    def by_rows(self, client: Client, model: Any, queries: NodeQueries) -> torch.Tensor:
        """Compute scores [Q, classes]: log probabilities, plus weighted cosines with the rows."""
        scores = super().predict(client, model, queries)
        has = known(client.means)
        if not self.rows or not has.any():
            return scores
        x: Any = smoothed(queries.graph, self.hops)[queries.nodes]
        x = torch.from_numpy(np.asarray(x.todense() if issparse(x) else x, np.float32))
        alike = torch.nn.functional.normalize(x) @ torch.nn.functional.normalize(client.means).T
        middle = alike[:, has].mean(1, keepdim=True)
        spread = (alike[:, has] - middle).square().mean(1, keepdim=True).sqrt()
        alike = ((alike - middle) / spread.clamp(min=1e-6)).where(has, torch.tensor(-1e4))
        return scores.log_softmax(1) + self.rows * alike

    def report(self, server: Server) -> dict[str, Any]:
        if not vars(server).get("closed") or self.folds == 1:
            return {}
        held = server.closed
        chosen, T = self.trials()[held["chosen"]], max(held["tried"], 1)
        alone = self.trials().index(chosen._replace(net=0.0))
        level, right = prior.Level(*held["level"]), float(held["right"][alone] / T)
        said = {
            "chosen": "Chosen on labelled nodes that were held back: ridge regression (penalty "
                      f"{chosen.ridge}) {'with' if chosen.own else 'without'} the node's own "
                      f"features, scores averaged {chosen.steps} times over neighbours; the mean "
                      f"rows of the classes add {chosen.rows} of theirs, the network {chosen.net}.",
            "right": f"Without the network {100 * right:.1f} % of these nodes were answered right.",
            "level": f"Log odds are multiplied by {level.beta}, and {level.alpha} times the log of "
                     "each class's share is added." if level.beta != prior.FAINT else
                     "On labelled nodes that were held back no score was right as often as naming "
                     "the commonest class, so that is the answer."}
        found = {"chosen": chosen._asdict(), "right": right, "level": level._asdict(),
                 "alerts": class_measures.alerts(self.held_back(server)), "said": said}
        if server.alone:
            each = ", ".join(f"{name} ({count} times)" for name, count in sorted(
                server.alone.items()))
            found["alone"] = server.alone
            said["alone"] = ("Answered by sums of their own nodes, as those of all answered these "
                             f"worse: {each}.")
        return found


def known(means: torch.Tensor) -> torch.Tensor:
    """Return bool [C], true for classes that have a row in ``means`` [C, F]."""
    return means.abs().sum(1) > 0
