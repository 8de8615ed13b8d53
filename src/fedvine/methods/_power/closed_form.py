"""The closed form of ``power_plus``: a node's row, sums over nodes, and regression on the sums.

With A the matrix that averages over a node and its neighbours, x features of length 1 and R, R'
maps to fewer columns where there are many features, a node's row h is

    u = unit(A^k x R),   v = unit(x R'),   h = (u, relu(u P), v, relu(v P'))                  (a)

with P, P' drawn from the seed where columns are left. Of few dense features the length tells much:
they get one more, the same for all nodes, before x has length 1. Of the labelled nodes of a fold

    S = sum h h^T,   Q_c = sum over class c of h,   N_c their number                          (b)

are the same for every order of tasks and every cut into clients. With m_c = Q_c / N_c, of C classes
with N nodes, all classes count the same and have the same scatter around their means, as in linear
discriminant analysis:

    G = sum_c m_c m_c^T + C / N (S - sum_c N_c m_c m_c^T),
    W = (G + lambda mean(diag G) I)^-1 (m_1, ..., m_C)                                        (c)

A regression on the first columns alone, of u, is made of a corner of G.
:class:`ClosedForm` is the part of a method that adds these sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_matrix, hstack, issparse

from fedvine.core.clients import Clients
from fedvine.core.method import Client, Field, Server, World, on_client
from fedvine.core.rng import rng
from fedvine.data.graph import Graph
from fedvine.methods._power.propagation import smoothed, unit
from fedvine.methods._power.training import Continual
from fedvine.privacy.fixed_point import from_fixed, to_fixed
from fedvine.privacy.secure_sums import SecureSums

SCALE = 2.0 ** 12       # of S in fixed point; an entry is at most the number of a task's nodes


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
    def columns(self) -> int:
        """Return the number of all columns, D."""
        return self.near + self._columns(self.width // 4)

    @property
    def reduced(self) -> bool:
        """Return whether there are more features than columns, so that (a) needs R or R'."""
        return self.features >= self.width // 4

    def _columns(self, room: int) -> int:
        return min(room, self.features + 1 + self.expansion)

    def rows(self, graph: Graph, order: np.ndarray, scale: float) -> np.ndarray:
        """Compute the rows h of all nodes, float32 [N, D], Eq. (a).

        ``order`` int [F] has the features, the most frequent first; it may be empty where no
        features are reduced. ``scale`` is the value of the additional feature.
        """
        return np.concatenate([
            self._block(graph, self.near, self.hops, "near", order, scale),
            self._block(graph, self.columns - self.near, 0, "own", order, scale)], 1)

    def _block(self, graph: Graph, room: int, hops: int, name: str, order: np.ndarray,
               scale: float) -> np.ndarray:
        """Compute unit(A^hops x R) and its expansion, float32 [N, room]."""
        draw = rng(self.seed, "closed form", name)
        x: Any = graph.x
        if self.features >= room:
            x = unit(x) @ reducing(order, room, draw)
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


def folded(y: np.ndarray, folds: int, draw: np.random.Generator) -> np.ndarray:
    """Assign the labelled nodes of ``y`` [N] to folds, int [N]; -1 for the others.

    Folds of a class differ by one node at most.
    """
    fold = np.full(len(y), -1)
    for label in np.unique(y[y >= 0]):
        nodes = draw.permutation(np.flatnonzero(y == label))
        fold[nodes] = (np.arange(len(nodes)) + draw.integers(folds)) % folds
    return fold


def sums(h: np.ndarray, y: np.ndarray, fold: np.ndarray, folds: int, classes: int) -> np.ndarray:
    """Compute N [C], Q [C, D] and the upper half of S of each fold, in fixed point, Eq. (b).

    The result is uint64 of ``length(folds, classes, D)``.
    """
    parts = []
    for f in range(folds):
        mine = np.flatnonzero(fold == f)
        z, member = h[mine].astype(np.float64), np.eye(classes)[y[mine]]
        S = z.T @ z
        parts += [to_fixed(member.sum(0)), to_fixed(member.T @ z).ravel(),
                  to_fixed(SCALE * S[np.triu_indices(len(S))])]                              # (b)
    return np.concatenate(parts)


