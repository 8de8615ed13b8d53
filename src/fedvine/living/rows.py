"""The rows that a run has learned, on disk: the whole stream or graph, and the clients' parts.

They only grow. ``rows.json`` says what counts of each file, and has the plan; it is replaced last,
so that a process that is killed while rows are added leaves the old state.

Where a split has no name (``by``), there is no part, as at a site of a federation. Of a stream:

- ``stream/``, ``part-<i>/``: columns as :meth:`fedvine.data.stream.EventStream.write` has them,
  to which rows are added; a part also has ``whole-src.npy``, ``whole-dst.npy``: the numbers of its
  nodes in ``stream/``
- ``owner-<items>.npy``: the client of each item, where a partition made the split
- ``seen-<rows>.npy``: where and when users were first seen (:func:`fedvine.data.split.first_seen`)

A graph is in memory as a whole, and written as a whole:

- ``graph-<n>/``: as :meth:`fedvine.data.graph.Graph.write` has it, the n-th since the run began
- ``part-<i>-<n>/``: the numbers of a part's nodes (``nodes.npy``); a part that is not what its
  nodes induce in the graph, as with fewer edges (``[tasks]``), is written in full
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.core.files import append_rows, atomic, atomic_folder, mapped
from fedvine.core.lookup import find
from fedvine.data.graph import Graph
from fedvine.data.plan import Plan
from fedvine.data.split import (
    Split,
    elsewhere,
    ends,
    first_seen,
    listed,
    owning_node,
    relabel,
)
from fedvine.data.stream import EventStream
from fedvine.tasks.task_plan import TaskPlan

ADVICE = "put its files back, or begin a new run with another --out"
_VALUES = ("src", "dst", "t", "weight", "features", "label", "deleted")


@dataclass(frozen=True)
class StoredRows:
    """The rows of a run, opened.

    - ``folder``: where they are
    - ``split``: the stream and the parts, mapped, or the graph and its parts
    - ``plan``: the stages, or the tasks
    - ``facts``: the other values of ``rows.json``
    """

    folder: Path
    split: Split
    plan: Any
    facts: dict[str, Any]

    @property
    def column(self) -> str | None:
        """The column of clients of a stream; None where a partition deals it, and of a graph."""
        by = self.split.by
        return by if self.split.owner is None and by in getattr(self.split.stream, "codes", ()) \
            else None

    @staticmethod
    def there(folder: Path) -> bool:
        """Return whether ``folder`` has the rows of a run."""
        return (folder / "rows.json").exists()

    @staticmethod
    def create(folder: Path, split: Split, plan: Any, **facts: Any) -> None:
        """Write a split's rows and parts to an empty folder, with ``facts`` for ``rows.json``."""
        if isinstance(split.stream, Graph):
            every = split.stream.owner is None or set(split.parts) == {*split.stream.owner.names}
            _write_graph(folder, split, plan, {
                "by": split.by, "clients": None if every else list(split.parts), "graph": -1,
                **facts})
            return
        stream, owner = split.stream, split.owner
        grows = stream.nodes is None and (owner is not None or split.by in stream.codes
                                          or not split.by)
        stream.write(folder / "stream")
        if owner is not None:
            np.save(folder / f"owner-{len(owner)}.npy", np.asarray(owner, np.int32))
        if grows and split.by:
            _write_seen(folder, len(stream), *_owners(split, stream, owner))
        parts = []
        for number, (name, part) in enumerate(split.parts.items()):
            part.write(folder / f"part-{number}")
            for side in ("src", "dst") if part.bipartite else ("src",):
                whole = getattr(stream, f"{side}_ids").numbers(getattr(part, f"{side}_ids"))
                np.save(folder / f"part-{number}" / f"whole-{side}.npy", whole.astype(np.int32))
            parts.append([name, part.described()])
        every = grows and (not split.by or len(parts) == len(_names(split, stream)))
        _commit(folder, stream.described(), parts, plan, {
            "by": split.by, "names": [] if owner is None else list(split.names),
            "seed": split.seed, "clients": None if every else list(split.parts), "grows": grows,
            "late": 0, **facts})

    @staticmethod
    def open(folder: Path) -> StoredRows:
        """Open the rows in ``folder``; raises :class:`FedvineError` if they cannot be read."""
        try:
            facts = json.loads((folder / "rows.json").read_text("utf-8"))
            if "graph" in facts:
                return _open_graph(folder, facts)
            stream = EventStream.open(folder / "stream", facts["stream"], ADVICE)
            owner = ([] if not facts["names"] else
                     [mapped(folder / f"owner-{stream.num_dst}.npy")])
            split = Split({}, stream, facts["by"], *owner, names=tuple(facts["names"]),
                          seed=facts["seed"])
            parts, number_of, seen = {}, dict[str, int](), np.empty(0)
            if facts["grows"] and facts["parts"]:
                number_of = {name: k for k, name in enumerate(_names(split, stream))}
                seen = mapped(folder / f"seen-{len(stream)}.npy")
            for number, (name, meta) in enumerate(facts["parts"]):
                parts[name] = EventStream.open(folder / f"part-{number}", meta, ADVICE)
                if facts["grows"]:
                    users = mapped(folder / f"part-{number}" / "whole-src.npy")
                    parts[name].first_seen_elsewhere = elsewhere(
                        seen, users[:parts[name].num_src], number_of[name])
            split = replace(split, parts=dict(sorted(parts.items())))
            return StoredRows(folder, split, Plan.of_facts(facts["plan"]), facts)
        except (OSError, EOFError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, FedvineError):
                raise
            raise FedvineError(f"{folder} does not hold the rows of a run ({error}); {ADVICE}."
                               ) from error

    def take(self, rows: EventStream, plan: Plan, **facts: Any) -> StoredRows:
        """Add rows, numbered by :func:`fedvine.living.news.taken`, and return all that is kept.

        New clients get a part of their own, new items of a partition a client by the hash of their
        name. ``facts`` replace values of ``rows.json``. Raises :class:`FedvineError` where a file
        cannot be written; what was kept is as it was then.
        """
        split, stream = self.split, self.split.stream
        if not self.facts["grows"]:
            raise FedvineError(f"{stream.name} is split, or has classes of nodes, in a way that "
                               "cannot grow; begin a new run with another --out.")
        if not split.by:
            described = _append(self.folder / "stream", stream, rows)
            return self._committed(described, [], plan, facts)
        owner = None
        if split.owner is not None:
            owner = _extended(split, rows)
            if len(owner) > len(split.owner):
                with atomic(self.folder / f"owner-{len(owner)}.npy") as file:
                    np.save(file, owner)
        names = _names(split, rows)
        whole, (rows, client) = rows, _owners(split, rows, owner)
        _write_seen(self.folder, len(stream) + len(whole), rows, client,
                    mapped(self.folder / f"seen-{len(stream)}.npy"))
        parts = {name: [number, meta] for number, (name, meta) in enumerate(self.facts["parts"])}
        wanted = self.facts["clients"]
        table = rows.dst_table is not None
        new = [k for k, name in enumerate(names) if name in parts] if (
            table and rows.num_dst > stream.num_dst) else []        # items may be listed there
        for k in np.unique(np.append(client, new)).astype(int).tolist():
            if wanted is None or names[k] in wanted:
                number, meta = parts.get(names[k], (len(parts), None))
                before = np.arange(stream.num_dst if meta else 0)
                more = listed(rows, before, k, owner) if table else None
                parts[names[k]] = [number, self._add(number, split.parts.get(names[k]),
                                                     rows.take(np.flatnonzero(client == k)),
                                                     f"{stream.name}/{names[k]}", more)]
        described = _append(self.folder / "stream", stream, whole)
        found = self._committed(described, [[name, meta] for name, (_, meta) in parts.items()],
                                plan, facts)
        if len(found.split.stream) > len(stream):
            (self.folder / f"seen-{len(stream)}.npy").unlink(missing_ok=True)
        if found.split.stream.num_dst > stream.num_dst:
            (self.folder / f"owner-{stream.num_dst}.npy").unlink(missing_ok=True)
        return found

    def replaced(self, graph: Graph, plan: TaskPlan, **facts: Any) -> StoredRows:
        """Write a graph that has grown, and its plan, in place of the old ones; return both.

        ``facts`` replace values of ``rows.json``. Raises :class:`FedvineError` where a file cannot
        be written; what was kept is as it was then.
        """
        split = of_owners(graph, facts.get("clients", self.facts["clients"]))
        _write_graph(self.folder, split, plan, {**self.facts, **facts})
        return StoredRows.open(self.folder)

    @staticmethod
    def back(folder: Path, facts: dict[str, Any]) -> None:
        """Go back to an earlier state of the rows, of which ``rows.json`` had these ``facts``."""
        if "graph" in facts:
            now = StoredRows.open(folder)
            graph = now.split.stream.as_of(len(facts["plan"]["blocks"]) - 1, *facts["names"])
            _write_graph(folder, of_owners(graph, facts["clients"]), TaskPlan.of_facts(
                facts["plan"]), {**facts, "graph": now.facts["graph"]})
            return
        stream = EventStream.open(folder / "stream", facts["stream"], ADVICE)
        owner = None
        if facts["names"]:
            file = folder / f"owner-{stream.num_dst}.npy"
            newest = max(folder.glob("owner-*.npy"), key=lambda f: int(f.stem.split("-")[1]))
            owner = np.array(mapped(newest)[:stream.num_dst])
            with atomic(file) as handle:
                np.save(handle, owner)
        if facts["grows"] and facts["by"]:
            split = Split({}, stream, facts["by"], owner, names=tuple(facts["names"]))
            _write_seen(folder, len(stream), *_owners(split, stream, owner))
        with atomic(folder / "rows.json", "w") as handle:
            json.dump(facts, handle)
        none, kept = np.empty(0, np.int64), StoredRows.open(folder).split   # later names go
        _append(folder / "stream", stream, stream.take(none))
        for place in folder.glob("part-*"):
            if (number := int(place.name[5:])) >= len(facts["parts"]):
                shutil.rmtree(place)
                continue
            part = kept.parts[facts["parts"][number][0]]
            _append(place, part, part.take(none))
            for side in ("src", "dst") if part.bipartite else ("src",):
                append_rows(place / f"whole-{side}.npy", len(getattr(part, f"{side}_ids")),
                            none.astype(np.int32))

    def planned(self, plan: Plan, **facts: Any) -> StoredRows:
        """Replace the plan, and values of ``rows.json``, where no row is added."""
        return self._committed(self.facts["stream"], self.facts["parts"], plan, facts)

    def _committed(self, stream: dict[str, Any], parts: list[Any], plan: Plan,
                   facts: dict[str, Any]) -> StoredRows:
        """Write ``rows.json`` anew, and open what it counts."""
        same = {key: value for key, value in self.facts.items()
                if key not in ("stream", "parts", "plan")}
        _commit(self.folder, stream, parts, plan, {**same, **facts})
        return StoredRows.open(self.folder)

    def _add(self, number: int, part: EventStream | None, rows: EventStream, name: str,
             more: np.ndarray | None = None) -> dict[str, Any]:
        """Add rows with the stream's numbers to a part; return the part's new sizes.

        ``more`` are items that are listed now, int64; a new part has all that are listed.
        """
        folder = self.folder / f"part-{number}"
        sides = {"src": rows.src, "dst": rows.dst} if rows.bipartite else {
            "src": np.stack([rows.src, rows.dst], 1).reshape(-1)}
        local, ids, new, tables = {}, {}, {}, {}
        for side, column in sides.items():
            have = 0 if part is None else len(getattr(part, f"{side}_ids"))
            whole = (np.empty(0, np.int32) if part is None else
                     np.asarray(mapped(folder / f"whole-{side}.npy")[:have]))
            order = np.argsort(whole, kind="stable")
            at = find(whole[order], column)
            place = np.where(at < 0, -1, order[at] if len(order) else -1).astype(np.int32)
            fresh, new[side] = relabel(column[place < 0])
            place[place < 0] = have + fresh
            if side == "dst" and more is not None:
                new[side] = np.append(new[side], np.setdiff1d(more, np.append(whole, new[side])))
            names = getattr(rows, f"{side}_ids").take(new[side])
            local[side] = place
            ids[side] = names if part is None else getattr(part, f"{side}_ids").joined(names)
            if side in rows.tables():
                said = rows.tables()[side].take(new[side])
                tables[f"{side}_table"] = (said if part is None else
                                           part.tables()[side].joined(said))
        src = local["src"] if rows.bipartite else local["src"][0::2].copy()
        dst = local["dst"] if rows.bipartite else local["src"][1::2].copy()
        values = {c: getattr(rows, c) for c in (*_VALUES[3:], "arrived")}
        made = EventStream(src, dst, rows.t, ids["src"], ids.get("dst"), directed=rows.directed,
                           mirrored=rows.mirrored, name=name,
                           edge_columns=rows.edge_columns, **tables, **values)
        made.dates, made.whole = rows.dates, rows.whole
        for side, numbers in new.items():
            if part is not None:
                append_rows(folder / f"whole-{side}.npy", len(getattr(part, f"{side}_ids")),
                            numbers.astype(np.int32))
        if part is not None:
            return _append(folder, part, made)
        made.write(folder)
        for side, numbers in new.items():
            np.save(folder / f"whole-{side}.npy", numbers.astype(np.int32))
        return made.described()


