"""A malicious hub that would open a single upload to a secure sum: D3, D4, and minted certificates.

It has the key of the server's kit, and site ``EVE`` helps it with the key of its own kit. Of four
sites three must stay, so it would need one more helper.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks._attacker import EVE, VICTIM, calls, tell
from fedvine.aggregate.aggregate import digest_of
from fedvine.aggregate.bonawitz import open_sum
from fedvine.aggregate.identities import RosterMember
from fedvine.aggregate.noise import from_fixed
from fedvine.core import tree
from fedvine.core.message import Packed, unpack
from fedvine.core.settings import build
from fedvine.core.state import World
from fedvine.data.plan import Plan
from fedvine.federation import roster
from fedvine.methods.fedlink_private import FedLinkPrivate

if TYPE_CHECKING:
    from benchmarks._attack_hub import Theft

CLIP, NOISE, NEEDED = 0.1, 1.0, 3
# Of a stage without any row, for attacks on masks, and of the first stage of the runs beside it.
BOUNDS = 1.2e9, 1357035420.0, 1364811420.0
MINTED = "minted"           # folder of the second kit for ``OTHER``, beside the kits
OTHER, THIRD = "JFK", "HPN"


class Sum:
    """A secure sum on the way: what the sites sent in each exchange, by site."""

    def __init__(self, theft: Theft, method: dict[str, Any], number: str, live: bool = False
                 ) -> None:
        self.theft, self.names, self.place = theft, theft.names, [0, 1, 0]
        plan = Plan((*BOUNDS, 1.5e9), 0, 0, 3) if live else Plan(BOUNDS, 0, 0)
        self.terms, self.opening = {**theft.terms, "method": method}, {
            **theft.opening(method, number), "plan": plan.facts()}
        made = build(FedLinkPrivate, {k: v for k, v in method.items() if k != "name"}, under="")
        self.whole = True       # an upload is also of edges of earlier stages
        self.model = tree.weights(made.net(World(tuple(self.names), 0, 2)))
        for name in self.names:
            theft.quietly(name, **self.terms)
            if live:                    # a site reads its table again
                theft.quietly(name, do="facts", again=True)
                theft.quietly(name, **{key: self.opening[key] for key in (
                    "run", "number", "method", "plan", "protocol", "seed")}, do="grow", since=0)
            theft.quietly(name, **self.opening)

    def begin(self, stage: int = 0) -> None:
        """Take in a stage, after going back to the start of the run."""
        for name in self.names:
            self.theft.quietly(name, do="restore", moment=None)
        self.place = [stage, 1, 0]
        for name in self.names:
            self.theft.quietly(name, **calls([stage, 0, 1], "observe", None))

    def step(self, function: str, given: dict[str, list[Any]]) -> dict[str, Any]:
        """Call a function at sites, each with its own arguments, at the next place."""
        self.place = [*self.place[:2], self.place[2] + 1]

        def one(name: str) -> Any:
            skeleton, buffers, _ = self.theft.quietly(name, **calls(
                self.place, function, None, *given[name]))
            return unpack(Packed(skeleton, buffers))

        with ThreadPoolExecutor(len(given)) as threads:
            return dict(zip(given, threads.map(one, given), strict=True))

    def keys(self) -> None:
        self.number = time.time_ns()
        what = digest_of("upload", [self.model, {}, {}])
        self.sent = self.step("sum_keys", {
            n: [self.number, self.whole, what] for n in self.names})

    def shares(self) -> None:
        self.keys()
        self.boxes = self.step("sum_shares", {n: [self.sent] for n in self.names})

    def sealed(self, name: str) -> dict[str, bytes]:
        """Return the encrypted shares for one site, by sender."""
        return {sender: boxes[name] for sender, boxes in self.boxes.items()}

    def masked(self) -> None:
        self.shares()
        self.vectors = self.step("upload", {n: [self.model, {}, {}, self.sealed(n)]
                                            for n in self.names})

    def agreed(self, lists: dict[str, list[str]]) -> None:
        """Let each site sign the list that it is told."""
        self.masked()
        self.signed = self.step("sum_agree", {n: [came] for n, came in lists.items()})

    def opened(self) -> np.ndarray:
        """Open the sum as an honest hub does."""
        self.agreed(dict.fromkeys(self.names, self.names))
        found = self.step("sum_unmask", {n: [self.signed] for n in self.names})
        return from_fixed(open_sum(self.vectors, self.sent, self.boxes, found, NEEDED))

    def tried(self, what: str, function: str, *given: Any, finding: str = "D4") -> None:
        """Try a step at one site that must refuse it."""
        self.place = [*self.place[:2], self.place[2] + 1]
        self.theft.ask(finding, what, **calls(self.place, function, None, *given))


def attack(theft: Theft) -> None:
    """Try every opening that a hub with one helper has."""
    method = {**theft.method, "name": "fedlink_private", "share": ["model"]}
    one = Sum(theft, method, "sum")
    one.begin()
    members, helper = one.names, member(theft.kits / EVE, EVE)

    one.shares()
    one.tried("asks for an upload without masks (sealed = None)", "upload", one.model, {}, {},
              None)
    one.tried("begins a sum with the number of the one before", "sum_keys", one.number, True)
    one.keys()
    one.tried("puts a key of its own in the place of another site's", "sum_shares",
              {**one.sent, OTHER: {**one.sent[OTHER], "seal": one.sent[EVE]["seal"]}})
    one.keys()
    one.tried("mints a second certificate for a site, and signs keys as that site", "sum_shares",
              {**one.sent, OTHER: as_another(theft, one)}, finding="own 7")
    one.keys()
    one.tried("says that three is enough, and names two sites", "sum_shares",
              {n: one.sent[n] for n in (VICTIM, EVE)})
    one.keys()
    one.tried("lets a stranger take part", "sum_shares", {**one.sent, "XXX": one.sent[EVE]})
    one.shares()
    one.tried("asks for a vector masked for one other site", "upload", one.model, {}, {},
              {n: one.sealed(VICTIM)[n] for n in (VICTIM, EVE)})
    one.masked()
    one.tried("asks for a second vector under the same masks", "upload", one.model, {}, {},
              one.sealed(VICTIM))
    one.masked()
    one.tried("asks for a signature under a list of one", "sum_agree", [VICTIM])
    one.masked()
    one.tried("asks for a signature under a list without the site itself", "sum_agree",
              [n for n in members if n != VICTIM])

    # Two lists, each told to some: without its helper's second signature none has three.
    short = [n for n in members if n != THIRD]
    one.agreed({VICTIM: short, EVE: short, OTHER: members, THIRD: members})
    one.tried("tells two sites of four another list of who stayed", "sum_unmask",
              {n: one.signed[n] for n in (VICTIM, EVE)})
    one.agreed({VICTIM: short, EVE: short, OTHER: members, THIRD: members})
    twice = helper.sign("fedvine sum list", one.number, [
        [n, one.sent[n]["signature"]] for n in sorted(one.sent)], sorted(one.boxes), members)
    one.tried("lets its helper sign both lists", "sum_unmask", {
        **{n: one.signed[n] for n in (VICTIM, OTHER)}, EVE: twice})

    # Both secrets of one site: it is "gone" for three, and then came after all.
    one.begin()
    one.agreed({n: [m for m in members if m != OTHER] for n in members if n != OTHER})
    one.step("sum_unmask", {VICTIM: [one.signed]})
    one.tried("asks for the other secret of a site, too", "sum_agree", members)
    one.tried("asks for shares a second time", "sum_unmask", one.signed)

    # Sums of the same rows, with a site and without it: the first one is allowed.
    one.begin(stage=1)
    one.agreed(dict.fromkeys(members, members))
    one.masked()
    one.tried("asks four sites and then three of them, to subtract the sums", "sum_agree",
              [n for n in members if n != THIRD], finding="own 10")
    other = Sum(theft, {**method, "rounds": 7}, "another run")
    other.begin(stage=1)
    other.masked()
    other.tried("asks three of them in another run of the same table", "sum_agree",
                [n for n in members if n != THIRD], finding="own 10")
    other.whole = False
    other.shares()
    other.tried("says that the sum is of the newest rows alone", "upload", other.model, {}, {},
                other.sealed(VICTIM), finding="own 10")
    with a_changed_cell(theft.kits.parent / "data" / f"{THIRD}.parquet"):
        third = Sum(theft, method, "a changed table", live=True)
        third.begin(stage=1)
        third.masked()
        nothing = not third.sent[THIRD]["content"]
        third.tried(f"opens the sum anew after a cell of {THIRD}'s table was changed, to subtract "
                    f"the sums, and {THIRD} {'gives nothing' if nothing else 'TAKES PART'}",
                    "sum_agree", members, finding="own 10")
    Sum(theft, method, "the true table", live=True)     # which the sites read again
    noise(theft, method)


@contextmanager
def a_changed_cell(table: Path) -> Iterator[None]:
    """Change the place in one row of a site's table for a while."""
    true, shown = table.read_bytes(), parquet.read_table(table)
    places = shown["dest"].to_pylist()
    times = shown["time"].to_numpy()
    at = int(np.flatnonzero((times > BOUNDS[1]) & (times < BOUNDS[2]))[5])
    places[at] = next(place for place in places if place != places[at])
    column = shown.column_names.index("dest")
    parquet.write_table(shown.set_column(column, "dest", pa.array(places)), table)
    try:
        yield
    finally:
        table.write_bytes(true)


