"""The functions that the server calls at a client of DG-CoLearn.

Functions have the names of calls in ``messages.jsonl``; "down" is from the server, "up" the reply.
n counts its nodes, b its border nodes (with neighbours elsewhere: at other clients), m_l the width
of layer l's messages. All shapes and dtypes: ``docs/reference-dgcolearn.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fedvine.core import tree
from fedvine.core.method import Client, on_client
from fedvine.core.rng import hashed_uniform
from fedvine.methods._dgcolearn.part import Part
from fedvine.nn.evolvegcn import HISTORY


class ClientMixin:
    """The functions that run at a client; its memory is ``part``, ``net`` and ``optimizer``."""

    def part_of(self, client: Client) -> Part:
        """Return ``client.part``; while the library scores, a copy that is dropped later."""
        if client.asked is None:
            client.cache.pop("ahead", None)
            return client.part
        if client.cache.get("ahead", (None,))[0] != client.asked:
            client.cache["ahead"] = client.asked, client.part.ahead(
                self.target == "classes")  # type: ignore[attr-defined]
        return client.cache["ahead"][1]

    # -- nodes come, move and go ------------------------------------------------------------------
    @on_client
    def meet(self, client: Client, new: dict[str, np.ndarray]) -> None:
        """Add new nodes with states of 0. Down: ``keys`` uint64 of the nodes; where the data have
        features, ``x`` of them, and ``changed`` features of own nodes at ``places``; and where they
        have tables of nodes, what these say of the new ones, ``said``."""
        part, count, x = self.part_of(client), len(new["keys"]), self.part_of(client).x
        said = torch.from_numpy(new["said"]).to(x) if "said" in new else x.new_zeros(count, 0)
        means = x.new_zeros(count, self.of_edges(client.world))  # type: ignore[attr-defined]
        width = x.shape[1] - said.shape[1] - means.shape[1] - 2
        if "x" in new:
            part.renew(new["places"], new["changed"])
            fresh = torch.from_numpy(new["x"]).to(x)
        else:
            fresh = torch.from_numpy(hashed_uniform(client.world.seed, new["keys"], width)).to(x)
            fresh *= (3 / width) ** 0.5                 # uniform, of variance 1 / width
        fresh = [fresh, said, means, x.new_tensor([1.0, 0.0]).expand(count, 2)]
        part.append(torch.cat(fresh, 1), [s.new_zeros(count, s.shape[1]) for s in part.states])

    @on_client
    def give(self, client: Client, places: np.ndarray) -> list[torch.Tensor]:
        """Remove the nodes at ``places`` int64 [m]. Up: their features [m, F] and states
        [m, .], one array a layer."""
        return self.part_of(client).remove(places)

    @on_client
    def take_over(self, client: Client, given: list[list[torch.Tensor]]) -> None:
        """Append nodes of other clients. Down: what each of these clients gave."""
        for x, *states in given:
            self.part_of(client).append(x, states)

    @on_client
    def join(self, client: Client, now: dict[str, np.ndarray]) -> None:
        """Replace the subgraph by that of a new snapshot. Down: ``ends``, ``border`` and
        ``elsewhere`` of :class:`Part`, ``active`` where only what changed is computed, and where
        edges have columns their ``means`` float32 [n, .]."""
        part = self.part_of(client)
        part.ends, part.border, part.elsewhere = now["ends"], now["border"], now["elsewhere"]
        part.active = now.get("active", part.active)
        part.sums, part.corrections = [], []
        if "means" in now:
            part.renew_means(np.arange(len(now["means"])), now["means"])
        client.cache.pop("activations", None)

    # -- one layer --------------------------------------------------------------------------------
    def degree(self, client: Client) -> torch.Tensor:
        """Count the neighbours of each node [n], at this client and elsewhere."""
        part, kept = self.part_of(client), client.cache.get("degree")
        if kept is None or kept[0] is not part.ends or len(kept[1]) != len(part.x):
            found = np.bincount(part.ends.ravel(), minlength=len(part.x))
            found[part.border] += part.elsewhere
            kept = client.cache["degree"] = part.ends, torch.from_numpy(found).to(part.x)
        return kept[1]

    def inputs(self, client: Client) -> torch.Tensor:
        """Return H^(0): features [n, F] with log(1 + degree) as the last column."""
        part, degree = self.part_of(client), self.degree(client)
        if getattr(client.net, "version", "") == "h":
            client.net.past = part.seen
        x = torch.cat([part.x[:, :-1], degree.log1p()[:, None]], 1)
        x = part.exchange.inputs(part, x, degree)
        return x if part.heard is None else torch.cat([x, part.heard], 1)

    def outside(self, client: Client, layer: int, message: torch.Tensor, sums: torch.Tensor
                ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the border nodes int64 [b], and their sums [b, .] over neighbours elsewhere."""
        return torch.from_numpy(self.part_of(client).border).to(sums.device), sums

    def combined(self, client: Client, layer: int, x: torch.Tensor, message: torch.Tensor,
                 sums: torch.Tensor) -> torch.Tensor:
        """Compute Eq. (2), rows [n, out]. The sum of Eq. (5) is in it, of messages: ``sums``."""
        part = self.part_of(client)
        total = part.add_neighbours(torch.zeros_like(message), message)
        total = total.index_add(0, *self.outside(client, layer, message, sums))
        if part.ages is not None:
            total = torch.cat([total, part.ages], 1)
        return client.net.combine(layer, x, message, total, self.degree(client))

    def layer(self, client: Client, layer: int, x: torch.Tensor, message: torch.Tensor,
              sums: torch.Tensor) -> torch.Tensor:
        """Return a layer's new states [n, .] of its input ``x`` [n, in], own messages and sums."""
        part, state = self.part_of(client), self.part_of(client).states[layer]
        h = self.combined(client, layer, x, message, sums)          # (2), with the sum of (5)
        h = part.exchange.corrected(part, layer, h)     # (5), (6); if layerwise, h as it is
        out = client.net.remember(layer, h, state)                  # (3)
        return out if part.active.all() else torch.where(
            torch.from_numpy(part.active)[:, None].to(out.device), out, state)      # (4)

    # -- the forward pass, with sums before every layer -------------------------------------------
    @on_client
    def say(self, client: Client, layer: int, model: Any, sums: Any) -> torch.Tensor:
        """Send messages. Down: for layer 0 the model (None: the client's own), else the sums
        [b, m_(layer-1)] that finish the layer before; for layer 1 with the model, where the sums
        of layer 0 are known from before. Up: messages of border nodes [b, m_layer]."""
        begins = layer == 0 or model is not None
        message = self.begin(client, model) if begins else None
        if message is None or layer:
            message = self.prepare_layer(client, layer, self.finish_layer(client, sums))
        return message[torch.from_numpy(self.part_of(client).border)].detach()

    def begin(self, client: Client, model: Any) -> torch.Tensor:
        """Begin a forward pass with ``model`` (None: the client's own).

        Return the messages [n, m_0] of the first layer.
        """
        return self.prepare_layer(client, 0, self.enter(client, model))

    def enter(self, client: Client, model: Any) -> torch.Tensor:
        """Take ``model`` (None: the client's own), and return the input [n, .] of its layers."""
        if model is not None:
            tree.load(client.net, model)
        client.cache["activations"] = []                                    # not saved
        return self.inputs(client)

    def prepare_layer(self, client: Client, layer: int, x: torch.Tensor) -> torch.Tensor:
        """Return the messages [n, m_layer] of a layer's input ``x`` [n, in]; keep both."""
        x = x.detach().requires_grad_()
        message = client.net.message(layer, x, self.degree(client),
                                     self.part_of(client).states[layer])
        client.cache["activations"].append({"x": x, "message": message})
        return message

    def finish_layer(self, client: Client, sums: torch.Tensor) -> torch.Tensor:
        """Compute the rows [n, out] of the newest layer from its sums."""
        *before, last = client.cache["activations"]
        last["sums"] = sums.to(last["x"]).requires_grad_()
        last["state"] = self.layer(client, len(before), last["x"], last["message"], last["sums"])
        last["out"] = client.net.rows(len(before), last["state"])
        return last["out"]

    @on_client
    def embed(self, client: Client, commit: bool, sums: torch.Tensor) -> torch.Tensor:
        """Finish the last layer; with ``commit`` rows become states. Down: sums [b, m_(k-1)]. Up:
        rows of all own nodes [n, hidden]."""
        out, part = self.finish_layer(client, sums).detach(), self.part_of(client)
        if commit:
            layers = client.cache["activations"]
            part.states = [tensors["state"].detach().clone() for tensors in layers]
            if getattr(client.net, "version", "") == "h":
                seen = [client.net.summary(i, t["x"]).detach() for i, t in enumerate(layers)]
                part.seen = [*part.seen, seen][1 - HISTORY:]
        return out

    @on_client
    def embed_at_once(self, client: Client, model: Any, commit: bool, sums: torch.Tensor
                      ) -> torch.Tensor:
        """Compute the only layer, whose sums [b, m_0] are known from before; as :meth:`embed`."""
        self.begin(client, model)
        return self.embed(client, commit, sums)

    @on_client
    def hold(self, client: Client, sums: torch.Tensor) -> None:
        """Keep the sums of all layers for local epochs. Down: the last layer's, [b, m_(k-1)]."""
        layers = client.cache["activations"]
        part = self.part_of(client)
        part.sums = [*(tensors["sums"].detach() for tensors in layers[:-1]), sums.to(part.x)]

    # -- the backward pass ------------------------------------------------------------------------
    @on_client
    def back(self, client: Client, layer: int, gradient: torch.Tensor) -> torch.Tensor:
        """Go back through ``layer``. Down: gradients of the last layer's rows [n, hidden], or of
        the messages of the layer above [b, m_(layer+1)]. Up: of this layer's sums [b, m_layer]."""
        layers = client.cache["activations"]
        if layer == len(layers) - 1:
            client.net.zero_grad()
        else:
            gradient = self.input_gradient(client, layer + 1, gradient)
        layers[layer]["out"].backward(gradient.to(layers[layer]["out"]), retain_graph=True)
        return layers[layer]["sums"].grad

    def input_gradient(self, client: Client, layer: int, gradient: torch.Tensor) -> torch.Tensor:
        """Return gradients of the input [n, in], given those of messages sent [b, m_layer]."""
        x, message = (client.cache["activations"][layer][name] for name in ("x", "message"))
        border = torch.from_numpy(self.part_of(client).border).to(message.device)
        message.backward(torch.zeros_like(message).index_add(0, border, gradient.to(message)))
        return x.grad

    @on_client
    def first(self, client: Client, gradient: torch.Tensor) -> dict[str, torch.Tensor]:
        """Go back through the first layer.

        Down: gradients of its messages [b, m_0]. Up: those of all parameters.
        """
        self.input_gradient(client, 0, gradient)
        return self.gradients(client)

    @on_client
    def back_first(self, client: Client, gradient: torch.Tensor) -> dict[str, torch.Tensor]:
        """Go back through the first layer, whose messages are features.

        Down: as :meth:`back` for layer 0. Up: gradients of all parameters.
        """
        self.back(client, 0, gradient)
        return self.gradients(client)

    def gradients(self, client: Client) -> dict[str, torch.Tensor]:
        """Return the gradients of all parameters by name, 0 where there is none."""
        return {n: torch.zeros_like(p) if p.grad is None else p.grad.clone()
                for n, p in client.net.named_parameters()}

    # -- raw features in place of sums by layer ---------------------------------------------------
    @on_client
    def offer(self, client: Client, model: Any, places: np.ndarray) -> torch.Tensor:
        """Send what an exchange needs of border nodes. Down: the model (None: the client's own)
        and their places int64 [b]. Up: features, and more columns for Eq. (6), [b, .]."""
        if model is not None:
            tree.load(client.net, model)
        self.part_of(client).corrections = []
        return self.part_of(client).exchange.offered(client)[torch.from_numpy(places)]

    @on_client
    def take(self, client: Client, found: tuple[np.ndarray, ...]) -> None:
        """Compute corrections, Eqs. (5), (6). Down, of border nodes: places, numbers of neighbours
        elsewhere, sums of what these sent, sums of features over their neighbours, q in (6)."""
        part = self.part_of(client)
        part.corrections = part.exchange.corrections(client, found)
