"""``fedvine report``: the application's page about finished runs, as a file that asks no server."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic
from fedvine.results.view import finished
from fedvine.results.watched import Watched, compared

PAGE = Path(__file__).with_name("page.html")
# Such a file neither loads nor sends anything, whatever the names in it are.
_POLICY = ("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src "
           "data:; script-src 'unsafe-inline'; style-src 'unsafe-inline'\">")
_ERRORS = (KeyError, TypeError, ValueError, AttributeError, IndexError)


def report(folders: Iterable[str | os.PathLike[str]], out: str | os.PathLike[str]) -> Path:
    """Write one page about finished runs; raise :class:`FedvineError` for an unfinished one.

    It is the application's page with the answers to its questions about these runs in it, so it
    needs a browser with scripts; whatever asks a model is left out.
    """
    seen = [Watched(folder, number) for number, folder in enumerate(folders)]
    if not seen:
        raise FedvineError("Name at least one run folder.")
    found = {}
    for one in seen:
        try:
            finished(one.folder)
            one.look()
            if one.error:
                raise FedvineError(one.error)
            # the folder's place on this machine is nobody's business
            found[f"/api/runs/{one.number}"] = {**one.detail(), "path": one.folder.name}
        except _ERRORS as error:
            if isinstance(error, FedvineError):
                raise
            raise FedvineError(f"{one.folder} holds what no run has written "
                               f"({type(error).__name__}: {error}); it cannot be shown.") from error
    found["/api/compared"] = compared(seen)
    found["/api/runs"] = {"now": time.time(), "runs": [
        {**one.row(), "path": one.folder.name} for one in seen]}
    held = json.dumps(found, ensure_ascii=False).replace("<", "\\u003c")     # no tag is in it
    text = PAGE.read_text("utf-8").replace("<style>", _POLICY + "\n<style>", 1).replace(
        "<script>", f'<script type="application/json" id="held">{held}</script>\n<script>', 1)
    with atomic(out, "w") as file:
        file.write(text)
    return Path(out)
