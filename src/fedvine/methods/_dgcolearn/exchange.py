"""The exchange between clients: sums before every layer, or raw features once for all layers.

The server knows every edge. With the adjacency A = A_s + C (inside clients, across) it computes,
before each layer, C H from the rows H that clients send; a client gets the sums of its own border
nodes alone. (A_s + C) H is exact in every layer, whatever weights and non-linearities lie between;
the transpose C^T carries gradients back.

Exchanges of raw features are not exact through weights and non-linearities; they are here to
compare with: Eqs. (5), (6) as printed, and FedGCN. With A = A_s + C (a loop at every node in A_s),
A^2 = A_s^2 + A_s C + C A_s + C^2. Of A_s C Eq. (6) has the loops alone, and it counts a node's own
row twice, as a neighbour of its neighbours elsewhere and beside these. Eqs. (5), (6) correct H
of Eq. (2), which is the GRU's input in Eq. (3): what they add never enters a state but through it.
They are sums (Z = Adj X in the proof), while our layers take means (Eq. (2) leaves AGG open): where
a node has many neighbours elsewhere its correction outweighs the rest, and the GRU saturates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from fedvine.aggregate.noise import blurred
from fedvine.core.clients import Clients
from fedvine.core.expect import Tensor
from fedvine.core.lookup import find
from fedvine.core.method import Client, Server
from fedvine.core.rng import torch_rng
from fedvine.data import neighbourhood as near
from fedvine.methods._dgcolearn.graph import FULL, Step
from fedvine.methods._dgcolearn.placement import Placement
from fedvine.nn.neighbour_sum import gather, scatter

# Above all right numbers, and so small that others' replies to them stay within their own bound.
LARGEST_ROW, LARGEST_GRADIENT = 1e9, 1e6
FEATURES = ("paper", "two-hop-exact", "fedgcn")     # exchanges of raw features


class Pass:
    """One pass over the layers, as the server sees it: what travels, and who gets what.

    ``given`` are by client what the next call takes; ``present`` the clients that take part.

    Args:
        method: gives ``precision``, ``sums`` and the width ``hidden`` of rows.
        server: with the newest graph, to which facts are added.
        clients: of the run.
        steps: the layers, first layer first.
        deep: it computes all rows that it reads.
        saved: its rows become states.
        learn: its gradients are asked for afterwards.
    """

    def __init__(self, method: Any, server: Server, clients: Clients, steps: list[Step],
                 *, deep: bool = False, saved: bool = False, learn: bool = False) -> None:
        self.method, self.server, self.clients = method, server, clients
        self.place, self.graph, self.net = server.placement, server.graph, server.net
        self.steps, self.saved, self.present = list(steps), saved, server.events.ready(server)
        held = self.graph.held
        self.check()
        held.clock += 1
        self.fresh = [step.fresh(layer, self.net.short(layer), deep, self.graph.active)
                      for layer, step in enumerate(steps)]
        self.asked = [held.asked(layer, step.sent, new)
                      for layer, (step, new) in enumerate(zip(steps, self.fresh, strict=True))]
        if saved:
            held.begin(self.graph.changed)
        wanted = self.place.by_client(steps[-1].rows)
        sent = [self.place.by_client(step.sent[at])
                for step, at in zip(steps, self.asked, strict=True)]
        self.given: list[Any] = [
            {"rows": wanted[k], "sent": [s[k] for s in sent], "deep": deep, "learn": learn}
            for k in range(len(clients.names))]

    def per_client(self) -> dict[str, Any]:
        """Return what each client that takes part gets now, by name."""
        return named(self.clients, self.given, self.present)

    def rows_expected(self, counts: np.ndarray, width: int, most: float | None = None
                      ) -> Callable[[str], Tensor]:
        """Return, for ``expect=``, the rows [count, width] of each client."""
        return sized(self.method.precision, self.clients, counts, width, most or LARGEST_ROW)

    # -- up --------------------------------------------------------------------------------------
    def messages_expected(self, layer: int) -> Callable[[str], Tensor]:
        """Return, for ``expect=``, the messages of a layer."""
        return self.rows_expected(self.place.counts(self.steps[layer].sent[self.asked[layer]]),
                                  self.net.message_width(layer))

    def add_up(self, layer: int, sent: Any) -> None:
        """Add up the messages that clients ``sent``: the sums of Eq. (5), C H.

        Clients get those that changed since they were given last.
        """
        graph, step, at, new = self.graph, self.steps[layer], self.asked[layer], self.fresh[layer]
        messages = self.replies(sent, self.place.counts(step.sent[at]))
        keep = np.zeros(len(at), bool) if self.net.short(layer) else ~new[at] | self.saved
        rows = graph.held.take(layer, step.sent, at, messages, keep)
        away = self.away(step.sent)
        rows[away] = 0
        late = graph.held.outdated(layer, step.border, step.sent, new, step.cross, self.saved)
        positions = position_by_client(self.place, step.border, late)
        step = self.steps[layer] = step.of(late)
        sums = np.zeros((len(late), rows.shape[1]), rows.dtype)
        gather(*step.cross, rows, sums)                                                 # (5)
        if graph.group > 1:
            withhold(sums, step.cross, away)
        self.given = [{"at": p, "sums": s} for p, s in zip(
            positions, self.noisy(messages, sums, step.border), strict=True)]
        self.note(layer, len(at) + len(late), rows=len(step.rows))

    def close(self) -> None:
        """Note the pass, whose last sums are known."""
        self.check()
        full = len(self.steps[0].rows) > FULL * len(self.graph.order)
        self.graph.note(passes=1, full=int(full))

    def wanted(self, nodes: np.ndarray, now: np.ndarray) -> Callable[[str], Tensor]:
        """Ask for the rows of the pass and those of saved states.

        ``nodes`` int64, ascending, are all that is wanted, ``now`` bool those that the pass
        computes. Return, for ``expect=``, the rows.
        """
        self.nodes, owned = nodes, self.place.owner[nodes] >= 0
        self.rest = self.place.in_order(nodes[~now & owned])
        self.given = [{**given, "rest": rest} for given, rest in zip(
            self.given, self.place.by_client(self.rest), strict=True)]
        return self.rows_expected(self.place.counts(self.steps[-1].rows)
                                  + self.place.counts(self.rest), self.method.hidden)

    def rows(self, sent: Any) -> torch.Tensor:
        """Return the rows [n, hidden] of the nodes that were wanted, given the replies.

        They are 0 for nodes never seen, and for those of clients that do not answer.
        """
        made, kept = self.place.counts(self.steps[-1].rows), self.place.counts(self.rest)
        reply = np.split(self.replies(sent, made + kept), np.cumsum(made + kept)[:-1])
        self.check()
        found = np.zeros((len(self.nodes), self.method.hidden), self.method.precision)
        for part, at in ((self.steps[-1].rows, [slice(m) for m in made]),
                         (self.rest, [slice(m, None) for m in made])):
            rows = np.concatenate([r[i] for r, i in zip(reply, at, strict=True)])
            place = find(self.nodes, part)
            found[place[place >= 0]] = rows[place >= 0]
        return torch.from_numpy(found)

    # -- back ------------------------------------------------------------------------------------
    def turn(self, gradient: torch.Tensor) -> None:
        """Turn around with the ``gradient`` [n, hidden] of the rows that were wanted."""
        last = self.steps[-1].rows
        at = find(self.nodes, last)
        found = np.zeros((len(last), gradient.shape[1]), self.method.precision)
        found[at >= 0] = gradient.cpu().numpy()[at[at >= 0]]
        self.given = divided(found, self.place.counts(last))

    def gradients_expected(self, layer: int) -> Callable[[str], Tensor]:
        """Return, for ``expect=``, the gradients of the sums that clients were given."""
        return self.rows_expected(self.place.counts(self.steps[layer].border),
                                  self.net.message_width(layer), LARGEST_GRADIENT)

    def add_back(self, layer: int, sent: Any) -> None:
        """Add up the gradients of sums that clients ``sent``: those of their messages, C^T G."""
        graph, step = self.graph, self.steps[layer]
        of_sums = self.replies(sent, self.place.counts(step.border))
        of_sent = np.zeros((len(step.sent), of_sums.shape[1]), of_sums.dtype)
        scatter(*step.cross, of_sums, of_sent)
        if graph.group > 1:
            of_sent[graph.hearers[step.sent] < graph.group] = 0
            withhold(of_sent, step.cross, self.away(step.border), back=True)
        self.note(layer, len(step.border) + len(step.back))
        self.given = self.noisy(of_sums, of_sent[step.back], step.sent[step.back])

    # -- what they share -------------------------------------------------------------------------
    def replies(self, sent: Any, counts: np.ndarray) -> np.ndarray:
        """Return the rows of all clients, in order; 0 for those that did not answer.

        These take no part any more.
        """
        self.present = sent.names
        return np.concatenate(filled(self.clients, sent, counts))

    def check(self) -> None:
        """Let everything travel again where a client is away."""
        if len(self.present) < len(self.clients.names):
            self.graph.held.forget()

    def away(self, nodes: np.ndarray) -> np.ndarray:
        """Return which of the nodes are at clients that are away, bool."""
        here = [k for k, n in enumerate(self.clients.names) if n in self.present]
        return ~np.isin(self.place.owner[nodes], here)

    def noisy(self, sent: np.ndarray, sums: np.ndarray, nodes: np.ndarray) -> list[torch.Tensor]:
        """Return the sums of ``nodes``, by client, with noise."""
        return noisy(self.method, self.server, sent, divided(sums, self.place.counts(nodes)))

    def note(self, layer: int, moved: int, **more: int) -> None:
        """Note the rows ``moved`` in a layer, beside those of all border nodes, both ways.

        All border nodes send messages of the first layer that do not depend on weights in the
        first pass of a snapshot alone.
        """
        graph, width = self.graph, np.dtype(self.method.precision).itemsize
        width *= self.net.message_width(layer)
        again = layer or self.net.short(layer) or not graph.passes
        graph.note(bytes=moved * width, bytes_full=2 * graph.border_nodes * width * bool(again),
                   **more)


def withhold(sums: np.ndarray, cross: near.Rows, away: np.ndarray, back: bool = False) -> None:
    """Set sums to 0 that clients which are ``away`` bool have a part in (``min_group``).

    They would be of fewer nodes than was decided on.
    """
    if away.any():
        lacking = np.zeros((len(sums), 1))
        (scatter if back else gather)(*cross, away[:, None].astype(float), lacking)
        sums[lacking[:, 0] > 0] = 0


def noisy(method: Any, server: Server, sent: np.ndarray, sums: list[torch.Tensor]
          ) -> list[torch.Tensor]:
    """Return the sums with Gaussian noise, the same for the same sums.

    Its scale is ``aggregate.blur`` times the root mean square of the numbers that clients ``sent``.
    Clients know the run's seed, so it follows from ``server.secret``.
    """
    blur = method.sums.blur
    scale = blur * float(np.sqrt((sent ** 2).mean())) if blur and sent.size else 0.0
    if not scale:
        return sums
    return [torch.from_numpy(blurred(s.numpy(), scale, server.secret)) for s in sums]


# -- raw features --------------------------------------------------------------------------------
def exchange_features(method: Any, server: Server, clients, model: Any) -> Sequence[str]:
    """Exchange features: up those of border nodes, down sums of neighbours elsewhere.

    Return the clients that took part.
    """
    graph, place = server.graph, server.placement
    border = place.in_order(np.flatnonzero(graph.across))
    counts, places, F = place.counts(border), place.by_client(border), method.width(clients.world)
    wide = F + {"fedgcn": 0, "paper": method.hidden, "two-hop-exact": F}[method.exchange]
    sent = clients.call(method.offer, model, per_client=named(clients, places, server.joined),
                        expect=sized(method.precision, clients, counts, wide))
    cross = near.matrix(graph.adjacency, border, border, 0, graph.stamps, place.owner)
    away = ~np.isin(place.owner[border], [clients.names.index(n) for n in sent.names])

    def summed(rows: np.ndarray) -> np.ndarray:
        found = np.zeros_like(rows)
        gather(*cross, np.ascontiguousarray(rows), found)
        if graph.group > 1:
            found[graph.summed[border] == 0] = 0
            withhold(found, cross, away)
        return found
    rows = summed(np.concatenate(filled(clients, sent, counts)))
    again = summed(rows[:, :F])                                         # over q in N_j of Eq. (6)
    each = list(zip(places, np.split(graph.summed[border], np.cumsum(counts)[:-1]),
                    divided(rows, counts), divided(again, counts), strict=True))
    return clients.call(method.take, per_client=named(clients, each, sent.names),
                        expect=None).names


def offered(method: Any, client: Client) -> torch.Tensor:
    """Return what a client offers of all its nodes.

    Features [n, F]; for Eq. (6) also their rows of the first layer [n, hidden], or (exact) A_s X
    [n, F].
    """
    part, net, x = method.part_of(client), client.net, method.inputs(client)
    if method.exchange == "fedgcn":
        return x
    if method.exchange == "two-hop-exact":
        return torch.cat([x, x + part.add_neighbours(x)], 1)
    degree = method.aggregated(client, np.arange(len(x)))
    net.past = part.seen
    net.look(0, x)
    message = net.message(0, x, degree, part.states[0])
    h = net.combine(0, x, message, part.add_neighbours(message), degree)    # (2), neighbours here
    return torch.cat([x, h], 1).detach()


def corrections(method: Any, client: Client, found: tuple[Any, ...]) -> list[torch.Tensor]:
    """Compute from the received sums what is added.

    Rows [n, hidden] for the first layer and for the second; for FedGCN inputs [n, F], means over
    all neighbours.
    """
    part, x = method.part_of(client), method.inputs(client)
    places, count, rows, again = (torch.as_tensor(f).to(x.device) for f in found)
    places, exchange, (n, F) = places.long(), method.exchange, x.shape
    if exchange == "fedgcn":
        degree = 1 + method.aggregated(client, np.arange(n)).index_add(0, places, count.to(x))
        return [(x + part.add_neighbours(x)).index_add(0, places, rows) / degree[:, None]]
    P = torch.eye(F).to(x)
    if method.hidden != F:                          # the authors' code projects at random
        draw = torch_rng(client.world.seed, "project")
        P = torch.randn(F, method.hidden, generator=draw).to(x) / F ** 0.5
    own = torch.zeros_like(x).index_add(0, places, rows[:, :F])
    if exchange == "two-hop-exact":                 # A_s C X + C (A_s X + C X), of all own nodes
        second = (own + part.add_neighbours(own)).index_add(0, places, rows[:, F:] + again)
        return [own @ P, second @ P]            # (5), and (6) put right
    sums = rows[:, :F] @ P
    second = rows[:, F:] + sums + (count[:, None] * x[places] + again) @ P
    return [own @ P, x.new_zeros(n, method.hidden).index_add(0, places, second)]    # (5), (6)


def corrected(method: Any, part: Any, layer: int, h: torch.Tensor, places: torch.Tensor
              ) -> torch.Tensor:
    """Return H of Eq. (2) of nodes, with what Eqs. (5), (6) add in the first two layers.

    Layer by layer the sums of neighbours elsewhere are in it already.
    """
    if method.exchange not in ("paper", "two-hop-exact") or not part.corrections or layer > 1:
        return h
    return h + part.corrections[layer][places]


# -- values by client ----------------------------------------------------------------------------
def named(clients, values: Sequence[Any], present: Sequence[str]) -> dict[str, Any]:
    """Return the values of the clients ``present``, by name."""
    return {n: v for n, v in zip(clients.names, values, strict=True) if n in present}


def sized(precision: str, clients, counts: Iterable[int], width: int, most: float = LARGEST_ROW
          ) -> Callable[[str], Tensor]:
    """Return, for ``expect=``, the reply of a client by its name: rows [its count, width].

    No number in them is above ``most`` in size.
    """
    count = dict(zip(clients.names, map(int, counts), strict=True))
    return lambda name: Tensor(precision, (count[name], width), -most, most)


def filled(clients, sent: Any, sizes: np.ndarray) -> list[np.ndarray]:
    """Return the rows of every client, in order of names; 0 for those that did not answer."""
    found = {n: reply.numpy() for n, reply in sent.items()}
    one = next(iter(found.values()))
    return [found.get(n, np.zeros((size, one.shape[1]), one.dtype))
            for n, size in zip(clients.names, sizes, strict=True)]


def divided(rows: np.ndarray, counts: np.ndarray) -> list[torch.Tensor]:
    """Return the rows of each client, given how many each has."""
    return [torch.from_numpy(r) for r in np.split(rows, np.cumsum(counts)[:-1])]


def position_by_client(place: Placement, nodes: np.ndarray, chosen: np.ndarray) -> list[np.ndarray]:
    """Return by client the positions int32 among its ``nodes`` of those ``chosen``.

    ``nodes`` are in the order of clients, ``chosen`` are positions among them, ascending.
    """
    counts = place.counts(nodes)
    starts = np.cumsum(counts) - counts
    of = np.split(chosen, np.searchsorted(chosen, starts[1:]))
    return [(p - s).astype(np.int32) for p, s in zip(of, starts, strict=True)]
