"""A client of DG-CoLearn that computes the rows of the changed set alone, Eqs. (1) and (4).

A pass has a plan: the rows of the last layer that are wanted, and for each layer the messages that
are sent. From these and its own edges the client finds what each layer reads: the rows L_l that it
computes are those that layer l + 1 reads and that are changed; all others that it reads (the rim)
are the saved states of the layer below, of the stage before, or features. Time follows these rows
and their edges, whatever the size of the part. Functions of the network are those of
:mod:`fedvine.methods._dgcolearn.client`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from fedvine.core import tree
from fedvine.core.method import Client, on_client
from fedvine.data.adjacency import Adjacency
from fedvine.methods._dgcolearn import blocks
from fedvine.methods._dgcolearn.changed_part import ChangedPart
from fedvine.methods._dgcolearn.client import ClientMixin
from fedvine.nn.neighbour_sum import neighbour_sum

MANY = 2 ** 14      # rows of a layer at a client whose memory is worth computing them twice


class Layer(NamedTuple):
    """List the nodes that a client computes and reads in one layer of a pass; numbers are int64.

    - ``rows``: L_l, the rows that are computed, ascending
    - ``inputs``: the rows read: first those of L_(l-1), then the rim; both ascending
    - ``below``: how many of the inputs are of L_(l-1)
    - ``matrix``: the edges from ``rows`` to positions of ``inputs``
    - ``own``, ``border``: positions of ``rows`` in the inputs; of border nodes in ``rows``
    - ``sent``, ``back``: positions in the inputs of messages sent, and of those with gradients
    """

    rows: np.ndarray
    inputs: np.ndarray
    below: int
    matrix: blocks.Rows
    own: torch.Tensor
    border: torch.Tensor
    sent: torch.Tensor
    back: torch.Tensor


class ChangedMixin(ClientMixin):
    """The client functions of passes over the changed set."""

    def part_of(self, client: Client) -> ChangedPart:
        """Return ``client.part``; see :meth:`ClientMixin.part_of`."""
        return super().part_of(client)      # type: ignore[return-value]

    # -- the subgraph changes ---------------------------------------------------------------------
    @on_client
    def join_changes(self, client: Client, now: dict[str, np.ndarray]) -> None:
        """Take in what changed in the subgraph.

        Down, int32: places that are ``active`` now; of nodes with another number of neighbours,
        ``nodes``, those ``elsewhere`` and their ``degree``; and either edges ``added`` and
        ``removed`` [2, .], or rows in place of theirs, ``sizes`` and ``neighbours``; where
        ``whole`` all rows. Where edges have columns, their ``means`` float32 [., .] at the places
        ``told`` int32.
        """
        part, nodes = self.part_of(client), now["nodes"].astype(np.int64)
        n = len(part.x)
        if now["whole"]:
            part.graph = Adjacency.of_rows(now["sizes"], now["neighbours"])
            part.active, part.changed = np.zeros(n, bool), np.empty(0, np.int64)
            part.elsewhere, part.degree = np.zeros(n, np.int32), np.zeros(n, np.int32)
        elif "sizes" in now:
            part.graph.replace(nodes, now["sizes"], now["neighbours"])
        else:
            part.graph.remove(now["removed"])
            part.graph.add(now["added"])
        part.elsewhere[nodes], part.degree[nodes] = now["elsewhere"], now["degree"]
        if "means" in now:
            if now["whole"]:
                part.own_features()
            part.renew_means(now["told"].astype(np.int64), now["means"])
        part.choose(now["active"])
        client.cache.pop("activations", None)
        client.cache.pop("plan", None)

    # -- a pass -----------------------------------------------------------------------------------
    def layers_of(self, client: Client, rows: np.ndarray, sent: list[np.ndarray],
                  deep: bool = False) -> list[Layer]:
        """Return what each layer computes and reads, first layer first.

        ``rows`` are the places of the last layer's rows, ``sent`` by layer those whose messages
        are sent.
        """
        part, found = self.part_of(client), list[Layer]()
        stamps = client.cache.setdefault("stamps", blocks.Stamps())
        for layer in reversed(range(len(sent))):
            need = blocks.inputs(part.graph, rows, sent[layer], 0, stamps)
            mine = np.ones(len(need), bool) if deep else part.active[need]
            below, rim = np.sort(need[mine]), np.sort(need[~mine])
            read = np.concatenate([below, rim])
            matrix = blocks.matrix(part.graph, rows, read, 0, stamps)
            positions = stamps.place
            back = sent[layer]
            if not deep and not client.net.short(layer):
                back = back[part.active[back]]
            found.append(Layer(rows, read, len(below), matrix, *(
                torch.from_numpy(p.astype(np.int64)).to(part.x.device) for p in (
                    positions[rows], np.flatnonzero(part.elsewhere[rows]), positions[sent[layer]],
                    positions[back]))))
            rows = below
        return found[::-1]

    def plan_of(self, client: Client, rows: np.ndarray, sent: list[np.ndarray],
                  deep: bool = False) -> list[Layer]:
        """Return :meth:`layers_of`, of the last pass where it was the same."""
        graph, asked = self.part_of(client).graph, [rows, *sent, np.array([deep])]
        held = client.cache.get("plan")
        if held is None or held[0] is not graph or any(
                not np.array_equal(a, b) for a, b in zip(held[1], asked, strict=True)):
            held = client.cache["plan"] = graph, asked, self.layers_of(client, rows, sent, deep)
        return held[2]

    @on_client
    def say_changed(self, client: Client, layer: int, model: Any, given: Any) -> torch.Tensor:
        """Send messages.

        Down: for layer 0 the model, ``rows``, ``sent`` and ``deep`` of :meth:`layers_of`, and
        ``learn``, whether gradients will be asked for; else what :meth:`sums_of` takes, of the
        layer before. Up: messages of the places to be sent [., m_layer].
        """
        part, net = self.part_of(client), client.net
        if layer == 0:
            tree.load(net, model)
            rows, *sent = (places.astype(np.int64) for places in (given["rows"], *given["sent"]))
            client.cache["layers"] = self.plan_of(client, rows, sent, given["deep"])
            client.cache["activations"], client.cache["learn"] = [], given["learn"]
            read = torch.from_numpy(client.cache["layers"][0].inputs)
            degree = torch.from_numpy(part.degree[read.numpy()]).to(part.x)
            x = torch.cat([part.x[read, :-1], degree.log1p()[:, None]], 1)
            x = part.beside("heard", x, read.numpy())
        else:
            plan = client.cache["layers"][layer]
            rim = torch.from_numpy(plan.inputs[plan.below:])
            kept = net.rows(layer - 1, part.states[layer - 1])[rim]
            x = torch.cat([self.finish_changed(client, given), kept])
        plan = client.cache["layers"][layer]
        x = x.detach().requires_grad_(layer > 0)        # nothing of features has a gradient
        with torch.set_grad_enabled(client.cache["learn"]):
            message = net.message(layer, x, self.neighbours_of(client, plan.inputs),
                                  part.states[layer][torch.from_numpy(plan.inputs)])
        client.cache["activations"].append({"x": x, "message": message})    # not saved
        return message[plan.sent].detach()

    def sums_of(self, client: Client, layer: int, given: dict[str, Any]
                ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return positions int64 of border rows in the layer's rows, and sums [b, m] of these.

        Down: ``at``, positions int32 among them of those that changed, and their new ``sums``; all
        others are as they were given before. While the library scores all are given.
        """
        part, plan = self.part_of(client), client.cache["layers"][layer]
        sums, device = given["sums"].to(part.x), part.x.device
        places = torch.from_numpy(plan.rows).to(device)[plan.border]
        at = torch.from_numpy(given["at"].astype(np.int64)).to(device)
        if client.asked is None and not client.net.short(layer):
            table = part.held_sums(layer, sums)
            table[places[at]] = sums
            sums = table[places]
        return at, sums

    def neighbours_of(self, client: Client, places: np.ndarray) -> torch.Tensor:
        """Return the number of neighbours that are aggregated, of each place, [n]."""
        part = self.part_of(client)
        return torch.from_numpy(part.graph.degree[places] + part.elsewhere[places]).to(part.x)

    def finish_changed(self, client: Client, given: dict[str, Any]) -> torch.Tensor:
        """Compute the rows L_l of the newest layer: Eqs. (2), (3), (5).

        Down: what :meth:`sums_of` takes.
        """
        *before, last = client.cache["activations"]
        layer, part = len(before), self.part_of(client)
        plan = client.cache["layers"][layer]
        last["at"], sums = self.sums_of(client, layer, given)
        x, message, last["sums"] = last["x"], last["message"], sums.requires_grad_()
        own, degree = plan.own, self.neighbours_of(client, plan.rows)
        learn = client.cache["learn"]
        state = part.states[layer][torch.from_numpy(plan.rows)]

        def computed(x: torch.Tensor, message: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
            h = client.net.combine(layer, x.index_select(0, own), message.index_select(0, own),
                                   total, degree)                                   # (2), (5)
            return client.net.remember(layer, h, state)                             # (3)

        with torch.set_grad_enabled(learn):
            total = neighbour_sum(message, *plan.matrix).index_add(0, plan.border, last["sums"])
            total = part.beside("ages", total, plan.rows)
            # Of many rows what lies between is computed again on the way back: ten times less is
            # held.
            last["state"] = (computed(x, message, total) if not learn or len(own) < MANY else
                             checkpoint(computed, x, message, total, use_reentrant=False,
                                        preserve_rng_state=False))
            last["out"] = client.net.rows(layer, last["state"])
        return last["out"]

    @on_client
    def embed_changed(self, client: Client, given: dict[str, Any]) -> torch.Tensor:
        """Finish the last layer.

        Down: as :meth:`sums_of`, and places of other rows to send, ``rest``. Up: rows of the pass,
        then the saved ones of ``rest``, [., hidden].
        """
        rest = torch.from_numpy(given["rest"].astype(np.int64))
        out = self.finish_changed(client, given).detach()
        kept = client.net.rows(self.layers - 1,                 # type: ignore[attr-defined]
                               self.part_of(client).states[-1])
        return torch.cat([out, kept[rest]])

    @on_client
    def keep_changed(self, client: Client, given: dict[str, Any]) -> None:
        """Finish the last layer, of a pass over all changed rows, which become states.

        Down: as :meth:`sums_of`.
        """
        self.finish_changed(client, given)
        part = self.part_of(client)
        made = zip(client.cache["layers"], client.cache["activations"], strict=True)
        for state, (plan, tensors) in zip(part.states, made, strict=True):
            state[torch.from_numpy(plan.rows)] = tensors["state"].detach()          # (4)

    @on_client
    def back_changed(self, client: Client, layer: int, gradient: torch.Tensor) -> torch.Tensor:
        """Go back through ``layer``.

        Down: gradients of the last layer's rows, or of the messages of the layer above. Up: those
        of this layer's sums that were given.
        """
        self.rows_back(client, layer, gradient)
        of = client.cache["activations"][layer]
        return of["sums"].grad[of["at"]]

    def rows_back(self, client: Client, layer: int, gradient: torch.Tensor) -> None:
        """Go back to the sums of ``layer``; ``gradient`` as of :meth:`back_changed`."""
        layers = client.cache["activations"]
        if layer == len(layers) - 1:
            client.net.zero_grad()
        else:
            gradient = self.gradient_below(client, layer + 1, gradient)
        layers[layer]["out"].backward(gradient.to(layers[layer]["out"]), retain_graph=True)

    def gradient_below(self, client: Client, layer: int, gradient: torch.Tensor) -> torch.Tensor:
        """Return gradients of the rows L_(layer-1), given those of messages sent."""
        plan = client.cache["layers"][layer]
        x, message = (client.cache["activations"][layer][name] for name in ("x", "message"))
        message.backward(torch.zeros_like(message).index_add(0, plan.back, gradient.to(message)))
        return x.grad[:plan.below]

    @on_client
    def first_changed(self, client: Client, gradient: torch.Tensor) -> dict[str, torch.Tensor]:
        """Go back through the first layer.

        Down: gradients of its messages. Up: those of all parameters.
        """
        plan, layers = client.cache["layers"][0], client.cache["activations"]
        message = layers[0]["message"]
        message.backward(torch.zeros_like(message).index_add(0, plan.back, gradient.to(message)))
        return self.gradients(client)

    @on_client
    def rows_first_changed(self, client: Client, gradient: torch.Tensor
                           ) -> dict[str, torch.Tensor]:
        """Go back through the first layer, whose messages are features.

        Down: as :meth:`back_changed` for layer 0. Up: gradients of all parameters.
        """
        self.rows_back(client, 0, gradient)
        return self.gradients(client)
