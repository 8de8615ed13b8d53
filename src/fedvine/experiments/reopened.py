"""Reopen a run from its folder, to ask it: by the data that the folder keeps, or by its experiment.

What the folder keeps is enough: the run's table may be gone or changed. Folders of earlier releases
keep only data of runs made from Python; the others are opened by their experiment, which reads the
table again. A run that is not finished, also one that another process carries out, is opened as it
was at the newest end of a stage that was saved.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fedvine.core import registry
from fedvine.core.errors import FedvineError, HandedOver, near
from fedvine.core.settings import build
from fedvine.data import handed
from fedvine.data.ids import named
from fedvine.experiments import run_folder
from fedvine.experiments.answers import Labels, LastEdge, last_edges, pairs_of
from fedvine.experiments.forecasts import Forecast, Forecasts, has_newer, plan_at, take_newer
from fedvine.experiments.run import Run, of_kept
from fedvine.tasks.task import Task, beside, task_named

if TYPE_CHECKING:
    from fedvine.experiments.experiment import Experiment

def task_of(found: Mapping[str, Any]) -> Task:
    """Return the task, with its settings, of a run's ``experiment.toml`` as a mapping.

    Raises :class:`FedvineError` for a task that is neither fedvine's nor in the method's own file.
    """
    values, method = found["protocol"], found["method"]
    own_digest = method.get("file_digest")
    own = [] if own_digest is None else beside(
        registry.of_digest(str(method["name"]), str(own_digest)))
    return build(task_named(str(values.get("task", "link")), own), values, under="protocol.")


def reopened(folder: str | os.PathLike[str]) -> Run:
    """Return the run in ``folder`` as it was at the newest end of a stage; it can be asked.

    Raises :class:`FedvineError` if the folder is not one of a run, neither holds nor names the
    data, or does not have the end of a stage yet.
    """
    found = run_folder.read_experiment(folder)
    made = (_of_kept(folder, found) if (Path(folder) / "data").is_dir() else
            _experiment(folder).run(folder, keep=False))
    save = _newest_end(made)
    if save is None:
        raise FedvineError(f"The run in {folder} has not learned a whole stage yet; give its "
                           "command again, it goes on.")
    made.look(save)
    return made


def forecasts_of(folder: str | os.PathLike[str], at: float | None = None) -> Forecasts:
    """Return the forecasts of the run in ``folder``, as of the newest stage that it has learned.

    With ``at`` they are as of that time, with the clients' own events since then: those of a run
    that goes on, or those that were added to a finished run's table. Raises :class:`FedvineError`
    as :func:`reopened` does, if it learned from a labelled graph, and where there are no such
    events.
    """
    made = reopened(folder)
    if made.protocol.data == "graph":
        raise FedvineError(f"{made.method.name} learned from a labelled graph and names classes of "
                           "nodes; ask for labels (--labels).")
    return Forecasts(made) if at is None else forecasts_at(made, folder, at)


def forecasts_at(made: Run, folder: str | os.PathLike[str], at: float) -> Forecasts:
    """Return the forecasts of a reopened run as of ``at``; see :func:`forecasts_of`."""
    plan = Forecasts(made).plan
    plan_at(made, plan, at)
    if not has_newer(made, plan):
        take_newer(made, plan, folder, _experiment(folder).data.open())
    return Forecasts(made, at)


def allow(folder: str | os.PathLike[str]) -> None:
    """Let the data that a run folder names be opened, from now on, wherever they lie."""
    try:
        _experiment(folder)
    except HandedOver as error:
        error.remember()
    except FedvineError:        # it names no data
        return


def _experiment(folder: str | os.PathLike[str]) -> Experiment:
    """Return the experiment of a run, whose data may be opened."""
    from fedvine.experiments.experiment import Experiment
    found = Experiment.of_run(folder)
    handed.check(found.data, Path(folder))
    return found


def _of_kept(folder: str | os.PathLike[str], found: dict[str, Any]) -> Run:
    """Return the run of what ``data/`` in the folder keeps."""
    made = of_kept(folder, found, final=True)
    made.folder = run_folder.RunFolder(folder, None)
    made.summary = run_folder.read_summary(folder, len(made.plan))
    return made


def _newest_end(made: Run) -> run_folder.Save | None:
    """Return the newest save of the end of a stage, None where there is none.

    A finished run is asked as of its own end alone. Another process may write to the folder of an
    unfinished one meanwhile: a save may be deleted while it is read, after a newer one was written.
    Raises :class:`FedvineError` where no such save can be read.
    """
    folder, broken = made.folder, None
    assert folder is not None
    if made.summary is not None:
        last = len(made.plan) - 1
        return folder.restore(end=run_folder.checkpoint(last, made.method.rounds_at(last) + 1))
    for _ in range(3):
        for path in sorted((folder.path / "saves").glob("[0-9]*"), reverse=True):
            t, r = (int(number) for number in run_folder.checked_save(path.name).split("-"))
            if t < len(made.plan) and r == made.method.rounds_at(t) + 1:
                try:
                    return folder.restore(end=path.name)
                except FedvineError as error:
                    broken = broken or error
        if broken is None:
            return None
    raise broken or FedvineError(f"{folder.path} has no save that can be read.")


# -- a run that is loaded once from its folder and answers many questions --------------------------
# It answers from what the run saved: its table is not needed any more. A run that goes on meanwhile
# in another process answers as of the newest stage when it was opened.
class OpenRun:
    """The run of a folder, in memory; made by :func:`open_run`. It is for one thread at a time.

    - ``clients``: their names; "all" where the server holds the graph
    - ``stage``: the last learned stage, from 0; ``stages``: of the plan so far
    - ``final``: whether it answers by the model that was fitted once more on all labelled nodes,
      after the run was scored
    """

    def __init__(self, folder: str | os.PathLike[str], open_data: bool = False) -> None:
        if open_data:
            allow(folder)
        self.run, self.folder = reopened(folder), folder
        self.clients = tuple(self.run.parts)
        assert self.run.learned is not None
        self.final = self.run.final is not None
        self.stage, self.stages = self.run.learned, len(self.run.plan)
        self._labels: Labels | None = None
        self._grown: Run | None = None
        self._forecasts = None if self.run.protocol.data == "graph" else Forecasts(self.run)
        if self._forecasts is not None:
            self._forecasts.load()

    def predict(self, client: str | int, user: str | int, top: int = 5,
                at: float | None = None) -> list[Forecast]:
        """Return the likeliest items of a user at a client, best first.

        The user may be one that another client alone has seen. Where nodes are of one kind, they
        are users and items; of a run that names classes the items are the classes.

        Args:
            client: name of the client.
            user: name of the user.
            top: number of items, at most.
            at: a time after the learned stages, in the unit of the table's: the client's own events
                before it count, too. None: the end of what was learned.

        Returns:
            Tuples of item, score (higher is likelier; its scale depends on the method), and known:
            whether the user has met the item at this client.

        Raises:
            FedvineError: for an unknown client or user, and for a run of a labelled graph.
        """
        return self._of_streams(at).top(client, user, top)

    def predict_many(self, client: str | int, users: Iterable[str | int], top: int = 5
                     ) -> list[list[Forecast]]:
        """Return what :meth:`predict` does for many users, an empty list for one nobody knows.

        Raises :class:`FedvineError` for an unknown client, and for a run of a labelled graph.
        """
        return self._of_streams(None).tops(client, list(users), top)

    def score(self, pairs: Any, at: float | None = None) -> pa.Table:
        """Return the scores of pairs.

        Args:
            pairs: a pandas or polars frame or a pyarrow table with the columns ``client``, ``user``
                and ``item``, or a list of such tuples or dictionaries.
            at: as in :meth:`predict`.

        Returns:
            A table of ``client``, ``user``, ``item`` as text, ``score`` float64 and ``known`` bool,
            in the order of the pairs. The score is null where no client has seen the user, or the
            client has not seen the item.

        Raises:
            FedvineError: for an unknown client, other columns, or a run that names classes.
        """
        return self._of_streams(at).scored(pairs_of(pairs))

    def labels(self, nodes: Iterable[Any] | None = None, client: str | None = None,
               alerts: int | None = None, precision: float | None = None) -> pa.Table:
        """Return the labels of nodes with probabilities, of a run that names classes.

        A probability is the softmax of the method's scores: what a network means by it. Of a rival
        without a network, such as the most frequent class, it keeps only the order.

        Args:
            nodes: names of nodes, whose order is kept; None: all of them, those without a class in
                the data first.
            client: of the nodes; None: all clients.
            alerts: how many alerts to give, to the nodes whose class is not given that most
                probably have a rare class; None: to all nodes above the thresholds.
            precision: the least that is expected of alerts; None: their F1 is the best expected.

        Returns:
            A table with a row a node: ``client``, ``node``, ``label`` (the likeliest class), its
            ``probability``, ``given`` (the class in the data, null where there is none), ``alert``
            (rare classes, or ""; only with ``alerts``, or of a method that holds labelled nodes
            back, such as ``power_plus``), and one column ``p(CLASS)`` a class. A rare class has at
            most a tenth of the labelled nodes; where none is so small, each is but the commonest.

        Raises:
            FedvineError: for an unknown node or client, a run that forecasts links, and a precision
                of a run without thresholds.
        """
        if self._labels is None:
            self._labels = Labels(self.run)
        return self._labels.table(nodes, client, alerts, precision)

    def last_edges(self, client: str | int, node: str | int, count: int = 10) -> list[LastEdge]:
        """Return the last edges of a user or a node at a client, the newest first.

        These are edges that the run has learned; what it answers about the node rests on them, and
        on those of the nodes around it.

        Args:
            client: name of the client.
            node: name of the user or node.
            count: number of edges, at most.

        Returns:
            Tuples of the node at the other end, the time as text (None of a labelled graph), and
            the class of that node in the data (None where there is none).

        Raises:
            FedvineError: for an unknown client.
        """
        client, node = named(client, "client"), named(node, "node")
        if client not in self.run.parts:
            raise FedvineError(f'This run has no client "{client}"{near(client, self.clients)}; '
                               f"it has {', '.join(self.clients)}.")
        plan = self.run.plan if self._forecasts is None else self._forecasts.plan
        return last_edges(self.run.parts[client], plan, node, count, self.stage)

    def why(self, client: str | int, user: str | int, items: Sequence[str | int]) -> list[str]:
        """Return why items of :meth:`predict` have their scores, in words; empty if it is not said.

        Raises :class:`FedvineError` for an unknown client, and for a run of a labelled graph.
        """
        return self._of_streams().why(client, user, items)

    def _of_streams(self, at: float | None = None) -> Forecasts:
        if self._forecasts is None:
            raise FedvineError(f"{self.run.method.name} names classes of nodes; call labels().")
        if at is None:
            return self._forecasts
        if self._grown is None:     # takes in later rows, which would number guests anew
            self._grown = reopened(self.folder)
        return forecasts_at(self._grown, self.folder, at)


def open_run(folder: str | os.PathLike[str], open_data: bool = False) -> OpenRun:
    """Load the run in ``folder``, finished or not, to ask it many questions.

    >>> opened = open_run("runs/fedlink-flights-s0")        # doctest: +SKIP
    >>> opened.predict("KLAX", "N123AA", top=3)             # doctest: +SKIP

    Args:
        folder: of the run.
        open_data: also where the folder is somebody else's and names data outside of it, which may
            be needed: a database, or files.

    Returns:
        The run.

    Raises:
        FedvineError: if the folder is not that of a run, the run has not learned a whole stage yet,
            or data would have to be opened of which nobody has said so.
    """
    return OpenRun(folder, open_data)
