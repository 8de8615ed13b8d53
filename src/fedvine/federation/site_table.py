"""A site's own table, and what the server learns of it before a run: counts, times, keys, sums."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic, atomic_folder
from fedvine.data.dates import moment
from fedvine.data.growth import News, as_before, news, taken
from fedvine.data.io.look import Look
from fedvine.data.kept import KeptRows
from fedvine.data.node_features import sums
from fedvine.data.plan import Plan, believed_times, far_apart, known
from fedvine.data.split import Split
from fedvine.data.stream import EventStream
from fedvine.engines.refusals import Refusal
from fedvine.federation.policy import coarse


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
                "last": float(t[-1]) if len(t) else None, "dates": self.read().dates,
                **({"tables": True} if table.tables() or table.edge_columns else {}),
                **({} if far is None else {"far": far})}

    def known(self, bounds: list[float], others: list[float] | None = None) -> np.ndarray:
        """Count the edges of the table at or before each bound, int64.

        ``others`` are the first and the last time of all other sites. Raises :class:`Refusal` where
        this site's times are further from them than either span is long, unless it is sure.
        """
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

        Those of nodes with an edge before ``stop`` count, and of columns of these edges. A column
        that fewer of them than the grain have a value in counts as empty. Other counts are rounded
        up to it, and the sums are larger in proportion. Raises :class:`Refusal` where sums over
        other rows were given before, fewer than the grain: the difference would show what these few
        have.
        """
        found = sums(self.edges().both_ways().before(stop))
        self._give({f"{side}/{name}": int(one[0]) for side, columns in found.items()
                    for name, one in columns["numbers"].items() if one[0] >= self.grain})
        for side in found.values():
            side["numbers"] = {name: self._coarse(one) for name, one in side["numbers"].items()}
        return found

    def _coarse(self, one: list[float]) -> list[float]:
        """Return a column's count, sum and sum of squares, the count a multiple of the grain."""
        if one[0] < self.grain:
            return [0.0, 0.0, 0.0]
        count = float(coarse(int(one[0]), self.grain))
        return [count, *(value * count / max(one[0], 1.0) for value in one[1:])]

    def _give(self, counts: dict[str, int]) -> None:
        """Keep how many values each column's sums are of, before these are sent."""
        if self.grain == 1 or self.given is None:
            return
        before = json.loads(self.given.read_text("utf-8")) if self.given.exists() else {}
        if any(0 < abs(count - old) < self.grain for column, count in counts.items()
               for old in before.get(column, ())):
            raise Refusal("sums")
        more = {column: sorted({count, *before.get(column, ())})
                for column, count in counts.items()}
        self.given.parent.mkdir(parents=True, exist_ok=True)
        with atomic(self.given, "w") as file:
            json.dump({**before, **more}, file)

    def arrivals(self) -> tuple[np.ndarray, np.ndarray]:
        """Return users' keys uint64 [n] and first times here float64 [n], for travelled users."""
        part = self.stream
        users, first = np.unique(part.src, return_index=True)
        return part.src_ids.keys(users), np.asarray(part.order)[first].astype(float)


# -- the rows that a site keeps for a run whose plan grows -----------------------------------------
def grown_at_a_site(folder: Path, table: EventStream, plan: Plan, since: int = 0,
                    again: Callable[[Look], EventStream] | None = None) -> EventStream:
    """Return a site's rows of the plan's stages, and keep them in ``folder``.

    Rows are numbered in the order in which they came; those that are older than the site's last
    stage, or than its first one (``since``), are learned in the next one. ``again`` reads the table
    again with the kinds that its columns had when the run began. The rows have the dictionaries'
    secrets of ``table``. Raises :class:`FedvineError` where the table has lost or changed a row
    that is kept, or a cell is of another kind.
    """
    if not KeptRows.there(folder):
        none = np.empty(0, np.int64)
        nobody = table.take(none)
        nobody.src_ids, nobody.dst_ids = table.src_ids.take(none), table.dst_ids.take(none)
        nobody.codes = {}
        for side, held in table.tables().items():
            setattr(nobody, f"{side}_table", held.take(none))
        with atomic_folder(folder) as target:
            KeptRows.create(target, Split({}, nobody, ""), plan.cut(since))
    kept = KeptRows.open(folder)
    stream, learned = kept.split.stream, kept.plan.bounds[-1]
    table = table if again is None else as_before(stream, table, again)
    if plan.bounds[-1] > learned:
        found = news(stream, table, learned, where=folder) if len(stream) else _all(table, learned)
        kept = kept.take(taken(stream, found, learned, plan.bounds[-1]), plan)
    found = kept.split.stream[:]
    found.src_ids.secret, found.dst_ids.secret = table.src_ids.secret, table.dst_ids.secret
    return found


def _all(table: EventStream, learned: float) -> News:
    """Return all rows as new ones."""
    late = table._rank(learned)
    return News(table, np.arange(late), np.arange(late, len(table)))