def _append(folder: Path, held: EventStream, rows: EventStream) -> dict[str, Any]:
    """Add rows, whose dictionaries are those of both, to a written stream; return its sizes."""
    count = len(held)
    for column in _VALUES:
        if getattr(held, column) is not None:
            append_rows(folder / f"{column}.npy", count, np.asarray(getattr(rows, column)))
    for column in held.codes:
        append_rows(folder / f"code-{column}.npy", count, rows.codes[column])
    if held.arrived is not None:
        append_rows(folder / "arrived.npy", count, rows.order)
    elif rows.arrived is not None:
        with atomic(folder / "arrived.npy") as file:
            np.save(file, np.concatenate([held.t, rows.arrived]))
    rows.src_ids.append(folder, "src", held.num_src)
    if held.bipartite:
        rows.dst_ids.append(folder, "dst", held.num_dst)
    for side, table in rows.tables().items():
        table.append(folder, side, held.num_src if side == "src" else held.num_dst)
    return {**rows.described(), "edges": count + len(rows), "notes": list(held.notes),
            "arrived": held.arrived is not None or rows.arrived is not None}


def _names(split: Split, stream: EventStream) -> list[str]:
    """Return the clients' names by position, of a partition or of the stream's column."""
    return list(split.names) if split.owner is not None else [
        str(name) for name in stream.categories[split.by]]


