"""Erase persons at a site of a federation, and everywhere what was learned from them.

- at the site (``fedvine erase KIT``): their rows and names, and what this site saved and forecast
  in the runs that had them. The hashes of their rows, by which sums are kept apart
  (:mod:`fedvine.aggregate.answered`), become random numbers, so that of a stage with one of the
  rows no other sum is given: the difference would show them
- at the hub, when the site next agrees to one of these runs: its saves, scores and model of it. The
  run is carried out again from its start, by the plan that it has
- at all other sites, before they open the run again: their saves and forecasts of it, which hold
  what came of the rows under a pseudonym

What travels is a random number for each erasure: neither the hub nor another site hears of whom, of
how many, or of which rows it is. A site stays out of a run until its server has deleted what it
learned. As sites could keep a run from its end by erasures, one site makes a run begin anew once a
day at most; more of them wait.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fedvine
from fedvine.aggregate.answered import Answered
from fedvine.core.errors import FedvineError
from fedvine.core.expect import Several, Text, check
from fedvine.core.files import atomic, atomic_folder
from fedvine.data.graph import Graph
from fedvine.data.identity import rows_of
from fedvine.engines.remote import Send, ask
from fedvine.experiments.receipts import now, signed
from fedvine.federation.account import FOLDER, Account
from fedvine.federation.pseudonyms import FILE as PSEUDONYMS
from fedvine.federation.pseudonyms import Pseudonyms
from fedvine.federation.site_file import MEMORY, locked
from fedvine.federation.site_saves import FILES, LISTS
from fedvine.living import erased
from fedvine.living.rows import StoredRows
from fedvine.living.sites import asked

FILE, RECEIPTS, KEY = "erasures.json", "receipts", "receipts.key"     # in a site's memory
ROWS = "rows.npz"           # there: which rows sums of methods were of
MANY = 1000                 # erasures of a run that are kept
NUMBERS, TEXTS = Several(Text(32), MANY), Several(Text(2000), MANY)
A_DAY = 86_400.0            # seconds in which a site makes a run begin anew once
_RUN = re.compile(r"(.+)-[0-9a-f]{12}(?:-graph)?")


# -- at a site -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Concerned:
    """Hold the rows that a site has of persons, by folder, and the names of the runs with any."""

    rows: dict[Path, tuple[StoredRows, erased.Gone]]
    runs: list[str]


def concerned(kit: Path, names: Mapping[str, Iterable[str]]) -> Concerned:
    """Return what a site's runs have of ``names``, by a word of :data:`erased.SIDES`.

    A run that does not live keeps no rows; all of these count. Raises :class:`FedvineError` for a
    name that no run here knows.
    """
    memory, kept, names = kit / MEMORY, {}, erased.canonical(names)
    places = [p for p in sorted(memory.glob("*-*")) if p.is_dir() and _RUN.fullmatch(p.name)]
    wanted = {(side, name) for side in erased.SIDES for name in names.get(side, ())}
    if any(side == "client" for side, _ in wanted):
        raise FedvineError("A site is one client; to take all of it out, leave the federation, and "
                           "let the hub withdraw its kit.")
    met, plain = set[tuple[str, str]](), [p for p in places if (p / "table.json").exists()]
    for place in places:
        folder = place / "data" if (place / "data").is_dir() else place
        if not StoredRows.there(folder):
            continue
        rows = StoredRows.open(folder)
        here = {one for one in wanted if _knows(rows, *one)}
        met |= here
        if here:
            kept[folder] = rows, erased.marked(rows, {
                side: [name for s, name in here if s == side] for side, _ in here})
    if (strangers := sorted(name for _, name in wanted - met)) and not plain:
        raise FedvineError(f'No run at {kit} has learned "{strangers[0]}"; nothing is erased.')
    runs = [*plain, *(f.parent if f.name == "data" else f for f in kept)]
    return Concerned(kept, sorted({_RUN.fullmatch(p.name)[1] for p in runs}))  # type: ignore[index]


def _knows(rows: StoredRows, side: str, name: str) -> bool:
    data = rows.split.stream
    if side == "node" and not isinstance(data, Graph) and data.bipartite:
        return False
    ids = data.names() if isinstance(data, Graph) else (
        data.dst_ids if side == "item" else data.src_ids)
    return bool(ids.numbers([name])[0] >= 0)


def erase(kit: Path, names: Mapping[str, Iterable[str]]) -> Path:
    """Erase persons at a site, and return the receipt's file; the hub hears of it when it asks.

    Rows go last, so that the same command finishes an erasure that was stopped. Raises
    :class:`FedvineError` as :func:`concerned`, and while a job is at work here.
    """
    from fedvine.experiments.erase import forget_copies  # a site's process stays small
    memory, names = kit / MEMORY, erased.canonical(names)
    with locked(memory):
        what = concerned(kit, names)
        if not what.runs:
            raise FedvineError(f"{kit} has no run; nothing is erased.")
        receipt = {
            "format": 1, "receipt": secrets.token_hex(16), "asked": now(),
            "run": ", ".join(what.runs),
            "fedvine": fedvine.__version__, "kind": "at a site",
            "rows": sum(int(gone.rows.sum()) for _, gone in what.rows.values()),
            "erased": {side: len(list(names[side])) for side in erased.SIDES if names.get(side)},
            "note": "The hub and the other sites drop what they learned when the hub next asks; "
                    "their receipts come then. The table has to lack the rows."}
        Erasures(memory).add(receipt, what.runs)
        words = [name for side in erased.SIDES for name in names.get(side, ())]
        forget_copies(names)
        Account(memory / FOLDER).forget(words)
        Pseudonyms(memory / PSEUDONYMS).forget([word.encode() for word in words])
        for run in what.runs:
            _drop_saves(memory, run)
        answered = Answered(memory / ROWS)
        for folder, (rows, gone) in what.rows.items():
            before = _hashes(rows.split.stream)
            split, plan = erased.without(rows, gone)
            answered.forget(np.setdiff1d(before, _hashes(split.stream)))
            facts = {key: value for key, value in rows.facts.items() if key == "read"}
            with atomic_folder(folder) as target:
                StoredRows.create(target, split, plan, **facts)
        file = memory / RECEIPTS / f"{receipt['asked'][:10]}-{receipt['receipt'][:8]}.json"
        with atomic(file, "w") as handle:
            json.dump(signed({**receipt, "done": now()}, memory / KEY), handle, indent=1)
    return file


def _hashes(data: Any) -> np.ndarray:
    return rows_of(data if isinstance(data, Graph) else data[:].both_ways())


def _drop_saves(memory: Path, run: str) -> int:
    """Delete what a site saved and forecast in the runs of this name; return how many saves."""
    there = 0
    for place in [p for p in memory.glob(f"{run}-*") if (m := _RUN.fullmatch(p.stem)) and (
            m[1] == run)]:
        if place.suffix == ".parquet":
            place.unlink()
            continue
        for save in place.glob("[0-9]*"):
            shutil.rmtree(save)
            there += 1
        for other in ("table.json", LISTS):
            (place / other).unlink(missing_ok=True)
    return there


class Erasures:
    """The erasures that a site has to do with, in a file of its ``memory``.

    ``own`` are its own ones, with those who have dropped what they learned ("by"); ``done`` are the
    receipts for others' by run and number. ``name`` is the site's.
    """

    def __init__(self, memory: Path, name: str = "") -> None:
        self.memory, self.name, self.file = memory, name, memory / FILE

    def _read(self) -> dict[str, Any]:
        if not self.file.exists():
            return {"own": [], "done": {}}
        return json.loads(self.file.read_text("utf-8"))

    def _write(self, values: dict[str, Any]) -> None:
        with atomic(self.file, "w") as handle:
            json.dump(values, handle)

    @property
    def own(self) -> list[dict[str, Any]]:
        """Return the site's own erasures, oldest first."""
        return self._read()["own"]

    def add(self, receipt: Mapping[str, Any], runs: list[str]) -> None:
        """Enter an erasure of this site, and the names of the runs that it concerns."""
        values = self._read()
        values["own"].append({"number": receipt["receipt"], "asked": receipt["asked"],
                              "runs": runs, "rows": receipt["rows"], "by": {}})
        self._write(values)

    def due(self, run: str) -> list[str]:
        """Return the numbers of this site's erasures that concern a run."""
        return [one["number"] for one in self.own if run in one["runs"]][-MANY:]

    def carry_out(self, run: str, numbers: list[str], receipts: list[str]) -> list[str]:
        """Drop what rests on others' erasures, and keep ``receipts`` for own ones.

        Returns a receipt for each of ``numbers``, as JSON. Raises :class:`FedvineError` for
        anything else than lists of texts.
        """
        check(numbers, NUMBERS)
        check(receipts, TEXTS)
        values = self._read()
        done = values["done"].setdefault(run, {})
        if any(number not in done for number in numbers):
            saves = _drop_saves(self.memory, run)
            for number in numbers:
                done.setdefault(number, receipt_of(number, run, self.name, saves,
                                                   self.memory))
            values["done"][run] = dict(list(done.items())[-MANY:])
        mine = {one["number"]: one for one in values["own"]}
        for text in receipts:
            said = _receipt(text)
            one, by = mine.get(str(said.get("receipt"))), str(said.get("by"))
            if one is not None and by not in one["by"]:
                one["by"][by] = str(said.get("done"))
                name = f"{one['asked'][:10]}-{one['number'][:8]}-{_plain(by)}.json"
                with atomic(self.memory / RECEIPTS / name, "w") as handle:
                    handle.write(text)
        if numbers or receipts:
            self._write(values)
        return [done[number] for number in numbers]

    def sentences(self) -> list[str]:
        """Return a sentence for each of this site's erasures, for people."""
        return [f"Erasure {one['number'][:8]} of {one['asked'][:10]}, {one['rows']:,} rows of "
                f"{', '.join(one['runs'])}: " + (
                    f"dropped by {', '.join(sorted(one['by']))}." if one["by"] else
                    "the hub does not know of it yet.") for one in self.own]