def length(folds: int, classes: int, columns: int) -> int:
    """Return the length of :func:`sums`."""
    return folds * (classes + classes * columns + columns * (columns + 1) // 2)


def parted(total: np.ndarray, folds: int, classes: int, columns: int) -> dict[str, np.ndarray]:
    """Return ``counts`` [K, C], ``cross`` [K, C, D], ``gram`` [K, D (D + 1) / 2], float64."""
    found = from_fixed(total).reshape(folds, -1)
    counts, cross, gram = np.split(found, [classes, classes * (1 + columns)], 1)
    return {"counts": counts, "cross": cross.reshape(folds, classes, columns),
            "gram": gram / SCALE}


def whole(upper: np.ndarray, size: int) -> np.ndarray:
    """Return the symmetric matrix float64 [size, size] of its upper half, row by row."""
    found = np.zeros((size, size))
    found[np.triu_indices(size)] = upper
    return found + np.triu(found, 1).T


def balanced(S: np.ndarray, means: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Compute G of Eq. (c), float64 [D, D], of S, the m_c [C, D] and the N_c [C]."""
    share = (counts > 0).sum() / max(counts.sum(), 1)                   # C / N
    return share * S + (means * (1 - share * counts)[:, None]).T @ means                     # (c)


def solved(G: np.ndarray, means: np.ndarray, ridges: tuple[float, ...]) -> np.ndarray:
    """Compute W for each lambda of ``ridges``, float32 [ridges, D, C], by one eigenproblem (c)."""
    value, V = eigh(G)
    value = np.maximum(value, 0)
    turned = V.T @ means.T                                              # [D, C]
    mean = max(float(value.mean()), 1e-12)
    return np.stack([V @ (turned / (value + ridge * mean)[:, None])
                     for ridge in ridges]).astype(np.float32)                                # (c)


class ClosedForm(SecureSums, Continual):
    """Base of a method with the sums of Eq. (b): ``server.closed`` holds them and W."""

    hops: int = Field(default=3, ge=0, description="steps of averaging over neighbours")
    width: int = Field(default=960, ge=0, description="most columns of the closed form; a client "
                       "sends 4 width^2 bytes a fold; 0: no closed form")
    expansion: int = Field(default=128, ge=0, description="random ReLU features, where columns are "
                           "left")
    folds: int = Field(default=2, ge=1, description="folds that judge what is chosen; 1: nothing "
                       "is chosen, the usual values are used")
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
        """Add the sums of a task."""
        form, K, C, held = self.form(clients.world), self.folds, len(server.counts), server.closed
        if not held["scale"] and server.counts.any():
            often, there = server.sums.abs().sum(0).numpy(), server.counts > 0
            if form.reduced:
                held["order"] = np.argsort(-often, kind="stable").astype(np.int32)
            typical = (server.sums[there] / server.counts[there][:, None]).square().sum(1)
            held["scale"] = float(typical.mean().sqrt())        # of the classes' mean rows
        total, _ = self.secure_sum(clients, self.products, held["order"], held["scale"],
                                   length=length(K, C, form.columns))
        for name, found in parted(total, K, C, form.columns).items():
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

    @on_client
    def products(self, client: Client, order: np.ndarray, scale: float,
                 sealed: dict[str, bytes] | None = None) -> np.ndarray:
        """Compute the sums (b) of the task's folds, masked, uint64."""
        h = self.form(client.world).rows(client.stage, order, scale)
        return self.mask(client, sums(h, self.shared(client), self.fold(client), self.folds,
                                      client.world.facts["classes"]), sealed)

    def shared(self, client: Client) -> np.ndarray:
        """Return the task's labels int [N]; all are -1 where fewer than ``least`` are known."""
        y = client.stage.y
        return y if (y >= 0).sum() >= self.least else np.full(len(y), -1)

    def fold(self, client: Client) -> np.ndarray:
        """Return the fold of each node of the task, int [N], -1 for nodes without a label."""
        return folded(self.shared(client), self.folds,
                      rng(client.world.seed, client.name, client.place[0], "folds"))
