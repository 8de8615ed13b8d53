"""Questions to runs: each is opened at its first question and kept open for the next ones."""

from __future__ import annotations

import bisect
import threading
from typing import Any

from fedvine.app.watched import Watched
from fedvine.core.errors import FedvineError
from fedvine.data.ids import Ids
from fedvine.experiments.reopened import OpenRun, open_run
from fedvine.federation import kept_answers
from fedvine.results.view import plain
from fedvine.tasks.class_incremental import said_of

EDGES = 10          # last edges that are shown
NAMES = 8           # names that are suggested
MOST = 2_000_000    # names of a client; of more none are suggested


class Asked:
    """The run of a folder, opened when it is first asked, and anew when it has learned more."""

    def __init__(self, seen: Watched) -> None:
        self.seen, self._lock = seen, threading.Lock()      # a run is for one thread at a time
        self._opened: OpenRun | None = None
        self._ends: Any = None
        self._names: dict[str, list[str]] = {}

    def forecasts(self, client: str, user: str, top: int) -> dict[str, Any]:
        """Return a user's likeliest items at a client and last edges (:class:`OpenRun`)."""
        if kept_answers.there(self.seen.folder):
            best = kept_answers.kept(self.seen.folder, user, top)
            return plain({"items": _items(best, []), "edges": [], "as_of": "", "home": True})
        with self._lock:
            opened = self._open()
            best = opened.predict(client, user, top)
            edges = opened.last_edges(client, user, EDGES)
            why = opened.why(client, user, [one.item for one in best])
            return plain({"items": _items(best, why), "edges": [e._asdict() for e in edges],
                          "as_of": _as_of(opened), "home": bool(edges)})

    def label(self, client: str | None, node: str) -> dict[str, Any]:
        """Return a node's likeliest classes and last edges; raise if client or node is unknown."""
        if kept_answers.there(self.seen.folder):
            row, = kept_answers.labels(self.seen.folder, node).to_pylist()
            return plain({**_classes(row), "edges": [], "as_of": ""})
        with self._lock:
            opened = self._open()
            row, = opened.labels([node], client or None).to_pylist()
            place = row["client"] if row["client"] in opened.clients else opened.clients[0]
            edges = opened.last_edges(place, node, EDGES)
            return plain({**_classes(row), "edges": [e._asdict() for e in edges],
                          "as_of": _as_of(opened)})

    def names(self, client: str, start: str) -> list[str]:
        """Return some names of users or nodes of a client that begin with ``start``, sorted."""
        with self._lock:
            opened = self._open()
            part = opened.run.parts.get(client)
            if part is None:
                return []
            if client not in self._names:
                ids: Ids = part.src_ids if hasattr(part, "src_ids") else part.names()
                self._names[client] = ([] if len(ids) > MOST else
                                       sorted(ids[i] for i in range(len(ids))))
        every = self._names[client]
        first = bisect.bisect_left(every, start)
        return plain([n for n in every[first:first + NAMES] if n.startswith(start)])

    def _open(self) -> OpenRun:
        """Return the run, opened again where it was saved since."""
        folder = self.seen.folder
        ends = sorted(path.name for path in (folder / "saves").glob("[0-9]*"))
        if self._opened is None or ends != self._ends:
            self._opened, self._names = open_run(folder), {}
            self._ends = ends
        return self._opened


def _as_of(opened: OpenRun) -> str:
    return (f"As of stage {opened.stage + 1} of {opened.stages}, the last one that was learned."
            if opened.run.summary is None else said_of(opened.run.summary["final"])
            if opened.final else "")


def _items(best: list[Any], why: list[str]) -> list[dict[str, Any]]:
    return [{"item": item, "score": float(score), "known": bool(known),
             "why": why[i] if i < len(why) else ""}
            for i, (item, score, known) in enumerate(best)]


def _classes(row: dict[str, Any]) -> dict[str, Any]:
    found = sorted(((value, key[2:-1]) for key, value in row.items() if key.startswith("p(")),
                   reverse=True)
    return {"client": row["client"], "label": row["label"], "given": row["given"],
            "classes": [{"label": name, "p": p} for p, name in found[:10]]}


def refuse_long(*names: str) -> None:
    """Raise :class:`FedvineError` for a name that no person types."""
    if any(len(name) > 1000 for name in names):
        raise FedvineError("A name is longer than 1,000 characters.")
