"""Errors of a site as they travel: a code, and no sentence of the site's own.

A sentence may hold a cell, a column or a path of the site's table, so it stays in the site's
account. What travels is ``[code, *words]``; the server makes its sentence of the code. The words
are of the request and of the site's policy, never of its table.
"""

from __future__ import annotations

from typing import Any

from fedvine.core.errors import FedvineError

WORD, WORDS = 100, 4    # characters of a word, and words, that are read

#: The server's sentence for each code; ``{0}``, ``{1}`` are the words.
SENTENCES = {
    "seal": "a site answers its own server alone, and each request once",
    "unread": "the request cannot be read there",
    "unknown": "a site does not do what was asked",
    "terms": "the server has not said there what this run would do",
    "closed": "no run is open there",
    "another": "another run is open there",
    "facts": "it cannot read the server's facts about its graph",
    "arrivals": "the server sent arrivals that do not fit the site's users",
    "settings": "the method, its constants or the protocol are not valid there; the method must be "
                "installed at all machines, and fedvine in one version",
    "device": "torch finds no GPU there, and its site.toml has device = \"cuda\"; with \"auto\" it "
              "computes on what it has",
    "task": "a federation does not carry the method's task",
    "no-edges": "its tables are a labelled graph, and the run predicts links; it joins with a "
                "table of edges that has times",
    "no-nodes": "its table has edges alone, and the run classifies nodes; it joins with --data "
                "NODES --edges EDGES",
    "open-classes": "it gives keys of its classes alone, and the run wants their names; leave "
                    "class_names = \"open\" out of the experiment, or let it join with "
                    "--open-classes",
    "classes": "it cannot read the server's classes",
    "columns": "its columns of features are not those of the run; name the same ones at all sites, "
               "in one order",
    "table": "its table cannot be opened; its account says why",
    "new-class": "a new class in its table is nearly a known one, or has only one row; its account "
                 "says which: correct it there, or set sure = true under [data] of its site.toml",
    "far": "a time of its table is far from all others there; its account says which: correct it "
           "there, or set sure = true under [data] of its site.toml",
    "span": "its times are far from those of all other sites, as of another unit or dates that are "
            "written in another way; write them alike, or set sure = true under [data] of its "
            "site.toml",
    "rows": "its table has lost or changed rows that the run has learned, or cannot be kept; its "
            "account says which",
    "changed": "its table (or the shared key) has changed since this run began; put back the one "
               "it began with, or begin a new run with another --out",
    "sums": "it gave sums of its columns over nearly the same rows before, and the difference "
            "would show what a few of them have; begin the run with the first stage of the one "
            "before",
    "query": "raw answers to queries do not leave a site",
    "method": "the call is not one that the method takes; the site's account says why",
    "sum": "a step of a secure sum was refused there, as another one was meant or a client's keys "
           "are not those of the site's roster; the site's account says why",
    "roster": "the site has no roster of all sites' fingerprints that fits its own key, which "
              "secure sums need; fedvine join KIT --roster FILE there",
    "roster-names": "the site's roster does not have {0}; let all sites confirm one roster of the "
                    "sites that take part",
    "roster-size": "the site's roster has {0} sites, of which a secure sum needs {1}, and {2} take "
                   "part; let all sites confirm a roster of those that do",
    "spent": "its limit of privacy is spent; it sends nothing with noise any more",
    "failed": "the request failed there; the site's account says why",
    "policy-method": "the site's policy does not allow the method {0}",
    "policy-field": "the site's policy wants {0} to be {1}, and in this run it is {2}",
    "policy-epsilon": "the site's policy allows an epsilon of {0} at most, and in this run it is "
                      "{1}",
    "policy-times": "the site's policy lets no times leave at which users were first seen; set "
                    "travelled = false in the experiment",
    "policy-bytes": "the site's policy lets {0} leave in a round at most, and {1} would",
}


class Refusal(FedvineError):
    """A site's refusal of a request: ``code`` and ``words`` travel, ``text`` stays at the site.

    Without ``text`` the server's sentence is the site's too.
    """

    def __init__(self, code: str, *words: str, text: str | None = None) -> None:
        self.sent = [code, *(str(word)[:WORD] for word in words)]
        super().__init__(text or sentence(self.sent))


def sentence(sent: Any) -> str:
    """Return the sentence of ``[code, *words]``, which may come from a stranger."""
    if not isinstance(sent, list) or not 0 < len(sent) <= 1 + WORDS or not all(
            isinstance(part, str) and len(part) <= WORD for part in sent):
        return "an error without a code that is known here"
    code, *words = (" ".join("".join(c if c.isprintable() else " " for c in part).split())
                    for part in sent)
    try:
        return SENTENCES[code].format(*words)
    except (KeyError, IndexError):
        return "an error without a code that is known here"
