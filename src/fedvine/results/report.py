"""``fedvine report``: the application's page about finished runs, as a file that asks no server."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic
from fedvine.results.view import finished
from fedvine.results.watched import Watched, compared

PAGE = Path(__file__).with_name("page.html")
# Such a file neither loads nor sends anything, whatever the names in it are.
_POLICY = ("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src "
           "data:; script-src 'unsafe-inline'; style-src 'unsafe-inline'\">")


def report(folders: Iterable[str | os.PathLike[str]], out: str | os.PathLike[str]) -> Path:
    """Write one page about finished runs; raise :class:`FedvineError` for an unfinished one.

    It is the application's page with the answers to its questions about these runs in it, so it
    needs a browser with scripts; whatever asks a model is left out.
    """
    seen = [Watched(folder, number) for number, folder in enumerate(folders)]
    if not seen:
        raise FedvineError("Name at least one run folder.")
    runs = [_guarded(_run, [one]) for one in seen]
    rows = [{key: run[key] for key in one.row()} for one, run in zip(seen, runs, strict=True)]
    answers = {"/api/compared": _guarded(compared, seen), "/api/runs": {
        "now": time.time(), "runs": rows}} | {f"/api/runs/{run['id']}": run for run in runs}
    packed = json.dumps(answers, ensure_ascii=False).replace("<", "\\u003c")     # no tag is in it
    text = PAGE.read_text("utf-8").replace("<style>", _POLICY + "\n<style>", 1).replace(
        "<script>", f'<script type="application/json" id="answers">{packed}</script>\n<script>', 1)
    with atomic(out, "w") as file:
        file.write(text)
    return Path(out)


def _run(seen: Sequence[Watched]) -> dict[str, Any]:
    """Return all about one finished run; a report is passed on, so no path is in it."""
    one, = seen
    one.look()
    if one.error:
        raise FedvineError(one.error)
    finished(one.folder)
    return {**one.detail(), "path": one.folder.name}


def _guarded(made: Callable[[Sequence[Watched]], dict[str, Any]], seen: Sequence[Watched]
             ) -> dict[str, Any]:
    """Return what is made of runs; raise :class:`FedvineError` for a folder that no run wrote."""
    try:
        return made(seen)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if isinstance(error, FedvineError):
            raise
        raise FedvineError(f"{', '.join(str(one.folder) for one in seen)} holds what no run has "
                           f"written ({type(error).__name__}: {error}); it cannot be shown."
                           ) from error
