"""The kind of queries that go with a call outside of training."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Query(NamedTuple):
    """Kind of the queries that a call of ``predict`` answers; None stands for training.

    Attributes:
        kind: "stage": queries of stage ``number``, which the library draws at the client and
            scores there. "given": queries of a person, the last argument of the call. "own":
            queries about block ``number`` of the client's own users, made at the client; the
            answers stay there.
        number: of the stage or of the block, from 0; 0 for "given".
    """

    kind: Literal["stage", "given", "own"]
    number: int = 0

    @staticmethod
    def of_code(code: int | None) -> Query | None:
        """Return the query of an integer of :func:`code`."""
        if code is None:
            return None
        return (Query("stage", code) if code >= 0 else
                Query("given") if code == -1 else Query("own", -2 - code))


def code(query: Query | None) -> int | None:
    """Return the integer that stands for a query in messages and saves, None in training.

    It is the number of the stage, -1 for given queries, and -2 - b for block b of own users.
    """
    if query is None:
        return None
    return (query.number if query.kind == "stage" else
            -1 if query.kind == "given" else -2 - query.number)
