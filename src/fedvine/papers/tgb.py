"""EdgeBank and ``fedlink_plus`` by TGB's protocol: an anchor that others published.

S. Huang et al., "Temporal Graph Benchmark for Machine Learning on Temporal Graphs", NeurIPS
2023 (arXiv:2307.01026); F. Poursafaei et al., "Towards Better Evaluation for Dynamic Link
Prediction", NeurIPS 2022. EdgeBank is for the pooled stream, without clients: if our reading of
the data, the tie rule and the bank are right, the four published numbers come out. What
``fedlink_plus`` has takes minutes and is kept in a file beside the cells.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.core.method import At
from fedvine.core.refresh import batches
from fedvine.core.state import Client
from fedvine.data.identity import digest
from fedvine.data.plan import Plan
from fedvine.data.spec import load
from fedvine.data.split import relabel
from fedvine.data.stream import EventStream
from fedvine.engines.local import LocalClients
from fedvine.experiments.prepare import prepare
from fedvine.methods.fedlink_plus import FedLinkPlus
from fedvine.papers.study import Found, Study
from fedvine.partitions.hash import _assigned
from fedvine.results.cells import kept_beside
from fedvine.results.comparison import COSTS
from fedvine.results.tables import Table, TableSet
from fedvine.tasks import metrics
from fedvine.tasks.link_prediction import EdgeQueries, LinkPrediction

# -- ``fedlink_plus`` under the protocol of tgbl-wiki, pooled and with clients that hold users -----
# The protocol is that of :func:`fedvine.papers.tgb.edgebank_mrr`: each event of the validation and
# the test part against all other pages, without those that its user meets at the same time. Stages
# are whole batches of about a day. Weights are learned in the train part alone; later stages are
# counted, and clients exchange counts, but no weight changes.
# In batches of 200 an answer knows the events before its batch, which all clients begin together.
# Event by event it knows the events strictly before its own time. What a client knows of other
# clients' events it knows from stages that ended.
# Users are hashed to clients. All pages are public: a client knows their names, and their counts at
# other clients, from the stage on in which a page was first met.
DAY = 86400.0
CHUNK = 64          # events whose candidates are scored at a time

Step = Literal["event"] | int
CLIENTS = (1, 5)
STEPS: tuple[Step, ...] = ("event", 200)
KEPT = "tgb-wiki.json"
#: Test MRR that others report for tgbl-wiki, with what an answer knows.
RANKED = (("race_link", "event by event", 0.835), ("smoothed counts", "event by event", 0.828),
             ("TPNet", "event by event", 0.827), ("DyGFormer", "event by event", 0.798),
             ("smoothed counts", "batches of 200", 0.741),
             ("last met heuristics", "batches of 200", 0.729))
GOALS = {"fedlink_plus, pooled, event": 0.83, "fedlink_plus, pooled, 200": 0.75,
         "fedlink_plus, 5 clients, event": 0.80}


def settings(step: Step, clients: int) -> dict[str, Any]:
    """Return the fields of the method, chosen on the validation part, event by event.

    All pairs weigh 1, as in the score. More edges, more neighbours and less ridge were better than
    the last line when pooled; with several clients they were not tried.
    """
    usual = {"fresh": step, "negatives": 24, "stages": 20, "fade": 1.0, "new": 1.0}
    if clients == 1:
        return usual | {"sampled": 4000, "ridge": 0.1, "near": 512}
    return usual | {"sampled": 2000 // clients, "ridge": 0.3}


def plus_table(stream: EventStream, folder: str | Path, costs: Iterable[str],
          last_met: Mapping[Step, Mapping[str, float]]
          ) -> tuple[Table, list[dict[str, Any]], list[str]]:
    """Return the table of ours beside published numbers, its records, and its notes.

    Results are read from :data:`KEPT` where cells of ``folder`` are kept, if the stream and the
    settings are the same; else they are computed and written there.
    """
    file = kept_beside(folder) / KEPT
    kept = json.loads(file.read_text()) if file.exists() else {}
    data = {"edges": len(stream), "digest": digest(stream)}
    rows: list[list[str]] = []
    records = []
    for clients in CLIENTS:
        for step in STEPS:
            name = f"fedlink_plus, {'pooled' if clients == 1 else f'{clients} clients'}"
            line, used = f"{name}, {step}", {"clients": clients, **data, **settings(step, clients)}
            if kept.get(line, {}).get("settings") != used:
                began = time.process_time()
                found = plus_mrr(stream, step, clients)
                kept[line] = {"settings": used, **{k: round(x, 6) for k, x in found.items()},
                              "seconds_cpu": round(time.process_time() - began, 1)}
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(kept, indent=1) + "\n")
            one = kept[line]
            rows.append([name, _said(step), f"{one['val']:.3f}", f"{one['test']:.3f}", "here"])
            records.append({"method": line, "data": stream.name, "seed": 0, "client": None,
                            "scores": {"mrr_val": one["val"], "mrr_test": one["test"]},
                            **dict.fromkeys(costs), "seconds_cpu": one["seconds_cpu"]})
    rows += [["last met first, pooled", _said(step), f"{one['val']:.3f}", f"{one['test']:.3f}",
              "here"] for step, one in last_met.items()]
    rows += [[name, known, "-", f"{score:.3f}", "published"] for name, known, score in RANKED]
    aims = ", ".join(f"{row} {goal}" for row, goal in GOALS.items())
    goals = ", ".join(
        f"{name} {score - goal:+.3f}" for name, goal, score in (
            (row, GOALS[row], kept[row]["test"]) for row in GOALS))
    return Table("tgbl-wiki, all pages as negatives, MRR", [
        "method", "what an answer knows", "val", "test", "source"], rows), records, [
        "fedlink_plus: weights are learned in the train part alone, once a day on a sample of "
        "its events; later events are counted. Settings were chosen on the validation part, "
        "pooled and event by event; those of five clients were not searched. Event by event "
        "an answer knows the client's own events strictly before its time; in batches those "
        "before its batch. With five clients users are divided by hash, all pages are "
        "candidates everywhere, and counts of pages travel once a day.",
        "Published numbers are others' for tgbl-wiki. They were taken at second hand, not "
        "checked in the sources and not run here: TPNet (Lu et al., NeurIPS 2024), DyGFormer "
        "(Yu et al., NeurIPS 2023), last met heuristics (Cornell et al., arXiv:2502.04910), "
        "smoothed counts and race_link (no paper known). How often each lets events in is its "
        "own choice.",
        f"Against our goals ({aims}), test: {goals}. CPU seconds: " + ", ".join(
            f"{line} {one['seconds_cpu']:.0f}" for line, one in kept.items()) + "."]


def _said(step: Step) -> str:
    return "event by event" if step == "event" else f"batches of {step}"


def plus_mrr(stream: EventStream, step: Step, clients: int = 1, seed: int = 0, stage: float = DAY,
        **fields: Any) -> dict[str, float]:
    """Compute the MRR of ``fedlink_plus`` over all events of a part: ``{"val": ..., "test": ...}``.

    ``step`` is "event", or the number of events of a batch; users of ``clients`` are chosen by hash
    with ``seed``; ``stage`` is in seconds; ``fields`` replace those of :func:`settings`. Raises
    :class:`FedvineError` for a stream that is not bipartite or has too few different times.
    """
    t = np.asarray(stream.t)
    if not stream.bipartite or not len(t):
        raise FedvineError(f"{stream.name} needs edges between users and items.")
    ends = np.searchsorted(t, np.quantile(t, [0.70, 0.85]), side="right")
    if not 0 < ends[0] < ends[1] < len(t):
        raise FedvineError(f"{stream.name} has too few different times for a train, a validation "
                           "and a test part.")
    size = 1 if step == "event" else int(step)
    first = _batches(len(t), ends, size)
    plan = _plan(t, ends, first, stage)
    parts, rows = _parts(stream, clients, seed)
    method = FedLinkPlus(**settings(step, clients) | fields)
    world = prepare(method, plan, LinkPrediction(), parts, seed, parts=parts).world
    engine = LocalClients(method, parts, plan, LinkPrediction(), world)
    server = method.start(world)
    answer = method.answering(server)
    found: dict[str, list[np.ndarray]] = {"val": [], "test": []}
    for now in range(len(plan) - 1):
        R = method.rounds_at(now)
        at = At(now, 0, R)
        engine.begin(at)
        method.arrive(server, engine, at)
        for r in range(1, R + 1 if now < plan.val else 1):
            at = At(now, r, R)
            engine.begin(at)
            method.round(server, engine, at)
        if now < plan.val:
            answer = method.answering(server)
        if now + 1 >= plan.val:
            for name in world.clients:
                if world.since.get(name, 0) <= now:
                    found[plan.period(now + 1)].append(_ranks(
                        method, engine.workers[name].client, parts[name], answer,
                        first[rows[name]] if size > 1 else None, rows[name], plan, now + 1))
    return {part: metrics.mrr(np.concatenate(ranks)) for part, ranks in found.items()}


def _batches(events: int, ends: np.ndarray, size: int) -> np.ndarray:
    """Return the first event of each event's batch, int [E]; batches start anew with each part."""
    row = np.arange(events)
    begin = np.concatenate([[0], ends])[np.searchsorted(ends, row, side="right")]
    return begin + (row - begin) // size * size


