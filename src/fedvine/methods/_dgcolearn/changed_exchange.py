"""The exchange of :class:`Layerwise` over the changed set alone, Eqs. (1), (4), (5).

A pass computes the rows that are wanted, and of each layer what these read. Only border nodes
beside such rows send messages, and only such rows get sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fedvine.core import tree
from fedvine.core.method import Server
from fedvine.methods._dgcolearn.changed_arrival import send
from fedvine.methods._dgcolearn.changed_graph import FULL, Step
from fedvine.methods._dgcolearn.exchange import Layerwise, filled, named, ready, sized
from fedvine.methods._dgcolearn.placement import Placement
from fedvine.nn.neighbour_sum import gather, scatter


class Changed(Layerwise):
    """Passes over rows of the changed set."""

    def up_to_last(self, server: Server, clients, steps: list[Step], deep: bool = False,
                   saved: bool = False, learn: bool = False
                   ) -> tuple[Sequence[str], list[Any], list[Step]]:
        """Carry out the layers of a pass up to the sums of the last one.

        ``deep``: it computes all rows that it reads. ``saved``: its rows become states. ``learn``:
        its gradients are asked for afterwards. Return the clients that took part, by client what
        it gets of the last layer's sums, and the steps, whose ``border`` and ``cross`` are those
        of the sums that travelled.
        """
        method, place, graph, net = self.method, server.placement, server.border, server.net
        send(method, server, clients)                   # to clients that were away
        present: Sequence[str] = ready(server)
        if len(present) < len(clients.names):
            graph.held.forget()
        graph.held.clock += 1
        fresh = [step.fresh(layer, net.short(layer), deep, graph.active)
                 for layer, step in enumerate(steps)]
        asked = [graph.held.asked(layer, step.sent, new)
                 for layer, (step, new) in enumerate(zip(steps, fresh, strict=True))]
        if saved:
            graph.held.begin(graph.changed)
        wanted = by_client(place, steps[-1].rows)
        sent_by = [by_client(place, step.sent[at]) for step, at in zip(steps, asked, strict=True)]
        given: list[Any] = [{"rows": wanted[k], "sent": [s[k] for s in sent_by], "deep": deep,
                             "learn": learn}
                            for k in range(len(clients.names))]
        model: Any = tree.weights(net)
        moved = list[Step]()
        for layer, (step, new, at) in enumerate(zip(steps, fresh, asked, strict=True)):
            sizes = place.counts(step.sent[at])
            sent = clients.call(method.say_changed, layer, model,
                                per_client=named(clients, given, present),
                                expect=sized(method.precision, clients, sizes,
                                             net.message_width(layer)))
            present, model = sent.names, None
            messages = np.concatenate(filled(clients, sent, sizes))
            keep = ~new[at] | saved if not net.short(layer) else np.zeros(len(at), bool)
            rows = graph.held.take(layer, step.sent, at, messages, keep)
            if len(present) < len(clients.names):       # no rows of clients that are away
                here = [k for k, n in enumerate(clients.names) if n in present]
                rows[~np.isin(place.owner[step.sent], here)] = 0
            late = graph.held.outdated(layer, step.border, step.sent, new, step.cross, saved)
            moved.append(step.of(late))
            sums = np.zeros((len(late), rows.shape[1]), rows.dtype)
            gather(*moved[-1].cross, rows, sums)                                        # (5)
            at_client = position_by_client(place, step.border, late)
            given = [{"at": p, "sums": s} for p, s in zip(
                at_client, divided(sums, place.counts(step.border[late])), strict=True)]
            self.note(server, layer, len(at) + len(late), rows=len(step.rows))
        if len(present) < len(clients.names):
            graph.held.forget()
        full = len(steps[0].rows) > FULL * len(graph.order)
        graph.note(passes=1, full=int(full))
        return present, given, moved

    def note(self, server: Server, layer: int, moved: int, **more: int) -> None:
        """Note the rows ``moved`` in a layer, beside those of all border nodes, both ways.

        All border nodes send messages of the first layer that do not depend on weights in the
        first pass of a snapshot alone (:meth:`Layerwise.fixed`).
        """
        graph, width = server.border, np.dtype(self.method.precision).itemsize
        width *= server.net.message_width(layer)
        again = layer or server.net.short(layer) or not graph.passes
        graph.note(bytes=moved * width, bytes_full=2 * graph.border_nodes * width * bool(again),
                   **more)

    def rows(self, server: Server, clients, nodes: np.ndarray, learn: bool = False
             ) -> tuple[torch.Tensor, list[Step], Sequence[str]]:
        """Carry out the forward pass for ``nodes`` int64, ascending, each once.

        ``learn`` as of :meth:`up_to_last`. Return their rows [n, hidden] (0 for nodes never seen,
        and for those of clients that do not answer), the steps of the pass, and the clients that
        took part.
        """
        method, place, graph = self.method, server.placement, server.border
        deep = graph.limit > 0
        now = place.owner[nodes] >= 0 if deep else graph.active[nodes]
        steps = graph.plan(nodes[now], method.layers, place, server.net.short, deep)
        rest = place.in_order(nodes[~now & (place.owner[nodes] >= 0)])
        present, sums, steps = self.up_to_last(server, clients, steps, deep, learn=learn)
        given = [{**s, "rest": r} for s, r in zip(sums, by_client(place, rest), strict=True)]
        made, kept = place.counts(steps[-1].rows), place.counts(rest)
        sent = clients.call(method.embed_changed, per_client=named(clients, given, present),
                            expect=sized(method.precision, clients, made + kept, method.hidden))
        if len(sent.names) < len(clients.names):
            graph.held.forget()
        found = np.zeros((len(nodes), method.hidden), method.precision)
        reply = filled(clients, sent, made + kept)
        for part, at in ((steps[-1].rows, [slice(m) for m in made]),
                         (rest, [slice(m, None) for m in made])):
            found[np.searchsorted(nodes, part)] = np.concatenate(
                [r[i] for r, i in zip(reply, at, strict=True)])
        return torch.from_numpy(found), steps, sent.names

    def rows_of(self, server: Server, clients, nodes: np.ndarray
                ) -> tuple[torch.Tensor, np.ndarray]:
        """Return newest rows, see :meth:`Layerwise.rows_of`."""
        named_, at = np.unique(nodes, return_inverse=True)
        return self.rows(server, clients, named_)[0], at.reshape(nodes.shape)

    def commit(self, server: Server, clients) -> None:
        """Let the rows of all changed nodes, of the shared model, become states, Eq. (4)."""
        graph = server.border
        steps = graph.plan(graph.changed, self.method.layers, server.placement, server.net.short)
        present, sums, _ = self.up_to_last(server, clients, steps, saved=True)
        kept = clients.call(self.method.keep_changed, per_client=named(clients, sums, present),
                            expect=None)
        graph.held.end(graph.changed, server.net.tells_states)
        if len(kept.names) < len(clients.names):
            graph.held.forget()

    def step(self, server: Server, clients, ends: np.ndarray, labels: np.ndarray) -> None:
        """Make the step that one machine would make; see :meth:`Layerwise.step`.

        Rows that are not of the changed set are constants of the loss.
        """
        nodes, at = np.unique(ends, return_inverse=True)
        rows, steps, present = self.rows(server, clients, nodes, learn=True)
        rows = rows.to(self.method.where).requires_grad_()
        server.optimizer.zero_grad()
        server.net.descend(rows, at.reshape(ends.shape), labels)
        mine = torch.from_numpy(np.searchsorted(nodes, steps[-1].rows))
        gradient = rows.grad.cpu()[mine].numpy()        # type: ignore[union-attr]
        for found in self.gradients(server, clients, gradient, steps, present):
            for name, p in server.net.named_parameters():
                add = found[name].to(p.device)
                p.grad = add if p.grad is None else p.grad + add
        server.optimizer.step()

    def gradients(self, server: Server, clients, gradient: np.ndarray, steps: list[Step],
                  present: Sequence[str]) -> Any:
        """Carry the ``gradient`` [n, hidden] of a pass's last rows back through its layers.

        Return each client's gradients of the parameters.
        """
        method, place, net = self.method, server.placement, server.net
        given = divided(gradient, place.counts(steps[-1].rows))
        fixed = not net.short(0)                        # messages of layer 0 have no gradients
        for layer, step in reversed(list(enumerate(steps))[fixed:]):
            sizes = place.counts(step.border)
            sent = clients.call(method.back_changed, layer, per_client=named(clients, given,
                                                                             present),
                                expect=sized(method.precision, clients, sizes,
                                             net.message_width(layer)))
            present = sent.names
            of_sums = np.concatenate(filled(clients, sent, sizes))
            of_sent = np.zeros((len(step.sent), of_sums.shape[1]), of_sums.dtype)
            scatter(*step.cross, of_sums, of_sent)
            self.note(server, layer, len(step.border) + len(step.back))
            given = divided(of_sent[step.back], place.counts(step.sent[step.back]))
        return clients.call(method.rows_first_changed if fixed else method.first_changed,
                            per_client=named(clients, given, present), expect=tree.weights(net))


def divided(rows: np.ndarray, counts: np.ndarray) -> list[torch.Tensor]:
    """Return the rows of each client, given how many each has."""
    return [torch.from_numpy(r) for r in np.split(rows, np.cumsum(counts)[:-1])]


def by_client(place: Placement, nodes: np.ndarray) -> list[np.ndarray]:
    """Return the places int32 of ``nodes`` at each client; they are in the order of clients."""
    return np.split(place.place[nodes].astype(np.int32), np.cumsum(place.counts(nodes))[:-1])


def position_by_client(place: Placement, nodes: np.ndarray, chosen: np.ndarray) -> list[np.ndarray]:
    """Return by client the positions int32 among its ``nodes`` of those ``chosen``.

    ``nodes`` are in the order of clients, ``chosen`` are positions among them, ascending.
    """
    counts = place.counts(nodes)
    starts = np.cumsum(counts) - counts
    of = np.split(chosen, np.searchsorted(chosen, starts[1:]))
    return [(p - s).astype(np.int32) for p, s in zip(of, starts, strict=True)]
