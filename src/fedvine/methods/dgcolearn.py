"""DG-CoLearn (arXiv:2605.31427): collaborative learning on one dynamic graph, cut among clients.

The server holds the graph, deals new nodes to clients, and before every layer gives each border
node the sum of what its neighbours at other clients say, so that K clients compute the forward
pass of one machine; with ``exchange_gradients`` the backward pass too. Clients hold their nodes'
edges inside their part, their states over time, and nothing of anybody else.

A stage's edges are predicted from the snapshot and the states before it: what is asked for in a
score is never a message. Afterwards states and snapshot move on. With ``target = "classes"`` the
classes of a snapshot's nodes are learned from that snapshot, and asked in later ones.

Where this differs from the paper, and why:

- **the exchange is layer by layer.** Eq. (6) leaves a term out, and sums of raw features cannot
  be right through weights and non-linearities (:mod:`fedvine.methods._dgcolearn.border`)
- **the aggregate goes back to the clients every round**; the authors' code keeps it
- with ``exchange_gradients`` the loss also has pairs whose ends are at two clients, which only the
  server knows: clients send the rows, and get gradients of their own rows alone
- states and scores are always made with the shared model and a fresh exchange; a ``schedule`` is
  about training
- nodes without features get random ones, from the hash of their names, and log(1 + degree)

**What crosses the wire**, by client function:

- ``meet``: keys of new nodes, and their features. ``join``: edges inside the part, which of its
  nodes have neighbours elsewhere, and how many. ``give``, ``take_over``: nodes that move
- ``say``, ``embed``: up what border nodes say, and in the end all rows; down sums for border nodes;
  ``hold``: the same sums, kept
- ``back``, ``first``: down gradients of own rows and messages; up gradients of sums, of parameters
- ``train``: down the model, pairs inside the part or classes; ``trained``: up the model
- ``offer``, ``take``: up features (and first rows), down sums of them, for "paper",
  "two-hop-exact" and "fedgcn"

**Who learns what.** The server has the graph and sees the rows that clients send (Section 3.3
trusts it). A client gets, for its own nodes, how many neighbours each has elsewhere and the sum of
what they say; of one neighbour that is what it says (Appendix H.3 concedes it for colluders;
Proposition H.2 does not hold for such a node). ``min_group`` withholds sums that tell something of
fewer (:func:`fedvine.methods._dgcolearn.border.allowed`), ``noise`` blurs them.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch

from fedvine.core import tree
from fedvine.core.method import At, Client, Field, Server, World, on_client
from fedvine.core.rng import rng
from fedvine.methods._dgcolearn.border import Border
from fedvine.methods._dgcolearn.layerwise import Layerwise
from fedvine.methods._dgcolearn.shared_graph import filled, named, sized, tensors
from fedvine.nn.evolvegcn import EvolveGCN
from fedvine.nn.network import Network
from fedvine.nn.roland import Roland

BLOCK = 1 << 13     # pairs that are scored at a time


class DgCoLearn(Layerwise):
    """K clients that compute what one machine would on the whole graph."""

    name: ClassVar[str] = "dgcolearn"
    space: ClassVar[dict[str, Any]] = {"learning_rate": (1e-3, 0.03, "log"), "hidden": [16, 32, 64],
                                      "window": [1, 3, 10], "epochs": [1, 3]}

    rounds: int = Field(default=10, ge=0, description="rounds a stage, R")
    epochs: int = Field(default=1, ge=1, description="epochs a round, E: local ones, or with "
                        "exchange_gradients steps that all make together")
    learning_rate: float = Field(default=0.01, gt=0, description="learning rate of Adam")
    decay: float = Field(default=0.0, ge=0, description="weight decay of Adam; 5e-4 in the "
                         "authors' code")
    exchange_gradients: bool = Field(
        default=True, description="with layerwise: clients return gradients of sums too, and the "
        "server makes the steps, exactly one machine's; false: local epochs, and averaging")
    schedule: Literal["before", "first-epoch", "last-epoch", "first-round", "middle-round"] = Field(
        default="before", description="when local epochs get new sums: before the first epoch of "
        "a round, of the shared model; or (Appendix D.2) of the clients' own models after the "
        "first or the last epoch of every round, or after the last of the first or middle round")

    # -- memory ----------------------------------------------------------------------------------
    def net(self, world: World) -> Network:
        """The model that all share."""
        shape: Any = {"seed": world.seed, "directed": world.facts.get("directed", True),
                      "classes": world.facts.get("classes", 0) if self.target == "classes" else 0}
        widths = self.width(world), self.hidden, self.layers
        net: Network = (Roland(*widths, backbone=self.backbone, temporal=self.temporal, **shape)
                        if self.backbone in ("sage", "gcn") else EvolveGCN(
                            *widths, version="h" if self.backbone == "evolvegcn-h" else "o",
                            **shape))
        return net.to(getattr(torch, self.precision))

    def start(self, world: World) -> Server:
        net = self.net(world)
        return Server(net=net, optimizer=self.adam(net), **self.memory(world))

    def setup(self, client: Client) -> None:
        super().setup(client)
        client.net = self.net(client.world)
        client.optimizer = self.adam(client.net)

    def adam(self, net: Network) -> torch.optim.Adam:
        """Its optimiser."""
        return torch.optim.Adam(net.parameters(), lr=self.learning_rate, weight_decay=self.decay)

    # -- a round ---------------------------------------------------------------------------------
    def round(self, server, clients, at: At) -> None:
        border = self.border(server, clients)
        ends, truth = self.targets(server, rng(clients.world.seed, "pairs", at.t, at.r))
        if self.exchange_gradients and self.exchange == "layerwise":
            for _ in range(self.epochs):
                self.together(server, clients, border, ends, truth)
        else:
            self.apart(server, clients, border, ends, truth, at)
        if at.last:
            self.rows(server, clients, border, commit=True)        # states of this snapshot
            if self.target == "edges":
                self.go_on(server, clients)

    def together(self, server: Server, clients, border: Border, ends: np.ndarray,
                 truth: np.ndarray) -> None:
        """One step of one machine, carried out by all."""
        rows, here = self.rows(server, clients, border)
        number = self.number(server)
        rows = rows.requires_grad_()
        loss = self.loss(server.net, [rows[number[e]] for e in ends], truth)
        server.optimizer.zero_grad()
        loss.backward()
        each = list(rows.grad.split(server.sizes.tolist()))  # type: ignore[union-attr]
        for layer in reversed(range(self.layers)):
            wide = server.net.said(layer)
            sent = clients.call(self.back, layer, per_client=named(clients, each, here),
                                expect=sized(self.precision, clients, border.sizes, wide))
            here, said = sent.names, filled(clients, sent, border.sizes)
            each = self.noisy(clients, border, said, tensors(border.back(said)))
        for gradient in clients.call(self.first, per_client=named(clients, each, here),
                                     expect=tree.weights(server.net)):
            for name, p in server.net.named_parameters():
                p.grad = gradient[name] if p.grad is None else p.grad + gradient[name]
        server.optimizer.step()

    def apart(self, server: Server, clients, border: Border, ends: np.ndarray, truth: np.ndarray,
              at: At) -> None:
        """Local epochs with the sums of the last exchange; then averaging."""
        self.advance(server, clients, border)
        owner = server.owner[ends]
        inside, each = (owner == owner[0]).all(0), {}
        for k, name in enumerate(clients.names):
            mine = inside & (owner[0] == k)
            each[name] = server.place[ends[:, mine]], truth[mine]
        due = self.exchange != "none" and {
            "first-round": at.first, "middle-round": at.r == (at.R + 1) // 2}.get(self.schedule,
                                                                                  True)
        E = self.epochs
        first, rest = {"before": (0, E), "first-epoch": (1, E - 1)}.get(self.schedule, (E, 0))
        model, here = tree.weights(server.net), tuple(server.joined)
        if first:
            here = clients.call(self.train, model, first, per_client=each, only=here,
                                expect=None).names
            model = None                                   # from here on each client has its own
        if due:
            here, model = self.swap(server, clients, border, model), None
        if rest:
            here = clients.call(self.train, model, rest, per_client=each, only=here,
                                expect=None).names
        sent = clients.call(self.trained, only=here, expect=tree.weights(server.net))
        sizes = [len(each[n][1]) for n in sent.names]
        if sum(sizes):
            tree.load(server.net, tree.mean(list(sent), sizes))

    # -- at a client -----------------------------------------------------------------------------
    @on_client
    def train(self, client: Client, model: Any, epochs: int, own: tuple[np.ndarray, np.ndarray]
              ) -> None:
        """Epochs on pairs inside this part, or on own nodes, with the sums that are held."""
        if model is not None:
            tree.load(client.net, model)
        ends, truth = [torch.from_numpy(e) for e in own[0]], own[1]
        for _ in range(epochs if len(truth) else 0):
            x = self.inputs(client)
            for layer in range(self.layers):
                message = client.net.message(layer, x, self.degree(client))
                sums = (client.sums[layer] if client.sums else
                        message.new_zeros(len(client.border), message.shape[1]))
                x = self.layer(client, layer, x, message, sums)
            loss = self.loss(client.net, [x[e] for e in ends], truth)
            client.optimizer.zero_grad()
            loss.backward()
            client.optimizer.step()

    @on_client
    def trained(self, client: Client) -> dict[str, torch.Tensor]:
        """This client's model, to be averaged."""
        return tree.weights(client.net)

    @staticmethod
    def loss(net: Network, rows: list[torch.Tensor], truth: np.ndarray) -> torch.Tensor:
        """Mean cross-entropy of pairs of rows (an edge or none), or of classes."""
        scores, right = net.score(*rows), torch.from_numpy(truth)
        f = torch.nn.functional
        total = (f.binary_cross_entropy_with_logits(scores, right.to(scores), reduction="sum")
                 if len(rows) == 2 else f.cross_entropy(scores, right, reduction="sum"))
        return total / max(len(truth), 1)

    # -- answers ---------------------------------------------------------------------------------
    def answer(self, server, clients, at: At):
        """Scores of the server's queries by the newest rows (nodes never seen have rows of 0), and
        whose they are: which pairs have their ends at two clients, or whose node it is."""
        server = self.ahead(server)
        if self.target == "classes":
            return self.named_classes(server, clients, at)
        rows, _ = self.rows(server, clients, self.border(server, clients))
        shift = server.stage.num_src if server.stage.bipartite else 0
        ends = server.queries.src, server.queries.dst + shift
        at_home = [server.dealt[e] for e in ends]
        with torch.no_grad():
            return {"scores": self.scored(server, rows, ends).numpy(),
                    "across": (at_home[0] != at_home[1]) & (at_home[0] >= 0) & (at_home[1] >= 0)}

    def named_classes(self, server: Server, clients, at: At) -> dict[str, np.ndarray]:
        """Scores of nodes' classes: the graph goes on as the queries tell, the model stays."""
        queries = server.queries
        for i, (stage, past) in enumerate(queries.ahead):
            if i:                                   # states of the snapshot between
                self.rows(server, clients, self.border(server, clients), commit=True)
            server.stage, server.past = stage, past
            self.arrive(server, clients, at)
        rows, _ = self.rows(server, clients, self.border(server, clients))
        with torch.no_grad():
            return {"scores": self.scored(server, rows, (queries.nodes,)).numpy(),
                    "client": np.asarray(clients.names)[server.dealt[queries.nodes]]}

    def scored(self, server: Server, rows: torch.Tensor, ends: tuple[np.ndarray, ...]
               ) -> torch.Tensor:
        """The model's scores of these nodes, or pairs of them, in blocks that fit a cache."""
        rows = torch.cat([rows, rows.new_zeros(1, rows.shape[1])])
        number = [self.number(server)[e] for e in ends]
        return torch.cat([server.net.score(*(rows[n[i:i + BLOCK]] for n in number))
                          for i in range(0, max(len(number[0]), 1), BLOCK)])