def _owners(split: Split, rows: EventStream, owner: np.ndarray | None
            ) -> tuple[EventStream, np.ndarray]:
    """Return the rows as the parts hold them, and the position of each one's client."""
    mine = rows.codes[split.by] if owner is None else owner[owning_node(rows)]
    return ends(rows, np.asarray(mine))


def _extended(split: Split, rows: EventStream) -> np.ndarray:
    """Return the owners of all items of ``rows``' dictionary; new ones by the hash of the name."""
    assert split.owner is not None
    have, new = len(split.owner), np.arange(len(split.owner), rows.num_dst)
    if not len(new):
        return np.asarray(split.owner)
    names, none = rows.dst_ids.take(new), np.empty(0, np.int32)
    fresh = EventStream(none, none, rows.t[:0], names, names)
    owner = registry.find("partitions", "hash").partition(fresh, len(split.names), split.seed)
    return np.concatenate([np.asarray(split.owner)[:have], owner]).astype(np.int32)


def _write_seen(folder: Path, count: int, rows: EventStream, client: np.ndarray,
                before: np.ndarray | None = None) -> None:
    """Write where and when users were first seen by the first ``count`` rows of the stream."""
    with atomic(folder / f"seen-{count}.npy") as file:
        np.save(file, first_seen(rows, client, before))


