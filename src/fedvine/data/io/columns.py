"""From a table to the typed columns of a stream, with every value checked.

The table is ``raw`` on a DuckDB connection, one column a role (``src``, ``dst``, ``t``, ``client``,
``weight``, ``label``, ``deleted``, ``f0``, ``f1``, ...), rows in their first order.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

import duckdb

from fedvine.core.errors import FedvineError
from fedvine.core.text import short
from fedvine.data import names as naming
from fedvine.data.dates import Dates
from fedvine.data.io.parts import literal
from fedvine.data.io.source import Source
from fedvine.data.stream import CATEGORY, NUMBER

_WHOLE = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER",
          "UBIGINT", "HUGEINT", "UHUGEINT"}
_COMMA = re.compile(r"\s*[+-]?[0-9]+,[0-9]+\s*")
GROUPS = "[+-]?[0-9]{1,3}(,[0-9]{3})+([.][0-9]+)?"   # 93,374 or 1,234.5
_YEARS = 100 * 366 * 86_400.0    # seconds of a century
_EXACT = 2 ** 53        # whole numbers below this one are exact in float64
_EXACT_FLOAT = 2 ** 24  # and below this one in float32
HASHES = 2 ** 24        # of categories of edges: whole numbers below it are exact in float32
# What people write into an empty cell of a column of numbers.
NONE = f"({', '.join(literal(word) for word in ('', *naming.MISSING))})"
# Ways to write a date that a person may have to name, because they are read in no other way.
_FORMS = tuple(f"{day}{clock}" for clock in ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
               for sign in "/.-" for year in "yY"
               for day in (f"%d{sign}%m{sign}%{year}", f"%m{sign}%d{sign}%{year}",
                           *([f"%y{sign}%m{sign}%d"] if year == "y" else [])))


class Columns:
    """SQL for each role of ``raw``; every method raises :class:`FedvineError` on a bad value.

    ``names`` are the roles' columns at the source. Where ``source`` has no types, text that is a
    whole number throughout becomes one. ``timezone`` is that of times that name none; the session
    of ``connection`` has it.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, label: str,
                 names: Mapping[str, str], source: Source, timezone: str | None = None) -> None:
        self.connection, self.table, self.names, self.source = connection, label, names, source
        self.untyped = source.untyped
        self.dates: Dates = False   # whether the times that were read are dates
        self.timezone = timezone
        self.types: dict[str, str] = {row[0]: row[1] for row
                                      in connection.execute("DESCRIBE raw").fetchall()}

    def name(self, role: str, whole: bool | None = None) -> tuple[str, bool]:
        """Return SQL of the names in a column, and whether they are whole numbers (BIGINT) or text.

        The rule is that of :mod:`fedvine.data.names`. ``whole``: the names of this column were
        whole numbers (True) or text (False) when a run began, and so they are now.
        """
        self._refuse_missing(role)
        kind = self.types[role]
        if kind == "VARCHAR":
            return self._text_name(role, whole)
        if kind in ("FLOAT", "DOUBLE"):
            most = _EXACT if kind == "DOUBLE" else _EXACT_FLOAT
            self.refuse(role, f"NOT ({role} = trunc({role}) AND abs({role}) < {most})",
                        "which is no whole number" if self._row(
                            f"SELECT bool_or({role} <> trunc({role})) FROM raw")[0] else
                        f"which {kind.lower()}s do not hold exactly",
                        "give whole numbers, or names that are text")
            value = f"CAST({role} AS BIGINT)"
        elif kind.startswith("DECIMAL"):
            self.refuse(role, f"{role} <> trunc({role})", "which is no whole number",
                        "give whole numbers, or names that are text")
            value = f"CAST({role} AS HUGEINT)"
        elif kind in _WHOLE:
            value = role
        elif kind in ("BLOB", "INTERVAL") or not re.fullmatch(r"[A-Z_0-9 ]+|ENUM\(.*", kind,
                                                              re.DOTALL):
            raise FedvineError(f'{self.table}: column "{self.names[role]}" is of type '
                               f"{short(kind)}, which is no name; turn it into text.")
        else:
            return f"CAST({role} AS VARCHAR)", False
        if whole is not False and self._all(f"TRY_CAST({value} AS BIGINT) IS NOT NULL"):
            return f"CAST({value} AS BIGINT)", True
        return f"CAST({value} AS VARCHAR)", False

    def _text_name(self, role: str, whole: bool | None) -> tuple[str, bool]:
        free = self.untyped and whole is None       # to be whole numbers, as it seems
        if free and self._all(f"CAST(TRY_CAST({role} AS BIGINT) AS VARCHAR) = {role}"):
            return f"CAST({role} AS BIGINT)", True
        text = role if self._all(naming.is_clean(role)) else naming.cleaned(role)
        if text != role:
            self._refuse_empty(role, f"{text} = ''")
        if free and self._all(naming.is_whole(text)):
            if self._all(f"TRY_CAST({naming.digits(text)} AS BIGINT) IS NOT NULL"):
                return f"CAST({naming.digits(text)} AS BIGINT)", True
            return naming.digits(text), False
        return naming.digits(text) if whole and self.untyped else text, False

    def time(self, role: str, form: str | None = None) -> str:
        """Return SQL of whole (BIGINT) or other times (DOUBLE); dates are in seconds since 1970."""
        self._refuse_missing(role)
        kind = self.types[role]
        if form is not None:
            return self._formed_time(role, form)
        if kind in _WHOLE:
            self._refuse_time(role, f"TRY_CAST({role} AS BIGINT) IS NULL")
            return f"CAST({role} AS BIGINT)"
        if kind in ("FLOAT", "DOUBLE") or kind.startswith("DECIMAL"):
            return self._float_time(role)
        if is_date(kind):
            return self._date_time(role, zoned(role, kind))
        if kind != "VARCHAR":
            raise FedvineError(f'{self.table}: column "{self.names[role]}" is of type '
                               f"{short(kind)}, which is no time; a time is a number, a date or a "
                               "timestamp.")
        number, date = f"TRY_CAST({role} AS DOUBLE)", f"TRY_CAST({role} AS TIMESTAMPTZ)"
        rows, numbers = self._row(f"SELECT count(*), count({number}) FROM raw")
        dates, whole_years = (0, 0) if numbers == rows else self._row(
            f"SELECT count({date}), count({strict_date(role)}) FROM raw")
        if numbers and dates and numbers + dates == rows:
            self._refuse_mixed(role, number)
        if dates > numbers:
            if whole_years < rows:
                if forms := self.forms(role):
                    self._refuse_form(role, forms)
                self._refuse_time(role, f"{strict_date(role)} IS NULL")
            return self._date_time(role, date)
        if not numbers and (forms := self.forms(role)):
            self._refuse_form(role, forms)
        self._refuse_time(role, f"{number} IS NULL")
        # most are written as they would be printed, which is quicker to see than a form
        if self._all(f"CASE WHEN CAST(TRY_CAST({role} AS BIGINT) AS VARCHAR) = {role} THEN true "
                     f"ELSE regexp_full_match(trim({role}), '[+-]?[0-9]+') END"):
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

    def feature(self, role: str, known: str | None = None) -> tuple[str, str]:
        """Return SQL of FLOAT, and its kind: a number, or a hash 0..HASHES - 1 of a category.

        Text is a category, but not where a source has no types and all cells are numbers, all are
        dates, or all are true or false; dates are seconds, as float32 holds them (to two minutes).
        An empty cell of a category is -1; of numbers it is refused. ``known``: the kind that it had
        when a run began, and has now.
        """
        kind, name = self.types[role], self.names[role]
        text = kind == "VARCHAR" or kind.startswith("ENUM")

        def every(value: str) -> bool:
            return self._all(f"{value} IS NOT NULL OR {role} IS NULL OR "
                             f"lower(trim({role})) IN {NONE}")
        loose = text and self.untyped and known != CATEGORY
        numbers = loose and (self.truths(role) or every(f"TRY_CAST({role} AS DOUBLE)"))
        dates = loose and not numbers and every(strict_date(role))
        if dates or is_date(kind):
            self._refuse_missing(role)
            value = strict_date(role) if dates else timestamp(role, kind)
            self.refuse(role, f"{value} IS NULL", "which is no date", "write a date")
            return f"CAST(epoch({value}) AS FLOAT)", NUMBER
        if known == NUMBER or (known is None and (not text or numbers)):
            return self.number(role), NUMBER
        cell = naming.cleaned(f"coalesce(CAST({role} AS VARCHAR), '')")
        return (f"CASE WHEN {cell} = '' THEN -1::FLOAT ELSE CAST(md5_number_lower("
                f"{literal(name + ': ')} || {cell}) % {HASHES} AS FLOAT) END", CATEGORY)

    def label(self, role: str) -> str:
        """Return SQL of INTEGER; an empty cell is -1."""
        value = f"TRY_CAST({role} AS DOUBLE)"
        empty = (f"({role} IS NULL OR trim(CAST({role} AS VARCHAR)) = '' "
                 f"OR coalesce(isnan({value}), false))")
        self.refuse(role, f"NOT {empty} AND ({value} IS NULL OR {value} <> trunc({value}) "
                     f"OR abs({value}) >= {2 ** 31})", "which is no whole number",
                     "give classes whole numbers, and leave unknown ones empty")
        return f"CASE WHEN {empty} THEN -1 ELSE CAST({value} AS INTEGER) END"

    def flag(self, role: str) -> str:
        """Return SQL of BOOLEAN; an empty cell is false."""
        kind, cell = self.types[role], role
        if kind in ("FLOAT", "DOUBLE"):
            cell = f"CASE WHEN NOT isnan({role}) THEN {role} END"
        elif kind == "VARCHAR":
            cell = f"nullif(trim({role}), '')"
        value = f"TRY_CAST({cell} AS BOOLEAN)"
        odd = "" if kind in ("BOOLEAN", "VARCHAR") else f" OR {cell} NOT IN (0, 1)"
        self.refuse(role, f"{cell} IS NOT NULL AND ({value} IS NULL{odd})",
                     "which is neither true nor false", "write true, false, 1 or 0")
        return f"coalesce({value}, false)"

    def truths(self, role: str) -> bool:
        """Return whether all filled cells of a column of an untyped source are true or false."""
        return self.untyped and self.types[role] == "VARCHAR" and self._row(
            f"SELECT coalesce(bool_and(lower(trim({role})) IN ('true', 'false')), false) FROM raw "
            f"WHERE lower(trim({role})) NOT IN {NONE}")[0]

    def truth(self, role: str) -> str:
        """Return SQL of DOUBLE of a column of :meth:`truths`, null where a cell is neither."""
        return f"CASE lower(trim({role})) WHEN 'true' THEN 1.0 WHEN 'false' THEN 0.0 END::DOUBLE"

    def _formed_time(self, role: str, form: str) -> str:
        try:
            self._row(f"SELECT strftime(TIMESTAMP '2020-01-01', {literal(form)})")
        except duckdb.Error as error:
            raise FedvineError(f'The time format "{form}" is none; write for example '
                               "%d.%m.%Y %H:%M.") from error
        value = f"try_strptime(CAST({role} AS VARCHAR), {literal(form)})"
        self.refuse(role, f"{value} IS NULL", f'which is not of the form "{form}"',
                     "give the form that all of them have, such as %d.%m.%Y %H:%M")
        return self._date_time(role, value)

    # -- the forms of a time -------------------------------------------------------------------
    def _float_time(self, role: str, value: str = "") -> str:
        value = value or f"CAST({role} AS DOUBLE)"
        self._refuse_time(role, f"NOT isfinite({value})")
        whole = self._all(f"{value} = trunc({value}) AND abs({value}) <= {_EXACT}")
        return f"CAST({value} AS BIGINT)" if whole else value

    def _date_time(self, role: str, value: str) -> str:
        value = self.instant(value)
        self._refuse_time(role, f"NOT isfinite({value})")
        self.dates = self.timezone or True
        micro = f"epoch_us({value})"
        return (f"{micro} // 1000000" if self._all(f"{micro} % 1000000 = 0")
                else f"{micro} / 1000000.0::DOUBLE")

    def instant(self, value: str) -> str:
        """Return SQL of a date's moment; without a zone it is that of the session."""
        # Where no zone is named all is UTC, and a cast to it costs nothing.
        return f"CAST({value} AS TIMESTAMP{'TZ' if self.timezone else ''})"

    # -- refusing ------------------------------------------------------------------------------
    def forms(self, role: str) -> list[str]:
        """Return up to two forms of a date that all cells have, those with the shortest spans.

        Two-digit years come first, as a year of 24 is none.
        """
        read = {form: f"epoch(try_strptime(trim({role}), {literal(form)}))" for form in _FORMS}
        there = f"{role} IS NULL OR lower(trim({role})) IN {NONE}"
        if not self._all(f"{there} OR regexp_matches(trim({role}), '^[0-9]')"):     # "infinity"
            return []
        fit = ", ".join(f"bool_and({x} IS NOT NULL OR {there})" for x in read.values())
        some = self._row(f"SELECT {fit} FROM (SELECT * FROM raw LIMIT 1000)")
        spans = {}
        for (form, x), fits in zip(read.items(), some, strict=True):
            if fits and self._all(f"{x} IS NOT NULL OR {there}"):
                least, most = self._row(f"SELECT min({x}), max({x}) FROM raw")
                if least is None:       # all cells are empty
                    return []
                spans[form] = most - least + (_YEARS if most > time.time() + _YEARS / 100 else 0)
        spans = {form: span for form, span in spans.items() if "%y" in form} or spans
        first = min(spans.values(), default=0.0)
        return [form for form, span in spans.items() if span <= 10 * first + 366 * 86_400][:2]

    def _refuse_form(self, role: str, forms: list[str]) -> None:
        ways = " or ".join(f'"{form}"' for form in forms)
        python = " or ".join(f'time_format="{form}"' for form in forms)
        self.refuse(role, f"{strict_date(role)} IS NULL", "a date that can be read in several ways"
                    if len(forms) > 1 else "a date whose year does not come first in four digits",
                    f"say --time-format {ways} (in Python {python})")

    def _refuse_time(self, role: str, where: str) -> None:
        self.refuse(role, where, "which is no time",
                    "write numbers, or dates such as 2012-04-03 18:00:06, or say --time-format "
                    "(in Python time_format=)")

    def _refuse_mixed(self, role: str, number: str) -> None:
        one, other = (self.place(self._row(f"SELECT min(rowid) FROM raw WHERE {number} IS {what}"
                                           )[0]) for what in ("NOT NULL", "NULL"))
        raise FedvineError(f'{self.table}: column "{self.names[role]}" has numbers, as {one}, '
                           f"and dates, as {other}; write all times in one way.")

    def _refuse_missing(self, role: str) -> None:
        kind = self.types[role]
        self._refuse_empty(role, f"{role} IS NULL" + (
            f" OR isnan({role})" if kind in ("FLOAT", "DOUBLE") else
            f" OR {role} = ''" if kind == "VARCHAR" else ""))

    def _refuse_empty(self, role: str, empty: str) -> None:
        count, first = self._row(f"SELECT count(*), min(rowid) FROM raw WHERE {empty}")
        if count:
            rows = self.place(first) if count == 1 else (
                f"in {count:,} rows, first {self.place(first)}")
            raise FedvineError(f'{self.table}: column "{self.names[role]}" is empty {rows}; '
                               "fill it in or leave those rows out.")

    def refuse(self, role: str, where: str, what: str, remedy: str) -> None:
        """Raise :class:`FedvineError` that names the first row where a condition holds."""
        first, = self._row(f"SELECT min(rowid) FROM raw WHERE {where}")
        if first is not None:
            value, = self._row(f"SELECT CAST({role} AS VARCHAR) FROM raw WHERE rowid = {first}")
            if remedy.startswith("write a number") and re.fullmatch(GROUPS, (value or "").strip()):
                plain, one = value.strip().replace(",", ""), value.count(",") == 1
                other = value.strip().replace(",", ".")
                what = "which is no number" if "." in value or not one else (
                    f"which may be {plain} or {other}")
                remedy = f"write {plain}, without a comma between thousands" if (
                    "." in value or not one) else f"write {plain}, or {other} with a decimal point"
            elif remedy.startswith("write a number") and _COMMA.fullmatch(value or ""):
                remedy = f"write {value.strip().replace(',', '.')}, with a decimal point"
            raise FedvineError(f'{self.table}: column "{self.names[role]}" holds '
                               f'"{short(value or "")}" {self.place(first)}, {what}; {remedy}.')

    def place(self, row: int) -> str:
        """Return where a row of ``raw`` (from 0) is: by its key, file, number, or cells."""
        if "key" in self.types:
            key, = self._row(f"SELECT CAST(key AS VARCHAR) FROM raw WHERE rowid = {row}")
            return f'where "{self.names["key"]}" is "{short(key or "")}"'
        for file, relation in self.source.parts:
            count, = self._row(f"SELECT count(*) FROM {relation}")
            if row < count:
                return f"in row {row + 1} of {file}"
            row -= count
        if not self.table.startswith("the query"):
            return f"in row {row + 1}"
        roles = [r for r in self.names if r in self.types]      # the row is in no file
        cells = self._row(f"SELECT {', '.join(f'CAST({r} AS VARCHAR)' for r in roles)} FROM raw "
                          f"WHERE rowid = {row}")
        said = (f'{self.names[r]} "{short(c or "", 40)}"'
                for r, c in zip(roles, cells, strict=True))
        return f"in its row {row + 1} ({', '.join(said)})"

    def _all(self, condition: str) -> bool:
        query = f"SELECT bool_and(coalesce({condition}, false)) FROM "
        # Most columns that do not fulfil it have a cell among the first that does not.
        return self._row(f"{query} (SELECT * FROM raw LIMIT 1000)")[0] and self._row(
            f"{query} raw")[0]

    def _row(self, query: str) -> tuple:
        return self.connection.execute(query).fetchall()[0]


def is_date(kind: str) -> bool:
    """Return whether a DuckDB type is of dates or of times with a date."""
    return kind == "DATE" or kind.startswith("TIMESTAMP")


def timestamp(value: str, kind: str) -> str:
    """Return SQL of TIMESTAMP of a value whose type :func:`is_date`."""
    return f"CAST({zoned(value, kind)} AS TIMESTAMP)"


def zoned(value: str, kind: str) -> str:
    """Return SQL of a value whose type :func:`is_date`, with a zone where it has one."""
    # From nanoseconds with a zone DuckDB has no direct cast to others without one.
    return f"CAST({value} AS TIMESTAMPTZ)" if kind == "TIMESTAMPTZ_NS" else value


def strict_date(text: str) -> str:
    """Return SQL of a text's timestamp, null where no year of four digits comes first.

    Also null for a zone in letters but UTC and GMT, as BST and others have several meanings.
    """
    return (f"CASE WHEN regexp_matches({text}, '(?i)^\\s*[0-9]{{4}}[-/][^a-z]*"
            "(t[^a-z]*)?(z|utc|gmt|[a-z_]+/.*)?\\s*$') "
            f"THEN TRY_CAST({text} AS TIMESTAMPTZ) END")
