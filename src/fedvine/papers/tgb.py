"""EdgeBank and ``fedlink_plus`` by TGB's protocol: an anchor that others published.

S. Huang et al., "Temporal Graph Benchmark for Machine Learning on Temporal Graphs", NeurIPS
2023 (arXiv:2307.01026); F. Poursafaei et al., "Towards Better Evaluation for Dynamic Link
Prediction", NeurIPS 2022. EdgeBank is for the pooled stream, without clients: if our reading of
the data, the tie rule and the bank are right, the four published numbers come out. What
``fedlink_plus`` has (:mod:`fedvine.papers.tgb_plus`) takes minutes and is kept in a file beside the
cells.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.data.spec import load
from fedvine.data.stream import EventStream
from fedvine.papers import tgb_plus
from fedvine.papers.study import Found, Study
from fedvine.results.comparison import COSTS
from fedvine.results.tables import Table, TableSet
from fedvine.tasks import metrics

PARTS = ("val", "test")
WINDOW = 0.15
#: The leaderboard of tgbl-wiki-v2 (package py-tgb 0.7.5 and later), MRR.
PUBLISHED = {"unlimited": {"val": 0.527, "test": 0.495}, "window": {"val": 0.600, "test": 0.571}}
_MOST = 200_000_000      # entries of the bank, 8 bytes each


def wiki() -> Study:
    """Make the study of tgbl-wiki-v2, which has no cells of experiments."""
    return Study("TGB, tgbl-wiki-v2", [], _page)


def _page(found: Found) -> TableSet:
    stream = load("wikipedia")
    rows, records = [], []
    for name, window in (("unlimited", None), ("window", WINDOW)):
        began = time.perf_counter()
        mrr = edgebank_mrr(stream, window)
        rows.append([f"EdgeBank, {name}", *(text for part in PARTS for text in (
            f"{PUBLISHED[name][part]:.3f}", f"{mrr[part]:.3f}"))])
        records.append({"method": f"edgebank ({name})", "data": stream.name, "seed": None,
                        "client": None, "scores": {f"mrr_{p}": mrr[p] for p in PARTS},
                        **dict.fromkeys(COSTS), "seconds_total": time.perf_counter() - began})
    table, more, notes = tgb_plus.table(stream, found.folder, COSTS, {
        step: edgebank_mrr(stream, None, 1 if step == "event" else step, last_met=True)
        for step in tgb_plus.STEPS})
    return TableSet([Table("TGB, tgbl-wiki-v2, MRR", ["method", *(
        f"{part}, {whose}" for part in PARTS for whose in ("leaderboard", "ours"))], rows), table],
        ["The protocol is TGB's, on the pooled stream, without clients; EdgeBank has nothing "
         "random, so the numbers must agree.", *notes], records + more)


STUDIES: dict[str, Callable[[], Study]] = {"tgb-wiki": wiki}


def edgebank_mrr(stream: EventStream, window: float | None = None, batch: int = 200,
                 last_met: bool = False) -> dict[str, float]:
    """Compute the MRR of EdgeBank: ``{"val": ..., "test": ...}``.

    ``window`` None: a pair is remembered for ever; 0.15 (``WINDOW``): for that share of the
    train part's duration. ``batch`` is the number of edges scored before they are remembered.
    ``last_met``: a remembered pair's score is not 1 but the later the newer it is.
    The protocol is that of tgbl-wiki-v2:

    - train is up to the 0.70 quantile of the times, validation up to the 0.85 quantile, test
      the rest; edges keep the order of the file.
    - The negatives of an edge are all other destinations of the stream, the same source and
      time; those which the source meets at just that time in the part are left out.
    - Batches are taken in order and start anew with each part. A batch is scored, then
      remembered; what train and validation taught stays.
    - The window ends at the newest time remembered, and both ends belong to it.
    - A pair scores 1 if it is remembered, else 0; the rank is the mean of the optimistic and
      the pessimistic one (:func:`fedvine.tasks.metrics.ranks`).

    Raises :class:`FedvineError` for a stream that is not bipartite, has too few times to be
    split, or more pairs of nodes than memory should hold.
    """
    _check(stream, window, batch)
    u, v, t = (np.asarray(column) for column in (stream.src, stream.dst, stream.t))
    first, second = np.quantile(t, [0.70, 0.85])
    ends = np.searchsorted(t, [first, second], side="right")
    rows = {"val": slice(ends[0], ends[1]), "test": slice(ends[1], len(t))}
    if not ends[0] or any(part.start == part.stop for part in rows.values()):
        raise FedvineError(f"{stream.name} has too few different times for a train, a validation "
                           "and a test part.")
    # When a pair was last met; exact for whole seconds up to 2^53.
    seen = np.full((stream.num_src, stream.num_dst), -np.inf)
    _remember(seen, u[:ends[0]], v[:ends[0]], t[:ends[0]])
    newest = float(t[ends[0] - 1])
    length = np.inf if window is None else window * (newest - float(t[0]))
    result = {}
    for part in PARTS:
        ranks, meets = [], _at_once(u[rows[part]], v[rows[part]], t[rows[part]], stream.num_dst)
        for start in range(rows[part].start, rows[part].stop, batch):
            take = slice(start, min(start + batch, rows[part].stop))
            held = seen[u[take]]
            score = ((held > -np.inf) & (held >= newest - length)).astype(float)
            if last_met:
                score[score > 0] += held[score > 0] - float(t[0])
            own = score[np.arange(len(score)), v[take]]
            # What is left out ranks below everything, and so counts neither above nor as a tie.
            score[meets(take.start - rows[part].start, len(score))] = -1
            ranks.append(metrics.ranks(own, score))
            _remember(seen, u[take], v[take], t[take])
            newest = float(t[take.stop - 1])
        result[part] = metrics.mrr(np.concatenate(ranks))
    return result


def _check(stream: EventStream, window: float | None, batch: int) -> None:
    if not stream.bipartite:
        raise FedvineError(f"{stream.name} is not bipartite, and the protocol of tgbl-wiki is for "
                           "users and pages.")
    if stream.num_src * stream.num_dst > _MOST:
        raise FedvineError(f"{stream.name} has {stream.num_src:,} x {stream.num_dst:,} pairs; the "
                           f"bank holds {_MOST:,} at most, take a smaller stream.")
    if (window is not None and not 0 < window <= 1) or batch < 1 or not len(stream):
        raise FedvineError("The window is a share above 0 and up to 1, a batch holds an edge or "
                           "more, and the stream too.")


def _remember(seen: np.ndarray, u: np.ndarray, v: np.ndarray, t: np.ndarray) -> None:
    seen[u, v] = t     # later edges come later: of a repeated pair the last assignment stays


def _at_once(u: np.ndarray, v: np.ndarray, t: np.ndarray, width: int):
    """Return a function that finds what the sources of edges meet at the edges' own times.

    Its arguments are the first edge and the number of edges; it returns bool [edges, width], True
    for the destinations that are met.
    """
    order = np.lexsort((t, u))
    new = np.ones(len(u), bool)
    new[1:] = (u[order][1:] != u[order][:-1]) | (t[order][1:] != t[order][:-1])
    group = np.empty(len(u), np.int64)
    group[order] = np.cumsum(new) - 1
    begin = np.append(np.flatnonzero(new), len(u))

    def meets(start: int, count: int) -> np.ndarray:
        found = np.zeros((count, width), bool)
        for i, g in enumerate(group[start:start + count]):
            found[i, v[order[begin[g]:begin[g + 1]]]] = True
        return found
    return meets
