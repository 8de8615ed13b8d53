"""A site's labelled graph in a run: what the server learns of it, and the part that is learned.

Before a run the server learns how many nodes and columns of features a site has, a keyed digest of
the columns' names, and the classes (:mod:`fedvine.federation.class_names`). Of a run that lives the
site keeps its graph, in which each row has the block of tasks as of which it came
(:mod:`fedvine.data.growing_graph`), and the server learns how many labelled nodes of each class no
task has yet.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.data.graph import Came, Graph
from fedvine.data.growing_graph import as_before, first, merged
from fedvine.data.io.checks import ask_about_new
from fedvine.data.io.look import Look
from fedvine.data.kept import KeptGraph
from fedvine.engines.refusals import Refusal
from fedvine.federation.class_names import Named, keys, sealed, shown
from fedvine.federation.policy import coarse
from fedvine.tasks.open_task_plan import OpenTaskPlan


@dataclass(frozen=True)
class Agreed:
    """Hold what all sites of a run agree on; made of the server's values, which may be anything.

    - ``classes``: in the order of their numbers, as the server knows them
    - ``names``: their encrypted names, by key, where they are keyed
    - ``named``: whether the server can read them
    - ``columns``: digest of the names of the columns of features
    """

    classes: tuple[str, ...]
    names: Mapping[str, str]
    named: Named
    columns: str

    @staticmethod
    def of(values: Any) -> Agreed:
        """Check the server's values; raise :class:`Refusal` where they are none."""
        try:
            found = Agreed(tuple(values["classes"]), dict(values["names"]), values["named"],
                           values["columns"])
            texts = [*found.classes, *found.names, *found.names.values(), found.columns]
            if (found.named not in ("keyed", "open") or not all(isinstance(t, str) for t in texts)
                    or len(set(found.classes)) != len(found.classes)):
                raise ValueError
        except (KeyError, TypeError, ValueError) as error:
            raise Refusal("classes") from error
        return found


class SiteGraph:
    """The labelled graph of one site.

    ``openly``: this site lets the server read names of classes; counts are given as multiples of
    ``grain``; ``sure``: new classes are meant as they are. ``folder`` keeps the graph of a run that
    lives; ``again`` reads the tables with the kinds that names had when the run began.
    """

    def __init__(self, table: Any, folder: Path, openly: bool, grain: int = 1, sure: bool = False,
                 again: Callable[[Look], Any] | None = None) -> None:
        if not isinstance(table, Graph):
            raise Refusal("no-nodes")
        self.table, self.folder, self.openly, self.grain = table, folder, openly, grain
        self.sure, self.again = sure, again
        self.secret = table.names().secret

    def described(self, named: Named, plan: Mapping[str, Any] | None,
                  classes: list[str] | None, live: bool, fits: list[Any] | None
                  ) -> dict[str, Any]:
        """Return what the server learns before a run, and before each look of one that lives.

        ``nodes``, ``features``: counts; ``columns``: a digest; ``classes`` and ``names`` of this
        site; ``block``: in which its first node came; ``waiting`` int64 [C]: labelled nodes that no
        task has, of the classes of tasks so far. ``named``: whether the names of classes are to be
        open; ``plan``, ``classes`` and ``fits`` (``features``, ``columns``) are those of the run so
        far, None before the first tasks; ``live``: keep the rows that are new, in the block after
        the plan's last one. Raises :class:`Refusal` where the site does not want its classes to be
        open, its features are not those of the run, or rows that the run has learned are gone.
        """
        self._allow(named)
        if fits is not None:
            self._check_columns(*fits)
        known = None if plan is None else OpenTaskPlan.of(plan)
        graph = self._kept(0 if known is None else len(known.blocks)) if live else self.table
        waiting = np.zeros(0 if known is None else known.classes, np.int64)
        if known is not None and classes is not None:
            for label, count in known.waiting(self._numbered(graph, classes, named))[1].items():
                waiting[label] = count
        return {"nodes": coarse(len(graph), self.grain), "features": graph.features,
                "columns": self.columns,
                "classes": keys(graph.classes, self.secret, named),
                "names": sealed(graph.classes, self.secret, named),
                "block": int(graph.came.node.min()) if graph.came is not None else 0,
                "waiting": coarse(waiting, self.grain)}

    def part(self, name: str, agreed: Agreed, facts: Mapping[str, Any], live: bool) -> Graph:
        """Return the client's part of a run.

        Labels of classes that are not agreed on are hidden. Raises :class:`Refusal` where the
        features are not those that were agreed on.
        """
        self._allow(agreed.named)
        self._check_columns(facts.get("features"), agreed.columns)
        graph = KeptGraph.open(self.folder).graph if live else self.table
        found = self._numbered(graph, agreed.classes, agreed.named)
        return replace(found, name=f"federation/{name}",
                       classes=shown(agreed.classes, agreed.names, self.secret))

    @property
    def columns(self) -> str:
        """Return a digest of the names of the columns, which the server cannot guess."""
        text = "\0".join(self.table.columns).encode()
        return hmac.digest(self.secret, b"columns " + text, "sha256").hex()[:32]

    def _check_columns(self, features: Any, columns: Any) -> None:
        if self.table.features != features or self.columns != columns:
            raise Refusal("columns")

    def _allow(self, named: Named) -> None:
        if named == "open" and not self.openly:
            raise Refusal("open-classes")

    def _numbered(self, graph: Graph, classes: Any, named: Named) -> Graph:
        """Return the graph with the run's numbers of classes, -1 for those that it lacks."""
        place = {key: number for number, key in enumerate(classes)}
        into = np.array([*(place.get(key, -1) for key in keys(graph.classes, self.secret, named)),
                         -1], np.int64)
        return replace(graph, y=into[graph.y], classes=tuple(classes))

    def _kept(self, block: int) -> Graph:
        """Return the rows that the site keeps, with those of its tables that are new."""
        try:
            if not KeptGraph.there(self.folder):
                graph = first(self.table)
                assert graph.came is not None
                graph = replace(graph, came=Came(*(of + np.int32(block) for of in graph.came)))
                return KeptGraph.write(self.folder, graph, {}).graph
            was = KeptGraph.open(self.folder).graph
            if self.again is not None:
                self.table = as_before(was, self.table, self.again)
            graph, news = merged(was, self.table, block)
            self._ask_about_new(was, graph)
            return KeptGraph.write(self.folder, graph, {}).graph if any(news) else graph
        except Refusal:
            raise
        except FedvineError as error:       # it names a node
            raise Refusal("rows", text=str(error)) from error

    def _ask_about_new(self, was: Graph, now: Graph) -> None:
        """Raise :class:`Refusal` for a new class that may be a known one, unless sure."""
        counts = np.bincount(now.y[now.y >= 0], minlength=len(now.classes)).tolist()
        new = dict(zip(now.classes, counts, strict=True))
        try:
            ask_about_new("class", was.classes, {name: count for name, count in new.items()
                                                 if name not in was.classes}, now.name, self.sure)
        except FedvineError as error:
            raise Refusal("new-class", text=str(error)) from error
