"""A site's own table, and what the server learns of it before a run: counts, times, keys, sums."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic
from fedvine.data.dates import moment
from fedvine.data.graph import Graph
from fedvine.data.io.look import Look
from fedvine.data.node_features import sums
from fedvine.data.plan import believed_times, far_apart, known
from fedvine.data.split import Split
from fedvine.data.stream import EventStream
from fedvine.engines.remote import Refusal
from fedvine.federation.order import Named, keys, sealed, shown
from fedvine.federation.policy import coarse
from fedvine.living.graph_news import merged
from fedvine.living.news import as_before, ask_about_names
from fedvine.living.rows import StoredRows
from fedvine.tasks.task_plan import TaskPlan

TIMES = 100_000     # stage bounds that edges are counted up to, at most


class SiteTable:
    """The table of one site, opened at its first use.

    ``open_part`` opens the site's own stream; it takes the kinds of a run's columns
    (:class:`fedvine.data.io.look.Look`), None: as they are found. ``sure``: times that are far from
    all others are meant. Counts are given as multiples of ``grain``, sums over fewer nodes not at
    all; ``given`` is the file of sums that were given; None: two may differ in fewer rows than the
    grain.
    """

    def __init__(self, open_part: Callable[..., Any], sure: bool = False, grain: int = 1,
                 given: Path | None = None) -> None:
        self.open_part, self.sure, self.grain, self.given = open_part, sure, grain, given
        self.table: Any = None                      # as it was last read; a stream or a graph
        self.part: EventStream | None = None        # the client's own data in the run

    @property
    def stream(self) -> EventStream:
        """Return the client's own data: the rows that a run that grows keeps, else the table."""
        if self.part is None:
            self.part = self.edges().both_ways()
        return self.part

    def read(self) -> Any:
        """Return the site's own table, opened at its first use."""
        if self.table is None:
            try:
                self.table = self.open_part()
            except FedvineError as error:  # its text may hold names, cells and paths
                raise Refusal("table", text=str(error)) from error
        return self.table

    def edges(self) -> EventStream:
        """Return the site's own table of edges; raise :class:`Refusal` for one of nodes."""
        table = self.read()
        if not isinstance(table, EventStream):
            raise Refusal("no-edges")
        return table

    # -- asked before a run: plain counts, and keys of users -------------------------------------
    def facts(self, again: bool = False, stages: str | None = None) -> dict[str, Any]:
        """Return the number of edges, first and last time, and whether times are dates.

        Also that there is a table of users or items, or a column of edges, if there is one.
        ``again``: read the table again. With ``stages``, a duration, rows whose times are far from
        all others do not count for the first and the last time, unless the site is sure of them;
        ``far`` is then the time of one. In a run that does not live they raise :class:`Refusal`.
        """
        if again:
            self.table = None
        table = self.edges().both_ways()
        t, far = np.asarray(table.t), None
        if stages is not None and not self.sure:
            t, far = believed_times(t, stages)
        if far is not None and not again:
            raise Refusal("far", text=f"{table.name}: {moment(far, table.dates)} is far from all "
                          "other times of this site; correct it, or set sure = true under [data] "
                          "of site.toml.")
        return {"edges": coarse(len(table), self.grain), "first": float(t[0]) if len(t) else None,
                "last": float(t[-1]) if len(t) else None, "dates": bool(self.read().dates),
                **({"tables": True} if table.tables() or table.edge_columns else {}),
                **({} if far is None else {"far": far})}

    def known(self, bounds: list[float], others: list[float] | None = None) -> np.ndarray:
        """Count the edges of the table at or before each bound, int64.

        ``others`` are the first and the last time of all other sites. Raises :class:`Refusal` where
        this site's times are further from them than either span is long, unless it is sure.
        """
        if len(bounds) > TIMES:
            raise Refusal("bounds", f"{TIMES:,}")
        table = self.edges()
        if others is not None and not self.sure and len(table):
            own = float(table.t[0]), float(table.t[-1])
            if far_apart(own, others):
                mine, its = (" to ".join(moment(t, True) for t in span) for span in (own, others))
                raise Refusal("span", text=f"{table.name}: times go from {mine}, and those of the "
                              f"other sites from {its}, if all are seconds since 1970; write them "
                              "alike, or set sure = true under [data] of site.toml.")
        return coarse(known(self.edges().both_ways(), bounds), self.grain)

    def tables(self, stop: float) -> dict[str, Any]:
        """Return sums of the tables of users and items (:func:`fedvine.data.node_features.sums`).

        Those of nodes with an edge before ``stop`` count, and of columns of these edges; of a
        labelled graph the features from its edges, of all nodes. A column
        that fewer of them than the grain have a value in counts as empty. Other counts are rounded
        up to it, and the sums are larger in proportion. Where sums were given before of fewer rows
        more or less than the grain, as before a cell was changed, these are given again: the
        difference would show what these few have.
        """
        table = self.read()
        found = sums(table if isinstance(table, Graph) else
                     self.edges().both_ways().before(stop))
        before = self._given()
        for side, columns in found.items():
            columns["numbers"] = {name: self._again(f"{side}/{name}", one, before)
                                  for name, one in columns["numbers"].items()}
        if self.given is not None and before:
            with atomic(self.given, "w") as file:
                json.dump(before, file)
        for columns in found.values():
            columns["numbers"] = {name: self._coarse(one)
                                  for name, one in columns["numbers"].items()}
        return found

    def _coarse(self, one: list[float]) -> list[float]:
        """Return a column's count, sum and sum of squares, the count a multiple of the grain."""
        if one[0] < self.grain:
            return [0.0, 0.0, 0.0]
        if self.grain == 1:
            return one
        count = float(coarse(int(one[0]), self.grain))
        return [count, *(value * count / max(one[0], 1.0) for value in one[1:])]

    def _given(self) -> dict[str, list[list[float]]]:
        """Return by column the counts and sums that were given so far."""
        there = self.grain > 1 and self.given is not None and self.given.exists()
        return json.loads(self.given.read_text("utf-8")) if there else {}  # type: ignore[union-attr]

    def _again(self, column: str, one: list[float], before: dict[str, list[list[float]]]
               ) -> list[float]:
        """Return a column's count and sums as they were given before; enter new ones."""
        if self.grain == 1 or one[0] < self.grain:
            return one
        near = [old for old in before.get(column, ()) if abs(old[0] - one[0]) < self.grain]
        before[column] = [*before.get(column, ()), *([] if near else [one])]
        return near[0] if near else one

    def arrivals(self) -> tuple[np.ndarray, np.ndarray]:
        """Return users' keys uint64 [n] and first times here float64 [n], for travelled users."""
        part = self.stream
        users, first = np.unique(part.src, return_index=True)
        return part.src_ids.keys(users), np.asarray(part.order)[first].astype(float)


