"""Escaping of names that people gave, one function for each medium that shows them.

Users, items, clients, classes, columns and data sets have any names that their owners chose; no
name may act as markup, formula or control code.
"""

from __future__ import annotations

import functools
import html
import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.text import Text

# Control codes of a terminal, and characters that change the direction of writing.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_NUMBER = r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?"
_FORMULA = "^[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
_GUARDED = _FORMULA.replace("^", "^'*")     # also text that looks as :func:`cells` makes it
_LATEX = {**{c: f"\\{c}" for c in "{}$&#_%"}, "\\": r"\textbackslash{}", "~": r"\textasciitilde{}",
          "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
          "|": r"\textbar{}", "±": r"$\pm$", "×": r"$\times$", "†": r"\dag{}", "‡": r"\ddag{}"}
_LONGEST = 40       # characters of a name in a picture


def shown(text: str) -> str:
    """Escape for a terminal: control codes become a question mark."""
    return _CONTROL.sub("?", text)


def short(text: str, most: int = 60) -> str:
    """Return ``text`` cut to ``most`` characters, for a sentence that names a cell or a type."""
    return text if len(text) <= most else text[:most - 3] + "..."


class Terminal(Console):
    """A console that prints text as it is: ``[red]`` and ``:smile:`` are not markup."""

    def __init__(self, file: Any = None, **options: Any) -> None:
        super().__init__(file=file, markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Render :func:`shown` text as Rich does; cells and titles of tables come here too."""
        return super().render_str(shown(text), **options)


def page(value: object) -> str:
    """Escape for an HTML page, also inside of quotes."""
    return html.escape(shown(str(value)), quote=True)


def drawn(name: str, most: int = _LONGEST) -> str:
    """Escape for a picture: no mathematics, only signs that the font has, and not too long.

    A label that starts with ``_`` would be left out of a legend, so a space comes before it.
    """
    known = _glyphs()
    name = name if len(name) <= most else name[:most - 3] + "..."
    text = "".join(c if ord(c) in known and c.isprintable() else
                   c.encode("ascii", "backslashreplace").decode() if c.isprintable() else "?"
                   for c in name)
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")


@functools.cache
def _glyphs() -> frozenset[int]:
    from matplotlib.font_manager import FontProperties, findfont, get_font
    return frozenset(get_font(findfont(FontProperties())).get_charmap())


def tagless(text: str) -> str:
    """Escape for a sentence of Markdown: no tag."""
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", shown(text))


def marked(name: str) -> str:
    """Escape for a title or cell of Markdown: no tag, entity or link, on one line."""
    name = re.sub(r"&(?=#?\w+;)", "&amp;", name.replace("\n", " "))
    return tagless(name).replace("](", r"]\(").replace("|", r"\|")


def latex(text: str) -> str:
    """Escape for LaTeX, on one line: no command, and no character that means something to TeX."""
    return "".join(_LATEX.get(c, c) for c in shown(text.replace("\n", " ")))


def plain(text: str) -> str:
    """Escape for one field of CSV: an apostrophe before what a spreadsheet takes as a formula."""
    formula = text != "-" and re.match(_FORMULA, text) and not re.match(
        rf"{_NUMBER}( {_NUMBER})*(?=$| ±| [%(]|†)", text)
    return f"'{text}" if formula else text


def unguarded(name: str) -> str:
    """Return the text of which :func:`cells` made ``name``, or ``name`` if it made it of none."""
    return name[1:] if name[:1] == "'" and re.match(_GUARDED, name[1:]) else name


def cells(table: pa.Table) -> pa.Table:
    """Escape for CSV: an apostrophe before text that a spreadsheet would take as a formula.

    That is text that begins with ``=``, ``+``, ``-``, ``@`` or a control code and is not a number,
    also in the names of columns.
    """
    compute: Any = pc       # type checkers do not know its functions
    for i, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            text = table.column(i)
            formula = compute.and_(
                compute.match_substring_regex(text, _GUARDED),
                compute.invert(compute.match_substring_regex(text, f"^{_NUMBER}$")))
            guarded = compute.binary_join_element_wise(pa.scalar("'", field.type), text,
                                                       pa.scalar("", field.type))
            table = table.set_column(i, field, compute.if_else(formula, guarded, text))
    heads = [f"'{name}" if re.match(_FORMULA, name) else name for name in table.column_names]
    return table.rename_columns(heads)
