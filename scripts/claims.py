"""Compare sentences and tables of the pages with the kept cells: ``claims.py [CLAIMS]``.

``docs/claims.toml`` has a table ``[[claim]]`` for each sentence. ``page`` is where it stands and
``says`` its words, which must be there; ``rests`` is the page of ``fedvine reproduce`` whose kept
cells it rests on (``only`` some experiments of it), ``panels`` are blocks of that page, ``scores``
the scores, ``of`` a line there. What follows must hold for each of these panels and scores:

- with ``above``: the line is above each of these lines by more than the 95 % interval of the paired
  difference, or, where seeds are too few for one, in each seed
- with ``to``: the sentence gives the difference to (``is = "difference"``) or the ratio
  (``is = "ratio"``) over this line, and ``value`` is the number as it stands in the sentence
- with neither: ``value`` is the line's mean
- with ``table``: the page has a Markdown table whose first row begins like this; its columns are
  panels, its lines begin with the line's name, and every number is the mean of the only score

A number holds if it is the mean rounded to as many digits. Nothing is run. The exit status is 1 if
a claim does not hold, or if cells or its words are missing. Claims whose data are not at hand are
named and left out.
"""

from __future__ import annotations

import math
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from fedvine.papers import reproduce
from fedvine.papers.study import Found, planned
from fedvine.results.entry import Entry, difference
from fedvine.tasks.link_prediction import LinkPrediction

ROOT = Path(__file__).parents[1]
SIMPLE = LinkPrediction.shown.simple


@cache
def cells_of(name: str, only: str | None) -> Found:
    """Return the kept cells of a page of ``fedvine reproduce``, or of some of its experiments."""
    return planned(reproduce.study(name), only)


def failures(claim: dict[str, Any], text: str, found: Found) -> Iterator[str]:
    """Yield a sentence for each part of a claim that does not hold on the page ``text``."""
    if "table" in claim:
        yield from _of_table(claim, text, found)
        return
    if " ".join(claim["says"].split()) not in " ".join(text.split()):
        yield "these words are not on the page"
    for panel in claim["panels"]:
        for score in claim["scores"]:
            yield from _of_lines(claim, found, panel, score)


def _of_lines(claim: dict[str, Any], found: Found, panel: str, score: str) -> Iterator[str]:
    ours = _line(found, panel, claim["of"])
    for name in claim.get("above", []):
        apart = difference(ours, _line(found, panel, name), score, SIMPLE)
        lowest = min(apart.values) if math.isnan(apart.half) else (apart.mean or 0) - apart.half
        if not lowest > 0:
            yield f"{claim['of']} less {name} is {apart.text(3, '+')} in {score} of {panel}"
    if "value" in claim:
        if claim["value"] not in claim["says"]:
            yield f"{claim['value']} is not in these words"
        mean = _mean(ours, score)
        if "to" in claim:
            other = _mean(_line(found, panel, claim["to"]), score)
            mean = mean - other if claim["is"] == "difference" else mean / other
        if not _same(claim["value"], abs(mean)):
            yield f"{claim['value']} is {abs(mean):.4f} by the cells"


def _of_table(claim: dict[str, Any], text: str, found: Found) -> Iterator[str]:
    if claim["table"] not in text:
        yield "this table is not on the page"
        return
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in
            text[text.index(claim["table"]):].split("\n\n")[0].splitlines()]
    for name, *values in rows[2:]:
        for panel, value in zip(rows[0][1:], values, strict=True):
            mean = _mean(_line(found, panel, name), claim["scores"][0])
            if not _same(value, mean):
                yield f"{name} on {panel} is {value} there, and {mean:.4f} by the cells"


def _line(found: Found, panel: str, name: str) -> Entry:
    entry = found.entry(panel, name)
    if not entry.records:
        raise LookupError(f"no cell of {name} on {panel} is kept as the code is now")
    return entry


def _mean(entry: Entry, score: str) -> float:
    mean = entry.estimate(score)[0]
    if mean is None:
        raise LookupError(f"{entry.label} has no {score}")
    return mean


def _same(said: str, value: float) -> bool:
    """Return whether a number is ``value``, rounded to its digits."""
    digits = len(said.partition(".")[2])
    return abs(float(said) - value) <= 0.5 * 10**-digits + 1e-9


def main(file: Path) -> int:
    """Print a line for each claim, and return the exit status."""
    wrong = 0
    for claim in tomllib.loads(file.read_text("utf-8"))["claim"]:
        found = cells_of(claim["rests"], claim.get("only"))
        words = claim.get("says") or claim["table"]
        name = f"{claim['page']}, \"{' '.join(words.split())}\""
        if found.absent.keys() & claim.get("panels", found.absent.keys()):
            print(f"left out  {name}: its data are not at hand")
            continue
        try:
            said = list(failures(claim, (ROOT / claim["page"]).read_text("utf-8"), found))
        except KeyError as error:
            said = [f"the claim in {file.name} has no {error}"]
        except LookupError as error:
            said = [str(error)]
        wrong += bool(said)
        print(f"{'wrong' if said else 'holds':9} {name}" + (f": {'; '.join(said)}" if said else ""))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "claims.toml"))
