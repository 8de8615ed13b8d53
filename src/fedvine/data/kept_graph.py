"""The graph that an open run has learned from, on disk, with the facts of its plan.

``kept.json`` names the folder of the graph and is replaced last, so that a process that is killed
while rows are added leaves the old state. A graph is in memory as a whole, and written as a whole.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic
from fedvine.data.graph import Graph, GraphSplit


@dataclass(frozen=True)
class KeptGraph:
    """The graph of a run, opened.

    - ``folder``: where it is
    - ``graph``: with ``came`` and, of a split, with ``owner``
    - ``plan``: the facts of the plan
    - ``facts``: all values of ``kept.json``
    """

    folder: Path
    graph: Graph
    plan: dict[str, Any]
    facts: dict[str, Any]

    @property
    def split(self) -> GraphSplit:
        """Return the parts of the clients, those that the run has."""
        assert self.graph.owner is not None
        return self.graph.split(self.graph.owner.column, clients=self.facts["clients"])

    @staticmethod
    def there(folder: Path) -> bool:
        """Return whether ``folder`` has a graph that can grow."""
        try:
            return "graph" in json.loads((folder / "kept.json").read_text("utf-8"))
        except (OSError, ValueError):
            return False

    @staticmethod
    def write(folder: Path, graph: Graph, plan: dict[str, Any], **facts: Any) -> KeptGraph:
        """Write a graph and the facts of its plan in place of those in ``folder``; return both.

        ``facts`` replace values of ``kept.json``, for example ``clients``, the names of the clients
        that a run has where it does not have all. Raises :class:`FedvineError` where a file cannot
        be written; what was kept is as it was then.
        """
        file = folder / "kept.json"
        known = json.loads(file.read_text("utf-8")) if KeptGraph.there(folder) else {"graph": -1}
        number = known["graph"] + 1
        graph.write(_fresh(folder / f"graph-{number}"))
        with atomic(file, "w") as handle:
            json.dump({"clients": None, **known, **facts, "graph": number, "plan": plan}, handle)
        shutil.rmtree(folder / f"graph-{number - 1}", ignore_errors=True)
        return KeptGraph.open(folder)

    @staticmethod
    def open(folder: Path) -> KeptGraph:
        """Open the graph in ``folder``; raises :class:`FedvineError` if it cannot be read."""
        try:
            facts = json.loads((folder / "kept.json").read_text("utf-8"))
            return KeptGraph(folder, Graph.open(folder / f"graph-{facts['graph']}"), facts["plan"],
                             facts)
        except (OSError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, FedvineError):
                raise
            raise FedvineError(f"{folder} does not hold the graph of a run ({error}); put its "
                               "files back, or begin a new run in another folder.") from error


def _fresh(folder: Path) -> Path:
    """Return the name of a folder that is not there; one of a process that was killed is lost."""
    shutil.rmtree(folder, ignore_errors=True)
    return folder
