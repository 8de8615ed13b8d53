"""``--log json``: what a command says on stderr becomes one JSON object a line, for machines.

``at`` is the time in UTC, ``level`` is "info", "note" or "error", ``text`` the sentence. A stage
that was learned has its numbers beside it: ``stage`` of ``stages``, ``bytes``, ``seconds``, and the
mean ``scores``.
"""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any, TextIO

LEVELS = {"Note: ": "note", "Error: ": "error"}
STAY = ("serve", "join")    # commands whose log is what they say on stdout


class JsonLines(io.TextIOBase):
    """A stream that writes each line of text to another one as a JSON object."""

    def __init__(self, out: TextIO) -> None:
        super().__init__()
        self._out, self._left, self._more = out, "", dict[str, Any]()

    def writable(self) -> bool:
        """Return true."""
        return True

    def write(self, text: str) -> int:
        """Write whole lines; of one that was written over (a carriage return) the last state."""
        *lines, self._left = (self._left + text).split("\n")
        for line in lines:
            self._event(line.rsplit("\r", 1)[-1])
        return len(text)

    def flush(self) -> None:
        """Flush the other stream."""
        self._out.flush()

    def beside(self, **values: Any) -> None:
        """Add values to the next line."""
        self._more = values

    def _event(self, text: str) -> None:
        if not text.strip():
            return
        level = next((word for begin, word in LEVELS.items() if text.startswith(begin)), "info")
        begin = next((b for b, word in LEVELS.items() if word == level), "")
        line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": level,
                "text": text.removeprefix(begin).strip(), **self._more}
        self._more = {}
        self._out.write(json.dumps(line) + "\n")
        self._out.flush()
