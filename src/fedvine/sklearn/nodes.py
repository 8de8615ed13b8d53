"""Classes of nodes as an estimator: learn from features, known classes, and edges between nodes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix, issparse, vstack
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from fedvine.core.errors import FedvineError
from fedvine.data.graph import Graph, Owner
from fedvine.data.ids import Ids
from fedvine.data.names import in_words
from fedvine.experiments import run_folder
from fedvine.experiments.run import run
from fedvine.living.news import Changed
from fedvine.living.run import LivingRun
from fedvine.sklearn.shared import (
    Learned,
    Nodes,
    OfMethod,
    count_edges,
    ends,
    nodes,
    numbered,
    source,
)
from fedvine.tasks.class_incremental import ClassIncremental
from fedvine.tasks.class_measures import softmax
from fedvine.tasks.task import of
from fedvine.tasks.task_plan import TaskSettings

NONE = np.empty((2, 0), object)


class NodeClassifier(ClassifierMixin, OfMethod):
    """Learn classes of nodes from their features, and from edges between nodes where there are any.

    Nodes are any numeric X [n, F], dense or a SciPy sparse matrix (``power_plus`` takes that as
    counts of words), or a frame: pandas or polars, a pyarrow table, or a mapping of columns.
    Without edges it is a graph without edges. New classes may come with :meth:`partial_fit`, as
    tasks of their own.

    **Edges** are an array [2, E] or [E, 2], or a frame whose first two columns are their ends.
    Without ``node`` an end is a row number of X in the same call. With ``node`` it is a node's
    name: edges are then remembered, also those to nodes that are not there yet, and nodes of later
    calls are classified as part of the graph that was learned from. So ``fit`` may get all edges
    whichever nodes are in a fold.

    >>> import numpy as np
    >>> X, y = np.array([[0.0], [0.1], [1.0], [1.1]] * 10), np.array(list("aabb") * 10)
    >>> NodeClassifier().fit(X, y).predict([[0.05], [1.05]]).tolist()
    ['a', 'b']

    Args:
        method: a method for classes of nodes, such as ``fedvine.Power()``, or its name.
        node: column of the nodes' names; or the name of a pandas frame's index, or "index".
        client: column of the clients that own the nodes; edges between clients are not used.
        unlabelled: value in y of nodes whose class is not known; in text None and NaN are such.
        random_state: all randomness comes from this number, from 0.

    Attributes:
        learned_: the run and its folder, which ends with the estimator.
        classes_: the classes [C], sorted.
        clients_: names of the clients [K].
    """

    def __init__(self, method: Any = "power_plus", *, node: str | None = None,
                 client: str | None = None, unlabelled: Any = None,
                 random_state: int | None = 0) -> None:
        self.method, self.node, self.client = method, node, client
        self.unlabelled, self.random_state = unlabelled, random_state

    # -- learning ----------------------------------------------------------------------------------
    def fit(self, X: Any, y: Any, edges: Any = None) -> NodeClassifier:
        """Learn the nodes' classes, anew.

        Args:
            X: features of n nodes.
            y: their classes [n].
            edges: edges between them; None: there are none.

        Returns:
            The estimator.

        Raises:
            ValueError: for values that are not numbers, no known class, or edges to no node.
        """
        return self._begin(X, y, edges, None)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, edges: Any = None) -> NodeClassifier:
        """Learn nodes that are new, as a further task; the first call is :meth:`fit`.

        Args:
            X: features of the new nodes. With ``node`` they may also be nodes whose class was not
                known; their features are then the same.
            y: their classes, which may be new.
            classes: all classes that will ever come, at the first call; None: those so far.
            edges: new edges: by name with ``node``, else among the new nodes.

        Returns:
            The estimator.

        Raises:
            ValueError: as :meth:`fit`, and where nodes or their classes have changed; the estimator
                is then as before.
        """
        if not hasattr(self, "learned_"):
            return self._begin(X, y, edges, classes)
        new, values = self._given(X, y, reset=False)
        pairs, before = ends(edges, len(new.names), self.node is not None), self.learned_.run
        graph = before.ready.stream
        if self.node is None:       # a further row of the graph each
            names = np.arange(len(graph), len(graph) + len(new.names)).astype(str).astype(object)
            pairs = names[pairs.astype(np.int64)]
            new = new._replace(names=names)
        names = list(dict.fromkeys([*self._model_classes, *self._known(values).tolist()]))
        self._check_classes(names)
        table = _joined(graph, new, self._numbers(values, names), names,
                        np.concatenate([self._edges, pairs], 1))
        count_edges(pairs, _names(table))
        learned = self.learned_.copy()
        living = LivingRun(learned.folder / "data", lambda: run_folder.alone(learned.folder))
        try:
            living.take(table, now=True, sure=True)
        except Changed as error:
            raise FedvineError(f"{error.what}; give what was learned as it was, or fit anew."
                               ) from error
        learned.now(run(before.method, living.rows.split, living.rows.plan,
                        seed=before.ready.world.seed, protocol=before.protocol, out=learned.folder,
                        source=source(learned), save_every=np.inf).finish())
        return self._answers_from(learned, names, pairs)

    def _begin(self, X: Any, y: Any, edges: Any, classes: Any) -> NodeClassifier:
        method, seed, learned = self._method(), self._seed(), Learned()
        if of(method).data != "graph" or method.server_holds_graph:
            raise FedvineError(f"{method.name} does not name classes of a labelled graph's nodes; "
                               "choose a method that does, such as power or power_plus.")
        found, values = self._given(X, y, reset=True)
        words = sorted({str(v) for v in values[~self._missing(values)] if in_words(str(v))})
        if words:
            warnings.warn(f"y has the class {words[0]!r}; if it says that the class is not known, "
                          f"give unlabelled={words[0]!r}.", stacklevel=3)
        pairs, names = ends(edges, len(found.names), self.node is not None), self._known(values)
        known = names if classes is None else np.unique(np.asarray(classes))
        self._check_classes(names.tolist(), known)
        none = Graph.make(found.x[:0], np.empty((2, 0)), np.empty(0))
        graph = _joined(none, found, self._numbers(values, names.tolist()), names.tolist(), pairs)
        count_edges(pairs, found.names)
        split, plan = ClassIncremental.prepare_open(
            graph, {"by": "client"}, len(names), TaskSettings(shares=(1.0, 0.0, 0.0)), seed)
        learned.now(run(method, split, plan,  # type: ignore[arg-type]
                        seed=seed, out=learned.folder, save_every=np.inf).finish())
        self.classes_, self._edges, self._closed = known, NONE, classes is not None
        return self._answers_from(learned, names.tolist(), pairs)

    def _answers_from(self, learned: Learned, names: list[Any], pairs: np.ndarray
                      ) -> NodeClassifier:
        """Answer from ``learned``; ``names`` are the classes by the model's numbers."""
        self.learned_, self._model_classes = learned, names
        self._edges = np.concatenate([self._edges, pairs], 1)
        if not self._closed:
            self.classes_ = np.unique(np.asarray(names))
        self.clients_ = np.array(list(learned.run.parts), object)
        return self

    # -- answers -----------------------------------------------------------------------------------
    def predict(self, X: Any, edges: Any = None) -> np.ndarray:
        """Return the likeliest class of each node [n]; see :meth:`predict_proba`."""
        probable = self.predict_proba(X, edges).argmax(1)
        return self.classes_[probable]

    def predict_proba(self, X: Any, edges: Any = None) -> np.ndarray:
        """Return probabilities of the classes, float64 [n, C] in the order of ``classes_``.

        They are the softmax of the method's scores; a class that has not come yet has 0.

        Args:
            X: features of n nodes.
            edges: further edges, as in :meth:`partial_fit`; None: none.

        Returns:
            The probabilities.

        Raises:
            ValueError: for other features than those of ``fit``, and for an unknown client.
        """
        check_is_fitted(self)
        found, _ = self._given(X, None, reset=False)
        pairs = ends(edges, len(found.names), self.node is not None)
        if pairs.size:
            count_edges(pairs, np.unique(np.concatenate([
                found.names, *map(_names, self.learned_.run.parts.values())])))
        made, learned = np.zeros((len(found.names), len(self.classes_))), self.learned_.run
        column = np.searchsorted(self.classes_, np.asarray(self._model_classes))
        for client in dict.fromkeys(found.clients):
            if client not in learned.parts:
                raise FedvineError(f'No client called "{client}" was learned from; there are '
                                   f"{', '.join(learned.parts)}.")
            rows = np.flatnonzero(found.clients == client)
            mine = Nodes(found.x[rows], found.names[rows], found.clients[rows])
            query = self._query(learned.parts[client], mine, pairs)
            scores = np.asarray(learned.ask(client, query), float)
            p = softmax(scores.reshape(len(rows), scores.shape[-1]))
            made[np.ix_(rows, column[:p.shape[1]])] = p
        return made

    def _query(self, part: Graph, asked: Nodes, pairs: np.ndarray) -> dict[str, Any]:
        """Return the query about a client's nodes: by themselves, or in the graph by their name."""
        x, names = asked.x, asked.names
        if self.node is not None:
            held = _names(part)
            others = np.flatnonzero(pd.Index(names).get_indexer(held) < 0)
            x, names = _stacked(x, part.x[others]), np.concatenate([names, held[others]])
            pairs = np.concatenate([self._edges, pairs], 1)
        features = {"csr": [x.data, x.indices, x.indptr]} if issparse(x) else {"x": x}
        return {**features, "edges": numbered(pairs, names), "nodes": np.arange(len(asked.names)),
                "size": list(x.shape)}

    # -- values ------------------------------------------------------------------------------------
    def _given(self, X: Any, y: Any, reset: bool) -> tuple[Nodes, np.ndarray]:
        """Return the nodes of a call with checked features, and their classes, [n] or [0]."""
        found = nodes(X, self.node, self.client)
        values: Any = None if y is None else column_or_1d(_as_given(y), warn=True)
        stand: Any = values         # with a class for each node
        if y is not None and (none := self._missing(values)).any():
            if none.all():
                raise FedvineError("y has no known class.")
            stand = np.array(np.where(none, values[~none][0], values).tolist())
        how: dict[str, Any] = {"accept_sparse": "csr", "dtype": np.float32, "reset": reset}
        if reset or y is not None:
            x, _ = validate_data(self, found.x, stand, **how)
            check_classification_targets(stand)
        else:
            x = validate_data(self, found.x, **how)
        if reset:
            self._sparse = issparse(x)
        return found._replace(x=_like(x, self._sparse)), values

    def _missing(self, values: np.ndarray) -> np.ndarray:
        """Return which classes are not known, bool [n]."""
        if self.unlabelled is not None and self.unlabelled == self.unlabelled:
            return np.array([value == self.unlabelled for value in values.tolist()], bool)
        gaps = values.dtype.kind == "O" or self.unlabelled is not None      # that is NaN
        return pd.isna(values) if gaps else np.zeros(len(values), bool)

    def _known(self, values: np.ndarray) -> np.ndarray:
        return np.unique(values[~self._missing(values)])

    def _check_classes(self, names: list[Any], known: Any = None) -> None:
        """Raise :class:`FedvineError` for a class that ``classes`` did not announce."""
        if known is None:
            known = self.classes_ if self._closed else names
        other = [name for name in names if name not in set(np.asarray(known).tolist())]
        if other:
            raise FedvineError(f"y has the class {other[0]!r}, which is not in classes.")

    def _numbers(self, values: np.ndarray, names: list[Any]) -> np.ndarray:
        """Return the classes as numbers int64 [n] into ``names``, -1 where not known."""
        number = {name: i for i, name in enumerate(names)}
        return np.array([-1 if none else number[value] for value, none in zip(
            values.tolist(), self._missing(values), strict=True)], np.int64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "learned_")