# -- a site's labelled graph in a run: what the server learns of it, and the part that is learned --
# Before a run the server learns how many nodes and columns of features a site has, a keyed digest
# of the columns' names, and the classes (:mod:`fedvine.federation.order`). Of a run that lives the
# site keeps its graph, in which each row has the block of tasks as of which it came
# (:mod:`fedvine.living.graph_news`), and the server learns how many labelled nodes of each class
# no task has yet.
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
        known = None if plan is None else TaskPlan.of_facts(plan)
        graph = self._kept(len(known.blocks or ()) if known else 0) if live else self.table
        waiting = np.zeros(0 if known is None else known.classes, np.int64)
        if known is not None and classes is not None:
            for label, count in known.waiting(self._numbered(graph, classes, named))[1].items():
                waiting[label] = count
        return {"nodes": coarse(len(graph), self.grain), "features": graph.features,
                "columns": self.columns,
                "classes": keys(graph.classes, self.secret, named),
                "names": sealed(graph.classes, self.secret, named),
                "block": int(graph.came.node.min()) if graph.came is not None else 0,
                "waiting": coarse(waiting, self.grain), "tables": graph.rows is not None}

    def part(self, name: str, agreed: Agreed, facts: Mapping[str, Any], live: bool) -> Graph:
        """Return the client's part of a run.

        Labels of classes that are not agreed on are hidden. Raises :class:`Refusal` where the
        features are not those that were agreed on.
        """
        self._allow(agreed.named)
        self._check_columns(facts.get("features"), agreed.columns)
        graph = StoredRows.open(self.folder).split.stream if live else self.table
        found = self._numbered(graph.scaled(facts.get("tables", {})), agreed.classes, agreed.named)
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
            if not StoredRows.there(self.folder):
                graph = self.table.begun(block)
                StoredRows.create(self.folder, Split({}, graph, ""), TaskPlan(()))
                return graph
            rows = StoredRows.open(self.folder)
            was = rows.split.stream
            if self.again is not None:
                self.table = as_before(was, self.table, self.again)
            graph, news = merged(was, self.table, block)
        except FedvineError as error:       # it names a node
            raise Refusal("rows", text=str(error)) from error
        try:        # a new class may be a known one
            ask_about_names("class", was.classes, graph.classes, graph.y, graph.name, self.sure)
        except FedvineError as error:
            raise Refusal("new-class", text=str(error)) from error
        if any(news):
            rows.replaced(graph, rows.plan)
        return graph
