"""BibTeX of the library, and of the papers that methods come from (``sources.toml``)."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fedvine
from fedvine.core import registry

FILE = Path(__file__).parent / "sources.toml"
SHORT = "Title and authors are shortened; complete them."


def cite(methods: Iterable[str]) -> str:
    """Return BibTeX of these methods' papers, each once, and of the library.

    A comment names the methods without a paper, and those that are not of fedvine. Raises
    :class:`FedvineError` for an unknown method.
    """
    known = sources()
    found, own, foreign = dict.fromkeys([]), [], []
    for name in dict.fromkeys(methods):
        papers = of_method(name, known)
        if papers is None:
            foreign.append(name)
        elif not papers:
            own.append(name)
        found |= dict.fromkeys(papers or [])
    library = {**known["library"], "version": fedvine.__version__}
    return "\n".join([
        *([f"% Without a paper, cite the library: {', '.join(own)}."] if own else []),
        *([f"% No built-in methods, cite their authors: {', '.join(foreign)}."] if foreign else []),
        *(entry(key, known["papers"][key]) for key in found), entry("fedvine", library)])


def sources() -> dict[str, Any]:
    """Return the table of papers and of methods."""
    return tomllib.loads(FILE.read_text("utf-8"))


def of_method(name: str, known: dict[str, Any]) -> list[str] | None:
    """Return the keys of a method's papers (those of its file); None if it is not fedvine's."""
    module = registry.method(name).__module__
    if not module.startswith(("fedvine.methods.", "fedvine.rivals.")):
        return None
    return known["methods"].get(name, known["methods"].get(module.rpartition(".")[2]))


def entry(key: str, fields: dict[str, Any]) -> str:
    """Return one entry of BibTeX."""
    short = {"note": SHORT} if fields.get("short") else {}
    lines = [f"  {name} = {{{value}}}," for name, value in {**fields, **short}.items()
             if name not in ("kind", "short")]
    return "\n".join([f"@{fields['kind']}{{{key},", *lines, "}"])
