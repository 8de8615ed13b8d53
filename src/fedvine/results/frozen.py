"""Pages of results that are frozen text: runs of an earlier version of a protocol or method.

Such a page says so in a line near its top that begins with :data:`MARK`. Nothing overwrites it and
no test compares it with the kept cells, until a person deletes that line.
"""

from __future__ import annotations

from pathlib import Path

from fedvine.core.errors import FedvineError

MARK = "> **Not up to date.**"      # scripts/commands.py has the same
_TOP = 6                            # lines in which it is looked for


def frozen(page: Path) -> bool:
    """Return whether the file is such a page; False where there is no file."""
    if not page.is_file():
        return False
    lines = page.read_text("utf-8", errors="replace").splitlines()[:_TOP]
    return any(line.startswith(MARK) for line in lines)


def names_in(folder: Path) -> set[str]:
    """Return the names, without .md, of the frozen pages in a folder."""
    return {page.stem for page in folder.glob("*.md") if frozen(page)}


def check(page: Path) -> None:
    """Raise :class:`FedvineError` for a frozen page, which is not to be overwritten."""
    if frozen(page):
        raise FedvineError(f"{page} is of runs with an earlier version, and is left as it is; "
                           f'delete its line "{MARK} ..." to make the page again.')
