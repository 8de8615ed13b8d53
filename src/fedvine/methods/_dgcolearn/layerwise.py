"""The exchange layer by layer: K clients compute the forward and the backward pass of one machine.

Before each layer the server gives each border node the sum of what its neighbours at other
clients say (:class:`fedvine.methods._dgcolearn.border.Border`). A client writes down what goes in
and out of its layers, so that gradients can go the same way back.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch

from fedvine.core import tree
from fedvine.core.method import Client, Field, Server, on_client
from fedvine.core.rng import rng
from fedvine.methods._dgcolearn.border import Border
from fedvine.methods._dgcolearn.raw_features import RawFeatures
from fedvine.methods._dgcolearn.shared_graph import filled, named, sized, tensors
from fedvine.nn.evolvegcn import HISTORY

RAW = ("paper", "two-hop-exact", "fedgcn")      # exchanges of raw features

class Layerwise(RawFeatures):
    """Base: sums before each layer, and gradients of them."""

    backbone: Literal["sage", "gcn", "evolvegcn-o", "evolvegcn-h"] = Field(
        default="sage", description="how neighbours are taken together: their mean, or as in a "
        "GCN; a GCN whose weights go on over time in place of nodes' states (EvolveGCN; version h "
        "looks at each client's own nodes, so that clients do not compute what one machine does)")
    temporal: Literal["gru", "mlp", "average", "none"] = Field(
        default="gru", description="how states go on: a gated recurrent unit (Eq. 3), one dense "
        "layer, the moving average of the authors' code, or none; not with EvolveGCN")
    noise: float = Field(default=0.0, ge=0, description="standard deviation of Gaussian noise on "
                         "every sum, in units of the root mean square of what was said")

    # -- at the server ---------------------------------------------------------------------------
    def rows(self, server: Server, clients, border: Border, commit: bool = False
             ) -> tuple[torch.Tensor, tuple[str, ...]]:
        """The forward pass of the shared model: rows [nodes, hidden] of all nodes, client by
        client (0 for clients that do not answer), and who took part to the end."""
        self.advance(server, clients, border)       # for who was away when the others went on
        model: Any = tree.weights(server.net)
        if self.exchange in RAW:
            self.features_travel(server, clients, model)
        here, each = self.talk(server, clients, border, model)
        sent = clients.call(self.embed, commit, per_client=named(clients, each, here),
                            expect=sized(self.precision, clients, server.sizes, self.hidden))
        return torch.cat(tensors(filled(clients, sent, server.sizes))), sent.names

    def swap(self, server: Server, clients, border: Border, model: Any) -> tuple[str, ...]:
        """One exchange whose sums stay until the next one; ``model`` None: each client's own."""
        if self.exchange in RAW:
            return self.features_travel(server, clients, model)
        here, each = self.talk(server, clients, border, model)
        return clients.call(self.hold, per_client=named(clients, each, here), expect=None).names

    def talk(self, server: Server, clients, border: Border, model: Any
             ) -> tuple[tuple[str, ...], list[Any]]:
        """All layers; who took part, and the sums that go into the last one."""
        here, each = tuple(server.joined), [None] * len(clients.names)
        for layer in range(self.layers):
            wide = server.net.said(layer)
            sent = clients.call(self.say, layer, model, per_client=named(clients, each, here),
                                expect=sized(self.precision, clients, border.sizes, wide))
            here, said = sent.names, filled(clients, sent, border.sizes)
            each = self.noisy(clients, border, said, tensors(border.sums(said)))
            model = None                            # it is there since the first layer
        return here, each

    def noisy(self, clients, border: Border, said: list[np.ndarray],
              sums: list[torch.Tensor]) -> list[torch.Tensor]:
        """The sums, with noise where it is asked for."""
        if not self.noise:
            return sums
        whole = np.concatenate(said)
        scale = self.noise * float(np.sqrt((whole ** 2).mean())) if whole.size else 0.0
        draw = rng(clients.world.seed, "noise", *clients.place)
        return [s + scale * torch.from_numpy(draw.standard_normal(s.shape)).to(s) for s in sums]

    def border(self, server: Server, clients) -> Border:
        """The edges between clients; none where nothing is exchanged in layers."""
        if self.exchange == "layerwise":
            return super().border(server, clients)
        return Border(server.edges[:, :0], server.owner, len(clients.names))

    # -- at a client, forward --------------------------------------------------------------------
    @on_client
    def say(self, client: Client, layer: int, model: Any, sums: Any) -> torch.Tensor:
        """Messages [border, .] of border nodes to their neighbours elsewhere."""
        if layer == 0:
            if model is not None:
                tree.load(client.net, model)
            client.cache["tape"], x = [], self.inputs(client)
        else:
            x = self.close(client, sums)
        x = x.detach().requires_grad_()
        message = client.net.message(layer, x, self.degree(client))
        client.cache["tape"].append({"x": x, "message": message})
        return message[torch.from_numpy(self.here(client).border)].detach()

    def close(self, client: Client, sums: torch.Tensor) -> torch.Tensor:
        """The last layer's rows, now that the sums of the others are here."""
        tape = client.cache["tape"][-1]
        tape["sums"] = sums.requires_grad_()
        tape["out"] = self.layer(client, len(client.cache["tape"]) - 1, tape["x"],
                                 tape["message"], tape["sums"])
        return tape["out"]

    def layer(self, client: Client, layer: int, x: torch.Tensor, message: torch.Tensor,
              sums: torch.Tensor) -> torch.Tensor:
        """Eqs. (2) to (6): neighbours here and elsewhere, the state, and who stays as it was."""
        here = self.here(client)
        state = here.states[layer]
        h = self.combined(client, layer, x, message, sums)                          # (2)
        out = client.net.remember(layer, self.corrected(client, layer, h), state)   # (5, 6), (3)
        if here.active.all():
            return out
        return torch.where(torch.from_numpy(here.active)[:, None], out, state)  # (4)

    def combined(self, client: Client, layer: int, x: torch.Tensor, message: torch.Tensor,
                 sums: torch.Tensor) -> torch.Tensor:
        """Eq. (2): a layer's rows before the state, of neighbours here and elsewhere."""
        a, b = (torch.from_numpy(e) for e in self.here(client).ends)
        total = torch.zeros_like(message).index_add(0, a, message[b]).index_add(0, b, message[a])
        total = total.index_add(0, *self.outside(client, layer, message, sums))
        return client.net.combine(layer, x, message, total, self.degree(client))

    def outside(self, client: Client, layer: int, message: torch.Tensor, sums: torch.Tensor
                ) -> tuple[torch.Tensor, torch.Tensor]:
        """Own nodes [b] with neighbours that are not here, and what those say [b, .]."""
        return torch.from_numpy(self.here(client).border), sums

    @on_client
    def embed(self, client: Client, commit: bool, sums: torch.Tensor) -> torch.Tensor:
        """Rows [n, hidden] of this client's nodes; with ``commit`` they become the states, and
        version h of EvolveGCN has one more snapshot to go through."""
        out, here, tape = self.close(client, sums).detach(), self.here(client), client.cache["tape"]
        if commit:
            here.states = [t["out"].detach().clone() for t in tape]
            if self.backbone == "evolvegcn-h":
                seen = [client.net.summary(i, t["x"]).detach() for i, t in enumerate(tape)]
                here.seen = [*here.seen, seen][1 - HISTORY:]
        return out

    def inputs(self, client: Client) -> torch.Tensor:
        if self.backbone == "evolvegcn-h":
            client.net.past = self.here(client).seen
        return super().inputs(client)

    @on_client
    def hold(self, client: Client, sums: torch.Tensor) -> None:
        """Keep what the others said, for the epochs to come."""
        tape = client.cache["tape"]
        self.here(client).sums = [*(t["sums"].detach() for t in tape[:-1]), sums]

    # -- and backward ----------------------------------------------------------------------------
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
        tape, border = client.cache["tape"][layer], torch.from_numpy(self.here(client).border)
        tape["message"].backward(torch.zeros_like(tape["message"]).index_add(0, border, slope))
        return tape["x"].grad

    @on_client
    def first(self, client: Client, slope: torch.Tensor) -> dict[str, torch.Tensor]:
        """The gradients of all parameters."""
        self.down(client, 0, slope)
        return {n: torch.zeros_like(p) if p.grad is None else p.grad.clone()
                for n, p in client.net.named_parameters()}
