"""Doubts about columns: questions before long work, and notes for the run's summary.

A question is an error that ``sure`` (``--sure``) answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import duckdb
import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.data.io.columns import is_date
from fedvine.data.io.source import Source, identifier

SAMPLE = 10_000     # rows that the check of times reads
FEW = 20            # with fewer rows there is no question; so many columns are few
MANY = 1_000        # clients or classes above which there is always a question
LATE = 1e11         # times from which on they are hardly seconds: this is the year 5138
FAR = 100           # times another feature's largest value
LISTED = 8          # columns whose scales are proposed
_AMOUNT = re.compile(r"amount|price|cost|value|weight|rating|score|quantity|qty|total|balance",
                     re.IGNORECASE)

_SELECTED = (".csv", ".csv.gz", ".tsv", ".parquet")     # files that a query selects from by name


def ask_about_clients(clients: int, rows: int, label: str, column: str) -> None:
    """Raise :class:`FedvineError` for over 1,000 clients, or over 100 with under 20 rows each."""
    if _too_many(clients, rows):
        raise FedvineError(
            f'{label}: does "{column}" say who owns a row? It names {clients:,} clients with '
            f"{rows / clients:.1f} rows each; name another column with --client, or say --sure (in "
            "Python sure=True).")


def of_alike(label: str, column: str, names: Iterable[str]) -> list[str]:
    """Return the note on the first two names that differ only in case or in spaces."""
    before: dict[str, str] = {}
    for name in sorted(names):
        other = before.setdefault("".join(name.split()).casefold(), name)
        if other != name:
            return [f'{label}: "{other}" and "{name}" of "{column}" count as different; if they '
                    "are one, write them in one way."]
    return []


def ask_about_classes(classes: int, nodes: int, label: str, column: str) -> None:
    """Raise :class:`FedvineError` for over 1,000 classes, or over 100 with under 20 nodes each."""
    if _too_many(classes, nodes):
        raise FedvineError(
            f'{label}: is "{column}" the class of a node? It has {classes:,} values with '
            f"{nodes / classes:.1f} nodes each; name another column with --label, or say --sure "
            "(in Python sure=True).")


def _too_many(values: int, rows: int) -> bool:
    return values > MANY or (values > 100 and rows < FEW * values)


def ask_about_time(connection: duckdb.DuckDBPyConnection, label: str, column: str, source: Source,
                   used: Sequence[str]) -> None:
    """Raise :class:`FedvineError` if column ``t`` of ``raw`` seems to hold no seconds, or amounts.

    Amounts are unordered numbers that are not seconds since 1970, with a name as of an amount, or
    with at most two decimals, or beside an unused column of dates.
    """
    _ask_about_digits(connection, label, column)
    _ask_about_unit(connection, label, column)
    rows, least, most, up, down, whole, cents = connection.execute(
        "SELECT count(*), min(v), max(v), bool_and(v >= before), bool_and(v <= before), "
        "bool_and(v = trunc(v)), bool_and(abs(100 * v - round(100 * v)) < 1e-6 * (1 + abs(v))) "
        "FROM (SELECT v, lag(v) OVER (ORDER BY rowid) AS before FROM (SELECT rowid, "
        f"TRY_CAST(CAST(t AS VARCHAR) AS DOUBLE) AS v FROM raw WHERE rowid < {SAMPLE}))"
    ).fetchone() or (0,) * 7
    if rows < FEW or least is None or up or down or least >= 1e8:
        return
    dates = _of_dates(connection, source, used)
    if not (dates or _AMOUNT.search(column) or (cents and not whole)):
        return
    instead = f', and "{dates[0]}" holds dates' if dates else ""
    raise FedvineError(
        f'{label}: is "{column}" a time? Its values ({least:g} to {most:g}) come in no order'
        f"{instead}; name another column with --time, or say --sure (in Python sure=True).")


def _ask_about_digits(connection: duckdb.DuckDBPyConnection, label: str, column: str) -> None:
    """Raise :class:`FedvineError` if all times are digits of a date, such as 20240131."""
    for form, digits in (("%Y%m%d", 8), ("%Y%m%d%H%M%S", 14)):
        text = "trim(CAST(t AS VARCHAR))"
        rows, dates, one = connection.execute(
            f"SELECT count(*), count(*) FILTER (regexp_full_match({text}, '(19|20)[0-9]"
            f"{{{digits - 2}}}') AND try_strptime({text}, '{form}') IS NOT NULL), min({text}) "
            f"FROM (SELECT t FROM raw WHERE rowid < {SAMPLE})").fetchone() or (0, 0, "")
        if rows >= FEW and dates == rows:
            raise FedvineError(f'{label}: "{column}" holds dates such as {one}, which count as '
                               f'seconds; say --time-format "{form}" (in Python '
                               f'time_format="{form}"), or --sure (sure=True).')


def _ask_about_unit(connection: duckdb.DuckDBPyConnection, label: str, column: str) -> None:
    """Raise :class:`FedvineError` if all times are numbers as of milliseconds since 1970."""
    rows, numbers, least = connection.execute(
        "SELECT count(*), count(v), min(v) FROM (SELECT TRY_CAST(CAST(t AS VARCHAR) AS DOUBLE) AS v"
        f" FROM raw WHERE rowid < {SAMPLE})").fetchone() or (0, 0, None)
    if least is None or rows < FEW or numbers < rows or least < LATE:
        return
    unit, by = next((unit, by) for unit, by, most in (
        ("milliseconds", 10 ** 3, 1e14), ("microseconds", 10 ** 6, 1e17),
        ("nanoseconds", 10 ** 9, np.inf)) if least < most)
    name = identifier(column)
    query = f"SELECT * REPLACE ({name} / {by} AS {name}) FROM {identifier(label)}"
    how = f", as with --data '{query}'" if label.lower().endswith(_SELECTED) else ""
    raise FedvineError(
        f'{label}: does "{column}" hold {unit}? Its times (from {least:.0f} on) count as seconds, '
        f"and are then after the year 5000; divide them by {by:,}{how}, or say --sure (in Python "
        "sure=True).")


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
            f"bool_and(TRY_CAST({c} AS TIMESTAMPTZ) IS NOT NULL AND "
            f"TRY_CAST({c} AS DOUBLE) IS NULL)" for c in others.values())
        + f" FROM (SELECT * FROM {source.relation} LIMIT 100)").fetchone() or ()
    return [name for name, are in zip(others, found, strict=True) if are]


def of_unused(label: str, unused: Sequence[str]) -> list[str]:
    """Return the note on columns without a role."""
    if not unused:
        return []
    what = "column {} is" if len(unused) == 1 else "columns {} are"
    return [f"{label}: {what.format(listed(unused))} not used."]


def of_commas(connection: duckdb.DuckDBPyConnection, label: str, source: Source,
              unused: Sequence[str]) -> list[str]:
    """Return the note on unused columns of text that are numbers with a decimal comma."""
    if not unused or not source.untyped:
        return []
    cells = [f"nullif(trim({source.columns[name]}), '')" for name in unused]
    found = connection.execute("SELECT " + ", ".join(
        f"bool_and(regexp_full_match({x}, '[+-]?[0-9]+(,[0-9]+)?')) AND bool_or(contains({x}, ','))"
        for x in cells) + f" FROM {source.relation}").fetchone() or ()
    names = [name for name, are in zip(unused, found, strict=True) if are]
    return [f"{label}: the numbers of {listed(names)} have a decimal comma; write them with a "
            "point, such as 19.91, and they are used."] if names else []


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
    large = np.flatnonzero(size > FAR * size[least] / 10)
    large = large[np.argsort(-size[large], kind="stable")][:LISTED]
    scales = ", ".join(f'"{names[j]}" = [{x[:, j].mean(dtype=float):.3g}, '
                       f"{x[:, j].std(dtype=float) or 1.0:.3g}]" for j in large.tolist())
    raise FedvineError(
        f'{label}: "{names[most]}" goes up to {size[most]:,.4g} and "{names[least]}" to '
        f"{size[least]:,.4g}, of which methods then see nothing; say --set "
        f"'data.options.scales={{{scales}}}' (in Python scales=), which takes away a mean and "
        "divides by a deviation, or say --sure.")


def listed(names: Sequence[str]) -> str:
    """Return up to eight names in quotes, and the number of the others."""
    return ", ".join(f'"{name}"' for name in names[:8]) + (
        f" and {len(names) - 8:,} more" if len(names) > 8 else "")
