"""Checks of tables: questions before long work, and notes for the run's summary.

A question is an error that ``sure`` (``--sure``) answers. The checks of the times of a table are
one list, :data:`OF_TIMES`; each has its sentence and what to do.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, timedelta
from itertools import pairwise
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

from fedvine.core.errors import FedvineError
from fedvine.core.text import short
from fedvine.data import names as naming
from fedvine.data.io import columns
from fedvine.data.io.columns import GROUPS, is_date, strict_date
from fedvine.data.io.parts import identifier, literal
from fedvine.data.io.source import Source

SAMPLE = 10_000     # rows that the check of amounts reads
RETURNS = 100_000   # rows that are looked at for numbers below 0
FEW = 20            # with fewer rows there is no question; so many columns are few
MANY = 1_000        # clients or classes above which there is always a question
STAGES = 1_000      # stages of a number of rows above which there is a question
LATE = 1e11         # times from which on they are hardly seconds: this is the year 5138
JUMP = 30           # times by which times of one unit jump to those of the next, 1,000 times finer
FAR = 100           # times another feature's largest value
LISTED = 4          # columns whose scales are proposed
_1900, _YEAR = -2_208_988_800, 366 * 86_400
_SHEET_2000, _SHEET_2050 = 36_526, 54_789       # days as spreadsheets number them
_UNITS = ("", "seconds", "milliseconds", "microseconds", "nanoseconds")
_AMOUNT = re.compile(r"amount|price|cost|value|weight|rating|score|quantity|qty|total|balance",
                     re.IGNORECASE)
_QUANTITY = re.compile(r"amount|price|quantity|qty|total|units|sales|revenue|count|sum",
                       re.IGNORECASE)
_SELECTED = (".csv", ".csv.gz", ".tsv", ".parquet")     # files that a query selects from by name
_SURE = "or say --sure (in Python sure=True)."

def ask_about_clients(clients: int, rows: int, label: str, column: str) -> None:
    """Raise :class:`FedvineError` for over 1,000 clients, or over 100 with under 20 rows each."""
    if _too_many(clients, rows):
        raise FedvineError(
            f'{label}: does "{column}" say who owns a row? It names {clients:,} clients with '
            f"{rows / clients:.1f} rows each; name another column with --client, or say --sure (in "
            "Python sure=True).")


def of_alike(label: str, column: str, names: Iterable[str] | pa.Array) -> list[str]:
    """Return the note on names that differ only in case, form of Unicode, or spaces."""
    count, pairs = naming.alike(names if isinstance(names, pa.Array) else list(names))
    if not count:
        return []
    said = ", and ".join(f'"{short(a)}" and "{short(b)}"' for a, b in pairs)
    return [f'{label}: {count:,} names of "{column}" differ only in case, spaces or form from '
            f"another one, such as {said}; they count as different: if they are one, write them in "
            "one way."]


def of_missing(label: str, column: str, rows: Mapping[str, int]) -> list[str]:
    """Return the note on names that are words for a missing one; ``rows`` of each such name."""
    if not rows:
        return []
    said = ", ".join(f'"{name}" ({count:,} row{"s" * (count != 1)})' for name, count in sorted(
        rows.items())[:4])
    return [f'{label}: {said} of "{column}" counts as a name; if it says that the name is not '
            "known, leave those rows out."]


def ask_about_missing_classes(nodes: Mapping[str, int], label: str, column: str) -> None:
    """Raise for a class (with its number of nodes) whose name is a word for a missing one."""
    words = sorted(name for name in nodes if naming.in_words(name))
    if words:
        said = " and ".join(f'"{word}" ({nodes[word]:,} nodes)' for word in words[:3])
        raise FedvineError(
            f'{label}: is {said} a class of "{column}", or is the class not known there? Say '
            f"--missing {','.join(words)} (in Python missing={words!r}) if it is not known, "
            f"{_SURE}")


def ask_about_classes(classes: int, nodes: int, label: str, column: str) -> None:
    """Raise :class:`FedvineError` for over 1,000 classes, or over 100 with under 20 nodes each."""
    if _too_many(classes, nodes):
        raise FedvineError(
            f'{label}: is "{column}" the class of a node? It has {classes:,} values with '
            f"{nodes / classes:.1f} nodes each; name another column with --label, or say --sure "
            "(in Python sure=True).")


def _too_many(values: int, rows: int) -> bool:
    return values > MANY or (values > 100 and rows < FEW * values)


class Times(NamedTuple):
    """A column of times: ``typed`` is its SQL over table ``raw``, in seconds where it has dates.

    Table ``edges`` has the same times, typed and sorted, as ``t``.
    """

    columns: columns.Columns
    typed: str
    source: Source
    used: Sequence[str]

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """Return the connection to ``raw``."""
        return self.columns.connection

    @property
    def label(self) -> str:
        """Return the table's name in messages."""
        return self.columns.table

    @property
    def column(self) -> str:
        """Return the name of the column."""
        return self.columns.names["t"]

    def at(self, condition: str) -> str:
        """Return where the first row is that fulfils a condition on ``v``, with its cell."""
        (row, cell), = self.connection.execute(
            f"SELECT row, cell FROM (SELECT rowid AS row, CAST(t AS VARCHAR) AS cell, {self.typed} "
            f"AS v FROM raw) WHERE {condition} ORDER BY row LIMIT 1").fetchall()
        return f"{short(cell)} {self.columns.place(row)}"


