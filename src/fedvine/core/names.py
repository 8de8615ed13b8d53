"""Reading a list of names that a person wrote in one line."""

from __future__ import annotations

import csv

from fedvine.core.errors import FedvineError


def names_in(text: str) -> list[str]:
    """Return the names in ``text``, which is one row of a CSV file, without spaces around them.

    Raises :class:`FedvineError` where it is none.
    """
    try:
        found = next(csv.reader([text], skipinitialspace=True, strict=True), None)
    except csv.Error:
        raise FedvineError(f"{text!r} is no list of names; write commas between them, and a name "
                           "with a comma or a line break in double quotes.") from None
    return [name.strip() for name in found or [""]]
