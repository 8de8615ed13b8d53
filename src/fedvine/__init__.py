"""Federated learning on graphs that grow."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

_PUBLIC = {  # name: the file it is in; opened when it is first asked for
    "At": "core.method", "ClassIncremental": "tasks.class_incremental", "Client": "core.method",
    "EventStream": "data.stream", "Experiment": "experiments.experiment",
    "FedvineError": "core.errors", "Field": "core.method", "Forecasts": "experiments.forecasts",
    "LinkPrediction": "tasks.link_prediction", "Method": "core.method",
    "NodeData": "data.node_data", "Plan": "data.plan", "Run": "experiments.run",
    "Server": "core.method", "SnapshotClassification": "tasks.snapshot_classification",
    "Split": "data.split", "World": "core.method", "check_method": "testing",
    "follow": "experiments.follow", "forecasts_of": "experiments.reopened",
    "from_dgdata": "data.io.convert", "from_frame": "data.io.read",
    "from_networkx": "data.io.convert", "from_pyg": "data.io.convert",
    "graph_from_networkx": "data.io.convert",
    "load": "data.spec", "on_client": "core.method",
    "open_run": "experiments.reopened", "read": "data.io.read", "run": "experiments.run",
    "run_auto": "experiments.auto",
    "to_dgdata": "data.io.convert", "to_networkx": "data.io.convert", "to_pyg": "data.io.convert",
    "tracked": "experiments.track"}


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        found = getattr(import_module(f"fedvine.{_PUBLIC[name]}"), name)
    elif name == "__version__":
        from importlib.metadata import version
        found = version("fedvine")
    elif not name.startswith("_") and name[:1].isupper():
        found = _method(name)
    else:
        raise AttributeError(f"module 'fedvine' has no attribute {name!r}")
    setattr(sys.modules[__name__], name, found)
    return found


def _method(name: str) -> Any:
    """Return the method's class; ``FedLinkLocal`` is that of ``fedlink_local``."""
    from fedvine.core import registry
    for known in registry.names("methods"):
        if known.replace("_", "") == name.lower():
            return getattr(registry.find("methods", known), name)
    raise AttributeError(f"module 'fedvine' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*_PUBLIC, "__version__"})
