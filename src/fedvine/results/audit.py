"""``fedvine audit``: run an experiment, attack its record, and say what protection changes.

The experiment is run with an engine that keeps every message, once with its method's protection off
and once with each kind of it on, and the attacks below are carried out on each
record. Fields of the experiment that are not of the protection stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic
from fedvine.core.rng import rng, torch_rng
from fedvine.data.plan import Plan
from fedvine.engines.faults import Letter, RecordingClients
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.run import Run
from fedvine.tasks.task_plan import TRAIN, TaskPlan

# -- the attacks: what a curious server, or a person who asks, can tell from a record --------------
# An attack takes a finished run with its letters (:mod:`fedvine.engines.faults`), does what its
# name says with what the server (or a client) received, and compares with the clients' data, which
# only the auditor has. It returns a :class:`Finding`, or None where the method has nothing of the
# kind.
NEAR = 0.01     # relative error below which a row counts as read
MOST = 5000     # pairs or nodes of one client that membership is measured on


class Finding(NamedTuple):
    """A number of an attack: ``value``, beside ``chance`` without the record, ``of`` so many."""

    value: float
    chance: float
    of: int


def letters(made: Run) -> list[Letter]:
    """Return the record of a run."""
    return cast(RecordingClients, made.clients).letters


def prototypes(made: Run) -> Finding | None:
    """Read mean features of a client's class of a task: share of them known to within 1 %.

    From gradients by one division (POWER, Eqs. 10, 11); without those from the sum over clients.
    Chance: by the mean over all clients' nodes.
    """
    from fedvine.methods.power import Power
    if not isinstance(made.method, Power):
        return None
    from fedvine.methods._power.equations import read_gradients
    world = made.clients.whole
    read: dict[tuple[str, int], list[np.ndarray]] = {}
    for letter in letters(made):
        met = letter.up["met"] if letter.function == "execute" and letter.up else None
        if met is not None:
            x, y = read_gradients(made.method.encoder(world), met["gradients"],
                                generator=torch_rng("audit"))
            for row, c in zip(x.numpy(), y.tolist(), strict=True):
                read.setdefault((letter.client, c), []).append(row)
    assert made.server is not None
    sums = [(int(c), row) for c, row in zip(made.server.y.tolist(), made.server.x.numpy(),
                                            strict=True)] if made.method.hides else []
    found, guessed, of = 0, 0, 0
    stages = {name: [made.plan.stage(part, t) for t in range(len(made.plan))]
              for name, part in made.parts.items()}
    everything = _mean([_rows(s, s.y >= 0) for of_client in stages.values() for s in of_client])
    for name, of_client in stages.items():
        for stage in of_client:
            for c in np.unique(stage.y[stage.y >= 0]).tolist():
                truth = _rows(stage, stage.y == c).mean(0)
                known = [*read.get((name, c), ()), *(row for k, row in sums if k == c)]
                found += any(_near(row, truth) for row in known)
                guessed += _near(everything, truth)
                of += 1
    return Finding(found / max(of, 1), guessed / max(of, 1), of)


def lone_neighbours(made: Run) -> Finding | None:
    """Read another client's row out of a sum: share of served sums that are one such row.

    By a client of DG-CoLearn, of the sums over neighbours elsewhere that it gets. Chance: share
    that are a row of another exchange.
    """
    sent: dict[tuple[int, int, int], set[bytes]] = {}
    got: list[tuple[tuple[int, int, int], np.ndarray]] = []
    for letter in letters(made):
        if letter.query or letter.function not in ("send_messages", "finish", "save_states"):
            continue
        if letter.function == "send_messages":
            sent.setdefault(letter.place, set()).update(
                row.tobytes() for row in letter.up.numpy() if row.any())
        if "sums" in letter.down[-1]:
            t, r, call = letter.place
            got.append(((t, r, call - 1), letter.down[-1]["sums"].numpy()))
    if not got:
        return None
    # A sum that is given again after a change has messages of earlier calls in it, too.
    known: dict[tuple[int, int, int], set[bytes]] = {}
    before: set[bytes] = set()
    for place in sorted(sent):
        before = known[place] = before | sent[place]
    places = sorted(sent)
    read = wrong = of = 0
    for place, sums in got:
        other = places[(places.index(place) + len(places) // 2) % len(places)] if (
            place in sent) else None
        for row in sums:
            if row.any() and other is not None:
                read += row.tobytes() in known[place]
                wrong += row.tobytes() in sent[other]
                of += 1
    return Finding(read / max(of, 1), wrong / max(of, 1), of)


def membership(made: Run) -> Finding | None:
    """Tell what was learned from what was not, by the scores alone: area under the curve.

    Of nodes by the score of their own class, learned against set aside; of links by the score,
    pairs of the last stage against other pairs of the same users and items. Chance: one half.
    """
    if made.clients.server_scorer is not None:
        return None
    areas, weights = [], []
    for name in made.clients.names:
        part = made.parts[name]
        inside, outside = (_nodes if hasattr(part, "y") and not hasattr(part, "src") else
                           _links)(made, name, part)
        if len(inside) and len(outside):
            areas.append(_area(inside, outside))
            weights.append(len(inside) + len(outside))
    return Finding(float(np.average(areas, weights=weights)), 0.5, sum(weights)) if areas else None


def alone_in_a_sum(made: Run) -> Finding | None:
    """Read a client's own number out of what is added: share of numbers that are one client's.

    Without masks that is all of them. Chance: none. For a run with masks see :func:`alone`.
    """
    of = sum(vector.size for several in added(made) for vector in several)
    return Finding(1.0, 0.0, of) if of and not made.method.hides else None


def alone(plain: Run) -> Finding | None:
    """Return what is left with masks: share of a sum's numbers to which one client contributed.

    The sum is then that client's number, though the server does not know whose. ``plain`` is the
    run without masks, in which the auditor sees all terms. Chance: none.
    """
    counts = [(np.stack(several) != 0).sum(0) for several in added(plain)]
    of = sum(int((count > 0).sum()) for count in counts)
    return Finding(sum(int((count == 1).sum()) for count in counts) / of, 0.0, of) if of else None


def added(made: Run) -> list[list[np.ndarray]]:
    """Return the vectors of each sum, one a client, as they came."""
    found: dict[tuple[int, int, int], list[np.ndarray]] = {}
    for letter in letters(made):
        if isinstance(letter.up, np.ndarray) and letter.up.dtype == np.uint64 and not letter.query:
            found.setdefault(letter.place, []).append(letter.up)
    return list(found.values())


def travelling_rows(made: Run) -> Finding | None:
    """Read who met what out of rows that travel: share of a client's pairs that the server passes.

    Of all pairs that a client learned, by keyed hash. Chance: a random user and item have met.
    """
    from fedvine.methods.fedlink_plus import FedLinkPlus
    if not isinstance(made.method, FedLinkPlus):
        return None
    seen: dict[str, set[tuple[int, int]]] = {n: set() for n in made.clients.names}
    for letter in letters(made):
        if letter.function in ("lend", "give") and letter.up is not None:
            parts = ([letter.up] if letter.function == "give" else
                     list(letter.up["users"].values()))
            for rows in parts:
                seen[letter.client].update(zip(rows["local"].tolist(), rows["key"].tolist(),
                                               strict=True))
    read = of = 0
    density = []
    for name in made.clients.names:
        part = made.plan.past(made.parts[name], len(made.plan) - 1)
        src, dst = np.asarray(part.src), np.asarray(part.dst)
        keys = part.dst_ids.keys(dst)
        pairs = set(zip(src.tolist(), keys.tolist(), strict=True))
        read, of = read + len(pairs & seen[name]), of + len(pairs)
        density.append(len(pairs) / max(len(np.unique(src)) * len(np.unique(dst)), 1))
    return Finding(read / max(of, 1), float(np.mean(density)), of)


ATTACKS: dict[str, Callable[[Run], Finding | None]] = {
    "prototypes read back": prototypes, "rows of lone neighbours": lone_neighbours,
    "membership by score": membership, "numbers of one client in a sum": alone_in_a_sum,
    "travelling rows": travelling_rows}


def _nodes(made: Run, name: str, part: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of the own class of learned nodes, and of those set aside."""
    task, role = cast(TaskPlan, made.plan).assign(part)
    asked = np.flatnonzero((task >= 0) & (part.y >= 0))[:MOST]
    scores = np.asarray(made.ask(name, {"nodes": asked}), float)
    scores = scores - scores.max(1, keepdims=True)
    own = scores[np.arange(len(asked)), part.y[asked]] - np.log(np.exp(scores).sum(1))
    learned = role[asked] == TRAIN
    return own[learned], own[~learned]


