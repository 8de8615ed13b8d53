"""Averages that a few false updates cannot move far: clip, median, trimmed mean, Krum.

``f`` is the number of clients whose updates may be anything (the field ``attackers``).

- *clip*: an update longer than the median norm is shortened to it, and weighs no more than the
  median weight
- *median*: of each number the median over clients (Yin et al., ICML 2018)
- *trimmed*: of each number the mean without the f largest and the f smallest (the same)
- *krum*: the update with the least sum of squared distances to its K - f - 2 nearest others
  (Blanchard et al., NeurIPS 2017); needs K >= 2 f + 3 clients

Rows of a table are merged among the clients that touched them. Where these are 2 f or fewer a rule
cannot tell who is right: each row is shortened to the median row norm, and they are averaged. Where
fewer clients answer in a round than a rule needs, it is clip.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import model_validator

from fedvine.core import tree
from fedvine.core.clients import Clients
from fedvine.core.errors import FedvineError
from fedvine.core.method import Field, Method

Rule = Literal["none", "clip", "median", "trimmed", "krum"]
Weights = dict[str, torch.Tensor]


class Robust(Method):
    """Base of methods whose server averages what clients send."""

    #: Whether the server averages, so that a rule applies.
    averages: ClassVar[bool] = True

    robust: Rule = Field(default="none", description="how updates are averaged: as they are; each "
                         "shortened to the median norm; the median of each number; its mean "
                         "without the largest and smallest; or the one update nearest to the "
                         "others")
    attackers: int = Field(default=1, ge=1, description="false updates that median, trimmed and "
                           "krum must bear, f; these need 2 f + 1, and krum 2 f + 3, clients; in "
                           "rounds in which fewer answer updates are clipped")

    @model_validator(mode="after")
    def _rule_applies(self) -> Robust:
        if self.robust == "none":
            return self
        if not self.averages:
            raise ValueError(f"{self.name} does not average updates one by one, so robust does not "
                             "apply; leave it out")
        if getattr(self, "secure", False):
            raise ValueError("secure sums hide single updates, so the server cannot apply robust = "
                             f'"{self.robust}"; choose one of secure = true and robust')
        return self

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
        if self.robust == "none":
            return tree.mean(sent.values(), weights)
        kept = [k for k, weight in enumerate(weights) if weight > 0]
        flat = torch.stack([tree.flattened(changes[n]) for n in sent])[kept]
        found = merged(flat, self.rule(clients, len(kept)), self.attackers,
                       np.asarray(weights, float)[kept])
        return tree.add(current, tree.unflattened(found, current))

    def bounded(self, trees: Iterable[Weights], around: Weights | None = None) -> list[Weights]:
        """Return what clients sent beside their updates, with a rule shortened to the median norm.

        Norms are those of the differences to ``around``, where that is given.
        """
        found = list(trees)
        if self.robust == "none" or not found:
            return found
        away = found if around is None else [tree.subtract(t, around) for t in found]
        flat = shortened(torch.stack([tree.flattened(t) for t in away]))
        parts = [tree.unflattened(row, like) for row, like in zip(flat, found, strict=True)]
        return parts if around is None else [tree.add(around, part) for part in parts]

    def rule(self, clients: Clients, count: int) -> Rule:
        """Return the rule for ``count`` updates: clip where they are fewer than the rule needs.

        Raises :class:`FedvineError` where the whole run has too few clients.
        """
        needed, there = least(self.robust, self.attackers), len(clients.everyone)
        if there < needed:
            raise FedvineError(f'robust = "{self.robust}" with attackers = {self.attackers} needs '
                               f"{needed} clients, and this run has {there}; choose another rule "
                               "or fewer attackers.")
        return self.robust if count >= needed else "clip"

    @staticmethod
    def note(clients: Clients, changes: Mapping[str, Weights]) -> None:
        """Let the status show the norms of updates, and which are far above the others."""
        clients.measured({n: float(tree.flattened(c).double().norm()) for n, c in changes.items()
                          if c})


def least(rule: str, f: int) -> int:
    """Return the fewest updates that a rule with ``f`` attackers is defined for."""
    return {"krum": 2 * f + 3, "median": 2 * f + 1, "trimmed": 2 * f + 1}.get(rule, 1)


def merged(rows: torch.Tensor, rule: str, f: int, weights: np.ndarray | None = None
           ) -> torch.Tensor:
    """Return the average [D] of updates [K, D] by a rule; K is at least :func:`least`.

    ``weights`` [K] above 0 count for "clip" alone: a weight is the client's own word.
    """
    if rule == "median":
        return middle(rows)
    if rule == "trimmed":
        return rows.sort(0).values[f:len(rows) - f].mean(0)
    if rule == "krum":
        return rows[int(krum(rows, f).argmin())]
    w = np.ones(len(rows)) if weights is None else np.minimum(weights, np.median(weights))
    return (shortened(rows) * torch.from_numpy(w / w.sum()).to(rows)[:, None]).sum(0)


def shortened(rows: torch.Tensor, most: float | torch.Tensor | None = None) -> torch.Tensor:
    """Return updates [..., D], none longer than ``most``; by default the median of their norms."""
    norms = rows.double().norm(dim=-1, keepdim=True)
    bound = middle(norms) if most is None else most
    return rows * (bound / norms.clamp(min=1e-300)).clamp(max=1).to(rows)


def middle(rows: torch.Tensor, axis: int = 0) -> torch.Tensor:
    """Return the median along an axis; of an even number the mean of both middle ones."""
    ordered, count = rows.sort(axis).values, rows.shape[axis]
    return (ordered.select(axis, (count - 1) // 2) + ordered.select(axis, count // 2)) / 2


def krum(rows: torch.Tensor, f: int) -> torch.Tensor:
    """Return the scores [K] of updates [K, D]: squared distances to the K - f - 2 nearest."""
    x = rows.double()
    apart = torch.stack([((x - one) ** 2).sum(1) for one in x])
    apart.fill_diagonal_(torch.inf)
    return apart.sort(1).values[:, :len(rows) - f - 2].sum(1)


def merged_rows(parts: Mapping[str, tuple[np.ndarray, torch.Tensor]], rule: str, f: int,
                scores: Mapping[str, float]) -> tuple[np.ndarray, torch.Tensor, np.ndarray]:
    """Merge rows of a table, each among the clients that touched it.

    Args:
        parts: by client, row numbers int32 [n], each once, and differences float32 [n, d].
        rule: not "none".
        f: attackers.
        scores: of :func:`krum`, by client; for that rule.

    Returns:
        Row numbers [R], differences float32 [R, d], and how many clients touched each, [R].
    """
    names = list(parts)
    number = np.concatenate([parts[n][0] for n in names])
    change = torch.cat([parts[n][1] for n in names])
    score = np.repeat([scores.get(n, 0.0) for n in names], [len(parts[n][0]) for n in names])
    order = np.lexsort((score, number))     # of a row: who is nearest to the others first
    rows, first, touching = np.unique(number[order], return_index=True, return_counts=True)
    norms = [parts[n][1].double().norm(dim=1) for n in names]
    usual = middle(torch.stack([middle(x[x > 0]) for x in norms if (x > 0).any()]
                               or [torch.tensor(0.0, dtype=torch.float64)]))
    found = torch.empty(len(rows), change.shape[1], dtype=change.dtype)
    for count in np.unique(touching):
        here = np.flatnonzero(touching == count)
        at = order[first[here][:, None] + np.arange(count)]
        block = change[torch.from_numpy(at)].transpose(0, 1)        # [count, rows, d]
        if count <= 2 * f:
            one = shortened(block, usual).mean(0)
        elif rule == "krum":
            one = block[0]
        elif rule == "clip":
            one = shortened(block).mean(0)
        else:
            one = merged(block, rule, f)
        found[torch.from_numpy(here)] = one
    return rows, found, touching
