"""The run that an estimator learned from: a run folder of its own, which goes with the estimator.

The folder is a temporary one, deleted with the estimator. A pickled estimator (``joblib.dump``, or
a worker process of a search) has the bytes of its files.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedvine.experiments.run import Run


class Learned:
    """A finished run and its folder; an estimator holds it under ``learned_``."""

    def __init__(self) -> None:
        self._held = Path(tempfile.mkdtemp(prefix="fedvine-"))
        weakref.finalize(self, shutil.rmtree, self._held, ignore_errors=True)
        self._run: Run | None = None
        self._asked: dict[str, Any] = {}

    @property
    def folder(self) -> Path:
        """The run folder; ``fedvine report``, ``fedvine.open_run`` and others read it."""
        return self._held / "run"

    @property
    def run(self) -> Run:
        """The run; of an estimator that was pickled it is opened from its folder at first use."""
        if self._run is None:
            from fedvine.experiments.reopened import reopened
            self._run = reopened(self.folder)
        return self._run

    def now(self, run: Run) -> None:
        """Answer from ``run`` from now on."""
        self._run, self._asked = run, {}

    def once(self, key: str, make: Any) -> Any:
        """Return what ``make()`` returned when it was first needed of this run."""
        if key not in self._asked:
            self._asked[key] = make()
        return self._asked[key]

    def copy(self) -> Learned:
        """Return a copy of the folder, without the run."""
        other = Learned()
        shutil.copytree(self.folder, other.folder)
        return other

    def __getstate__(self) -> dict[str, bytes]:
        return {str(file.relative_to(self.folder)): file.read_bytes()
                for file in sorted(self.folder.rglob("*")) if file.is_file()}

    def __setstate__(self, files: dict[str, bytes]) -> None:
        Learned.__init__(self)
        for name, content in files.items():
            file = self.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
