"""TARGET (Zhang et al. 2023): the old global model is distilled on nodes generated from it.

Jie Zhang, Chen Chen, Weiming Zhuang, Lingjuan Lyu: *TARGET: Federated Class-Continual Learning via
Exemplar-Free Distillation*, ICCV 2023. Descriptions and the authors' code could be had, not the
equations. It was made for images; as POWER says, image networks are replaced by the GAT. When a
task begins, the server makes nodes of all classes that the global model has learned, the teacher,
and sends them with it. The generator G minimises, over batches of noise z and classes y,

    w_s L_stat + w_c CE(teacher(G(z)), y) + w_a L_adv                                       (a)

- **L_stat**: L2 distances between means and variances of hidden rows and those that clients had
- **L_adv**: minus KL(teacher || student), of rows that both take for the same class. The student is
  a new network that the server trains on all rows so far, by KL at temperature 20

Of each batch the rows of the least loss stay. A client of the next task minimises

    CE(scores, y) + distillation * CE_T(scores of rows, teacher's scores)                   (b)

on its labelled nodes and on a draw of the rows, the second over old classes, at temperature T = 2.

**What the server learns**: beside the models, which classes each client has, and the mean and
variance of each of its features and hidden values.

What they leave open, or what is done otherwise here:

- sizes are reduced so that a task costs less than fifty rounds of FedAvg: 20 batches of 64 rows
  with 10 steps each, 10 steps of the student a batch; the code has 10 batches of 256 for CIFAR-100,
  200 of 50 steps for larger images, 400 steps of the student. The weights are those for CIFAR-100,
  where the code stops before ``warmup`` ends and never trains the student; here it ends
- the code matches the running statistics of batch normalisation. The GAT has none: clients measure
  the hidden layer, over their task's nodes and the rows that they were sent, each side weighted by
  its classes. The statistics of earlier batches do not count in (a)
- an image is a sigmoid, normalised by the data's published mean and deviation; a row is normalised
  to the mean and deviation of the features at the clients
- the code makes each batch with a copy of G, and moves G by first-order meta-gradients; here one
  G learns on. Rows are not augmented
- clients have different tasks. "Old" classes are those that any client has trained on in earlier
  tasks. In the code the first term of (b) is over the classes that are not old, as all clients have
  one task; here soon all classes are old, and with ``among = "open"`` (a client's own and those
  that are not old) a new task is hardly learned: AM on Cora 17 to 26 points lower than with "all"
- the code's student begins from random weights and has SGD; here from the network's first weights,
  with Adam
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch.nn import functional

from fedvine.aggregate.means import Mean
from fedvine.core import tree
from fedvine.core.expect import Array, Tensor
from fedvine.core.method import At, Client, Field, Server, World, on_client
from fedvine.core.rng import torch_rng
from fedvine.methods.fedavg import FedAvg
from fedvine.nn.gat import Inputs
from fedvine.rivals import _synthesis as synthesis
from fedvine.rivals._synthesis import alone

STUDENT_TEMPERATURE = 20.0


class Target(FedAvg):
    """Distillation of the old global model on nodes that the server generated from it."""

    name: ClassVar[str] = "target"
    revision: ClassVar[int] = 2         # the loss of a new task is over all classes
    space: ClassVar[dict[str, Any]] = {"distillation": (1.0, 100.0, "log"), "among": ["open"],
                                       "w_statistics": (0.01, 10.0, "log"),
                                       "generator_learning_rate": [0.002, 0.01]}

    aggregate: Mean = Mean()  # type: ignore[assignment]

    criterion: Literal["cross-entropy"] = Field(  # type: ignore[assignment]
        default="cross-entropy", description="of a node; the loss is its mean over nodes")
    among: Literal["all", "open"] = Field(
        default="all", description="classes that the first term of (b) is over: all, or a client's "
        "own and those that nobody has learned")
    distillation: float = Field(default=25.0, ge=0, description="weight of distillation in (b)")
    temperature: float = Field(default=2.0, gt=0, description="of distillation, T")
    batch: int = Field(default=64, ge=1, description="rows of a batch")
    batches: int = Field(default=20, ge=0, description="batches a task; 0: no distillation")
    steps: int = Field(default=10, ge=0, description="steps of the generator on a batch")
    warmup: int = Field(default=5, ge=0, description="batches before the student is trained")
    student_steps: int = Field(default=10, ge=0, description="steps of the student a batch")
    noise: int = Field(default=64, ge=1, description="width of the generator's input")
    generator_learning_rate: float = Field(default=0.002, gt=0, description="learning rate of the "
                                           "generator, Adam")
    w_statistics: float = Field(default=10.0, ge=0, description="weight of L_stat in (a)")
    w_classes: float = Field(default=0.5, ge=0, description="weight of the classes in (a)")
    w_adversarial: float = Field(default=1.0, ge=0, description="weight of L_adv in (a)")

    @classmethod
    def tiny(cls) -> Self:
        return cls(rounds=2, epochs=2, hidden=4, batch=6, batches=3, steps=2, warmup=1,
                   student_steps=2, noise=3)

    def start(self, world: World) -> Server:
        model, F = super().start(world).model, world.facts["features"]
        return Server(model=model, seen=np.zeros(world.facts["classes"], bool),  # by any client
                      statistics={"x": torch.zeros(2, F), "h": torch.zeros(2, self.hidden)})

    def setup(self, client: Client) -> None:
        super().setup(client)
        facts = client.world.facts
        client.teacher = tree.weights(client.model)     # the global model of the task before
        client.old = np.zeros(facts["classes"], bool)           # the classes that it has learned
        client.rows = torch.empty(0, facts["features"])         # generated nodes [S, F]

    # -- the server --------------------------------------------------------------------------------
    def arrive(self, server, clients, at: At) -> None:
        """Generate nodes of all classes learned so far, and send them with the global model."""
        rows = self.generated(server, clients.world, torch_rng(clients.world.seed, "rows", at.t))
        clients.call(self.meet, server.model, rows, server.seen, expect=None)

    def round(self, server, clients, at: At) -> None:
        server.model, _, sent = clients.mean(
            self.learn, server.model, around=server.model, more=self.more(server),
            only=clients.choose(self.fraction))
        sizes = sent.each("size")
        if sum(sizes):
            server.statistics = tree.mean(
                self.aggregate.bounded(sent.each("statistics"), server.statistics), sizes)
        for reply in sent:
            self.take(server, reply)

    def take(self, server: Server, reply: dict[str, Any]) -> None:
        """Note the classes that a client has."""
        server.seen = server.seen | reply["classes"]

    def more(self, server: Server) -> dict[str, Any]:
        """Return the statements of what :meth:`learn` sends beside the model and N_k."""
        return {"statistics": {key: Tensor("float32", tuple(of.shape), -1e9, 1e9)
                               for key, of in server.statistics.items()},     # also of squares
                "classes": Array("bool", server.seen.shape)}

    def generated(self, server: Server, world: World, draw: torch.Generator) -> torch.Tensor:
        """Generate nodes float32 [S, F] from the global model, in batches; S = 0 before task 2."""
        seen = torch.from_numpy(np.flatnonzero(server.seen)).to(self.where)
        found = torch.empty(0, world.facts["features"], device=self.where)
        if not len(seen):
            return found
        teacher = tree.load(self.placed(world), server.model).requires_grad_(False)
        student, maker = self.placed(world), self.maker(server, seen, draw)
        optimizer = self.adam(student)
        for number in range(self.batches):
            y = self.wanted(seen, draw)
            learned = number > self.warmup
            rows = synthesis.batch(
                maker, y, partial(self.price, server, teacher, student if learned else None, y),
                self.steps, draw)
            found = torch.cat([found, rows[rows.isfinite().all(1)]])    # whatever clients have sent
            if number >= self.warmup and len(found):
                self.teach(student, optimizer, teacher, found, draw)
        return found

    def maker(self, server: Server, seen: torch.Tensor, draw: torch.Generator) -> Any:
        """Build the generator."""
        return synthesis.FromNoise(self.noise, 2 * self.noise, synthesis.spread(
            server.statistics["x"].to(self.where)), self.generator_learning_rate, draw)

    def wanted(self, seen: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
        """Draw the classes int64 [B] of a batch from those learned so far."""
        return seen[torch.randint(len(seen), (self.batch,), generator=draw).to(seen.device)]

    def price(self, server: Server, teacher: Any, student: Any, y: torch.Tensor,
              x: torch.Tensor) -> torch.Tensor:
        """Compute Eq. (a) of rows ``x`` [B, F] for ``y`` [B], a scalar; ``student`` may be None."""
        graph, seen = alone(x), torch.from_numpy(np.flatnonzero(server.seen)).to(x.device)
        hidden = teacher.first(graph)
        scores = teacher.second(graph._replace(x=hidden.relu()))[:, seen]
        unlike = synthesis.mismatch(hidden, synthesis.spread(
            server.statistics["h"].to(x.device)))
        wrong = functional.cross_entropy(scores, torch.searchsorted(seen, y))
        cost = self.w_statistics * unlike + self.w_classes * wrong
        if student is None:
            return cost
        return cost - self.w_adversarial * synthesis.disagreement(student(graph)[:, seen],  # (a)
                                                                  scores)

    def teach(self, student: Any, optimizer: torch.optim.Optimizer, teacher: Any,
              rows: torch.Tensor, draw: torch.Generator) -> None:
        """Train the student towards the teacher on draws of the rows so far."""
        for _ in range(self.student_steps):
            loss = self.apart(student, teacher, alone(drawn(rows, self.batch, draw)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def apart(self, student: Any, teacher: Any, graph: Inputs) -> torch.Tensor:
        """Compute how far a student is from its teacher, a scalar."""
        return synthesis.divergence(student(graph), teacher(graph), STUDENT_TEMPERATURE).mean()

    # -- a client ----------------------------------------------------------------------------------
    @on_client
    def meet(self, client: Client, teacher: dict[str, torch.Tensor], rows: torch.Tensor,
             old: np.ndarray) -> None:
        """Keep the global model, the generated nodes and which classes are old, for this task."""
        client.teacher, client.rows, client.old = teacher, rows, old

    @on_client
    def learn(self, client: Client, model: dict[str, torch.Tensor]) -> dict[str, Any]:
        """Train as FedAvg does; send statistics and classes too."""
        sent = self.train(client, model)
        y = self.labelled(client)[2]
        classes = np.isin(np.arange(len(client.old)), y.cpu().numpy())
        return {**sent, "classes": classes, "statistics": self.measured(client, int(classes.sum()))}

    def measured(self, client: Client, classes: int) -> dict[str, torch.Tensor]:
        """Compute moments of features and hidden values, over the task's nodes and the rows sent.

        Each side weighs as many as it has classes; ``classes`` are those of the task.
        """
        graph, first = self.labelled(client)[0], client.model.first
        with torch.no_grad():
            own = {"x": synthesis.moments(client.stage.x),
                   "h": synthesis.moments(first(graph)).cpu()}
            if not len(client.rows):
                return own
            sent = {"x": synthesis.moments(client.rows),
                    "h": synthesis.moments(first(alone(client.rows.to(self.where)))).cpu()}
        return tree.mean([own, sent], [max(classes, 1), int(client.old.sum())])

    def loss(self, client: Client, draw: torch.Generator) -> torch.Tensor | None:
        """Compute Eq. (b), a scalar; one of its terms alone where the other has no nodes."""
        new = self.new(client, draw)
        if not len(client.rows) or not self.distillation:
            return new
        held = self.held(client, draw)
        ours, theirs = self.balance(client)
        return theirs * held if new is None else ours * new + theirs * held                 # (b)

    def balance(self, client: Client) -> tuple[float, float]:
        """Return the weights of both terms of (b)."""
        return 1.0, self.distillation

    def new(self, client: Client, draw: torch.Generator) -> torch.Tensor | None:
        """Compute the first term of (b), a scalar; None without labelled nodes."""
        graph, nodes, y = self.labelled(client)
        return self.entropy(client, client.model(graph, draw)[nodes], y) if len(y) else None

    def entropy(self, client: Client, scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Compute the cross-entropy of classes ``y``, over the classes of ``among``."""
        open_ = torch.from_numpy(~client.old | (self.among == "all")).to(y.device)
        open_[y] = True
        return functional.cross_entropy(scores.masked_fill(~open_, -1e9), y)

    def held(self, client: Client, draw: torch.Generator) -> torch.Tensor:
        """Compute the second term of (b), unweighted, over a draw of the rows, a scalar."""
        chosen = drawn(torch.arange(len(client.rows)), self.batch, draw)
        ours = client.model(alone(client.rows[chosen].to(self.where)), draw)
        return self.softly(client, ours, self.taught(client)[chosen.to(self.where)])

    def softly(self, client: Client, ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
        """Compute CE_T of scores [B, C] by both models over old classes, a scalar."""
        old = torch.from_numpy(client.old).to(ours.device)
        ours, theirs = (s[:, old] / self.temperature
                        for s in (ours, theirs))
        return -(theirs.softmax(1) * ours.log_softmax(1)).sum(1).mean()

    def taught(self, client: Client) -> Any:
        """Return the teacher's :meth:`outputs` for the generated nodes, computed once a task."""
        if "taught" not in client.cache:
            net = tree.load(self.placed(client.world), client.teacher)
            with torch.no_grad():
                client.cache["taught"] = self.outputs(net, alone(client.rows.to(self.where)))
        return client.cache["taught"]

    def outputs(self, net: Any, graph: Inputs) -> Any:
        """Return what a teacher gives for nodes: its scores [N, C]."""
        return net(graph)


def drawn(rows: torch.Tensor, most: int, draw: torch.Generator) -> torch.Tensor:
    """Draw at most ``most`` of the rows, each once."""
    return rows[torch.randperm(len(rows), generator=draw)[:most].to(rows.device)]
