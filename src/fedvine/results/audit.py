"""``fedvine audit``: run an experiment, attack its record, and say what protection changes.

The experiment is run with an engine that keeps every message, once with its method's protection off
and once with each kind of it on, and the attacks of :mod:`fedvine.results.attacks` are carried out
on each record. Fields of the experiment that are not of the protection stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic
from fedvine.engines.record import RecordingClients
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.run import Run
from fedvine.results.attacks import ATTACKS, Finding, alone

#: By method: fields without protection, then by name fields of each kind of it.
PROTECTION: dict[str, dict[str, dict[str, Any]]] = {
    "power": {
        "off": {"secure": False, "min_count": 1, "clip": None, "noise": 0.0},
        "noise 1 on means of 5 nodes and more": {"min_count": 5, "clip": 1.0, "noise": 1.0},
        "secure sums": {"secure": True}},
    "power_plus": {"off": {"secure": False, "least": 1}, "secure sums": {"secure": True}},
    "fedlink_private": {
        "off": {"secure": False, "clip": None, "noise": 0.0}, "secure sums": {"secure": True},
        "secure sums, clip 0.03, noise 2": {"secure": True, "clip": 0.03, "noise": 2.0}},
    "fedlink_plus": {"off": {"share": "rows", "secure": False},
                     "secure sums": {"share": "sums", "secure": True}},
    "dgcolearn": {"off": {"min_group": 1, "noise": 0.0}, "sums of 5 and more": {"min_group": 5}}}
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
        if changed.get("secure") and any(sums.values()):
            say(f"{name}: {method}, the same without masks")
            sums[kind] = alone(recorded(experiment, {**changed, "secure": False}))
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
