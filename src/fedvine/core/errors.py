"""The errors that fedvine raises, with one sentence for a person."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable


class FedvineError(ValueError):
    """One sentence that names the file, row, key or client, and the way out.

    ``code`` is the exit code of the command that it ends.
    """

    code: int = 2


class TooEarly(FedvineError):
    """The data do not have enough to begin with yet; with more rows they may."""


class Unanswered(FedvineError):
    """A question for a person, and nobody was there to answer it."""

    code = 4


class NotWritten(FedvineError):
    """A file could not be written, such as on a full disk: no fault of what was being done."""


class Busy(FedvineError):
    """Another process uses what is needed: no fault of what was being done."""


class HandedOver(FedvineError):
    """A file names data that are opened by a person's word alone, which ``remember`` keeps."""

    def __init__(self, text: str, remember: Callable[[], None]) -> None:
        super().__init__(text)
        self.remember = remember


class MethodError(FedvineError):
    """A method broke the contract of :class:`fedvine.core.method.Method`."""


class Refused(Exception):
    """A message that is not as expected; the text gives the reason, for a person."""


class Failed(Refused):
    """A client's own error in place of a reply: the call was not carried out."""


def near(word: str, known: Iterable[str]) -> str:
    """Return ' (did you mean "fedlink"?)' if a known name is close to ``word``, else ''."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f' (did you mean "{close[0]}"?)' if close else ""
