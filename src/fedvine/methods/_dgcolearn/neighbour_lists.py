"""The exchange of DyGFormer: lists of the newest events of nodes, and features of those listed.

A pair is computed at the client of its first end. The server, which knows the graph, tells this
client the lists of both ends, who and when, also of ends and other nodes elsewhere
(:mod:`fedvine.methods._dgcolearn.event_lists`); the features of nodes elsewhere come from their
clients through the server. So every pair is computed as one machine would, and the gradients of all
clients add up to that machine's. With ``exchange="none"`` lists have events between the client's
own nodes alone, and of an end elsewhere nothing is known: its list is empty, and its features are
0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from fedvine.core import tree
from fedvine.core.expect import Tensor
from fedvine.core.lookup import find, unique
from fedvine.core.method import Client, Server, on_client
from fedvine.methods._dgcolearn.event_lists import padded
from fedvine.methods._dgcolearn.exchange import Layerwise, named, ready

Told = dict[str, Any]       # what a client gets to compute pairs, see NeighbourListsMixin.sequences


class NeighbourLists(Layerwise):
    """Pairs in place of rows; there are no sums and no states."""

    def step(self, server: Server, clients, ends: np.ndarray, labels: np.ndarray) -> None:
        """Make the step that one machine would make; see :meth:`Layerwise.step`."""
        given = {n: (told, labels[at]) for n, (at, told) in self.told(server, clients,
                                                                      ends).items()}
        server.optimizer.zero_grad()
        for gradient in clients.call(self.method.learn_pairs, tree.weights(server.net),
                                     len(labels), per_client=given,
                                     expect=tree.weights(server.net)):
            for name, p in server.net.named_parameters():
                add = gradient[name].to(p.device)
                p.grad = add if p.grad is None else p.grad + add
        server.optimizer.step()

    def inside(self, server: Server, clients, ends: np.ndarray, labels: np.ndarray
               ) -> dict[str, tuple[Any, np.ndarray]]:
        """Return by client what it gets of the pairs inside it, and their ``labels``."""
        owner = server.placement.owner[ends]
        mine = np.flatnonzero(owner[0] == owner[1])
        told, none = self.told(server, clients, ends[:, mine]), labels[:0]
        return {n: (told[n][1], labels[mine[told[n][0]]]) if n in told else (None, none)
                for n in clients.names}

    def commit(self, server: Server, clients) -> None:
        """Do nothing: nodes have no states."""

    def scorer(self, server: Server, clients) -> Callable[[np.ndarray], np.ndarray]:
        """Return a function of pairs int64 [2, Q] that returns their scores [Q]."""
        return partial(self.scores, server, clients)

    def scores(self, server: Server, clients, nodes: np.ndarray) -> np.ndarray:
        """Return the scores [Q] of pairs int64 [2, Q], 0 for clients that do not answer."""
        codes, at = np.unique(nodes[0] << 32 | nodes[1], return_inverse=True)
        told = self.told(server, clients, np.stack([codes >> 32, codes & 0xFFFFFFFF]))
        sent = clients.call(self.method.score_pairs, tree.weights(server.net),
                            per_client={n: mine for n, (_, mine) in told.items()},
                            expect=lambda name: Tensor(self.method.precision,
                                                       (len(told[name][0]),)))
        found = np.zeros(len(codes), self.method.precision)
        for name, scores in sent.items():
            found[told[name][0]] = scores.numpy()
        return found[at.reshape(-1)]

    # -- what clients get -------------------------------------------------------------------------
    def told(self, server: Server, clients, ends: np.ndarray) -> dict[str, tuple[np.ndarray, Told]]:
        """Return by client the positions int64 of its pairs among ``ends`` [2, P], and their lists.

        A pair of nodes that are both new is at the first client. Clients that do not know the
        newest snapshot are left out.
        """
        placement, apart = server.placement, self.method.exchange == "none"
        placement.send(self.method, server, clients)            # to clients that were away
        owner, lists = placement.owner, server.lists
        lists = lists.inside(owner) if apart else lists
        home, second = owner[ends]
        home = np.where(home >= 0, home, np.maximum(second, 0))
        here, found = ready(server), dict[str, tuple[np.ndarray, np.ndarray, np.ndarray, Told]]()
        for k, name in enumerate(clients.names):
            if name not in here:
                continue
            at = np.flatnonzero(home == k)
            nodes, pairs = np.unique(ends[:, at], return_inverse=True)
            sizes, others, ages = lists.of(nodes, self.method.sequence - 1)
            if apart:
                mine = owner[nodes] == k
                others, ages = (v[np.repeat(mine, sizes)] for v in (others, ages))
                sizes = np.where(mine, sizes, 0)
            used = unique(np.concatenate([nodes, others]))
            own = owner[used] == k
            known = (owner[used] >= 0) & (not apart)
            used = used[np.argsort(np.where(own, 0, 2 - known), kind="stable")]
            number = np.argsort(used)           # rows of the client's table by node
            row = partial(_row, used[number], number)
            told = {"pairs": pairs.reshape(2, -1).astype(np.int32), "ends": row(nodes),
                    "sizes": sizes.astype(np.int32), "who": row(others), "ages": ages,
                    "own": placement.place[used[:own.sum()]].astype(np.int32)}
            found[name] = at, used[own.sum():(own | known).sum()], used, told
        self.show(server, clients, [foreign for _, foreign, *_ in found.values()])
        for _, foreign, _, told in found.values():
            told["rows"] = self.shown(server, foreign)
        return {n: (at, told) for n, (at, _, _, told) in found.items()}

    def show(self, server: Server, clients, wanted: list[np.ndarray]) -> None:
        """Let clients show the features of the ``wanted`` nodes that they did not show yet.

        The server keeps them, ``server.first``, until a node's features may be others.
        """
        place, first = server.placement, server.first
        first = first or {"nodes": np.empty(0, np.int64), "x": np.empty(
            (0, self.method.width(self.world)), self.method.precision)}
        fresh = unique(np.concatenate([np.empty(0, np.int64), *wanted]))
        fresh = fresh[find(first["nodes"], fresh) < 0]
        by_client = [fresh[place.owner[fresh] == k] for k in range(len(clients.names))]
        asked = {n: place.place[nodes].astype(np.int32) for n, nodes in named(
            clients, by_client, ready(server)).items()}
        server.first = first
        if not len(fresh):
            return
        width = first["x"].shape[1]
        sent = clients.call(self.method.show, per_client=asked, expect=lambda name: Tensor(
            self.method.precision, (len(asked[name]), width)))
        nodes = np.concatenate([first["nodes"], *(
            v for n, v in zip(clients.names, by_client, strict=True) if n in sent)])
        x = np.concatenate([first["x"], *(reply.numpy() for reply in sent)])
        order = np.argsort(nodes)
        server.first = {"nodes": nodes[order], "x": x[order]}

    def shown(self, server: Server, nodes: np.ndarray) -> torch.Tensor:
        """Return the features [n, F] of nodes, 0 for those that were not shown."""
        at, x = find(server.first["nodes"], nodes), server.first["x"]
        found = np.zeros((len(nodes), x.shape[1]), x.dtype)
        found[at >= 0] = x[at[at >= 0]]
        return torch.from_numpy(found)


def _row(nodes: np.ndarray, number: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return ``number`` [n] of the ``wanted`` among ``nodes``, ascending, as int32."""
    return number[np.searchsorted(nodes, wanted)].astype(np.int32)