def noise(theft: Theft, method: dict[str, Any]) -> None:
    """Take one noisy sum from another: of two runs of a seed (D3), of other participants (D4)."""
    method = {**method, "aggregate": {
        **method.get("aggregate", {}), "clip": CLIP, "noise": NOISE}}
    found = []
    for number in ("first", "second"):
        one = Sum(theft, method, number)
        one.begin(stage=1)
        found.append(one.opened())
    ratio = float(np.std(found[0] - found[1]) / (
        NOISE * CLIP * (2 * len(one.names) / NEEDED) ** 0.5))
    tell("D3", "the hub subtracts the sums of two runs of one seed and one model", "all sites",
         f"{len(found[0])} numbers differ by {ratio:.2f} times what fresh noise of both would",
         0.8 < ratio < 1.25, "none: both sums are what the policy allows, and both are charged")
    one.begin(stage=1)
    again = one.opened()
    tell("D3", "the hub plays a round again, to have two noises of one upload", "all sites",
         "the same bytes" if (again == found[1]).all() else "other bytes", bool(
             (again == found[1]).all()), "none: nothing new has left")
    one.begin(stage=1)
    one.masked()
    one.tried("plays a round again, without one of its sites, to subtract the sums", "sum_agree",
              [n for n in one.names if n != THIRD])


def member(kit: Path, name: str, known: dict[str, str] | None = None) -> RosterMember:
    """Return the key of a kit with its roster, or another one."""
    found = roster.identity(kit, name) if known is None else RosterMember(
        name, roster._key(kit), known)
    assert found is not None
    return found


def as_another(theft: Theft, one: Sum) -> dict[str, Any]:
    """Return keys of a sum, signed by a second kit for a site that the hub has minted."""
    kit = theft.kits.parent / MINTED
    true = roster.kept(theft.kits / VICTIM)
    false = member(kit, OTHER, {**true, OTHER: roster.own_line(kit).split()[1]})
    false.roster = dict(sorted(true.items()))       # all but the key is as the others expect
    sent = {k: v for k, v in one.sent[OTHER].items() if k not in ("public", "signature")}
    assert json.loads((kit / "fedvine.json").read_text())["name"] == OTHER
    return {**sent, "public": false.public,
            "signature": false.sign("fedvine sum keys", one.number, OTHER, sent)}
