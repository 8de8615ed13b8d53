"""The closed form of ``power_plus``: a node's row, and a method that adds sums over nodes.

With A the matrix that averages over a node and its neighbours, x features of length 1 and R, R'
maps to fewer columns where there are many features, a node's row h is

    u = unit(A^k x R),   v = unit(x R'),   h = (u, relu(u P), v, relu(v P'))                  (a)

with P, P' drawn from the seed where columns are left. Where there is room, and k is above 1, the
same of unit(A x R'') follows: where neighbours differ, far ones tell little. Of few dense features
the length tells much: they get one more, the same for all nodes, before x has length 1. The
regression W on these rows is that of Eqs. (b) and (c),
:mod:`fedvine.methods._power_plus.products`.
:class:`ClosedForm` is the part of a method that adds the sums of all clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, hstack, issparse

from fedvine.aggregate.class_means import Waiting
from fedvine.aggregate.noise import from_fixed, to_fixed
from fedvine.core.clients import Clients
from fedvine.core.method import Client, Field, Server, World, on_client
from fedvine.core.rng import rng
from fedvine.core.state import unsent
from fedvine.data.graph import Graph
from fedvine.methods._power_plus import own_sums
from fedvine.methods._power_plus.products import (
    balanced,
    folded,
    length,
    parted,
    shaped,
    solved,
    sums,
    whole,
)
from fedvine.methods._power_plus.propagation import smoothed, unit
from fedvine.methods.fedavg import FedAvg


@dataclass(frozen=True)
class Form:
    """The sizes of a row: ``features`` F in, at most ``width`` columns D out.

    ``hops`` is k, ``expansion`` the most columns of relu(u P), and of relu(v P').
    """

    features: int
    width: int
    expansion: int
    hops: int
    seed: int

    @property
    def near(self) -> int:
        """Return the number of columns of u and relu(u P): three quarters of ``width`` at most."""
        return self._columns(self.width - self.width // 4)

    @property
    def own(self) -> int:
        """Return the number of columns of v and relu(v P'): a quarter of ``width`` at most."""
        return self._columns(self.width // 4)

    @property
    def columns(self) -> int:
        """Return the number of all columns, D; those after u and v are of one average."""
        room = self.width - self.near - self.own
        fits = 2 * room >= self.features if self.reduced else room > self.features
        return self.near + self.own + (self._columns(room) if fits and self.hops > 1 else 0)

    @property
    def reduced(self) -> bool:
        """Return whether there are more features than columns, so that (a) needs R or R'."""
        return self.features >= self.width // 4

    def _columns(self, room: int) -> int:
        return min(room, self.features + 1 + self.expansion)

    def rows(self, graph: Graph, order: np.ndarray, scale: float) -> np.ndarray:
        """Compute the rows h of all nodes, float32 [N, D], Eq. (a).

        ``order`` int [F] has the features, the most frequent first; it may be empty where no
        features are reduced. ``scale`` is the value of the additional feature; while it is 0 no
        class is known, and all rows are 0.
        """
        if not scale:
            return np.zeros((len(graph), self.columns), np.float32)
        first = self.columns - self.near - self.own
        return np.concatenate([
            self._block(graph, self.near, self.hops, "near", order, scale),
            self._block(graph, self.own, 0, "own", order, scale),
            *([self._block(graph, first, 1, "first", order, scale)] if first else [])], 1)

    def _block(self, graph: Graph, room: int, hops: int, name: str, order: np.ndarray,
               scale: float) -> np.ndarray:
        """Compute unit(A^hops x R) and its expansion, float32 [N, room]."""
        draw = rng(self.seed, "closed form", name)
        x: Any = graph.x
        if self.features >= room:       # averages would fill sparse columns, so they are dense
            x = unit(x) @ reducing(order, room, draw)
            x = x.toarray() if issparse(x) else x
        elif not issparse(x):
            x = unit(np.concatenate([x, np.full((len(graph), 1), scale, np.float32)], 1))
        else:
            x = unit(hstack([x, csr_matrix((len(graph), 1), dtype=np.float32)], format="csr"))
        u: Any = unit(smoothed(graph, hops, x))
        u = np.asarray(u.todense() if issparse(u) else u, np.float32)
        more = room - u.shape[1]
        P = draw.normal(size=(u.shape[1], more)) * (2 / max(more, 1)) ** 0.5
        return np.concatenate([u, np.maximum(u @ P.astype(np.float32), 0)], 1)              # (a)


def reducing(order: np.ndarray, room: int, draw: np.random.Generator) -> csr_matrix:
    """Draw a sparse R, float32 [F, room].

    The features that come first in ``order`` get half the columns, one each; each of the others is
    added to one of the other columns, with a random sign.
    """
    F, half = len(order), room // 2
    column, sign = np.empty(F, np.int64), np.ones(F, np.float32)
    column[order[:half]] = np.arange(half)
    column[order[half:]] = half + draw.permutation(F - half) % (room - half)
    sign[order[half:]] = draw.choice([-1, 1], F - half)
    return csr_matrix((sign, (np.arange(F), column)), (F, room))


class ClosedForm(FedAvg):
    """Base of a method with the sums of Eq. (b): ``server.closed`` holds them and W."""

    hops: int = Field(default=3, ge=0, description="steps of averaging over neighbours")
    width: int = Field(default=960, ge=0, description="most columns of the closed form; a client "
                       "sends 4 width^2 bytes a fold; 0: no closed form")
    expansion: int = Field(default=128, ge=0, description="random ReLU features, where columns are "
                           "left")
    folds: int = Field(default=2, ge=1, description="folds that judge what is chosen; 1: nothing "
                       "is chosen, the usual values are used")
    personal: bool = Field(default=True, description="each client corrects the regression by its "
                           "own nodes, where that answers more of them; sends nothing, needs folds")
    least: int = Field(default=1, ge=1, description="labelled nodes that a task of a client needs, "
                       "else its sums are withheld")

    def form(self, world: World) -> Form:
        """Return the sizes of the rows."""
        return Form(world.facts["features"], self.width, self.expansion, self.hops, world.seed)

    def nothing(self, world: World) -> dict[str, Any]:
        """Return the server's memory of the closed form before any node."""
        C, form, K = world.facts["classes"], self.form(world), self.folds
        zero = np.zeros(length(K, C, form.columns), np.uint64)
        return {**parted(zero, K, C, form.columns), "order": np.zeros(0, np.int32), "scale": 0.0,
                "weight": np.zeros((form.columns, C), np.float32),
                "rows": np.zeros((form.near, C), np.float32)}

    def add_products(self, server: Server, clients: Clients) -> None:
        """Add the sums of a task; none while no class is known: all are withheld.

        Before the first ones come the order of features and their scale. These are of all nodes,
        labelled or not, so no order of labels changes them.
        """
        form, held = self.form(clients.world), server.closed
        if not held["scale"] and server.counts.any():
            total, _ = clients.sum(self.sizes, length=form.features + 2)
            *often, lengths, nodes = np.abs(from_fixed(total)).tolist()     # also of false sums
            if form.reduced:
                held["order"] = np.argsort(-np.array(often), kind="stable").astype(np.int32)
            held["scale"] = 0.5 * lengths / nodes if nodes else 0.0
        if not held["scale"]:
            return
        total, _ = clients.sum(self.products, held["order"], held["scale"], once=self.once,
                               length=self.length(clients.world))
        self.add_to_products(server, total)

    @on_client(combined="sum")
    def sizes(self, client: Client) -> np.ndarray:
        """Return sums over the client's nodes of sizes of features [F] and of their norms.

        Their number comes last, uint64 [F + 2]. Few features are averaged over neighbours first,
        ``hops`` times.
        """
        graph, count = client.stage, len(client.stage)
        if not self.aggregate.enough(count) or count < self.least:
            return np.zeros(graph.x.shape[1] + 2, np.uint64)
        x: Any = graph.x if self.form(client.world).reduced else smoothed(graph, self.hops)
        often = np.asarray(abs(x).sum(0), float).ravel()
        lengths = np.sqrt(np.asarray((x.multiply(x) if issparse(x) else x * x).sum(1), float)).sum()
        return to_fixed(np.array([*often, lengths, count]))

    def length(self, world: World) -> int:
        """Return the length of a vector of :meth:`products`."""
        return length(self.folds, world.facts["classes"], self.form(world).columns)

    def add_to_products(self, server: Server, total: np.ndarray) -> None:
        """Add sums of :meth:`products` to those of the server."""
        held, (K, C, D) = server.closed, server.closed["cross"].shape
        for name, found in parted(total, K, C, D).items():
            held[name] = held[name] + found

    def fitted(self, held: dict[str, Any], form: Form, folds: list[int], own: bool,
               ridges: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Compute W [ridges, D, C], Eq. (c), and the mean rows [columns of u, C] of some folds.

        Mean rows have length 1. Without ``own`` W has the columns of u alone.
        """
        D = form.columns if own else form.near
        counts = held["counts"][folds].sum(0)
        means = held["cross"][folds].sum(0) / np.maximum(counts, 1)[:, None]                # m_c
        G = balanced(whole(held["gram"][folds].sum(0), form.columns), means, counts)
        rows = unit(means[:, :form.near]).T.astype(np.float32)
        return solved(G[:D, :D], means[:, :D], ridges), rows

    @on_client(combined="sum")
    def products(self, client: Client, order: np.ndarray, scale: float
                 ) -> dict[str, np.ndarray] | None:
        """Compute the sums (b) of the task's folds, uint64; its own part is kept.

        With those of the task come sums that did not reach the server.
        """
        form, C = self.form(client.world), client.world.facts["classes"]
        h, y, fold = form.rows(client.stage, order, scale), self.shared(client), self.fold(client)
        waiting = client.waiting
        if self.aggregate.grain > 1:        # nodes that come later, and those that were late
            waiting.h[waiting.t == waiting.at] = h[self.few(client)]
            due = waiting.due() & waiting.h.any(1)
            h, y = np.concatenate([h, waiting.h[due]]), np.concatenate([y, waiting.y[due]])
            fold = np.concatenate([fold, folded(waiting.y[due], self.folds, rng(
                client.world.seed, client.name, client.place[0], "waiting"))])
        found = sums(h, y, fold, self.folds, C)
        if self.corrects:
            client.own = own_sums.added(self.own(client),
                                        parted(found, self.folds, C, form.columns))
        return unsent(client, shaped(found, self.folds, C, form.columns))

    @property
    def once(self) -> bool:
        """Return whether sums that did not come are sent later: not with noise."""
        return not self.noisy()

    @property
    def corrects(self) -> bool:
        """Return whether clients correct the regression; folds have to judge that."""
        return bool(self.personal and self.width and self.folds > 1)

    def setup(self, client: Client) -> None:
        super().setup(client)
        client.own = self.own(client)
        facts = client.world.facts
        client.waiting = Waiting(facts["classes"], facts["features"],
                                 self.form(client.world).columns if self.width else 0)

    def own(self, client: Client) -> own_sums.Sums:
        """Return the client's sums so far; empty where none are kept."""
        if not self.corrects or vars(client).get("own"):
            return vars(client).get("own", {})
        form = self.form(client.world)
        return own_sums.nothing(self.folds, client.world.facts["classes"], form.columns)

    def shared(self, client: Client) -> np.ndarray:
        """Return the task's labels int [N], -1 where they are not in sums.

        These are all where fewer than ``least`` are known, and those of classes that the client has
        fewer than ``aggregate.grain`` nodes of.
        """
        y = client.stage.y
        if (y >= 0).sum() < self.least:
            return np.full(len(y), -1)
        return np.where((y >= 0) & client.waiting.sent[y], y, -1) if self.aggregate.grain > 1 else y

    def few(self, client: Client) -> np.ndarray:
        """Return the labelled nodes int [n] of the task that wait until their class has enough."""
        out = self.aggregate.given(client) == "out"     # what is left out does not come later
        return np.flatnonzero((client.stage.y >= 0) & (self.shared(client) < 0) & (not out))

    def fold(self, client: Client) -> np.ndarray:
        """Return the fold of each node of the task, int [N], -1 for nodes without a label."""
        return folded(self.shared(client), self.folds,
                      rng(client.world.seed, client.name, client.place[0], "folds"))