class NeighbourListsMixin:
    """Functions of a client that computes pairs."""

    @on_client
    def show(self, client: Client, places: np.ndarray) -> torch.Tensor:
        """Send features. Down: places int32 [m] of own nodes. Up: their features [m, F]."""
        x = self.inputs(client)                                     # type: ignore[attr-defined]
        return x[torch.from_numpy(places.astype(np.int64))]

    def sequences(self, client: Client, told: Told) -> tuple[Any, ...]:
        """Return x, who, ages and pairs of :meth:`DyGFormer.logits`.

        ``told`` has, of a table of nodes, places int32 [o] of the first ones, which are ``own``,
        and features ``rows`` [f, F] of the next, which are elsewhere; of others nothing is known.
        Into this table: ``ends`` int32 [u], the number of events of each, ``sizes`` int32 [u], and
        end by end, oldest first, the other ends ``who`` int32 [e], with ``ages`` float64 [e],
        durations from the event to the newest one of all. ``pairs`` int32 [2, p] are of ``ends``.
        """
        ends, sizes, who, pairs, own = (told[n].astype(np.int64) for n in (
            "ends", "sizes", "who", "pairs", "own"))
        x = self.inputs(client)[torch.from_numpy(own)]              # type: ignore[attr-defined]
        x = torch.cat([x, told["rows"].to(x)])
        count = 1 + max(ends.max(initial=-1), who.max(initial=-1))
        x = torch.cat([x, x.new_zeros(max(count - len(x), 0), x.shape[1])])
        return x, *padded(ends, sizes, who, told["ages"], client.net.patch), pairs

    @on_client
    def learn_pairs(self, client: Client, model: Any, total: int,
                    given: tuple[Told, np.ndarray]) -> dict[str, torch.Tensor]:
        """Compute gradients of the loss.

        Down: the model; the number of all clients' pairs; lists, see :meth:`sequences`, and labels
        float64 [p], 1 for an edge. Up: gradients of all parameters, of this client's part of the
        mean over all pairs.
        """
        tree.load(client.net, model)
        client.net.zero_grad()
        self.descend(client, self.sequences(client, given[0]), given[1], total)
        return self.gradients(client)                               # type: ignore[attr-defined]

    def descend(self, client: Client, sequences: tuple[Any, ...], labels: np.ndarray, total: int
                ) -> None:
        """Add the gradients of the mean loss of ``total`` pairs to those of the parameters."""
        *lists, pairs = sequences
        for at in client.net.blocks(lists[1], pairs):
            scores = client.net.logits(*lists, pairs[:, at])
            loss = binary_cross_entropy_with_logits(
                scores, torch.from_numpy(labels[at]).to(scores), reduction="sum")
            (loss / total).backward()

    def train_pairs(self, client: Client, epochs: int, told: Told | None, labels: np.ndarray
                    ) -> None:
        """Train the client's own model for ``epochs`` on pairs inside it."""
        sequences = self.sequences(client, told) if told is not None else ()
        for _ in range(epochs if len(labels) else 0):
            client.optimizer.zero_grad()
            self.descend(client, sequences, labels, len(labels))
            client.optimizer.step()

    @on_client
    def score_pairs(self, client: Client, model: Any, told: Told) -> torch.Tensor:
        """Compute scores. Down: the model; lists, see :meth:`sequences`. Up: logits [p]."""
        tree.load(client.net, model)
        *lists, pairs = self.sequences(client, told)
        found = lists[0].new_zeros(pairs.shape[1])
        with torch.no_grad():
            for at in client.net.blocks(lists[1], pairs):
                found[torch.from_numpy(at)] = client.net.logits(*lists, pairs[:, at])
        return found
