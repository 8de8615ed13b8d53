"""DG-CoLearn (arXiv:2605.31427): collaborative learning on one dynamic graph, cut among clients.

The server holds the graph, deals new nodes to clients, and before every layer gives each border
node the sum of what its neighbours at other clients say, so that K clients compute the forward
pass of one machine; with ``exchange_gradients`` the backward pass too. Clients hold their nodes'
edges inside their part, their states over time, and nothing of anybody else.

A stage's edges are predicted from the snapshot and the states before it: what is asked for in a
score is never a message. Afterwards states and snapshot move on.

Where this differs from the paper, and why:

- **the exchange is layer by layer.** Eq. (6) leaves a term out, and sums of raw features cannot
  be right through weights and non-linearities (:mod:`fedvine.exchange`)
- **the aggregate goes back to the clients every round**; the authors' code keeps it
- with ``exchange_gradients`` the loss also has pairs whose ends are at two clients, which only the
  server knows: clients send the rows, and get gradients of their own rows alone
- nodes without features get random ones, from the hash of their names, and log(1 + degree)

**What crosses the wire**, by client function:

- ``meet``: keys of new nodes. ``join``: edges inside the part, which of its nodes have neighbours
  elsewhere, and how many
- ``say``, ``embed``: up what border nodes say, and in the end all rows; down sums for border nodes
- ``back``, ``first``: down gradients of own rows and messages; up gradients of sums, of parameters
- ``train``: down pairs inside the part; up the model. ``offer``, ``take``: for "paper" and "fedgcn"

**Who learns what.** The server has the graph and sees the rows that clients send (Section 3.3
trusts it). A client gets, for its own nodes, how many neighbours each has elsewhere and the sum of
what they say; of one neighbour that is what it says (Appendix H.3 concedes it for colluders;
Proposition H.2 does not hold for such a node). ``min_group`` withholds sums of fewer.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch

from fedvine import tree
from fedvine.exchange import Border
from fedvine.method import At, Client, Field, Server, World, on_client
from fedvine.methods._raw_features import RawFeatures
from fedvine.methods._shared_graph import filled, named, tensors
from fedvine.models.roland import Roland
from fedvine.rng import rng


class DgCoLearn(RawFeatures):
    """K clients that compute what one machine would on the whole graph."""

    name: ClassVar[str] = "dgcolearn"

    rounds: int = Field(default=10, ge=0, description="rounds a stage, R")
    epochs: int = Field(default=3, ge=1, description="local epochs a round, without "
                        "exchange_gradients")
    layers: int = Field(default=2, ge=1, description="layers, k")
    backbone: Literal["sage", "gcn"] = Field(default="sage", description="how neighbours are "
                                             "taken together")
    temporal: Literal["gru", "average", "none"] = Field(
        default="gru", description="how states go on: a gated recurrent unit (Eq. 3), the moving "
        "average of the authors' code, or none")
    rate: float = Field(default=0.01, gt=0, description="learning rate of Adam")
    exchange_gradients: bool = Field(
        default=True, description="with layerwise: clients return gradients of sums too, and the "
        "server makes the step, exactly one machine's; false: local epochs, and averaging")

    # -- memory ----------------------------------------------------------------------------------
    def net(self, seed: int) -> Roland:
        """The model that all share."""
        return Roland(self.features, self.hidden, self.layers, seed=seed, backbone=self.backbone,
                      temporal=self.temporal).to(getattr(torch, self.precision))

    def start(self, world: World) -> Server:
        net = self.net(world.seed)
        return Server(net=net, optimizer=torch.optim.Adam(net.parameters(), lr=self.rate),
                      **self.memory(world))

    def setup(self, client: Client) -> None:
        super().setup(client)
        client.net = self.net(client.world.seed)
        client.optimizer = torch.optim.Adam(client.net.parameters(), lr=self.rate)
        client.states = [torch.zeros(0, self.hidden, dtype=client.x.dtype)] * self.layers

    @on_client
    def meet(self, client: Client, keys: np.ndarray) -> None:
        super().meet(client, keys)
        client.states = [torch.cat([s, s.new_zeros(len(keys), self.hidden)])
                         for s in client.states]

    # -- a round ---------------------------------------------------------------------------------
    def round(self, server, clients, at: At) -> None:
        border = self.border(server, clients)
        pairs, truth = self.drawn(server, rng(clients.world.seed, "pairs", at.t, at.r))
        if self.exchange_gradients and self.exchange == "layerwise":
            self.together(server, clients, border, pairs, truth)
        else:
            self.apart(server, clients, border, pairs, truth)
        if at.last:
            self.rows(server, clients, border, commit=True)        # states of this snapshot
            server.edges, server.joined = server.snapshot.edges, []

    def together(self, server: Server, clients, border: Border, pairs: np.ndarray,
                 truth: np.ndarray) -> None:
        """One step of one machine, carried out by all."""
        rows, here = self.rows(server, clients, border)
        number = self.number(server)
        rows = rows.requires_grad_()
        loss = self.loss(server.net, rows[number[pairs[0]]], rows[number[pairs[1]]], truth)
        server.optimizer.zero_grad()
        loss.backward()
        each = list(rows.grad.split(server.sizes.tolist()))  # type: ignore[union-attr]
        for layer in reversed(range(self.layers)):
            sent = clients.call(self.back, layer, each=named(clients, each, here))
            here = sent.names
            each = tensors(border.back(filled(clients, sent, border.sizes)))
        for gradient in clients.call(self.first, each=named(clients, each, here)):
            for name, p in server.net.named_parameters():
                p.grad = gradient[name] if p.grad is None else p.grad + gradient[name]
        server.optimizer.step()

    def apart(self, server: Server, clients, border: Border, pairs: np.ndarray,
              truth: np.ndarray) -> None:
        """Local epochs with the sums as they were when the round began; then averaging."""
        _, here = self.rows(server, clients, border)
        inside = server.owner[pairs[0]] == server.owner[pairs[1]]
        each = {}
        for k, name in enumerate(clients.names):
            mine = inside & (server.owner[pairs[0]] == k)
            each[name] = server.place[pairs[:, mine]], truth[mine]
        sent = clients.call(self.train, each={n: each[n] for n in here})
        if sum(sent.each("size")):
            tree.load(server.net, tree.mean(sent.each("model"), sent.each("size")))

    def rows(self, server: Server, clients, border: Border, commit: bool = False
             ) -> tuple[torch.Tensor, tuple[str, ...]]:
        """The forward pass: rows [nodes, hidden] of all nodes, client by client (0 for clients
        that do not answer), and who took part to the end."""
        self.advance(server, clients, border)       # for who was away when the others went on
        model: Any = tree.weights(server.net)
        here, each = clients.names, [None] * len(clients.names)
        if self.exchange in ("paper", "fedgcn"):
            self.features_travel(server, clients, model)
        for layer in range(self.layers):
            sent = clients.call(self.say, layer, model, each=named(clients, each, here))
            here = sent.names
            each = tensors(border.sums(filled(clients, sent, border.sizes)))
            model = None                            # it is there since the first layer
        sent = clients.call(self.embed, commit, each=named(clients, each, here))
        return torch.cat(tensors(filled(clients, sent, server.sizes))), sent.names

    def border(self, server: Server, clients) -> Border:
        """The edges between clients; none where nothing is exchanged in layers."""
        edges = server.edges if self.exchange == "layerwise" else server.edges[:, :0]
        return Border(edges, server.owner, len(clients.names), self.min_group)

    # -- at a client -----------------------------------------------------------------------------
    @on_client
    def say(self, client: Client, layer: int, model: Any, sums: Any) -> torch.Tensor:
        """Messages [border, .] of border nodes to their neighbours elsewhere."""
        if layer == 0:
            tree.load(client.net, model)
            client.cache["tape"], x = [], self.inputs(client)
        else:
            x = self.close(client, sums)
        x = x.detach().requires_grad_()
        message = client.net.message(layer, x, self.degree(client))
        client.cache["tape"].append({"x": x, "message": message})
        return message[torch.from_numpy(client.border)].detach()

    def close(self, client: Client, sums: torch.Tensor) -> torch.Tensor:
        """The last layer's rows, now that the sums of the others are here."""
        tape = client.cache["tape"][-1]
        tape["sums"] = sums.requires_grad_()
        tape["out"] = self.layer(client, len(client.cache["tape"]) - 1, tape["x"],
                                 tape["message"], tape["sums"])
        return tape["out"]

    def layer(self, client: Client, layer: int, x: torch.Tensor, message: torch.Tensor,
              sums: torch.Tensor) -> torch.Tensor:
        """Eqs. (2), (3): neighbours here and elsewhere, then the state."""
        a, b = (torch.from_numpy(e) for e in client.ends)
        total = torch.zeros_like(message).index_add(0, a, message[b]).index_add(0, b, message[a])
        total = total.index_add(0, torch.from_numpy(client.border), sums)
        out = client.net.update(layer, x, message, total, self.degree(client),
                                client.states[layer])
        return self.corrected(client, layer, out)                      # (5), (6), if asked for

    @on_client
    def embed(self, client: Client, commit: bool, sums: torch.Tensor) -> torch.Tensor:
        """Rows [n, hidden] of this client's nodes; with ``commit`` they become the states."""
        out = self.close(client, sums).detach()
        if commit:
            client.states = [t["out"].detach().clone() for t in client.cache["tape"]]
        return out

    @on_client
    def back(self, client: Client, layer: int, slope: torch.Tensor) -> torch.Tensor:
        """Gradients of the sums that came into ``layer``; ``slope`` is of the last layer's rows,
        or of the messages that went into the layer above."""
        tape = client.cache["tape"]
        if layer == self.layers - 1:
            client.net.zero_grad()
        else:
            slope = self.down(client, layer + 1, slope)
        tape[layer]["out"].backward(slope, retain_graph=True)
        return tape[layer]["sums"].grad

    def down(self, client: Client, layer: int, slope: torch.Tensor) -> torch.Tensor:
        """What went into ``layer`` [n, .]: through its own rows, and others' sums."""
        tape, border = client.cache["tape"][layer], torch.from_numpy(client.border)
        tape["message"].backward(torch.zeros_like(tape["message"]).index_add(0, border, slope))
        return tape["x"].grad

    @on_client
    def first(self, client: Client, slope: torch.Tensor) -> dict[str, torch.Tensor]:
        """The gradients of all parameters."""
        self.down(client, 0, slope)
        return {n: torch.zeros_like(p) if p.grad is None else p.grad.clone()
                for n, p in client.net.named_parameters()}

    @on_client
    def train(self, client: Client, own: tuple[np.ndarray, np.ndarray]) -> dict[str, Any]:
        """E epochs on pairs inside this part, with the sums of the last exchange."""
        (src, dst), truth = (torch.from_numpy(own[0]), own[1])
        sums = [t["sums"].detach() for t in client.cache["tape"]]
        for _ in range(self.epochs if len(truth) else 0):
            x = self.inputs(client)
            for layer in range(self.layers):
                message = client.net.message(layer, x, self.degree(client))
                x = self.layer(client, layer, x, message, sums[layer])
            loss = self.loss(client.net, x[src], x[dst], truth)
            client.optimizer.zero_grad()
            loss.backward()
            client.optimizer.step()
        return {"model": tree.weights(client.net), "size": len(truth)}

    # -- answers ---------------------------------------------------------------------------------
    def loss(self, net: Roland, a: torch.Tensor, b: torch.Tensor, truth: np.ndarray
             ) -> torch.Tensor:
        """Mean binary cross-entropy of pairs of rows."""
        return torch.nn.functional.binary_cross_entropy_with_logits(
            net.score(a, b), torch.from_numpy(truth).to(a), reduction="sum") / max(len(truth), 1)

    def answer(self, server, clients, at: At):
        """Scores of the server's queries by the newest rows (nodes never seen have rows of 0), and
        which pairs have their ends at two clients."""
        rows, _ = self.rows(server, clients, self.border(server, clients))
        rows = torch.cat([rows, rows.new_zeros(1, rows.shape[1])])
        number = self.number(server)
        shift = server.stage.num_src if server.stage.bipartite else 0
        a, b = number[server.queries.src], number[server.queries.dst + shift]
        ends = [self.parts(server)[n] for n in (server.queries.src, server.queries.dst + shift)]
        with torch.no_grad():
            return {"scores": server.net.score(rows[a], rows[b]).numpy(),
                    "across": (ends[0] != ends[1]) & (ends[0] >= 0) & (ends[1] >= 0)}

    def parts(self, server: Server) -> np.ndarray:
        """The part that each node belongs to [N], -1 where it was never seen."""
        return server.owner