def ask_about_time(times: Times, formed: bool) -> None:
    """Raise the first question of :data:`OF_TIMES`; ``formed``: a person gave the form of times."""
    for check in OF_TIMES:
        if (not formed or check is _far_from_today) and (question := check(times)):
            raise FedvineError(f"{times.label}: {question}, {_SURE}")


def _digits(times: Times) -> str | None:
    """Ask where all times are digits of a date, such as 20240131."""
    if times.columns.dates:
        return None
    for form, digits in (("%Y%m%d", 8), ("%Y%m%d%H%M%S", 14)):
        text = "trim(CAST(t AS VARCHAR))"
        rows, dates, one = times.connection.execute(
            f"SELECT count(*), count(*) FILTER (regexp_full_match({text}, '(19|20)[0-9]"
            f"{{{digits - 2}}}') AND try_strptime({text}, '{form}') IS NOT NULL), min({text}) "
            f"FROM (SELECT t FROM raw WHERE rowid < {SAMPLE})").fetchall()[0]
        if rows >= FEW and dates == rows:
            return (f'"{times.column}" holds dates such as {one}, which count as seconds; say '
                    f'--time-format "{form}" (in Python time_format="{form}")')
    return None


def _unit(times: Times) -> str | None:
    """Ask where times are numbers of milliseconds since 1970 and finer, all or some of them."""
    if times.columns.dates:
        return None
    bands = {band: found for band, *found in times.connection.execute(
        "SELECT CASE WHEN v < 1e8 THEN 0 WHEN v < 1e11 THEN 1 WHEN v < 1e14 THEN 2 WHEN v < 1e17 "
        "THEN 3 ELSE 4 END AS band, count(*), min(v), max(v) FROM (SELECT t AS v FROM edges) "
        "GROUP BY band").fetchall()}
    there = sorted(band for band in bands if band)
    for low, high in pairwise(there):
        if bands[high][1] > JUMP * bands[low][2]:
            one, other = (times.at(f"v BETWEEN {bands[b][1]} AND {bands[b][2]}")
                          for b in (low, high))
            return (f'"{times.column}" has {_UNITS[low]} since 1970, such as {one}, and '
                    f"{_UNITS[high]}, such as {other}; write all in one unit")
    least = min((bands[band][1] for band in there), default=0)      # a filler such as 0 is no time
    if least < LATE or sum(rows for rows, *_ in bands.values()) < FEW:
        return None
    unit, by = next((unit, by) for unit, by, most in (
        ("milliseconds", 10 ** 3, 1e14), ("microseconds", 10 ** 6, 1e17),
        ("nanoseconds", 10 ** 9, np.inf)) if least < most)
    name = identifier(times.column)
    query = f"SELECT * REPLACE ({name} / {by} AS {name}) FROM {identifier(times.label)}"
    how = f", as with --data '{query}'" if times.label.lower().endswith(_SELECTED) else ""
    return (f'does "{times.column}" hold {unit}? Its times (from {least:.0f} on) count as seconds, '
            f"and are then after the year 5000; divide them by {by:,}{how}")


