"""The exchange layer by layer: K clients compute the forward and backward pass of one machine.

The server knows every edge. With the adjacency A = A_s + C (inside clients, across) it computes,
before each layer, C H from the rows H that clients send; a client gets the sums of its own border
nodes alone. (A_s + C) H is exact in every layer, whatever weights and non-linearities lie between;
the transpose C^T carries gradients back. What the field ``exchange`` can choose instead is in
:mod:`fedvine.methods._dgcolearn.raw_features`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import numpy as np
import torch
from scipy.sparse import csr_matrix

from fedvine.aggregate.noise import blurred
from fedvine.core import tree
from fedvine.core.expect import Tensor
from fedvine.core.method import Server, World
from fedvine.methods._dgcolearn.answers import scored
from fedvine.methods._dgcolearn.min_group import allowed, only


class Border:
    """The graph that messages go over, and C, its edges between clients; kept by the server.

    Args:
        clients: number of clients K.
        group: sums and gradients of fewer nodes are withheld (``min_group``).

    ``edges`` int64 [2, E], undirected, each once. ``nodes[k]`` int64 [b_k] are the border nodes of
    client k, ascending; rows that a client sends and gets are in this order. ``sizes`` [K] are the
    b_k, and ``count[k]`` [b_k] the number of neighbours in each sum.
    """

    def __init__(self, clients: int, group: int = 1) -> None:
        self.clients, self.group = clients, group
        self.allowed, self.served = np.zeros(0, bool), np.empty(0, np.int64)
        self.rebuild(np.empty((2, 0), np.int64), np.empty(0, np.int32))

    @classmethod
    def of(cls, edges: np.ndarray, owner: np.ndarray, clients: int, group: int = 1) -> Self:
        """Return the border of these edges and owners."""
        found = cls(clients, group)
        found.update(edges, owner)
        return found

    def update(self, edges: np.ndarray, owner: np.ndarray) -> None:
        """Take new ``edges``, and the client of each node, ``owner`` [N]."""
        if self.group > 1:
            self.allowed, self.served = allowed(edges, owner, self.group, self.served)
        self.rebuild(edges, owner)

    def rebuild(self, edges: np.ndarray, owner: np.ndarray) -> None:
        """Take ``edges`` and ``owner`` as they are, without a new decision on what is served."""
        self.edges, self.owner = edges, owner
        a, b = edges[:, owner[edges[0]] != owner[edges[1]]]
        ends, others = np.concatenate([a, b]), np.concatenate([b, a])
        nodes = np.unique(ends)
        nodes = nodes[np.argsort(owner[nodes], kind="stable")]
        self.sizes = np.bincount(owner[nodes], minlength=self.clients)
        self.nodes = np.split(nodes, np.cumsum(self.sizes)[:-1])
        place = np.zeros(len(owner), np.int64)
        place[nodes] = np.arange(len(nodes))
        cross = csr_matrix((np.ones(len(ends)), (place[ends], place[others])),
                           (len(nodes), len(nodes)))
        self.contributors = np.bincount(np.diff(cross.indptr))  # sums of 0, 1, 2, ... nodes
        self._cross, self._transposed = cross, csr_matrix(cross.T)
        if self.group > 1:
            cross = self._cross = only(cross, self.allowed[nodes])
            back = csr_matrix(cross.T)
            self._transposed = only(back, np.diff(back.indptr) >= self.group)
        self.count = np.split(np.diff(cross.indptr), np.cumsum(self.sizes)[:-1])

    def renumber(self, number: np.ndarray, moved: Callable[[np.ndarray, Any], np.ndarray]) -> None:
        """Give node i the number ``number[i]``; ``moved`` does so with values by node."""
        self.allowed = moved(self.allowed, False)
        self.served = number[self.served >> 32] << 32 | number[self.served & 0xFFFFFFFF]
        self.rebuild(number[self.edges], moved(self.owner, -1))

    def sums(self, rows: list[np.ndarray], away: np.ndarray | None = None) -> list[np.ndarray]:
        """Return C H, the sums of Eq. (5): [b_k, d] by client, of the rows [b_k, d] they sent.

        Those of the clients ``away`` (bool [K]) did not come and are 0. With ``min_group`` a sum
        that they have a part in is withheld: it would be of fewer nodes than was decided on.
        """
        return self._split(self._cross, rows, away)

    def transposed(self, gradients: list[np.ndarray], away: np.ndarray | None = None
                   ) -> list[np.ndarray]:
        """Return C^T G: gradients of what clients sent, given those of the sums [b_k, d]."""
        return self._split(self._transposed, gradients, away)

    def _split(self, matrix: csr_matrix, parts: list[np.ndarray], away: np.ndarray | None
               ) -> list[np.ndarray]:
        rows = np.concatenate(parts)
        found = (matrix @ rows).astype(rows.dtype)
        if self.group > 1 and away is not None and away.any():
            found[matrix @ np.repeat(away, self.sizes).astype(float) > 0] = 0
        return np.split(found, np.cumsum(self.sizes)[:-1])

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps."""
        return {name: getattr(self, name) for name in (
            "edges", "owner", "allowed", "served")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        self.allowed, self.served = state["allowed"], state["served"]
        self.rebuild(state["edges"], state["owner"])


class Layerwise:
    """Sums before every layer, and gradients of them.

    Args:
        method: gives constants, and the client functions that are called.
        world: of the run.
    """

    def __init__(self, method: Any, world: World) -> None:
        self.method, self.world = method, world

    def border_used(self, server: Server) -> Border:
        """Return the border whose sums enter layers, without edges for ``exchange = "none"``."""
        return server.border if self.method.exchange == "layerwise" else Border(
            len(self.world.clients))

    def before(self, server: Server, clients, model: Any) -> None:
        """Exchange what is needed before the first layer: nothing."""

    def last_sums(self, server: Server, clients, model: Any) -> tuple[Sequence[str], list[Any]]:
        """Carry out the layers up to the sums of the last one.

        Each client uses ``model`` (None: its own). Return the clients that took part, and by client
        the last layer's sums [b_k, m_(k-1)]: its messages added up over neighbours elsewhere, the
        sum of Eq. (5).
        """
        border, method = self.border_used(server), self.method
        present, sums = ready(server), [None] * len(clients.names)
        known = self.known_sums(server, present, model)
        for layer in range(1 if known else 0, method.layers):
            sums = known if known and layer == 1 else sums
            given = named(clients, sums, present)
            rows = sized(method.precision, clients, border.sizes, server.net.message_width(layer))
            sent = (method.say_in_turn(server, clients, layer, model, given, rows)
                    if method.candidates == "all" else
                    clients.call(method.say, layer, model, per_client=given, expect=rows))
            present, messages = sent.names, filled(clients, sent, border.sizes)
            sums = self.noisy(server, messages, border.sums(messages, absent(clients, sent)))
            if layer == 0 and self.fixed(server):
                server.first = {"names": list(present), "sums": sums}
            model = None                            # clients have it since the first layer
        return present, known if known and method.layers == 1 else sums

    def fixed(self, server: Server) -> bool:
        """Return whether messages of the first layer are the same whatever the weights are.

        They are features then, and their sums stay until an edge or a feature changes.
        """
        return (self.method.exchange == "layerwise" and not self.method.noise
                and self.method.candidates == "own" and not server.net.short(0))

    def known_sums(self, server: Server, present: Sequence[str], model: Any
                   ) -> list[torch.Tensor] | None:
        """Return the first layer's sums, if the clients ``present`` sent messages for them before.

        Only for a shared ``model``: it goes along with them.
        """
        found = getattr(server, "first", None)
        if model is None or found is None or found["names"] != list(present):
            return None
        return list(found["sums"])

    def forward(self, server: Server, clients, commit: bool = False
                ) -> tuple[torch.Tensor, tuple[str, ...]]:
        """Carry out the forward pass of the shared model; with ``commit`` rows become states.

        Return rows [nodes, hidden], client by client (0 for clients that do not answer), and the
        clients that took part to the end.
        """
        method, placement = self.method, server.placement
        placement.send(method, server, clients)         # to clients that were away
        model: Any = tree.weights(server.net)
        self.before(server, clients, model)
        once = method.layers == 1 and self.known_sums(server, ready(server), model)
        present, sums = self.last_sums(server, clients, model)
        call, given = (method.embed_at_once, (model, commit)) if once else (method.embed, (commit,))
        sent = clients.call(call, *given, per_client=named(clients, sums, present),
                            expect=sized(method.precision, clients, placement.sizes,
                                         method.hidden))
        rows = filled(clients, sent, placement.sizes)
        return torch.from_numpy(np.concatenate(rows)), sent.names

    def commit(self, server: Server, clients) -> None:
        """Let the rows of the shared model become states."""
        self.forward(server, clients, commit=True)

    def rows_of(self, server: Server, clients, nodes: np.ndarray
                ) -> tuple[torch.Tensor, np.ndarray]:
        """Return newest rows [., hidden], and which of them are those of ``nodes`` int64 [...].

        Rows of nodes never seen are 0.
        """
        return found_in(server, self.forward(server, clients)[0], nodes)

    def scores(self, server: Server, clients, nodes: np.ndarray) -> np.ndarray:
        """Return the scores of pairs int64 [2, Q], as [Q], or of nodes [1, Q], [Q, classes]."""
        return scored(server, *self.rows_of(server, clients, nodes))

    def scorer(self, server: Server, clients) -> Callable[[np.ndarray], np.ndarray]:
        """Return a function of pairs int64 [2, Q] that returns their scores [Q]; rows of now."""
        rows = self.forward(server, clients)[0]
        return lambda ends: scored(server, *found_in(server, rows, ends))

    def inside(self, server: Server, clients, ends: np.ndarray, labels: np.ndarray
               ) -> dict[str, tuple[Any, np.ndarray]]:
        """Return by client what it trains on; see :meth:`Placement.targets_by_client`."""
        return server.placement.targets_by_client(ends, labels)

    def step(self, server: Server, clients, ends: np.ndarray, labels: np.ndarray) -> None:
        """Make the step that one machine would make on the whole graph.

        That is the forward pass at the clients, the loss at the server, gradients back through the
        clients, and one step of Adam. ``ends`` int64 are pairs of nodes [2, P], or nodes [1, P];
        ``labels`` [P] is 1 for an edge and 0, or classes.
        """
        rows, present = self.forward(server, clients)
        rows, number = rows.to(self.method.where).requires_grad_(), server.placement.rows()
        server.optimizer.zero_grad()
        server.net.descend(rows, number[ends], labels)
        assert rows.grad is not None
        gradients = rows.grad.cpu().split(server.placement.sizes.tolist())
        for gradient in self.backward(server, clients, gradients, present):
            for name, p in server.net.named_parameters():
                add = gradient[name].to(p.device)
                p.grad = add if p.grad is None else p.grad + add
        server.optimizer.step()

    def backward(self, server: Server, clients, gradients: Sequence[Any], present: Sequence[str]
                  ) -> Any:
        """Carry ``gradients`` [n_k, hidden] of all rows back through the layers.

        Return the replies of the last call: each client's gradients of the parameters. Fixed
        messages of the first layer have no gradients, so nothing of it goes to other clients.
        """
        border, method, fixed = self.border_used(server), self.method, self.fixed(server)
        for layer in reversed(range(1 if fixed else 0, method.layers)):
            sent = clients.call(method.back, layer, per_client=named(clients, gradients, present),
                                expect=sized(method.precision, clients, border.sizes,
                                             server.net.message_width(layer)))
            present, of_sums = sent.names, filled(clients, sent, border.sizes)
            gradients = self.noisy(server, of_sums,
                                   border.transposed(of_sums, absent(clients, sent)))
        last = method.back_first if fixed else method.first
        return clients.call(last, per_client=named(clients, gradients, present),
                            expect=tree.weights(server.net))

    def refresh(self, server: Server, clients, model: Any) -> Sequence[str]:
        """Exchange once for the local epochs that follow; return the clients that took part."""
        present, sums = self.last_sums(server, clients, model)
        return clients.call(self.method.hold, per_client=named(clients, sums, present),
                            expect=None).names

    def noisy(self, server: Server, sent: list[np.ndarray], sums: list[np.ndarray]
              ) -> list[torch.Tensor]:
        """Return the sums as tensors with Gaussian noise, the same for the same sums.

        Its scale is ``noise`` times the root mean square of the numbers that clients sent. Clients
        know the run's seed, so it follows from a secret of the server.
        """
        whole = np.concatenate(sent) if self.method.noise else np.empty(0)
        scale = self.method.noise * float(np.sqrt((whole ** 2).mean())) if whole.size else 0.0
        if not scale:
            return [torch.from_numpy(s) for s in sums]
        if "secret" not in vars(server):
            server.secret = secrets.token_bytes(32)
        return [torch.from_numpy(blurred(s, scale, server.secret)) for s in sums]

    def inputs(self, part: Any, x: torch.Tensor, degree: torch.Tensor) -> torch.Tensor:
        """Return a client's inputs [n, F] of the first layer: its features as they are."""
        return x

    def corrected(self, part: Any, layer: int, h: torch.Tensor) -> torch.Tensor:
        """Return H of Eq. (2) [n, hidden] as it is: the sums of neighbours elsewhere are in it."""
        return h


def found_in(server: Server, rows: torch.Tensor, nodes: np.ndarray
             ) -> tuple[torch.Tensor, np.ndarray]:
    """Return ``rows`` of all clients' nodes with a row of 0 behind, and those of ``nodes`` in it.

    Nodes never seen have the row of 0.
    """
    return torch.cat([rows, rows.new_zeros(1, rows.shape[1])]), server.placement.rows()[nodes]


def ready(server: Server) -> tuple[str, ...]:
    """Return the names of the clients that know the newest snapshot, and events where it counts."""
    return tuple(server.recent.heard if server.net.timed else server.joined)


def named(clients, values: Sequence[Any], present: Sequence[str]) -> dict[str, Any]:
    """Return the values of the clients ``present``, by name."""
    return {n: v for n, v in zip(clients.names, values, strict=True) if n in present}


def sized(precision: str, clients, counts: Iterable[int], width: int) -> Callable[[str], Tensor]:
    """Return, for ``expect=``, the reply of a client by its name: rows [its count, width]."""
    count = dict(zip(clients.names, map(int, counts), strict=True))
    return lambda name: Tensor(precision, (count[name], width))


def absent(clients, sent: Any) -> np.ndarray:
    """Return which clients are not among those that ``sent`` something, bool [K]."""
    return ~np.isin(clients.names, list(sent.names))


def filled(clients, sent: Any, sizes: np.ndarray) -> list[np.ndarray]:
    """Return the rows of every client, in order of names; 0 for those that did not answer."""
    found = {n: reply.numpy() for n, reply in sent.items()}
    one = next(iter(found.values()))
    return [found.get(n, np.zeros((size, one.shape[1]), one.dtype))
            for n, size in zip(clients.names, sizes, strict=True)]
