"""NeighGen (Zhang et al., NeurIPS 2021): a generator of neighbours that are not seen.

One GraphSAGE layer encodes a node, dGen is a linear regression of the number of missing neighbours,
fGen makes rows of features from the code and Gaussian noise. A client hides some of its nodes, and
its NeighGen learns how many neighbours of a node are hidden (L^d) and to make rows like theirs
(L^f). The other clients' part of L^f is the distance of the rows that its fGen makes to the nearest
of their nodes.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from fedvine.aggregate.noise import from_fixed, noised
from fedvine.core import tree
from fedvine.core.device import OnDevice
from fedvine.core.expect import Maybe, Named, Tensor
from fedvine.core.method import Client, Field, on_client
from fedvine.core.rng import rng, torch_rng
from fedvine.nn.gat import product
from fedvine.nn.sparse import dots

FGEN = ("first", "first_bias", "last", "last_bias")


class NeighGen(nn.Module):
    """Encoder, dGen and fGen for rows of ``features`` columns.

    Codes have ``latent`` columns, and a node gets up to ``most`` neighbours.
    """

    def __init__(self, features: int, latent: int, most: int, *, seed: int) -> None:
        super().__init__()
        self.most = most
        shapes = {"near": (features, latent), "self": (features, latent),
                  "first": (latent, latent), "last": (latent, most * features)}
        for name, shape in shapes.items():
            half, draw = math.sqrt(6 / sum(shape)), torch_rng(seed, "neighgen", name)
            weight = torch.empty(shape).uniform_(-half, half, generator=draw)
            self.register_parameter(name, nn.Parameter(weight))
        # dGen starts at 0, so that who never learned generates nothing
        for name, width in (("near_bias", latent), ("number", latent), ("number_bias", 1),
                            ("first_bias", latent), ("last_bias", most * features)):
            self.register_parameter(name, nn.Parameter(torch.zeros(width)))

    def encode(self, x: torch.Tensor, ends: np.ndarray) -> torch.Tensor:
        """Compute codes [n, latent] of rows [n, features] in the graph of edges int64 [2, E].

        The rows are dense or CSR.
        """
        (a, b), get = torch.from_numpy(ends).to(x.device), self.get_parameter
        said = product(x, get("near"))
        total = torch.zeros_like(said).index_add(0, a, said[b]).index_add(0, b, said[a])
        near = total / degrees(ends, said).clamp(min=1)[:, None]
        return (near + product(x, get("self")) + get("near_bias")).relu()

    def missing(self, z: torch.Tensor) -> torch.Tensor:
        """Compute dGen: the number of missing neighbours [n], any real number."""
        return z @ self.get_parameter("number") + self.get_parameter("number_bias")

    def count(self, z: torch.Tensor) -> torch.Tensor:
        """Compute dGen, rounded and cut to 0..``most``, int64 [n]."""
        return self.missing(z).round().clamp(0, self.most).long()

    def fgen(self) -> dict[str, torch.Tensor]:
        """Return the parameters of fGen."""
        return {name: self.get_parameter(name) for name in FGEN}


def generated(fgen: dict[str, torch.Tensor], z: torch.Tensor, most: int) -> torch.Tensor:
    """Compute fGen: rows [n, most, features] for noisy codes [n, latent]."""
    out = (z @ fgen["first"] + fgen["first_bias"]).relu() @ fgen["last"] + fgen["last_bias"]
    return out.reshape(len(z), most, out.shape[1] // most)


class Generated:
    """Rows of generated neighbours [G, F], as many for each node as dGen says.

    They are computed only as a product with weights (``@``), which costs less than the rows where
    these are wide: (h A_j + b_j) W = h (A_j W) + b_j W for the j-th neighbour of a node. ``node``
    int64 [G] are the nodes that they belong to, ``z`` codes [n, latent]. No gradient reaches the
    generator.
    """

    def __init__(self, gen: NeighGen, z: torch.Tensor, draw: torch.Generator) -> None:
        with torch.no_grad():
            fgen = gen.fgen()
            self.node, self.place = (
                torch.arange(gen.most, device=z.device) < gen.count(z)[:, None]).nonzero().T
            hidden = (noisy(z, draw) @ fgen["first"] + fgen["first_bias"]).relu()
            self.h = hidden[self.node]
            self.last = fgen["last"].detach().reshape(len(fgen["last"]), gen.most, -1)
            self.last_bias = fgen["last_bias"].detach().reshape(gen.most, -1)

    def __len__(self) -> int:
        return len(self.node)

    def __matmul__(self, weight: torch.Tensor) -> torch.Tensor:
        by_place = self.last.transpose(0, 1) @ weight               # A_j W, [most, latent, width]
        rows = self.h @ by_place + (self.last_bias @ weight)[:, None]
        return rows[self.place, torch.arange(len(self), device=rows.device)]


def noisy(z: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    """Return codes with Gaussian noise of variance 1."""
    return z + torch.randn(z.shape, generator=draw, dtype=z.dtype).to(z.device)


def degrees(ends: np.ndarray, x: torch.Tensor) -> torch.Tensor:
    """Count the neighbours of each node [n], in the dtype of ``x``."""
    return torch.from_numpy(np.bincount(ends.ravel(), minlength=len(x))).to(x)


def rows_of(x: torch.Tensor, ends: np.ndarray) -> torch.Tensor:
    """Return features [n, F] whose last column is log(1 + degree) in this graph."""
    return torch.cat([x[:, :-1], degrees(ends, x).log1p()[:, None]], 1)


class Impaired(NamedTuple):
    """A graph in which some nodes are hidden.

    ``hidden`` bool [n], the edges ``left`` int64 [2, E], and ``pairs`` int64 [2, P] of a node that
    is seen and a neighbour that is hidden.
    """

    hidden: np.ndarray
    left: np.ndarray
    pairs: np.ndarray


def impair(ends: np.ndarray, count: int, share: float, draw: np.random.Generator) -> Impaired:
    """Hide a ``share`` of ``count`` nodes with their edges."""
    hidden = np.zeros(count, bool)
    hidden[draw.permutation(count)[:round(share * count)]] = True
    both = np.concatenate([ends, ends[::-1]], 1)
    a, b = hidden[both]
    return Impaired(hidden, ends[:, ~hidden[ends].any(0)], both[:, ~a & b])


def nearest(made: torch.Tensor, x: torch.Tensor, node: torch.Tensor | None = None,
            other: torch.Tensor | None = None) -> torch.Tensor:
    """Compute L^f without its mean: distances [k, most], each the mean square over the columns.

    They are from each generated row [k, most, F] to the nearest row of ``x``; with pairs [P] of a
    ``node`` (place in ``made``, each in a pair) and an ``other`` (row of ``x``), to the nearest of
    the node's own others. Only rows to the nearest are written, as these are wide.
    """
    rows, most = made.detach().reshape(-1, made.shape[2]), made.shape[1]
    if node is None or other is None:
        found = torch.cdist(rows, x).argmin(1).reshape(made.shape[:2])
    else:
        pair = torch.arange(len(node), device=x.device)[:, None].expand(-1, most)
        at = node[:, None].expand(-1, most)
        products = dots(rows, x, (at * most + torch.arange(most, device=x.device)).reshape(-1),
                        other.repeat_interleave(most)).reshape(-1, most)
        apart = x.square().sum(1)[other][:, None] - 2 * products    # less the square of the row
        least = made.new_full(made.shape[:2], math.inf).scatter_reduce(0, at, apart, "amin")
        first = torch.where(apart == least[node], pair, len(node))
        found = other[torch.full_like(least, len(node), dtype=torch.int64).scatter_reduce(
            0, at, first, "amin")]
    return ((made - x[found]) ** 2).mean(2)


Weights = dict[str, torch.Tensor]


class MissingNeighbours(OnDevice):
    """Base of methods with a ``neighgen`` and a ``neighgen_optimizer`` at each client."""

    hide: float = Field(default=0.5, ge=0, lt=1, description="share of a client's nodes that are "
                        "hidden while NeighGen learns, h")
    neighbours: int = Field(default=5, ge=1, description="a node gets at most so many generated "
                            "neighbours")
    alone: int = Field(default=20, ge=0, description="steps of NeighGen a stage by its own client")
    jointly: int = Field(default=5, ge=0, description="steps of NeighGen a stage after these, "
                          "with the gradients of the others")
    alpha: float = Field(default=1.0, ge=0, description="weight of the others' part of L^f")
    sample: int = Field(default=256, ge=1, description="a client shows codes of so many nodes at "
                        "most, and judges by so many, in each of these steps")

    # -- what a method adds ----------------------------------------------------------------------
    def shapes(self, clients) -> tuple[str, int, int]:
        """Return dtype, width of codes and width of rows."""
        raise NotImplementedError

    def visible(self, client: Client) -> tuple[int, np.ndarray]:
        """Return the number of nodes and the edges int64 [2, E] inside the client."""
        raise NotImplementedError

    def given(self, client: Client, ends: np.ndarray) -> torch.Tensor:
        """Return the encoder's input [n, F], dense or CSR, in the graph of these edges."""
        raise NotImplementedError

    def rows(self, client: Client, nodes: np.ndarray) -> torch.Tensor:
        """Return the rows [k, F] of these nodes int64 [k], dense, on the device."""
        raise NotImplementedError

    def pairs_of(self, pairs: np.ndarray, draw: torch.Generator) -> np.ndarray:
        """Return the pairs int64 [2, P] of a node and a hidden neighbour that a step uses."""
        return pairs

    # -- what they share -------------------------------------------------------------------------
    def learn_generators(self, clients) -> None:
        """Let all generators learn, first alone and then together."""
        clients.call(self.learn_alone, expect=None)
        for _ in range(self.jointly):
            self.learn_jointly(clients)

    def learn_jointly(self, clients) -> None:
        """Make one step at all clients, each with the gradients of all others."""
        kind, z, F = self.shapes(clients)
        fgen = {"first": Tensor(kind, (z, z)), "first_bias": Tensor(kind, (z,)),
                "last": Tensor(kind, (z, self.neighbours * F)),
                "last_bias": Tensor(kind, (self.neighbours * F,))}
        sent = clients.call(self.show, expect=Maybe({
            "z": Tensor(kind, ("codes", z)), "many": Tensor(kind, ("codes",), low=1),
            "fgen": fgen}))
        shown = {name: reply for name, reply in sent.items() if reply is not None}
        others = {name: {n: s for n, s in shown.items() if n != name} for name in clients.names}
        sums: dict[str, Weights] = {name: {} for name in shown}
        for judged in clients.call(self.judge, per_client=others, expect=lambda name: Named(
                fgen, only=frozenset(others[name]))):
            for name, slope in judged.items():
                sums[name] = tree.add(sums[name], slope) if sums[name] else slope
        if sums:
            clients.call(self.learn, per_client=sums, expect=None)

    @on_client
    def learn_alone(self, client: Client) -> None:
        """Make ``alone`` steps by the loss of this client's own nodes."""
        for i in range(self.alone):
            self.improve(client, client.torch_rng(str(i)), {})

    @on_client
    def show(self, client: Client) -> dict[str, Any] | None:
        """Return noisy codes ``z`` [m, latent] of nodes with hidden neighbours.

        Also ``many`` [m], the number of these, and ``fgen``; None where no neighbour is hidden.
        """
        with torch.no_grad():
            z, many, _ = self.codes(client)
        nodes = client.rng("show").permutation(many.nonzero()[:, 0].cpu().numpy())[:self.sample]
        if not len(nodes):
            return None
        hidden = from_fixed(noised(client, z[nodes].double().cpu().numpy(), 1.0, None))
        return {"z": torch.from_numpy(hidden).to(z), "many": many[nodes],
                "fgen": tree.clone(client.neighgen.fgen())}

    @on_client
    def judge(self, client: Client, others: dict[str, dict]) -> dict[str, Weights]:
        """Return gradients of other clients' fGens.

        They are those of the mean distance of the rows that these generate, summed for each node,
        to the nearest of this client's nodes.
        """
        count, found = self.visible(client)[0], {}
        mine = client.rng("judge").permutation(count)[:self.sample]
        x = self.rows(client, mine)
        for name, shown in others.items() if len(mine) else ():
            fgen = {n: w.detach().to(self.where).requires_grad_()
                    for n, w in shown["fgen"].items()}
            rows = generated(fgen, shown["z"].to(self.where), self.neighbours)
            used = torch.arange(self.neighbours) < shown["many"][:, None]
            loss = nearest(rows, x)[used.to(self.where)].sum() / len(rows)
            slopes = torch.autograd.grad(loss, [fgen[n] for n in FGEN])
            found[name] = dict(zip(FGEN, slopes, strict=True))
        return found

    @on_client
    def learn(self, client: Client, slope: Weights) -> None:
        """Make one step with the gradients ``slope`` of fGen that the others returned."""
        self.improve(client, client.torch_rng(), slope)

    def codes(self, client: Client) -> tuple[torch.Tensor, torch.Tensor, tuple]:
        """Return codes [n, latent] in the impaired graph, which is the same through a stage.

        Also the number of hidden neighbours of each node [n] (0 of hidden ones), and that graph.
        """
        count, ends = self.visible(client)
        impaired = impair(ends, count, self.hide, rng(
            client.world.seed, client.name, "hidden", client.place[0]))
        z = client.neighgen.encode(self.given(client, impaired.left), impaired.left)
        return z, degrees(impaired.pairs[0], z), impaired

    def improve(self, client: Client, draw: torch.Generator, slope: Weights) -> None:
        """Make one step of Adam on L^d + L^f; ``slope`` is added to the gradient of fGen."""
        z, many, (hidden, _, pairs) = self.codes(client)
        if not pairs.shape[1]:
            return
        gen, seen = client.neighgen, torch.from_numpy(~hidden).to(self.where)
        number = torch.nn.functional.smooth_l1_loss(gen.missing(z)[seen], many[seen])       # L^d
        node, other = torch.from_numpy(self.pairs_of(pairs, draw)).to(self.where)
        nodes, at = node.unique(return_inverse=True)
        made = generated(gen.fgen(), noisy(z[nodes], draw), self.neighbours)
        used = torch.arange(self.neighbours, device=self.where) < many[nodes][:, None]
        others, row = other.unique(return_inverse=True)
        apart = nearest(made, self.rows(client, others.cpu().numpy()), at, row)
        # L^f is a mean over all nodes seen; those without hidden neighbours add nothing to it
        count, total = int((many > 0).sum()), int(seen.sum())
        client.neighgen_optimizer.zero_grad()
        (number + apart[used].sum() / (len(nodes) * total / count)).backward()          # L^f
        for name, theirs in slope.items():
            gen.get_parameter(name).grad.add_(theirs.to(self.where),
                                              alpha=self.alpha * count / total)
        client.neighgen_optimizer.step()
        client.cache.pop("mended", None)