def _sheet_days(times: Times) -> str | None:
    """Ask where all times are numbers that a spreadsheet shows as days from 2000 to 2049."""
    if times.columns.dates:
        return None
    (rows, least, most), = times.connection.execute(
        "SELECT count(*), min(t), max(t) FROM edges").fetchall()
    if rows < FEW or least < _SHEET_2000 or most >= _SHEET_2050:
        return None
    day = date(1899, 12, 30) + timedelta(days=int(least))
    name = identifier(times.column)
    query = (f"SELECT * REPLACE (({name} - 25569) * 86400 AS {name}) FROM "
             f"{identifier(times.label)}")
    how = f", as with --data '{query}'" if times.label.lower().endswith(_SELECTED) else ""
    return (f'does "{times.column}" hold days as a spreadsheet numbers them, {least:g} for {day}? '
            f"They count as seconds; write them as dates or as seconds since 1970{how}")


def _amounts(times: Times) -> str | None:
    """Ask where times are unordered numbers that are not seconds since 1970, but amounts.

    They have a name as of an amount, or at most two decimals, or stand beside unused dates.
    """
    if times.columns.dates:
        return None
    rows, least, most, up, down, whole, cents = times.connection.execute(
        "SELECT count(*), min(v), max(v), bool_and(v >= before), bool_and(v <= before), "
        "bool_and(v = trunc(v)), bool_and(abs(100 * v - round(100 * v)) < 1e-6 * (1 + abs(v))) "
        "FROM (SELECT v, lag(v) OVER (ORDER BY rowid) AS before FROM (SELECT rowid, "
        f"{times.typed} AS v FROM raw WHERE rowid < {SAMPLE}))").fetchall()[0]
    if rows < FEW or least is None or up or down or least >= 1e8:
        return None
    dates = _of_dates(times.connection, times.source, times.used)
    if not (dates or _AMOUNT.search(times.column) or (cents and not whole)):
        return None
    instead = f', and "{dates[0]}" holds dates' if dates else ""
    return (f'is "{times.column}" a time? Its values ({least:g} to {most:g}) come in no order'
            f"{instead}; name another column with --time")


def _far_from_today(times: Times) -> str | None:
    """Ask about single rows before 1900, or later than a year from today, beside others."""
    last = time.time() + _YEAR
    (rows, seconds, early, late), = times.connection.execute(
        f"SELECT count(*), count(*) FILTER (v BETWEEN 1e8 AND {last}), count(*) FILTER (v < "
        f"{_1900}), count(*) FILTER (v > {last}) FROM (SELECT t AS v FROM edges)").fetchall()
    dates = times.columns.dates
    if not dates and 2 * seconds <= rows:       # they count no seconds since 1970
        return None
    for count, which, what in ((early, f"v < {_1900}", "before 1900"),
                               (late, f"v > {last}", "more than a year from today")):
        if count > 0 and (10 * count <= rows or count == 1 < rows - 1):
            more = "" if count == 1 else f", like {count - 1:,} more"
            return (f'"{times.column}" holds {times.at(which)}, {what}{more}; correct it, or leave '
                    "it out")
    return None


#: Questions about the times of a table of edges, in this order.
OF_TIMES: tuple[Callable[[Times], str | None], ...] = (
    _digits, _unit, _sheet_days, _far_from_today, _amounts)


def ask_about_stages(rows: int, stages: int | str, label: str) -> None:
    """Raise :class:`FedvineError` for over 1,000 stages of a number of rows."""
    if isinstance(stages, int) and rows > STAGES * stages:
        raise FedvineError(
            f"{label}: are stages of {stages} edges meant? They are {rows // stages:,}; write a "
            f"duration such as --stages {stages}d, a larger number of edges, {_SURE}")