def _as_given(y: Any) -> np.ndarray:
    """Return classes as an array; NaN beside text in a list stays NaN."""
    values = np.asarray(y)
    if values.dtype.kind == "U" and not isinstance(y, np.ndarray):
        given = np.array(list(y), object)
        return given if pd.isna(given).any() else values
    return values


def _like(x: Any, sparse: bool) -> Any:
    """Return features as a CSR matrix, or dense: the kind that the method learned from."""
    return csr_matrix(x) if sparse else x.toarray() if issparse(x) else x


def _names(graph: Graph) -> np.ndarray:
    names = graph.names()
    return np.array([names[i] for i in range(len(graph))], object)


def _joined(graph: Graph, new: Nodes, y: np.ndarray, classes: list[Any], pairs: np.ndarray
            ) -> Graph:
    """Return a graph with the nodes ``new`` and their classes ``y`` after its own.

    A node that the graph has already is the same node, with the new class and features.
    """
    held = _names(graph)
    at = pd.Index(held).get_indexer(new.names)
    keep = np.setdiff1d(np.arange(len(held)), at)
    owner = graph.owner or Owner(np.empty(0, np.int32), ())
    clients = np.concatenate([np.array(owner.names, object)[owner.of[keep]], new.clients])
    known = tuple(dict.fromkeys([*owner.names, *new.clients]))
    names = np.concatenate([held[keep], new.names])
    was = np.where(at >= 0, graph.y[at] if len(held) else -1, -1)
    return Graph.make(
        _stacked(graph.x[keep], new.x), numbered(pairs, names),
        np.concatenate([graph.y[keep], np.where(y >= 0, y, was)]), classes=list(map(str, classes)),
        owner=Owner(pd.Index(known).get_indexer(clients).astype(np.int32), known),
        ids=Ids.of(names), name=graph.name)


def _stacked(first: Any, second: Any) -> Any:
    if issparse(first) or issparse(second):
        return csr_matrix(vstack([csr_matrix(first), csr_matrix(second)], format="csr"))
    return np.concatenate([first, second])