def _plan(t: np.ndarray, ends: np.ndarray, first: np.ndarray, stage: float) -> Plan:
    """Cut at the beginnings of batches, about every ``stage`` seconds, and between the parts."""
    new = np.flatnonzero((first == np.arange(len(t))) & np.diff(t, prepend=-np.inf).astype(bool))
    bounds, parts = [float(t[0])], []
    for begin, stop in zip((0, *ends), (*ends, len(t)), strict=True):
        parts.append(len(bounds) - 1)
        for day in np.arange(t[begin] + stage, t[stop - 1], stage):
            k = np.searchsorted(new, np.searchsorted(t, day))
            if k < len(new) and new[k] < stop and t[new[k]] > bounds[-1]:
                bounds.append(float(t[new[k]]))
        bounds.append(float(t[stop]) if stop < len(t) else float(np.nextafter(t[-1], np.inf)))
    return Plan(tuple(bounds), parts[1], parts[2])


def _parts(stream: EventStream, clients: int, seed: int
           ) -> tuple[dict[str, EventStream], dict[str, np.ndarray]]:
    """Return parts, each with all items in the order first met, and their rows of the stream."""
    u, t = np.asarray(stream.src), stream.t
    v, items = relabel(np.asarray(stream.dst))
    owner = _assigned(stream.src_ids.keys(np.arange(stream.num_src)), clients, seed)[u]
    parts, rows = {}, {}
    for k in range(clients):
        name = f"client-{k + 1}"
        at = np.flatnonzero(owner == k)
        src, users = relabel(u[at])
        parts[name] = EventStream(src, v[at], t[at], stream.src_ids.take(users),
                                  stream.dst_ids.take(items), name=f"{stream.name}/{name}")
        rows[name] = at
    return parts, rows


