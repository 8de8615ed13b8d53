"""Drift: sentences about a model that falls behind, and about clients whose data changed.

They are made of the scores of all stages, each measured before the stage was learned, with what
the clients measured beside them (``drift`` of a line, see :class:`Rivals`). Three
rules, each with a chance of about :data:`FALSE` for a false alarm at the newest stage of a
stationary series (independent normal values), however many clients and scores there are:

- a simple rival is ahead in the last three stages or more, on average by several standard errors;
- a score of the model lies below the interval in which the next value of its series is expected;
- a client's share of new users, items or pairs lies outside that interval.

The interval is that of Student's t for one more value of a normal series. A stage outside it does
not count as usual for those after it, until five in a row are; then they are the usual ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import special

from fedvine.core.lookup import find
from fedvine.data.stream import EventStream
from fedvine.tasks.shown import Lines, Score, furthest

if TYPE_CHECKING:
    from fedvine.tasks.link_scorer import EdgeQueries

FALSE = 0.02        # chance of a false alarm of a rule at a stage
BEFORE = 4          # stages that are needed to know what is usual
WINDOW = 12         # the last stages that count
BEHIND = 3          # stages in a row in which a rival is ahead
NEW_USUAL = 5       # stages in a row after which a change is the usual state
GAPS = {"rival": 0.005, "score": 0.02, "share": 0.05}   # smaller ones are not named
Line = Mapping[str, Any]
Named = Callable[[int], str]


class Points(NamedTuple):
    """A series: stages scored, and a value for each."""

    stages: list[int]
    values: list[float]


def newest(lines: Iterable[Line]) -> dict[int, dict[str, Line]]:
    """Return the lines with drift by scored stage and client.

    Where several stages are scored at a time, only those furthest ahead of the learned one count.
    """
    found: dict[int, dict[str, Line]] = {}
    for line in furthest([line for line in lines if "drift" in line]):
        found.setdefault(line["stage"], {})[line["client"]] = line
    return dict(sorted(found.items()))


def without(by: Mapping[int, Mapping[str, Line]], model: str) -> dict[int, dict[str, Line]]:
    """Return the lines without the rival that is the model itself."""
    return {stage: {client: {**line, "drift": {**line["drift"], "rivals": {
        name: scores for name, scores in line["drift"]["rivals"].items() if name != model}}}
        for client, line in here.items()} for stage, here in by.items()}


def keys(by: Mapping[int, Mapping[str, Line]], wanted: Sequence[str]) -> list[str]:
    """Return those of the wanted scores that both model and rivals have; else the first such."""
    known = list(dict.fromkeys(key for here in by.values() for line in here.values()
                               for rival in line["drift"]["rivals"].values() for key in rival))
    return [key for key in dict.fromkeys(wanted) if key in known] or known[:1]


def against(by: Mapping[int, Mapping[str, Line]], key: str) -> dict[str, tuple[Points, Points]]:
    """Return the model's and the rival's means over clients, by rival.

    Clients are weighted by their positives; only those that both have a score for count.
    """
    found: dict[str, tuple[Points, Points]] = {}
    for stage, here in by.items():
        for name in sorted({r for line in here.values() for r in line["drift"]["rivals"]}):
            both = [(line["scores"][key], line["drift"]["rivals"][name][key], _weight(line, key))
                    for line in here.values() if key in line["scores"]
                    and key in line["drift"]["rivals"].get(name, {})]
            total = sum(w for *_, w in both)
            if total:
                for points, at in zip(found.setdefault(name, (Points([], []), Points([], []))),
                                      (0, 1), strict=True):
                    points.stages.append(stage)
                    points.values.append(sum(pair[at] * pair[2] for pair in both) / total)
    return found


def _weight(line: Line, key: str) -> int:
    return line["n"].get(f"n_{key.rsplit('_', 1)[-1]}", line["n"]["n"])


def shares(by: Mapping[int, Mapping[str, Line]]) -> dict[tuple[str, str], tuple[Points, list[int]]]:
    """Return the shares of what is new, and the edges of each stage, by (client, what)."""
    found: dict[tuple[str, str], tuple[Points, list[int]]] = {}
    for stage, here in by.items():
        for client, line in here.items():
            for what, share in line["drift"]["new"].items():
                points, edges = found.setdefault((client, what), (Points([], []), []))
                points.stages.append(stage)
                points.values.append(share)
                edges.append(line["drift"]["edges"])
    return found


# -- the rules -------------------------------------------------------------------------------------
def behind(ours: Sequence[float], theirs: Sequence[float], chance: float = FALSE) -> int:
    """Return in how many stages up to the last one the rival is ahead; 0 where that is not sure.

    The standard error is that of successive differences, s^2 = mean of (d[i] - d[i - 1])^2 / 2
    (von Neumann 1941), without the one at which the rival came ahead: a change is no noise.
    """
    ahead = np.asarray(theirs, float) - np.asarray(ours, float)
    streak = len(ahead) if (ahead > 0).all() else int((ahead[::-1] <= 0).argmax())
    if streak < BEHIND or len(ahead) <= BEFORE:
        return 0
    steps = np.diff(ahead)
    steps = np.delete(steps, len(steps) - streak if streak < len(ahead) else [])[-WINDOW:]
    last = ahead[-min(streak, WINDOW):]
    error = np.sqrt((steps ** 2).mean() / 2 / len(last))
    far = special.stdtrit(2 / 3 * len(steps), 1 - chance)
    return streak if last.mean() >= max(GAPS["rival"], far * error) else 0


def unusual(values: Sequence[float], gap: float, chance: float = FALSE, below: bool = False,
            edges: Sequence[int] | None = None) -> tuple[int, float]:
    """Return how many of the last values are unusual (0: the last is not), and the usual mean.

    ``gap`` is the least distance from the mean that counts, ``chance`` that of a false alarm at a
    stage; ``below``: only lower values count; ``edges``: what each value is a share of, if it is
    one.
    """
    usual: list[float] = []
    out: list[float] = []
    for i, value in enumerate(values):
        base = np.asarray(usual[-WINDOW:])
        if len(base) >= BEFORE:
            mean, many = base.mean(), len(base)
            spread = base.std(ddof=1)
            if edges is not None:   # never less than that of drawing so many edges at random
                share = (mean * many + 1) / (many + 2)
                spread = max(spread, (share * (1 - share) / max(edges[i], 1)) ** 0.5)
            far = special.stdtrit(many - 1, 1 - (chance if below else chance / 2))
            off = mean - value if below else abs(mean - value)
            if off >= max(gap, far * spread * (1 + 1 / many) ** 0.5):
                out.append(value)
                if len(out) == NEW_USUAL:
                    usual, out = out, []
                continue
        usual, out = [*usual, value], []
    return len(out), float(np.mean(usual[-WINDOW:])) if usual else float("nan")


# -- the sentences ---------------------------------------------------------------------------------
def drift(lines: Iterable[Line], wanted: Sequence[str], names: Mapping[str, Score], model: str,
          named: Named = lambda stage: f"stage {stage + 1}") -> list[str]:
    """Return the sentences about the newest scored stage; none where nothing is to be said.

    They are about rivals, scores and clients. ``lines`` are of ``metrics.jsonl``, ``wanted`` the
    keys of the scores by which models are compared, ``names`` those of the scores, ``model`` is
    that of the method; ``named`` returns the name of a stage by its number.
    """
    by, found = without(newest(lines), model), []
    if not by:
        return []
    last, compared = max(by), keys(by, wanted)
    for key in compared:
        title = names[key].name if key in names else key
        rivals, worst = against(by, key), None
        for name, (ours, theirs) in rivals.items():
            streak = behind(ours.values, theirs.values, FALSE / len(compared) / len(rivals))
            if streak and ours.stages[-1] == last and (
                    worst is None or theirs.values[-1] > worst[2].values[-1]):
                worst = name, ours, theirs, streak
        if worst:
            name, ours, theirs, streak = worst
            found.append(f"Since {named(ours.stages[-streak])} {model} is below {name} by {title}: "
                         f"{_mean(ours, streak)} against {_mean(theirs, streak)}, {streak} stages "
                         "in a row.")
        for ours, _ in list(rivals.values())[:1]:
            many, usual = unusual(ours.values, GAPS["score"], FALSE / len(compared), below=True)
            if many and ours.stages[-1] == last:
                found.append(f"{title} of {model} is {ours.values[-1]:.3f} in {named(last)}, below "
                             f"the {usual:.3f} of the stages before{_since(ours, many, named)}.")
    clients = shares(by)
    for (client, what), (points, edges) in clients.items():
        many, usual = unusual(points.values, GAPS["share"], FALSE / len(clients), edges=edges)
        if many and points.stages[-1] == last:
            share = points.values[-1]
            found.append(f"Client {client}: {100 * share:.0f} % new {what} in {named(last)}, "
                         f"{'above' if share > usual else 'below'} the {100 * usual:.0f} % of the "
                         f"stages before{_since(points, many, named)}.")
    return found


def _mean(points: Points, many: int) -> str:
    return f"{np.mean(points.values[-many:]):.3f}"


def _since(points: Points, many: int, named: Named) -> str:
    return f" (since {named(points.stages[-many])})" if many > 1 else ""


def plots(lines: Iterable[Line], wanted: Sequence[str], names: Mapping[str, Score], model: str
          ) -> list[Lines]:
    """Return the plots of model and rivals, and of the share of new pairs; [] without drift."""
    by = without(newest(lines), model)
    if not by:
        return []
    found, axis = [], "stage scored before it was learned"
    for key in keys(by, wanted)[:1]:
        rivals = against(by, key)
        series = [(model, *ours) for ours, _ in list(rivals.values())[:1]]
        series += [(name, *theirs) for name, (_, theirs) in rivals.items()]
        found.append(Lines(f"{names[key].name if key in names else key}, all clients", axis, [
            (name, [s + 1 for s in stages], values) for name, stages, values in series],
            stages=True))
    clients = shares(by)
    kinds = list(dict.fromkeys(what for _, what in clients))
    what = "pairs" if "pairs" in kinds else kinds[0] if kinds else ""
    mine = [(client, [s + 1 for s in points.stages], [100 * v for v in points.values])
            for (client, kind), (points, _) in clients.items() if kind == what]
    if mine:
        top = max(value for *_, values in mine for value in values)
        found.append(Lines(f"new {what}, %", axis, mine, limits=(0, 1 + 1.1 * top), stages=True))
    return found


# -- simple rivals of a model of links, and how new a stage is to a client -------------------------
# A client computes both beside its own data, on the queries that the model answers. A few numbers
# travel with the scores.
DECAY = 0.5     # of a count from one stage to the next, the default of methods/popularity.py
TIES = 1e-6     # of popularity among pairs that met, as in methods/popularity.py


class Rivals:
    """The scores of EdgeBank, frequency, popularity and recency with their default constants.

    They are those of the methods of these names: ``methods/edgebank.py`` and
    ``popularity.py``. Pairs are kept as codes user * ``width`` + item.
    """

    def __init__(self, width: int) -> None:
        self.width, self.learned = width, 0                 # stages learned
        self.count = np.zeros(width)                        # of edges, by item
        self.pairs = np.empty(0, np.int64)                  # ascending, with ...
        self.last, self.often = np.empty(0), np.empty(0)    # ... last times, and counts

    def learn(self, events: EventStream) -> None:
        """Take in the edges of the next stage."""
        if events.deleted is not None:
            events = events.take(np.flatnonzero(~events.deleted))
        self.learned += 1
        self.count = DECAY * self.count + np.bincount(events.dst, minlength=self.width)
        codes, at, many = np.unique(events.src.astype(np.int64) * self.width + events.dst,
                                    return_inverse=True, return_counts=True)
        time = np.full(len(codes), -np.inf)
        np.maximum.at(time, at.reshape(-1), np.asarray(events.t, float))
        here = find(self.pairs, codes)
        old, new = here[here >= 0], here < 0
        self.last[old] = np.maximum(self.last[old], time[~new])
        self.often[old] += many[~new]
        place = np.searchsorted(self.pairs, codes[new])
        self.pairs = np.insert(self.pairs, place, codes[new])
        self.last = np.insert(self.last, place, time[new])
        self.often = np.insert(self.often, place, many[new])

    def scores(self, queries: EdgeQueries) -> dict[str, np.ndarray]:
        """Return the scores of each rival, float64 [Q]; higher is more likely."""
        at = find(self.pairs, queries.src * self.width + queries.dst)
        popularity = self.count[queries.dst]
        recency = frequency = popularity / (1 + self.count.max(initial=0))
        if len(self.last):
            first = self.last.min()
            when = (self.last - first) / max(self.last.max() - first, 1e-300)
            recency = np.where(at >= 0, 1 + when[at], recency)
            frequency = np.where(at >= 0, 1 + self.often[at] + TIES * frequency, frequency)
        return {"edgebank": (at >= 0).astype(float), "frequency": frequency,
                "popularity": popularity, "recency": recency}


def new_shares(events: EventStream, codes: np.ndarray, known: np.ndarray, users: np.ndarray,
               items: np.ndarray) -> dict[str, float]:
    """Return the shares of a stage's edges that are new to the client, in [0, 1]; {} without edges.

    ``codes`` int64 [E] are the edges', ``known`` sorted those of all stages before; ``users`` and
    ``items`` (or nodes of one kind) say which occur in these. Keys: ``users``, ``items``,
    ``pairs``; where nodes are of one kind ``nodes`` (ends that are new) and ``pairs``.
    """
    if not len(events):
        return {}
    pairs = {"pairs": float((find(known, codes) < 0).mean())}
    if events.bipartite:
        return {"users": float(1 - users[events.src].mean()),
                "items": float(1 - items[events.dst].mean()), **pairs}
    return {"nodes": float(1 - (items[events.src].mean() + items[events.dst].mean()) / 2), **pairs}
