"""Choose the pages that each region should cache for tomorrow (FedLink, Appendix D.2).

Every region keeps the visits of its own users. FedLink learns from all regions; then each region
asks it how likely its users of today are to visit each page, adds these chances up to expected
visits, and caches the pages with most of them. Caching by what was visited so far stands beside it.

    FEDVINE_DATA=... python examples/pages_to_cache.py

takes the edits of Wikipedia (data set ``wikipedia``) as visits. Nobody says where these users are,
so they are dealt to five regions by their number. Each of the last three days is foretold by a
run that ends the evening before. About half a minute.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import numpy as np

import fedvine as fv

PAGES = 50      # that a region caches


def regions(stream: fv.EventStream, count: int = 5) -> fv.EventStream:
    """The stream with a column ``region``; users are dealt to the regions in turn."""
    return fv.EventStream(
        stream.src, stream.dst, stream.t, stream.src_ids, stream.dst_ids, name=stream.name,
        codes={"region": (np.asarray(stream.src) % count).astype(np.int32)},
        categories={"region": [f"region {i + 1}" for i in range(count)]})


def expected_visits(run: fv.Run, region: str) -> np.ndarray:
    """How many visits each page [num_dst] may expect in a day like the last one of the run.

    FedLink tells the pages that were visited from pages drawn evenly, so that the chance that a
    visit of a user goes to a page is proportional to exp(score). A user who made n visits today
    is taken to make n tomorrow.
    """
    part, plan = run.parts[region], run.plan
    users, visits = np.unique(plan.stage(part, len(plan) - 1).src, return_counts=True)
    pages = np.arange(part.num_dst)
    pairs = {"src": np.repeat(users, len(pages)), "dst": np.tile(pages, len(users)),
             "t": np.full(len(users) * len(pages), plan.bounds[-1])}
    score = np.asarray(run.ask(region, pairs), float).reshape(len(users), len(pages))
    chance = np.exp(score - score.max(axis=1, keepdims=True, initial=-np.inf))
    return visits @ (chance / chance.sum(axis=1, keepdims=True))


def caches(run: fv.Run, region: str, size: int) -> dict[str, list[str]]:
    """The ``size`` pages that each way would cache, by name."""
    part, plan = run.parts[region], run.plan
    last = np.zeros(part.num_dst)
    last[np.asarray(part.dst)] = np.arange(len(part))       # the rank of a page's last visit
    today = plan.stage(part, len(plan) - 1)
    worth = {"expected visits (FedLink)": expected_visits(run, region),
             "most visited so far": np.bincount(part.dst, minlength=part.num_dst),
             "most visited today": np.bincount(today.dst, minlength=part.num_dst),
             "most recently visited": last}
    return {way: [part.dst_ids[int(i)] for i in np.argsort(-value, kind="stable")[:size]]
            for way, value in worth.items()}


def hit_rates(stream: fv.EventStream, every: str | float = "1d", days: int = 3,
              size: int = PAGES, rounds: int = 2) -> list[dict[str, float]]:
    """For each of the last ``days`` stages: the share of visits that were cached, by way."""
    plan, found = stream.by_time(every), []
    for day in range(len(plan) - days, len(plan)):
        known = stream.before(plan.bounds[day])             # nothing of the day itself
        run = fv.run(fv.FedLink(rounds=rounds, capacity=1000), known.split(by="region"),
                     plan.cut(day), protocol=fv.LinkPrediction(negatives=1, positives=100)).finish()
        coming, hits = plan.stage(stream, day), defaultdict(int)
        for number, region in enumerate(stream.categories["region"]):
            own = coming.dst[coming.codes["region"] == number]
            pages, visits = np.unique([stream.dst_ids[int(i)] for i in own], return_counts=True)
            for way, cached in caches(run, region, size).items():
                hits[way] += int(visits[np.isin(pages, cached)].sum())
            hits["the best, known afterwards"] += int(np.sort(visits)[::-1][:size].sum())
        found.append({way: count / len(coming) for way, count in hits.items()})
    return found


def main() -> None:
    """Print the hit rates on the last days of Wikipedia."""
    if not Path(os.environ.get("FEDVINE_DATA", "")).joinpath("temporal/wikipedia").is_dir():
        print("Skipped: FEDVINE_DATA names no folder that holds temporal/wikipedia.")
        return
    found = hit_rates(regions(fv.load("wikipedia")))
    print(f"Share of visits whose page was in their region's cache of {PAGES} pages,\n"
          f"on each of the last {len(found)} days:\n")
    for way in found[0]:
        print(f"{way:28}", *(f"{hit[way]:7.3f}" for hit in found))


if __name__ == "__main__":
    main()
