"""Names of users, items, clients and classes: the one rule from any value to a name.

- A number that is whole is named by its digits, whatever its type: 3, 3.0, Decimal("3.00").
- Text stays text: "007", "4000.10" and "4000.1" are three names. It is brought to Unicode's form
  NFC, and spaces around it are cut off.
- In a source without types (CSV, a database) a column is of whole numbers where all of its cells
  are written as such (3 or 3.0, without leading zeros), and text otherwise.

:class:`fedvine.data.io.columns.Columns` names the columns of all tables by the SQL that is here,
and :func:`name_of` a single value that a person gave.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from decimal import Decimal
from numbers import Integral
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SPACES = "".join(c for c in map(chr, range(0x3100)) if c.isspace()) + "\u200b\ufeff"
WHOLE = "-?(0|[1-9][0-9]*)([.]0+)?"     # text that is written as a whole number
# What people write where nothing is known.
MISSING = ("na", "n/a", "#n/a", "nan", "null", "none", "nil", "unknown", "missing", "\\n", "-", "?")
_LISTED = "[" + "".join(f"\\x{{{ord(c):x}}}" for c in SPACES) + "]"


def in_words(word: str) -> bool:
    """Return whether ``word`` is one that people write where nothing is known."""
    return word.casefold() in MISSING


def is_clean(text: str) -> str:
    """Return SQL of whether a text is in NFC and has no spaces around it."""
    return f"({text} = nfc_normalize({text}) AND NOT regexp_matches({text}, " \
           f"'^{_LISTED}|{_LISTED}$'))"


def cleaned(text: str) -> str:
    """Return SQL of a text in NFC without spaces around it."""
    return f"nfc_normalize(regexp_replace({text}, '^{_LISTED}+|{_LISTED}+$', '', 'g'))"


def is_whole(text: str) -> str:
    """Return SQL of whether a text is written as a whole number."""
    return f"regexp_full_match({text}, '{WHOLE}')"


def digits(text: str) -> str:
    """Return SQL of the digits of a text that :func:`is_whole`, others as they are."""
    return f"CASE WHEN {is_whole(text)} THEN regexp_replace({text}, '[.]0+$', '') ELSE {text} END"


def name_of(value: Any) -> str | None:
    """Return the name that a value is, None where it is missing (None, NaN, NA, NaT)."""
    if isinstance(value, str):
        return unicodedata.normalize("NFC", value.strip(SPACES))
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if value is None or value != value or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, float | np.floating | Decimal) and math.isfinite(value) and (
            value == int(value)):
        return str(int(value))
    return str(value)


def alike(names: Sequence[str] | pa.Array) -> tuple[int, list[tuple[str, str]]]:
    """Return how many names differ only in case, form or spaces from others, and two such pairs."""
    texts = pa.array(names, pa.string())
    keys = alike_keys(texts)
    counts = pc.value_counts(keys)      # type: ignore[attr-defined]
    twice = counts.field("values").filter(pc.greater(counts.field("counts"), 1))  # type: ignore[attr-defined]
    if not len(twice):
        return 0, []
    mine = pc.is_in(keys, value_set=twice)      # type: ignore[attr-defined]
    groups: dict[str, list[str]] = {}
    for key, name in zip(keys.filter(mine).to_pylist(), texts.filter(mine).to_pylist(),
                         strict=True):
        groups.setdefault(key, []).append(name)
    pairs = sorted((min(group), sorted(group)[1]) for group in groups.values() if len(group) > 1)
    return sum(map(len, groups.values())), pairs[:2]


def alike_keys(names: pa.Array) -> pa.Array:
    """Return a text for each name, equal where names differ only in case, form and spaces.

    Signs that nobody sees, such as a zero-width joiner, count as spaces.
    """
    folded = pc.utf8_lower(pc.utf8_normalize(names, form="NFKC"))   # type: ignore[attr-defined]
    return pc.replace_substring_regex(folded, pattern=r"[\s\p{Z}\p{Cf}]", replacement="")  # type: ignore[attr-defined]


def one_letter(a: str, b: str) -> bool:
    """Return whether two names differ in one letter: changed, added, or two that are swapped."""
    if len(a) > len(b):
        a, b = b, a
    if len(b) - len(a) > 1 or a == b:
        return False
    same = next((i for i, c in enumerate(a) if c != b[i]), len(a))
    if len(a) < len(b):
        return a[same:] == b[same + 1:]
    return a[same + 1:] == b[same + 1:] or (
        a[same:same + 2] == b[same:same + 2][::-1] and a[same + 2:] == b[same + 2:])


def close(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that ``name`` equals except for case, form, spaces or one letter.

    Numbers are never close, and for one letter both names have four or more.
    """
    if re.fullmatch(r"[0-9\W_]*", name):
        return None
    known = list(known)
    key, *keys = alike_keys(pa.array([name, *known], pa.string())).to_pylist()
    for other, its in zip(known, keys, strict=True):
        if other != name and (key == its or (
                min(len(key), len(its)) >= 4 and one_letter(key, its)
                and re.sub(r"\d", "", key) != re.sub(r"\d", "", its))):
            return other
    return None

