"""Answer programs by the name of a run: forecasts as a night wrote them, and computed answers."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow.lib import ArrowException

from fedvine import __version__
from fedvine.core.errors import FedvineError
from fedvine.data import handed
from fedvine.data.io.target import is_table
from fedvine.experiments.answers import read_tables
from fedvine.experiments.reopened import OpenRun
from fedvine.experiments.run_files import WRITTEN

LOOK = 1.0          # seconds between looks at what a night has written
PAUSE = 60.0        # after it could not be read
ANSWERS = 10_000    # of a question


class Written:
    """The forecasts that a night wrote for all users, in memory; read again when they change."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._seen, self._looked = folder, None, 0.0
        self._loading = threading.Lock()
        self._kept: tuple[Any, dict[tuple[str, str], tuple[int, int]], int] | None = None

    def waits(self) -> bool:
        """Return whether nothing was read yet; begin to read, beside, what is newer."""
        if time.monotonic() - self._looked < LOOK:
            return False
        self._looked = time.monotonic()
        sign = self._sign()
        if sign is None:        # deleted, as by an erasure
            self._kept = self._seen = None
        if sign == self._seen:
            return False
        if self._kept is not None and not self._loading.locked():
            threading.Thread(target=self.load, daemon=True).start()
        return self._kept is None

    def _sign(self) -> Any:
        """Return the file, its number of items a user, and what tells its versions apart."""
        for name in (WRITTEN, "follow.json"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                said = json.loads((self.folder / name).read_text("utf-8"))
                path = said["file"]
                if not handed.is_own(self.folder, path):
                    continue
                if is_table(path):      # the note is written anew with every table
                    path = self.folder / name
                found = Path(path).stat()
                return said["file"], int(said["top"]), found.st_mtime_ns, found.st_size
        return None

    def load(self) -> None:
        """Read what was written, if it can be read; until then the last ones answer."""
        with self._loading:
            sign = self._sign()
            if sign is None or sign == self._seen:
                self._kept = self._kept if sign else None
                return
            self._looked = time.monotonic() + PAUSE     # where it cannot be read
            with contextlib.suppress(FedvineError, OSError, KeyError, ArrowException, ValueError):
                table = read_tables(sign[0])
                ends = [0, *_ends(table), len(table)]
                first = table.select(["client", "user"]).take(ends[:-1]).to_pydict()
                users = zip(first["client"], first["user"], strict=True)
                found = table, dict(zip(users, pairwise(ends), strict=True)), sign[1]
                self._looked = time.monotonic()
                if sign == self._sign():        # nobody was erased meanwhile
                    self._kept, self._seen = found, sign

    def of(self, client: str, user: str, n: int) -> dict[str, Any] | None:
        """Return the first ``n`` forecasts of a user; None where they were not written."""
        if self._kept is None:
            return None
        table, at, most = self._kept
        begin, end = at.get((client, user), (0, 0))
        if begin == end or n > most:
            return None
        rows = table.slice(begin, min(n, end - begin)).to_pylist()
        told = {key: rows[0][key] for key in ("run", "as_of", "model") if key in rows[0]}
        return {**told, "client": client, "user": user, "items": [
            {key: row[key] for key in ("item", "score", "known", "probability") if key in row}
            for row in rows]}


def _ends(table: Any) -> list[int]:
    """Return the rows at which another user begins, without row 0."""
    new = np.zeros(max(len(table) - 1, 0), bool)
    for name in ("client", "user"):
        codes = np.asarray(table[name].combine_chunks().dictionary_encode().indices)
        new |= codes[1:] != codes[:-1]
    return (np.flatnonzero(new) + 1).tolist()


def computed(opened: OpenRun, run: str, given: Any, alone: bool = False) -> dict[str, Any]:
    """Return forecasts of ``users`` at a ``client``, ``n`` each, or scores of ``pairs``.

    ``alone``: of the only user, in the form of :meth:`Written.of`. Raises :class:`FedvineError` for
    other questions, and for an only user whom nobody knows.
    """
    client, n = _part(given, "client", str, ""), _part(given, "n", int, 5)
    users, pairs = (_part(given, key, list, None) for key in ("users", "pairs"))
    if (users is None) == (pairs is None) or not 1 <= n <= 100:
        raise FedvineError('Ask for {"client": ..., "users": [...], "n": 5} with an n of 1 to 100, '
                           'or for {"pairs": [{"client", "user", "item"}, ...]}.')
    told = {"run": run, "as_of": opened.run.learned_to or ""}
    if pairs is not None:
        try:
            return {**told, "pairs": opened.score(pairs).to_pylist() if pairs else []}
        except (KeyError, TypeError) as error:
            raise FedvineError("A pair is an object with client, user and item.") from error
    if alone:
        return {**told, "client": client, "user": users[0], "items": [
            one._asdict() for one in opened.predict(client, users[0], n)]}
    users = [str(user) for user in users]
    return {**told, "forecasts": [
        {"user": user, "items": [one._asdict() for one in best]}
        for user, best in zip(users, opened.predict_many(client, users, n), strict=True)]}


def labels(opened: OpenRun, run: str, given: Any) -> dict[str, Any]:
    """Return a row for each of some ``nodes``; raise for one that is unknown."""
    nodes, client = _part(given, "nodes", list, []), _part(given, "client", str, None)
    return {"run": run, "as_of": opened.run.learned_to or "",
            "labels": opened.labels(nodes, client or None).to_pylist()}


def _part(given: Any, key: str, kind: type, default: Any) -> Any:
    """Return a part of a question; raise :class:`FedvineError` for another type, or too many."""
    found = given.get(key, default) if isinstance(given, dict) else None
    if (found is not default and type(found) is not kind) or not isinstance(given, dict) or (
            key in ("users", "nodes") and any(type(one) not in (str, int) for one in found or ())):
        raise FedvineError(f"The question is no object with {key}, a {kind.__name__}.")
    if isinstance(found, list) and len(found) > ANSWERS:
        raise FedvineError(f"{key} has {len(found):,} entries; ask about {ANSWERS:,} at most.")
    return found


def described() -> dict[str, Any]:
    """Return what programs may ask, as OpenAPI 3.1 has it."""
    def of(about: str, query: Sequence[str] = (), body: Mapping[str, Any] | None = None) -> Any:
        return {"summary": about, "security": [{"token": []}], "parameters": [
            {"name": key.rstrip("*"), "in": "path" if key == "name" else "query",
             "required": key[-1] != "*", "schema": {"type": "integer" if key == "n*" else "string"}}
            for key in ("name", *query)],
            "responses": {"200": {"description": "the answer", "content": {
                "application/json": {"schema": {"type": "object"}}}},
                **{code: {"description": '{"error": a sentence}'} for code in (
                    "400", "401", "404")}},
            **({"requestBody": {"required": True, "content": {"application/json": {"schema": {
                "type": "object", "properties": body}}}}} if body else {})}

    text, names = {"type": "string"}, {"type": "array", "maxItems": ANSWERS,
                                       "items": {"type": "string"}}
    pair = {"type": "object", "properties": {"client": text, "user": text, "item": text}}
    return {"openapi": "3.1.0", "info": {"title": "fedvine", "version": __version__},
            "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
            "paths": {
                "/runs/{name}/forecasts": {
                    "get": of("A user's likeliest items, as the night wrote them",
                              ("client", "user", "n*")),
                    "post": of("Forecasts of many users, or scores of pairs, computed", (), {
                        "client": text, "users": names, "n": {"type": "integer"},
                        "pairs": {"type": "array", "maxItems": ANSWERS, "items": pair}})},
                "/runs/{name}/labels": {
                    "get": of("The label of a node", ("node", "client*")),
                    "post": of("Labels of many nodes", (), {"nodes": names, "client": text})}}}