def _receipt(text: str) -> dict[str, Any]:
    """Return what a receipt says; nothing where a stranger's text is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _plain(name: str) -> str:
    return re.sub(r"[^\w-]+", "-", name)[:100]


def receipt_of(number: str, run: str, by: str, saves: int, folder: Path) -> str:
    """Return a signed receipt of what was dropped, as JSON; the key is in ``folder``."""
    return json.dumps(signed({"format": 1, "receipt": number, "run": run, "by": by, "saves": saves,
                              "done": now(), "fedvine": fedvine.__version__}, folder / KEY))


# -- at the hub ------------------------------------------------------------------------------------
def apply_erasures(out: Path, hub: Path, run: str, said: Mapping[str, list[str]], send: Send,
                   patience: float) -> dict[str, Any]:
    """Drop what was learned in a run where a site has erased somebody; return all erasures of it.

    ``said`` are the numbers by site, as it told when it agreed. Of each number the result, which
    ``plan.json`` in ``out`` keeps, has the ``site``, the ``time``, who dropped (``by``), and
    receipts that the site has not got yet (``unsent``). A site that does not answer is asked when
    it is back.
    """
    file = out / "plan.json"
    kept = json.loads(file.read_text("utf-8")) if file.exists() else None
    known: dict[str, Any] = {} if kept is None else kept.setdefault("erased", {})
    late = time.time() - A_DAY
    lately = {one["site"] for one in known.values() if one["time"] > late}
    new = {number: site for site, numbers in sorted(said.items()) if site not in lately
           for number in numbers if number not in known}
    if new:
        saves = 0
        if kept is not None:
            from fedvine.experiments.erase import drop  # a site's process stays small
            saves = drop(out)
            for left in FILES.values():
                (out / left).unlink(missing_ok=True)
        for number, site in new.items():
            known[number] = {"site": site, "time": time.time(), "by": ["hub"], "unsent": [
                receipt_of(number, run, "hub", saves, hub)]}
    for _ in range(0 if kept is None else 2):   # receipts of the first turn go on in the second
        if not _exchanged(known, run, sorted(said), send, patience) and not new:
            break
        new = {}
        with atomic(file, "w") as handle:
            json.dump({**(kept or {}), "erased": dict(list(known.items())[-MANY:])}, handle)
    return known


def _exchanged(known: dict[str, Any], run: str, here: list[str], send: Send, patience: float
               ) -> bool:
    """Let sites drop what is left, and send them receipts; return whether there was any."""
    numbers = {site: [number for number, one in known.items()
                      if site != one["site"] and site not in one["by"]] for site in here}
    sent = {site: [text for one in known.values() if one["site"] == site
                   for text in one["unsent"]] for site in here}

    def one(site: str) -> list[str]:
        answer = ask(send, site, patience, do="erased", run=run, numbers=numbers[site],
                     receipts=sent[site])
        check(answer, TEXTS)
        return answer

    those = [site for site in here if numbers[site] or sent[site]]
    answers, _ = asked(those, one, "erased")
    for site, receipts in answers.items():
        for erasure in known.values():
            erasure["unsent"] = [text for text in erasure["unsent"] if text not in sent[site]]
        for number, receipt in zip(numbers[site], receipts, strict=False):
            said = _receipt(receipt)
            if (said.get("receipt"), said.get("by")) == (number, site):
                known[number]["by"].append(site)
                known[number]["unsent"].append(receipt)
    return bool(those)
