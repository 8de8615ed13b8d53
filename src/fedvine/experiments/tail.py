"""Read the log of a run while the run writes it: at each look only what was added."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from fedvine.experiments.run_files import no_link, parsed, parts

_KNOWN = 64     # bytes before the place that must still be the same


class _Place(NamedTuple):
    """How far a file was read: bytes, lines, and the last bytes before the place."""

    size: int = 0
    lines: int = 0
    last: bytes = b""


class Tail:
    """The lines of a log, ``metrics.jsonl`` or ``messages.jsonl``, of the run folder ``path``."""

    def __init__(self, path: str | os.PathLike[str], log: str) -> None:
        self.path, self.log = Path(path), log
        self._places: dict[str, _Place] = {}

    def more(self) -> tuple[list[dict[str, Any]], bool]:
        """Return the whole lines that were added since the last call.

        Returns:
            The lines, and whether they are the log from its beginning: at the first call, and where
            a run that was stopped cut its log back, or summed it up in a further file.

        Raises:
            FedvineError: for a line that a run cannot have written.
            OSError: where a file cannot be read; it may be gone a moment later.
        """
        names = parts(self.path, self.log)
        found = self._added(names) if self._places else None
        if found is not None:
            return found, False
        self._places = {}
        return self._added(names) or [], True

    def _added(self, names: list[str]) -> list[dict[str, Any]] | None:
        """Return the lines after the places; None where a file is not what it was."""
        if not set(self._places) <= set(names):
            return None
        found, places = [], dict(self._places)
        for name in names:
            place = places.get(name, _Place())
            with open(self.path / name, "rb", opener=no_link) as file:
                file.seek(place.size - len(place.last))
                text = file.read()
            if not text.startswith(place.last):
                return None
            text = text[len(place.last):]
            text = text[:text.rfind(b"\n") + 1]
            found += (lines := parsed(name, text, place.lines + 1))
            places[name] = _Place(place.size + len(text), place.lines + len(lines),
                                  (place.last + text)[-_KNOWN:])
        self._places = places
        return found