def of_returns(connection: duckdb.DuckDBPyConnection, label: str, source: Source) -> list[str]:
    """Return notes on columns with numbers below 0 that may be returns, by the first rows."""
    likely = [name for name in source.columns if _QUANTITY.search(name)]
    numbers = [f"TRY_CAST(CAST({source.columns[name]} AS VARCHAR) AS DOUBLE)" for name in likely]
    if not likely:
        return []
    counts = connection.execute("SELECT " + ", ".join(
        f"count(*) FILTER ({x} < 0), count(*) FILTER ({x} > 0)" for x in numbers)
        + f" FROM (SELECT * FROM {source.relation} LIMIT {RETURNS})").fetchall()[0]
    return [f'{label}: "{name}" is negative in {counts[2 * i]:,} rows; if these are returns, they '
            'are learned as purchases: see "Returns, quantities and prices" of the page on your '
            "own data." for i, name in enumerate(likely) if 0 < counts[2 * i] < counts[2 * i + 1]]


def ask_about_new(what: str, known: Iterable[str], new: Mapping[str, int], label: str,
                  sure: bool = False) -> list[str]:
    """Return a note on new names of a run that goes on.

    ``what`` they are names of is "client" or "class"; ``known`` are those of the run so far,
    ``new`` counts the rows of each new one, ``label`` names the table in messages; ``sure``: all
    are meant. Raises :class:`FedvineError` for one that equals a known one except for case, form of
    Unicode, spaces or one letter, and for one that has only one row.
    """
    known = list(known)
    for name, count in () if sure else new.items():
        if other := naming.close(name, known):
            raise FedvineError(
                f'{label}: is the {what} "{short(name)}" ({count:,} row{"s" * (count != 1)}) new, '
                f'or is it "{short(other)}"? Write it as before, {_SURE}')
        if count == 1:
            raise FedvineError(f'{label}: is the {what} "{short(name)}" new? It has only one row; '
                               f"correct it, wait for more rows, {_SURE}")
    if not new:
        return []
    said = ", ".join(f'"{short(name)}" ({count:,} row{"s" * (count != 1)})'
                     for name, count in list(new.items())[:8])
    return [f"{said} is a new {what}." if len(new) == 1 else
            f"{said} are new {what}{'es' if what[-1] == 's' else 's'}."]


def _of_dates(connection: duckdb.DuckDBPyConnection, source: Source, used: Sequence[str]
              ) -> list[str]:
    """List the unused columns that hold dates, judged by the first rows."""
    others = {name: sql for name, sql in source.columns.items() if name not in used}
    if not others or len(others) > 100:
        return []
    if not source.untyped:
        kinds = connection.execute(f"DESCRIBE SELECT {', '.join(others.values())} FROM "
                                   f"{source.relation}").fetchall()
        return [name for name, row in zip(others, kinds, strict=True)
                if is_date(row[1])]
    found = connection.execute(
        "SELECT " + ", ".join(
            f"bool_and({strict_date(c)} IS NOT NULL)" for c in others.values())
        + f" FROM (SELECT * FROM {source.relation} LIMIT 100)").fetchone() or ()
    return [name for name, are in zip(others, found, strict=True) if are]


def of_unused(label: str, unused: Sequence[str]) -> list[str]:
    """Return the note on columns without a role."""
    if not unused:
        return []
    what = "column {} is" if len(unused) == 1 else "columns {} are"
    return [f"{label}: {what.format(listed(unused))} not used."]


