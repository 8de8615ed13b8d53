"""From a table to the typed columns of a stream, with every value checked.

The table is ``raw`` on a DuckDB connection, one column a role (``src``, ``dst``, ``t``, ``client``,
``weight``, ``label``, ``deleted``, ``f0``, ``f1``, ...), rows in their first order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import duckdb

from fedvine.core.errors import FedvineError
from fedvine.data.io.source import literal
from fedvine.data.stream import CATEGORY, NUMBER

_WHOLE = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER",
          "UBIGINT", "HUGEINT", "UHUGEINT"}
_COMMA = re.compile(r"\s*[+-]?[0-9]+,[0-9]+\s*")
_EXACT = 2 ** 53        # whole numbers up to this one are exact in float64
HASHES = 2 ** 24        # of categories of edges: whole numbers below it are exact in float32
# What people write into an empty cell of a column of numbers.
NONE = "('', 'na', 'n/a', 'nan', 'null', 'none', '-', '?')"


class Columns:
    """SQL for each role of ``raw``; every method raises :class:`FedvineError` on a bad value.

    ``names`` are the roles' columns at the source, for messages; ``untyped`` is true for a source
    without types, where text that is a whole number throughout becomes one.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, source: str,
                 names: Mapping[str, str], untyped: bool) -> None:
        self.connection, self.source, self.names = connection, source, names
        self.untyped = untyped
        self.dates = False      # whether the times that were read are dates
        self.types: dict[str, str] = {row[0]: row[1] for row
                                      in connection.execute("DESCRIBE raw").fetchall()}

    def ids(self, role: str, text: bool = False) -> tuple[str, bool]:
        """Return the SQL of names of nodes, and whether they are whole numbers (BIGINT) or text.

        ``text``: text of an untyped source stays as it is.
        """
        self._refuse_missing(role)
        kind, value = self.types[role], role
        if text and kind == "VARCHAR":
            return role, False
        if kind == "VARCHAR" and self.untyped:
            if self._all(f"CAST(TRY_CAST({role} AS BIGINT) AS VARCHAR) = {role}"):
                return f"CAST({role} AS BIGINT)", True
            if self._has_points(role):
                kind, value = "DOUBLE", f"CAST({role} AS DOUBLE)"
        if _is_float(kind):
            self.refuse(role, f"NOT ({value} = trunc({value}) AND abs({value}) <= {_EXACT})",
                         "which is no whole number",
                         "give nodes whole numbers, or names that are text")
            return f"CAST({value} AS BIGINT)", True
        if kind in _WHOLE and self._all(f"TRY_CAST({role} AS BIGINT) IS NOT NULL"):
            return f"CAST({role} AS BIGINT)", True
        return f"CAST({role} AS VARCHAR)", False

    def time(self, role: str, form: str | None = None) -> str:
        """Return SQL of BIGINT where all times are whole, else DOUBLE.

        Dates become seconds since 1970 UTC.
        """
        self._refuse_missing(role)
        kind = self.types[role]
        if form is not None:
            return self._formed_time(role, form)
        if kind in _WHOLE:
            self._refuse_time(role, f"TRY_CAST({role} AS BIGINT) IS NULL")
            return f"CAST({role} AS BIGINT)"
        if _is_float(kind):
            return self._float_time(role)
        if is_date(kind):
            return self._date_time(role, timestamp(role, kind))
        if kind != "VARCHAR":
            raise FedvineError(f'{self.source}: column "{self.names[role]}" is of type {kind}, '
                               "which is no time; a time is a number, a date or a timestamp.")
        number, date = f"TRY_CAST({role} AS DOUBLE)", f"TRY_CAST({role} AS TIMESTAMPTZ)"
        numbers, dates = self._row(f"SELECT count({number}), count({date}) FROM raw")
        if numbers and dates and numbers + dates == self._row("SELECT count(*) FROM raw")[0]:
            self._refuse_mixed(role, number)
        if dates > numbers:
            self._refuse_time(role, f"{date} IS NULL")
            return self._date_time(role, f"CAST({date} AS TIMESTAMP)")
        self._refuse_time(role, f"{number} IS NULL")
        if self._all(f"regexp_full_match(trim({role}), '[+-]?[0-9]+')"):
            self._refuse_time(role, f"TRY_CAST({role} AS BIGINT) IS NULL")
            return f"CAST({role} AS BIGINT)"
        return self._float_time(role, number)

    def number(self, role: str) -> str:
        """Return SQL of FLOAT, finite; truth values are 1 and 0."""
        self._refuse_missing(role)
        value = self.truth(role) if self.truths(role) else f"TRY_CAST({role} AS DOUBLE)"
        value = f"TRY_CAST({value} AS FLOAT)"
        self.refuse(role, f"{value} IS NULL OR NOT isfinite({value})",
                     "which is no finite number", "write a number")
        return value

    def feature(self, role: str, category: bool = False) -> tuple[str, str]:
        """Return SQL of FLOAT, and its kind: a number, or a hash 0..HASHES - 1 of a category.

        Text is a category, but not where a source has no types and all cells are numbers, or all
        are true or false. An empty cell of a category is -1; of numbers it is refused.
        ``category``: it is one in any case.
        """
        kind, name = self.types[role], self.names[role]
        if is_date(kind):
            self._refuse_missing(role)
            return f"CAST(epoch({timestamp(role, kind)}) AS FLOAT)", NUMBER
        text = kind == "VARCHAR" or kind.startswith("ENUM")
        if not category and (not text or (
                self.untyped and (self.truths(role) or self._all(
                    f"TRY_CAST({role} AS DOUBLE) IS NOT NULL OR {role} IS NULL OR "
                    f"lower(trim({role})) IN {NONE}")))):
            return self.number(role), NUMBER
        cell = f"trim(coalesce(CAST({role} AS VARCHAR), ''))"
        return (f"CASE WHEN {cell} = '' THEN -1::FLOAT ELSE CAST(md5_number_lower("
                f"{literal(name + ': ')} || {cell}) % {HASHES} AS FLOAT) END", CATEGORY)

    def label(self, role: str) -> str:
        """Return SQL of INTEGER; an empty cell is -1."""
        value = f"TRY_CAST({role} AS DOUBLE)"
        empty = f"({role} IS NULL OR coalesce(isnan({value}), false))"
        self.refuse(role, f"NOT {empty} AND ({value} IS NULL OR {value} <> trunc({value}) "
                     f"OR abs({value}) >= {2 ** 31})", "which is no whole number",
                     "give classes whole numbers, and leave unknown ones empty")
        return f"CASE WHEN {empty} THEN -1 ELSE CAST({value} AS INTEGER) END"

    def flag(self, role: str) -> str:
        """Return SQL of BOOLEAN; an empty cell is false."""
        value = f"TRY_CAST({role} AS BOOLEAN)"
        self.refuse(role, f"{role} IS NOT NULL AND {value} IS NULL",
                     "which is neither true nor false", "write true, false, 1 or 0")
        return f"coalesce({value}, false)"

    def category(self, role: str) -> str:
        """Return SQL of VARCHAR, never empty; floats that are all whole, as 1.0, lose their .0."""
        self._refuse_missing(role)
        kind, value = self.types[role], f"CAST({role} AS DOUBLE)"
        if (_is_float(kind) or self._has_points(role)) and self._all(
                f"{value} = trunc({value}) AND abs({value}) <= {_EXACT}"):
            return f"CAST(CAST({value} AS BIGINT) AS VARCHAR)"
        return f"CAST({role} AS VARCHAR)"

    def truths(self, role: str) -> bool:
        """Return whether a column of a source without types says true or false in all cells.

        Cells that are empty, or say so, do not count.
        """
        return self.untyped and self.types[role] == "VARCHAR" and self._row(
            f"SELECT coalesce(bool_and(lower(trim({role})) IN ('true', 'false')), false) FROM raw "
            f"WHERE lower(trim({role})) NOT IN {NONE}")[0]

    def truth(self, role: str) -> str:
        """Return SQL of DOUBLE of a column of :meth:`truths`, null where a cell is neither."""
        return f"CASE lower(trim({role})) WHEN 'true' THEN 1.0 WHEN 'false' THEN 0.0 END::DOUBLE"

    def _has_points(self, role: str) -> bool:
        """Return whether a source without types has numbers alone in a column, some as 1.0."""
        return self.types[role] == "VARCHAR" and self.untyped and (
            self._all(f"regexp_full_match({role}, '-?[0-9]+([.][0-9]+)?')")
            and not self._all(f"NOT contains({role}, '.')"))

    def _formed_time(self, role: str, form: str) -> str:
        try:
            self._row(f"SELECT strftime(TIMESTAMP '2020-01-01', {literal(form)})")
        except duckdb.Error as error:
            raise FedvineError(f'The time format "{form}" is none; write for example '
                               "%d.%m.%Y %H:%M.") from error
        value = f"try_strptime(CAST({role} AS VARCHAR), {literal(form)})"
        self.refuse(role, f"{value} IS NULL", f'which is not of the form "{form}"',
                     "give the form that all of them have, such as %d.%m.%Y %H:%M")
        return self._date_time(role, f"CAST({value} AS TIMESTAMP)")

    # -- the forms of a time -------------------------------------------------------------------
    def _float_time(self, role: str, value: str = "") -> str:
        value = value or f"CAST({role} AS DOUBLE)"
        self._refuse_time(role, f"NOT isfinite({value})")
        whole = self._all(f"{value} = trunc({value}) AND abs({value}) <= {_EXACT}")
        return f"CAST({value} AS BIGINT)" if whole else value

    def _date_time(self, role: str, value: str) -> str:
        self._refuse_time(role, f"NOT isfinite({value})")
        self.dates = True
        micro = f"epoch_us({value})"
        return (f"{micro} // 1000000" if self._all(f"{micro} % 1000000 = 0")
                else f"{micro} / 1000000.0::DOUBLE")

    # -- refusing ------------------------------------------------------------------------------
    def _refuse_time(self, role: str, where: str) -> None:
        self.refuse(role, where, "which is no time",
                    "write numbers, or dates such as 2012-04-03 18:00:06, or say --time-format "
                    "(in Python time_format=)")

    def _refuse_mixed(self, role: str, number: str) -> None:
        one, other = (self._row(f"SELECT min(rowid) FROM raw WHERE {number} IS {what}")[0] + 1
                      for what in ("NOT NULL", "NULL"))
        raise FedvineError(f'{self.source}: column "{self.names[role]}" has numbers, as in row '
                           f"{one}, and dates, as in row {other}; write all times in one way.")

    def _refuse_missing(self, role: str) -> None:
        empty = f"{role} IS NULL" + (f" OR isnan({role})" if self.types[role] in
                                     ("FLOAT", "DOUBLE") else f" OR {role} = ''"
                                     if self.types[role] == "VARCHAR" else "")
        count, first = self._row(f"SELECT count(*), min(rowid) FROM raw WHERE {empty}")
        if count:
            rows = f"row {first + 1}" if count == 1 else f"{count} rows, first in row {first + 1}"
            raise FedvineError(f'{self.source}: column "{self.names[role]}" is empty in {rows}; '
                               "fill it in or leave those rows out.")

    def refuse(self, role: str, where: str, what: str, remedy: str) -> None:
        """Raise :class:`FedvineError` that names the first row where a condition holds."""
        first, = self._row(f"SELECT min(rowid) FROM raw WHERE {where}")
        if first is not None:
            value, = self._row(f"SELECT CAST({role} AS VARCHAR) FROM raw WHERE rowid = {first}")
            if remedy.startswith("write a number") and _COMMA.fullmatch(value or ""):
                remedy = f"write {value.strip().replace(',', '.')}, with a decimal point"
            raise FedvineError(f'{self.source}: column "{self.names[role]}" holds "{value}" in row '
                               f"{first + 1}, {what}; {remedy}.")

    def _all(self, condition: str) -> bool:
        return self._row(f"SELECT bool_and(coalesce({condition}, false)) FROM raw")[0]

    def _row(self, query: str) -> tuple:
        row = self.connection.execute(query).fetchone()
        assert row is not None
        return row


def is_date(kind: str) -> bool:
    """Return whether a DuckDB type is of dates or of times with a date."""
    return kind == "DATE" or kind.startswith("TIMESTAMP")


def timestamp(value: str, kind: str) -> str:
    """Return SQL of TIMESTAMP of a value whose type :func:`is_date`."""
    # From nanoseconds with a zone DuckDB has no direct cast.
    value = f"CAST({value} AS TIMESTAMPTZ)" if kind == "TIMESTAMPTZ_NS" else value
    return f"CAST({value} AS TIMESTAMP)"


def _is_float(kind: str) -> bool:
    return kind in ("FLOAT", "DOUBLE") or kind.startswith("DECIMAL")
