"""DG-CoLearn (arXiv:2605.31427): collaborative learning on one dynamic graph, cut among clients.

The server holds the graph, assigns new nodes to clients (``server.placement``), and before every
layer sends each border node the sum of the messages of its neighbours at other clients
(``server.border``): K clients compute the forward pass of one machine, with ``exchange_gradients``
the backward pass too. A client keeps its nodes, their edges and states (``client.part``).

Different from the paper, by default:

- the partition is ``multilevel``; the paper's CoLearnPartition is ``partition="colearn"``
- rows of all own nodes are trained; Eqs. (1), (4), the k-hop subgraph, need ``scope="changed"``,
  whose time follows what changed (``_dgcolearn/changed_graph.py``)
- the exchange is layer by layer, as Eqs. (5), (6) are not exact (``_dgcolearn/raw_features.py``)
- gradients of all clients are added up for one step of Adam at the server; models are averaged,
  every round, with local epochs alone, whose schedule ``before`` is none of Appendix D.2's four
- the loss has pairs across clients, too: clients send rows, and get the gradients of these
- a pair's score is the dot product plus an MLP (``nn/roland.py``; the paper: the dot product)
- a node's own row has weights V, where Eq. (2) has {v} in AGG; no sigma after the last layer
- states and scores come from the shared model and a fresh exchange, without the edges predicted

What each side learns of the data (Section 3.3, Appendix H): ``docs/reference-dgcolearn.md``.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import model_validator

from fedvine.aggregate.rules import Robust
from fedvine.core import tree
from fedvine.core.compiling import timed
from fedvine.core.device import OnDevice
from fedvine.core.method import At, Client, Field, Server, World
from fedvine.core.rng import rng
from fedvine.data.snapshot import Snapshot
from fedvine.methods._dgcolearn import changed_arrival, fits, node_tables
from fedvine.methods._dgcolearn.answers import classes, links
from fedvine.methods._dgcolearn.candidates import CandidatesMixin
from fedvine.methods._dgcolearn.changed_client import ChangedMixin
from fedvine.methods._dgcolearn.changed_exchange import Changed
from fedvine.methods._dgcolearn.changed_part import ChangedPart
from fedvine.methods._dgcolearn.event_lists import EventLists, code
from fedvine.methods._dgcolearn.exchange import Border, Layerwise, ready
from fedvine.methods._dgcolearn.local_epochs import LocalEpochsMixin
from fedvine.methods._dgcolearn.neighbour_lists import NeighbourLists, NeighbourListsMixin
from fedvine.methods._dgcolearn.part import Part
from fedvine.methods._dgcolearn.placement import Partition, Placement, affected
from fedvine.methods._dgcolearn.raw_features import RawFeatures
from fedvine.methods._dgcolearn.recent import Recent, RecentMixin, among
from fedvine.methods._dgcolearn.renumber import renumber
from fedvine.methods._dgcolearn.targets import targets
from fedvine.methods._edge_means import EdgeMeans
from fedvine.nn.backbones import Backbone, network, reads
from fedvine.nn.roland import Network
from fedvine.partitions.colearn import Order


class DgCoLearn(CandidatesMixin, RecentMixin, NeighbourListsMixin, ChangedMixin, LocalEpochsMixin,
                OnDevice, Robust):
    """K clients that compute what one machine would on the whole graph."""

    name: ClassVar[str] = "dgcolearn"
    server_holds_graph: ClassVar[bool] = True
    edge_columns: ClassVar[bool] = True
    #: Whether nodes have the means of what their edges said among their columns.
    edge_means: ClassVar[bool] = True
    placement: ClassVar[type[Placement]] = Placement
    #: Whether ``scope="changed"`` may skip all other rows; if not, they are computed and dropped.
    skips: ClassVar[bool] = True
    space: ClassVar[dict[str, Any]] = {"learning_rate": (1e-3, 0.03, "log"), "hidden": [16, 32, 64],
                                      "window": [1, 3, 10], "epochs": [1, 3]}

    rounds: int = Field(default=10, ge=0, description="rounds a stage, R")
    features: int = Field(default=32, ge=3, description="columns of features where the data have "
                          "none: random ones from the hash of a node's name, 1, log(1 + degree)")
    hidden: int = Field(default=32, ge=1, description="width of hidden rows and states")
    layers: int = Field(default=2, ge=1, description="layers, k")
    precision: Literal["float32", "float64"] = Field(default="float32", description="of numbers")
    window: Annotated[int, Field(ge=1)] | Literal["all"] = Field(
        default=3, description="stages that an edge lives after it was last seen, or until removed")
    partition: Partition = Field(
        default="multilevel", description="clients of the first stage's nodes: few edges between "
        "clients (multilevel, stream, metis, louvain), the paper's growth from seeds (colearn), "
        "unlike classes (label_skew), by hash, or the client of a node's first edge (split, by a "
        "column)")
    order: Order = Field(default="mincut_first", description="colearn's first aim (Appendix B)")
    virtual: bool = Field(default=True, description="metis and louvain see edges that join "
                          "components, and count nowhere else (Appendix E.4)")
    edges_per_client: int | None = Field(
        default=None, ge=1, description="one more client has nodes for each so many edges of the "
        "snapshot (the authors' code: 510); none: all clients from the start")
    target: Literal["edges", "classes"] = Field(
        default="edges", description="what is predicted: the next stage's edges, or nodes' classes")
    scope: Literal["snapshot", "changed"] = Field(
        default="snapshot", description="rows that are computed anew: of all nodes, or of those "
        "within k edges of what changed (Eqs. 1, 4); others keep their last states")
    neighbours: int = Field(
        default=0, ge=0, description="with scope=changed: so many neighbours of a node are read, "
        "the newest, and followed to what changed; rows asked for are computed anew; 0: all")
    stale: int = Field(
        default=0, ge=0, description="with scope=changed: every node's states are computed once in "
        "so many snapshots, in turn; 0: where something changed alone")
    min_group: int = Field(
        default=1, ge=1, description="withhold sums that reveal fewer neighbours: alone, by "
        "their difference to the last one, or to a client that knows a part of them")
    exchange: Literal["layerwise", "paper", "two-hop-exact", "fedgcn", "none"] = Field(
        default="layerwise", description="what clients learn of neighbours elsewhere: sums before "
        "each layer; Eqs. (5), (6) as printed; the same with the term that (6) leaves out; sums of "
        "features in place of features; nothing")
    backbone: Backbone = Field(
        default="sage", description="aggregation: mean; that of a GCN; a GCN whose weights evolve "
        "and not states (EvolveGCN; version h by the top rows, see candidates); graph "
        "convolutions, then an LSTM, or within the gates of a GRU or an LSTM (GCRN); memories "
        "that events update, in continuous time (TGN); a transformer over the newest events of a "
        "pair's ends (DyGFormer)")
    sequence: int = Field(default=32, ge=2, description="of dygformer: length of a node's "
                          "sequence, itself and the other ends of its newest events")
    patch: int = Field(default=2, ge=1, description="of dygformer: places of a patch")
    candidates: Literal["own", "all"] = Field(
        default="own", description="of evolvegcn-h: weights evolve by the top rows of a client's "
        "own nodes, or of all nodes: exact, but these rows are sent to all clients")
    temporal: Literal["gru", "mlp", "average", "none"] = Field(
        default="gru", description="update of states: a gated recurrent unit (Eq. 3), one dense "
        "layer, the moving average of the authors' code, or none; of sage and gcn alone")
    noise: float = Field(default=0.0, ge=0, description="standard deviation of Gaussian noise on "
                         "sums, in units of the root mean square of what clients sent")
    epochs: int = Field(default=1, ge=1, description="epochs a round, E: local ones, or steps that "
                        "all make together (exchange_gradients)")
    learning_rate: float = Field(default=0.01, gt=0, description="learning rate of Adam")
    decay: float = Field(default=0.0, ge=0, description="Adam's weight decay; the authors': 5e-4")
    exchange_gradients: bool = Field(
        default=True, description="with layerwise (ignored otherwise): clients return gradients of "
        "sums too, and the server makes one machine's steps; false: local epochs, and averaging")
    schedule: Literal["before", "first-epoch", "last-epoch", "first-round", "middle-round"] = Field(
        default="before", description="when local epochs get new sums: before a round, of the "
        "shared model; or (Appendix D.2) of the clients' own models after the first or last epoch "
        "of every round, or after the last of the first or the middle round")

    @model_validator(mode="after")
    def _bounds_need_the_changed_set(self) -> Self:
        fits.check_bounds(self)
        return self

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        fits.check(self)
        return self

    @property
    def task(self) -> Literal["link", "label"]:  # type: ignore[override]
        """Return what is predicted: "link" or "label"."""
        return "link" if self.target == "edges" else "label"

    @classmethod
    def tiny(cls) -> Self:
        return cls(rounds=2, features=4, hidden=4)

    # -- memory ----------------------------------------------------------------------------------
    def start(self, world: World) -> Server:
        net, window = self.net(world).to(self.where), None if self.window == "all" else self.window
        graphs = changed_arrival.graphs(self, world, window) if self.follows else {
            "border": Border(len(world.clients), self.min_group), "snapshot": Snapshot(window)}
        means = {"means": EdgeMeans(world)} if self.of_edges(world) else {}
        recent: dict[str, Any] = ({"recent": Recent()} if net.timed else
                                  {"lists": EventLists()} if net.paired else {})
        return Server(
            net=net, optimizer=self.adam(net), **graphs, **means, **recent,
            placement=self.placement(world, self.partition, order=self.order,
                                     virtual=self.virtual, edges_per_client=self.edges_per_client),
            joined=list(world.clients),     # clients that have received the newest subgraph
            first=None,                     # sums of the first layer, while they are fixed
            met=np.zeros(0, bool),          # [N], nodes of earlier snapshots
            active=np.zeros(0, bool))       # [N], nodes of Eq. (1)

    def setup(self, client: Client) -> None:
        net = self.net(client.world).to(self.where)
        client.part = (ChangedPart if self.follows else Part)(
            self.width(client.world), net.state_widths, getattr(torch, self.precision),
            self.exchange_in(client.world), self.where)
        client.net = net
        client.optimizer = self.adam(client.net)

    def net(self, world: World) -> Network:
        """Return the model that all share, with its first weights."""
        classes = world.facts.get("classes", 0) if self.target == "classes" else 0
        return network(self.backbone, self.temporal, self.width(world), self.hidden, self.layers,
                       seed=world.seed, directed=world.facts.get("directed", True),
                       classes=classes, patch=self.patch).to(getattr(torch, self.precision))

    def adam(self, net: Network) -> torch.optim.Adam:
        """Return the optimiser of ``net``."""
        return torch.optim.Adam(net.parameters(), lr=self.learning_rate, weight_decay=self.decay)

    def width(self, world: World) -> int:
        """Return the number of columns F of features."""
        own = world.facts.get("features", 0)
        return ((own + 2 if own else self.features) + node_tables.columns(world)
                + self.of_edges(world))

    def of_edges(self, world: World) -> int:
        """Return how many of them are means of columns of edges."""
        return node_tables.of_edges(world) if self.edge_means else 0

    @property
    def follows(self) -> bool:
        """Return whether time and bytes follow what changed.

        So it is with ``scope="changed"`` and gradients that are exchanged, unless a network reads
        all rows, or sums have noise, or are withheld.
        """
        return (self.skips and self.scope == "changed" and self.exchange == "layerwise"
                and self.exchange_gradients and not self.noise and self.min_group == 1
                and reads(self.backbone) == "neighbours")

    def exchange_in(self, world: World) -> Layerwise:
        """Return the exchange that the field ``exchange`` chooses."""
        if self.follows:
            return Changed(self, world)
        if self.backbone == "dygformer":
            return NeighbourLists(self, world)
        return (Layerwise if self.exchange in ("layerwise", "none") else RawFeatures)(self, world)

    # -- a stage arrives -------------------------------------------------------------------------
    def arrive(self, server, clients, at: At) -> None:
        if self.follows:
            changed_arrival.arrive(self, server, clients, at)
            return
        placement, snapshot, stage, past = (
            server.placement, server.snapshot, server.stage, server.past)
        renumber(server, stage)                                     # users and items that are new
        fresh = snapshot.advance(stage)
        with timed(server.cache, f"partition {snapshot.t}"):
            before = placement.assign(stage, past, snapshot)        # (i) partition, Section 4.1
        moved, lost = placement.move(self, server, clients, before)
        placement.describe(stage, past, snapshot, moved)
        new = placement.introduce(stage, past, np.concatenate([lost, fresh]))
        clients.call(self.meet, per_client=new, expect=None)
        server.first = None             # there are other features now
        if server.net.timed:
            server.recent.heard = None  # there are other nodes
        if not server.joined:           # `move` empties it where nodes change their client
            server.border.update(server.border.edges, placement.owner)
        if self.target == "classes" or not at.R:
            self.next_snapshot(server, clients)

    def next_snapshot(self, server, clients) -> None:
        """Let messages go over the newest snapshot from now on."""
        if self.follows:
            changed_arrival.next_snapshot(self, server, clients)
            return
        edges, owner = server.snapshot.edges, server.placement.owner
        told = node_tables.learn(server)
        if server.net.timed:
            told = np.union1d(told, server.recent.advance(
                server.stage, among(code(*server.border.edges)), among(server.snapshot.codes),
                len(owner)))
        if server.net.paired:
            server.lists.advance(server.stage, server.snapshot.codes)
        if self.scope == "changed":
            met = np.concatenate([server.met, np.zeros(len(owner) - len(server.met), bool)])
            server.active = affected(server.border.edges, edges, met, self.layers, told)
        server.met, server.joined, server.first = owner >= 0, [], None
        server.border.update(edges, owner)
        server.placement.send(self, server, clients)

    # -- a round ---------------------------------------------------------------------------------
    def round(self, server, clients, at: At) -> None:
        # (i) partition: `arrive` has assigned the stage's new nodes
        exchange, world = self.exchange_in(clients.world), clients.world
        ends, labels = targets(self.target, server, rng(world.seed, "pairs", at.t, at.r))
        if self.exchange_gradients and self.exchange == "layerwise":
            for _ in range(self.epochs):            # (ii) train, (iii) exchange: layer by layer
                exchange.step(server, clients, ends, labels)
        else:
            self.local_epochs(server, clients, ends, labels, at)
        if at.last:
            exchange.commit(server, clients)                    # states of this snapshot
            if self.target == "edges":
                self.next_snapshot(server, clients)

    def local_epochs(self, server: Server, clients, ends, labels, at: At) -> None:
        """Let clients train by themselves, exchange when it is due, and average their models."""
        server.placement.send(self, server, clients)
        own = self.exchange_in(clients.world).inside(server, clients, ends, labels)
        E, only = self.epochs, {"first-round": at.first, "middle-round": at.r == (at.R + 1) // 2}
        due = self.exchange != "none" and only.get(self.schedule, True) and not server.net.paired
        before, after = {"before": (0, E), "first-epoch": (1, E - 1)}.get(self.schedule, (E, 0))
        model, present = tree.weights(server.net), ready(server)
        if before:                                      # (ii) train on the k-hop subgraph
            present = clients.call(self.train, model, before, per_client=own, only=present,
                                   expect=None).names
            model = None                                # from here on each client has its own
        if due:                                         # (iii) exchange layer by layer
            present, model = self.exchange_in(clients.world).refresh(server, clients, model), None
        if after:                                       # (ii)
            present = clients.call(self.train, model, after, per_client=own, only=present,
                                   expect=None).names
        sent = clients.call(self.trained, only=present, expect=tree.weights(server.net))
        sizes = [len(own[n][1]) for n in sent.names]    # pairs (nodes) that each trained on
        if sum(sizes):                                  # the average, weighted by these
            tree.load(server.net, self.average(clients, dict(sent.items()),
                                               tree.weights(server.net), sizes))

    # -- answers ---------------------------------------------------------------------------------
    def answer(self, server, clients, at: At) -> dict[str, np.ndarray]:
        """Return the scores of the server's queries, and at which clients they are."""
        return (classes if self.target == "classes" else links)(self, server, clients, at)

    def class_scores(self, server, clients, nodes: np.ndarray) -> np.ndarray:
        """Return the scores [Q, classes] of ``nodes`` int64 [Q] in the server's snapshot."""
        return self.exchange_in(clients.world).scores(server, clients, nodes[None])

    def report(self, server: Server) -> dict[str, Any]:
        """Return facts of the partition, see :meth:`Placement.report`.

        With ``scope="changed"`` also ``computed``: "changed", with the facts of each snapshot's
        passes (:meth:`ChangedGraph.note`), or "all" where all rows are computed, and why.
        """
        found = server.placement.report(server.snapshot, sum(
            s for k, s in server.cache.items() if k.startswith("partition")))
        if self.scope == "snapshot":
            return found
        return found | ({"computed": "changed", "passes": server.border.history} if self.follows
                        else {"computed": "all"})
