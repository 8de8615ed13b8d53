"""Labels of nodes by a run's model, with probabilities: of all nodes of a client, computed once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from fedvine.core.errors import FedvineError, near
from fedvine.data.ids import named
from fedvine.tasks.class_measures import softmax
from fedvine.tasks.task import Labelled

if TYPE_CHECKING:
    from fedvine.experiments.run import Run


class Answers(NamedTuple):
    """Probabilities ``p`` float64 [N, classes so far] of nodes, and their ``client`` names [N]."""

    nodes: Labelled
    p: np.ndarray
    client: np.ndarray


class Labels:
    """The labels that the model of a finished run, or of a run's last stage, gives to nodes.

    Raises :class:`FedvineError` where the run's task does not name classes of nodes.
    """

    def __init__(self, run: Run) -> None:
        self.run, self.task, self.parts = run, run.protocol, dict(run.parts)
        self._found: dict[str, Answers] = {}
        if self.parts:
            self.task.labelled(next(iter(self.parts.values())))

    def table(self, nodes: Iterable[Any] | None = None, client: str | None = None) -> pa.Table:
        """Return a row a node; see :meth:`fedvine.experiments.reopened.OpenRun.labels`."""
        client = None if client is None else named(client, "client")
        if client is not None and client not in self.parts:
            raise FedvineError(f'This run has no client "{client}"{near(client, self.parts)}; '
                               f"it has {', '.join(self.parts)}.")
        names = list(self.parts) if client is None else [client]
        if nodes is None:
            tables = [self._rows(name, np.arange(len(self._of(name).nodes.y))) for name in names]
            found = pa.concat_tables(tables)
            given = np.asarray(found["given"].is_valid())
            return found.take(pa.array(np.argsort(given, kind="stable")))
        wanted = [named(node, "node") for node in nodes]
        at = {name: self._of(name).nodes.names.numbers(wanted) for name in names}
        here = np.array([at[name] >= 0 for name in names]).reshape(len(names), len(wanted))
        if not here.any(0).all():
            missing = wanted[int((~here.any(0)).argmax())]
            close = next((c for name in names if (c := self._of(name).nodes.names.index.near(
                missing))), "")
            raise FedvineError(f'No node is called "{missing}"{close}.')
        first = here.argmax(0)      # where several clients have the node, the first of them
        order, tables = [], []
        for i, name in enumerate(names):
            mine = np.flatnonzero(first == i) if len(wanted) else np.empty(0, np.int64)
            order.append(mine)
            tables.append(self._rows(name, at[name][mine]))
        return pa.concat_tables(tables).take(pa.array(np.argsort(np.concatenate(order))))

    def _of(self, name: str) -> Answers:
        """Return the answers about a client's nodes, asked for when they are first needed."""
        if name not in self._found:
            nodes = self.task.labelled(self.parts[name])
            query = self.task.ask(self.parts[name], self.run.plan, np.arange(len(nodes.y)), ())
            answer = self.run.ask(name, query) if len(nodes.y) else np.zeros((0, 1))
            self._found[name] = answers(name, nodes, answer)
        return self._found[name]

    def _rows(self, name: str, numbers: np.ndarray) -> pa.Table:
        return rows(self._of(name), numbers)


def answers(name: str, nodes: Labelled, answer: Any) -> Answers:
    """Return the probabilities of the nodes of the client ``name``.

    ``answer`` has the scores [N, classes]; or, where the server holds the graph, a mapping with
    them and the ``client`` of each node.
    """
    owner = [name] * len(nodes.y)
    if isinstance(answer, Mapping):
        answer, owner = answer["scores"], [str(n) for n in answer["client"]]
    scores = np.asarray(answer, float)
    scores = scores.reshape(len(nodes.y), scores.shape[-1])
    return Answers(nodes, softmax(scores), np.array(owner, object))


def rows(found: Answers, numbers: np.ndarray) -> pa.Table:
    """Return a row for each of the nodes ``numbers``, as :meth:`Labels.table` has them."""
    nodes, p, client = found
    classes, p, y = pa.array(nodes.classes, pa.string()), p[numbers], nodes.y[numbers]
    best = p.argmax(1) if len(p) else np.empty(0, np.int64)
    columns = {"client": pa.array(client[numbers], pa.string()),
               "node": pa.array([nodes.names[int(n)] for n in numbers], pa.string()),
               "label": classes.take(pa.array(best)),
               "probability": pa.array(p[np.arange(len(p)), best]),
               "given": classes.take(pa.array(y, mask=y < 0))}
    absent = np.zeros(len(p))
    for i, of in enumerate(nodes.classes):      # a class that is not learned yet has none
        columns[f"p({of})"] = pa.array(p[:, i] if i < p.shape[1] else absent)
    return pa.table(list(columns.values()), list(columns))
