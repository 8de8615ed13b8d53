"""A run that is loaded once from its folder and answers many questions.

It answers from what the run saved: its table is not needed any more. A run that goes on meanwhile
in another process answers as of the newest stage when it was opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from fedvine.core.errors import FedvineError, near
from fedvine.data.ids import named
from fedvine.experiments.forecast_tables import pairs_of
from fedvine.experiments.forecasts import Forecast, Forecasts
from fedvine.experiments.labels import Labels
from fedvine.experiments.last_edges import LastEdge, last_edges
from fedvine.experiments.reopened import allow, forecasts_at, reopened


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

    def labels(self, nodes: Iterable[Any] | None = None, client: str | None = None) -> pa.Table:
        """Return the labels of nodes with probabilities, of a run that names classes.

        A probability is the softmax of the method's scores: what a network means by it. Of a rival
        without a network, such as the most frequent class, it keeps only the order.

        Args:
            nodes: names of nodes, whose order is kept; None: all of them, those without a class in
                the data first.
            client: of the nodes; None: all clients.

        Returns:
            A table with a row a node: ``client``, ``node``, ``label`` (the likeliest class), its
            ``probability``, ``given`` (the class in the data, null where there is none), and one
            column ``p(CLASS)`` a class.

        Raises:
            FedvineError: for an unknown node or client, and for a run that forecasts links.
        """
        if self._labels is None:
            self._labels = Labels(self.run)
        return self._labels.table(nodes, client)

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
        return self._forecasts if at is None else forecasts_at(self.run, self.folder, at)


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

