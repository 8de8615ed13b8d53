"""The experiment of a command's words and options."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.core.settings import assignment, build, merged
from fedvine.experiments.experiment import Experiment


def from_command(what: str, options: dict[str, Any], settings: Iterable[str]) -> tuple[
        Experiment, str]:
    """Return the experiment of ``fedvine run`` and the first part of its folder's name.

    Args:
        what: a method's name, a Python file with one, or a TOML file.
        options: values by table and key; None, and tables with None alone, count as not given.
        settings: ``KEY=VALUE`` texts, which come last.

    Returns:
        The experiment, and the name of the file or of the method and the data.

    Raises:
        FedvineError: where no data are named, or a key or value does not fit.
    """
    given = {key: {k: v for k, v in value.items() if v is not None}
             if isinstance(value, dict) else value for key, value in options.items()}
    changes = [{k: v for k, v in given.items() if v not in (None, {})}, *map(assignment, settings)]
    if what.endswith(".toml"):
        return Experiment.read(what).updated(*changes), Path(what).stem
    values: dict[str, Any] = {"method": {"name": what}}
    if what.endswith(".py"):
        found = registry.from_file(what)
        values = {"method": {"name": found.name, "file_digest": found.file_digest}}  # type: ignore
        what = Path(what).stem
    for change in changes:
        values = merged(values, change)
    if "data" not in values:
        raise FedvineError("Say with --data what to run on: a data set, a file or a query; fedvine "
                           "list shows the data sets.")
    made = build(Experiment, values)
    return made, f"{what}-{made.data.name}"