def _commit(folder: Path, stream: dict[str, Any], parts: list[Any], plan: Plan,
            facts: dict[str, Any]) -> None:
    with atomic(folder / "rows.json", "w") as file:
        json.dump({**facts, "stream": stream, "parts": parts, "plan": plan.facts()}, file)


def of_owners(graph: Graph, clients: list[str] | None) -> Split:
    """Return a graph that grows with the parts of its owners, or of some of them."""
    return Split({}, graph, "") if graph.owner is None else graph.split(graph.owner.column,
                                                                        clients=clients)


# -- a labelled graph, which is written as a whole ------------------------------------------------
def _write_graph(folder: Path, split: Split, plan: TaskPlan, facts: dict[str, Any]) -> None:
    """Write a graph and its parts beside those that ``facts`` are of, then ``rows.json``."""
    graph, number = split.stream, facts["graph"] + 1
    graph.write(_fresh(folder / f"graph-{number}"))
    for i, part in enumerate(split.parts.values()):
        place = _fresh(folder / f"part-{i}-{number}")
        if not _induced(part, graph):
            part.write(place)
            continue
        with atomic_folder(place) as target:
            np.save(target / "nodes.npy", part.nodes)
    with atomic(folder / "rows.json", "w") as file:
        json.dump({**facts, "graph": number, "plan": plan.facts(),
                   "parts": [[name, part.name] for name, part in split.parts.items()]}, file)
    for old in folder.glob(f"*-{number - 1}"):
        shutil.rmtree(old, ignore_errors=True)


def _open_graph(folder: Path, facts: dict[str, Any]) -> StoredRows:
    number, parts = facts["graph"], {}
    graph = Graph.open(folder / f"graph-{number}")
    for i, (client, name) in enumerate(facts["parts"]):
        place = folder / f"part-{i}-{number}"
        parts[client] = (Graph.open(place) if (place / "graph.json").exists() else
                         graph.induced(np.load(place / "nodes.npy"), name))
    plan = TaskPlan.of_facts(facts["plan"])
    return StoredRows(folder, Split(parts, graph, facts["by"]), plan, facts)


def _induced(part: Graph, whole: Graph) -> bool:
    """Return whether the part is what its nodes induce in the graph, whose numbers are 0..N-1."""
    if not np.array_equal(whole.nodes, np.arange(len(whole))):
        return False
    found, held = whole.induced(part.nodes, part.name).arrays(), part.arrays()
    return found.keys() == held.keys() and all(np.array_equal(found[k], held[k]) for k in held)


def _fresh(folder: Path) -> Path:
    """Return the name of a folder that is not there; one of a process that was killed is lost."""
    shutil.rmtree(folder, ignore_errors=True)
    return folder
