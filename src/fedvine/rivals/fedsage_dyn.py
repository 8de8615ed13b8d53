"""FedSageDyn: FedSage+ (Zhang et al., NeurIPS 2021) on a dynamic graph, a rival of DG-CoLearn.

Edges between clients are seen by nobody, as with :mod:`fedvine.methods.fedavg_dyn`; but each
client makes up neighbours that its nodes may have elsewhere, and learns on the mended graph.
FedSage+, and where it is here:

- *impaired subgraph*: a client hides a share of its nodes with their edges
  (:func:`fedvine.rivals._fedsage.impair`), others in each stage
- *NeighGen*: encoder, dGen and fGen (:class:`fedvine.rivals._fedsage.NeighGen`), one
  a client; they are never averaged. They learn in :mod:`fedvine.rivals._fedsage`
- *L^n*, the local loss: smooth L1 of the number of hidden neighbours, L^d, and the distance of
  generated rows to the nearest of the node's hidden neighbours, L^f (``improve``)
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
- noise is drawn anew in each step, but is the same in all mended graphs of a client. That of
  codes that are shown is of the operating system (:mod:`fedvine.aggregate.noise`)
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

from typing import ClassVar, Self

import numpy as np
import torch
from pydantic import model_validator

from fedvine.core.lookup import find
from fedvine.core.method import At, Client, Field
from fedvine.core.rng import torch_rng
from fedvine.methods._dgcolearn.client import Layer
from fedvine.methods.fedavg_dyn import FedAvgDyn
from fedvine.nn.backbones import Exact
from fedvine.rivals._fedsage import MissingNeighbours, NeighGen, generated, noisy, rows_of


class FedSageDyn(MissingNeighbours, FedAvgDyn):  # type: ignore[misc] # its show is NeighGen's
    """FedAvgDyn with generated neighbours in place of those elsewhere."""

    name: ClassVar[str] = "fedsage_dyn"
    # random ends among a client's own nodes
    revision: ClassVar[int] = 4  # type: ignore[override]

    backbone: Exact = Field(  # type: ignore[assignment]
        default="evolvegcn-o", description="the local model: EvolveGCN as for fedavg_dyn, or one "
        "of dgcolearn's")

    @model_validator(mode="after")
    def _bounds_need_the_changed_set(self) -> Self:
        """Accept ``neighbours``: here they are generated ones, and no bound of a changed set."""
        return self

    @property
    def read_at_most(self) -> int:
        return 0

    @classmethod
    def tiny(cls) -> Self:
        return cls(rounds=2, hidden=4, neighbours=2, alone=2, jointly=2)

    def setup(self, client: Client) -> None:
        super().setup(client)
        client.neighgen = NeighGen(self.width(client.world), self.hidden, self.neighbours,
                                   seed=client.world.seed).to(client.part.x)
        client.neighgen_optimizer = torch.optim.Adam(client.neighgen.parameters(),
                                                     lr=self.learning_rate)

    # -- NeighGen learns -------------------------------------------------------------------------
    def round(self, server, clients, at: At) -> None:
        if at.first and self.hide:
            server.placement.send(self, server, clients)
            self.learn_generators(clients)
        super().round(server, clients, at)

    def shapes(self, clients) -> tuple[str, int, int]:
        """Return dtype, width of codes and width of rows."""
        return self.precision, self.hidden, self.width(clients.world)

    def visible(self, client: Client) -> tuple[int, np.ndarray]:
        """Return the number of nodes and the edges int64 [2, E] inside the client."""
        part = self.part_of(client)
        return len(part.x), part.ends

    def given(self, client: Client, ends: np.ndarray) -> torch.Tensor:
        """Return the encoder's input [n, F] in the graph of these edges."""
        return rows_of(self.part_of(client).x, ends)

    def rows(self, client: Client, nodes: np.ndarray) -> torch.Tensor:
        """Return the rows [k, F] of these nodes."""
        part = self.part_of(client)
        return rows_of(part.x, part.ends)[nodes]

    # -- the mended graph ------------------------------------------------------------------------
    def mended(self, client: Client) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the nodes int64 [G] that neighbours were generated for, and these rows [G, F]."""
        part, kept = self.part_of(client), client.cache.get("mended")
        if kept is None or kept[0] is not part.x or kept[1] is not part.ends:
            gen, draw = client.neighgen, torch_rng(client.world.seed, client.name, "mended")
            with torch.no_grad():
                z = gen.encode(rows_of(part.x, part.ends), part.ends)
                many, rows = gen.count(z), generated(gen.fgen(), noisy(z, draw), gen.most)
            kept = client.cache["mended"] = (
                part.x, part.ends, torch.arange(
                    len(z), device=z.device).repeat_interleave(many),
                rows[torch.arange(gen.most, device=z.device) < many[:, None]])
        return kept[2:]

    def degree(self, client: Client, places: np.ndarray) -> np.ndarray:
        return super().degree(client, places) + self.made(client)[places]

    def aggregated(self, client: Client, places: np.ndarray) -> torch.Tensor:
        found = super().aggregated(client, places)
        return found + torch.from_numpy(self.made(client)[places]).to(found)

    def made(self, client: Client) -> np.ndarray:
        """Return the number of generated neighbours of each node, int64 [n]."""
        node = self.mended(client)[0].cpu().numpy()
        return np.bincount(node, minlength=len(self.part_of(client).x))

    def outside(self, client: Client, layer: int, plan: Layer, message: torch.Tensor,
                sums: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return messages of generated neighbours; the cache has their rows for the next layer."""
        net, (node, leaves) = client.net, client.cache["leaves"] if layer else self.mended(client)
        at = torch.from_numpy(find(plan.rows, node.cpu().numpy())).to(message.device)
        mine = at >= 0
        node, leaves, at = node[mine], leaves[mine], at[mine]
        one = leaves.new_ones(len(leaves))
        past = one.new_zeros(len(one), net.state_width(layer))
        said = net.message(layer, leaves, one, past)
        near = message.index_select(0, plan.own)[at]
        client.cache["leaves"] = node, net.rows(layer, net.remember(
            layer, net.combine(layer, leaves, said, near, one), past))
        return at, said
