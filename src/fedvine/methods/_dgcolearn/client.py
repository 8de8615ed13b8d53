"""The functions that the server calls at a client of DG-CoLearn, Eqs. (1) to (5).

Functions have the names of calls in ``messages.jsonl``; "down" is from the server, "up" the reply.
n counts a client's nodes, m_l is the width of layer l's messages. All shapes and dtypes:
``docs/reference-dgcolearn.md``.

A pass has a plan: the rows of the last layer that are wanted, and for each layer the messages that
are sent. From these and its own edges the client finds what each layer reads: the rows L_l that it
computes are those that layer l + 1 reads and that are changed; all others that it reads (the rim)
are the saved states of the layer below, of the stage before, or features. Time follows these rows
and their edges, whatever the size of the part.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from fedvine.core import tree
from fedvine.core.device import OnDevice
from fedvine.core.method import Client, on_client
from fedvine.core.rng import hashed_uniform
from fedvine.data import neighbourhood as near
from fedvine.methods._dgcolearn import events
from fedvine.methods._dgcolearn.exchange import corrected, corrections, offered
from fedvine.methods._dgcolearn.part import Part
from fedvine.nn.evolvegcn import HISTORY
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
    matrix: near.Rows
    own: torch.Tensor
    border: torch.Tensor
    sent: torch.Tensor
    back: torch.Tensor


class ClientFunctions(OnDevice):
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

    # -- nodes come, and the subgraph changes -----------------------------------------------------
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
        part.append(torch.cat(fresh, 1))
        client.cache.pop("plan", None)

    @on_client
    def join(self, client: Client, now: dict[str, np.ndarray]) -> None:
        """Take in what changed in the subgraph.

        Down, int32: places that are ``active`` now; of nodes with another number of neighbours,
        ``nodes``, those ``elsewhere`` and their ``degree``; and either edges ``added`` and
        ``removed`` [2, .], or rows in place of theirs, ``sizes`` and ``neighbours``; where
        ``whole`` all rows. Where edges have columns, their ``means`` float32 [., .] at the places
        ``told`` int32.
        """
        self.part_of(client).join(now)
        client.cache.pop("activations", None)
        client.cache.pop("plan", None)

    # -- one layer --------------------------------------------------------------------------------
    def degree(self, client: Client, places: np.ndarray) -> np.ndarray:
        """Return the number of neighbours of nodes, for their features, [n]."""
        return self.part_of(client).degree[places]

    def aggregated(self, client: Client, places: np.ndarray) -> torch.Tensor:
        """Return the number of neighbours that are aggregated, of each place, [n]."""
        part = self.part_of(client)
        return torch.from_numpy(part.graph.degree[places] + part.elsewhere[places]).to(part.x)

    def inputs(self, client: Client, places: np.ndarray | None = None) -> torch.Tensor:
        """Return H^(0) of nodes, None: of all.

        These are features [n, F] with log(1 + degree) as the last column; of FedGCN its means.
        """
        part = self.part_of(client)
        places = np.arange(len(part.x)) if places is None else places
        read = torch.from_numpy(places)
        if self.exchange == "fedgcn" and part.corrections:      # type: ignore[attr-defined]
            return part.corrections[0][read]
        degree = torch.from_numpy(self.degree(client, places)).to(part.x)
        return torch.cat([part.x[read, :-1], degree.log1p()[:, None]], 1)

    def enter(self, client: Client, plan: Layer) -> torch.Tensor:
        """Return the input [., F] of the first layer."""
        part = self.part_of(client)
        if client.net.reads_all:
            client.net.past = part.seen
        return part.beside("heard", self.inputs(client, plan.inputs), plan.inputs)

    def above(self, client: Client, layer: int, plan: Layer, out: torch.Tensor) -> torch.Tensor:
        """Return the input of ``layer``: rows ``out`` of the one below, and saved ones of it."""
        rim = torch.from_numpy(plan.inputs[plan.below:])
        return torch.cat([out, client.net.rows(layer - 1, self.part_of(client).states[
            layer - 1])[rim]])

    def message(self, client: Client, layer: int, plan: Layer, x: torch.Tensor) -> torch.Tensor:
        """Compute the messages [., m_layer] of a layer's input ``x`` [., in]."""
        client.net.look(layer, x)
        return client.net.message(layer, x, self.aggregated(client, plan.inputs),
                                  self.part_of(client).states[layer][torch.from_numpy(plan.inputs)])

    def outside(self, client: Client, layer: int, plan: Layer, message: torch.Tensor,
                sums: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return positions of nodes in the rows, and their sums over neighbours elsewhere."""
        return plan.border, sums

    def state(self, client: Client, layer: int, plan: Layer, x: torch.Tensor,
              message: torch.Tensor, sums: torch.Tensor) -> torch.Tensor:
        """Compute the new states of the rows L_l: Eqs. (2), (3), (5).

        Of the input ``x`` [., in], own messages, and ``sums`` [b, m_layer] of border nodes.
        """
        part, net, own = self.part_of(client), client.net, plan.own
        places, degree = torch.from_numpy(plan.rows), self.aggregated(client, plan.rows)
        before = part.states[layer][places]
        total = neighbour_sum(message, *plan.matrix).index_add(
            0, *self.outside(client, layer, plan, message, sums))                       # (5)
        total = part.beside("ages", total, plan.rows)

        def computed(x: torch.Tensor, message: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
            h = net.combine(layer, x.index_select(0, own), message.index_select(0, own), total,
                            degree)                                                     # (2)
            h = corrected(self, part, layer, h, places)        # (5), (6) as printed
            return net.remember(layer, h, before)                                       # (3)
        if not torch.is_grad_enabled() or len(own) < MANY:
            return computed(x, message, total)
        # Of many rows what lies between is computed again on the way back: a tenth is held.
        found = checkpoint(computed, x, message, total, use_reentrant=False,
                           preserve_rng_state=False)
        assert isinstance(found, torch.Tensor)
        return found

    def layers_of(self, client: Client, rows: np.ndarray, sent: list[np.ndarray],
                  deep: bool = False) -> list[Layer]:
        """Return what each layer computes and reads, first layer first.

        ``rows`` are the places of the last layer's rows, ``sent`` by layer those whose messages
        are sent. The newest plan is kept.
        """
        part, net, asked = self.part_of(client), client.net, [rows, *sent, np.array([deep])]
        kept = client.cache.get("plan")
        if kept is not None and kept[0] is part.graph and all(
                np.array_equal(a, b) for a, b in zip(kept[1], asked, strict=True)):
            return kept[2]
        found, graph = list[Layer](), part.graph
        stamps = client.cache.setdefault("stamps", near.Stamps())
        for layer in reversed(range(len(sent))):
            need = (np.arange(len(part.x)) if net.reads_all else
                    near.inputs(graph, rows, sent[layer], 0, stamps))
            mine = np.ones(len(need), bool) if deep else part.active[need]
            below, rim = np.sort(need[mine]), np.sort(need[~mine])
            read = np.concatenate([below, rim])
            matrix = near.matrix(graph, rows, read, 0, stamps)
            positions, back = stamps.place, sent[layer]
            if not deep and not net.short(layer):
                back = back[part.active[back]]
            found.append(Layer(rows, read, len(below), matrix, *(
                torch.from_numpy(p.astype(np.int64)).to(part.x.device) for p in (
                    positions[rows], np.flatnonzero(part.elsewhere[rows]), positions[sent[layer]],
                    positions[back]))))
            rows = below
        client.cache["plan"] = graph, asked, found[::-1]
        return found[::-1]

    # -- the forward pass, with sums before every layer -------------------------------------------
    @on_client
    def send_messages(self, client: Client, layer: int, model: Any, given: Any) -> torch.Tensor:
        """Send messages.

        Down: for layer 0 the model (None: the client's own), ``rows``, ``sent`` and ``deep`` of
        :meth:`layers_of`, and ``learn``, whether gradients will be asked for; else what
        :meth:`sums_of` takes, of the layer before. Up: messages of the places to be sent
        [., m_layer].
        """
        if layer == 0:
            if model is not None:
                tree.load(client.net, model)
            rows, *sent = (places.astype(np.int64) for places in (given["rows"], *given["sent"]))
            client.cache["layers"] = self.layers_of(client, rows, sent, given["deep"])
            client.cache["activations"], client.cache["learn"] = [], given["learn"]
            x = self.enter(client, client.cache["layers"][0])
        else:
            x = self.above(client, layer, client.cache["layers"][layer],
                           self.finished(client, given))
        plan = client.cache["layers"][layer]
        x = x.detach().requires_grad_(layer > 0)        # nothing of features has a gradient
        with torch.set_grad_enabled(client.cache["learn"]):
            message = self.message(client, layer, plan, x)
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

    def finished(self, client: Client, given: dict[str, Any]) -> torch.Tensor:
        """Compute the rows L_l of the newest layer. Down: what :meth:`sums_of` takes."""
        *before, last = client.cache["activations"]
        layer = len(before)
        last["at"], sums = self.sums_of(client, layer, given)
        last["sums"] = sums.requires_grad_()
        with torch.set_grad_enabled(client.cache["learn"]):
            last["state"] = self.state(client, layer, client.cache["layers"][layer], last["x"],
                                       last["message"], last["sums"])
            last["out"] = client.net.rows(layer, last["state"])
        return last["out"]

    @on_client
    def finish(self, client: Client, given: dict[str, Any]) -> torch.Tensor:
        """Finish the last layer.

        Down: as :meth:`sums_of`, and places of other rows to send, ``rest``. Up: rows of the pass,
        then the saved ones of ``rest``, [., hidden].
        """
        rest, net = torch.from_numpy(given["rest"].astype(np.int64)), client.net
        out = self.finished(client, given).detach()
        return torch.cat([out, net.rows(net.layers - 1, self.part_of(client).states[-1])[rest]])

    @on_client
    def save_states(self, client: Client, given: dict[str, Any]) -> None:
        """Finish the last layer, of a pass over all changed rows, which become states.

        Down: as :meth:`sums_of`.
        """
        self.finished(client, given)
        made = client.cache["activations"]
        self.keep(client, client.cache["layers"], [tensors["x"] for tensors in made],
                  [tensors["state"] for tensors in made])

    def keep(self, client: Client, plans: list[Layer], inputs: list[torch.Tensor],
             states: list[torch.Tensor]) -> None:
        """Let the states [., s_l] of a pass over all changed rows be those of now, Eq. (4)."""
        part = self.part_of(client)
        for table, plan, state in zip(part.states, plans, states, strict=True):
            table[torch.from_numpy(plan.rows)] = state.detach()                         # (4)
        summaries = client.net.summaries(inputs)
        if summaries:
            part.seen = [*part.seen, summaries][1 - HISTORY:]

    # -- the backward pass ------------------------------------------------------------------------
    @on_client
    def backward(self, client: Client, layer: int, gradient: torch.Tensor) -> torch.Tensor:
        """Go back through ``layer``.

        Down: gradients of the last layer's rows, or of the messages of the layer above. Up: those
        of this layer's sums that were given.
        """
        self.rows_back(client, layer, gradient)
        of = client.cache["activations"][layer]
        return of["sums"].grad[of["at"]]

    def rows_back(self, client: Client, layer: int, gradient: torch.Tensor) -> None:
        """Go back to the sums of ``layer``; ``gradient`` as of :meth:`backward`."""
        layers = client.cache["activations"]
        if layer == len(layers) - 1:
            client.net.zero_grad()
        else:
            gradient = self.messages_back(client, layer + 1, gradient)[
                :client.cache["layers"][layer + 1].below]
        layers[layer]["out"].backward(gradient.to(layers[layer]["out"]), retain_graph=True)

    def messages_back(self, client: Client, layer: int, gradient: torch.Tensor) -> Any:
        """Return gradients of the layer's input, given those of messages sent; None of features."""
        x, message = (client.cache["activations"][layer][name] for name in ("x", "message"))
        back = client.cache["layers"][layer].back
        message.backward(torch.zeros_like(message).index_add(0, back, gradient.to(message)))
        return x.grad

    @on_client
    def first_layer(self, client: Client, gradient: torch.Tensor) -> dict[str, torch.Tensor]:
        """Go back through the first layer.

        Down: gradients of its messages; where these are features, as :meth:`backward` for it. Up:
        gradients of all parameters.
        """
        if client.net.short(0):
            self.messages_back(client, 0, gradient)
        else:
            self.rows_back(client, 0, gradient)
        return self.gradients(client)

    def gradients(self, client: Client) -> dict[str, torch.Tensor]:
        """Return the gradients of all parameters by name, 0 where there is none."""
        return {n: torch.zeros_like(p) if p.grad is None else p.grad.clone()
                for n, p in client.net.named_parameters()}

    # -- local epochs, with sums that are kept ----------------------------------------------------
    @on_client
    def hold(self, client: Client, given: dict[str, Any]) -> None:
        """Keep the sums of all layers for local epochs. Down: the last layer's, as
        :meth:`sums_of`, of a pass over all changed rows."""
        layers = client.cache["activations"]
        last = self.sums_of(client, len(layers) - 1, given)[1]
        self.part_of(client).sums = [*(tensors["sums"].detach() for tensors in layers[:-1]), last]

    @on_client
    def train(self, client: Client, model: Any, epochs: int, own: tuple[Any, np.ndarray]) -> None:
        """Train for ``epochs`` with the sums that are kept. Down: the model, or None to go on
        with the client's own; places of pairs int64 [2, P] of own nodes, or of nodes [1, P];
        and their labels [P] (1 for an edge, 0 for none; or classes). Of dygformer lists in place
        of places (:func:`events.sequences`), None where there is no pair."""
        if model is not None:
            tree.load(client.net, model)
        if client.net.paired:
            events.train_pairs(self, client, epochs, *own)
            return
        ends, labels = [torch.from_numpy(e) for e in own[0]], own[1]
        for _ in range(epochs if len(labels) else 0):
            loss = self.loss(client, self.by_layer(client)[-1], ends, labels)
            client.optimizer.zero_grad()
            loss.backward()
            client.optimizer.step()

    def by_layer(self, client: Client, commit: bool = False) -> list[torch.Tensor]:
        """Return the rows [n, hidden] of each layer by the client's model, with the sums kept.

        Those of nodes that are not active are saved ones. With ``commit`` rows become states.
        """
        part, net, nothing = self.part_of(client), client.net, np.empty(0, np.int64)
        plans = self.layers_of(client, np.sort(part.changed), [nothing] * net.layers)
        inputs, states, found = list[torch.Tensor](), list[torch.Tensor](), list[torch.Tensor]()
        for layer, plan in enumerate(plans):
            x = (self.above(client, layer, plan, net.rows(layer - 1, states[-1])) if layer else
                 self.enter(client, plan))
            message = self.message(client, layer, plan, x)
            sums = (part.sums[layer] if part.sums else
                    message.new_zeros(len(plan.border), message.shape[1]))
            inputs.append(x)
            states.append(self.state(client, layer, plan, x, message, sums))
            rows, all_rows = net.rows(layer, states[-1]), net.rows(layer, part.states[layer])
            found.append(rows if len(rows) == len(all_rows) else all_rows.index_copy(
                0, torch.from_numpy(plan.rows).to(rows.device), rows))
        if commit:
            self.keep(client, plans, [x.detach() for x in inputs], states)
        return found

    def loss(self, client: Client, rows: torch.Tensor, ends: list[torch.Tensor],
             labels: np.ndarray) -> torch.Tensor:
        """Compute what a local epoch minimises, a scalar; a subclass may add terms.

        ``rows`` [n, hidden] are those of all own nodes; ``ends`` are the places [P] of the first
        and of the second nodes of pairs, or of nodes alone, and ``labels`` [P] as in :meth:`train`.
        """
        return client.net.loss([rows[e] for e in ends], labels)

    @on_client
    def trained(self, client: Client) -> dict[str, torch.Tensor]:
        """Return this client's model, to be averaged."""
        return tree.weights(client.net)

    # -- raw features in place of sums by layer ---------------------------------------------------
    @on_client
    def offer(self, client: Client, model: Any, places: np.ndarray) -> torch.Tensor:
        """Send what an exchange needs of border nodes. Down: the model (None: the client's own)
        and their places int32 [b]. Up: features, and more columns for Eq. (6), [b, .]."""
        if model is not None:
            tree.load(client.net, model)
        self.part_of(client).corrections = []
        return offered(self, client)[torch.from_numpy(places.astype(np.int64))]

    @on_client
    def take(self, client: Client, found: tuple[np.ndarray, ...]) -> None:
        """Compute corrections, Eqs. (5), (6). Down, of border nodes: places, numbers of neighbours
        elsewhere, sums of what these sent, sums of features over their neighbours, q in (6)."""
        self.part_of(client).corrections = corrections(self, client, found)

    # -- events in continuous time (TGN), and lists of events (DyGFormer) -------------------------
    @on_client
    def memories(self, client: Client, told: dict[str, np.ndarray]) -> torch.Tensor:
        """Take in the newest events; send the memories of nodes with events elsewhere.

        Down: places int32 of the ``events`` inside [2, .] and of these nodes, ``border`` [b]; of
        the nodes with events, ``busy``, their number ``count`` and the sum ``phi`` [., WAVES];
        ``ages`` [., WAVES], sums of phi over live edges, of nodes ``near``. Up: memories [b,
        hidden].
        """
        return events.memories(self.part_of(client), client, told)

    @on_client
    def hear(self, client: Client, outside: torch.Tensor) -> None:
        """Compute the mean of the newest messages, Eq. (3). Down: sums [b, hidden] of memories."""
        events.hear(self.part_of(client), client, outside)

    @on_client
    def show(self, client: Client, places: np.ndarray) -> torch.Tensor:
        """Send features. Down: places int32 [m] of own nodes. Up: their features [m, F]."""
        return self.inputs(client, places.astype(np.int64))

    @on_client
    def learn_pairs(self, client: Client, model: Any, total: int,
                    given: tuple[events.Told, np.ndarray]) -> dict[str, torch.Tensor]:
        """Compute gradients of the loss.

        Down: the model; the number of all clients' pairs; lists, see :func:`events.sequences`, and
        labels float64 [p], 1 for an edge. Up: gradients of all parameters, of this client's part of
        the mean over all pairs.
        """
        tree.load(client.net, model)
        client.net.zero_grad()
        events.descend(client, events.sequences(self, client, given[0]), given[1], total)
        return self.gradients(client)

    @on_client
    def score_pairs(self, client: Client, model: Any, told: events.Told) -> torch.Tensor:
        """Compute scores. Down: the model; lists, see :func:`events.sequences`. Up: logits [p]."""
        tree.load(client.net, model)
        return events.logits(self, client, told)