def _links(made: Run, name: str, part: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of pairs of the last stage, and of pairs that never met."""
    last = made.plan.stage(part, len(made.plan) - 1)
    pairs = np.unique(np.stack([last.src, last.dst], 1), axis=0)[:MOST].astype(np.int64)
    if not len(pairs):
        return np.empty(0), np.empty(0)
    draw, width = rng("audit", name), max(part.num_dst, 1)
    others = np.stack([pairs[:, 0], draw.permutation(pairs[:, 1])], 1)
    met = np.asarray(part.src, np.int64) * width + np.asarray(part.dst)
    others = others[~np.isin(others[:, 0] * width + others[:, 1], met)]
    t = float(cast(Plan, made.plan).bounds[-1])
    both = np.concatenate([pairs, others])
    scores = np.asarray(made.ask(name, {"src": both[:, 0], "dst": both[:, 1],
                                        "t": np.full(len(both), t)}), float)
    return scores[:len(pairs)], scores[len(pairs):]


def _area(inside: np.ndarray, outside: np.ndarray) -> float:
    """Return how often a score inside is above one outside, ties counted half."""
    order = np.sort(outside)
    below = np.searchsorted(order, inside, "left") + np.searchsorted(order, inside, "right")
    return float(below.mean() / (2 * len(order)))


def _rows(graph: Any, kept: np.ndarray) -> np.ndarray:
    x = graph.x[np.flatnonzero(kept)]
    return np.asarray(x.todense() if hasattr(x, "todense") else x, float)


def _mean(rows: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(rows).mean(0)


def _near(row: np.ndarray, truth: np.ndarray) -> bool:
    return bool(np.linalg.norm(row - truth) <= NEAR * np.linalg.norm(truth))


OPEN, MASKED = {"secure": False}, {"secure": True}
#: By method: fields without protection, then by name fields of each kind of it.
PROTECTION: dict[str, dict[str, dict[str, Any]]] = {
    "power": {
        "off": {"aggregate": OPEN, "min_count": 1, "clip": None, "noise": 0.0},
        "noise 1 on means of 5 nodes and more": {"min_count": 5, "clip": 1.0, "noise": 1.0},
        "secure sums": {"aggregate": MASKED}},
    "power_plus": {"off": {"aggregate": OPEN, "least": 1}, "secure sums": {"aggregate": MASKED}},
    "fedlink_private": {
        "off": {"aggregate": OPEN}, "secure sums": {"aggregate": MASKED},
        "secure sums, clip 0.03, noise 2": {"aggregate": {**MASKED, "clip": 0.03, "noise": 2.0}}},
    "fedlink_plus": {"off": {"share": "rows", "aggregate": OPEN},
                     "secure sums": {"share": "sums", "aggregate": MASKED}},
    "dgcolearn": {"off": {"aggregate": {"min_group": 1, "blur": 0.0}},
                  "sums of 5 and more": {"aggregate": {"min_group": 5}}}}
Say = Callable[[str], object]


class Audit(NamedTuple):
    """An experiment's findings: by attack, and in it by kind of protection (None: not there)."""

    name: str
    method: str
    kinds: list[str]
    found: Mapping[str, Mapping[str, Finding | None]]


def audit(experiment: Experiment, name: str, say: Say = print) -> Audit:
    """Run ``experiment`` under each kind of its method's protection, and attack each record.

    Raises :class:`FedvineError` where the data or settings do not fit.
    """
    method = experiment.method.name
    kinds = PROTECTION.get(method, {"as it is": {}})
    off = next(iter(kinds.values()))
    found: dict[str, dict[str, Finding | None]] = {attack: {} for attack in ATTACKS}
    for kind, fields in kinds.items():
        say(f"{name}: {method}, protection {kind}")
        changed = {**off, **fields}
        made = recorded(experiment, changed)
        for attack, carry_out in ATTACKS.items():
            found[attack][kind] = carry_out(made)
        sums = found["numbers of one client in a sum"]
        if made.method.hides and any(sums.values()):
            say(f"{name}: {method}, the same without masks")
            sums[kind] = alone(recorded(experiment, {**changed, "aggregate": OPEN}))
    return Audit(name, method, list(kinds), {
        attack: by for attack, by in found.items() if any(by.values())})


def recorded(experiment: Experiment, fields: Mapping[str, Any]) -> Run:
    """Return a finished run of the experiment with these fields of its method, and its record."""
    values = experiment.method.model_dump(exclude_unset=True) | dict(fields)
    changed = experiment.model_copy(update={
        "method": type(experiment.method)(**values), "final": False})
    return changed.run(engine=RecordingClients).finish()


def table(done: Audit) -> list[str]:
    """Return the findings as lines of a Markdown table; a dash: the record has nothing of it."""
    lines = ["| attack | chance | " + " | ".join(done.kinds) + " |",
             "|---" * (2 + len(done.kinds)) + "|"]
    for attack, by in done.found.items():
        first = next(f for f in by.values() if f is not None)
        cells = ["nothing there" if (f := by[kind]) is None else f"{f.value:.3f} of {f.of:,}"
                 for kind in done.kinds]
        lines.append(f"| {attack} | {first.chance:.3f} | " + " | ".join(cells) + " |")
    return lines


HEAD = """\
# What a record gives away

<!-- written by fedvine audit; the command is below -->

Each experiment was run with an engine that keeps every message, and its record attacked: by the
server that got the messages, or by whoever may ask the model. A number of the same attack without
the record stands beside it as chance, and each method's protection was off and on.

- **prototypes read back**: share of mean features (a client, a task, a class) that the server
  knows to within 1 % of their length. From POWER's gradients one division gives each of them;
  from a secure sum the mean over all clients is the best guess. Chance: the mean of all nodes.
- **rows of lone neighbours**: share of the sums served to clients that are one other node's row
  as it is. Chance: share that are a row of another exchange.
- **membership by score**: how often something learned has a higher score than something else: of
  nodes the score of their own class, against nodes set aside; of links pairs of the last stage
  against pairs of the same users and items that never met. Chance: 0.5. A forecast of links that
  is good tells what was learned; no protection of messages changes that.
- **numbers of one client in a sum**: share of the added numbers that are one client's own.
  Without masks all are; with masks those of the sum to which one client alone contributed, and
  whose it is stays hidden.
- **travelling rows**: share of all pairs of a user and an item that the server can read, by keyed
  hash, out of rows on their way from client to client. Chance: a random user and item have met.
"""


def page(done: list[Audit], command: str) -> str:
    """Return the page of Markdown."""
    parts = [HEAD, f"```\n{command}\n```\n"]
    for one in done:
        parts += [f"## {one.name}: `{one.method}`\n", "\n".join(table(one)) + "\n"]
    return "\n".join(parts)


def write_page(done: list[Audit], command: str, folder: Path) -> Path:
    """Write ``audit.md`` into a folder of pages; raise :class:`FedvineError` if it cannot be."""
    try:
        with atomic(folder / "audit.md", "w") as file:
            file.write(page(done, command))
    except OSError as error:
        raise FedvineError(f"{folder}/audit.md cannot be written ({error.strerror}).") from error
    return folder / "audit.md"
