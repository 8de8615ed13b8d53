"""Means over clients: as they are, by a rule that false updates cannot move far, or under masks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import Field, model_validator

from fedvine.aggregate.aggregate import Aggregate, Kind, Sum
from fedvine.aggregate.noise import from_fixed, to_fixed
from fedvine.aggregate.rules import Rule, least, merged, shortened
from fedvine.core import tree
from fedvine.core.clients import Clients
from fedvine.core.errors import FedvineError
from fedvine.core.expect import LARGEST_WEIGHT, Number
from fedvine.core.method import Client
from fedvine.core.replies import Replies

Weights = dict[str, torch.Tensor]
SIZE = Number(0, 2 ** 53, whole=True)


class Combined(NamedTuple):
    """The result of ``clients.mean``: the mean, who is in it, and the replies; None if hidden."""

    value: Weights
    names: tuple[str, ...]
    replies: Replies | None


class Means(Aggregate):
    """Means as they are, with nothing to choose."""

    @property
    def by(self) -> Rule:
        """Return the rule of means."""
        return "mean"

    @property
    def bears(self) -> int:
        """Return how many false updates the rule bears, f."""
        return 1

    def mean(self, clients: Clients, function: Callable[..., Any], *same: Any, around: Weights,
             more: Mapping[str, Any] | None = None, **options: Any) -> Combined:
        """Compute the mean of the models that ``function`` returns, weighted by their sizes N_k.

        Args:
            clients: to call.
            function: a client function that returns ``{"model": tree, "size": N_k}``.
            *same: its arguments, the same for all clients.
            around: the model that clients began with, and the mean where all sizes are 0.
            more: statements of further entries of the replies.
            **options: ``per_client``, ``only`` and ``once`` of ``clients.call``.

        Returns:
            The mean by the rule, who answered, and the replies.
        """
        sent = clients.call(function, *same, **options,
                            expect={"model": around, "size": SIZE, **(more or {})})
        return Combined(self.averaged(clients, sent, around), sent.names, sent)

    def averaged(self, clients: Clients, sent: Replies, around: Weights) -> Weights:
        """Compute the mean of the replies ``{"model": tree, "size": N_k, ...}`` as :meth:`mean`."""
        sizes = sent.each("size")
        models = {name: reply["model"] for name, reply in sent.items()}
        return self.average(clients, models, around, sizes) if sum(sizes) else around

    def average(self, clients: Clients, sent: Mapping[str, Weights], current: Weights,
                weights: Sequence[float]) -> Weights:
        """Return the average of the models ``sent`` by the rule; their norms go to the status.

        Args:
            clients: of the run.
            sent: models by client name.
            current: the model that clients began with.
            weights: of each model, at least 0; with 0 a model does not count.

        Returns:
            A model.

        Raises:
            FedvineError: where a run has fewer clients than the rule needs.
        """
        changes = {name: tree.subtract(model, current) for name, model in sent.items()}
        self.note(clients, changes)
        if self.by == "mean":
            return tree.mean(sent.values(), weights)
        kept = [k for k, weight in enumerate(weights) if weight > 0]
        flat = torch.stack([tree.flattened(changes[n]) for n in sent])[kept]
        found = merged(flat, self.rule_for(clients, len(kept)), self.bears,
                       np.asarray(weights, float)[kept])
        return tree.add(current, tree.unflattened(found, current))

    def bounded(self, trees: Iterable[Weights], around: Weights | None = None) -> list[Weights]:
        """Return what clients sent beside their updates, with a rule shortened to the median norm.

        Norms are those of the differences to ``around``, where that is given.
        """
        found = list(trees)
        if self.by == "mean" or not found:
            return found
        away = found if around is None else [tree.subtract(t, around) for t in found]
        flat = shortened(torch.stack([tree.flattened(t) for t in away]))
        parts = [tree.unflattened(row, like) for row, like in zip(flat, found, strict=True)]
        return parts if around is None else [tree.add(around, part) for part in parts]

    def rule_for(self, clients: Clients, count: int) -> Rule:
        """Return the rule for ``count`` updates: clip where they are fewer than the rule needs.

        Raises :class:`FedvineError` where the whole run has too few clients.
        """
        needed, there = least(self.by, self.bears), len(clients.everyone)
        if there < needed:
            raise FedvineError(f'aggregate.rule = "{self.by}" with attackers = {self.bears} needs '
                               f"{needed} clients, and this run has {there}; choose another rule "
                               "or fewer attackers.")
        return self.by if count >= needed else "clip"

    @staticmethod
    def note(clients: Clients, changes: Mapping[str, Weights]) -> None:
        """Let the status show the norms of updates, and which are far above the others."""
        clients.measured({n: float(tree.flattened(c).double().norm()) for n, c in changes.items()
                          if c})


class Mean(Means):
    """Means by a rule that a few false updates cannot move far."""

    rule: Rule = Field(default="mean", description="how updates are averaged: as they are; each "
                       "shortened to the median norm; the median of each number; its mean without "
                       "the largest and smallest; or the one update nearest to the others")
    attackers: int = Field(default=1, ge=1, description="false updates that median, trimmed and "
                           "krum must bear, f; these need 2 f + 1, and krum 2 f + 3, clients; in "
                           "rounds in which fewer answer updates are clipped")

    @property
    def by(self) -> Rule:
        """Return the rule of means."""
        return self.rule

    @property
    def bears(self) -> int:
        """Return how many false updates the rule bears, f."""
        return self.attackers


class NeighbourSums(Mean):
    """Means by a rule, and sums over neighbours that the server hands out, guarded."""

    min_group: int = Field(default=1, ge=1, description="withhold sums that reveal fewer "
                           "neighbours: alone, by their difference to the last one, or to a client "
                           "that knows a part of them")
    blur: float = Field(default=0.0, ge=0, description="standard deviation of Gaussian noise on "
                        "sums, in units of the root mean square of what clients sent; nothing is "
                        "accounted")


class Either(Mean, Sum):
    """Means and sums by a rule against false updates, or under masks."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Either:
        if self.rule != "mean" and self.secure:
            raise ValueError("secure sums hide single updates, so the server cannot apply rule = "
                             f'"{self.rule}"; choose one of secure = true and rule')
        return self

    def mean(self, clients: Clients, function: Callable[..., Any], *same: Any, around: Weights,
             more: Mapping[str, Any] | None = None, **options: Any) -> Combined:
        """Compute the mean as :meth:`Means.mean` does; under masks it is of all clients.

        A sum of the clients that a server names could be one client's. A function without
        ``combined`` sends its model in the clear.
        """
        if not self.secure or not function.__combined__:        # type: ignore[attr-defined]
            return super().mean(clients, function, *same, around=around, more=more, **options)
        if set(options.get("only") or clients.names) != set(clients.names):
            raise FedvineError("secure sums are of all clients, as a sum of those that the server "
                               "names could be one client's; leave out method.fraction.")
        total, names = self.sum(clients, function, *same,
                                length=1 + sum(p.numel() for p in around.values()))
        found = torch.from_numpy(from_fixed(total))                 # sum_k N_k Theta^k, N
        count, mean = float(found[-1]), (found[:-1] / found[-1]).float()
        # What no honest clients add up to stays out: under masks nobody sees whose it is, and the
        # clients could not put N_k times it into the next sum.
        if not (count > 0 and mean.abs().max() <= min(LARGEST_WEIGHT, 2.0**30 / count)):
            return Combined(around, names, None)
        return Combined(tree.unflattened(mean, around), names, None)

    def leaving(self, client: Client, kind: Kind, reply: Any) -> Any:
        """Return N_k Theta^k and N_k as a vector under masks; without them the model.

        A model of fewer than ``grain`` labelled nodes stays at the client.
        """
        if kind == "mean":
            if not self.enough(reply["size"]):
                client.sums["stays"] = reply["size"]
                reply = {**reply, "model": tree.map_tree(torch.zeros_like, reply["model"]),
                         "size": 0}
            if not self.secure:
                return reply
            size = reply["size"]
            model = tree.flattened(reply["model"]).double().numpy()
            reply = to_fixed(np.append(model * size, size))
        return super().leaving(client, kind, reply)
