"""FedLink's dynamic stochastic block model: users with changing tastes that travel among regions.

Source: Y. Yao, X. Fan, R. Rossi, S. Kim, H. Zhao, T. Yu, C. Joe-Wong, "Federated Link Prediction on
Dynamic Graphs", Appendix B.1, after E. Abbe, JMLR 18(177), 2018. There nodes of one kind form one
graph and do not travel; users and items, regions and journeys are added here, as Section 3 of the
paper describes them in words.

Each of G regions has n users of its own and m items of its own. Time goes in steps s = 0, 1, ...,
and

- user u is of community Y_u(s), one of K, evenly at first. From step to step it stays with
  probability 1 - epsilon (``drift``), else it becomes each of the other K - 1 alike: P[Y(s) = Y(s -
  a)] = 1/K + (1 - 1/K) (1 - epsilon K/(K - 1))^a.
- user u is in region R_u(s), at first its own. From step to step it stays with probability 1 - tau
  (``travel``), else it goes to each of the other G - 1 alike; it takes its community along.
- item j of a region is of community j mod K, for ever, and never moves.
- a user who is in region g and an item of g get a Poisson number of edges in step s, alpha_g in the
  mean where their communities are the same, else mu alpha_g (``mix``), at times even in [s, s + 1).
  The paper draws one edge or none with these probabilities, the same where they are small; edges
  that arrive in continuous time, as in its Section 3, may come twice in a step.

``rate`` is lambda_g, the edges that are expected a step in region g, and gives alpha_g = lambda_g K
/ (n m (1 + (K - 1) mu)). As n users belong to each region it is the same however much they travel.
The size of a buffer is the method's ``capacity``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.core.rng import rng
from fedvine.data.ids import Ids
from fedvine.data.node_data import NodeData
from fedvine.data.stream import EventStream

SPLIT: dict = {"by": "region"}
STAGES: str | int = "6"


def load(folder: Path | None = None, *, regions: int = 3, users: int = 200, items: int = 100,
         communities: int = 5, steps: int = 60, rate: float | Sequence[float] = 400.0,
         drift: float = 0.02, travel: float = 0.01, mix: float = 0.1,
         seed: int = 0) -> EventStream:
    """Return the stream: ``src``, ``dst``, ``t`` (float64, steps), code ``region``, and ``nodes``.

    ``nodes`` has each user's community from each change on. User u is called u and belongs to
    ``region-(u // n + 1)``, item j of region 2 is called ``2-j``. Nothing is kept on disk.

    Args:
        folder: must be None.
        regions: their number G, at least 1.
        users: users a region, n, at least 1.
        items: items a region, m, at least 1.
        communities: their number K, at least 2.
        steps: number of steps; fewer give the beginning of the same stream.
        rate: expected edges a step, one number for all regions or one for each, above 0.
        drift: probability of another community, 0 to (K - 1)/K.
        travel: probability of another region, 0 to (G - 1)/G.
        mix: edges between two communities relative to those within one, 0 to 1.
        seed: of all draws.

    Returns:
        The stream, in order of time.

    Raises:
        FedvineError: for numbers that the model does not allow.
    """
    if folder is not None:
        raise FedvineError("The data set synthetic is drawn and has no files; leave out folder.")
    _check(regions, users, items, communities, steps, drift, travel, mix)
    rates = np.full(regions, rate, float) if np.ndim(rate) == 0 else np.asarray(rate, float)
    if rates.shape != (regions,) or not (np.isfinite(rates).all() and (rates > 0).all()):
        raise FedvineError(f"rate of synthetic must be a number above 0 or {regions} of them, "
                           "one for each region.")
    alpha = rates * communities / (users * items * (1 + (communities - 1) * mix))
    draw = rng(seed, "synthetic", "start")
    home = np.repeat(np.arange(regions), users)
    kind, place = draw.integers(0, communities, len(home)), home.copy()
    edges, known = [], [(np.arange(len(home)), np.zeros(len(home)), kind.copy())]
    for step in range(steps):
        draw = rng(seed, "synthetic", step)
        if step:
            moved = _moved(kind, drift, communities, draw)
            _moved(place, travel, regions, draw)
            known.append((moved, np.full(len(moved), float(step)), kind[moved]))
        for region in range(regions):
            here = np.flatnonzero(place == region)
            user, item = _pairs(here, kind, items, communities, alpha[region], mix, draw)
            edges.append((user, item + region * items, step + draw.random(len(user)),
                          np.full(len(user), region)))
    src, dst, t, code = (np.concatenate(column) for column in zip(*edges, strict=True))
    who, since, taste = (np.concatenate(column) for column in zip(*known, strict=True))
    order = np.argsort(t, kind="stable")
    names = [f"region-{g + 1:0{len(str(regions))}d}" for g in range(regions)]
    return EventStream(
        src[order].astype(np.int32), dst[order].astype(np.int32), t[order],
        Ids.of(np.arange(len(home))),
        Ids.of(f"{g + 1}-{j}" for g in range(regions) for j in range(items)),
        codes={"region": code[order].astype(np.int32)}, categories={"region": names},
        nodes=NodeData.make(who, since, taste, [f"community-{k + 1}" for k in range(communities)]),
        name="synthetic")


def _moved(state: np.ndarray, probability: float, states: int,
           draw: np.random.Generator) -> np.ndarray:
    """Make one step of the Markov chain in place; return the places that changed."""
    who = np.flatnonzero(draw.random(len(state)) < probability)
    state[who] = (state[who] + draw.integers(1, max(states, 2), len(who))) % states
    return who


def _pairs(here: np.ndarray, kind: np.ndarray, items: int, communities: int, alpha: float,
           mix: float, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw the users and items of a region's edges in one step.

    Each pair gets candidates at the rate ``alpha``; one between two communities stays with
    probability ``mix``.
    """
    count = draw.poisson(len(here) * items * alpha)
    user = here[draw.integers(0, max(len(here), 1), count)]
    item = draw.integers(0, items, count)
    stays = (kind[user] == item % communities) | (draw.random(count) < mix)
    return user[stays], item[stays]


def _check(regions: int, users: int, items: int, communities: int, steps: int, drift: float,
           travel: float, mix: float) -> None:
    for name, count, least in (("regions", regions, 1), ("users", users, 1), ("items", items, 1),
                               ("communities", communities, 2), ("steps", steps, 1)):
        if count < least:
            raise FedvineError(f"{name} of synthetic must be at least {least}, not {count}.")
    for name, value, most in (("drift", drift, 1 - 1 / communities),
                              ("travel", travel, 1 - 1 / regions), ("mix", mix, 1)):
        if not 0 <= value <= most:
            raise FedvineError(f"{name} of synthetic must be from 0 to {most:g}, not {value}.")
