"""FedSageDyn: FedSage+ (Zhang et al., NeurIPS 2021) on a dynamic graph, a rival of DG-CoLearn.

Edges between clients are seen by nobody, as with :mod:`fedvine.methods.fedavg_dyn`; but each
client makes up neighbours that its nodes may have elsewhere, and learns on the mended graph.
FedSage+, and where it is here:

- *impaired subgraph*: a client hides a share of its nodes with their edges
  (:func:`fedvine.methods._fedsage_dyn.neighgen.impair`), others in each stage
- *NeighGen*: encoder, dGen and fGen (:class:`fedvine.methods._fedsage_dyn.neighgen.NeighGen`), one
  a client; they are never averaged
- *L^n*, the local loss: smooth L1 of the number of hidden neighbours, L^d, and the distance of
  generated rows to the nearest of the node's hidden neighbours, L^f (``step``)
- *the other clients' part of L^f*: a client shows noisy codes and its fGen (``show``), the others
  return gradients of the distance to the nearest of their own nodes (``judge``), which it adds
  with the weight alpha to its own ones (``learn``)
- *the mended subgraph*: generated nodes have one edge each, to the node they were made for
  (``mended``). They take part in every layer as nodes of degree 1 without a past (``layer``), and
  count in the degrees
- *FedSage* on mended subgraphs: everything else

DG-CoLearn's Appendix E.5 does not describe FedSageDyn; Table 2 has only its scores. The local model
is EvolveGCN here as E.5 has it for FedAvgDyn and FedProtoDyn, in version o: h would choose among
generated rows too. What both papers leave open: NeighGen learns in the first round of each stage,
on the snapshot inside the client, first alone and then together, and goes on from where the last
stage left it. It generates rows as the first layer gets them, the column log(1 + degree) included.
In snapshots that are scored ahead NeighGen is applied, and learns nothing.

Where this differs from FedSage+, and why:

- no classifier learns together with NeighGen (their L^c); it comes afterwards
- the encoder has one layer and fGen two narrow ones without dropout and tanh, as our rows have no
  bounds. dGen has no ReLU, which may die; the number is rounded (their code cuts it off) and cut
  to 0..``neighbours``
- L^f is of as many rows as neighbours are hidden, not as dGen says: 0 would teach fGen nothing
- noise is drawn anew in each step, but is the same in all mended graphs of a client
- clients speak through the server, ``sample`` of their nodes at a time; dGen and the encoder learn
  from the client's own loss alone, as in the authors' code

**What crosses the wire** besides what FedAvgDyn sends: ``show``: up codes with noise, the numbers
of their hidden neighbours, fGen. ``judge``: down the same of all others; up gradients of their
fGens. ``learn``: down the sum of these.

**Who learns what.** No row of features travels, nor the gradient of a single generated row, which
would tell the nearest one's. That is less than it seems: the gradients of fGen's last layer are
linear in the rows that were nearest, with factors that the server can work out, and their shapes
are many: of up to latent + 1 codes shown, each nearest row can be solved for
(``tests/methods/test_fedsage_dyn.py`` does), of more, sums of rows; by the server for one client,
by a client for the sum of all others. Others see codes of a client's nodes (noise of variance 1
hides little of large ones), and can generate what it generates, which looks like its nodes.
FedSage+ has nothing against that, and is here to compare with.

Where nodes have no features of their own there is nothing to generate: means of random rows blur
what true neighbours say, and scores may fall far behind FedAvgDyn's.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import torch

from fedvine.core import tree
from fedvine.core.expect import Maybe, Named, Tensor
from fedvine.core.method import At, Client, Field, on_client
from fedvine.core.rng import rng, torch_rng
from fedvine.methods._fedsage_dyn.neighgen import (
    FGEN,
    NeighGen,
    degrees,
    generated,
    impair,
    nearest,
    noisy,
    rows_of,
)
from fedvine.methods.fedavg_dyn import FedAvgDyn

Weights = dict[str, torch.Tensor]


class FedSageDyn(FedAvgDyn):
    """FedAvgDyn with generated neighbours in place of those elsewhere."""

    name: ClassVar[str] = "fedsage_dyn"

    backbone: Literal["sage", "gcn", "evolvegcn-o"] = Field(  # type: ignore[assignment]
        default="evolvegcn-o", description="the local model: EvolveGCN as for fedavg_dyn, or one "
        "of dgcolearn's")
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

    @classmethod
    def tiny(cls) -> Self:
        return cls(rounds=2, features=4, hidden=4, neighbours=2, alone=2, jointly=2)

    def setup(self, client: Client) -> None:
        super().setup(client)
        client.neighgen = NeighGen(self.width(client.world), self.hidden, self.neighbours,
                                   seed=client.world.seed).to(client.part.x.dtype)
        client.neighgen_optimizer = torch.optim.Adam(client.neighgen.parameters(),
                                                     lr=self.learning_rate)

    # -- NeighGen learns -------------------------------------------------------------------------
    def round(self, server, clients, at: At) -> None:
        if at.first and self.hide:
            server.placement.send(self, server, clients)
            clients.call(self.learn_alone, expect=None)
            for _ in range(self.jointly):
                self.learn_jointly(clients)
        super().round(server, clients, at)

    def learn_jointly(self, clients) -> None:
        """Make one step at all clients, each with the gradients of all others."""
        F, kind, z = self.width(clients.world), self.precision, self.hidden
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
            self.step(client, client.torch_rng(str(i)), {})

    @on_client
    def show(self, client: Client) -> dict[str, Any] | None:
        """Return noisy codes ``z`` [m, latent] of nodes with hidden neighbours.

        Also ``many`` [m], the number of these, and ``fgen``; None where no neighbour is hidden.
        """
        with torch.no_grad():
            z, many, _ = self.codes(client)
        nodes = client.rng("show").permutation(many.nonzero()[:, 0].numpy())[:self.sample]
        if not len(nodes):
            return None
        return {"z": noisy(z[nodes], client.torch_rng()), "many": many[nodes],
                "fgen": tree.clone(client.neighgen.fgen())}

    @on_client
    def judge(self, client: Client, others: dict[str, dict]) -> dict[str, Weights]:
        """Return gradients of other clients' fGens.

        They are those of the mean distance of the rows that these generate, summed for each node,
        to the nearest of this client's nodes.
        """
        part, found = self.part_of(client), {}
        mine = client.rng("judge").permutation(len(part.x))[:self.sample]
        x = rows_of(part.x, part.ends)[mine]
        for name, shown in others.items() if len(mine) else ():
            fgen = {n: w.detach().requires_grad_() for n, w in shown["fgen"].items()}
            rows = generated(fgen, shown["z"], self.neighbours)
            used = torch.arange(self.neighbours) < shown["many"][:, None]
            loss = nearest(rows, x)[used].sum() / len(rows)
            slopes = torch.autograd.grad(loss, [fgen[n] for n in FGEN])
            found[name] = dict(zip(FGEN, slopes, strict=True))
        return found

    @on_client
    def learn(self, client: Client, slope: Weights) -> None:
        """Make one step with the gradients ``slope`` of fGen that the others returned."""
        self.step(client, client.torch_rng(), slope)

    def codes(self, client: Client) -> tuple[torch.Tensor, torch.Tensor, tuple]:
        """Return codes [n, latent] in the impaired graph, which is the same through a stage.

        Also the number of hidden neighbours of each node [n] (0 of hidden ones), and that graph.
        """
        part = self.part_of(client)
        impaired = impair(part.ends, len(part.x), self.hide, rng(
            client.world.seed, client.name, "hidden", client.place[0]))
        z = client.neighgen.encode(rows_of(part.x, impaired.left), impaired.left)
        return z, degrees(impaired.pairs[0], part.x), impaired

    def step(self, client: Client, draw: torch.Generator, slope: Weights) -> None:
        """Make one step of Adam on L^d + L^f; ``slope`` is added to the gradient of fGen."""
        z, many, (hidden, _, pairs) = self.codes(client)
        if not pairs.shape[1]:
            return
        part, gen, seen = self.part_of(client), client.neighgen, torch.from_numpy(~hidden)
        number = torch.nn.functional.smooth_l1_loss(gen.missing(z)[seen], many[seen])
        node, other = torch.from_numpy(pairs)
        nodes, at = node.unique(return_inverse=True)
        made = generated(gen.fgen(), noisy(z[nodes], draw), self.neighbours)
        used = torch.arange(self.neighbours) < many[nodes][:, None]
        apart = nearest(made, rows_of(part.x, part.ends), at, other)
        client.neighgen_optimizer.zero_grad()
        (number + apart[used].sum() / seen.sum()).backward()
        share = self.alpha * len(nodes) / int(seen.sum())    # L^f is a mean over all nodes seen
        for name, others in slope.items():
            gen.get_parameter(name).grad.add_(others, alpha=share)
        client.neighgen_optimizer.step()
        client.cache.pop("mended", None)

    # -- the mended graph ------------------------------------------------------------------------
    def mended(self, client: Client) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the nodes int64 [G] that neighbours were generated for, and these rows [G, F]."""
        part, kept = self.part_of(client), client.cache.get("mended")
        if kept is None or kept[0] is not part.x or kept[1] is not part.ends:
            draw, gen = torch_rng(client.world.seed, client.name, "mended"), client.neighgen
            with torch.no_grad():
                z = gen.encode(rows_of(part.x, part.ends), part.ends)
                many = gen.missing(z).round().clamp(0, self.neighbours).long()
                rows = generated(gen.fgen(), noisy(z, draw), self.neighbours)
            kept = client.cache["mended"] = (
                part.x, part.ends, torch.arange(len(z)).repeat_interleave(many),
                rows[torch.arange(self.neighbours) < many[:, None]])
        return kept[2:]

    def degree(self, client: Client) -> torch.Tensor:
        found, (node, _) = super().degree(client), self.mended(client)
        return found.index_add(0, node, found.new_ones(len(node)))

    def outside(self, client: Client, layer: int, message: torch.Tensor, sums: torch.Tensor
                ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return messages of generated neighbours; the cache has their rows for the next layer."""
        net, (node, made) = client.net, self.mended(client)
        leaves = client.cache["leaves"] if layer else made
        one = leaves.new_ones(len(leaves))
        said = net.message(layer, leaves, one)
        client.cache["leaves"] = net.remember(
            layer, net.combine(layer, leaves, said, message[node], one),
            one.new_zeros(len(one), self.hidden))
        return node, said
