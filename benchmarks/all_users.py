"""Forecasts of all users of a client: milliseconds a user and core, ten items each.

Purchases of 20,000 users of 3,000 items, 400,000 of them in 20 stages, two thirds among 40 items
of the user's own; a run of ``fedlink_plus``, then the likeliest of all items for 2,000 users, in
this process. "ours" takes the shorter way for all items of a user, "other" scores pair by pair;
the largest difference of a score is checked. With amounts each purchase has a weight, too. The
floor is sorting as many scores.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from fedvine.core.rng import rng

USERS, ITEMS, OWN, EDGES, ASKED, STAGES = 20_000, 3_000, 40, 400_000, 2_000, 20
GOAL = 0.3      # ms


def measure() -> list[dict[str, Any]]:
    """Milliseconds a user, without and with amounts."""
    return [_measured(amounts) for amounts in (False, True)]


def _measured(amounts: bool) -> dict[str, Any]:
    import pandas

    import fedvine
    from fedvine.experiments.forecasts import Forecasts
    from fedvine.experiments.run import run
    from fedvine.methods._fedlink_plus import scoring
    from fedvine.methods.fedlink_plus import FedLinkPlus
    draw = rng("all users bench")
    user = (USERS * draw.random(EDGES) ** 1.5).astype(int)
    taste = (ITEMS * rng("tastes").random((USERS, OWN)) ** 2).astype(int)
    item = np.where(draw.random(EDGES) < 2 / 3, taste[user, draw.integers(0, OWN, EDGES)],
                    (ITEMS * draw.random(EDGES) ** 2).astype(int))
    frame = pandas.DataFrame({"user": user, "item": item, "at": np.arange(EDGES) * 60.0,
                              "amount": draw.lognormal(0, 1, EDGES)})
    stream = fedvine.from_frame(frame, src="user", dst="item", time="at", sure=True,
                                weight="amount" if amounts else None)
    made = run(FedLinkPlus(rounds=3, check=False), stream.split("hash", k=1),
               stream.by_count(EDGES // STAGES), workers=1)
    made.finish()
    asked, (name, part) = Forecasts(made), next(iter(Forecasts(made).parts.items()))
    users = np.sort(draw.permutation(part.num_src)[:ASKED])
    list(asked.blocks(name, users[:50], 10))            # compiled, and lists are made
    found, usual = {}, scoring.LEAST
    for way, least, some in (("ours", usual, users), ("other", 10 ** 9, users[::10])):
        scoring.LEAST = least
        try:
            began = time.process_time()
            best = list(asked.blocks(name, some, 10))
            found[way] = 1e3 * (time.process_time() - began) / len(some)
            found[f"{way} scores"] = np.concatenate([block.score for block in best])
        finally:
            scoring.LEAST = usual
    apart = np.abs(found["ours scores"][::10] - found["other scores"]).max()
    if apart > 1e-5:
        raise RuntimeError(f"scores of the two ways differ by {apart:.2g}")
    scores, began = np.random.default_rng(0).random(part.num_dst), time.process_time()
    for _ in range(100):
        np.argsort(scores, kind="stable")
    return {"name": f"{part.num_dst:,} items{', amounts' * amounts}: ms a user",
            "ours": found["ours"], "other": found["other"], "ratio": found["ours"] / found["other"],
            "floor": 10 * (time.process_time() - began), "goal": f"at most {GOAL}"}
