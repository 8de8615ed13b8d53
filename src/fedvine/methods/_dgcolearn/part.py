"""A client of DG-CoLearn: its part of the graph, and the functions that the server calls there.

Functions have the names of calls in ``messages.jsonl``; "down" is from the server, "up" the reply.
n counts the client's nodes, b its border nodes (with neighbours elsewhere: at other clients).
"""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import numpy as np
import torch

from fedvine.core import tree
from fedvine.core.method import Client, on_client
from fedvine.core.rng import hashed_uniform
from fedvine.nn.evolvegcn import HISTORY


class Part:
    """What a client keeps. Nodes are places 0..n-1; arrays are replaced, never written to.

    - ``x``: [n, F] features; the last column is 0 (:meth:`ClientMixin.inputs`)
    - ``states``: states of the last snapshot by layer [n, hidden], H_(t-1) of Eq. (3)
    - ``active``: bool [n], nodes of the k-hop subgraph of Eq. (1); others keep their states
    - ``ends``: int64 [2, E], edges between own nodes
    - ``border``, ``elsewhere``: int64 [b], own nodes with neighbours elsewhere, and how many
    - ``sums``: sums [b, .] by layer of an exchange, kept for local epochs
    - ``corrections``: additions of an exchange of raw features
    - ``seen``: summaries of earlier snapshots, for version h of EvolveGCN
    - ``exchange``: the method's exchange; not saved
    """

    #: By the names that this memory had in saves of the release before.
    flat_names: ClassVar[dict[str, str]] = {"others": "corrections", **{name: name for name in (
        "x", "states", "active", "ends", "border", "elsewhere", "sums", "seen")}}

    def __init__(self, features: int, hidden: int, layers: int, dtype: torch.dtype,
                 exchange: Any) -> None:
        self.exchange = exchange
        self.x = torch.empty(0, features, dtype=dtype)
        self.states = [torch.zeros(0, hidden, dtype=dtype)] * layers
        self.active = np.empty(0, bool)
        self.ends = np.empty((2, 0), np.int64)
        self.border, self.elsewhere = np.empty(0, np.int64), np.empty(0, np.int64)
        self.sums, self.corrections = list[torch.Tensor](), list[torch.Tensor]()
        self.seen = list[list[torch.Tensor]]()

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps."""
        return {name: getattr(self, name) for name in self.flat_names.values()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        vars(self).update(state)

    def inside(self, onto: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Add to ``onto`` [n, .] the sums of ``rows`` [n, .] over neighbours in this part."""
        a, b = (torch.from_numpy(e) for e in self.ends)
        return onto.index_add(0, a, rows[b]).index_add(0, b, rows[a])