def _ranks(method: FedLinkPlus, client: Client, part: EventStream, answer: tuple[Any, Any],
           first: np.ndarray | None, rows: np.ndarray, plan: Plan, stage: int) -> np.ndarray:
    """Return the ranks of a client's events of ``stage``, float64, among all items.

    A copy of the client's memory counts events as they come. ``first`` int [E] has the first event
    of the stream in the batch of each event; None: event by event.
    """
    copy = Client(client.name, client.world, client.secret)
    method.setup(copy)
    copy.load({**client.dump(), "samples": []})
    copy.past, copy.place = part, client.place
    t = np.asarray(part.t, float)
    begin, stop = np.searchsorted(t, [plan.bounds[stage], plan.bounds[stage + 1]])
    known, found = begin, []
    for upto, asked in _known(t, rows, first, begin, stop):
        if upto > known:
            method.refresh(copy, part[known:upto])
            known = upto
        for k in range(0, len(asked), CHUNK):
            found.append(_ranked(method, copy, part, asked[k:k + CHUNK], answer))
    return np.concatenate([*found, np.empty(0)])


def _known(t: np.ndarray, rows: np.ndarray, first: np.ndarray | None, begin: int, stop: int
           ) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (number of own events that are known, events that are answered then)."""
    if first is None:
        for count, index in batches(t[begin:stop], t[begin:stop], 1):
            yield begin + count, begin + index
        return
    for start in np.unique(first[begin:stop]):
        index = np.flatnonzero(first[begin:stop] == start) + begin
        yield int(np.searchsorted(rows, start)), index


def _ranked(method: FedLinkPlus, client: Client, part: EventStream, asked: np.ndarray,
            answer: tuple[Any, Any]) -> np.ndarray:
    items, u, v, t = part.num_dst, np.asarray(part.src), np.asarray(part.dst), np.asarray(part.t)
    queries = EdgeQueries(np.repeat(u[asked], items), np.tile(np.arange(items), len(asked)),
                          np.repeat(t[asked].astype(float), items))
    score = method.predict(client, *answer, None, queries).reshape(len(asked), items)
    own = score[np.arange(len(asked)), v[asked]]
    below = score.min() - 1
    for k, row in enumerate(asked):     # what the user meets at the same time ranks below all
        low, high = np.searchsorted(t, t[row]), np.searchsorted(t, t[row], side="right")
        score[k, v[low:high][u[low:high] == u[row]]] = below
    return metrics.ranks(own, score)


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
    table, more, notes = plus_table(stream, found.folder, COSTS, {
        step: edgebank_mrr(stream, None, 1 if step == "event" else step, last_met=True)
        for step in STEPS})
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
