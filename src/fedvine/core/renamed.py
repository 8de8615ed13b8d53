"""Names of the release before this one. They are read until the next release, with a notice."""

from __future__ import annotations

import warnings
from collections.abc import Container, Mapping
from typing import Any

from fedvine.core.errors import FedvineError

#: Fields of methods: the old name and the new one.
FIELDS = {"rate": "learning_rate", "server_rate": "server_learning_rate",
          "start_scale": "init_scale"}
#: Public names of the package.
PUBLIC = {"Labels": "SnapshotClassification", "Links": "LinkPrediction"}


def notice(old: str, new: str) -> None:
    """Warn (FutureWarning) that ``old`` is read as ``new``, for one release."""
    warnings.warn(f"{old} is called {new} now; the old name is read until the next release.",
                  FutureWarning, stacklevel=3)


def fields(values: Mapping[str, Any], known: Container[str] | None = None, *,
           silent: bool = False) -> dict[str, Any]:
    """Return ``values`` (a method's fields) under today's names.

    A name is replaced where the new one is ``known`` and the old one is not; None: everywhere.
    Unless ``silent`` a notice is given. Raises :class:`FedvineError` if both names are there.
    """
    found = dict(values)
    for old, new in FIELDS.items():
        if old in found and (known is None or (old not in known and new in known)):
            if new in found:
                raise FedvineError(f"method.{old} is the old name of method.{new}; give one of "
                                   "them.")
            if not silent:
                notice(f"method.{old}", f"method.{new}")
            found = {new if key == old else key: value for key, value in found.items()}
    return found