def of_commas(connection: duckdb.DuckDBPyConnection, label: str, source: Source,
              unused: Sequence[str], what: str = "are not used") -> list[str]:
    """Return notes on columns of text that are numbers with a comma, and ``what`` they are."""
    if not unused or not source.untyped:
        return []
    number = f"[+-]?[0-9]+([.][0-9]+|,[0-9]+)?|{GROUPS}"
    found = connection.execute("SELECT " + ", ".join(
        f"bool_and(regexp_full_match({x}, '{number}')) AND bool_or(contains({x}, ',')), "
        f"bool_and(NOT contains({x}, ',') OR regexp_full_match({x}, {literal(GROUPS)})), "
        f"min({x}) FILTER (contains({x}, ','))" for x in (
            f"nullif(trim({source.columns[name]}), '')" for name in unused))
        + f" FROM {source.relation}").fetchall()[0]
    notes = []
    for i, name in enumerate(unused):
        are, grouped, one = found[3 * i:3 * i + 3]
        if are:
            plain, point = one.replace(",", ""), one.replace(",", ".")
            ways = (plain if "." in one or one.count(",") > 1 else f"{plain} or {point}") if (
                grouped) else point
            notes.append(f'{label}: the numbers of "{name}" have commas, such as {one}, and '
                         f"{what}; write {ways}.")
    return notes


def of_categories(read: columns.Columns, roles: Mapping[str, str]) -> list[str]:
    """Return notes on categories, names by role, that look like numbers with a comma, or dates."""
    if not read.source.untyped:
        return []
    return [*of_commas(read.connection, read.table, read.source, list(roles.values()),
                       "are categories"),
            *(f'{read.table}: the dates of "{name}" are categories; write them with the year '
              "first, in four digits." for role, name in roles.items() if read.forms(role))]


def of_one_kind(connection: duckdb.DuckDBPyConnection, label: str, src: str, dst: str) -> list[str]:
    """Return the note on names of ``edges`` that both columns have, if these are half of one's."""
    (both, fewer), = connection.execute(
        "WITH s AS (SELECT DISTINCT src AS n FROM edges), "
        "d AS (SELECT DISTINCT dst AS n FROM edges) "
        "SELECT (SELECT count(*) FROM s SEMI JOIN d USING (n)), "
        "least((SELECT count(*) FROM s), (SELECT count(*) FROM d))").fetchall()
    if 2 * both < fewer:
        return []
    return [f'{label}: {both:,} names are in "{src}" and in "{dst}", and count as different nodes; '
            "say --bipartite no (in Python bipartite=False) if they are the same."]


def ask_about_scales(label: str, x: np.ndarray, names: Sequence[str]) -> None:
    """Raise :class:`FedvineError` where one feature of [N, F] is far larger than another.

    Of more than 20 features the usual one counts in place of the smallest. The sentence has scales
    for the large ones, which bring them to about 1.
    """
    size = np.maximum(x.max(0, initial=0), -x.min(0, initial=0))
    there = np.flatnonzero(size > 0)
    if not len(there):
        return
    there = there[np.argsort(size[there], kind="stable")]
    least, most = int(there[0 if len(there) <= FEW else len(there) // 2]), int(there[-1])
    if size[most] < FAR * size[least]:
        return
    said = (f'{label}: "{short(names[most])}" goes up to {size[most]:,.4g} and '
            f'"{short(names[least])}" to {size[least]:,.4g}, of which methods then see nothing; '
            "say ")
    if len(there) > FEW and (x >= 0).all() and (x == np.trunc(x)).all():
        raise FedvineError(f"{said}--set data.options.unit=true (in Python unit=True), which "
                           "divides the counts of each node by their length, or say --sure.")
    large = np.flatnonzero(size > FAR * size[least] / 10)
    large = large[np.argsort(-size[large], kind="stable")][:LISTED]
    scales = ", ".join(f'"{names[j]}" = [{x[:, j].mean(dtype=float):.3g}, '
                       f"{x[:, j].std(dtype=float) or 1.0:.3g}]" for j in large.tolist())
    raise FedvineError(
        f"{said}--set 'data.options.scales={{{scales}}}' (in Python scales=), which takes away a "
        "mean and divides by a deviation, or say --sure.")


def listed(names: Sequence[str]) -> str:
    """Return up to eight names in quotes, and the number of the others."""
    return ", ".join(f'"{name}"' for name in names[:8]) + (
        f" and {len(names) - 8:,} more" if len(names) > 8 else "")
