"""What the options of several commands have in common."""

from __future__ import annotations

from fedvine.core.errors import FedvineError


def seconds_of(text: str) -> float:
    """Return the seconds of ``--budget`` and ``--cap``, such as ``90s``, ``60m`` or ``1.5h``.

    Raises :class:`FedvineError` for anything else.
    """
    from fedvine.core.units import duration
    found = duration(text)
    if found is None:
        raise FedvineError(f"{text!r} is no duration; write for example 90s, 60m or 1.5h.")
    return found
