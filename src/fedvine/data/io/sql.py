"""Names and texts in SQL."""

from __future__ import annotations


def literal(text: str) -> str:
    """Return ``text`` as an SQL string."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """Return ``name`` as the SQL name of a column."""
    return '"' + name.replace('"', '""') + '"'