class ClientMixin:
    """The functions that run at a client; its memory is ``part``, ``net`` and ``optimizer``."""

    @staticmethod
    def part(client: Client) -> Part:
        """Return the client's part; while the library scores, a copy that is dropped later."""
        if client.asked is None:
            client.cache.pop("ahead", None)
            return client.part
        if client.cache.get("ahead", (None,))[0] != client.asked:
            client.cache["ahead"] = client.asked, copy.copy(client.part)
        return client.cache["ahead"][1]

    # -- nodes come, move and go ------------------------------------------------------------------
    @on_client
    def meet(self, client: Client, new: dict[str, np.ndarray]) -> None:
        """Add new nodes with states of 0. Down: ``keys`` uint64 of the nodes; where the data have
        features, ``x`` of them, and ``changed`` features of own nodes at ``places``."""
        part, count, x = self.part(client), len(new["keys"]), self.part(client).x
        if "x" in new:
            x = x.clone()
            x[torch.from_numpy(new["places"]), :-2] = torch.from_numpy(new["changed"]).to(x)
            fresh = torch.from_numpy(new["x"]).to(x)
        else:
            width = x.shape[1] - 2
            fresh = torch.from_numpy(hashed_uniform(client.world.seed, new["keys"], width)).to(x)
            fresh *= (3 / width) ** 0.5                 # uniform, of variance 1 / width
        part.x = torch.cat([x, torch.cat([fresh, fresh.new_tensor([1.0, 0.0]).expand(count, 2)],
                                         1)])
        part.states = [torch.cat([s, s.new_zeros(count, s.shape[1])]) for s in part.states]
        part.active = np.concatenate([part.active, np.ones(count, bool)])

    @on_client
    def give(self, client: Client, places: np.ndarray) -> list[torch.Tensor]:
        """Remove the nodes at ``places`` int64 [m]. Up: their features [m, F] and states
        [m, hidden], one array a layer."""
        part, at = self.part(client), torch.from_numpy(places)
        stay = torch.ones(len(part.x), dtype=torch.bool).index_fill(0, at, False)
        given = [r[at] for r in (part.x, *part.states)]
        part.x, *part.states = (r[stay] for r in (part.x, *part.states))
        part.active = part.active[stay.numpy()]
        return given

    @on_client
    def take_over(self, client: Client, given: list[list[torch.Tensor]]) -> None:
        """Append nodes of other clients. Down: what each of these clients gave."""
        part = self.part(client)
        for rows in given:
            part.x, *part.states = (torch.cat([own, new]) for own, new in
                                    zip((part.x, *part.states), rows, strict=True))
            part.active = np.concatenate([part.active, np.ones(len(rows[0]), bool)])

    @on_client
    def join(self, client: Client, now: dict[str, np.ndarray]) -> None:
        """Replace the subgraph by that of a new snapshot. Down: ``ends``, ``border`` and
        ``elsewhere`` of :class:`Part`, and ``active`` where only what changed is computed."""
        part = self.part(client)
        part.ends, part.border, part.elsewhere = now["ends"], now["border"], now["elsewhere"]
        part.active = now.get("active", part.active)
        part.sums, part.corrections = [], []
        client.cache.pop("tape", None)

    # -- one layer --------------------------------------------------------------------------------
    def degree(self, client: Client) -> torch.Tensor:
        """Count the neighbours of each node [n], here and elsewhere."""
        part, kept = self.part(client), client.cache.get("degree")
        if kept is None or kept[0] is not part.ends or len(kept[1]) != len(part.x):
            found = np.bincount(part.ends.ravel(), minlength=len(part.x))
            found[part.border] += part.elsewhere
            kept = client.cache["degree"] = part.ends, torch.from_numpy(found).to(part.x.dtype)
        return kept[1]

    def inputs(self, client: Client) -> torch.Tensor:
        """Return H^(0): features [n, F] with log(1 + degree) as the last column."""
        part, degree = self.part(client), self.degree(client)
        if getattr(client.net, "version", "") == "h":
            client.net.past = part.seen
        x = torch.cat([part.x[:, :-1], degree.log1p()[:, None]], 1)
        return part.exchange.inputs(part, x, degree)

    def outside(self, client: Client, layer: int, message: torch.Tensor, sums: torch.Tensor
                ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return own nodes int64 [b] with neighbours elsewhere, and the sums [b, .] of these."""
        return torch.from_numpy(self.part(client).border), sums

    def combined(self, client: Client, layer: int, x: torch.Tensor, message: torch.Tensor,
                 sums: torch.Tensor) -> torch.Tensor:
        """Eq. (2): rows [n, out] before the state, of neighbours here and elsewhere."""
        total = self.part(client).inside(torch.zeros_like(message), message)
        total = total.index_add(0, *self.outside(client, layer, message, sums))
        return client.net.combine(layer, x, message, total, self.degree(client))

    def layer(self, client: Client, layer: int, x: torch.Tensor, message: torch.Tensor,
              sums: torch.Tensor) -> torch.Tensor:
        """Return a layer's rows [n, out] of its input ``x`` [n, in], own messages and sums."""
        part, state = self.part(client), self.part(client).states[layer]
        h = self.combined(client, layer, x, message, sums)          # (2)
        h = part.exchange.corrected(part, layer, h)                 # (5), (6)
        out = client.net.remember(layer, h, state)                  # (3)
        return out if part.active.all() else torch.where(
            torch.from_numpy(part.active)[:, None], out, state)     # (4)

    # -- the forward pass, with sums before every layer -------------------------------------------
    @on_client
    def say(self, client: Client, layer: int, model: Any, sums: Any) -> torch.Tensor:
        """Finish the layer before and compute the next messages. Down: for the first layer the
        model, then sums [b, .]. Up: messages of border nodes [b, .]."""
        if layer == 0:
            if model is not None:
                tree.load(client.net, model)
            client.cache["tape"], x = [], self.inputs(client)
        else:
            x = self.close(client, sums)
        x = x.detach().requires_grad_()
        message = client.net.message(layer, x, self.degree(client))
        client.cache["tape"].append({"x": x, "message": message})
        return message[torch.from_numpy(self.part(client).border)].detach()

    def close(self, client: Client, sums: torch.Tensor) -> torch.Tensor:
        """Return the rows of the layer whose sums have arrived, and note what gradients need."""
        layer, tape = len(client.cache["tape"]) - 1, client.cache["tape"][-1]
        tape["sums"] = sums.requires_grad_()
        tape["out"] = self.layer(client, layer, tape["x"], tape["message"], tape["sums"])
        return tape["out"]

    @on_client
    def embed(self, client: Client, commit: bool, sums: torch.Tensor) -> torch.Tensor:
        """Finish the last layer; with ``commit`` rows become states. Down: sums [b, .]. Up: rows
        of all own nodes [n, hidden]."""
        out, part, tape = self.close(client, sums).detach(), self.part(client), client.cache["tape"]
        if commit:
            part.states = [t["out"].detach().clone() for t in tape]
            if getattr(client.net, "version", "") == "h":
                seen = [client.net.summary(i, t["x"]).detach() for i, t in enumerate(tape)]
                part.seen = [*part.seen, seen][1 - HISTORY:]
        return out

    @on_client
    def hold(self, client: Client, sums: torch.Tensor) -> None:
        """Keep the sums of all layers for local epochs. Down: those of the last layer."""
        tape = client.cache["tape"]
        self.part(client).sums = [*(t["sums"].detach() for t in tape[:-1]), sums]

    # -- the backward pass ------------------------------------------------------------------------
    @on_client
    def back(self, client: Client, layer: int, slope: torch.Tensor) -> torch.Tensor:
        """Go back through ``layer``. Down: gradients of the last layer's rows [n, hidden], or of
        the messages [b, .] to the layer above. Up: gradients of the sums [b, .] of ``layer``."""
        tape = client.cache["tape"]
        if layer == len(tape) - 1:
            client.net.zero_grad()
        else:
            slope = self.down(client, layer + 1, slope)
        tape[layer]["out"].backward(slope, retain_graph=True)
        return tape[layer]["sums"].grad

    def down(self, client: Client, layer: int, slope: torch.Tensor) -> torch.Tensor:
        """Return gradients of the input of ``layer`` [n, in]; ``slope``: of its messages."""
        tape, border = client.cache["tape"][layer], torch.from_numpy(self.part(client).border)
        tape["message"].backward(torch.zeros_like(tape["message"]).index_add(0, border, slope))
        return tape["x"].grad

    @on_client
    def first(self, client: Client, slope: torch.Tensor) -> dict[str, torch.Tensor]:
        """Finish the backward pass. Down: gradients of the first layer's messages. Up: gradients
        of all parameters."""
        self.down(client, 0, slope)
        return {n: torch.zeros_like(p) if p.grad is None else p.grad.clone()
                for n, p in client.net.named_parameters()}

    # -- raw features in place of sums by layer ---------------------------------------------------
    @on_client
    def offer(self, client: Client, model: Any, places: np.ndarray) -> torch.Tensor:
        """Down: the model, or None for the client's own, and places int64 [b] of border nodes. Up:
        their features (and more columns for Eq. (6)) [b, .]."""
        if model is not None:
            tree.load(client.net, model)
        part = self.part(client)
        part.corrections = []
        return part.exchange.offered(client)[torch.from_numpy(places)]

    @on_client
    def take(self, client: Client, found: tuple[np.ndarray, ...]) -> None:
        """Compute corrections, Eqs. (5), (6). Down: places and counts of neighbours elsewhere,
        int64 [b], sums [b, .] of what these offered, and sums of their such sums of features."""
        self.part(client).corrections = client.part.exchange.corrections(client, found)
