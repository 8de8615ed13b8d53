"""The head of a CSV file: names of columns, the sign between them, lines before them."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

from fedvine.core.errors import FedvineError
from fedvine.core.text import short
from fedvine.data.io.sql import literal
from fedvine.data.names import name_of

_VALUE = re.compile(r"[+-]?[0-9]+([.,:/-][0-9]+)*( [0-9:]+)?")     # a number or a date, no name


def header(path: Path, packed: bool, wanted: Sequence[str]) -> tuple[list[str], str, int]:
    """Return names (without spaces around them), delimiter and number of lines before the names.

    Lines before the names are blank ones, and a first line ``sep=;`` as spreadsheets write it. The
    delimiter is found by the ``wanted`` columns; if several, they are to be there. Raises
    :class:`FedvineError` for a file that is empty or no CSV, or has a wanted column twice, or whose
    first line is of values or separated by blanks.
    """
    try:
        with gzip.open(path) if packed else open(path, "rb") as file:
            start = file.read(1 << 20)
        text = start.decode("utf-8-sig", errors="replace")
        rest = text.lstrip("\r\n")
        signs = ",\t;|"
        if said := re.match(r"sep=(.)\r?\n", rest):
            signs, rest = said[1], rest[said.end():].lstrip("\r\n")
        if b"\0" in start:
            raise csv.Error
        found = [(next(csv.reader(io.StringIO(rest, newline=""), delimiter=d)), d)
                 for d in signs] if rest else []
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise FedvineError(f"{path} is not a readable CSV file.") from error
    if not found:
        raise FedvineError(f"{path} is empty.")
    found = [([name_of(name) or "" for name in names], d) for names, d in found]
    names, delimiter = max(found, key=lambda pair: (len(set(wanted) & set(pair[0])), len(pair[0])))
    for name in wanted:
        if names.count(name) > 1:
            raise FedvineError(f'{path} has {names.count(name)} columns named "{name}"; '
                               "rename all but one.")
    if len(wanted) > 1 and not set(wanted) & set(names):
        _refuse(path, names, wanted)
    return names, delimiter, text[:len(text) - len(rest)].count("\n")


def _refuse(path: Path, names: list[str], wanted: Sequence[str]) -> None:
    """Raise :class:`FedvineError` where the first line holds values, or blanks separate names."""
    if len(names) == 1 and len(words := names[0].split()) > 1 and (
            set(words) & set(wanted) or all(map(_VALUE.fullmatch, words))):
        query = f"SELECT * FROM read_csv({literal(path.name)}, delim = ' ')"
        raise FedvineError(f"{path} has blanks between its columns; name it as a query, such as "
                           f'"{query}", or write commas.')
    if any(map(_VALUE.fullmatch, names)):
        raise FedvineError(f"{path} starts with values ({short(', '.join(names))}) and not with "
                           "the names of its columns; write these above them.")
